#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/pretokenizer.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <pcre2.h>
#include <stdint.h>
#include <string.h>

/* Unicode White_Space, spelled out because PCRE2's \s is wider (U+180E). BLANK leaves out the line
 * ends CR and LF. */
#define WIDE_SPACE                                                                                 \
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SPACE  "\\x09-\\x0D\\x20" WIDE_SPACE
#define BLANK  "\\x09\\x0B\\x0C\\x20" WIDE_SPACE
#define SYMBOL "[^" SPACE "\\p{L}\\p{N}]"

/* Every repeat that can't usefully give back is possessive. The white space rules of the published
 * patterns, `\s*[\r\n]+` and `\s+(?!\S)`, are written so that they give back one character at
 * most: a run up to its last line end; then a run without the character before the next word. */
#define TO_LINE_END  "(?:[" BLANK "]*+[\\r\\n]++)++"
#define SPACE_BEFORE "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]"

#define CONTRACTION_LOWER "'(?:[sdmt]|ll|ve|re)"
#define CONTRACTION_ANY   "(?i:'(?:[sdmt]|ll|ve|re))"

/* The Llama 3 family: digits is the rule for numbers. */
#define LLAMA3_FORM(digits)                                                                        \
    CONTRACTION_ANY "|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|" digits "| ?" SYMBOL "++[\\r\\n]*+|"        \
                    "" TO_LINE_END "|" SPACE_BEFORE

static const struct {
    const char *name, *pattern;
    pretokenizer_traits traits;
} known[] = {
    /* Each digit (class N) alone, and the GPT-2 rules on every rest between digits, where a digit
     * is an end of text to the white space rule. */
    {"smollm",
     "\\p{N}|" CONTRACTION_LOWER "| ?\\p{L}++| ?" SYMBOL "++|[" SPACE "]+(?![^" SPACE
     "\\p{N}])|[" SPACE "]",
     {0}},
    {"llama-bpe", LLAMA3_FORM("\\p{N}{1,3}+"), {.ignore_merges = true, .add_bos = true}},
    {"qwen2", LLAMA3_FORM("\\p{N}"), {.nfc = true}},
    {"gpt2", CONTRACTION_LOWER "| ?\\p{L}++| ?\\p{N}++| ?" SYMBOL "++|" SPACE_BEFORE, {0}},
};
#define N_KNOWN (sizeof known / sizeof known[0])

/* Other names under which files ask for the same rules. */
static const struct {
    const char *alias, *name;
} aliases[] = {{"gpt-2", "gpt2"}, {"llama3", "llama-bpe"}, {"llama-v3", "llama-bpe"}};

struct pretokenizer {
    pcre2_code *code;
    pcre2_match_context *context;
};

static size_t find_known(const char *name)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(name, aliases[i].alias) == 0) name = aliases[i].name;
    for (size_t i = 0; i < N_KNOWN; i++)
        if (strcmp(name, known[i].name) == 0) return i;
    return SIZE_MAX;
}

static pf_status refuse_unknown(const char *name, pf_err *err)
{
    buf list = {0};
    for (size_t i = 0; i < N_KNOWN; i++)
        buf_printf(&list, "%s%s", i ? ", " : "", known[i].name);
    if (name)
        err_set(err, PF_REFUSED, "unknown pre-tokenizer \"%.64s\"; known are: %s", name,
                buf_str(&list));
    else
        err_set(err, PF_REFUSED, "the pre-tokenizer is not named; known are: %s", buf_str(&list));
    buf_free(&list);
    return PF_REFUSED;
}

pf_status pretokenizer_create(const char *name, pretokenizer **out, pf_err *err)
{
    *out = NULL;
    size_t which = name ? find_known(name) : SIZE_MAX;
    if (which == SIZE_MAX) return refuse_unknown(name, err);

    int error;
    PCRE2_SIZE where;
    pretokenizer *p = xcalloc(1, sizeof *p);
    p->code =
        pcre2_compile((PCRE2_SPTR)known[which].pattern, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_ANCHORED | PCRE2_NO_START_OPTIMIZE, &error, &where, NULL);
    p->context = pcre2_match_context_create(NULL);
    if (!p->code || !p->context)
        die("the pattern \"%s\" does not compile at %zu (%d)", known[which].name, where, error);
    pcre2_set_match_limit(p->context, UINT32_MAX);
    /* Without just-in-time compiling the interpreter matches the same. */
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    *out = p;
    return PF_OK;
}

void pretokenizer_free(pretokenizer *p)
{
    if (!p) return;
    pcre2_match_context_free(p->context);
    pcre2_code_free(p->code);
    free(p);
}

bool pretokenizer_get_traits(const char *name, pretokenizer_traits *out)
{
    size_t which = find_known(name);
    if (which != SIZE_MAX) *out = known[which].traits;
    return which != SIZE_MAX;
}

/* The length of the piece at offset; > 0. */
static size_t piece_length(const pretokenizer *p, pcre2_match_data *match, const char *text,
                           size_t len, size_t offset)
{
    int rc =
        pcre2_match(p->code, (PCRE2_SPTR)text, len, offset, PCRE2_NO_UTF_CHECK, match, p->context);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) /* the just-in-time code ran out of its stack */
        rc = pcre2_match(p->code, (PCRE2_SPTR)text, len, offset, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         match, p->context);
    if (rc > 0) {
        const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(match);
        if (bounds[1] > offset) return bounds[1] - offset;
    }
    /* The rules cover every character, so this is for a library that gave up: go on by one. */
    uint32_t code_point;
    return utf8_decode(text + offset, len - offset, &code_point, NULL);
}

void pretokenizer_split(const pretokenizer *p, const char *text, size_t len,
                        pretokenizer_visit visit, void *ctx)
{
    if (len == 0) return;
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (!match) die("out of memory for a match");
    for (size_t offset = 0; offset < len;) {
        size_t n = piece_length(p, match, text, len, offset);
        visit(ctx, text + offset, n);
        offset += n;
    }
    pcre2_match_data_free(match);
}
