/* Logits and greedy continuations of base models in float32 (README section 4). */
#include "groups.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE      2e-4
#define TOLERANCE_FAR  1e-3 /* long contexts: float32 rotary angles */
#define TOLERANCE_REAL 1e-3
#define FAR_TOKENS     500

static void load_prompt(scored *s, const char *prompt, const json_t *p, const data_tensors *t,
                        bool real)
{
    id_list ids = {0}, greedy = {0}, positions = {0};

    data_ids(data_get(p, "ids"), &ids);
    data_ids(data_get(p, "greedy"), &greedy);
    data_ids(data_get(p, "positions"), &positions);
    double tolerance = real ? TOLERANCE_REAL : ids.len > FAR_TOKENS ? TOLERANCE_FAR : TOLERANCE;
    /* The last choice is compared, not fed. */
    id_list fed = {.ids = greedy.ids, .len = greedy.len > 0 ? greedy.len - 1 : 0};
    scored_init(s, &ids, &fed, tolerance, "%s", prompt);
    if (!golden_load(t, prompt, &s->rows)) die("reference data: no logits of prompt %s", prompt);
    for (size_t i = 0; i < positions.len; i++)
        scored_expect_row(s, positions.ids[i], (int64_t)i);
    scored_expect_greedy(s, (int64_t)ids.len - 1, &greedy, data_get(p, "margins"));
    id_list_free(&ids);
    id_list_free(&greedy);
    id_list_free(&positions);
}

static void check_file(const check_context *c, const char *path, bool real, const json_t *set,
                       const data_tensors *t, report *rep)
{
    json_t *prompts = json_object_get(set, "prompts");
    scored *list = xcalloc(json_object_size(prompts), sizeof *list);
    const scored_peer peer = real_peer(c);
    id_list fixed_ids = {0};
    const char *prompt;
    json_t *p;
    runner r;
    int n = 0;

    if (json_object_get(set, "fixed_ids")) data_ids(json_object_get(set, "fixed_ids"), &fixed_ids);
    if (open_runner(c, path, &r, rep)) {
        json_object_foreach(prompts, prompt, p)
        {
            load_prompt(&list[n], prompt, p, t, real);
            list[n++].fixed_ids = &fixed_ids;
        }
        scored_run(&r, list, n, &peer, file_label(path), NULL, rep);
        runner_close(&r);
    }
    for (int i = 0; i < n; i++)
        scored_free(&list[i]);
    free(list);
    id_list_free(&fixed_ids);
}

static void check_model(const check_context *c, const char *name, report *rep)
{
    char *json_path = data_path(c->folder, "forward/%s.json", name);
    char *tensor_path = data_path(c->folder, "forward/%s.safetensors", name);
    json_t *set = data_json(json_path);
    data_tensors t = {0};
    char *paths[2] = {NULL, NULL};

    if (!set || !data_tensors_open(tensor_path, &t)) {
        report_skip(rep, 1, "no forward data of %s", name);
    } else {
        int n = model_files(c, name, paths, rep);
        for (int i = 0; i < n; i++)
            check_file(c, paths[i], strcmp(name, REAL_MODEL) == 0, set, &t, rep);
    }
    free(paths[0]);
    free(paths[1]);
    data_tensors_close(&t);
    json_decref(set);
    free(json_path);
    free(tensor_path);
}

void check_forward(const check_context *c, report *rep)
{
    for (char **name = c->models; *name; name++)
        check_model(c, *name, rep);
}
