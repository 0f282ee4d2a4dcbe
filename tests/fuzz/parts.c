/* Where the parts of valid files lie. These files are trusted: they are the tests' own. */
#include "base/err.h"
#include "fuzz/mutate.h"

#include <string.h>

/* --- JSON ----------------------------------------------------------------------------------- */

static size_t skip_blanks(const char *text, size_t at)
{
    return at + strspn(text + at, " \t\r\n");
}

static size_t text_end(const char *text, size_t at)
{
    for (at++; text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at + 1;
}

static size_t add_value(mutate_file *f, size_t at);

/* A list or an object; returns its end. */
static size_t add_members(mutate_file *f, size_t at)
{
    const char *text = f->bytes.data;
    bool object = text[at] == '{';
    at = skip_blanks(text, at + 1);
    while (text[at] != ']' && text[at] != '}') {
        size_t start = at;
        if (object) {
            at = skip_blanks(text, text_end(text, at));
            PF_ASSERT(text[at] == ':');
            at = skip_blanks(text, at + 1);
        }
        at = add_value(f, at);
        mutate_add_part(
            f, (file_part){.kind = PART_ENTRY, .at = start, .len = at - start, .separator = ','});
        at = skip_blanks(text, at);
        if (text[at] == ',') at = skip_blanks(text, at + 1);
    }
    return at + 1;
}

static size_t add_value(mutate_file *f, size_t at)
{
    const char *text = f->bytes.data;
    size_t end;
    if (text[at] == '"')
        end = text_end(text, at);
    else if (text[at] == '[' || text[at] == '{')
        end = add_members(f, at);
    else
        end = at + strcspn(text + at, ",]} \t\r\n");
    mutate_add_part(f, (file_part){.kind = PART_VALUE, .at = at, .len = end - at});
    return end;
}

void parts_of_json(mutate_file *f)
{
    add_value(f, skip_blanks(buf_str(&f->bytes), 0));
}

static void add_lines(mutate_file *f)
{
    const char *text = buf_str(&f->bytes);
    for (size_t at = 0; at < f->bytes.len;) {
        size_t len = strcspn(text + at, "\n");
        mutate_add_part(f,
                        (file_part){.kind = PART_ENTRY, .at = at, .len = len, .separator = '\n'});
        at += len + 1;
    }
}

void parts_of_json_lines(mutate_file *f)
{
    const char *text = buf_str(&f->bytes);
    add_lines(f);
    for (size_t at = skip_blanks(text, 0); at < f->bytes.len;)
        at = skip_blanks(text, add_value(f, at));
}

void parts_of_lines(mutate_file *f)
{
    const char *text = buf_str(&f->bytes);
    add_lines(f);
    for (size_t at = 0; at < f->bytes.len;) {
        size_t len = strcspn(text + at, "\n"), name = strcspn(text + at, "= \n");
        if (name < len) {
            size_t value = name + strspn(text + at + name, "= ");
            mutate_add_part(f,
                            (file_part){.kind = PART_VALUE, .at = at + value, .len = len - value});
        }
        at += len + 1;
    }
}

/* --- safetensors ---------------------------------------------------------------------------- */

static uint64_t little(const mutate_file *f, size_t at, size_t len)
{
    uint64_t value = 0;
    memcpy(&value, f->bytes.data + at, len);
    return value;
}

static void add_number(mutate_file *f, size_t at, size_t len)
{
    mutate_add_part(f, (file_part){.kind = PART_LITTLE, .at = at, .len = len});
}

void parts_of_safetensors(mutate_file *f)
{
    add_number(f, 0, 8);
    mutate_add_part(f, (file_part){.kind = PART_HEADER, .at = 8, .len = little(f, 0, 8)});
    add_value(f, 8);
}

/* --- GGUF ----------------------------------------------------------------------------------- */

enum { GGUF_STRING_TYPE = 8, GGUF_ARRAY_TYPE = 9, TENSORS_AT = 8, KEYS_AT = 16 };

static size_t scalar_size(uint64_t type)
{
    static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    PF_ASSERT(type < sizeof sizes);
    return sizes[type];
}

static size_t add_string(mutate_file *f, size_t at)
{
    add_number(f, at, 8);
    size_t end = at + 8 + little(f, at, 8);
    return end;
}

static size_t add_gguf_value(mutate_file *f, uint64_t type, size_t at)
{
    if (type == GGUF_STRING_TYPE) return add_string(f, at);
    if (type != GGUF_ARRAY_TYPE) {
        add_number(f, at, scalar_size(type));
        return at + scalar_size(type);
    }
    uint64_t element = little(f, at, 4), count = little(f, at + 4, 8);
    add_number(f, at, 4);
    add_number(f, at + 4, 8);
    at += 12;
    for (uint64_t i = 0; i < count; i++)
        at = i < 8 || element == GGUF_STRING_TYPE ? add_gguf_value(f, element, at)
                                                  : at + scalar_size(element);
    return at;
}

static void add_counted(mutate_file *f, size_t from, size_t to, size_t count_at)
{
    mutate_add_part(
        f, (file_part){.kind = PART_ENTRY, .at = from, .len = to - from, .count_at = count_at});
}

static size_t add_tensor(mutate_file *f, size_t at)
{
    at = add_string(f, at);
    uint64_t dims = little(f, at, 4);
    add_number(f, at, 4);
    at += 4;
    for (uint64_t i = 0; i < dims; i++, at += 8)
        add_number(f, at, 8);
    add_number(f, at, 4);
    add_number(f, at + 4, 8);
    return at + 12;
}

void parts_of_gguf(mutate_file *f)
{
    size_t at = 24;
    add_number(f, 4, 4);
    add_number(f, TENSORS_AT, 8);
    add_number(f, KEYS_AT, 8);
    for (uint64_t n = little(f, KEYS_AT, 8); n > 0; n--) {
        size_t start = at;
        at = add_string(f, at);
        add_number(f, at, 4);
        at = add_gguf_value(f, little(f, at, 4), at + 4);
        add_counted(f, start, at, KEYS_AT);
    }
    for (uint64_t n = little(f, TENSORS_AT, 8); n > 0; n--) {
        size_t start = at;
        at = add_tensor(f, at);
        add_counted(f, start, at, TENSORS_AT);
    }
    mutate_add_part(f, (file_part){.kind = PART_PADDING, .at = at});
}

/* --- SQLite --------------------------------------------------------------------------------- */

static void add_big(mutate_file *f, size_t at, size_t len)
{
    mutate_add_part(f, (file_part){.kind = PART_BIG, .at = at, .len = len});
}

void parts_of_sqlite(mutate_file *f)
{
    const unsigned char *bytes = (const unsigned char *)f->bytes.data;
    size_t page = (size_t)bytes[16] << 8 | bytes[17];
    PF_ASSERT(page >= 512);
    add_big(f, 16, 2);
    for (size_t at = 18; at < 24; at++)
        add_big(f, at, 1);
    for (size_t at = 24; at < 72; at += 4)
        add_big(f, at, 4);
    for (size_t start = 0; start + page <= f->bytes.len; start += page) {
        size_t at = start ? start : 100; /* a page's header: type, free block, cells, content */
        mutate_add_part(f, (file_part){.kind = PART_ENTRY, .at = start, .len = page});
        add_big(f, at, 1);
        for (size_t i = 1; i < 7; i += 2)
            add_big(f, at + i, 2);
        add_big(f, at + 8, 4);
        add_big(f, at + 12, 2);
    }
}
