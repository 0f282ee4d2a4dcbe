#include "models/tokenizer_nfc.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

bool nfc_is_trivial(const char *text, size_t len)
{
    /* U+0300 is the first character that normalisation can touch; its lead byte is 0xCC. */
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0xCC) return false;
    return true;
}

typedef struct {
    utf8proc_int32_t *chars;
    size_t len, cap;
} char_list;

/* A combining mark with its place in the run: sorting by both keeps equal classes in order. */
typedef struct {
    uint64_t key; /* class << 56 | place */
    utf8proc_int32_t c;
} mark;

static int mark_compare(const void *a, const void *b)
{
    uint64_t x = ((const mark *)a)->key, y = ((const mark *)b)->key;
    return x < y ? -1 : x > y;
}

static void decompose(const char *text, size_t len, char_list *list)
{
    for (size_t i = 0; i < len;) {
        uint32_t c;
        i += utf8_decode(text + i, len - i, &c, NULL);
        utf8proc_int32_t parts[32];
        int boundclass = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, parts, 32,
                                                     UTF8PROC_DECOMPOSE, &boundclass);
        PF_ASSERT(n > 0 && n <= 32);
        if (list->cap - list->len < (size_t)n) {
            list->cap = list->cap * 2 + 64;
            list->chars = xrealloc_array(list->chars, list->cap, sizeof *list->chars);
        }
        memcpy(list->chars + list->len, parts, (size_t)n * sizeof *parts);
        list->len += (size_t)n;
    }
}

static unsigned combining_class(utf8proc_int32_t c)
{
    return (unsigned)utf8proc_get_property(c)->combining_class;
}

/* Canonical ordering: each run of marks (class not 0) sorted by class, stably. */
static void reorder(char_list *list)
{
    mark *marks = NULL;
    size_t cap = 0;
    for (size_t i = 0; i < list->len; i++) {
        size_t n = 0;
        bool sorted = true;
        for (unsigned cls; i + n < list->len && (cls = combining_class(list->chars[i + n])); n++) {
            if (n == cap) {
                cap = cap * 2 + 16;
                marks = xrealloc_array(marks, cap, sizeof *marks);
            }
            marks[n] = (mark){(uint64_t)cls << 56 | n, list->chars[i + n]};
            sorted = sorted && (n == 0 || marks[n - 1].key >> 56 <= cls);
        }
        if (!sorted) {
            qsort(marks, n, sizeof *marks, mark_compare);
            for (size_t j = 0; j < n; j++)
                list->chars[i + j] = marks[j].c;
        }
        i += n; /* at a starter, which the loop's step passes */
    }
    free(marks);
}

void nfc_append(const char *text, size_t len, buf *out)
{
    char_list list = {0};
    decompose(text, len, &list);
    reorder(&list);
    utf8proc_ssize_t n = 0;
    if (list.len)
        n = utf8proc_normalize_utf32(list.chars, (utf8proc_ssize_t)list.len,
                                     UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    PF_ASSERT(n >= 0);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        char bytes[4];
        buf_append(out, bytes, utf8_encode((uint32_t)list.chars[i], bytes));
    }
    free(list.chars);
}
