#include "groups.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int model_files(const check_context *c, const char *name, char *paths[2], report *rep)
{
    int n = 0;

    if (strcmp(name, REAL_MODEL) == 0) {
        if (c->real)
            paths[n++] = xstrdup(c->real);
        else
            report_skip(rep, 1, "the real model's file was not given");
        return n;
    }
    char *hf = data_path(c->folder, "models/%s/hf", name);
    char *gguf = data_path(c->folder, "models/%s/%s-f32.gguf", name, name);
    if (file_is_folder(hf))
        paths[n++] = hf;
    else
        free(hf);
    if (file_exists(gguf))
        paths[n++] = gguf;
    else
        free(gguf);
    if (n == 0) report_skip(rep, 1, "no float32 files of %s", name);
    return n;
}

const char *file_label(const char *path)
{
    const char *label = path;

    for (const char *c = path; *c; c++)
        if (*c == '/' && strchr(c + 1, '/')) label = c + 1;
    return label;
}

bool open_runner(const check_context *c, const char *path, runner *out, report *rep)
{
    pf_err err;

    const runner_options options = {.isa = c->isa, .threads = c->threads};

    if (runner_open(path, &options, out, &err) == PF_OK) return true;
    return report_check(rep, false, "%s", err.text);
}

bool open_model(const char *path, model **out, report *rep)
{
    pf_err err;

    if (model_open(path, NULL, out, &err) == PF_OK) return true;
    return report_check(rep, false, "%s", err.text);
}

scored_peer real_peer(const check_context *c)
{
    char *path = data_path(c->folder, "quant/%s.json", REAL_MODEL);
    json_t *set = data_json(path);
    scored_peer peer = {0};

    if (set) {
        const json_t *kl = data_get(data_get(set, "kl"), "llama_cpp_kv_f32");
        peer = (scored_peer){data_real(kl, "mean"), data_real(kl, "max")};
    }
    json_decref(set);
    free(path);
    return peer;
}
