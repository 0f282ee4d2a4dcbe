#include "models/tokenizer_bpe.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define NO_ID        (-1)
#define NO_SYMBOL    UINT32_MAX
#define MAX_MERGE    65535
#define MAX_PIECE    ((size_t)1 << 30) /* of bytes merged at once, so that places fit 32 bits */
#define ALPHABET_END 324               /* characters of the alphabet are below U+0144 */

/* One merge, found by its pair of ids. */
typedef struct {
    int32_t left, right; /* left NO_ID: an empty slot */
    uint32_t rank;
    int32_t merged;
} merge_slot;

struct bpe {
    const token_bytes *vocabulary;
    int32_t *pieces; /* open addressing by the bytes' keyed hash; NO_ID: empty */
    size_t piece_mask;
    merge_slot *merges; /* open addressing by pair */
    size_t merge_mask;
    int32_t byte_ids[256]; /* NO_ID: not in the vocabulary */
    bool ignore_merges;
    /* Random per vocabulary, so that no file can be made to collide. */
    unsigned char hash_key[crypto_shorthash_KEYBYTES];
    uint64_t pair_key;
};

struct bpe_symbol {
    int32_t id; /* NO_ID: merged into its left neighbour */
    uint32_t prev, next;
};

/* --- the byte-level alphabet ------------------------------------------------------------------ */

/* Printable Latin-1 characters stand for themselves; the other bytes, in order, for U+0100 and up.
 */
static bool stands_for_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

static int byte_of_character(uint32_t c)
{
    if (c < 256) return stands_for_itself(c) ? (int)c : -1;
    if (c >= ALPHABET_END) return -1;
    uint32_t place = c - 256;
    for (unsigned byte = 0; byte < 256; byte++)
        if (!stands_for_itself(byte) && place-- == 0) return (int)byte;
    return -1;
}

size_t byte_alphabet_decode(const char *text, size_t len, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t c;
        i += utf8_decode(text + i, len - i, &c, NULL);
        int byte = byte_of_character(c);
        if (byte < 0) return SIZE_MAX;
        out[n++] = (char)byte;
    }
    return n;
}

/* --- tables ----------------------------------------------------------------------------------- */

static const char *bytes_of(const token_bytes *v, size_t id, size_t *len)
{
    *len = v->offsets[id + 1] - v->offsets[id];
    return v->bytes + v->offsets[id];
}

static size_t piece_slot(const bpe *b, const char *bytes, size_t len)
{
    uint64_t hash;
    crypto_shorthash((unsigned char *)&hash, (const unsigned char *)bytes, len, b->hash_key);
    size_t slot = hash & b->piece_mask;
    for (; b->pieces[slot] != NO_ID; slot = (slot + 1) & b->piece_mask) {
        size_t n;
        const char *other = bytes_of(b->vocabulary, (size_t)b->pieces[slot], &n);
        if (n == len && memcmp(other, bytes, len) == 0) break;
    }
    return slot;
}

static int32_t find_piece(const bpe *b, const char *bytes, size_t len)
{
    return b->pieces[piece_slot(b, bytes, len)];
}

static size_t pair_slot(const bpe *b, int32_t left, int32_t right)
{
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) ^ b->pair_key;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u; /* mixing as in splitmix64 */
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    size_t slot = (size_t)(x ^ x >> 31) & b->merge_mask;
    while (b->merges[slot].left != NO_ID &&
           (b->merges[slot].left != left || b->merges[slot].right != right))
        slot = (slot + 1) & b->merge_mask;
    return slot;
}

static size_t table_size(size_t n)
{
    size_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return size;
}

static void add_pieces(bpe *b, const tokenizer_source *source)
{
    size_t doubles = 0;
    size_t size = table_size(source->n_tokens);
    b->piece_mask = size - 1;
    b->pieces = xmalloc(size * sizeof *b->pieces);
    for (size_t i = 0; i < size; i++)
        b->pieces[i] = NO_ID;
    for (int i = 0; i < 256; i++)
        b->byte_ids[i] = NO_ID;
    for (size_t id = 0; id < source->n_tokens; id++) {
        if (source->kinds[id] != TOKEN_NORMAL) continue;
        size_t len;
        const char *bytes = bytes_of(b->vocabulary, id, &len);
        size_t slot = piece_slot(b, bytes, len);
        if (b->pieces[slot] != NO_ID) {
            doubles++;
            continue;
        }
        b->pieces[slot] = (int32_t)id;
        if (len == 1) b->byte_ids[(unsigned char)bytes[0]] = (int32_t)id;
    }
    if (doubles)
        log_write(LOG_WARN, "vocabulary: %zu pieces are there twice; the first of each counts",
                  doubles);
}

static pf_status refuse_merge(const tokenizer_source *source, size_t index, const char *why,
                              pf_err *err)
{
    return err_set(err, PF_REFUSED, "%s: merge %zu (of %zu) %s", source->name, index,
                   source->n_merges, why);
}

/* line is "left right" in the byte-level alphabet; bytes is scratch of MAX_MERGE. */
static pf_status add_merge(bpe *b, const tokenizer_source *source, size_t index, char *bytes,
                           pf_err *err)
{
    const char *line = source->merges[index];
    size_t len = source->merge_lengths[index];
    if (len > MAX_MERGE) return refuse_merge(source, index, "is longer than 65535 bytes", err);
    const char *space = len ? memchr(line, ' ', len) : NULL;
    if (!space) return refuse_merge(source, index, "has no space between its parts", err);
    size_t left_chars = (size_t)(space - line), right_chars = len - left_chars - 1;
    if (left_chars == 0 || right_chars == 0 || memchr(space + 1, ' ', right_chars))
        return refuse_merge(source, index, "is not two parts with one space between", err);

    size_t n_left = byte_alphabet_decode(line, left_chars, bytes);
    size_t n_right = n_left == SIZE_MAX
                         ? SIZE_MAX
                         : byte_alphabet_decode(space + 1, right_chars, bytes + n_left);
    if (n_right == SIZE_MAX)
        return refuse_merge(source, index, "has a character outside the byte-level alphabet", err);
    int32_t left = find_piece(b, bytes, n_left);
    int32_t right = find_piece(b, bytes + n_left, n_right);
    int32_t merged = find_piece(b, bytes, n_left + n_right);
    if (left == NO_ID || right == NO_ID)
        return refuse_merge(source, index, "names a piece that is not in the vocabulary", err);
    if (merged == NO_ID)
        return refuse_merge(source, index, "makes a piece that is not in the vocabulary", err);
    merge_slot *slot = &b->merges[pair_slot(b, left, right)];
    if (slot->left == NO_ID) *slot = (merge_slot){left, right, (uint32_t)index, merged};
    return PF_OK;
}

pf_status bpe_create(const tokenizer_source *source, const token_bytes *vocabulary, bpe **out,
                     pf_err *err)
{
    pf_status status = PF_OK;
    char *bytes = xmalloc(MAX_MERGE);
    bpe *b = xcalloc(1, sizeof *b);
    *out = NULL;
    if (sodium_init() < 0) die("the random source does not work");
    randombytes_buf(b->hash_key, sizeof b->hash_key);
    randombytes_buf(&b->pair_key, sizeof b->pair_key);
    b->vocabulary = vocabulary;
    b->ignore_merges = source->ignore_merges;
    add_pieces(b, source);

    size_t size = table_size(source->n_merges);
    b->merge_mask = size - 1;
    b->merges = xmalloc(size * sizeof *b->merges);
    for (size_t i = 0; i < size; i++)
        b->merges[i].left = NO_ID;
    for (size_t i = 0; i < source->n_merges && status == PF_OK; i++)
        status = add_merge(b, source, i, bytes, err);
    if (status == PF_OK) {
        *out = b;
        b = NULL;
    }
    bpe_free(b);
    free(bytes);
    return status;
}

void bpe_free(bpe *b)
{
    if (!b) return;
    free(b->pieces);
    free(b->merges);
    free(b);
}

/* --- merging ---------------------------------------------------------------------------------- */

/* Symbols are pieces of private text. */
static void free_symbols(bpe_scratch *s)
{
    if (s->symbols) explicit_bzero(s->symbols, s->symbols_cap * sizeof *s->symbols);
    free(s->symbols);
}

void bpe_scratch_free(bpe_scratch *s)
{
    free_symbols(s);
    free(s->heap);
    *s = (bpe_scratch){0};
}

/* A binary heap of rank << 32 | place: the lowest rank first, the leftmost of equal ranks. */
static void heap_push(bpe_scratch *s, uint64_t key)
{
    if (s->heap_len == s->heap_cap) {
        s->heap_cap = s->heap_cap * 2 + 64;
        s->heap = xrealloc_array(s->heap, s->heap_cap, sizeof *s->heap);
    }
    size_t i = s->heap_len++;
    for (; i > 0 && s->heap[(i - 1) / 2] > key; i = (i - 1) / 2) {
        s->heap[i] = s->heap[(i - 1) / 2];
        s->steps++;
    }
    s->heap[i] = key;
    s->steps++;
}

static uint64_t heap_pop(bpe_scratch *s)
{
    uint64_t top = s->heap[0], last = s->heap[--s->heap_len];
    size_t i = 0, n = s->heap_len;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= last) break;
        s->heap[i] = s->heap[child];
        s->steps++;
    }
    s->heap[i] = last;
    s->steps++;
    return top;
}

static const merge_slot *merge_at(const bpe *b, const bpe_scratch *s, uint32_t place)
{
    const struct bpe_symbol *left = &s->symbols[place];
    if (left->id == NO_ID || left->next == NO_SYMBOL) return NULL;
    const merge_slot *m = &b->merges[pair_slot(b, left->id, s->symbols[left->next].id)];
    return m->left == NO_ID ? NULL : m;
}

static void push_merge_at(const bpe *b, bpe_scratch *s, uint32_t place)
{
    const merge_slot *m = merge_at(b, s, place);
    if (m) heap_push(s, (uint64_t)m->rank << 32 | place);
}

/* One symbol for each byte that the vocabulary has; returns their number. */
static uint32_t fill_symbols(const bpe *b, bpe_scratch *s, const char *piece, size_t len)
{
    if (s->symbols_cap < len) {
        free_symbols(s);
        s->symbols_cap = len + len / 2 + 64;
        s->symbols = xrealloc_array(NULL, s->symbols_cap, sizeof *s->symbols);
    }
    uint32_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int32_t id = b->byte_ids[(unsigned char)piece[i]];
        if (id == NO_ID) continue;
        s->symbols[n] = (struct bpe_symbol){id, n - 1, n + 1};
        n++;
    }
    if (n) {
        s->symbols[0].prev = NO_SYMBOL;
        s->symbols[n - 1].next = NO_SYMBOL;
    }
    return n;
}

static void merge_all(const bpe *b, bpe_scratch *s, uint32_t n)
{
    s->heap_len = 0;
    for (uint32_t i = 0; i + 1 < n; i++)
        push_merge_at(b, s, i);
    while (s->heap_len) {
        uint64_t key = heap_pop(s);
        uint32_t place = (uint32_t)key;
        const merge_slot *m = merge_at(b, s, place);
        if (!m || m->rank != key >> 32) continue; /* the pair is gone */
        struct bpe_symbol *left = &s->symbols[place], *right = &s->symbols[left->next];
        left->id = m->merged;
        left->next = right->next;
        right->id = NO_ID;
        if (left->next != NO_SYMBOL) s->symbols[left->next].prev = place;
        if (left->prev != NO_SYMBOL) push_merge_at(b, s, left->prev);
        push_merge_at(b, s, place);
    }
}

void bpe_encode(const bpe *b, bpe_scratch *s, const char *piece, size_t len, id_list *out)
{
    if (b->ignore_merges) {
        int32_t id = find_piece(b, piece, len);
        if (id != NO_ID) {
            id_list_append(out, id);
            return;
        }
    }
    while (len > 0) {
        size_t part = len < MAX_PIECE ? len : MAX_PIECE;
        uint32_t n = fill_symbols(b, s, piece, part);
        merge_all(b, s, n);
        for (uint32_t i = n ? 0 : NO_SYMBOL; i != NO_SYMBOL; i = s->symbols[i].next)
            id_list_append(out, s->symbols[i].id);
        piece += part;
        len -= part;
    }
}
