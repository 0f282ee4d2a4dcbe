#include "base/file.h"
#include "base/json.h"
#include "commands/command.h"
#include "commands/jsonl.h"
#include "commands/open.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_INPUT ((size_t)1 << 30)

static struct {
    bool special, bos, jsonl;
} opt;

static const option_spec options[] = {
    OPTION_FLAG_SPEC('s', "special", &opt.special,
                     "Read the text of control tokens, such as `<|im_end|>`, as these tokens."),
    OPTION_FLAG_SPEC('b', "bos", &opt.bos, "Put the model's start token in front, if it has one."),
    OPTION_FLAG_SPEC(0, "jsonl", &opt.jsonl, "Read one JSON object a line and answer each."),
    OPTIONS_END};

/* {"text" | "b64", "special"?, "bos"?} -> {"ids"} */
static pf_status tokenize_line(void *ctx, const json_t *line, json_t *answer, pf_err *err)
{
    const model *m = ctx;
    bool special = opt.special, bos = opt.bos;
    buf text = {0};
    id_list ids = {0};
    pf_status status = json_get_bytes(line, &text, err);
    if (status == PF_OK) status = json_get_bool(line, "special", &special, err);
    if (status == PF_OK) status = json_get_bool(line, "bos", &bos, err);
    if (status == PF_OK) {
        tokenizer_encode(model_get_tokenizer(m), buf_str(&text), text.len, special, bos, &ids);
        json_object_set_new(answer, "ids", json_ids(ids.ids, ids.len));
    }
    id_list_free(&ids);
    buf_free(&text);
    return status;
}

static pf_status print_ids(const id_list *ids, bool json, pf_err *err)
{
    if (json) {
        json_t *answer = json_object();
        json_object_set_new(answer, "ids", json_ids(ids->ids, ids->len));
        pf_status status = json_print(answer, err);
        json_decref(answer);
        return status;
    }
    for (size_t i = 0; i < ids->len; i++)
        printf("%s%d", i ? " " : "", ids->ids[i]);
    printf("\n");
    return output_flush(err);
}

static pf_status run_once(const command_context *ctx, const model *m, pf_err *err)
{
    pf_status status = PF_OK;
    buf text = {0};
    id_list ids = {0};
    if (ctx->argc)
        buf_puts(&text, ctx->argv[0]);
    else
        status = file_read_fd(STDIN_FILENO, "standard input", MAX_INPUT, &text, err);
    if (status == PF_OK) {
        tokenizer_encode(model_get_tokenizer(m), buf_str(&text), text.len, opt.special, opt.bos,
                         &ids);
        status = print_ids(&ids, ctx->global->json, err);
    }
    id_list_free(&ids);
    buf_free(&text);
    return status;
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    model *m = NULL;
    pf_status status = open_model(ctx, &m, err);
    if (status != PF_OK) return status;
    if (opt.jsonl)
        status = jsonl_run(ctx->argc ? ctx->argv[0] : NULL, tokenize_line, m, err);
    else
        status = run_once(ctx, m, err);
    model_close(m);
    return status;
}

const struct command tokenize_command = {
    .name = "tokenize",
    .summary = "Turn text into token ids",
    .synopsis = TEXTS("[--special] [--bos] [TEXT]", "--jsonl [FILE]"),
    .description =
        TEXTS("Prints the ids of _TEXT_, or of standard input, on one line. The text of control "
              "tokens is ordinary text unless `--special` is given; ill-formed UTF-8 is read as "
              "U+FFFD.",
              "With `--jsonl` each line of _FILE_ (standard input if it is `-` or left out) is an "
              "object {\"text\" or \"b64\", \"special\", \"bos\"} and is answered by {\"ids\"}, or "
              "by {\"line\", \"error\"}; any failed line makes the exit code 1."),
    .options = options,
    .examples = EXAMPLES(
        {"preft tokenize 'Hello there'", "Print the ids of one text."},
        {"preft tokenize --special '<|im_start|>user'", "Read the marker as a control token."}),
    .see_also = TEXTS("preft-detokenize 1", "preft-render 1"),
    .max_operands = 1,
    .groups = GROUP_MODEL,
    .area = AREA_MODELS,
    .run = run};
