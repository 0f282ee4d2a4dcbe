#include "support/runner.h"

#include "base/mem.h"
#include "profiles/adapter_file.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_TOKENS 16
#define STORE_PAGES 256
#define MOST_ROWS   1024
#define STEP_ROWS   256
/* Odd, so that chunks end anywhere in a page. */
#define CHUNK 37

/* What the fast paths compute with fewer bits than float32: quantized weights, on CUDA 16-bit ones
 * too (their products take 16-bit inputs). */
static bool is_reduced(kn_type type, bool cuda)
{
    return kn_type_get(type)->quantized || (cuda && type != KN_F32);
}

static bool any_reduced(const model *m, bool cuda)
{
    const model_weights *w = model_get_weights(m);
    const int n_layers = model_get_config(m)->n_layers;

    for (int i = 0; i < n_layers; i++) {
        const model_layer *l = &w->layers[i];
        const kn_matrix *maps[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof maps / sizeof maps[0]; j++)
            if (is_reduced(maps[j]->type, cuda)) return true;
    }
    return is_reduced(w->output.type, cuda);
}

kn_options runner_backend(const char *isa, int threads)
{
    if (strncmp(isa, "cuda", 4) != 0)
        return (kn_options){.device = "cpu", .isa = isa, .threads = threads};
    return (kn_options){.device = "cuda", .isa = isa[4] == '-' ? isa + 5 : NULL};
}

pf_status runner_open(const char *model_path, const runner_options *options, runner *out,
                      pf_err *err)
{
    char message[256];

    *out = (runner){.options = *options};
    runner_options *o = &out->options;
    if (!o->isa) o->isa = "ref";
    if (o->step_rows == 0) o->step_rows = STEP_ROWS;
    if (o->chunk == 0) o->chunk = CHUNK;
    PF_ASSERT(o->step_rows <= MOST_ROWS);
    const forward_options pass = {.max_rows = o->step_rows,
                                  .page_tokens = PAGE_TOKENS,
                                  .n_pages = STORE_PAGES,
                                  .kv_type = o->kv_type};
    const kn_options backend = runner_backend(o->isa, o->threads);
    pf_status status = model_open(model_path, NULL, &out->m, err);
    if (status != PF_OK) goto out;
    out->be = kn_backend_open(&backend, message, sizeof message);
    if (!out->be) {
        status = err_set(err, PF_FAILED, "%s", message);
        goto out;
    }
    out->integer = strcmp(o->isa, "ref") != 0 && strcmp(o->isa, "cuda-precise") != 0 &&
                   any_reduced(out->m, strcmp(o->isa, "cuda") == 0);
    status = forward_open(out->m, out->be, &pass, &out->f, err);
out:
    if (status != PF_OK) runner_close(out);
    return status;
}

void runner_close(runner *r)
{
    forward_close(r->f);
    if (r->be) r->be->ops->close(r->be);
    model_close(r->m);
    *r = (runner){0};
}

/* --- sequences in steps ----------------------------------------------------------------------- */

typedef struct {
    const runner_sequence *s;
    int done;       /* tokens computed */
    int32_t *pages; /* all pages of the sequence */
} running;

typedef struct {
    forward_row rows[MOST_ROWS];
    running *owner[MOST_ROWS];
    int n;
} step;

static void add_chunk(step *st, running *seq, const runner_options *o)
{
    const runner_sequence *s = seq->s;

    for (int i = 0; i < o->chunk && seq->done < s->n && st->n < o->step_rows; i++, seq->done++) {
        const int p = seq->done;
        st->owner[st->n] = seq;
        st->rows[st->n++] = (forward_row){
            .token = s->ids[p],
            .position = p,
            .pages = seq->pages,
            .adapter = s->adapted && s->adapted[p] ? s->adapter : NULL,
            .wants_logits = s->wanted[p],
        };
    }
}

static void hand_out(const runner *r, const step *st)
{
    int row = 0;

    for (int i = 0; i < st->n; i++) {
        const runner_sequence *s = st->owner[i]->s;
        if (!st->rows[i].wants_logits) continue;
        s->logits(s->ctx, st->rows[i].position, forward_logits(r->f, row++),
                  model_get_config(r->m)->vocab);
    }
}

/* Pages go to the sequences in turn, so that no sequence's pages lie side by side. */
static void deal_pages(running *seqs, int n)
{
    int32_t next = 0;
    bool more = true;

    for (int j = 0; more; j++) {
        more = false;
        for (int i = 0; i < n; i++) {
            if ((int64_t)j * PAGE_TOKENS >= seqs[i].s->n) continue;
            seqs[i].pages[j] = next++;
            more = true;
        }
    }
}

static pf_status run_together(runner *r, running *seqs, int n, pf_err *err)
{
    step *st = xcalloc(1, sizeof *st);
    pf_status status = PF_OK;

    deal_pages(seqs, n);
    do {
        st->n = 0;
        for (int i = 0; i < n; i++)
            add_chunk(st, &seqs[r->options.reverse ? n - 1 - i : i], &r->options);
        status = forward_run(r->f, st->rows, st->n, err);
        if (status == PF_OK) hand_out(r, st);
    } while (status == PF_OK && st->n > 0);
    free(st);
    return status;
}

static int pages_of(const runner_sequence *s)
{
    return (s->n + PAGE_TOKENS - 1) / PAGE_TOKENS;
}

pf_status runner_run(runner *r, const runner_sequence *sequences, int n, pf_err *err)
{
    running *seqs = xcalloc((size_t)n, sizeof *seqs);
    pf_status status = PF_OK;

    for (int first = 0, end = 0; status == PF_OK && first < n; first = end) {
        int pages = 0;
        for (end = first; end < n && pages + pages_of(&sequences[end]) <= STORE_PAGES; end++) {
            pages += pages_of(&sequences[end]);
            seqs[end].s = &sequences[end];
            seqs[end].pages = xcalloc((size_t)pages_of(&sequences[end]), sizeof(int32_t));
        }
        PF_ASSERT(end > first);
        status = run_together(r, seqs + first, end - first, err);
    }
    for (int i = 0; i < n; i++)
        free(seqs[i].pages);
    free(seqs);
    return status;
}

pf_status runner_adapter(runner *r, const char *folder, packed_adapter **out, pf_err *err)
{
    buf blob = {0};
    pf_status status = adapter_file_import(folder, r->m, NULL, &blob, NULL, err);

    if (status == PF_OK) {
        status =
            packed_adapter_create(r->be, model_get_config(r->m), blob.data, blob.len, out, err);
    }
    buf_free(&blob);
    return status;
}
