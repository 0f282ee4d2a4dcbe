/* Markdown that streams in. What must hold: nothing crashes; no control byte gets into a row; rows
 * are no wider than the screen (where there is room for what stands in front of them); where rows
 * come from never goes back; in the end everything is as if it had come at once. */
#include "base/err.h"
#include "ui/markdown.h"
#include "ui/text.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const markdown *m)
{
    for (size_t i = 0; i < m->sheet.n_rows; i++) {
        const markdown_row *r = &m->sheet.rows[i];
        PF_ASSERT(r->width <= m->width || m->width < 12);
        PF_ASSERT(i == 0 || r->source >= m->sheet.rows[i - 1].source);
        for (size_t k = 0; k < r->len; k++) {
            unsigned char c = (unsigned char)m->sheet.text.data[r->text + k];
            PF_ASSERT(c >= 0x20 && c != 0x7F);
        }
    }
}

static void check_same(const markdown *a, const markdown *b)
{
    PF_ASSERT(a->sheet.n_rows == b->sheet.n_rows);
    PF_ASSERT(a->sheet.text.len == b->sheet.text.len);
    PF_ASSERT(a->sheet.text.len == 0 ||
              memcmp(a->sheet.text.data, b->sheet.text.data, a->sheet.text.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    int width = 1 + data[0] % 100;
    size_t step = 1 + data[1] % 16;
    text_cleaner cleaner = {0};
    buf text = {0};
    text_clean(&cleaner, (const char *)data + 2, size - 2, &text);
    text_clean_finish(&cleaner, &text);
    markdown stream = {0}, whole = {0};
    for (size_t n = step; n < text.len; n += step) {
        markdown_update(&stream, buf_str(&text), n, width, false);
        check(&stream);
    }
    markdown_update(&stream, buf_str(&text), text.len, width, true);
    markdown_update(&whole, buf_str(&text), text.len, width, true);
    check(&whole);
    check_same(&stream, &whole);
    markdown_free(&stream);
    markdown_free(&whole);
    buf_free(&text);
    return 0;
}
