#include "models/tensor.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tensor_table_add(tensor_table *t, const tensor *item)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 64;
        t->items = xrealloc_array(t->items, t->cap, sizeof *t->items);
    }
    t->items[t->n++] = *item;
}

static int compare_bytes(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare_tensors(const void *a, const void *b)
{
    const tensor *x = a, *y = b;
    return compare_bytes(x->name, x->name_len, y->name, y->name_len);
}

pf_status tensor_table_sort(tensor_table *t, const char *file, pf_err *err)
{
    if (t->n == 0) return PF_OK;
    qsort(t->items, t->n, sizeof *t->items, compare_tensors);
    for (size_t i = 1; i < t->n; i++)
        if (compare_tensors(&t->items[i - 1], &t->items[i]) == 0)
            return err_set(err, PF_REFUSED, "%s: duplicate tensor \"%s\"", file,
                           quote_bytes(t->items[i].name, t->items[i].name_len).text);
    return PF_OK;
}

const tensor *tensor_table_find(const tensor_table *t, const char *name)
{
    if (t->n == 0) return NULL;
    const tensor key = {.name = name, .name_len = strlen(name)};
    return bsearch(&key, t->items, t->n, sizeof *t->items, compare_tensors);
}

void tensor_table_free(tensor_table *t)
{
    free(t->items);
    *t = (tensor_table){0};
}

bool tensor_all_finite(kn_type type, const void *data, size_t n)
{
    /* Not finite means: every bit of the exponent is set. */
    const uint32_t *wide = data;
    const uint16_t *half = data;
    const uint32_t mask = type == KN_F32 ? 0x7f800000u : type == KN_F16 ? 0x7c00u : 0x7f80u;
    bool bad = false;
    for (size_t i = 0; i < n; i++)
        bad |= ((type == KN_F32 ? wide[i] : half[i]) & mask) == mask;
    return !bad;
}

/* Whether a code point may appear in a message: no controls, no line or direction changes that
 * could make a message read as something else. */
static bool is_plain(uint32_t c)
{
    return c != UINT32_MAX && c >= 0x20 && !(c >= 0x7f && c < 0xa0) && c != 0x2028 && c != 0x2029 &&
           !(c >= 0x202a && c <= 0x202e) && !(c >= 0x2066 && c <= 0x2069);
}

quoted quote_bytes(const char *text, size_t len)
{
    enum { LIMIT = 96 };
    quoted out;
    size_t used = 0, i = 0;
    while (i < len) {
        uint32_t c;
        size_t n = utf8_decode(text + i, len - i, &c, NULL);
        bool plain = is_plain(c);
        if (used + (plain ? n : 1) > LIMIT) break;
        if (plain)
            memcpy(out.text + used, text + i, n);
        else
            out.text[used] = '?';
        used += plain ? n : 1;
        i += n;
    }
    snprintf(out.text + used, sizeof out.text - used, "%s", i < len ? "..." : "");
    return out;
}

shape_text shape_words(const int64_t *dims, int n_dims)
{
    shape_text out;
    size_t used = (size_t)snprintf(out.text, sizeof out.text, "[");
    for (int i = 0; i < n_dims && used < sizeof out.text - 24; i++)
        used += (size_t)snprintf(out.text + used, sizeof out.text - used, "%s%lld", i ? ", " : "",
                                 (long long)dims[i]);
    snprintf(out.text + used, sizeof out.text - used, "]");
    return out;
}
