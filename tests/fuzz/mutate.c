#include "fuzz/mutate.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- random numbers (splitmix64) ------------------------------------------------------------ */

uint64_t mutate_bits(mutate_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t mutate_below(mutate_random *r, size_t n)
{
    return n ? (size_t)(mutate_bits(r) % n) : 0;
}

/* --- files ---------------------------------------------------------------------------------- */

void mutate_add_part(mutate_file *f, file_part part)
{
    f->parts = xrealloc_array(f->parts, f->n_parts + 1, sizeof *f->parts);
    f->parts[f->n_parts++] = part;
}

void mutate_copy(const mutate_file *from, mutate_file *to)
{
    *to = (mutate_file){.n_parts = from->n_parts};
    buf_append(&to->bytes, buf_str(&from->bytes), from->bytes.len);
    to->parts = xcalloc(from->n_parts + 1, sizeof *to->parts);
    if (from->n_parts) memcpy(to->parts, from->parts, from->n_parts * sizeof *to->parts);
}

void mutate_free(mutate_file *f)
{
    buf_free(&f->bytes);
    free(f->parts);
    *f = (mutate_file){0};
}

static void drop_part(mutate_file *f, size_t i)
{
    f->parts[i] = f->parts[--f->n_parts];
}

/* Replaces bytes [at, at + gone); parts keep their places, those that are cut apart are lost. */
static void splice(mutate_file *f, size_t at, size_t gone, const void *data, size_t len)
{
    buf out = {0};
    buf_append(&out, buf_str(&f->bytes), at);
    buf_append(&out, data, len);
    buf_append(&out, buf_str(&f->bytes) + at + gone, f->bytes.len - at - gone);
    buf_free(&f->bytes);
    f->bytes = out;
    for (size_t i = f->n_parts; i-- > 0;) {
        file_part *p = &f->parts[i];
        size_t end = p->at + p->len;
        if (at >= end && at > p->at) continue;
        if (at + gone <= p->at)
            p->at += len - gone;
        else if (at >= p->at && at + gone <= end)
            p->len += len - gone;
        else
            drop_part(f, i);
    }
}

/* A part of this kind, or NULL. */
static const file_part *choose(const mutate_file *f, mutate_random *r, part_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_parts; i++)
        n += f->parts[i].kind == kind;
    size_t wanted = mutate_below(r, n);
    for (size_t i = 0; i < f->n_parts; i++)
        if (f->parts[i].kind == kind && wanted-- == 0) return &f->parts[i];
    return NULL;
}

/* --- integers ------------------------------------------------------------------------------- */

static uint64_t get_number(const mutate_file *f, size_t at, size_t len, bool big)
{
    const unsigned char *bytes = (const unsigned char *)f->bytes.data + at;
    uint64_t value = 0;
    for (size_t i = 0; i < len; i++)
        value |= (uint64_t)bytes[i] << (8 * (big ? len - 1 - i : i));
    return value;
}

static void put_number(mutate_file *f, size_t at, size_t len, bool big, uint64_t value)
{
    unsigned char *bytes = (unsigned char *)f->bytes.data + at;
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(value >> (8 * (big ? len - 1 - i : i)));
}

static uint64_t strange_number(mutate_random *r, uint64_t now, size_t file_size)
{
    const uint64_t values[] = {0,
                               1,
                               2,
                               7,
                               UINT64_MAX,
                               UINT64_MAX - 31,
                               INT64_MAX,
                               (uint64_t)INT64_MAX + 1,
                               UINT32_MAX,
                               INT32_MAX,
                               (uint64_t)INT32_MAX + 1,
                               1ull << 32,
                               1ull << 40,
                               1ull << 61,
                               file_size,
                               file_size - 1,
                               file_size + 1,
                               now + 1,
                               now - 1,
                               now * 2,
                               now / 2,
                               now ^ (1ull << mutate_below(r, 64)),
                               now ^ (1ull << mutate_below(r, 8)),
                               0u - now,
                               mutate_below(r, 256),
                               mutate_bits(r)};
    return values[mutate_below(r, sizeof values / sizeof *values)];
}

static void damage_number(mutate_file *f, mutate_random *r, part_kind kind)
{
    const file_part *p = choose(f, r, kind);
    if (!p) return;
    bool big = kind == PART_BIG;
    uint64_t now = get_number(f, p->at, p->len, big);
    put_number(f, p->at, p->len, big, strange_number(r, now, f->bytes.len));
}

/* --- values --------------------------------------------------------------------------------- */

static void repeat(buf *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_puts(out, text);
}

/* A size that is mostly small and now and then large. */
static size_t some_size(mutate_random *r)
{
    static const size_t most[] = {4, 64, 300, 5000, 100000};
    return 1 + mutate_below(r, most[mutate_below(r, sizeof most / sizeof *most)]);
}

static void nested(mutate_random *r, buf *out)
{
    static const char *const pairs[][3] = {
        {"[", "1", "]"}, {"{\"a\":", "1", "}"}, {"(", "a", ")*"}, {"\"(", "a", ")*\""}};
    const char *const *pair = pairs[mutate_below(r, sizeof pairs / sizeof *pairs)];
    size_t depth = some_size(r);
    repeat(out, pair[0], depth);
    buf_puts(out, pair[1]);
    if (mutate_below(r, 4)) repeat(out, pair[2], depth);
}

static void long_text(mutate_random *r, buf *out)
{
    static const char *const pieces[] = {
        "a", "a ", "\\n", "\\u0000", "\xc3\xa9", "\xf0\x9f\x98\x80", "cc\xcc\xa7\xcc\x81",
        "-", "A",  "9",   "\xff"};
    buf_putc(out, '"');
    repeat(out, pieces[mutate_below(r, sizeof pieces / sizeof *pieces)], some_size(r));
    buf_putc(out, '"');
}

static void number_text(mutate_random *r, buf *out)
{
    if (mutate_below(r, 2))
        buf_printf(out, "%lld", (long long)strange_number(r, mutate_bits(r), 4096));
    else
        repeat(out, mutate_below(r, 2) ? "9" : "0.0", some_size(r));
}

/* Texts that are wrong for most values; those with a length of their own hold zero bytes. */
static const struct {
    const char *text;
    size_t len;
} strange_values[] = {
#define TEXT(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
    TEXT(""),
    TEXT("null"),
    TEXT("true"),
    TEXT("0"),
    TEXT("-1"),
    TEXT("-0"),
    TEXT("1e999"),
    TEXT("1e-320"),
    TEXT("NaN"),
    TEXT("0.5"),
    TEXT("9223372036854775807"),
    TEXT("9223372036854775808"),
    TEXT("-9223372036854775808"),
    TEXT("18446744073709551616"),
    TEXT("2147483648"),
    TEXT("\"\""),
    TEXT("\" \""),
    TEXT("\"\\u0000\""),
    TEXT("\"a\\u0000b\""),
    TEXT("\"\\ud800\""),
    TEXT("\"\xff\xfe\""),
    TEXT("\"\xed\xa0\x80\""),
    TEXT("\"\xc0\xaf\""),
    TEXT("\"\xf4\x90\x80\x80\""),
    TEXT("\"\\u001b[2J\\u0007\""),
    TEXT("\"\\u202e\\u200b\""),
    TEXT("\"../../../../etc/passwd\""),
    TEXT("\"/dev/zero\""),
    TEXT("\"%s%n%99999d\""),
    TEXT("\"(a|a)*\\\\1$\""),
    TEXT("\"((a{1,255}){1,255}){1,255}\""),
    TEXT("\"[[:x:]\""),
    TEXT("\"\0\""),
    TEXT("\0"),
    TEXT("\""),
    TEXT("[]"),
    TEXT("{}"),
    TEXT("[[]]"),
    TEXT("[null]"),
    TEXT("{\"\":{\"\":null}}"),
#undef TEXT
};

static void strange_value(const mutate_file *f, mutate_random *r, buf *out)
{
    const file_part *other = choose(f, r, PART_VALUE);
    size_t i;
    switch (mutate_below(r, 8)) {
    case 0:
        nested(r, out);
        return;
    case 1:
        long_text(r, out);
        return;
    case 2:
        number_text(r, out);
        return;
    case 3:
        buf_append(out, f->bytes.data + other->at, other->len);
        return;
    default:
        i = mutate_below(r, sizeof strange_values / sizeof *strange_values);
        buf_append(out, strange_values[i].text, strange_values[i].len);
    }
}

static void damage_value(mutate_file *f, mutate_random *r)
{
    const file_part *p = choose(f, r, PART_VALUE);
    buf value = {0};
    if (!p) return;
    strange_value(f, r, &value);
    splice(f, p->at, p->len, buf_str(&value), value.len);
    buf_free(&value);
}

/* --- entries -------------------------------------------------------------------------------- */

static void count_entries(mutate_file *f, size_t count_at, uint64_t difference)
{
    if (count_at && count_at + 8 <= f->bytes.len)
        put_number(f, count_at, 8, false, get_number(f, count_at, 8, false) + difference);
}

static void leave_out(mutate_file *f, file_part p)
{
    const char *bytes = f->bytes.data;
    size_t from = p.at, to = p.at + p.len, next = to, before = from;
    while (next < f->bytes.len && strchr(" \t\r\n", bytes[next]) && bytes[next])
        next++;
    while (before > 0 && strchr(" \t\r\n", bytes[before - 1]) && bytes[before - 1])
        before--;
    if (p.separator && next < f->bytes.len && bytes[next] == p.separator)
        to = next + 1;
    else if (p.separator && before > 0 && bytes[before - 1] == p.separator)
        from = before - 1;
    splice(f, from, to - from, "", 0);
    count_entries(f, p.count_at, UINT64_MAX);
}

static void double_entry(mutate_file *f, file_part p, mutate_random *r)
{
    buf copy = {0}, all = {0};
    buf_append(&copy, f->bytes.data + p.at, p.len);
    if (p.separator) buf_putc(&copy, p.separator);
    size_t n = mutate_below(r, 8) ? 1 : 1 + mutate_below(r, 2 + 20000 / (p.len + 1));
    for (size_t i = 0; i < n; i++)
        buf_append(&all, copy.data, copy.len);
    splice(f, p.at, 0, all.data, all.len);
    count_entries(f, p.count_at, n);
    buf_free(&copy);
    buf_free(&all);
}

static void exchange(mutate_file *f, file_part a, file_part b)
{
    file_part first = a.at < b.at ? a : b, second = a.at < b.at ? b : a;
    if (first.at + first.len > second.at) return;
    buf x = {0}, y = {0};
    buf_append(&x, f->bytes.data + first.at, first.len);
    buf_append(&y, f->bytes.data + second.at, second.len);
    splice(f, second.at, second.len, buf_str(&x), x.len);
    splice(f, first.at, first.len, buf_str(&y), y.len);
    buf_free(&x);
    buf_free(&y);
}

static void damage_entry(mutate_file *f, mutate_random *r)
{
    const file_part *p = choose(f, r, PART_ENTRY);
    if (!p) return;
    switch (mutate_below(r, 3)) {
    case 0:
        leave_out(f, *p);
        break;
    case 1:
        double_entry(f, *p, r);
        break;
    default:
        exchange(f, *p, *choose(f, r, PART_ENTRY));
    }
}

/* --- bytes ---------------------------------------------------------------------------------- */

static void flip_bits(mutate_file *f, mutate_random *r)
{
    for (size_t n = 1 + mutate_below(r, 4); n > 0 && f->bytes.len; n--)
        f->bytes.data[mutate_below(r, f->bytes.len)] ^= (char)(1 << mutate_below(r, 8));
}

static void set_bytes(mutate_file *f, mutate_random *r)
{
    static const unsigned char values[] = {0, 0xff, 0x7f, 0x80, '"', '\\', '{', '[', '\n', 0x1b};
    size_t at = mutate_below(r, f->bytes.len), most = f->bytes.len - at;
    size_t n = 1 + mutate_below(r, most < 16 ? most : 16);
    if (most) memset(f->bytes.data + at, values[mutate_below(r, sizeof values)], n);
}

static void insert_bytes(mutate_file *f, mutate_random *r)
{
    static const char *const pieces[] = {
        "\xff",         "\xc3",         "\xe2\x82", "\xf0\x9f\x98", "\xed\xbf\xbf",
        "\xef\xbb\xbf", "\xe2\x80\xae", "\r\n",     "\x1b[0m",      ","};
    const char *piece = pieces[mutate_below(r, sizeof pieces / sizeof *pieces)];
    if (mutate_below(r, 3) == 0)
        splice(f, mutate_below(r, f->bytes.len + 1), 0, "\0\0\0\0\0\0\0", 1 + mutate_below(r, 7));
    else
        splice(f, mutate_below(r, f->bytes.len + 1), 0, piece, strlen(piece));
}

static void cut_bytes(mutate_file *f, mutate_random *r)
{
    size_t at = mutate_below(r, f->bytes.len), left = f->bytes.len - at;
    bool to_the_end = mutate_below(r, 2);
    splice(f, at, to_the_end ? left : mutate_below(r, left < 64 ? left + 1 : 64), "", 0);
}

static void append_bytes(mutate_file *f, mutate_random *r)
{
    size_t n = some_size(r);
    char *more = xcalloc(n, 1);
    splice(f, f->bytes.len, 0, more, n);
    free(more);
}

static void damage_bytes(mutate_file *f, mutate_random *r)
{
    static void (*const ways[])(mutate_file *, mutate_random *) = {
        flip_bits, flip_bits, set_bytes, set_bytes, insert_bytes, cut_bytes, append_bytes};
    ways[mutate_below(r, sizeof ways / sizeof *ways)](f, r);
}

/* --- all ------------------------------------------------------------------------------------ */

enum { ALIGNMENT = 32 };

static void fit(mutate_file *f, size_t old_size)
{
    static const char zeros[ALIGNMENT];
    size_t excess = (f->bytes.len - old_size) % ALIGNMENT;
    for (size_t i = 0; i < f->n_parts; i++) {
        file_part p = f->parts[i];
        if (p.kind == PART_HEADER && f->bytes.len >= 8) put_number(f, 0, 8, false, p.len);
        if (p.kind == PART_PADDING && excess) splice(f, p.at, 0, zeros, ALIGNMENT - excess);
    }
}

void mutate_damage(mutate_file *f, mutate_random *r)
{
    size_t old_size = f->bytes.len;
    do {
        switch (mutate_below(r, 8)) {
        case 0:
        case 1:
            damage_value(f, r);
            break;
        case 2:
        case 3:
            damage_entry(f, r);
            break;
        case 4:
            damage_number(f, r, PART_LITTLE);
            break;
        case 5:
            damage_number(f, r, PART_BIG);
            break;
        case 6:
            damage_number(f, r, mutate_below(r, 2) ? PART_LITTLE : PART_BIG);
            break;
        default:
            damage_bytes(f, r);
        }
    } while (mutate_below(r, 4) == 0);
    if (mutate_below(r, 4)) fit(f, old_size);
}
