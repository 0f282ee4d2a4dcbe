/* Losses, gradients, optimizer runs and GRPO of adapters under training (README section 6). */
#include "groups.h"

#include "base/mem.h"
#include "profiles/adapter_file.h"
#include "train/grpo.h"
#include "train/optimizer.h"
#include "train/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE_GRADIENT  2e-4 /* of the largest element of the case */
#define TOLERANCE_LOSS      1e-4
#define TOLERANCE_GRPO      2e-5
#define TOLERANCE_NORM      1e-3 /* relative */
#define TOLERANCE_FINAL_MAX 1e-3
#define TOLERANCE_FINAL     5e-6 /* on average */
#define MAX_ROWS            1024

typedef struct {
    const check_context *c;
    report *rep;
    const json_t *set;
    const data_tensors *t;
    const char *name; /* of the model's file, for messages */
    model *m;
    kn_backend *be;
    packed_model *weights;
    train_pass *pass;
} training;

/* --- sequences ------------------------------------------------------------------------------ */

typedef struct {
    train_sequence *items;
    size_t n;
} sequence_list;

static unsigned char *read_flags(const json_t *array, bool all, size_t n)
{
    unsigned char *flags = xcalloc(n, 1);
    for (size_t i = 0; i < n; i++)
        flags[i] = all || json_integer_value(json_array_get(array, i)) != 0;
    return flags;
}

static train_sequence read_ids(const json_t *object)
{
    id_list ids = {0};
    data_ids(data_get(object, "ids"), &ids);
    return (train_sequence){.ids = ids.ids, .length = (int32_t)ids.len};
}

static void free_sequences(sequence_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free((void *)(uintptr_t)list->items[i].ids);
        free((void *)(uintptr_t)list->items[i].adapted);
        free((void *)(uintptr_t)list->items[i].target);
    }
    free(list->items);
    *list = (sequence_list){0};
}

static sequence_list read_conversations(const json_t *array, bool all)
{
    sequence_list list = {xcalloc(json_array_size(array), sizeof *list.items),
                          json_array_size(array)};
    for (size_t i = 0; i < list.n; i++) {
        const json_t *object = json_array_get(array, i);
        train_sequence s = read_ids(object);
        s.adapted = read_flags(data_get(object, "adapted_prefill"), all, (size_t)s.length);
        s.target = read_flags(data_get(object, "loss"), false, (size_t)s.length);
        list.items[i] = s;
    }
    return list;
}

/* --- tensors -------------------------------------------------------------------------------- */

static char *tensor_name(const train_params *p, const train_item *item, int part)
{
    static const char *const direft[] = {"learned_source.weight", "rotate_layer.weight",
                                         "learned_source.bias"};
    if (p->direft) return xasprintf("layers.%d.%s", item->layer, direft[part]);
    return xasprintf("base_model.model.model.layers.%d.%s.lora_%c.weight", item->layer,
                     linear_map_path(item->map), part == 0 ? 'A' : 'B');
}

typedef struct {
    double largest, sum;
    size_t count;
} difference;

/* Differences of one tensor (part 0: A or W, 1: B or R, 2: bias) from PREFIX.NAME. */
static void compare_tensor(const training *g, const train_params *p, const train_item *item,
                           const float *have, int part, const char *prefix, difference *d)
{
    char *name = tensor_name(p, item, part), *key = xasprintf("%s.%s", prefix, name);
    size_t at = part == 0 ? item->a : part == 1 ? item->b : item->bias;
    int64_t rows = 0, cols = 0;
    float *want = data_floats(g->t, key, &rows, &cols);
    if (report_check(g->rep, want != NULL, "%s: %s is in the reference", g->name, key)) {
        for (int64_t i = 0; i < rows * cols; i++) {
            double error = fabs((double)have[at + (size_t)i] - want[i]);
            d->sum += error;
            d->count++;
            if (!(error <= d->largest)) d->largest = error; /* NaN is taken over */
        }
    }
    free(want);
    free(key);
    free(name);
}

static difference compare_all(const training *g, const train_params *p, const float *device,
                              const char *prefix)
{
    difference d = {0};
    float *have = xcalloc(p->count, sizeof *have);
    g->be->ops->download(g->be, have, device, p->count * sizeof *have);
    for (size_t i = 0; i < p->n_items; i++)
        for (int part = 0; part < (p->direft ? 3 : 2); part++)
            compare_tensor(g, p, &p->items[i], have, part, prefix, &d);
    free(have);
    return d;
}

static void check_gradients(const training *g, const train_params *p, const char *prefix,
                            double largest)
{
    char *key = xasprintf("%s.grad", prefix);
    difference d = compare_all(g, p, p->grad, key);
    report_value(g->rep, "gradient / largest", d.largest / largest, TOLERANCE_GRADIENT, "%s %s",
                 g->name, prefix);
    free(key);
}

/* --- supervised ----------------------------------------------------------------------------- */

static bool load_params(const training *g, const char *init, train_params *out)
{
    char *folder = data_path(g->c->folder, "training/%s/%s", data_string(g->set, "model"), init);
    buf blob = {0};
    adapter_view view = {0};
    pf_err err = {0};
    adapter_import_options any = {.force_base = true};
    bool ok =
        adapter_file_import(folder, g->m, &any, &blob, NULL, &err) == PF_OK &&
        adapter_view_open(blob.data, blob.len, model_get_config(g->m), &view, &err) == PF_OK &&
        train_params_load(g->be, model_get_config(g->m), &view, out, &err) == PF_OK;
    report_check(g->rep, ok, "%s", err.text);
    adapter_view_close(&view);
    buf_free(&blob);
    free(folder);
    return ok;
}

static bool run_pass(const training *g, train_params *p, const sequence_list *list, bool backward,
                     double divisor, train_weigh weigh, void *ctx)
{
    pf_err err = {0};
    pf_status status =
        train_pass_begin(g->pass, p, list->items, list->n, backward, divisor, weigh, ctx, &err);
    if (status != PF_OK) return report_check(g->rep, false, "%s", err.text);
    while (train_pass_advance(g->pass))
        ;
    if (train_pass_check(g->pass, &err) != PF_OK)
        return report_check(g->rep, false, "%s", err.text);
    return true;
}

static double pass_loss(const training *g, double divisor)
{
    size_t n = 0;
    const float *logp = train_pass_logp(g->pass, &n);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum -= logp[i];
    return sum / divisor;
}

static void train_case(const training *g, const char *name, const json_t *spec, train_params *p)
{
    const json_t *losses = data_get(spec, "losses"), *norms = data_get(spec, "grad_norms");
    const json_t *setting = data_get(g->set, "optimizer");
    bool all = strcmp(data_string(spec, "position"), "all") == 0;
    sequence_list list = read_conversations(data_get(g->set, "conversations"), all);
    double divisor = data_real(g->set, "loss_tokens");
    optimizer_options o = optimizer_defaults(data_real(setting, "lr"));
    o.clip = data_real(setting, "clip_norm");
    o.eps = data_real(setting, "eps");
    o.decay = data_real(setting, "weight_decay");
    o.orthonormal = data_bool(spec, "retraction");
    size_t steps = json_array_size(norms);
    for (size_t i = 0; i <= steps; i++) {
        double norm = 0, want = json_real_value(json_array_get(losses, i));
        if (!run_pass(g, p, &list, i < steps, divisor, NULL, NULL)) break;
        report_value(g->rep, "loss", fabs(pass_loss(g, divisor) - want), TOLERANCE_LOSS,
                     "%s %s step %zu", g->name, name, i);
        if (i == 0) check_gradients(g, p, name, data_real(spec, "grad_max_abs"));
        if (i == steps) break;
        pf_err err = {0};
        if (optimizer_step(&o, p, (int64_t)i, (int64_t)steps, &norm, &err) != PF_OK) {
            report_check(g->rep, false, "%s %s: %s", g->name, name, err.text);
            break;
        }
        want = json_real_value(json_array_get(norms, i));
        report_value(g->rep, "gradient norm", fabs(norm / want - 1), TOLERANCE_NORM,
                     "%s %s step %zu", g->name, name, i);
    }
    char *key = xasprintf("%s.final", name);
    difference d = compare_all(g, p, p->value, key);
    report_value(g->rep, "after the run", d.largest, TOLERANCE_FINAL_MAX, "%s %s", g->name, name);
    report_value(g->rep, "after the run, mean", d.sum / (double)d.count, TOLERANCE_FINAL, "%s %s",
                 g->name, name);
    free(key);
    free_sequences(&list);
}

/* --- GRPO ----------------------------------------------------------------------------------- */

typedef struct {
    sequence_list list;
    int32_t *length;
    double *advantage;
    float *old_logp, *ref_logp, *ratio, *kl;
    unsigned char *clipped;
    size_t n_targets;
} grpo_data;

static void free_grpo(grpo_data *d)
{
    free_sequences(&d->list);
    free(d->length);
    free(d->advantage);
    free(d->old_logp);
    free(d->ref_logp);
    free(d->ratio);
    free(d->kl);
    free(d->clipped);
}

static void append_reals(float **out, size_t at, const json_t *array)
{
    *out = xrealloc_array(*out, at + json_array_size(array), sizeof **out);
    for (size_t i = 0; i < json_array_size(array); i++)
        (*out)[at + i] = (float)json_real_value(json_array_get(array, i));
}

static grpo_data read_grpo(const json_t *sequences)
{
    size_t n = json_array_size(sequences);
    grpo_data d = {.list = {xcalloc(n, sizeof(train_sequence)), n},
                   .length = xcalloc(n, sizeof *d.length),
                   .advantage = xcalloc(n, sizeof *d.advantage)};
    for (size_t i = 0; i < n; i++) {
        const json_t *object = json_array_get(sequences, i);
        train_sequence s = read_ids(object);
        int32_t prompt = (int32_t)data_real(object, "prompt_len");
        unsigned char *target = xcalloc((size_t)s.length, 1);
        memset(target + prompt, 1, (size_t)(s.length - prompt));
        s.adapted = read_flags(data_get(object, "adapted_prefill"), false, (size_t)s.length);
        s.target = target;
        d.list.items[i] = s;
        d.length[i] = s.length - prompt;
        append_reals(&d.old_logp, d.n_targets, data_get(object, "old_logps"));
        append_reals(&d.ref_logp, d.n_targets, data_get(object, "ref_logps"));
        d.n_targets += (size_t)d.length[i];
    }
    d.ratio = xcalloc(d.n_targets, sizeof *d.ratio);
    d.kl = xcalloc(d.n_targets, sizeof *d.kl);
    d.clipped = xcalloc(d.n_targets, 1);
    return d;
}

/* The advantages of every group; also checked against the stored ones. */
static void read_advantages(const training *g, const json_t *grpo, const char *kind_name,
                            double *out)
{
    static const struct {
        const char *name;
        grpo_advantage kind;
    } kinds[] = {
        {"std", GRPO_STD}, {"std_population", GRPO_STD_POPULATION}, {"none", GRPO_CENTRED}};
    const json_t *rewards = data_get(grpo, "rewards");
    size_t size = (size_t)data_real(grpo, "group_size");
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const json_t *stored = data_get(data_get(grpo, "advantages"), kinds[k].name);
        for (size_t group = 0; group < json_array_size(rewards); group++) {
            double reward[64], have[64];
            for (size_t i = 0; i < size && i < 64; i++)
                reward[i] = json_real_value(json_array_get(json_array_get(rewards, group), i));
            grpo_advantages(kinds[k].kind, GRPO_LEAST_SPREAD, reward, size, have);
            for (size_t i = 0; i < size; i++) {
                double want = json_real_value(json_array_get(json_array_get(stored, group), i));
                report_value(g->rep, "advantage", fabs(have[i] - want), 1e-9, "%s", kinds[k].name);
                if (strcmp(kinds[k].name, kind_name) == 0) out[group * size + i] = have[i];
            }
        }
    }
}

/* Largest difference of per-token values from nested lists, one list per sequence. */
static double nested_difference(const json_t *lists, const float *have)
{
    double largest = 0;
    size_t at = 0;
    for (size_t i = 0; i < json_array_size(lists); i++) {
        const json_t *list = json_array_get(lists, i);
        for (size_t j = 0; j < json_array_size(list); j++, at++) {
            double want = json_number_value(json_array_get(list, j));
            double error = fabs(have[at] - want) / fmax(1, fabs(want));
            if (!(error <= largest)) largest = error;
        }
    }
    return largest;
}

static void grpo_variant(const training *g, const char *kind, const char *variant,
                         const json_t *spec, grpo_data *d, train_params *p)
{
    const json_t *grpo = data_get(g->set, "grpo");
    double eps = data_real(grpo, "eps");
    grpo_batch batch = {
        .options = {.low = 1 - eps, .high = 1 + eps, .beta = data_real(grpo, "beta")},
        .n_answers = d->list.n,
        .length = d->length,
        .advantage = d->advantage,
        .old_logp = d->old_logp,
        .ref_logp = d->ref_logp,
        .ratio = d->ratio,
        .kl = d->kl,
        .clipped = d->clipped};
    batch.options.max_length = (int)data_real(grpo, "max_completion_length");
    batch.options.average = strcmp(variant, "grpo") == 0         ? GRPO_SEQUENCE_MEAN
                            : strcmp(variant, "token_mean") == 0 ? GRPO_TOKEN_MEAN
                                                                 : GRPO_FIXED_LENGTH;
    char *where = xasprintf("grpo.%s.%s", kind, variant);
    read_advantages(g, grpo, data_string(spec, "advantages"), d->advantage);
    g->be->ops->buffer_free(g->be, p->grad);
    p->grad = g->be->ops->buffer_alloc(g->be, p->count * sizeof(float)); /* zeroed */
    if (p->grad && run_pass(g, p, &d->list, true, 1, grpo_weigh, &batch)) {
        size_t n = 0;
        const float *logp = train_pass_logp(g->pass, &n);
        report_value(g->rep, "grpo loss", fabs(batch.loss - data_real(spec, "loss")),
                     TOLERANCE_GRPO, "%s %s", g->name, where);
        report_value(g->rep, "grpo logp", nested_difference(data_get(spec, "logps"), logp),
                     TOLERANCE_GRPO, "%s %s", g->name, where);
        float *clipped = xcalloc(n, sizeof *clipped);
        for (size_t i = 0; i < n; i++)
            clipped[i] = d->clipped[i];
        report_check(g->rep, nested_difference(data_get(spec, "clipped"), clipped) == 0,
                     "%s %s: the same tokens are clipped", g->name, where);
        free(clipped);
        check_gradients(g, p, where, data_real(spec, "grad_max_abs"));
    }
    free(where);
}

static void check_grpo(const training *g)
{
    const json_t *grpo = data_get(g->set, "grpo");
    const char *kind, *variant;
    json_t *spec, *variant_spec;
    json_object_foreach((json_t *)(uintptr_t)data_get(grpo, "cases"), kind, spec)
    {
        char *init = xasprintf("init-%s", kind);
        grpo_data d = read_grpo(data_get(spec, "sequences"));
        train_params p = {0};
        if (load_params(g, init, &p)) {
            json_object_foreach((json_t *)(uintptr_t)data_get(spec, "losses"), variant,
                                variant_spec)
            {
                grpo_variant(g, kind, variant, variant_spec, &d, &p);
            }
            train_params_free(&p);
        }
        free_grpo(&d);
        free(init);
    }
}

/* --- models --------------------------------------------------------------------------------- */

static bool open_training(training *g, const char *path)
{
    char message[256] = "";
    pf_err err = {0};
    /* A budget for two blocks: the kept one and the one that is computed again are both used. */
    train_pass_options options = {.max_rows = MAX_ROWS, .activation_bytes = 16 << 20};
    kn_options backend = runner_backend(g->c->isa, g->c->threads);
    if (!open_model(path, &g->m, g->rep)) return false;
    g->be = kn_backend_open(&backend, message, sizeof message);
    if (!report_check(g->rep, g->be != NULL, "%s", message)) return false;
    return report_check(g->rep,
                        packed_model_create(g->m, g->be, &g->weights, &err) == PF_OK &&
                            train_pass_open(g->weights, &options, &g->pass, &err) == PF_OK,
                        "%s", err.text);
}

static void close_training(training *g)
{
    train_pass_close(g->pass);
    packed_model_free(g->weights);
    if (g->be) g->be->ops->close(g->be);
    model_close(g->m);
}

static void check_file(const check_context *c, const char *path, const json_t *set,
                       const data_tensors *t, report *rep)
{
    training g = {.c = c, .rep = rep, .set = set, .t = t, .name = file_label(path)};
    const char *name;
    json_t *spec;
    if (open_training(&g, path)) {
        json_object_foreach((json_t *)(uintptr_t)data_get(set, "cases"), name, spec)
        {
            train_params p = {0};
            if (!load_params(&g, data_string(spec, "init"), &p)) continue;
            train_case(&g, name, spec, &p);
            train_params_free(&p);
        }
        check_grpo(&g);
    }
    close_training(&g);
}

static void check_model(const check_context *c, const char *name, report *rep)
{
    char *json_path = data_path(c->folder, "training/%s/cases.json", name);
    char *tensor_path = data_path(c->folder, "training/%s/cases.safetensors", name);
    json_t *set = data_json(json_path);
    data_tensors t = {0};
    char *paths[2] = {NULL, NULL};
    if (set && data_tensors_open(tensor_path, &t)) {
        int n = model_files(c, name, paths, rep);
        if (n > 0) check_file(c, paths[0], set, &t, rep);
    }
    free(paths[0]);
    free(paths[1]);
    data_tensors_close(&t);
    json_decref(set);
    free(json_path);
    free(tensor_path);
}

void check_training(const check_context *c, report *rep)
{
    for (char **name = c->models; *name; name++)
        check_model(c, *name, rep);
}
