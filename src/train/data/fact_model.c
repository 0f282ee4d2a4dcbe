/* Questions and answers about facts that the model writes itself. */
#include "train/data/fact_table.h"

#include "base/mem.h"
#include "profiles/secret.h"
#include "train/eval/evaluate.h"

#include <stdlib.h>
#include <string.h>

#define QUESTION_TOKENS 96
#define ANSWER_TOKENS   40

/* Whether an answer holds the note's words. */
static bool holds_note(const fact *f, span answer)
{
    if (*f->value) return span_contains(answer, span_of(f->value), true);
    wording_list words = {0};
    size_t found = 0;
    fact_note_words(f->note, &words);
    for (size_t i = 0; i < words.n; i++)
        found += span_contains(answer, span_of(words.items[i]), true);
    bool holds = found > 0 && 2 * found >= words.n;
    wording_list_free(&words);
    return holds;
}

/* The question in a line of a list ("2. What is your ...?") as the user would ask it. Owned; NULL:
 * none that asks about the user, or one that gives the answer away. */
static char *question_in(span line, const fact *f)
{
    line = span_trim(line);
    while (line.len > 0 && strchr("0123456789.)-*\"' ", line.data[0])) {
        line.data++;
        line.len--;
    }
    while (line.len > 0 && strchr("\"' ", line.data[line.len - 1]))
        line.len--;
    bool whole = line.len > 0 && line.data[line.len - 1] == '?';
    if (!whole || span_count_words(line) < 3 || span_count_words(line) > 20) return NULL;
    char *question = wording_turn(line, false);
    bool gives_away = *f->value && span_contains(span_of(question), span_of(f->value), true);
    if (fact_about_user(span_of(question)) && !gives_away) return question;
    free(question);
    return NULL;
}

static pf_status write_questions(engine *e, const fact *facts, size_t n, const facts_options *o,
                                 wording_list *lists, pf_err *err)
{
    const eval_settings settings = {
        .max_tokens = QUESTION_TOKENS, .user = o->user, .cancelled = o->cancelled, .ctx = o->ctx};
    eval_talk *talks = xcalloc(n, sizeof *talks);
    char **prompts = xcalloc(n, sizeof *prompts);
    for (size_t i = 0; i < n; i++) {
        prompts[i] =
            xasprintf("A friend told you: \"%s\" Write a list of five short questions that "
                      "you could ask your friend about this.",
                      facts[i].note);
        eval_talk_add(&talks[i], ROLE_USER, prompts[i], strlen(prompts[i]));
    }
    pf_status status = evaluate_answers(e, talks, n, &settings, err);
    for (size_t i = 0; i < n; i++) {
        if (status == PF_OK && talks[i].n_answers > 0) {
            span text = {buf_str(&talks[i].answers[0].text), talks[i].answers[0].text.len}, line;
            while (span_next_full_line(&text, &line)) {
                char *question = question_in(line, &facts[i]);
                if (question) (void)wording_list_add(&lists[i], question);
                free(question);
            }
        }
        eval_talk_free(&talks[i]);
        wipe_text(prompts[i]);
    }
    free(prompts);
    free(talks);
    return status;
}

/* The answer if it is one to learn: whole, short, said to the user, with the note's words. */
static bool answer_fits(const fact *f, const eval_talk *t, char **out)
{
    if (t->n_answers == 0) return false;
    const eval_answer *a = &t->answers[0];
    span text = span_trim((span){buf_str(&a->text), a->text.len});
    bool ended = a->n_content < a->ids.len;
    if (!ended || span_count_words(text) > 24 || !fact_to_user(text) || !holds_note(f, text))
        return false;
    *out = xmemdup0(text.data, text.len);
    return true;
}

static pf_status answer_questions(engine *e, const fact *facts, size_t n, const size_t *numbers,
                                  const wording_list *lists, const facts_options *o,
                                  fact_pairs *out, facts_report *report, pf_err *err)
{
    const eval_settings settings = {
        .max_tokens = ANSWER_TOKENS, .user = o->user, .cancelled = o->cancelled, .ctx = o->ctx};
    size_t total = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        total += lists[i].n;
    eval_talk *talks = xcalloc(total + 1, sizeof *talks);
    char **systems = xcalloc(n, sizeof *systems);
    for (size_t i = 0; i < n; i++) {
        systems[i] =
            xasprintf("The user has told you: \"%s\" Answer the user's question about this "
                      "in one short sentence that begins with \"You\" or \"Your\".",
                      facts[i].note);
        for (size_t q = 0; q < lists[i].n; q++, at++) {
            eval_talk_add(&talks[at], ROLE_SYSTEM, systems[i], strlen(systems[i]));
            eval_talk_add(&talks[at], ROLE_USER, lists[i].items[q], strlen(lists[i].items[q]));
        }
    }
    pf_status status = total ? evaluate_answers(e, talks, total, &settings, err) : PF_OK;
    at = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t q = 0; q < lists[i].n; q++, at++) {
            char *answer = NULL;
            bool fits = status == PF_OK && answer_fits(&facts[i], &talks[at], &answer);
            if (fits) fact_pairs_add(out, lists[i].items[q], answer, numbers[i]);
            report->from_model += fits;
            report->refused += !fits;
            free(answer);
            eval_talk_free(&talks[at]);
        }
        wipe_text(systems[i]);
    }
    free(systems);
    free(talks);
    return status;
}

pf_status facts_ask_model(engine *e, const fact *facts, size_t n, const size_t *numbers,
                          const facts_options *options, fact_pairs *out, facts_report *report,
                          pf_err *err)
{
    if (!e || n == 0) return PF_OK;
    wording_list *lists = xcalloc(n, sizeof *lists);
    pf_status status = write_questions(e, facts, n, options, lists, err);
    if (status == PF_OK)
        status = answer_questions(e, facts, n, numbers, lists, options, out, report, err);
    for (size_t i = 0; i < n; i++)
        wording_list_free(&lists[i]);
    free(lists);
    return status;
}
