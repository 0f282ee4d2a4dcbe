/* preft check: reads a model or an adapter as the loader would and says what it is, or why it is
 * refused. */
#include "base/file.h"
#include "commands/command.h"
#include "commands/describe.h"
#include "commands/jsonl.h"
#include "commands/print.h"
#include "models/catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *base;
    bool force;
} opt;

static const option_spec options[] = {
    OPTION_STRING_SPEC(0, "base", &opt.base, "MODEL",
                       "Check adapters against this model (a NAME or PATH): every shape, and the "
                       "base model that the adapter records."),
    OPTION_FLAG_SPEC(0, "force-base", &opt.force,
                     "Accept an adapter that records another base model, if its shapes fit."),
    OPTIONS_END};

static bool is_safetensors(const char *path)
{
    static const char ending[] = ".safetensors";
    size_t len = strlen(path), end = sizeof ending - 1;
    return len > end && strcmp(path + len - end, ending) == 0 && !file_is_folder(path);
}

static pf_status check_safetensors(const char *path, json_t **out, pf_err *err)
{
    int fd = -1;
    uint64_t size = 0;
    safetensors st = {0};
    pf_status status = file_open_regular(path, &fd, &size, err);
    if (status == PF_OK) status = safetensors_read_header(fd, size, path, &st, err);
    if (status == PF_OK) *out = describe_safetensors(&st);
    safetensors_free(&st);
    if (fd >= 0) close(fd);
    return status;
}

static pf_status check_adapter(const char *path, const model *base, buf *warnings, json_t **out,
                               pf_err *err)
{
    adapter_summary summary = {0};
    const adapter_import_options how = {.force_base = opt.force};
    pf_status status = adapter_file_inspect(path, base, &how, &summary, warnings, err);
    if (status == PF_OK) *out = describe_adapter(&summary);
    return status;
}

static pf_status check_model(const command_context *ctx, const char *path, json_t **out,
                             pf_err *err)
{
    const model_options how = {.template_name = ctx->global->chat_template,
                               .pretokenizer_name = ctx->global->pretokenizer};
    model *m = NULL;
    pf_status status = model_open(path, &how, &m, err);
    if (status == PF_OK) *out = describe_model(m);
    model_close(m);
    return status;
}

static void print_object(const char *path, json_t *found, const buf *warnings, pf_status status,
                         const pf_err *err)
{
    json_t *line = json_object();
    json_object_set_new(line, "path", json_text(path, strlen(path)));
    json_object_set_new(line, "ok", json_boolean(status == PF_OK));
    if (status == PF_OK) json_object_update(line, found);
    if (status != PF_OK) {
        json_object_set_new(line, "reason", json_string(status_words(status)));
        json_object_set_new(line, "message", json_text(err->text, strlen(err->text)));
    }
    if (warnings->len)
        json_object_set_new(line, "warnings", json_text(buf_str(warnings), warnings->len));
    print_json(line);
}

static void print_text(const command_context *ctx, const char *path, const json_t *found,
                       const buf *warnings, pf_status status, const pf_err *err)
{
    if (status == PF_OK) {
        print_plain(path);
        puts(": ok");
        describe_print(found);
    } else {
        fflush(stdout);
        fputs("preft check: ", stderr);
        print_plain_to(stderr, err->text, strlen(err->text));
        fputc('\n', stderr);
    }
    for (const char *line = buf_str(warnings); *line;) {
        size_t len = strcspn(line, "\n");
        note(ctx, "%.*s", (int)len, line);
        line += len + (line[len] != '\0');
    }
}

static pf_status check_one(const command_context *ctx, const char *path, const model *base)
{
    json_t *found = NULL;
    buf warnings = {0};
    pf_err err = {0};
    pf_status status = PF_OK;
    if (adapter_file_is_folder(path))
        status = check_adapter(path, base, &warnings, &found, &err);
    else if (is_safetensors(path))
        status = check_safetensors(path, &found, &err);
    else
        status = check_model(ctx, path, &found, &err);
    if (ctx->global->json)
        print_object(path, found, &warnings, status, &err);
    else
        print_text(ctx, path, found, &warnings, status, &err);
    json_decref(found);
    buf_free(&warnings);
    return status;
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    char *base_path = NULL;
    model *base = NULL;
    pf_status status = PF_OK;
    if (opt.base) status = catalogue_locate(ctx->global->models, opt.base, &base_path, err);
    if (status == PF_OK && base_path) status = model_open(base_path, NULL, &base, err);
    if (status != PF_OK) {
        err_context(err, "--base");
        goto out;
    }
    for (int i = 0; i < ctx->argc; i++) {
        pf_status one = check_one(ctx, ctx->argv[i], base);
        if (status == PF_OK) status = one;
    }
    if (status != PF_OK) err_set(err, status, "%s", ""); /* all is said */
out:
    model_close(base);
    free(base_path);
    return status;
}

const command check_command = {
    .name = "check",
    .summary = "Say what a model or adapter is, or why it is refused",
    .synopsis = TEXTS("[--base MODEL] [--json] PATH..."),
    .description =
        TEXTS("Reads each _PATH_ as the loader would and prints what it found: a GGUF file or a "
              "Hugging Face folder (a model), a folder with `adapter_config.json` (an adapter), or "
              "a file that ends in `.safetensors`. Nothing is run and nothing is written.",
              "An adapter is checked against the shapes of a model when `--base` names one; "
              "without it, only for what it says of itself. Pickle files are never opened.",
              "With `--json` each path gives one object a line."),
    .options = options,
    .examples = EXAMPLES({"preft check model.gguf", "Check a model file."},
                         {"preft check --base smollm2-135m my-adapter",
                          "Check an adapter against the model it is for."}),
    .exit_notes = TEXTS("With several paths, the exit code is that of the first one refused."),
    .see_also = TEXTS("preft-model 1", "preft-profile 1", "preft-adapter 5"),
    .min_operands = 1,
    .max_operands = -1,
    .groups = GROUP_MODEL,
    .area = AREA_MODELS,
    .run = run,
};
