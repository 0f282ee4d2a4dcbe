/* preft chat: the terminal interface. */
#include "base/config.h"
#include "base/mem.h"
#include "commands/command.h"
#include "commands/man.h"
#include "commands/open.h"
#include "commands/sample_config.h"
#include "commands/signin.h"
#include "models/catalogue.h"
#include "profiles/store.h"
#include "ui/app.h"
#include "ui/screen.h"
#include "ui/theme.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const levels[] = {"interactive", "moderate", "sensitive", NULL};

static struct {
    option_list users;
    const char *script, *size, *editor;
    bool no_mouse, print_config;
    int kdf, theme;
    int64_t lock_after;
} opt = {.size = "80x24", .kdf = 1};

static const option_spec options[] = {
    OPTION_LIST_SPEC('u', "user", &opt.users, "USER",
                     "Begin with a pane for this user; may be given again, a pane each."),
    OPTION_FLAG_SPEC(
        0, "no-mouse", &opt.no_mouse,
        "Leave the mouse to the terminal (its own selection works as usual), as is always "
        "done inside GNU screen; F9 takes it."),
    OPTION_CHOICE_SPEC(0, "theme", &opt.theme, "NAME", theme_names,
                       "Colours: `auto` (the default), `dark`, `light`, `high-contrast`, `mono`."),
    OPTION_INT_SPEC(0, "lock-after", &opt.lock_after, "MINUTES", 0, 10080,
                    "Lock all panes when no key came for so long and nothing is being written or "
                    "trained. "
                    "Default: 0, never."),
    OPTION_STRING_SPEC(0, "editor", &opt.editor, "COMMAND",
                       "The editor for long texts. Default: `$VISUAL`, else `$EDITOR`, else `vi`."),
    OPTION_CHOICE_SPEC(0, "kdf", &opt.kdf, "LEVEL", levels,
                       "How costly guessing a new user's passphrase is made (default "
                       "`moderate`)."),
    OPTION_STRING_SPEC(0, "script", &opt.script, "FILE",
                       "Play the keys in FILE on a screen in memory and write the screens it asks "
                       "for (`-`: standard input)."),
    OPTION_STRING_SPEC(0, "size", &opt.size, "COLSxROWS",
                       "The size of that screen (default 80x24)."),
    OPTION_FLAG_SPEC(0, "print-config", &opt.print_config,
                     "Print a commented configuration file with every setting and key."),
    OPTIONS_END};

static pf_status print_config(void)
{
    buf text = {0};
    sample_config_write(options, &text);
    fputs(buf_str(&text), stdout);
    buf_free(&text);
    return PF_OK;
}

static pf_status parse_size(const command_context *ctx, int *cols, int *rows, pf_err *err)
{
    char rest;
    if (sscanf(opt.size, "%4dx%4d%c", cols, rows, &rest) == 2 && *cols >= 1 && *rows >= 1 &&
        *cols <= 1000 && *rows <= 1000)
        return PF_OK;
    return usage_error(ctx, err, "--size takes COLSxROWS, like 80x24, not \"%s\"", opt.size);
}

/* What is wrong with preft.conf, where there is no screen to show it on. */
static void note_problems(const command_context *ctx)
{
    for (const char *line = settings_problems(); *line; line += strcspn(line, "\n") + 1)
        note(ctx, "%.*s", (int)strcspn(line, "\n"), line);
}

/* --- settings that may change while the chat runs ------------------------------------------- */

typedef struct {
    const char *editor;
    bool no_mouse;
    int theme;
    int64_t lock_after;
} live_settings;

static live_settings at_start, file_at_start;

static live_settings live_now(void)
{
    return (live_settings){opt.editor, opt.no_mouse, opt.theme, opt.lock_after};
}

/* What preft.conf alone asks for. */
static live_settings live_of_file(buf *problems)
{
    const option_spec *const tables[] = {options, passphrase_table, NULL};
    __typeof__(opt) kept = opt;
    signin_options signin = signin_values;
    opt.users = (option_list){0};
    opt.editor = NULL;
    opt.no_mouse = false;
    opt.theme = 0;
    opt.lock_after = 0;
    config_apply(settings_file(), "chat", tables, problems, NULL);
    live_settings found = live_now();
    option_list_free(&opt.users);
    opt = kept;
    signin_values = signin;
    return found;
}

static void put_live(const live_settings *l, app_options *app)
{
    app->editor = l->editor;
    app->no_mouse = l->no_mouse || (!opt.script && screen_keeps_esc());
    app->theme = theme_names[l->theme];
    app->lock_after = (int)l->lock_after * 60;
}

static void note_start(void)
{
    buf told_already = {0};
    at_start = live_now();
    file_at_start = live_of_file(&told_already);
    buf_free(&told_already);
}

/* The command line is stronger: what it gave at the start stays. */
static pf_status reload(app_options *app, pf_err *err)
{
    static buf problems;
    pf_status status = settings_read_again(err);
    if (status != PF_OK) return status;
    buf_clear(&problems);
    buf_puts(&problems, settings_problems());
    live_settings now = live_of_file(&problems);
    if (at_start.editor != file_at_start.editor) now.editor = at_start.editor;
    if (at_start.no_mouse != file_at_start.no_mouse) now.no_mouse = at_start.no_mouse;
    if (at_start.theme != file_at_start.theme) now.theme = at_start.theme;
    if (at_start.lock_after != file_at_start.lock_after) now.lock_after = at_start.lock_after;
    put_live(&now, app);
    app->problems = buf_str(&problems);
    return PF_OK;
}

static pf_status read_secret(const void *ctx, const char *prompt, secret **out, pf_err *err)
{
    return signin_read_secret(ctx, prompt, out, err);
}

/* --- the first start -------------------------------------------------------------------------- */

static void tell(void *ctx, const char *text)
{
    note(ctx, "%s", text);
}

static bool agreed(void)
{
    char line[16];
    if (!fgets(line, sizeof line, stdin)) return false;
    return line[0] == '\n' || line[0] == 'y' || line[0] == 'Y';
}

/* No model is installed: on a terminal the person is asked whether the default one is to be
 * fetched. *err says so if it was not. */
static pf_status fetch_model(const command_context *ctx, pf_err *err)
{
    size_t n = 0;
    const catalogue_entry *entry = catalogue_entries(&n);
    char *path = NULL;
    fprintf(stderr, "There is no model on this machine yet. Fetch %s (%.0f MB) now? [Y/n] ",
            entry->title, (double)entry->size / 1e6);
    if (!agreed())
        return err_set(err, PF_NOT_FOUND,
                       "there is no model; `preft model pull` fetches one, --model names another");
    pf_status status =
        catalogue_pull(entry, ctx->global->models, tell, (void *)(uintptr_t)ctx, &path, err);
    free(path);
    return status;
}

static pf_status open_or_fetch_model(const command_context *ctx, model **out, pf_err *err)
{
    bool ask = !opt.script && !ctx->global->model && isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    pf_status status = open_model(ctx, out, err);
    if (status != PF_NOT_FOUND || !ask) return status;
    status = fetch_model(ctx, err);
    return status == PF_OK ? open_model(ctx, out, err) : status;
}

static pf_status run_interface(const app_options *app, screen_kind kind, int cols, int rows,
                               pf_err *err)
{
    if (opt.script) return app_run_script(app, opt.script, cols, rows, stdout, err);
    return kind == SCREEN_LINE ? app_run_lines(app, err) : app_run(app, err);
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    int cols = 0, rows = 0;
    store_options how = {0};
    model *m = NULL;
    engine *e = NULL;
    store *st = NULL;
    char *path = NULL;
    if (opt.print_config) return print_config();
    screen_kind kind = opt.script ? SCREEN_FULL : screen_probe(err);
    if (kind == SCREEN_NONE) return PF_USAGE;
    pf_status status = parse_size(ctx, &cols, &rows, err);
    if (status != PF_OK) return status;
    PF_ASSERT(vault_cost_parse(levels[opt.kdf], &how.cost));
    status = store_open(ctx->global->home, &how, &st, err);
    if (status == PF_OK) status = open_or_fetch_model(ctx, &m, err);
    if (status != PF_OK) goto out;
    engine_options settings = open_engine_options(ctx);
    status = engine_open(m, &settings, &e, err);
    if (status != PF_OK) goto out;
    path = settings_path();
    note_start();
    app_options app = {.store = st,
                       .engine = e,
                       .users = opt.users.items,
                       .n_users = opt.users.count,
                       .read_secret = read_secret,
                       .secret_ctx = ctx,
                       .reload = reload,
                       .settings = settings_file(),
                       .settings_path = path,
                       .problems = settings_problems()};
    put_live(&at_start, &app);
    if (kind == SCREEN_LINE) note_problems(ctx);
    status = run_interface(&app, kind, cols, rows, err);
out:
    free(path);
    engine_close(e);
    model_close(m);
    store_close(st);
    return status;
}

const struct command chat_command = {
    .name = "chat",
    .summary = "Chat in the terminal, several people side by side",
    .synopsis = TEXTS("[--user USER]...", "--script FILE [--size COLSxROWS]"),
    .description = TEXTS(
        "Opens the terminal interface: every pane belongs to one signed-in person, and one "
        "engine answers all of them together. F1 shows the keys, Ctrl-P finds any command, and a "
        "message that begins with / is a command. The first person of a machine is shown around; "
        "`/tour` does that again. On a terminal without a model the chat offers to fetch one.",
        "Enter sends, Alt-Enter begins a new line, Ctrl-G opens your own editor, and a paste is "
        "one "
        "text; what is not sent yet is kept with its conversation. Answers are shown as Markdown, "
        "Alt-T shows them as they were written, Alt-D with times, tokens and rates.",
        "Ctrl-S, or a click, selects a message: copy it, rate the answer or write it as it should "
        "have been (training learns from that), ask for another answer, edit a question and send "
        "it again, delete it. The older ones stay as branches: Left and Right go from one to the "
        "next. A copy goes to the terminal's clipboard (OSC 52) and, since terminals don't tell "
        "whether they took it, to a private file in memory that is wiped when the pane is left.",
        "A profile is what the model learns from one person. Ctrl-O lists them: use, make, teach, "
        "compare, rename, copy, export, import and delete them, and look at what each version has "
        "learned; a deleted one can come back until the list is left. Another profile reads the "
        "conversation again. Alt-A, or `/beside QUESTION`, opens a second pane for the same person "
        "with the conversation so far and without the profile: what is written in one of them goes "
        "to both, until Alt-A parts them.",
        "Ctrl-T teaches the profile in use: from answers that were rewritten, from those that were "
        "called good, from whole conversations or from a file, and from what was noted with "
        "`/note`. What is learned from is shown and counted before it starts; while it runs, its "
        "loss is drawn and chatting goes on. Afterwards the new version can be compared with the "
        "former one and given up for it. A lock, a sign-out or a crash breaks a training off; its "
        "state is saved, encrypted, and it is offered to go on from there.",
        "On a terminal that can't place its cursor (TERM=dumb), and when input or output is a "
        "pipe, the chat goes line by line: each line is a message (a backslash at its end: "
        "with the next one), lines that begin with / are commands, `/help` shows them. "
        "Answers alone go to standard output.",
        "With `--script` no terminal is needed. The script has one step or several keys a "
        "line: texts in double quotes are typed, key names (`Enter`, `Ctrl-O`) pressed; "
        "`:wait idle`, `:wait text \"T\"`, `:wait gone \"T\"`, `:expect \"T\"`, "
        "`:reject \"T\"`, `:screen NAME`, "
        "`:resize COLSxROWS`, `:pane N`, `:paste \"T\"`, `:click X Y`, `:drag X Y X Y`, "
        "`:wheel up|down X Y`, `:clock HH:MM`, `:limit N`, `:answer`, `:cells NAME`, "
        "`:idle SECONDS`, `:restart` and `:sleep MS` do what they say. Answers are "
        "greedy and figures of the moment are dashes, so that the same script gives the "
        "same screens. A wait that fails ends the program with exit code 1."),
    .options = options,
    .examples =
        EXAMPLES({"preft chat", "Chat; the first time, make a user."},
                 {"preft chat --user mira --user jonas", "Two panes, one to sign in for each."},
                 {"preft chat --user mira < questions.txt > answers.txt",
                  "Line by line; the passphrase is asked on the terminal."}),
    .see_also = TEXTS("preft-run 1", "preft-user 1", "preft-profile 1"),
    .groups = GROUP_MODEL | GROUP_ENGINE | GROUP_PASSPHRASE,
    .area = AREA_CHAT,
    .shows_problems = true,
    .man_sections = man_put_interface,
    .run = run,
};
