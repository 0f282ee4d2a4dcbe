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
    bool skip_special, jsonl;
} opt;

static const option_spec options[] = {
    OPTION_FLAG_SPEC('s', "skip-special", &opt.skip_special, "Leave control tokens out."),
    OPTION_FLAG_SPEC(0, "jsonl", &opt.jsonl, "Read one JSON object a line and answer each."),
    OPTIONS_END};

static json_t *answer_of(const model *m, const id_list *ids, bool skip_special)
{
    buf bytes = {0};
    json_t *answer = json_object();
    tokenizer_decode(model_get_tokenizer(m), ids->ids, ids->len, skip_special, &bytes);
    json_object_set_new(answer, "text", json_text(buf_str(&bytes), bytes.len));
    json_object_set_new(answer, "b64", json_base64(buf_str(&bytes), bytes.len));
    buf_free(&bytes);
    return answer;
}

/* {"ids", "skip_special"?} -> {"text", "b64"} */
static pf_status detokenize_line(void *ctx, const json_t *line, json_t *answer, pf_err *err)
{
    const model *m = ctx;
    bool skip_special = opt.skip_special;
    id_list ids = {0};
    pf_status status = json_get_bool(line, "skip_special", &skip_special, err);
    if (status == PF_OK)
        status = json_read_ids(json_object_get(line, "ids"), tokenizer_size(model_get_tokenizer(m)),
                               &ids, err);
    if (status == PF_OK) {
        json_t *values = answer_of(m, &ids, skip_special);
        json_object_update(answer, values);
        json_decref(values);
    }
    id_list_free(&ids);
    return status;
}

/* Ids between blanks or commas. */
static pf_status read_ids(const model *m, char *text, id_list *ids, pf_err *err)
{
    int64_t most = (int64_t)tokenizer_size(model_get_tokenizer(m)) - 1, id;
    char *rest = NULL;
    for (char *word = strtok_r(text, ", \t\r\n", &rest); word;
         word = strtok_r(NULL, ", \t\r\n", &rest)) {
        pf_status status = parse_int(word, "the id", 0, most, &id, err);
        if (status != PF_OK) return status;
        id_list_append(ids, (int32_t)id);
    }
    return PF_OK;
}

static pf_status run_once(const command_context *ctx, const model *m, pf_err *err)
{
    pf_status status = PF_OK;
    buf text = {0}, bytes = {0};
    id_list ids = {0};
    for (int i = 0; i < ctx->argc; i++)
        buf_printf(&text, "%s ", ctx->argv[i]);
    if (ctx->argc == 0)
        status = file_read_fd(STDIN_FILENO, "standard input", MAX_INPUT, &text, err);
    if (status == PF_OK && text.len) status = read_ids(m, text.data, &ids, err);
    if (status != PF_OK) goto out;
    if (ctx->global->json) {
        json_t *answer = answer_of(m, &ids, opt.skip_special);
        status = json_print(answer, err);
        json_decref(answer);
        goto out;
    }
    tokenizer_decode(model_get_tokenizer(m), ids.ids, ids.len, opt.skip_special, &bytes);
    fwrite(buf_str(&bytes), 1, bytes.len, stdout);
    status = output_flush(err);
out:
    id_list_free(&ids);
    buf_free(&bytes);
    buf_free(&text);
    return status;
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    model *m = NULL;
    if (opt.jsonl && ctx->argc > 1)
        return usage_error(ctx, err, "--jsonl reads one file, not %d", ctx->argc);
    pf_status status = open_model(ctx, &m, err);
    if (status != PF_OK) return status;
    if (opt.jsonl)
        status = jsonl_run(ctx->argc ? ctx->argv[0] : NULL, detokenize_line, m, err);
    else
        status = run_once(ctx, m, err);
    model_close(m);
    return status;
}

const struct command detokenize_command = {
    .name = "detokenize",
    .summary = "Turn token ids into text",
    .synopsis = TEXTS("[--skip-special] [ID...]", "--jsonl [FILE]"),
    .description =
        TEXTS("Prints the bytes that the ids stand for, exactly and without a line end; they come "
              "from the operands or from standard input, between blanks or commas. Control tokens "
              "are written as their own text unless `--skip-special` is given.",
              "With `--jsonl` each line of _FILE_ (standard input if it is `-` or left out) is an "
              "object {\"ids\", \"skip_special\"} and is answered by {\"text\", \"b64\"}: the "
              "bytes as text, with U+FFFD for what is ill-formed, and in base64. A failed line is "
              "answered by {\"line\", \"error\"} and makes the exit code 1."),
    .options = options,
    .examples = EXAMPLES({"preft detokenize 19556 28", "Print the text of two ids."}),
    .see_also = TEXTS("preft-tokenize 1"),
    .max_operands = -1,
    .groups = GROUP_MODEL,
    .area = AREA_MODELS,
    .run = run};
