#include "models/source.h"

#include "base/mem.h"

#include <stdlib.h>

void vocabulary_free(vocabulary *v)
{
    free(v->pieces);
    free(v->piece_lengths);
    free(v->kinds);
    free(v->merges);
    free(v->merge_lengths);
    free(v->pretokenizer);
    buf_free(&v->arena);
    json_decref(v->json);
    *v = (vocabulary){0};
}

void model_source_free(model_source *s)
{
    free(s->path);
    free(s->name);
    free(s->inv_freq);
    free(s->used);
    free(s->template_text);
    tensor_table_free(&s->tensors);
    vocabulary_free(&s->vocab);
    for (size_t i = 0; i < s->n_maps; i++) {
        file_map_close(&s->maps[i]);
        if (s->headers) safetensors_free(&s->headers[i]);
    }
    free(s->maps);
    free(s->headers);
    *s = (model_source){0};
}

void model_source_index(model_source *s)
{
    s->used = xcalloc(s->tensors.n + 1, sizeof *s->used);
}

void model_source_mark_used(model_source *s, const char *name)
{
    const tensor *t = tensor_table_find(&s->tensors, name);
    if (t) s->used[t - s->tensors.items] = true;
}

void model_source_add_stop(model_source *s, int64_t id)
{
    model_config *c = &s->config;
    if (id < 0 || id >= c->vocab || c->n_stop_ids == MODEL_MAX_STOP_IDS) return;
    for (int32_t i = 0; i < c->n_stop_ids; i++)
        if (c->stop_ids[i] == id) return;
    c->stop_ids[c->n_stop_ids++] = (int32_t)id;
}

void vocabulary_reserve_tokens(vocabulary *v, size_t n)
{
    v->pieces = xcalloc(n + 1, sizeof *v->pieces);
    v->piece_lengths = xcalloc(n + 1, sizeof *v->piece_lengths);
    v->kinds = xcalloc(n + 1, sizeof *v->kinds);
    v->n_tokens = n;
}

void vocabulary_reserve_merges(vocabulary *v, size_t n)
{
    v->merges = xcalloc(n + 1, sizeof *v->merges);
    v->merge_lengths = xcalloc(n + 1, sizeof *v->merge_lengths);
    v->n_merges = n;
}
