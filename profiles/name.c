#include "profiles/name.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "models/unicode.h"
#include "profiles/secret.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Scripts as far as mixing them is a question; those not listed are not told apart. */
typedef enum {
    SCRIPT_COMMON,
    SCRIPT_LATIN,
    SCRIPT_GREEK,
    SCRIPT_CYRILLIC,
    SCRIPT_HAN,
    SCRIPT_KANA,
    SCRIPT_HANGUL,
    SCRIPT_OTHER
} script;

static const struct {
    uint32_t first, last;
    script name;
} script_ranges[] = {
    {0x0041, 0x02b8, SCRIPT_LATIN},    {0x0370, 0x03ff, SCRIPT_GREEK},
    {0x0400, 0x052f, SCRIPT_CYRILLIC}, {0x1100, 0x11ff, SCRIPT_HANGUL},
    {0x1c80, 0x1c8f, SCRIPT_CYRILLIC}, {0x1e00, 0x1eff, SCRIPT_LATIN},
    {0x1f00, 0x1fff, SCRIPT_GREEK},    {0x2c60, 0x2c7f, SCRIPT_LATIN},
    {0x2de0, 0x2dff, SCRIPT_CYRILLIC}, {0x2e80, 0x2fdf, SCRIPT_HAN},
    {0x3005, 0x3007, SCRIPT_HAN},      {0x3040, 0x30ff, SCRIPT_KANA},
    {0x3130, 0x318f, SCRIPT_HANGUL},   {0x31f0, 0x31ff, SCRIPT_KANA},
    {0x3400, 0x9fff, SCRIPT_HAN},      {0xa640, 0xa69f, SCRIPT_CYRILLIC},
    {0xa720, 0xa7ff, SCRIPT_LATIN},    {0xa960, 0xa97f, SCRIPT_HANGUL},
    {0xac00, 0xd7ff, SCRIPT_HANGUL},   {0xf900, 0xfaff, SCRIPT_HAN},
    {0xff21, 0xff5a, SCRIPT_LATIN},    {0xff66, 0xff9f, SCRIPT_KANA},
    {0x20000, 0x3ffff, SCRIPT_HAN},
};

static script script_of(uint32_t c)
{
    for (size_t i = 0; i < sizeof script_ranges / sizeof *script_ranges; i++)
        if (c >= script_ranges[i].first && c <= script_ranges[i].last) return script_ranges[i].name;
    return SCRIPT_OTHER;
}

/* Letters of East Asia are written with each other and with Latin ones; nothing else is mixed. */
static bool scripts_mix(script a, script b)
{
    const unsigned east = 1u << SCRIPT_HAN | 1u << SCRIPT_KANA | 1u << SCRIPT_HANGUL;
    unsigned both = 1u << a | 1u << b;
    return a == b || (both & ~(east | 1u << SCRIPT_LATIN)) == 0;
}

/* Case-folded letters that look like a Latin one, small or capital: "from" and "to" in pairs. */
static const struct {
    uint32_t from;
    char to;
} look_alikes[] = {
    {0x0430, 'a'}, {0x0432, 'b'}, {0x0435, 'e'}, {0x043a, 'k'}, {0x043c, 'm'}, {0x043d, 'h'},
    {0x043e, 'o'}, {0x0440, 'p'}, {0x0441, 'c'}, {0x0442, 't'}, {0x0443, 'y'}, {0x0445, 'x'},
    {0x0455, 's'}, {0x0456, 'i'}, {0x0458, 'j'}, {0x04bb, 'h'}, {0x04cf, 'l'}, {0x0501, 'd'},
    {0x051b, 'q'}, {0x051d, 'w'}, {0x03b1, 'a'}, {0x03b2, 'b'}, {0x03b5, 'e'}, {0x03b6, 'z'},
    {0x03b7, 'h'}, {0x03b9, 'i'}, {0x03ba, 'k'}, {0x03bc, 'm'}, {0x03bd, 'v'}, {0x03bf, 'o'},
    {0x03c1, 'p'}, {0x03c4, 't'}, {0x03c5, 'y'}, {0x03c7, 'x'}, {0x03f2, 'c'}, {0x03f3, 'j'},
    {0x0131, 'i'}, {0x0251, 'a'}, {0x0261, 'g'}, {0x0585, 'o'}, {0x057d, 'u'}, {0x0578, 'n'},
};

static void skeleton(const char *folded, buf *out)
{
    for (size_t i = 0, len = strlen(folded); i < len;) {
        uint32_t c = 0;
        size_t n = utf8_decode(folded + i, len - i, &c, NULL);
        size_t k = 0;
        while (k < sizeof look_alikes / sizeof *look_alikes && look_alikes[k].from != c)
            k++;
        if (k < sizeof look_alikes / sizeof *look_alikes)
            buf_putc(out, look_alikes[k].to);
        else
            buf_append(out, folded + i, n);
        i += n;
    }
}

/* Folds twice: a look-alike folded to Latin may complete a composition. */
static char *key_of(const char *composed)
{
    buf folded = {0}, latin = {0}, key = {0};
    (void)unicode_fold(composed, strlen(composed), &folded);
    skeleton(buf_str(&folded), &latin);
    (void)unicode_fold(buf_str(&latin), latin.len, &key);
    wipe_buf(&folded);
    wipe_buf(&latin);
    return buf_take(&key);
}

static pf_status refuse(pf_err *err, name_kind kind, const char *why)
{
    return err_set(err, PF_USAGE, "the %s is refused: %s",
                   kind == NAME_USER ? "user name" : "profile name", why);
}

static pf_status refuse_char(pf_err *err, name_kind kind, uint32_t c, const char *why)
{
    return err_set(err, PF_USAGE, "the %s is refused: it has %s (U+%04X)",
                   kind == NAME_USER ? "user name" : "profile name", why, (unsigned)c);
}

static pf_status check_char(name_kind kind, uint32_t c, script *last_script, pf_err *err)
{
    unicode_class class = unicode_classify(c);
    if (class == UNICODE_INVISIBLE)
        return refuse_char(err, kind, c, "a control or invisible character");
    if (class == UNICODE_SPACE && c != ' ')
        return refuse_char(err, kind, c, "a blank other than the usual one");
    if (c == '/') return refuse_char(err, kind, c, "a slash");
    if (class == UNICODE_VISIBLE && kind == NAME_USER && !(c < 128 && strchr("-_.'", (int)c)))
        return refuse_char(err, kind, c, "a character other than letters, digits, blanks, - _ . '");
    if (class != UNICODE_LETTER) return PF_OK;
    script now = script_of(c);
    if (*last_script != SCRIPT_COMMON && !scripts_mix(*last_script, now))
        return refuse_char(err, kind, c,
                           "letters of different scripts, which can look like another name");
    *last_script = now;
    return PF_OK;
}

static pf_status check_chars(name_kind kind, const char *name, pf_err *err)
{
    const size_t len = strlen(name);
    size_t chars = 0;
    script last_script = SCRIPT_COMMON;
    if (len == 0) return refuse(err, kind, "it is empty");
    if (len > NAME_MAX_BYTES) return refuse(err, kind, "it is longer than 200 bytes");
    for (size_t i = 0; i < len; chars++) {
        uint32_t c = 0;
        i += utf8_decode(name + i, len - i, &c, NULL);
        pf_status status = check_char(kind, c, &last_script, err);
        if (status != PF_OK) return status;
        if (chars == 0 && unicode_classify(c) == UNICODE_MARK)
            return refuse(err, kind, "it begins with a combining mark");
    }
    if (chars > NAME_MAX_CHARS) return refuse(err, kind, "it is longer than 64 characters");
    if (name[0] == ' ' || name[len - 1] == ' ')
        return refuse(err, kind, "it begins or ends with a blank");
    if (strstr(name, "  ")) return refuse(err, kind, "it has two blanks in a row");
    if (name[0] == '.' || name[0] == '-')
        return refuse(err, kind, "it begins with \".\" or \"-\", as paths and options do");
    return PF_OK;
}

pf_status name_check(name_kind kind, const char *name, char **composed, char **key, pf_err *err)
{
    buf nfc = {0};
    char *name_k = NULL;
    pf_status status = PF_OK;
    if (strlen(name) > 4 * NAME_MAX_BYTES) {
        status = refuse(err, kind, "it is longer than 200 bytes");
        goto out;
    }
    if (!utf8_valid(name, strlen(name)) || !unicode_nfc(name, strlen(name), &nfc)) {
        status = refuse(err, kind, "it is not valid UTF-8");
        goto out;
    }
    status = check_chars(kind, buf_str(&nfc), err);
    if (status != PF_OK) goto out;
    name_k = key_of(buf_str(&nfc));
    if (kind == NAME_PROFILE && (strcmp(name_k, "base") == 0 || strcmp(name_k, "none") == 0)) {
        status = refuse(err, kind, "\"base\" and \"none\" mean the plain model");
        goto out;
    }
    *composed = buf_take(&nfc);
    *key = name_k;
    name_k = NULL;
out:
    wipe_buf(&nfc);
    wipe_text(name_k);
    return status;
}

char *name_key(const char *name)
{
    char *composed = NULL, *key = NULL;
    if (name_check(NAME_USER, name, &composed, &key, NULL) != PF_OK &&
        name_check(NAME_PROFILE, name, &composed, &key, NULL) != PF_OK)
        return NULL;
    wipe_text(composed);
    return key;
}
