/* From the shell's words to one run function and back to an exit code. */
#include "commands/command.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "commands/help.h"
#include "commands/jsonl.h"
#include "commands/print.h"
#include "kernels/backend.h"
#include "profiles/vault.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void command_tables(const command *c, const option_spec **tables)
{
    size_t n = 0;
    if (!c) tables[n++] = version_table;
    if (c && c->options) tables[n++] = c->options;
    if (c && c->groups & GROUP_USER) tables[n++] = user_table;
    if (c && c->groups & GROUP_PASSPHRASE) tables[n++] = passphrase_table;
    tables[n++] = model_table;
    tables[n++] = engine_table;
    tables[n++] = general_table;
    tables[n] = NULL;
}

const char *command_last_word(const command *c)
{
    const char *space = strrchr(c->name, ' ');
    return space ? space + 1 : c->name;
}

pf_status usage_error(const command_context *ctx, pf_err *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    buf text = {0};
    buf_vprintf(&text, fmt, args);
    va_end(args);
    pf_status status =
        err_set(err, PF_USAGE, "%s (see `preft %s --help`)", buf_str(&text), ctx->command->name);
    buf_free(&text);
    return status;
}

/* One line at standard error. Names of files and what stands in them may be anybody's. */
static void tell(const char *name, const char *text)
{
    fprintf(stderr, "preft%s%s: ", *name ? " " : "", name);
    print_plain_to(stderr, text, strlen(text));
    fputc('\n', stderr);
}

void note(const command_context *ctx, const char *fmt, ...)
{
    if (ctx->global->quiet) return;
    va_list args;
    va_start(args, fmt);
    buf text = {0};
    buf_vprintf(&text, fmt, args);
    va_end(args);
    tell(ctx->command->name, buf_str(&text));
    buf_free(&text);
}

/* Whether the reader of standard output has gone. An earlier write may have found that out, whose
 * errno is lost by now; a pipe tells it at any time. */
static bool reader_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return errno == EPIPE || (poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)));
}

pf_status output_flush(pf_err *err)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return PF_OK;
    const int reason = errno;
    if (reader_is_gone()) return err_set(err, PF_FAILED, "%s", "");
    if (reason == 0) return err_set(err, PF_FAILED, "can't write to standard output");
    return err_errno(err, PF_FAILED, reason, "can't write to standard output");
}

/* --- the process ------------------------------------------------------------------------------ */

/* A closed standard descriptor would be given to the next file that is opened, and what is meant
 * for the screen would land in it. The fillers are opened the wrong way round, so that using one
 * still fails as it would have. */
static void fill_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

static int finish(const char *name, pf_status status, pf_err *err)
{
    pf_err flush_err = {0};
    pf_status flushed = output_flush(&flush_err);
    if (status == PF_OK && flushed != PF_OK) {
        status = flushed;
        *err = flush_err;
    }
    if (status == PF_OK) return 0;
    if (err->text[0] != '\0') {
        tell(name, err->text);
        if (global_values.json && flushed == PF_OK) {
            print_json(json_pack("{s:{s:s, s:i, s:o}}", "error", "kind", status_words(status),
                                 "code", status_exit_code(status), "message",
                                 json_text(err->text, strlen(err->text))));
            fflush(stdout);
        }
    }
    return status_exit_code(status);
}

static pf_status unknown_command(const command *parent, const char *word, pf_err *err)
{
    const command *const *list = parent ? parent->subcommands : command_table;
    const char *names[64];
    size_t n = 0;
    for (; *list && n < 63; list++)
        if (!(*list)->hidden) names[n++] = command_last_word(*list);
    names[n] = NULL;
    const char *near = nearest_name(word, names);
    const char *own = parent ? parent->name : "";
    if (near)
        return err_set(err, PF_USAGE, "no command \"%s\": did you mean `preft %s%s%s`?", word, own,
                       parent ? " " : "", near);
    return err_set(err, PF_USAGE, "no command \"%s\": `preft %s%s--help` lists them", word, own,
                   parent ? " " : "");
}

static const command *find_in(const command *const *list, const char *word)
{
    for (; *list; list++)
        if (strcmp(command_last_word(*list), word) == 0) return *list;
    return NULL;
}

static pf_status check_operands(const command *c, int given, char **operands, pf_err *err)
{
    const char *form = c->synopsis && c->synopsis[0] ? c->synopsis[0] : "";
    if (c->max_operands >= 0 && given > c->max_operands)
        return err_set(err, PF_USAGE,
                       "\"%s\" is one argument too many (several words need quotes to be one); "
                       "usage: preft %s%s%s",
                       operands[c->max_operands], c->name, form[0] ? " " : "", form);
    if (given < c->min_operands)
        return err_set(err, PF_USAGE, "an argument is missing; usage: preft %s %s", c->name, form);
    return PF_OK;
}

static pf_status run_command(const command *c, int argc, char **argv, pf_err *err)
{
    const option_spec *tables[OPTIONS_MAX_TABLES];
    const option_spec *own[OPTIONS_MAX_TABLES] = {0};
    command_tables(c, tables);
    for (size_t i = 0; tables[i] != model_table; i++)
        own[i] = tables[i];
    pf_status status = command_read_settings(c->name, own, err);
    const char *problems = settings_problems();
    if (status == PF_OK && *problems && !c->shows_problems)
        status = err_set(err, PF_USAGE, "%.*s", (int)strcspn(problems, "\n"), problems);
    if (status == PF_OK) status = options_parse(tables, &argc, argv, false, err);
    if (status != PF_OK) return status;
    if (global_values.help) {
        help_print_command(c, stdout);
        return PF_OK;
    }
    status = check_operands(c, argc - 1, argv + 1, err);
    if (status != PF_OK) return status;
    global_resolve();
    if (global_values.log) status = log_open(global_values.log, LOG_INFO, err);
    if (status != PF_OK) return status;
    command_context ctx = {.command = c,
                           .global = &global_values,
                           .signin = &signin_values,
                           .argc = argc - 1,
                           .argv = argv + 1};
    status = c->run(&ctx, err);
    log_close();
    return status;
}

/* Reads the options before the next word; *argc and *argv then begin one before that word. */
static pf_status leading_options(const command *parent, int *argc, char **argv, pf_err *err)
{
    const option_spec *tables[OPTIONS_MAX_TABLES];
    command_tables(parent, tables);
    pf_status status = options_parse(tables, argc, argv, true, err);
    if (status != PF_OK)
        err_set(err, status, "%s (usage: preft %s%sCOMMAND [options])", err->text,
                parent ? parent->name : "", parent ? " " : "");
    return status;
}

static pf_status dispatch(int argc, char **argv, const char **name, pf_err *err)
{
    pf_status status = leading_options(NULL, &argc, argv, err);
    if (status != PF_OK) return status;
    const command *c = NULL;
    if (global_values.version) {
        puts("preft " PREFT_VERSION);
        const char *best = strrchr(kn_isa_list(), ' ');
        printf("Kernels for this processor: %s (it can run: %s)\n", best ? best + 1 : kn_isa_list(),
               kn_isa_list());
        return PF_OK;
    }
    if (argc < 2 && !global_values.help && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        c = command_find("chat");
    if (argc < 2 && !c) {
        help_print_overview(global_values.help ? stdout : stderr);
        return global_values.help ? PF_OK : err_set(err, PF_USAGE, "%s", "");
    }
    if (!c) c = find_in(command_table, argv[1]);
    if (!c) return unknown_command(NULL, argv[1], err);
    *name = c->name;
    if (argc >= 2) {
        argc--;
        argv++;
    }
    if (!c->subcommands) return run_command(c, argc, argv, err);

    status = leading_options(c, &argc, argv, err);
    if (status != PF_OK) return status;
    if (argc < 2) {
        help_print_command(c, global_values.help ? stdout : stderr);
        return global_values.help ? PF_OK : err_set(err, PF_USAGE, "%s", "");
    }
    const command *sub = find_in(c->subcommands, argv[1]);
    if (!sub) return unknown_command(c, argv[1], err);
    *name = sub->name;
    return run_command(sub, argc - 1, argv + 1, err);
}

int command_main(int argc, char **argv)
{
    pf_err err = {0};
    const char *name = "";
    vault_harden_process();
    fill_standard_descriptors();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then told as any full disk */
    file_map_explain();
    pf_status status = global_read_settings(&err);
    if (status == PF_OK) status = dispatch(argc, argv, &name, &err);
    return finish(name, status, &err);
}
