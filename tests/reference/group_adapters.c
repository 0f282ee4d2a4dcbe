/* LoRA and DiReFT adapters under every rule of who is adapted (README section 5): `adapters` is
 * prompts with eight forced tokens and greedy continuations, `turns` conversations. All sequences
 * of an adapter share steps, so adapted and plain rows mix. */
#include "groups.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE      2e-4
#define TOLERANCE_REAL 1e-3
#define MOST_SEQUENCES 64

typedef struct {
    const check_context *c;
    const char *model;
    const char *file; /* name of the opened file, for reports */
    runner *r;
    json_t *set;
    data_tensors t;
    id_list fixed_ids, forced;
    double tolerance;
    scored_peer peer;
    report *rep;
} adapter_set;

/* The sequences of one adapter. */
typedef struct {
    scored list[MOST_SEQUENCES];
    int n;
} sequence_list;

static scored *next_sequence(sequence_list *l)
{
    if (l->n == MOST_SEQUENCES) die("reference data: more than %d sequences", MOST_SEQUENCES);
    return &l->list[l->n++];
}

static void free_sequences(sequence_list *l)
{
    for (int i = 0; i < l->n; i++)
        scored_free(&l->list[i]);
    l->n = 0;
}

static void mark(scored *s, const packed_adapter *adapter, size_t first, size_t end)
{
    s->adapter = adapter;
    for (size_t i = first; adapter && i < end; i++)
        s->adapted[i] = true;
}

static bool is_all(const char *mode)
{
    return strcmp(mode, "all") == 0;
}

/* Row 0 after the last prompt token, row i after forced token i. */
static void add_forced(adapter_set *a, sequence_list *l, const char *name,
                       const packed_adapter *adapter, const char *prompt, const char *mode,
                       const id_list *ids)
{
    char key[128];
    scored *s = next_sequence(l);

    if (adapter)
        snprintf(key, sizeof key, "%s.%s.%s", name, prompt, mode);
    else
        snprintf(key, sizeof key, "%s.%s", name, prompt);
    scored_init(s, ids, &a->forced, a->tolerance, "%s", key);
    s->fixed_ids = &a->fixed_ids;
    if (!golden_load(&a->t, key, &s->rows)) die("reference data: no logits %s", key);
    mark(s, adapter, 0, is_all(mode) ? s->ids.len : ids->len);
    for (size_t i = 0; i <= a->forced.len; i++)
        scored_expect_row(s, (int64_t)(ids->len + i) - 1, (int64_t)i);
}

static void add_greedy(adapter_set *a, sequence_list *l, const char *name,
                       const packed_adapter *adapter, const char *mode, const id_list *ids,
                       const json_t *info)
{
    id_list greedy = {0};
    scored *s = next_sequence(l);

    data_ids(data_get(info, "greedy"), &greedy);
    id_list fed = {.ids = greedy.ids, .len = greedy.len > 0 ? greedy.len - 1 : 0};
    scored_init(s, ids, &fed, a->tolerance, "%s.%s greedy", name, mode);
    s->fixed_ids = &a->fixed_ids;
    mark(s, adapter, 0, is_all(mode) ? s->ids.len : ids->len);
    scored_expect_greedy(s, (int64_t)ids->len - 1, &greedy, data_get(info, "margins"));
    id_list_free(&greedy);
}

/* Integer kernels: the other engine's level was measured on other prompts, and these short ones are
 * noisier. So the base model's rows of the same prompts are held to its maximum, and the adapters'
 * rows to the larger of both levels. */
static void run_list(adapter_set *a, sequence_list *l, const char *adapter, bool base)
{
    char name[160];
    scored_peer level = {0};

    snprintf(name, sizeof name, "%s %s", a->file, adapter);
    if (base) {
        const scored_peer maximum = {.kl_max = a->peer.kl_max};
        scored_run(a->r, l->list, l->n, &maximum, name, &level, a->rep);
        a->peer.kl_mean = fmax(a->peer.kl_mean, level.kl_mean);
        a->peer.kl_max = fmax(a->peer.kl_max, level.kl_max);
    } else {
        scored_run(a->r, l->list, l->n, &a->peer, name, NULL, a->rep);
    }
    free_sequences(l);
}

/* Base model (adapter NULL, info NULL) or one adapter under both modes. */
static void run_prompts(adapter_set *a, const char *name, const packed_adapter *adapter,
                        const json_t *info)
{
    static const char *const modes[] = {"all", "prefill"};
    json_t *prompts = json_object_get(a->set, "prompts");
    sequence_list l = {.n = 0};
    const char *prompt;
    json_t *array;

    json_object_foreach(prompts, prompt, array)
    {
        id_list ids = {0};
        data_ids(array, &ids);
        for (size_t i = 0; i < (adapter ? 2 : 1); i++) {
            char mode_key[64];
            add_forced(a, &l, name, adapter, prompt, modes[i], &ids);
            if (!adapter) continue;
            snprintf(mode_key, sizeof mode_key, "%s.%s", prompt, modes[i]);
            const json_t *mode_info = data_get(data_get(info, "modes"), mode_key);
            if (json_object_get(mode_info, "greedy"))
                add_greedy(a, &l, name, adapter, modes[i], &ids, mode_info);
        }
        id_list_free(&ids);
    }
    run_list(a, &l, name, !adapter);
}

/* --- turns ------------------------------------------------------------------------------------ */

/* Letters of the token kinds (t prompt, a answer, e end of answer) that a rule adapts. */
static const struct {
    const char *name, *adapted;
} turn_rules[] = {{"keep", "t"}, {"keep_end_adapted", "te"}, {"reprefill", "tae"}};

static void add_turns(adapter_set *a, sequence_list *l, const char *key,
                      const packed_adapter *adapter, const char *adapted_kinds)
{
    const json_t *turns = data_get(a->set, "turns");
    const char *kinds = data_string(turns, "kinds");
    id_list ids = {0}, positions = {0};
    scored *s = next_sequence(l);

    data_ids(data_get(turns, "ids"), &ids);
    data_ids(data_get(turns, "last_prompt_positions"), &positions);
    scored_init(s, &ids, NULL, a->tolerance, "%s", key);
    s->fixed_ids = &a->fixed_ids;
    s->adapter = adapter;
    if (strlen(kinds) != ids.len) die("reference data: %s: kinds and ids differ in length", key);
    for (size_t i = 0; adapter && i < ids.len; i++)
        s->adapted[i] = strchr(adapted_kinds, kinds[i]) != NULL;
    if (!golden_load(&a->t, key, &s->rows)) die("reference data: no logits %s", key);
    for (size_t i = 0; i < positions.len; i++)
        scored_expect_row(s, positions.ids[i], (int64_t)i);
    id_list_free(&ids);
    id_list_free(&positions);
}

static void run_turns(adapter_set *a, const char *name, const packed_adapter *adapter,
                      const json_t *info)
{
    sequence_list l = {.n = 0};
    char key[128];

    (void)info;
    if (!adapter) {
        snprintf(key, sizeof key, "%s.turns", name);
        add_turns(a, &l, key, NULL, "");
    }
    for (size_t i = 0; adapter && i < sizeof turn_rules / sizeof turn_rules[0]; i++) {
        snprintf(key, sizeof key, "%s.turns.%s", name, turn_rules[i].name);
        add_turns(a, &l, key, adapter, turn_rules[i].adapted);
    }
    run_list(a, &l, name, !adapter);
}

/* --- all adapters of a model ------------------------------------------------------------------ */

typedef void (*run_adapter)(adapter_set *a, const char *name, const packed_adapter *adapter,
                            const json_t *info);

static void run_adapters(adapter_set *a, run_adapter run)
{
    const char *name;
    json_t *info;

    run(a, "base", NULL, NULL);
    json_object_foreach(json_object_get(a->set, "adapters"), name, info)
    {
        char *folder = data_path(a->c->folder, "adapters/%s/%s", a->model, name);
        packed_adapter *adapter = NULL;
        pf_err err;
        if (!file_is_folder(folder))
            report_skip(a->rep, 1, "the adapter folder %s/%s is not there", a->model, name);
        else if (runner_adapter(a->r, folder, &adapter, &err) == PF_OK)
            run(a, name, adapter, info);
        else
            report_check(a->rep, false, "%s: %s", a->file, err.text);
        packed_adapter_free(adapter);
        free(folder);
    }
}

static void check_file(adapter_set *a, const char *path, run_adapter run)
{
    runner r;

    a->file = file_label(path);
    a->peer = real_peer(a->c);
    if (!open_runner(a->c, path, &r, a->rep)) return;
    a->r = &r;
    run_adapters(a, run);
    runner_close(&r);
}

static void check_model(const check_context *c, const char *name, run_adapter run, report *rep)
{
    char *json_path = data_path(c->folder, "adapters/%s/cases.json", name);
    char *tensor_path = data_path(c->folder, "adapters/%s/cases.safetensors", name);
    const bool real = strcmp(name, REAL_MODEL) == 0;
    adapter_set a = {.c = c, .model = name, .rep = rep};
    char *paths[2] = {NULL, NULL};

    a.set = data_json(json_path);
    a.tolerance = real ? TOLERANCE_REAL : TOLERANCE;
    /* Only some models have adapters: absence is not a skipped test. */
    if (a.set && data_tensors_open(tensor_path, &a.t)) {
        data_ids(data_get(a.set, "forced"), &a.forced);
        if (json_object_get(a.set, "fixed_ids"))
            data_ids(json_object_get(a.set, "fixed_ids"), &a.fixed_ids);
        int n = model_files(c, name, paths, rep);
        for (int i = 0; i < n; i++)
            check_file(&a, paths[i], run);
    }
    free(paths[0]);
    free(paths[1]);
    id_list_free(&a.forced);
    id_list_free(&a.fixed_ids);
    data_tensors_close(&a.t);
    json_decref(a.set);
    free(json_path);
    free(tensor_path);
}

void check_adapters(const check_context *c, report *rep)
{
    for (char **name = c->models; *name; name++)
        check_model(c, *name, run_prompts, rep);
}

void check_turns(const check_context *c, report *rep)
{
    for (char **name = c->models; *name; name++)
        check_model(c, *name, run_turns, rep);
}
