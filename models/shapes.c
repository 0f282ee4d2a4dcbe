#include "models/shapes.h"

#include <string.h>

static const model_shape shapes[] = {
#define SHAPE(name, arch, layers, hidden, heads, kv_heads, head_dim, ff, vocab, context, theta,    \
              tied)                                                                                \
    {name, arch, layers, hidden, heads, kv_heads, head_dim, ff, vocab, context, theta, tied},
#include "models/shapes.def"
#undef SHAPE
};

const model_shape *model_shapes(size_t *n)
{
    *n = sizeof shapes / sizeof shapes[0];
    return shapes;
}

const model_shape *model_shape_find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (strlen(shapes[i].name) == len && memcmp(shapes[i].name, name, len) == 0)
            return &shapes[i];
    return NULL;
}

model_config model_shape_config(const model_shape *s)
{
    return (model_config){.arch = s->arch,
                          .n_layers = s->n_layers,
                          .hidden = s->hidden,
                          .n_heads = s->n_heads,
                          .n_kv_heads = s->n_kv_heads,
                          .head_dim = s->head_dim,
                          .ff = s->ff,
                          .vocab = s->vocab,
                          .context = s->context,
                          .rms_eps = 1e-5f};
}
