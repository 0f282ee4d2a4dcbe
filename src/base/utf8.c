#include "base/utf8.h"

#include <string.h>

/* The allowed range of the second byte narrows for some first bytes (Unicode, table 3-7). */
static bool second_byte_range(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (first == 0xE0) *low = 0xA0;
    if (first == 0xED) *high = 0x9F;
    if (first == 0xF0) *low = 0x90;
    if (first == 0xF4) *high = 0x8F;
    return first >= 0xC2 && first <= 0xF4;
}

size_t utf8_decode(const void *data, size_t len, uint32_t *code_point, bool *truncated)
{
    const unsigned char *p = data;
    bool unused;
    if (!truncated) truncated = &unused;
    *truncated = false;
    if (p[0] < 0x80) {
        *code_point = p[0];
        return 1;
    }
    *code_point = UINT32_MAX;
    unsigned char low, high;
    if (!second_byte_range(p[0], &low, &high)) return 1;
    size_t need = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    uint32_t value = p[0] & (0x7Fu >> need);
    for (size_t i = 1; i < need; i++) {
        if (i >= len) {
            *truncated = true;
            return i;
        }
        if (p[i] < low || p[i] > high) return i;
        low = 0x80;
        high = 0xBF;
        value = value << 6 | (p[i] & 0x3Fu);
    }
    *code_point = value;
    return need;
}

size_t utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

bool utf8_valid(const void *data, size_t len)
{
    const char *p = data;
    uint32_t code_point;
    while (len > 0) {
        size_t n = utf8_decode(p, len, &code_point, NULL);
        if (code_point == UINT32_MAX) return false;
        p += n;
        len -= n;
    }
    return true;
}

void utf8_repair(const void *data, size_t len, buf *out)
{
    const char *p = data;
    uint32_t code_point;
    buf_reserve(out, len);
    while (len > 0) {
        size_t n = utf8_decode(p, len, &code_point, NULL);
        if (code_point == UINT32_MAX)
            buf_append(out, "\xEF\xBF\xBD", 3);
        else
            buf_append(out, p, n);
        p += n;
        len -= n;
    }
}

size_t utf8_complete_prefix(const void *data, size_t len)
{
    const unsigned char *p = data;
    size_t back = 1;
    while (back <= 3 && back <= len && (p[len - back] & 0xC0) == 0x80)
        back++;
    if (back > 3 || back > len) return len;
    uint32_t code_point;
    bool truncated;
    utf8_decode(p + len - back, back, &code_point, &truncated);
    return truncated ? len - back : len;
}
