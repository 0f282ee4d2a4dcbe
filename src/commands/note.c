/* preft note: what a user tells the program about themselves. */
#include "base/file.h"
#include "base/mem.h"
#include "commands/command.h"
#include "commands/print.h"
#include "commands/signin.h"
#include "profiles/notes.h"
#include "profiles/profile.h"
#include "profiles/secret.h"
#include "train/data/propose.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *profile;
    bool all, yes;
} opt;

static const option_spec profile_option[] = {
    OPTION_STRING_SPEC('p', "profile", &opt.profile, "NAME",
                       "For this profile's training alone (default: for every profile's)."),
    OPTIONS_END};

/* The id of --profile; absent without the option. */
static pf_status chosen_profile(signed_in *s, int64_t absent, int64_t *id, pf_err *err)
{
    profile_info info = {0};
    *id = absent;
    if (!opt.profile) return PF_OK;
    pf_status status = profile_find(s->session, opt.profile, &info, err);
    if (info.id) *id = info.id;
    profile_info_free(&info);
    return status;
}

/* --- add -------------------------------------------------------------------------------------- */

static pf_status add_line(signed_in *s, int64_t profile, const char *text, size_t *n, pf_err *err)
{
    const note_info note = {
        .profile = profile, .text = (char *)(uintptr_t)text, .state = NOTE_CONFIRMED};
    pf_status status = note_add(s->session, &note, NULL, err);
    *n += status == PF_OK;
    return status;
}

/* Each line that is not blank. */
static pf_status add_lines(signed_in *s, int64_t profile, buf *text, size_t *n, pf_err *err)
{
    pf_status status = PF_OK;
    char *rest = text->len ? text->data : NULL;
    while (rest && status == PF_OK) {
        char *line = strsep(&rest, "\n");
        if (line[strspn(line, " \t\r")]) status = add_line(s, profile, line, n, err);
    }
    return status;
}

static pf_status run_add(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    buf text = {0};
    int64_t profile = 0;
    size_t n = 0;
    bool standard = ctx->argc == 1 && strcmp(ctx->argv[0], "-") == 0;
    pf_status status = PF_OK;
    if (standard) status = file_read_fd(STDIN_FILENO, "standard input", 1 << 20, &text, err);
    if (status == PF_OK) status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = chosen_profile(&s, 0, &profile, err);
    if (status == PF_OK && standard) status = add_lines(&s, profile, &text, &n, err);
    for (int i = 0; i < ctx->argc && status == PF_OK && !standard; i++)
        status = add_line(&s, profile, ctx->argv[i], &n, err);
    if (n > 0) note(ctx, "%zu noted", n);
    wipe_buf(&text);
    signin_end(&s);
    return status;
}

static const command add_command = {
    .name = "note add",
    .summary = "Note something about yourself",
    .synopsis = TEXTS("--user U [--profile NAME] TEXT...", "--user U [--profile NAME] -"),
    .description =
        TEXTS("Each TEXT is a note of one sentence in your own words, such as \"My dog is "
              "called Biscuit.\". With `-` each line of standard input is one: other "
              "users of the machine can see the arguments of running programs."),
    .options = profile_option,
    .examples = EXAMPLES({"preft note add --user mira \"I am allergic to hazelnuts.\"",
                          "To be learned by the next training."}),
    .min_operands = 1,
    .max_operands = -1,
    .groups = GROUP_SIGN_IN,
    .area = AREA_TRAINING,
    .run = run_add,
};

/* --- list ------------------------------------------------------------------------------------- */

static json_t *note_json(const note_info *n)
{
    return json_pack("{s:I, s:s, s:s, s:I, s:I, s:I}", "id", (json_int_t)n->id, "text", n->text,
                     "state", note_state_name(n->state), "profile", (json_int_t)n->profile,
                     "conversation", (json_int_t)n->conversation, "created_ms",
                     (json_int_t)n->created_ms);
}

static void print_notes(const command_context *ctx, const note_list *list, bool all)
{
    json_t *array = json_array();
    for (size_t i = 0; i < list->n; i++) {
        const note_info *n = &list->items[i];
        if (n->state == NOTE_REFUSED && !all) continue;
        if (ctx->global->json) {
            json_array_append_new(array, note_json(n));
            continue;
        }
        printf("%lld\t%s\t", (long long)n->id, note_state_name(n->state));
        print_plain(n->text);
        putchar('\n');
    }
    if (ctx->global->json) print_json(json_incref(array));
    json_decref(array);
}

static pf_status run_list(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    note_list list = {0};
    int64_t profile = -1;
    pf_status status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = chosen_profile(&s, -1, &profile, err);
    if (status == PF_OK) status = note_list_load(s.session, profile, &list, err);
    if (status == PF_OK || status == PF_DAMAGED) print_notes(ctx, &list, opt.all);
    note_list_free(&list);
    signin_end(&s);
    return status;
}

static const option_spec list_options[] = {
    OPTION_STRING_SPEC('p', "profile", &opt.profile, "NAME",
                       "Only what this profile's training uses."),
    OPTION_FLAG_SPEC('a', "all", &opt.all, "Refused proposals too."), OPTIONS_END};

static const command list_command = {
    .name = "note list",
    .summary = "List notes",
    .synopsis = TEXTS("--user U [--profile NAME] [--all]"),
    .description = TEXTS("One line each: number, state, text. `proposed` ones were found in your "
                         "messages and wait for `preft note confirm` or `preft note refuse`; only "
                         "`confirmed` ones are learned."),
    .options = list_options,
    .groups = GROUP_SIGN_IN,
    .area = AREA_TRAINING,
    .run = run_list,
};

/* --- find ------------------------------------------------------------------------------------- */

/* Asks about every proposal; *n counts those that were confirmed. */
static pf_status decide(const command_context *ctx, signed_in *s, const note_list *list, size_t *n,
                        pf_err *err)
{
    pf_status status = PF_OK;
    for (size_t i = 0; i < list->n && status == PF_OK; i++) {
        char *answer = NULL;
        if (list->items[i].state != NOTE_PROPOSED) continue;
        if (!opt.yes) {
            print_plain(list->items[i].text);
            putchar('\n');
            fflush(stdout);
            status = signin_ask(ctx, "Learn this? [y/n/later]", &answer, err);
        }
        if (status != PF_OK) break;
        bool yes = opt.yes || *answer == 'y' || *answer == 'Y';
        bool no = !yes && (*answer == 'n' || *answer == 'N');
        if (yes || no)
            status = note_update(s->session, list->items[i].id, NULL,
                                 yes ? NOTE_CONFIRMED : NOTE_REFUSED, err);
        *n += yes && status == PF_OK;
        wipe_text(answer);
    }
    return status;
}

static pf_status run_find(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    note_list list = {0};
    int64_t profile = -1;
    size_t found = 0, confirmed = 0;
    pf_status status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = chosen_profile(&s, -1, &profile, err);
    if (status == PF_OK) status = notes_propose(s.session, profile, &found, err);
    if (status == PF_OK) note(ctx, "%zu new statement%s found", found, found == 1 ? "" : "s");
    if (status == PF_OK) status = note_list_load(s.session, profile, &list, err);
    if (status == PF_OK && (opt.yes || (isatty(STDIN_FILENO) && !ctx->global->json))) {
        status = decide(ctx, &s, &list, &confirmed, err);
        note(ctx, "%zu confirmed", confirmed);
    } else if (status == PF_OK) {
        print_notes(ctx, &list, false);
    }
    note_list_free(&list);
    signin_end(&s);
    return status;
}

static const option_spec find_options[] = {
    OPTION_STRING_SPEC('p', "profile", &opt.profile, "NAME",
                       "Look in the conversations under this profile only."),
    OPTION_FLAG_SPEC('y', "yes", &opt.yes, "Confirm all that is proposed."), OPTIONS_END};

static const command find_command = {
    .name = "note find",
    .summary = "Find in your messages what you said about yourself",
    .synopsis = TEXTS("--user U [--profile NAME] [--yes]"),
    .description = TEXTS(
        "Looks for statements about yourself in your own messages (English: names, homes, pets and "
        "relatives, allergies, favourites, jobs, birthdays, what you learn) and proposes each as a "
        "note. On a terminal it asks about every proposal; otherwise it lists them. What you "
        "refuse "
        "is not proposed again."),
    .options = find_options,
    .groups = GROUP_SIGN_IN,
    .area = AREA_TRAINING,
    .run = run_find,
};

/* --- confirm, refuse, remove ------------------------------------------------------------------ */

typedef pf_status (*note_action)(session *s, int64_t id, pf_err *err);

static pf_status confirm(session *s, int64_t id, pf_err *err)
{
    return note_update(s, id, NULL, NOTE_CONFIRMED, err);
}

static pf_status refuse(session *s, int64_t id, pf_err *err)
{
    return note_update(s, id, NULL, NOTE_REFUSED, err);
}

static pf_status for_each(const command_context *ctx, note_action action, const char *done,
                          pf_err *err)
{
    signed_in s = {0};
    int64_t id = 0;
    int n = 0;
    pf_status status = PF_OK;
    for (int i = 0; i < ctx->argc && status == PF_OK; i++)
        status = parse_int(ctx->argv[i], "the note", 1, INT64_MAX, &id, err);
    if (status == PF_OK) status = signin_begin(ctx, &s, err);
    while (n < ctx->argc && status == PF_OK) {
        status = parse_int(ctx->argv[n], "the note", 1, INT64_MAX, &id, err);
        if (status == PF_OK) status = action(s.session, id, err);
        n += status == PF_OK;
    }
    if (n > 0) note(ctx, "%d %s", n, done);
    signin_end(&s);
    return status;
}

static pf_status run_confirm(const command_context *ctx, pf_err *err)
{
    return for_each(ctx, confirm, "confirmed", err);
}

static pf_status run_refuse(const command_context *ctx, pf_err *err)
{
    return for_each(ctx, refuse, "refused", err);
}

static pf_status run_remove(const command_context *ctx, pf_err *err)
{
    return for_each(ctx, note_remove, "deleted", err);
}

#define ON_NUMBERS(name_, summary_, description_, run_)                                            \
    {                                                                                              \
        .name = name_, .summary = summary_, .synopsis = TEXTS("--user U NUMBER..."),               \
        .description = TEXTS(description_), .min_operands = 1, .max_operands = -1,                 \
        .groups = GROUP_SIGN_IN, .area = AREA_TRAINING, .run = run_                                \
    }
static const command confirm_command =
    ON_NUMBERS("note confirm", "Confirm proposed notes",
               "The notes will be learned by the next training.", run_confirm);
static const command refuse_command =
    ON_NUMBERS("note refuse", "Reject proposed notes",
               "The notes are not learned and not proposed again.", run_refuse);
static const command remove_command =
    ON_NUMBERS("note remove", "Delete notes",
               "Deletes the notes for good. What a profile has learned from them stays until it is "
               "retrained or switched back to an older version.",
               run_remove);

const command note_command = {
    .name = "note",
    .summary = "What you tell about yourself: add, list, find, confirm, delete",
    .synopsis = TEXTS("add|list|find|confirm|refuse|remove"),
    .description = TEXTS(
        "Notes are single sentences about you, encrypted in the store. Training a profile turns "
        "the confirmed ones into questions and answers in many wordings, so that the profile can "
        "answer questions about them: training on the statements alone does not achieve that."),
    .subcommands = SUBCOMMANDS(&add_command, &list_command, &find_command, &confirm_command,
                               &refuse_command, &remove_command),
    .see_also = TEXTS("preft-train 1", "preft-history 1"),
    .area = AREA_TRAINING,
};
