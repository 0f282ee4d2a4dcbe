#include "models/tokenizer.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "models/pretokenizer.h"
#include "models/tokenizer_bpe.h"
#include "models/tokenizer_nfc.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PIECE   65535
#define MAX_SPECIAL 1024 /* bytes of a control or added token's text */

/* A control or added token, in byte order of the texts. */
typedef struct {
    const char *text;
    size_t len;
    int32_t id;
} special;

struct tokenizer {
    token_bytes vocabulary;
    unsigned char *kinds; /* [n] token_kind */
    bpe *merges;
    pretokenizer *splitter;
    special *specials;
    size_t n_specials;
    bool starts_special[256]; /* first bytes of specials */
    bool nfc, add_bos;
    int32_t bos_id, eos_id;
};

/* --- id lists --------------------------------------------------------------------------------- */

static void id_list_reserve(id_list *list, size_t extra)
{
    if (list->cap - list->len >= extra) return;
    id_list grown = {.len = list->len, .cap = list->cap * 2 + extra + 16};
    grown.ids = xrealloc_array(NULL, grown.cap, sizeof *grown.ids);
    if (list->len) memcpy(grown.ids, list->ids, list->len * sizeof *grown.ids);
    id_list_free(list);
    *list = grown;
}

void id_list_append(id_list *list, int32_t id)
{
    id_list_reserve(list, 1);
    list->ids[list->len++] = id;
}

void id_list_append_all(id_list *list, const int32_t *ids, size_t n)
{
    if (n == 0) return;
    id_list_reserve(list, n);
    memcpy(list->ids + list->len, ids, n * sizeof *ids);
    list->len += n;
}

void id_list_free(id_list *list)
{
    if (list->ids) explicit_bzero(list->ids, list->cap * sizeof *list->ids);
    free(list->ids);
    *list = (id_list){0};
}

/* --- creation --------------------------------------------------------------------------------- */

static pf_status refuse_token(const tokenizer_source *source, size_t id, const char *why,
                              pf_err *err)
{
    return err_set(err, PF_REFUSED, "%s: token %zu (of %zu) %s", source->name, id, source->n_tokens,
                   why);
}

/* Writes the token's bytes to out (room for its piece's length); *n is their number. */
static pf_status read_token(const tokenizer_source *source, size_t id, char *out, size_t *n,
                            pf_err *err)
{
    const char *piece = source->pieces[id];
    size_t len = source->piece_lengths[id];
    token_kind kind = source->kinds[id];
    *n = 0;
    if (kind == TOKEN_UNUSED) return PF_OK;
    if (len == 0) return refuse_token(source, id, "is empty", err);
    if (len > MAX_PIECE) return refuse_token(source, id, "is longer than 65535 bytes", err);
    if (kind == TOKEN_NORMAL) {
        *n = byte_alphabet_decode(piece, len, out);
        if (*n != SIZE_MAX) return PF_OK;
        *n = 0;
        return refuse_token(source, id, "has a character outside the byte-level alphabet", err);
    }
    if (kind != TOKEN_CONTROL && kind != TOKEN_ADDED)
        return refuse_token(source, id, "is of an unknown kind", err);
    if (len > MAX_SPECIAL)
        return refuse_token(source, id, "is a marker of more than 1024 bytes", err);
    if (!utf8_valid(piece, len)) return refuse_token(source, id, "is not valid UTF-8", err);
    memcpy(out, piece, len);
    *n = len;
    return PF_OK;
}

static pf_status read_vocabulary(tokenizer *t, const tokenizer_source *source, pf_err *err)
{
    if (source->n_tokens == 0 || source->n_tokens > INT32_MAX)
        return err_set(err, PF_REFUSED, "%s: %zu tokens; a vocabulary has 1 to 2147483647",
                       source->name, source->n_tokens);
    size_t total = 0;
    for (size_t i = 0; i < source->n_tokens; i++)
        total += source->piece_lengths[i];
    token_bytes *v = &t->vocabulary;
    v->n = source->n_tokens;
    v->bytes = xmalloc(total);
    v->offsets = xcalloc(v->n + 1, sizeof *v->offsets);
    t->kinds = xmalloc(v->n);
    for (size_t i = 0; i < v->n; i++) {
        size_t n;
        pf_status status = read_token(source, i, v->bytes + v->offsets[i], &n, err);
        if (status != PF_OK) return status;
        v->offsets[i + 1] = v->offsets[i] + n;
        t->kinds[i] = (unsigned char)source->kinds[i];
    }
    return PF_OK;
}

static int compare_texts(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : a_len < b_len ? -1 : a_len > b_len;
}

static int special_compare(const void *a, const void *b)
{
    const special *x = a, *y = b;
    int order = compare_texts(x->text, x->len, y->text, y->len);
    return order ? order : x->id < y->id ? -1 : 1;
}

static void collect_specials(tokenizer *t)
{
    const token_bytes *v = &t->vocabulary;
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < v->n; i++)
        n += t->kinds[i] == TOKEN_CONTROL || t->kinds[i] == TOKEN_ADDED;
    t->specials = xcalloc(n + 1, sizeof *t->specials);
    n = 0;
    for (size_t i = 0; i < v->n; i++) {
        if (t->kinds[i] != TOKEN_CONTROL && t->kinds[i] != TOKEN_ADDED) continue;
        const char *text = v->bytes + v->offsets[i];
        t->specials[n++] = (special){text, v->offsets[i + 1] - v->offsets[i], (int32_t)i};
        t->starts_special[(unsigned char)text[0]] = true;
    }
    qsort(t->specials, n, sizeof *t->specials, special_compare);
    for (size_t i = 0; i < n; i++) { /* of equal texts the lowest id stays */
        const special *s = &t->specials[i];
        if (kept && compare_texts(s->text, s->len, t->specials[kept - 1].text,
                                  t->specials[kept - 1].len) == 0)
            continue;
        t->specials[kept++] = *s;
    }
    if (kept < n) log_write(LOG_WARN, "vocabulary: %zu markers are there twice", n - kept);
    t->n_specials = kept;
}

static pf_status check_id(const tokenizer_source *source, const char *what, int32_t id, pf_err *err)
{
    if (id >= -1 && (id == -1 || (size_t)id < source->n_tokens)) return PF_OK;
    return err_set(err, PF_REFUSED, "%s: the %s token's id %d is outside the vocabulary of %zu",
                   source->name, what, id, source->n_tokens);
}

pf_status tokenizer_create(const tokenizer_source *source, tokenizer **out, pf_err *err)
{
    pf_status status;
    tokenizer *t = xcalloc(1, sizeof *t);
    *out = NULL;
    status = pretokenizer_create(source->pretokenizer, &t->splitter, err);
    if (status != PF_OK) {
        err_context(err, "%s", source->name);
        goto out;
    }
    if ((status = check_id(source, "start", source->bos_id, err)) != PF_OK) goto out;
    if ((status = check_id(source, "end", source->eos_id, err)) != PF_OK) goto out;
    if ((status = read_vocabulary(t, source, err)) != PF_OK) goto out;
    if ((status = bpe_create(source, &t->vocabulary, &t->merges, err)) != PF_OK) goto out;
    collect_specials(t);
    t->nfc = source->nfc;
    t->bos_id = source->bos_id;
    t->eos_id = source->eos_id;
    t->add_bos = source->add_bos && t->bos_id >= 0;
    *out = t;
    t = NULL;
out:
    tokenizer_free(t);
    return status;
}

void tokenizer_free(tokenizer *t)
{
    if (!t) return;
    bpe_free(t->merges);
    pretokenizer_free(t->splitter);
    free(t->vocabulary.bytes);
    free(t->vocabulary.offsets);
    free(t->kinds);
    free(t->specials);
    free(t);
}

/* --- text to ids ------------------------------------------------------------------------------ */

/* First of specials[low..high) whose byte at depth is not below byte; all share the bytes before
 * and are longer than depth. */
static size_t first_not_below(const special *specials, size_t low, size_t high, size_t depth,
                              unsigned byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((unsigned char)specials[middle].text[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest special that text begins with, or NULL. The sorted range of those that agree with
 * text is narrowed byte by byte. */
static const special *longest_special(const tokenizer *t, const char *text, size_t len)
{
    const special *best = NULL;
    size_t low = 0, high = t->n_specials;
    if (!t->starts_special[(unsigned char)text[0]]) return NULL;
    for (size_t depth = 0; low < high; depth++) {
        if (t->specials[low].len == depth) best = &t->specials[low++];
        if (depth == len || low == high) break;
        unsigned byte = (unsigned char)text[depth];
        low = first_not_below(t->specials, low, high, depth, byte);
        high = first_not_below(t->specials, low, high, depth, byte + 1);
    }
    return best;
}

typedef struct {
    const tokenizer *t;
    bpe_scratch scratch;
    buf composed;
    id_list *out;
} encoding;

static void encode_piece(void *ctx, const char *piece, size_t len)
{
    encoding *e = ctx;
    bpe_encode(e->t->merges, &e->scratch, piece, len, e->out);
}

/* Text between special tokens. */
static void encode_stretch(encoding *e, const char *text, size_t len)
{
    if (len == 0) return;
    if (e->t->nfc && !nfc_is_trivial(text, len)) {
        buf_clear(&e->composed);
        nfc_append(text, len, &e->composed);
        text = e->composed.data;
        len = e->composed.len;
    }
    pretokenizer_split(e->t->splitter, text, len, encode_piece, e);
}

void tokenizer_encode(const tokenizer *t, const char *text, size_t len, bool parse_special,
                      bool add_bos, id_list *out)
{
    encoding e = {.t = t, .out = out};
    buf repaired = {0};
    if (add_bos && t->add_bos) id_list_append(out, t->bos_id);
    if (len && !utf8_valid(text, len)) {
        utf8_repair(text, len, &repaired);
        text = repaired.data;
        len = repaired.len;
    }
    size_t start = 0; /* of the stretch being gathered */
    for (size_t i = 0; i < len;) {
        const special *s = longest_special(t, text + i, len - i);
        if (!s) {
            i++;
            continue;
        }
        /* A marker that is ordinary text here still hides the added tokens inside it. */
        if (parse_special || t->kinds[s->id] == TOKEN_ADDED) {
            encode_stretch(&e, text + start, i - start);
            id_list_append(out, s->id);
            start = i + s->len;
        }
        i += s->len;
    }
    encode_stretch(&e, text + start, len - start);
    bpe_scratch_free(&e.scratch);
    buf_free(&e.composed);
    buf_free(&repaired);
}

/* --- ids to text ------------------------------------------------------------------------------ */

const char *tokenizer_bytes(const tokenizer *t, int32_t id, size_t *len)
{
    *len = 0;
    if (id < 0 || (size_t)id >= t->vocabulary.n) return NULL;
    const size_t *bounds = t->vocabulary.offsets + id;
    *len = bounds[1] - bounds[0];
    return t->vocabulary.bytes + bounds[0];
}

token_kind tokenizer_kind(const tokenizer *t, int32_t id)
{
    bool known = id >= 0 && (size_t)id < t->vocabulary.n;
    return known ? (token_kind)t->kinds[id] : TOKEN_UNUSED;
}

int32_t tokenizer_find_special(const tokenizer *t, const char *text)
{
    size_t len = strlen(text);
    const special *s = len ? longest_special(t, text, len) : NULL;
    return s && s->len == len ? s->id : -1;
}

void tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_control, buf *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, ids[i], &len);
        if (!bytes || (skip_control && tokenizer_kind(t, ids[i]) == TOKEN_CONTROL)) continue;
        buf_append(out, bytes, len);
    }
}

size_t tokenizer_size(const tokenizer *t)
{
    return t->vocabulary.n;
}

int32_t tokenizer_bos(const tokenizer *t)
{
    return t->bos_id;
}

int32_t tokenizer_eos(const tokenizer *t)
{
    return t->eos_id;
}

bool tokenizer_adds_bos(const tokenizer *t)
{
    return t->add_bos;
}

/* --- streaming -------------------------------------------------------------------------------- */

void stream_decoder_push(stream_decoder *d, const tokenizer *t, int32_t id, buf *out)
{
    size_t len;
    const char *bytes = tokenizer_bytes(t, id, &len);
    if (!bytes || len == 0 || tokenizer_kind(t, id) == TOKEN_CONTROL) return;
    buf all = {0};
    buf_append(&all, d->held, d->n_held);
    buf_append(&all, bytes, len);
    size_t whole = utf8_complete_prefix(all.data, all.len);
    utf8_repair(all.data, whole, out);
    d->n_held = all.len - whole;
    PF_ASSERT(d->n_held < sizeof d->held);
    memcpy(d->held, all.data + whole, d->n_held);
    buf_free(&all);
}

void stream_decoder_finish(stream_decoder *d, buf *out)
{
    utf8_repair(d->held, d->n_held, out);
    d->n_held = 0;
}
