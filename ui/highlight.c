#include "ui/highlight.h"

#include <string.h>
#include <strings.h>

typedef struct {
    const char *names;           /* separated and surrounded by blanks, small letters */
    const char *line, *line_too; /* what begins a comment to the end of the line, or NULL */
    const char *open, *close;    /* a comment over several lines, or NULL */
    const char *quotes;          /* characters around strings */
    bool triple;                 /* three of them: a string over several lines */
    bool any_case;               /* words in any case of letters */
    const char *words;           /* as names */
} language;

#define C_WORDS                                                                                    \
    " auto bool break case catch char class const constexpr continue default delete do double "    \
    "else enum explicit extern false final float for friend goto if inline int long namespace "    \
    "new noexcept nullptr operator override private protected public register return short "       \
    "signed sizeof static struct switch template this throw true try typedef typename union "      \
    "unsigned using virtual void volatile while NULL size_t "

static const language languages[] = {
    {0},
    {.names = " c h cpp c++ cc cxx hpp objc cuda ",
     .line = "//",
     .open = "/*",
     .close = "*/",
     .quotes = "\"'",
     .words = C_WORDS},
    {.names = " python py python3 ",
     .line = "#",
     .quotes = "\"'",
     .triple = true,
     .words = " and as assert async await break class continue def del elif else except False "
              "finally for from global if import in is lambda match None nonlocal not or pass "
              "raise return self True try while with yield "},
    {.names = " javascript js typescript ts jsx tsx mjs ",
     .line = "//",
     .open = "/*",
     .close = "*/",
     .quotes = "\"'`",
     .words = " abstract any as async await boolean break case catch class const continue default "
              "delete do else enum export extends false finally for from function if implements "
              "import in instanceof interface let new null number of private protected public "
              "return static string super switch this throw true try type typeof undefined var "
              "void while yield "},
    {.names = " java kotlin kt scala csharp cs c# swift dart php ",
     .line = "//",
     .open = "/*",
     .close = "*/",
     .quotes = "\"'",
     .words = " abstract boolean break case catch class const continue default do double else enum "
              "extends false final finally float for foreach fun func function guard if implements "
              "import in instanceof int interface internal is let long namespace new null object "
              "override package private protected public return sealed static string String struct "
              "super switch this throw throws true try use using val var void when while "},
    {.names = " go golang ",
     .line = "//",
     .open = "/*",
     .close = "*/",
     .quotes = "\"'`",
     .words = " any bool break byte case chan const continue default defer else error fallthrough "
              "false float64 for func go goto if import int int64 interface map nil package range "
              "return rune select string struct switch true type uint var "},
    {.names = " rust rs ",
     .line = "//",
     .open = "/*",
     .close = "*/",
     .quotes = "\"",
     .words =
         " as async await bool break const continue crate dyn else enum extern false fn for if "
         "impl in i32 i64 let loop match mod move mut pub ref return self Self static str "
         "String struct super trait true type u8 u32 u64 unsafe use usize where while "},
    {.names = " sh bash shell zsh console fish ",
     .line = "#",
     .quotes = "\"'",
     .words =
         " case do done echo elif else esac exit export fi for function if in local return set "
         "shift source then trap unset until while "},
    {.names = " ruby rb ",
     .line = "#",
     .quotes = "\"'",
     .words =
         " alias and begin break case class def do else elsif end ensure false for if in module "
         "next nil not or redo require rescue retry return self super then true unless until "
         "when while yield "},
    {.names = " lua ",
     .line = "--",
     .open = "--[[",
     .close = "]]",
     .quotes = "\"'",
     .words =
         " and break do else elseif end false for function if in local nil not or repeat return "
         "then true until while "},
    {.names = " sql sqlite postgres mysql ",
     .line = "--",
     .open = "/*",
     .close = "*/",
     .quotes = "'\"",
     .any_case = true,
     .words =
         " add all alter and as asc between by case create delete desc distinct drop else end "
         "exists foreign from full group having in index inner insert integer into is join key "
         "left like limit not null on or order outer primary references right select set table "
         "text then union unique update values varchar view when where with "},
    {.names = " json ", .quotes = "\"", .words = " false null true "},
    {.names = " yaml yml toml ini conf properties dockerfile makefile make cmake r perl ",
     .line = "#",
     .quotes = "\"'",
     .words = " false no null off on true yes else for function if in next return while my sub "},
    {.names = " css scss less ", .open = "/*", .close = "*/", .quotes = "\"'", .words = " "},
    {.names = " html xml svg ", .open = "<!--", .close = "-->", .quotes = "\"", .words = " "},
    {.names = " haskell hs ",
     .line = "--",
     .open = "{-",
     .close = "-}",
     .quotes = "\"",
     .words = " case class data deriving do else if import in infix instance let module newtype of "
              "then type where "},
    {.names = " lisp scheme clojure elisp asm ",
     .line = ";",
     .quotes = "\"",
     .words = " cond define defn defun do if lambda let loop nil quote set "},
};
#define N_LANGUAGES ((int)(sizeof languages / sizeof *languages))

#define MAX_WORD 24

/* Is word[0..len) in a list of words separated by blanks? */
static bool listed(const char *list, const char *word, size_t len, bool any_case)
{
    if (!list || len == 0 || len > MAX_WORD) return false;
    for (const char *at = list; *at;) {
        at += strspn(at, " ");
        size_t n = strcspn(at, " ");
        if (n == len && (any_case ? strncasecmp(at, word, n) : strncmp(at, word, n)) == 0)
            return true;
        at += n;
    }
    return false;
}

void highlight_begin(highlighter *h, const char *name, size_t len)
{
    *h = (highlighter){0};
    for (int i = 1; i < N_LANGUAGES; i++)
        if (listed(languages[i].names, name, len, true)) h->language = i;
}

static bool starts(const char *text, size_t len, const char *with)
{
    size_t n = with ? strlen(with) : 0;
    return n > 0 && len >= n && memcmp(text, with, n) == 0;
}

static bool is_letter(char c)
{
    return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t word_len(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && (is_letter(text[n]) || is_digit(text[n])))
        n++;
    return n;
}

static size_t number_len(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && (is_digit(text[n]) || is_letter(text[n]) || text[n] == '.'))
        n++;
    return n;
}

/* How much of the piece still belongs to the comment or string that it began in; leaves the mode
 * where it ends. */
static size_t rest_of_mode(highlighter *h, const char *text, size_t len)
{
    const language *l = &languages[h->language];
    if (h->to_line_end && h->mode == HIGHLIGHT_COMMENT) return len;
    for (size_t i = 0; i < len; i++) {
        bool ends = false;
        size_t n = 1;
        if (h->mode == HIGHLIGHT_COMMENT) {
            ends = starts(text + i, len - i, l->close);
            n = ends ? strlen(l->close) : 1;
        } else if (text[i] == '\\') {
            i++;
            continue;
        } else if (text[i] == h->quote) {
            char three[4] = {h->quote, h->quote, h->quote, '\0'};
            ends = !h->triple || starts(text + i, len - i, three);
            n = h->triple ? 3 : 1;
        }
        if (!ends) continue;
        h->mode = HIGHLIGHT_CODE;
        return i + n;
    }
    return len;
}

/* What begins at text: sets a mode that lasts, or stays in code. Returns its length so far. */
static size_t begin_part(highlighter *h, const char *text, size_t len, style *s)
{
    const language *l = &languages[h->language];
    size_t n = 1;
    *s = STYLE_CODE;
    if (starts(text, len, l->open)) {
        h->mode = HIGHLIGHT_COMMENT;
        h->to_line_end = false;
        *s = STYLE_CODE_COMMENT;
        return strlen(l->open);
    }
    if (starts(text, len, l->line)) {
        h->mode = HIGHLIGHT_COMMENT;
        h->to_line_end = true;
        *s = STYLE_CODE_COMMENT;
        return strlen(l->line);
    }
    if (l->quotes && text[0] && strchr(l->quotes, text[0])) {
        char three[4] = {text[0], text[0], text[0], '\0'};
        h->mode = HIGHLIGHT_STRING;
        h->quote = text[0];
        h->triple = l->triple && starts(text, len, three);
        h->to_line_end = !h->triple && text[0] != '`';
        *s = STYLE_CODE_STRING;
        return h->triple ? 3 : 1;
    }
    if (is_letter(text[0])) {
        n = word_len(text, len);
        if (listed(l->words, text, n, l->any_case)) *s = STYLE_CODE_WORD;
    } else if (is_digit(text[0]) && h->language) {
        n = number_len(text, len);
        *s = STYLE_CODE_NUMBER;
    }
    return n;
}

void highlight_piece(highlighter *h, const char *text, size_t len, bool line_ends, highlight_fn put,
                     void *ctx)
{
    size_t pos = 0, plain = 0; /* plain: start of code not given out yet */
    while (pos < len) {
        style s;
        size_t from = pos;
        if (h->mode != HIGHLIGHT_CODE) {
            s = h->mode == HIGHLIGHT_COMMENT ? STYLE_CODE_COMMENT : STYLE_CODE_STRING;
            pos += rest_of_mode(h, text + pos, len - pos);
        } else {
            pos += begin_part(h, text + pos, len - pos, &s);
        }
        if (s == STYLE_CODE) continue;
        if (from > plain) put(ctx, plain, from - plain, STYLE_CODE);
        put(ctx, from, pos - from, s);
        plain = pos;
    }
    if (len > plain) put(ctx, plain, len - plain, STYLE_CODE);
    if (line_ends && h->to_line_end) h->mode = HIGHLIGHT_CODE;
}
