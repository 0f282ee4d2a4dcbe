#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "commands/command.h"
#include "commands/jsonl.h"
#include "commands/open.h"
#include "engine/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_INPUT ((size_t)256 << 20)

static const char *const position_names[] = {"turns", "prompt", "all", "none", NULL};

static struct {
    const char *messages, *system;
    bool no_generation, jsonl;
    int positions;
} opt;

static const option_spec options[] = {
    OPTION_STRING_SPEC('m', "messages", &opt.messages, "FILE",
                       "Read the messages from _FILE_, a JSON array of {\"role\", \"content\"} or "
                       "an object with it as \"messages\"; `-` is standard input."),
    OPTION_STRING_SPEC('S', "system", &opt.system, "TEXT",
                       "Put a system message in front of the messages."),
    OPTION_FLAG_SPEC(0, "no-generation", &opt.no_generation,
                     "End with the last message, without the header of the next answer."),
    OPTION_CHOICE_SPEC(0, "positions", &opt.positions, "POLICY", position_names,
                       "Which tokens an adapter would act on: the marks."),
    OPTION_FLAG_SPEC(0, "jsonl", &opt.jsonl, "Read one JSON object a line and answer each."),
    OPTIONS_END};

typedef struct {
    const tokenizer *t;
    const chat_template *ct;
} renderer;

static json_t *marks_of(const chat_rendering *r, positions_policy policy)
{
    unsigned char *marks = xmalloc(r->ids.len);
    json_t *array = json_array();
    positions_mark(policy, r->parts, r->ids.len, marks);
    for (size_t i = 0; i < r->ids.len; i++)
        json_array_append_new(array, json_integer(marks[i]));
    free(marks);
    return array;
}

static pf_status render_into(const renderer *c, const json_t *messages, bool generation,
                             positions_policy policy, json_t *answer, pf_err *err)
{
    message_list list = {0};
    chat_rendering r = {0};
    pf_status status = messages_read(messages, c->t, &list, err);
    if (status == PF_OK)
        status = chat_template_render(c->ct, c->t, list.items, list.n, generation, &r, err);
    if (status == PF_OK) {
        json_object_set_new(answer, "text", json_text(buf_str(&r.text), r.text.len));
        json_object_set_new(answer, "ids", json_ids(r.ids.ids, r.ids.len));
        json_object_set_new(answer, "marks", marks_of(&r, policy));
    }
    chat_rendering_free(&r);
    messages_free(&list);
    return status;
}

/* {"messages", "generation"?, "positions"?} -> {"text", "ids", "marks"} */
static pf_status render_line(void *ctx, const json_t *line, json_t *answer, pf_err *err)
{
    bool generation = !opt.no_generation;
    const char *name = position_names[opt.positions];
    positions_policy policy;
    pf_status status = json_get_bool(line, "generation", &generation, err);
    if (status == PF_OK) status = json_get_string(line, "positions", &name, err);
    if (status != PF_OK) return status;
    if (!positions_parse(name, &policy))
        return err_set(err, PF_REFUSED, "\"positions\" is turns, prompt, all or none");
    return render_into(ctx, json_object_get(line, "messages"), generation, policy, answer, err);
}

static json_t *new_message(const char *role, const char *text)
{
    json_t *message = json_object();
    json_object_set_new(message, "role", json_string(role));
    json_object_set_new(message, "content", json_text(text, strlen(text)));
    return message;
}

static pf_status read_messages(const char *path, json_t **out, pf_err *err)
{
    buf text = {0};
    json_t *json = NULL;
    bool from_stdin = strcmp(path, "-") == 0;
    const char *name = from_stdin ? "standard input" : path;
    pf_status status = from_stdin ? file_read_fd(STDIN_FILENO, name, MAX_INPUT, &text, err)
                                  : file_read(path, MAX_INPUT, &text, err);
    if (status == PF_OK) status = json_parse(buf_str(&text), text.len, name, &json, err);
    if (status == PF_OK) {
        json_t *list = json_is_object(json) ? json_object_get(json, "messages") : json;
        if (json_is_array(list))
            *out = json_incref(list);
        else
            status = err_set(err, PF_REFUSED, "%s holds no array of messages", name);
    }
    json_decref(json);
    buf_free(&text);
    return status;
}

/* --system, then --messages, then the operand as a user message. */
static pf_status gather_messages(const command_context *ctx, json_t **out, pf_err *err)
{
    json_t *list = NULL;
    pf_status status = PF_OK;
    if (opt.messages)
        status = read_messages(opt.messages, &list, err);
    else
        list = json_array();
    if (status != PF_OK) return status;
    if (opt.system) json_array_insert_new(list, 0, new_message("system", opt.system));
    if (ctx->argc) json_array_append_new(list, new_message("user", ctx->argv[0]));
    *out = list;
    return PF_OK;
}

static pf_status run_once(const command_context *ctx, const renderer *c, pf_err *err)
{
    json_t *messages = NULL, *answer = json_object();
    positions_policy policy;
    PF_ASSERT(positions_parse(position_names[opt.positions], &policy));
    pf_status status = gather_messages(ctx, &messages, err);
    if (status == PF_OK) status = render_into(c, messages, !opt.no_generation, policy, answer, err);
    if (status == PF_OK && ctx->global->json) status = json_print(answer, err);
    if (status == PF_OK && !ctx->global->json) {
        const json_t *text = json_object_get(answer, "text");
        fwrite(json_string_value(text), 1, json_string_length(text), stdout);
        status = output_flush(err);
    }
    json_decref(messages);
    json_decref(answer);
    return status;
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    model *m = NULL;
    renderer c = {0};
    if (opt.jsonl && (opt.messages || opt.system))
        return usage_error(ctx, err, "--jsonl takes the messages from its lines");
    if (!opt.jsonl && !opt.messages && ctx->argc == 0)
        return usage_error(ctx, err, "give a TEXT, --messages FILE or --jsonl");
    pf_status status = open_model(ctx, &m, err);
    if (status != PF_OK) return status;
    c.t = model_get_tokenizer(m);
    status = model_template(m, &c.ct, err);
    if (status == PF_OK && opt.jsonl)
        status = jsonl_run(ctx->argc ? ctx->argv[0] : NULL, render_line, &c, err);
    else if (status == PF_OK)
        status = run_once(ctx, &c, err);
    model_close(m);
    return status;
}

const struct command render_command = {
    .name = "render",
    .summary = "Show what the model is given for messages",
    .synopsis =
        TEXTS("[--system TEXT] [--messages FILE] [--no-generation] [TEXT]", "--jsonl [FILE]"),
    .description = TEXTS(
        "Prints the prompt text that the model's chat template makes of the messages: "
        "`--system`, then those of `--messages`, then _TEXT_ as a user message. With `--json` also "
        "the token ids, and for each the mark (1: an adapter acts on it). Text inside messages "
        "never becomes a control token. An answer may carry its generated \"ids\", which then "
        "stand in for its text.",
        "With `--jsonl` each line of _FILE_ (standard input if it is `-` or left out) is an object "
        "{\"messages\", \"generation\", \"positions\"} and is answered by {\"text\", \"ids\", "
        "\"marks\"}, or by {\"line\", \"error\"}; any failed line makes the exit code 1."),
    .options = options,
    .examples = EXAMPLES(
        {"preft render --system 'Be brief.' Hi", "Show the prompt of one message."},
        {"preft render --json --messages chat.json", "Ids and marks of a whole conversation."}),
    .see_also = TEXTS("preft-tokenize 1", "preft-run 1"),
    .max_operands = 1,
    .groups = GROUP_MODEL,
    .area = AREA_MODELS,
    .run = run};
