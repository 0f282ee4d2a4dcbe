#include "train/data/facts.h"

#include "base/mem.h"
#include "profiles/secret.h"
#include "train/data/fact_table.h"
#include "train/data/wording.h"
#include "train/random.h"

#include <stdlib.h>
#include <string.h>

#define ALL_WORDINGS   240 /* of all facts together, when nothing is said */
#define LEAST_WORDINGS 8   /* of each fact */
#define MOST_WORDINGS  30

/* --- pairs ------------------------------------------------------------------------------------ */

void fact_pairs_add(fact_pairs *p, const char *question, const char *answer, size_t number)
{
    p->items = xrealloc_array(p->items, p->n + 1, sizeof *p->items);
    p->items[p->n++] =
        (fact_pair){.question = xstrdup(question), .answer = xstrdup(answer), .fact = number};
}

void fact_pairs_free(fact_pairs *p)
{
    for (size_t i = 0; i < p->n; i++) {
        wipe_text(p->items[i].question);
        wipe_text(p->items[i].answer);
    }
    free(p->items);
    *p = (fact_pairs){0};
}

size_t fact_pairs_facts(const fact_pairs *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->items[i].fact >= n) n = p->items[i].fact + 1;
    return n;
}

/* Whether any word of the text is one of the list's. */
static bool has_word(span text, const char *list)
{
    for (span word; span_next_letters(&text, &word);) {
        buf folded = {0};
        span_lower(word, &folded);
        bool found = fact_word_in(buf_str(&folded), list);
        buf_free(&folded);
        if (found) return true;
    }
    return false;
}

#define ME  "i my me mine i'm i've i'd"
#define YOU "you your you're yours"

bool fact_about_user(span text)
{
    return has_word(text, ME);
}

bool fact_to_user(span text)
{
    return has_word(text, YOU);
}

/* A question, or a request to say something. */
static bool asks(span text)
{
    static const char requests[] =
        "tell say name remind please give let describe guess repeat show";
    span rest = text, word = {0};
    if (memchr(text.data, '?', text.len)) return true;
    return span_next_letters(&rest, &word) && has_word(word, requests);
}

static bool asks_about_user(span question, span answer)
{
    return asks(question) && span_count_words(question) <= 24 && span_count_words(answer) <= 24 &&
           fact_about_user(question) && fact_to_user(answer);
}

/* The next question and answer of a conversation from *at on. */
static bool next_turn(const chat_message *messages, size_t n, size_t *at, span *question,
                      span *answer)
{
    while (*at + 1 < n) {
        const chat_message *m = &messages[(*at)++];
        if (m->role != ROLE_USER || m[1].role != ROLE_ASSISTANT) continue;
        *question = span_trim((span){m->text, m->len});
        *answer = span_trim((span){m[1].text, m[1].len});
        return true;
    }
    return false;
}

/* The number of the fact that an answer states, a new one if no pair has it. */
static size_t number_of(const fact_pairs *p, const char *answer)
{
    for (size_t i = 0; i < p->n; i++)
        if (span_equal_folded(span_of(p->items[i].answer), span_of(answer)))
            return p->items[i].fact;
    return fact_pairs_facts(p);
}

static bool tells_known_fact(const char *answer)
{
    fact f;
    bool known = fact_read_answer(span_of(answer), &f);
    if (known) fact_free(&f);
    return known;
}

bool fact_pairs_add_conversation(fact_pairs *p, const chat_message *messages, size_t n)
{
    size_t sure = 0, turns = 0;
    span question, answer;
    for (size_t at = 0; next_turn(messages, n, &at, &question, &answer); turns++) {
        if (!asks_about_user(question, answer)) continue;
        char *q = xmemdup0(question.data, question.len), *a = xmemdup0(answer.data, answer.len);
        size_t number = number_of(p, a);
        sure += number < fact_pairs_facts(p) || tells_known_fact(a);
        fact_pairs_add(p, q, a, number);
        free(q);
        free(a);
    }
    return turns > 0 && 2 * sure > turns;
}

/* --- questions of a kind ---------------------------------------------------------------------- */

/* The question with %T replaced by the thing. Owned. */
static char *about_thing(const char *question, const char *thing)
{
    buf out = {0};
    for (const char *p = question; *p; p++) {
        if (p[0] == '%' && p[1] == 'T') {
            buf_puts(&out, thing);
            p++;
        } else {
            buf_putc(&out, *p);
        }
    }
    return buf_take(&out);
}

static void add_questions(const char *const *from, const fact *f, wording_list *out)
{
    for (; from && *from; from++) {
        char *question = about_thing(*from, f->thing);
        (void)wording_list_add(out, question);
        free(question);
    }
}

static const char stopwords[] =
    "that this with have from they them their your mine been were what when where which about "
    "there would could should will into over also very just than then some only every always never";

/* Words of a note that carry its meaning: what an answer must hold. */
void fact_note_words(const char *note, wording_list *out)
{
    span rest = span_of(note), word;
    while (span_next_letters(&rest, &word)) {
        buf folded = {0};
        span_lower(word, &folded);
        if (folded.len >= 4 && !fact_word_in(buf_str(&folded), stopwords))
            (void)wording_list_add(out, buf_str(&folded));
        buf_free(&folded);
    }
}

/* Questions about a note of no known kind, by its words. */
static void general_questions(const fact *f, wording_list *out)
{
    static const char *const frames[] = {
        "What did I tell you about %T?", "What do you know about me and %T?",
        "I told you something about %T. What was it?", "What was it about %T?",
        "Do you remember what I said about %T?"};
    wording_list words = {0};
    fact_note_words(f->note, &words);
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++)
        for (size_t w = 0; w < words.n && w < 6; w++) {
            char *question = about_thing(frames[i], words.items[w]);
            (void)wording_list_add(out, question);
            free(question);
        }
    wording_list_free(&words);
}

void fact_ask(const fact *f, wording_list *out)
{
    if (f->kind == FACT_GENERAL) {
        general_questions(f, out);
        return;
    }
    add_questions(fact_questions(f->kind), f, out);
    const char *const *more;
    for (size_t i = 0; (more = fact_questions_about(f->kind, f->thing, i)) != NULL; i++)
        add_questions(more, f, out);
}

static char *answer_of(const fact *f)
{
    return f->kind == FACT_GENERAL ? wording_turn(span_of(f->note), true) : fact_say(f, true);
}

/* Facts of kinds with fewer questions than these are asked for by the model too. */
#define ENOUGH_QUESTIONS 16

pf_status facts_make_pairs(engine *e, const fact *facts, size_t n, size_t first,
                           const facts_options *options, fact_pairs *out, facts_report *report,
                           pf_err *err)
{
    fact *few = xcalloc(n + 1, sizeof *few); /* borrowed texts */
    size_t n_few = 0, *numbers = xcalloc(n + 1, sizeof *numbers);
    report->n_facts += n;
    for (size_t i = 0; i < n; i++) {
        wording_list asked = {0};
        char *answer = answer_of(&facts[i]);
        fact_ask(&facts[i], &asked);
        for (size_t q = 0; q < asked.n; q++)
            fact_pairs_add(out, asked.items[q], answer, first + i);
        report->from_templates += asked.n;
        if (facts[i].kind == FACT_GENERAL || asked.n < ENOUGH_QUESTIONS) {
            numbers[n_few] = first + i;
            few[n_few++] = facts[i];
        }
        wording_list_free(&asked);
        free(answer);
    }
    pf_status status = facts_ask_model(e, few, n_few, numbers, options, out, report, err);
    free(few);
    free(numbers);
    return status;
}

/* The answer as a note of the user's, if it tells no known kind: "You take bus 14." -> "I take bus
 * 14." */
static bool unknown_kind(const char *answer, fact *out)
{
    fact known;
    if (fact_read_answer(span_of(answer), &known)) {
        fact_free(&known);
        return false;
    }
    *out = (fact){.kind = FACT_GENERAL,
                  .thing = xstrdup(""),
                  .value = xstrdup(""),
                  .note = wording_turn(span_of(answer), false)};
    return true;
}

pf_status facts_ask_about_given(engine *e, const facts_options *options, fact_pairs *pairs,
                                facts_report *report, pf_err *err)
{
    const size_t n = fact_pairs_facts(pairs);
    fact *facts = xcalloc(n + 1, sizeof *facts);
    size_t n_unknown = 0, *numbers = xcalloc(n + 1, sizeof *numbers);
    for (size_t number = 0; number < n; number++) {
        size_t i = 0;
        while (i < pairs->n && pairs->items[i].fact != number)
            i++;
        if (i == pairs->n || !unknown_kind(pairs->items[i].answer, &facts[n_unknown])) continue;
        numbers[n_unknown++] = number;
    }
    pf_status status = facts_ask_model(e, facts, n_unknown, numbers, options, pairs, report, err);
    for (size_t i = 0; i < n_unknown; i++)
        fact_free(&facts[i]);
    free(facts);
    free(numbers);
    return status;
}

/* --- other wordings --------------------------------------------------------------------------- */

/* Questions of the kind that the answer tells; none if it tells no known one. */
static void questions_by_answer(const char *answer, wording_list *out)
{
    fact f;
    if (!fact_read_answer(span_of(answer), &f)) return;
    fact_ask(&f, out);
    fact_free(&f);
}

/* Picks from the lists in turn, one of each, until `most` pairs are added. */
static size_t pick_in_turn(const wording_list *lists, size_t n, wording_list *known, size_t most,
                           fact_pairs *out, const fact_pair *like)
{
    size_t added = 0;
    for (size_t round = 0, left = 1; left > 0 && added < most; round++) {
        left = 0;
        for (size_t i = 0; i < n && added < most; i++) {
            if (round >= lists[i].n) continue;
            left++;
            if (!wording_list_add(known, lists[i].items[round])) continue;
            fact_pairs_add(out, lists[i].items[round], like->answer, like->fact);
            added++;
        }
    }
    return added;
}

static void shuffle(wording_list *list, uint64_t seed)
{
    size_t *order = xcalloc(list->n + 1, sizeof *order);
    char **items = xcalloc(list->n + 1, sizeof *items);
    random_permutation(seed, order, list->n);
    for (size_t i = 0; i < list->n; i++)
        items[i] = list->items[order[i]];
    free(order);
    free(list->items);
    list->items = items;
}

/* Other wordings of one fact. */
static void multiply_one(fact_pairs *pairs, size_t number, size_t wordings, uint64_t seed,
                         facts_report *report)
{
    wording_list known = {0}, kind = {0};
    char *answer = NULL;
    for (size_t i = 0; i < pairs->n; i++) {
        if (pairs->items[i].fact != number) continue;
        (void)wording_list_add(&known, pairs->items[i].question);
        if (!answer) answer = xstrdup(pairs->items[i].answer);
    }
    if (!answer) return;
    const fact_pair like = {.answer = answer, .fact = number};
    size_t have = known.n, before = pairs->n;
    questions_by_answer(answer, &kind);
    shuffle(&kind, seed + number);
    if (have < wordings) have += pick_in_turn(&kind, 1, &known, wordings - have, pairs, &like);
    size_t n = known.n;
    wording_list *varied = xcalloc(n, sizeof *varied);
    for (size_t i = 0; i < n; i++) {
        wording_vary(known.items[i], &varied[i]);
        shuffle(&varied[i], seed + 31 * number + i);
    }
    if (have < wordings) (void)pick_in_turn(varied, n, &known, wordings - have, pairs, &like);
    report->wordings += pairs->n - before;
    for (size_t i = 0; i < n; i++)
        wording_list_free(&varied[i]);
    free(varied);
    wording_list_free(&known);
    wording_list_free(&kind);
    free(answer);
}

void facts_multiply(fact_pairs *pairs, size_t wordings, uint64_t seed, facts_report *report)
{
    size_t n = fact_pairs_facts(pairs);
    if (n == 0) return;
    if (wordings == 0) {
        wordings = ALL_WORDINGS / n;
        if (wordings < LEAST_WORDINGS) wordings = LEAST_WORDINGS;
        if (wordings > MOST_WORDINGS) wordings = MOST_WORDINGS;
    }
    for (size_t i = 0; i < n; i++)
        multiply_one(pairs, i, wordings, seed, report);
}

/* --- conversations ---------------------------------------------------------------------------- */

#define MOST_IN_A_ROW 3

/* A conversation being put together. */
typedef struct {
    chat_message messages[4 + 2 * MOST_IN_A_ROW];
    unsigned char learn[4 + 2 * MOST_IN_A_ROW];
    size_t n;
} lesson;

static void lesson_add_pair(lesson *l, const fact_pair *p)
{
    l->messages[l->n++] =
        (chat_message){.role = ROLE_USER, .text = p->question, .len = strlen(p->question)};
    l->learn[l->n] = 1;
    l->messages[l->n++] =
        (chat_message){.role = ROLE_ASSISTANT, .text = p->answer, .len = strlen(p->answer)};
}

static void lesson_add_unrelated(lesson *l, const replay_set *r, size_t number)
{
    l->learn[l->n + 1] = replay_messages(r, number, l->messages + l->n);
    if (l->messages[l->n + 1].len > 0) l->n += 2;
}

pf_status facts_add_examples(train_dataset *d, const model *m, const fact_pairs *pairs,
                             const facts_layout *layout, const train_dataset_options *options,
                             size_t *n_after, pf_err *err)
{
    const size_t n = pairs->n > layout->skip ? pairs->n - layout->skip : 0;
    const bool unrelated = layout->unrelated && layout->unrelated->n > 0;
    const size_t after = unrelated ? (size_t)(layout->after_share * (double)n + 0.5) : 0;
    size_t *order = xcalloc(n + 1, sizeof *order), talk = 0;
    pf_status status = PF_OK;
    random_permutation(layout->seed, order, n);
    for (size_t at = 0, number = 0; at < n && status == PF_OK; number++) {
        lesson l = {0};
        size_t in_a_row = at < after ? MOST_IN_A_ROW : 1 + number % MOST_IN_A_ROW;
        for (size_t i = 0; at < after && i < 1 + number % 2; i++)
            lesson_add_unrelated(&l, layout->unrelated, talk++);
        for (size_t i = 0; i < in_a_row && at < n; i++, at++)
            lesson_add_pair(&l, &pairs->items[layout->skip + order[at]]);
        status = train_dataset_add(d, m, l.messages, l.learn, l.n, options, "a made question", err);
    }
    if (n_after) *n_after = after;
    free(order);
    return status;
}
