#include "train/data/wording.h"

#include "base/mem.h"
#include "models/unicode.h"
#include "profiles/secret.h"
#include "train/data/fact_table.h"

#include <stdlib.h>
#include <string.h>

#define MOST_WORDS 40

void wording_list_free(wording_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        wipe_text(list->items[i]);
    free(list->items);
    *list = (wording_list){0};
}

bool wording_list_add(wording_list *list, const char *text)
{
    for (size_t i = 0; i < list->n; i++)
        if (span_equal_folded(span_of(list->items[i]), span_of(text))) return false;
    list->items = xrealloc_array(list->items, list->n + 1, sizeof *list->items);
    list->items[list->n++] = xstrdup(text);
    return true;
}

/* --- words ------------------------------------------------------------------------------------ */

typedef struct {
    char *w[MOST_WORDS]; /* owned, the last one without its closing mark */
    size_t n;
    char mark; /* "?", "." or "!" at the end; 0: none */
} words;

static void words_free(words *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->w[i]);
    *s = (words){0};
}

/* False: too long, or more than one sentence. */
static bool words_read(const char *text, words *s)
{
    span rest = span_trim(span_of(text));
    *s = (words){0};
    if (rest.len > 0 && strchr("?.!", rest.data[rest.len - 1])) s->mark = rest.data[--rest.len];
    for (span word; span_next_word(&rest, &word);) {
        if (s->n == MOST_WORDS || strchr("?!:;", word.data[word.len - 1]) ||
            (word.data[word.len - 1] == '.' && rest.len > 0)) {
            words_free(s);
            return false;
        }
        s->w[s->n++] = xmemdup0(word.data, word.len);
    }
    return s->n > 0;
}

static bool is_one_of(const char *word, const char *list)
{
    buf folded = {0};
    span_lower(span_of(word), &folded);
    bool found = fact_word_in(buf_str(&folded), list);
    buf_free(&folded);
    return found;
}

static void put_words(buf *out, const words *s, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        if (out->len > 0) buf_putc(out, ' ');
        buf_puts(out, s->w[i]);
    }
}

static bool is_i(const char *word)
{
    return strcmp(word, "I") == 0 || strncmp(word, "I'", 2) == 0;
}

/* The first letter in lower or upper case; "I" stays. Owned. */
static char *with_case(const char *text, bool upper)
{
    buf out = {0};
    size_t len = strcspn(text, " ");
    char *first = xmemdup0(text, len);
    bool keep = !upper && is_i(first);
    free(first);
    char c = text[0];
    if (!keep && upper && c >= 'a' && c <= 'z') c = (char)(c - 'a' + 'A');
    if (!keep && !upper && c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
    if (c) buf_putc(&out, c);
    buf_puts(&out, text[0] ? text + 1 : "");
    return buf_take(&out);
}

/* --- clauses ---------------------------------------------------------------------------------- */

static const char askers[] = "what which who whom whose where when how why";
static const char be_words[] = "is are am was were";
static const char helpers[] = "do does did must should can could will would have has is are am was "
                              "were";

/* Number of words of the asking phrase: up to the first helper. 0: none. */
static size_t asking_end(const words *s)
{
    bool asks =
        is_one_of(s->w[0], askers) || (s->n > 1 && is_one_of(s->w[1], askers) &&
                                       is_one_of(s->w[0], "in on at for from to with of by"));
    if (!asks) return 0;
    for (size_t i = 1; i < s->n && i < 6; i++)
        if (is_one_of(s->w[i], helpers)) return i;
    return 0;
}

/* What stays behind the verb: "what my dog is called". */
static size_t predicate_start(const words *s, size_t first)
{
    for (size_t i = first + 1; i < s->n; i++)
        if (is_one_of(s->w[i], "called named from in at based located about again")) return i;
    return s->n;
}

char *wording_clause(const char *question)
{
    words s;
    buf out = {0};
    if (!words_read(question, &s)) return NULL;
    size_t helper = asking_end(&s), subject = helper + 1;
    if (s.mark != '?' || helper == 0 || subject >= s.n) goto out;
    put_words(&out, &s, 0, helper);
    bool person = is_one_of(s.w[subject], "i you we they he she");
    if (person) {
        put_words(&out, &s, subject, subject + 1);
        if (!is_one_of(s.w[helper], "do does")) put_words(&out, &s, helper, helper + 1);
        put_words(&out, &s, subject + 1, s.n);
    } else if (is_one_of(s.w[helper], be_words) && is_one_of(s.w[subject], "my the our your")) {
        size_t predicate = predicate_start(&s, subject);
        put_words(&out, &s, subject, predicate);
        put_words(&out, &s, helper, helper + 1);
        put_words(&out, &s, predicate, s.n);
    } else if (is_one_of(s.w[helper], "does did")) {
        buf_clear(&out);
    } else {
        put_words(&out, &s, helper, s.n); /* the asker is the subject: "which food is bad for me" */
    }
out:
    words_free(&s);
    char *clause = out.len ? with_case(buf_str(&out), false) : NULL;
    buf_free(&out);
    return clause;
}

/* The thing asked for in "What is my NAME?" and "Tell me my NAME.". Owned or NULL. */
static char *asked_thing(const char *question)
{
    words s;
    buf out = {0};
    if (!words_read(question, &s)) return NULL;
    size_t first = 0;
    if (s.n > 2 && is_one_of(s.w[0], "what who when where") && is_one_of(s.w[1], "is are was"))
        first = 2;
    else if (s.n > 2 && is_one_of(s.w[0], "tell") && is_one_of(s.w[1], "me"))
        first = 2;
    bool mine = first > 0 && is_one_of(s.w[first], "my") && predicate_start(&s, first) == s.n;
    if (mine) put_words(&out, &s, first, s.n);
    words_free(&s);
    char *thing = out.len ? buf_take(&out) : NULL;
    buf_free(&out);
    return thing;
}

/* --- words in place of others --------------------------------------------------------------- */

static const char *const synonyms[][2] = {
    {"favourite", "favorite"},
    {"favourite", "preferred"},
    {"colour", "color"},
    {"job", "occupation"},
    {"job", "work"},
    {"profession", "trade"},
    {"city", "town"},
    {"town", "city"},
    {"live", "reside"},
    {"house", "home"},
    {"learning", "studying"},
    {"study", "learn"},
    {"practising", "learning"},
    {"avoid", "stay away from"},
    {"ill", "sick"},
    {"called", "named"},
    {"prefer", "like most"},
    {"love", "like most"},
    {"tell", "remind"},
    {"know", "remember"},
    {"birthday", "date of birth"},
    {"food", "ingredient"},
    {"wife", "spouse"},
    {"husband", "spouse"},
    {"kids", "children"},
    {"children", "kids"},
    {"car", "vehicle"},
    {"phone", "telephone"},
    {"What is", "What's"},
    {"Where is", "Where's"},
    {"Who is", "Who's"},
    {"When is", "When's"},
};

/* The text with the first whole-word `from` replaced; NULL: it has none. Owned. */
static char *replaced(const char *text, const char *from, const char *to)
{
    size_t len = strlen(from);
    for (const char *p = strstr(text, from); p; p = strstr(p + 1, from)) {
        bool begins = p == text || p[-1] == ' ', ends = !p[len] || strchr(" ?.!,'", p[len]);
        if (!begins || !ends) continue;
        return xasprintf("%.*s%s%s", (int)(p - text), text, to, p + len);
    }
    return NULL;
}

/* --- frames ----------------------------------------------------------------------------------- */

/* %C the clause, %Q the question, %q with a small first letter, %T the thing, %t with a capital. */
static const char *const frames[] = {
    "Do you know %C?",
    "Tell me %C.",
    "Remind me %C.",
    "%t?",
    "Can you tell me %C?",
    "By the way, %q",
    "I forgot %C. Can you help?",
    "Do you still know %C?",
    "Remind me of %T, please.",
    "Could you remind me %C?",
    "I would like to know %C.",
    "Hey, %q",
    "Do you remember %C?",
    "What do you know about %T?",
    "Hello! %Q",
    "Let me know %C, please.",
    "Quick question: %q",
    "I wonder %C.",
    "Say %C.",
    "One more thing: %q",
    "Have I told you %C?",
    "Just tell me %T.",
    "%Q I can't remember.",
    "I am not sure %C. Are you?",
    "Please answer this: %q",
    "Can you name %T?",
};

static bool put_frame(buf *out, const char *frame, const char *question, const char *clause,
                      const char *thing)
{
    char *small = with_case(question, false), *capital = thing ? with_case(thing, true) : NULL;
    bool whole = true;
    for (const char *p = frame; *p && whole; p++) {
        if (*p != '%') {
            buf_putc(out, *p);
            continue;
        }
        p++;
        const char *part = *p == 'C'   ? clause
                           : *p == 'Q' ? question
                           : *p == 'q' ? small
                           : *p == 'T' ? thing
                                       : capital;
        whole = part != NULL;
        if (whole) buf_puts(out, part);
    }
    free(small);
    free(capital);
    return whole;
}

/* As people type in a hurry: no capitals but "I", no closing mark. Owned. */
static char *hurried(const char *question)
{
    char *text = with_case(question, false);
    size_t len = strlen(text);
    if (len > 0 && strchr("?.!", text[len - 1])) text[len - 1] = '\0';
    return text;
}

static void add_owned(wording_list *out, char *text, const char *question)
{
    if (text && !span_equal_folded(span_of(text), span_of(question)))
        (void)wording_list_add(out, text);
    free(text);
}

void wording_vary(const char *question, wording_list *out)
{
    char *clause = wording_clause(question), *thing = asked_thing(question);
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        add_owned(out, replaced(question, synonyms[i][0], synonyms[i][1]), question);
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        buf text = {0};
        if (put_frame(&text, frames[i], question, clause, thing))
            add_owned(out, xstrdup(buf_str(&text)), question);
        buf_free(&text);
        if (i == 2) add_owned(out, hurried(question), question);
    }
    free(clause);
    free(thing);
}

/* --- sides ------------------------------------------------------------------------------------ */

static const struct {
    const char *user, *other; /* as the user says it, and as it is said to them */
} sides[] = {{"I", "you"},     {"my", "your"},     {"I'm", "you're"}, {"I've", "you've"},
             {"I'd", "you'd"}, {"I'll", "you'll"}, {"mine", "yours"}, {"myself", "yourself"},
             {"me", "you"},    {"we", "you"},      {"our", "your"},   {"am", "are"},
             {"was", "were"}};
#define FIRST_VERB 11 /* from here on only beside "I" or "you" */

static bool is_speaker(const char *word)
{
    return word && is_one_of(word, "i you");
}

/* The word's other side; NULL: it has none. */
static const char *other_side(const words *s, size_t i, bool to_user)
{
    for (size_t k = 0; k < sizeof sides / sizeof *sides; k++) {
        const char *from = to_user ? sides[k].user : sides[k].other;
        if (!span_equal_folded(span_of(s->w[i]), span_of(from))) continue;
        bool beside =
            (i > 0 && is_speaker(s->w[i - 1])) || (i + 1 < s->n && is_speaker(s->w[i + 1]));
        if (k < FIRST_VERB || beside) return to_user ? sides[k].other : sides[k].user;
    }
    return NULL;
}

char *wording_turn(span text, bool to_user)
{
    words s = {0};
    char *marks[MOST_WORDS]; /* what follows each word; owned */
    buf out = {0};
    for (span word; s.n < MOST_WORDS && span_next_word(&text, &word); s.n++) {
        size_t len = word.len;
        while (len > 0 && strchr(".,;:!?", word.data[len - 1]))
            len--;
        s.w[s.n] = xmemdup0(word.data, len);
        marks[s.n] = xmemdup0(word.data + len, word.len - len);
    }
    for (size_t i = 0; i < s.n; i++) {
        const char *turned = other_side(&s, i, to_user);
        buf_printf(&out, "%s%s%s", i ? " " : "", turned ? turned : s.w[i], marks[i]);
    }
    for (size_t i = 0; i < s.n; i++)
        free(marks[i]);
    words_free(&s);
    char *turned = with_case(buf_str(&out), true);
    buf_free(&out);
    return turned;
}
