#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "commands/command.h"
#include "commands/print.h"
#include "commands/signin.h"
#include "profiles/profile.h"
#include "profiles/search.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_IMPORT (1ull << 30)

static struct {
    const char *profile, *output;
    int64_t limit, offset, conversation;
    int format;
    bool all, replace;
} opt = {.limit = 0};

/* The id of --profile: -1 not given, 0 for "none". */
static pf_status chosen_profile(signed_in *s, int64_t *id, pf_err *err)
{
    profile_info info = {0};
    *id = -1;
    if (!opt.profile) return PF_OK;
    *id = 0;
    if (strcmp(opt.profile, "none") == 0) return PF_OK;
    pf_status status = profile_find(s->session, opt.profile, &info, err);
    if (info.id) *id = info.id;
    profile_info_free(&info);
    return *id ? PF_OK : status;
}

static const option_spec profile_option[] = {
    OPTION_STRING_SPEC('p', "profile", &opt.profile, "NAME",
                       "Only conversations under this profile; `none`: those without one."),
    OPTIONS_END};

/* --- list ------------------------------------------------------------------------------------- */

static void print_conversation(const conversation_info *c)
{
    char date[20];
    printf("%lld\t%s\t%lld\t", (long long)c->id, print_time(c->updated_ms, date),
           (long long)c->n_messages);
    print_plain(c->title);
    putchar('\n');
}

static json_t *conversation_json(const conversation_info *c)
{
    return json_pack("{s:I, s:I, s:s, s:I, s:I, s:I}", "id", (json_int_t)c->id, "profile",
                     (json_int_t)c->profile, "title", c->title, "created_ms",
                     (json_int_t)c->created_ms, "updated_ms", (json_int_t)c->updated_ms, "messages",
                     (json_int_t)c->n_messages);
}

static pf_status run_list(const command_context *ctx, pf_err *err)
{
    signed_in s;
    conversation_list list = {0};
    int64_t profile = -1;
    json_t *array = json_array();
    pf_status status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = chosen_profile(&s, &profile, err);
    if (status == PF_OK)
        status = conversation_list_load(s.session, profile, (size_t)opt.offset, (size_t)opt.limit,
                                        &list, err);
    for (size_t i = 0; i < list.n; i++) {
        if (ctx->global->json)
            json_array_append_new(array, conversation_json(&list.items[i]));
        else
            print_conversation(&list.items[i]);
    }
    if (ctx->global->json && (status == PF_OK || status == PF_DAMAGED))
        print_json(
            json_pack("{s:O, s:I}", "conversations", array, "total", (json_int_t)list.total));
    else if (status == PF_OK && list.n == 0)
        note(ctx, "no conversations");
    json_decref(array);
    conversation_list_free(&list);
    signin_end(&s);
    return status;
}

static const option_spec list_options[] = {
    OPTION_STRING_SPEC('p', "profile", &opt.profile, "NAME",
                       "Only conversations under this profile; `none`: those without one."),
    OPTION_INT_SPEC('n', "limit", &opt.limit, "N", 0, 1e9, "Most conversations. Default: 0, all."),
    OPTION_INT_SPEC(0, "offset", &opt.offset, "N", 0, 1e9, "Leave out the N newest ones."),
    OPTIONS_END};

static const command list_command = {
    .name = "history list",
    .summary = "List conversations",
    .synopsis = TEXTS("--user U [--profile NAME] [--limit N] [--offset N]"),
    .description = TEXTS("One line each, newest change first: number, date, messages, title."),
    .options = list_options,
    .groups = GROUP_SIGN_IN,
    .area = AREA_DATA,
    .run = run_list,
};

/* --- show ------------------------------------------------------------------------------------- */

static json_t *message_json(const history_message *m)
{
    json_t *ids = m->n_ids ? json_array() : NULL;
    for (size_t i = 0; i < m->n_ids; i++)
        json_array_append_new(ids, json_integer(m->ids[i]));
    return json_pack("{s:I, s:s, s:o, s:I, s:s*, s:i, s:s*, s:o*}", "id", (json_int_t)m->id, "role",
                     history_role_name(m->role), "content", json_stringn(m->text, m->len),
                     "created_ms", (json_int_t)m->created_ms, "finish_reason",
                     m->finish && *m->finish ? m->finish : NULL, "rating", m->rating, "rewritten",
                     m->rewritten, "ids", ids);
}

static void print_messages(const conversation *c)
{
    char date[20];
    print_plain(c->info.title);
    putchar('\n');
    for (size_t i = 0; i < c->n; i++) {
        const history_message *m = &c->messages[i];
        printf("\n[%lld] %s, %s\n", (long long)m->id, history_role_name(m->role),
               print_time(m->created_ms, date));
        print_plain(m->text);
        putchar('\n');
    }
}

static pf_status run_show(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    conversation c = {0};
    int64_t id = 0;
    pf_status status = parse_int(ctx->argv[0], "the conversation", 1, INT64_MAX, &id, err);
    if (status == PF_OK) status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = conversation_load(s.session, id, &c, err);
    if (c.info.id && ctx->global->json) {
        json_t *object = conversation_json(&c.info), *messages = json_array();
        for (size_t i = 0; i < c.n; i++)
            json_array_append_new(messages, message_json(&c.messages[i]));
        json_object_set_new(object, "messages", messages);
        print_json(object);
    } else if (c.info.id) {
        print_messages(&c);
    }
    conversation_free(&c);
    signin_end(&s);
    return status;
}

static const command show_command = {
    .name = "history show",
    .summary = "Show a conversation",
    .synopsis = TEXTS("--user U NUMBER"),
    .description = TEXTS("Prints all messages of the conversation NUMBER, as `preft history list` "
                         "gives it."),
    .min_operands = 1,
    .max_operands = 1,
    .groups = GROUP_SIGN_IN,
    .area = AREA_DATA,
    .run = run_show,
};

/* --- search ----------------------------------------------------------------------------------- */

static pf_status run_search(const command_context *ctx, pf_err *err)
{
    signed_in s;
    search_result r = {0};
    json_t *array = json_array();
    pf_status status = signin_begin(ctx, &s, err);
    if (status == PF_OK)
        status =
            search_messages(s.session, ctx->argv[0], opt.conversation, (size_t)opt.limit, &r, err);
    for (size_t i = 0; i < r.n; i++) {
        const search_hit *h = &r.items[i];
        if (ctx->global->json) {
            json_array_append_new(
                array,
                json_pack("{s:I, s:I, s:s, s:s, s:s, s:I, s:I}", "conversation",
                          (json_int_t)h->conversation, "message", (json_int_t)h->message, "role",
                          history_role_name(h->role), "title", h->title, "context", h->context,
                          "start", (json_int_t)h->start, "length", (json_int_t)h->len));
            continue;
        }
        printf("%lld\t%s\t", (long long)h->conversation, history_role_name(h->role));
        print_plain(h->context);
        putchar('\n');
    }
    if (ctx->global->json && (status == PF_OK || status == PF_DAMAGED))
        print_json(json_pack("{s:O, s:b}", "hits", array, "more", r.more));
    else if (status == PF_OK && r.n == 0)
        note(ctx, "nothing found");
    else if (r.more)
        note(ctx, "there are more; --limit N shows them");
    json_decref(array);
    search_result_free(&r);
    signin_end(&s);
    return status;
}

static const option_spec search_options[] = {
    OPTION_INT_SPEC(0, "conversation", &opt.conversation, "NUMBER", 0, 1e15,
                    "Only in this conversation."),
    OPTION_INT_SPEC('n', "limit", &opt.limit, "N", 0, 1e9, "Most hits. Default: 1000."),
    OPTIONS_END};

static const command search_command = {
    .name = "history search",
    .summary = "Search in the messages",
    .synopsis = TEXTS("--user U [--conversation NUMBER] TEXT"),
    .description = TEXTS("Decrypts and scans the user's messages; nothing is indexed. Upper and "
                         "lower case match each other. Prints the first hit of each message."),
    .options = search_options,
    .min_operands = 1,
    .max_operands = 1,
    .groups = GROUP_SIGN_IN,
    .area = AREA_DATA,
    .run = run_search,
};

/* --- export ----------------------------------------------------------------------------------- */

static pf_status numbers(const command_context *ctx, signed_in *s, int64_t **out, size_t *n,
                         pf_err *err)
{
    conversation_list list = {0};
    pf_status status = PF_OK;
    int64_t profile = -1;
    if (ctx->argc > 0) {
        *out = xcalloc((size_t)ctx->argc, sizeof **out);
        for (*n = 0; *n < (size_t)ctx->argc && status == PF_OK; ++*n)
            status = parse_int(ctx->argv[*n], "the conversation", 1, INT64_MAX, &(*out)[*n], err);
        return status;
    }
    status = chosen_profile(s, &profile, err);
    if (status == PF_OK) status = conversation_list_load(s->session, profile, 0, 0, &list, err);
    *out = xcalloc(list.n + 1, sizeof **out);
    for (*n = 0; *n < list.n; ++*n)
        (*out)[*n] = list.items[list.n - 1 - *n].id; /* oldest first */
    conversation_list_free(&list);
    return status;
}

static pf_status run_export(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    buf text = {0};
    int64_t *ids = NULL;
    size_t n = 0;
    pf_status status = PF_OK;
    if (ctx->argc == 0 && !opt.all && !opt.profile)
        return usage_error(ctx, err, "NUMBER, --profile or --all is needed");
    if (opt.output && file_exists(opt.output) && !opt.replace)
        return usage_error(ctx, err, "%s exists; --replace replaces it", opt.output);
    status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = numbers(ctx, &s, &ids, &n, err);
    if (status == PF_OK)
        status = opt.format ? history_export_markdown(s.session, ids, n, &text, err)
                            : history_export_jsonl(s.session, ids, n, &text, err);
    if (status == PF_OK && opt.output)
        status = file_write_atomic(opt.output, buf_str(&text), text.len, 0600, err);
    else if (status == PF_OK)
        fwrite(buf_str(&text), 1, text.len, stdout);
    if (status == PF_OK && opt.output)
        note(ctx, "%zu conversation%s in %s, unencrypted (mode 0600)", n, n == 1 ? "" : "s",
             opt.output);
    wipe_buf(&text);
    free(ids);
    signin_end(&s);
    return status;
}

static const char *const formats[] = {"jsonl", "markdown", NULL};

static const option_spec export_options[] = {
    OPTION_FLAG_SPEC('a', "all", &opt.all, "All conversations."),
    OPTION_STRING_SPEC('p', "profile", &opt.profile, "NAME",
                       "All conversations under this profile; `none`: those without one."),
    OPTION_CHOICE_SPEC('f', "format", &opt.format, "FORMAT", formats,
                       "`jsonl`, one object with messages a line (the default), or `markdown`."),
    OPTION_STRING_SPEC('o', "output", &opt.output, "FILE",
                       "Write to FILE, readable by you alone. Default: standard output."),
    OPTION_FLAG_SPEC(0, "replace", &opt.replace, "Replace FILE if it exists."),
    OPTIONS_END};

static const command export_command = {
    .name = "history export",
    .summary = "Export conversations",
    .synopsis = TEXTS("--user U [--format F] [-o FILE] NUMBER...",
                      "--user U [--format F] [-o FILE] --all | --profile NAME"),
    .description =
        TEXTS("Writes conversations unencrypted, oldest first. JSONL lines have the form "
              "{\"messages\":[{\"role\":\"user\",\"content\":\"...\"}, ...]}, which "
              "training programs read and `preft history import` reads back.",
              "Of a conversation with branches the one is written that is shown in the chat, with "
              "the answers as you rewrote them."),
    .options = export_options,
    .max_operands = -1,
    .groups = GROUP_SIGN_IN,
    .area = AREA_DATA,
    .run = run_export,
};

/* --- import ----------------------------------------------------------------------------------- */

static pf_status run_import(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    buf text = {0};
    size_t n = 0;
    int64_t profile = 0;
    const char *path = ctx->argv[0];
    const bool standard = strcmp(path, "-") == 0;
    pf_status status = standard
                           ? file_read_fd(STDIN_FILENO, "standard input", MAX_IMPORT, &text, err)
                           : file_read(path, MAX_IMPORT, &text, err);
    if (status == PF_OK) status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = chosen_profile(&s, &profile, err);
    if (status == PF_OK)
        status = history_import_jsonl(s.session, profile < 0 ? 0 : profile, buf_str(&text),
                                      text.len, standard ? "standard input" : path, &n, err);
    if (status == PF_OK && ctx->global->json)
        print_json(json_pack("{s:I}", "conversations", (json_int_t)n));
    else if (status == PF_OK)
        note(ctx, "%zu conversation%s saved", n, n == 1 ? "" : "s");
    wipe_buf(&text);
    signin_end(&s);
    return status;
}

static const command import_command = {
    .name = "history import",
    .summary = "Import conversations",
    .synopsis = TEXTS("--user U [--profile NAME] FILE|-"),
    .description = TEXTS("Reads JSONL as `preft history export` writes it. Every line is checked "
                         "first (roles, a system message only at the beginning, texts); then all "
                         "conversations are saved, or none."),
    .options = profile_option,
    .min_operands = 1,
    .max_operands = 1,
    .groups = GROUP_SIGN_IN,
    .area = AREA_DATA,
    .run = run_import,
};

/* --- remove ----------------------------------------------------------------------------------- */

static pf_status run_remove(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    int64_t *ids = NULL;
    size_t n = 0, removed = 0;
    pf_status status = numbers(ctx, &s, &ids, &n, err);
    if (status == PF_OK) status = signin_begin(ctx, &s, err);
    for (; removed < n && status == PF_OK; removed++)
        status = conversation_remove(s.session, ids[removed], err);
    if (status == PF_OK) note(ctx, "%zu conversation%s deleted", removed, removed == 1 ? "" : "s");
    free(ids);
    signin_end(&s);
    return status;
}

static const command remove_command = {
    .name = "history remove",
    .summary = "Delete conversations",
    .synopsis = TEXTS("--user U NUMBER..."),
    .description =
        TEXTS("Deletes the conversations with all their messages for good: what they held "
              "is overwritten in the store. Their messages are also removed from the chat's input "
              "history, and so are unconfirmed notes that were found in them. Backups still have "
              "them; what a profile has learned from them stays until it is retrained."),
    .min_operands = 1,
    .max_operands = -1,
    .groups = GROUP_SIGN_IN,
    .area = AREA_DATA,
    .run = run_remove,
};

const command history_command = {
    .name = "history",
    .summary = "Conversations: list, show, search, export, import, delete",
    .synopsis = TEXTS("list|show|search|export|import|remove"),
    .description = TEXTS("The conversations of a user with the model, encrypted in the store."),
    .subcommands = SUBCOMMANDS(&list_command, &show_command, &search_command, &export_command,
                               &import_command, &remove_command),
    .see_also = TEXTS("preft-backup 1"),
    .area = AREA_DATA,
};
