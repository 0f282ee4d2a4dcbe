#include "train/dataset_bytes.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x32445450u /* "PTD2" */

typedef struct {
    uint32_t magic;
    uint32_t facts;
    uint64_t n, n_sources, n_cut;
} set_header;

typedef struct {
    int32_t length, n_targets, repeat, held_out;
    uint32_t text[3]; /* bytes of label, question, answer */
    uint32_t width;   /* of the teacher's states; 0: none */
} example_header;

static const char *const *texts_of(const train_example *e, const char *out[3])
{
    out[0] = e->label;
    out[1] = e->question;
    out[2] = e->answer;
    return out;
}

static size_t teacher_bytes(const train_example *e)
{
    return (size_t)e->n_targets * e->width * sizeof *e->teacher;
}

void train_dataset_write(const train_dataset *d, buf *out)
{
    const set_header set = {MAGIC, d->facts, d->n, d->n_sources, d->n_cut};
    buf_append(out, &set, sizeof set);
    for (size_t i = 0; i < d->n; i++) {
        const train_example *e = &d->items[i];
        const char *texts[3];
        example_header h = {e->length,   e->n_targets, e->repeat,
                            e->held_out, {0},          e->teacher ? (uint32_t)e->width : 0};
        texts_of(e, texts);
        for (int t = 0; t < 3; t++)
            h.text[t] = texts[t] ? (uint32_t)strlen(texts[t]) : 0;
        buf_append(out, &h, sizeof h);
        for (int t = 0; t < 3; t++)
            buf_append(out, texts[t] ? texts[t] : "", h.text[t]);
        buf_append(out, e->ids, (size_t)e->length * sizeof *e->ids);
        buf_append(out, e->adapted, (size_t)e->length);
        buf_append(out, e->target, (size_t)e->length);
        if (e->teacher) buf_append(out, e->teacher, teacher_bytes(e));
    }
}

/* --- reading --------------------------------------------------------------------------------- */

typedef struct {
    const char *at;
    size_t left;
} reader;

static bool take(reader *r, void *out, size_t n)
{
    if (n > r->left) return false;
    if (n) memcpy(out, r->at, n);
    r->at += n;
    r->left -= n;
    return true;
}

static char *take_text(reader *r, size_t n)
{
    if (n > r->left) return NULL;
    char *text = xmemdup0(r->at, n);
    r->at += n;
    r->left -= n;
    return text;
}

/* The teacher's states: finite numbers, as many as the targets need. */
static bool take_teacher(reader *r, train_example *e)
{
    if (e->width == 0) return true;
    if (e->width > r->left || (size_t)e->n_targets > r->left / sizeof *e->teacher / e->width)
        return false;
    e->teacher = xcalloc((size_t)e->n_targets * e->width, sizeof *e->teacher);
    if (!take(r, e->teacher, teacher_bytes(e))) return false;
    for (size_t i = 0; i < (size_t)e->n_targets * e->width; i++)
        if (!isfinite(e->teacher[i])) return false;
    return true;
}

static bool sound(const train_example *e, int32_t vocab)
{
    int32_t targets = 0;
    for (int32_t i = 0; i < e->length; i++) {
        if (e->ids[i] < 0 || e->ids[i] >= vocab) return false;
        targets += e->target[i] != 0;
    }
    return targets == e->n_targets && !e->target[0];
}

/* Reads into *e, which is part of the data set already: what was allocated is freed with it. */
static bool read_example(reader *r, int32_t vocab, train_example *e)
{
    example_header h;
    if (!take(r, &h, sizeof h) || h.length < 1 || h.n_targets < 1 || h.repeat < 1) return false;
    char **texts[] = {&e->label, &e->question, &e->answer};
    for (int t = 0; t < 3; t++)
        if (!(*texts[t] = take_text(r, h.text[t]))) return false;
    size_t n = (size_t)h.length;
    if (n > r->left / (sizeof *e->ids + 2)) return false;
    e->length = h.length;
    e->n_targets = h.n_targets;
    e->repeat = h.repeat;
    e->held_out = h.held_out != 0;
    e->ids = xcalloc(n, sizeof *e->ids);
    e->adapted = xcalloc(n, 1);
    e->target = xcalloc(n, 1);
    e->width = h.width;
    return take(r, e->ids, n * sizeof *e->ids) && take(r, e->adapted, n) && take(r, e->target, n) &&
           sound(e, vocab) && take_teacher(r, e);
}

pf_status train_dataset_read(const void *bytes, size_t len, int32_t vocab, train_dataset *d,
                             pf_err *err)
{
    reader r = {bytes, len};
    set_header set;
    bool good = take(&r, &set, sizeof set) && set.magic == MAGIC &&
                set.n <= r.left / sizeof(example_header);
    if (good) {
        d->items = xcalloc((size_t)set.n, sizeof *d->items);
        d->n_sources = (size_t)set.n_sources;
        d->n_cut = (size_t)set.n_cut;
        d->facts = set.facts != 0;
        while (good && d->n < set.n)
            good = read_example(&r, vocab, &d->items[d->n++]);
    }
    if (good && r.left == 0) return PF_OK;
    train_dataset_free(d);
    return err_set(err, PF_REFUSED, "the saved examples of the training are damaged");
}
