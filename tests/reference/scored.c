#include "scored.h"

#include "base/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Below these margins two correct programs may choose differently. */
#define MARGIN_FLOAT   1e-3
#define MARGIN_INTEGER 0.5

void scored_init(scored *s, const id_list *ids, const id_list *follow, double tolerance,
                 const char *fmt, ...)
{
    va_list args;

    *s = (scored){.tolerance = tolerance};
    va_start(args, fmt);
    vsnprintf(s->name, sizeof s->name, fmt, args);
    va_end(args);
    id_list_append_all(&s->ids, ids->ids, ids->len);
    if (follow) id_list_append_all(&s->ids, follow->ids, follow->len);
    size_t n = s->ids.len;
    s->adapted = xcalloc(n, sizeof *s->adapted);
    s->wanted = xcalloc(n, sizeof *s->wanted);
    s->row = xcalloc(n, sizeof *s->row);
    s->choice = xcalloc(n, sizeof *s->choice);
    s->margin = xcalloc(n, sizeof *s->margin);
    for (size_t i = 0; i < n; i++) {
        s->row[i] = -1;
        s->choice[i] = -1;
    }
}

void scored_free(scored *s)
{
    id_list_free(&s->ids);
    free(s->adapted);
    free(s->wanted);
    free(s->row);
    free(s->choice);
    free(s->margin);
    golden_free(&s->rows);
    *s = (scored){0};
}

static void check_position(const scored *s, int64_t position)
{
    if (position < 0 || position >= (int64_t)s->ids.len)
        die("reference data: %s has no position %lld", s->name, (long long)position);
}

void scored_expect_row(scored *s, int64_t position, int64_t row)
{
    check_position(s, position);
    if (row >= s->rows.rows) die("reference data: %s has no row %lld", s->name, (long long)row);
    s->wanted[position] = true;
    s->row[position] = row;
}

void scored_expect_greedy(scored *s, int64_t first, const id_list *greedy, const json_t *margins)
{
    if (json_array_size(margins) != greedy->len)
        die("reference data: %s has %zu choices and %zu margins", s->name, greedy->len,
            json_array_size(margins));
    for (size_t i = 0; i < greedy->len; i++) {
        int64_t p = first + (int64_t)i;
        check_position(s, p);
        s->wanted[p] = true;
        s->choice[p] = greedy->ids[i];
        s->margin[p] = json_number_value(json_array_get(margins, i));
    }
}

static void score_choice(scored *s, int32_t choice, double margin, int32_t best)
{
    if (margin < (s->integer ? MARGIN_INTEGER : MARGIN_FLOAT)) return;
    s->n_choices++;
    s->n_wrong += best != choice;
}

static void score_row(void *ctx, int position, const float *logits, int vocab)
{
    scored *s = ctx;
    const int32_t best = logits_argmax(logits, vocab);

    if (s->choice[position] >= 0) score_choice(s, s->choice[position], s->margin[position], best);
    if (s->row[position] < 0) return;
    s->n_rows++;
    double error = golden_error(&s->rows, s->row[position], logits, vocab, s->fixed_ids);
    if (!(error <= s->error)) s->error = error;
    if (!s->integer) return;
    double kl = golden_kl(&s->rows, s->row[position], logits, vocab);
    s->kl_sum += kl;
    if (!(kl <= s->kl_max)) s->kl_max = kl;
    double margin = 0;
    int32_t choice = golden_best(&s->rows, s->row[position], &margin);
    score_choice(s, choice, margin, best);
}

/* The KL of all rows of a run. */
static scored_peer level_of(const scored *list, int n)
{
    double sum = 0, max = 0;
    int rows = 0;

    for (int i = 0; i < n; i++) {
        sum += list[i].kl_sum;
        rows += list[i].n_rows;
        if (!(list[i].kl_max <= max)) max = list[i].kl_max;
    }
    return (scored_peer){rows > 0 ? sum / rows : 0, max};
}

bool scored_run(runner *r, scored *list, int n, const scored_peer *peer, const char *name,
                scored_peer *level, report *rep)
{
    runner_sequence *seqs = xcalloc((size_t)n, sizeof *seqs);
    pf_err err;

    for (int i = 0; i < n; i++) {
        scored *s = &list[i];
        s->integer = r->integer;
        seqs[i] = (runner_sequence){.ids = s->ids.ids,
                                    .n = (int)s->ids.len,
                                    .adapter = s->adapter,
                                    .adapted = s->adapted,
                                    .wanted = s->wanted,
                                    .logits = score_row,
                                    .ctx = s};
    }
    pf_status status = runner_run(r, seqs, n, &err);
    free(seqs);
    if (status != PF_OK) return report_check(rep, false, "%s: %s", name, err.text);
    for (int i = 0; i < n; i++) {
        const scored *s = &list[i];
        if (s->n_rows > 0 && !s->integer)
            report_value(rep, "logits", s->error, s->tolerance, "%s %s", name, s->name);
        if (s->n_choices > 0)
            report_check(rep, s->n_wrong == 0, "%s %s: %d of %d choices differ", name, s->name,
                         s->n_wrong, s->n_choices);
    }
    if (!r->integer) return true;
    const scored_peer now = level_of(list, n);
    if (peer->kl_mean > 0)
        report_value(rep, "KL mean/peer", now.kl_mean / peer->kl_mean, 2, "%s", name);
    report_value(rep, "KL max/peer", now.kl_max / peer->kl_max, 3, "%s", name);
    if (level) *level = now;
    return true;
}
