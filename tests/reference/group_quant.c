/* Quantized files against exact arithmetic on their own dequantized weights (README section 7). */
#include "groups.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE_FLOAT       1e-3
#define TOLERANCE_NLL_FLOAT   1e-4
#define TOLERANCE_NLL_INTEGER 0.02

static void check_kind(const check_context *c, const char *name, const char *kind,
                       const json_t *set, const data_tensors *t, report *rep)
{
    char *path = data_path(c->folder, "models/%s/%s-%s.gguf", name, name, kind);
    const json_t *peer_json = data_get(data_get(data_get(set, "files"), kind), "llama_cpp_kv_f32");
    const scored_peer peer = {data_real(peer_json, "kl_mean"), data_real(peer_json, "kl_max")};
    id_list ids = {0}, positions = {0};
    scored s;
    runner r;

    data_ids(data_get(set, "ids"), &ids);
    data_ids(data_get(set, "positions"), &positions);
    scored_init(&s, &ids, NULL, TOLERANCE_FLOAT, "prompt");
    if (!golden_load(t, kind, &s.rows)) die("reference data: no logits of %s %s", name, kind);
    for (size_t i = 0; i < positions.len; i++)
        scored_expect_row(&s, positions.ids[i], (int64_t)i);
    if (!file_exists(path)) {
        report_skip(rep, 1, "no file %s-%s.gguf", name, kind);
    } else if (open_runner(c, path, &r, rep)) {
        scored_run(&r, &s, 1, &peer, file_label(path), NULL, rep);
        runner_close(&r);
    }
    scored_free(&s);
    id_list_free(&ids);
    id_list_free(&positions);
    free(path);
}

/* --- the real model: passages ----------------------------------------------------------------- */

typedef struct {
    const id_list *ids;
    double nll;
    scored *last; /* golden row of the last token */
} passage;

static void passage_row(void *ctx, int position, const float *logits, int vocab)
{
    passage *p = ctx;

    if ((size_t)position + 1 < p->ids->len) {
        p->nll += logits_logsumexp(logits, vocab) - logits[p->ids->ids[position + 1]];
        return;
    }
    scored *s = p->last;
    s->n_rows++;
    s->error = golden_error(&s->rows, 0, logits, vocab, s->fixed_ids);
    s->kl_sum = s->kl_max = golden_kl(&s->rows, 0, logits, vocab);
}

static void report_passages(const check_context *c, const runner *r, const scored *last, int n,
                            double mean_nll, double exact, report *rep)
{
    const scored_peer peer = real_peer(c);
    double sum = 0, max = 0;

    report_value(rep, "mean NLL", fabs(mean_nll - exact),
                 r->integer ? TOLERANCE_NLL_INTEGER : TOLERANCE_NLL_FLOAT, "%s", REAL_MODEL);
    for (int i = 0; i < n; i++) {
        if (!r->integer)
            report_value(rep, "logits", last[i].error, TOLERANCE_FLOAT, "%s passage %d", REAL_MODEL,
                         i);
        sum += last[i].kl_sum;
        max = fmax(max, last[i].kl_max);
    }
    if (!r->integer) return;
    report_value(rep, "KL mean/peer", sum / n / peer.kl_mean, 2, "%s", REAL_MODEL);
    report_value(rep, "KL max/peer", max / peer.kl_max, 3, "%s", REAL_MODEL);
}

static void load_passage(const json_t *p, const data_tensors *t, int i, scored *s)
{
    id_list ids = {0};
    char key[64];

    data_ids(data_get(p, "ids"), &ids);
    scored_init(s, &ids, NULL, TOLERANCE_FLOAT, "passage %d", i);
    snprintf(key, sizeof key, "passage%d.last", i);
    if (!golden_load(t, key, &s->rows)) die("reference data: no rows of %s", key);
    for (size_t j = 0; j < ids.len; j++)
        s->wanted[j] = true;
    id_list_free(&ids);
}

static void check_passages(const check_context *c, const json_t *set, const data_tensors *t,
                           report *rep)
{
    const json_t *passages = data_get(set, "passages");
    const int n = (int)json_array_size(passages);
    scored *last = xcalloc((size_t)n, sizeof *last);
    passage *list = xcalloc((size_t)n, sizeof *list);
    runner_sequence *seqs = xcalloc((size_t)n, sizeof *seqs);
    id_list fixed_ids = {0};
    runner r;
    pf_err err;
    double nll = 0;
    size_t targets = 0;

    data_ids(data_get(set, "fixed_ids"), &fixed_ids);
    for (int i = 0; i < n; i++) {
        load_passage(json_array_get(passages, (size_t)i), t, i, &last[i]);
        last[i].fixed_ids = &fixed_ids;
        list[i] = (passage){.ids = &last[i].ids, .last = &last[i]};
        seqs[i] = (runner_sequence){.ids = last[i].ids.ids,
                                    .n = (int)last[i].ids.len,
                                    .wanted = last[i].wanted,
                                    .logits = passage_row,
                                    .ctx = &list[i]};
    }
    if (open_runner(c, c->real, &r, rep)) {
        pf_status status = runner_run(&r, seqs, n, &err);
        if (report_check(rep, status == PF_OK, "passages: %s", status ? err.text : "")) {
            for (int i = 0; i < n; i++) {
                nll += list[i].nll;
                targets += last[i].ids.len - 1;
            }
            double exact = data_real(data_get(data_get(set, "totals"), "exact"), "mean_nll");
            report_passages(c, &r, last, n, nll / (double)targets, exact, rep);
        }
        runner_close(&r);
    }
    for (int i = 0; i < n; i++)
        scored_free(&last[i]);
    free(last);
    free(list);
    free(seqs);
    id_list_free(&fixed_ids);
}

static void check_model(const check_context *c, const char *name, report *rep)
{
    char *json_path = data_path(c->folder, "quant/%s.json", name);
    char *tensor_path = data_path(c->folder, "quant/%s.safetensors", name);
    json_t *set = data_json(json_path);
    data_tensors t = {0};
    const char *kind;
    json_t *value;

    if (!set || !data_tensors_open(tensor_path, &t)) {
        report_skip(rep, 1, "no quantized data of %s", name);
    } else if (strcmp(name, REAL_MODEL) != 0) {
        json_object_foreach(json_object_get(set, "files"), kind, value)
            check_kind(c, name, kind, set, &t, rep);
    } else if (c->real) {
        check_passages(c, set, &t, rep);
    } else {
        report_skip(rep, 1, "the real model's file was not given");
    }
    data_tensors_close(&t);
    json_decref(set);
    free(json_path);
    free(tensor_path);
}

void check_quant(const check_context *c, report *rep)
{
    for (char **name = c->models; *name; name++)
        check_model(c, *name, rep);
}
