#include "train/data/distill.h"

#include "base/mem.h"
#include "profiles/secret.h"
#include "train/data/facts.h"
#include "train/data/replay.h"
#include "train/eval/evaluate.h"
#include "train/random.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_TOKENS  96
#define MOST_OWN       40 /* questions of the user's */
#define MOST_QUESTIONS 64 /* own and general ones */
#define FACT_QUESTIONS 16 /* for each fact in the text */

/* A question, and what its answer must hold. */
typedef struct {
    char *text;        /* owned */
    const fact *about; /* NULL: any answer will do */
} question;

typedef struct {
    question *items;
    size_t n;
} question_list;

static void add_question(question_list *list, const char *text, const fact *about)
{
    list->items = xrealloc_array(list->items, list->n + 1, sizeof *list->items);
    list->items[list->n++] = (question){xstrdup(text), about};
}

static void free_questions(question_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        wipe_text(list->items[i].text);
    free(list->items);
}

/* --- questions -------------------------------------------------------------------------------- */

/* "The user's dog is called Biscuit." as the user would say it: "My dog is called Biscuit." */
static char *said_by_user(const char *text)
{
    static const char *const pairs[][2] = {
        {"The user's ", "My "},       {"the user's ", "my "},         {"The user is ", "I am "},
        {"the user is ", "I am "},    {"The user lives", "I live"},   {"The user works", "I work"},
        {"The user has ", "I have "}, {"The user likes ", "I like "}, {"The user was ", "I was "},
        {"The user ", "I "}};
    buf out = {0};
    while (*text) {
        size_t i = 0, n = sizeof pairs / sizeof *pairs;
        while (i < n && strncmp(text, pairs[i][0], strlen(pairs[i][0])) != 0)
            i++;
        if (i == n) {
            buf_putc(&out, *text++);
            continue;
        }
        buf_puts(&out, pairs[i][1]);
        text += strlen(pairs[i][0]);
    }
    return buf_take(&out);
}

static void ask_for_facts(const fact_list *facts, uint64_t seed, question_list *out)
{
    for (size_t i = 0; i < facts->n; i++) {
        wording_list asked = {0};
        fact_ask(&facts->items[i].fact, &asked);
        size_t *order = xcalloc(asked.n + 1, sizeof *order);
        random_permutation(seed + i, order, asked.n);
        for (size_t k = 0; k < asked.n && k < FACT_QUESTIONS; k++)
            add_question(out, asked.items[order[k]], &facts->items[i].fact);
        free(order);
        wording_list_free(&asked);
    }
}

static void ask_the_rest(const distill_options *o, question_list *out)
{
    const size_t own = o->asked ? o->asked->n : 0, general = replay_questions();
    size_t n = 0, *order = xcalloc(own + general, sizeof *order);
    random_permutation(o->seed, order, own);
    for (; n < own && n < MOST_OWN; n++)
        add_question(out, o->asked->items[order[n]], NULL);
    random_permutation(o->seed, order, general);
    for (size_t k = 0; k < general && n < MOST_QUESTIONS; k++, n++)
        add_question(out, replay_question(order[k]), NULL);
    free(order);
}

/* All of them; facts receives those of the text, which some of the questions point to. */
static question_list choose_questions(const distill_options *o, fact_list *facts)
{
    question_list questions = {0};
    char *said = said_by_user(o->text);
    fact_list_find(facts, span_of(said), 0);
    ask_for_facts(facts, o->seed, &questions);
    ask_the_rest(o, &questions);
    wipe_text(said);
    return questions;
}

/* --- answers ---------------------------------------------------------------------------------- */

/* The example of the last answer in both forms, or in none: the same targets behind the teacher's
 * conversation and behind the one without the text. */
static pf_status add_both(const model *m, const eval_talk *t, const train_dataset_options *o,
                          size_t context, train_dataset *teacher, train_dataset *pupil, pf_err *err)
{
    const size_t taught = teacher->n, learned = pupil->n;
    eval_talk without = *t;
    without.messages++; /* the system text */
    without.n_messages--;
    pf_status status = evaluate_add_answer(teacher, m, t, POSITIONS_NONE, context, err);
    if (status == PF_OK)
        status = evaluate_add_answer(pupil, m, &without, o->policy, o->max_tokens, err);
    if (status != PF_OK) return status;
    bool same = teacher->n == taught + 1 && pupil->n == learned + 1 &&
                teacher->items[taught].n_targets == pupil->items[learned].n_targets;
    if (!same) {
        train_dataset_cut(teacher, taught);
        train_dataset_cut(pupil, learned);
    }
    return PF_OK;
}

/* A label of its own: examples that share one are kept aside together. */
static void label_example(train_example *e, size_t number)
{
    free(e->label);
    e->label = xasprintf("question %zu", number);
}

static bool answer_holds(const question *q, const eval_talk *t)
{
    if (t->n_answers == 0) return false;
    const span text = {buf_str(&t->answers[0].text), t->answers[0].text.len};
    return !q->about || span_contains(text, span_of(q->about->value), true);
}

static pf_status take_answers(engine *e, const question_list *questions, const eval_talk *talks,
                              const train_dataset_options *o, train_dataset *teacher,
                              train_dataset *pupil, size_t *n_refused, pf_err *err)
{
    pf_status status = PF_OK;
    for (size_t i = 0; i < questions->n && status == PF_OK; i++) {
        const size_t before = pupil->n;
        if (answer_holds(&questions->items[i], &talks[i]))
            status = add_both(engine_model(e), &talks[i], o, (size_t)engine_context(e), teacher,
                              pupil, err);
        else
            ++*n_refused;
        if (pupil->n > before) label_example(&pupil->items[before], i + 1);
    }
    return status;
}

/* Moves the teacher's states to the pupil's examples. */
static pf_status add_states(engine *e, const train_dataset *teacher, train_dataset *pupil,
                            const distill_options *o, pf_err *err)
{
    float **states = xcalloc(teacher->n + 1, sizeof *states);
    pf_status status = evaluate_states(e, teacher, o->cancelled, o->ctx, states, err);
    for (size_t i = 0; i < teacher->n && status == PF_OK; i++) {
        pupil->items[i].teacher = states[i];
        pupil->items[i].width = (size_t)model_get_config(engine_model(e))->hidden;
    }
    free(states);
    return status;
}

pf_status distill_add(train_dataset *d, engine *e, const distill_options *o,
                      const train_dataset_options *data_options, size_t *n_asked, size_t *n_refused,
                      pf_err *err)
{
    const eval_settings settings = {
        .max_tokens = ANSWER_TOKENS, .user = o->user, .cancelled = o->cancelled, .ctx = o->ctx};
    train_dataset teacher = {0}, pupil = {0};
    fact_list facts = {0};
    question_list questions = choose_questions(o, &facts);
    eval_talk *talks = xcalloc(questions.n, sizeof *talks);
    for (size_t i = 0; i < questions.n; i++) {
        const char *text = questions.items[i].text;
        eval_talk_add(&talks[i], ROLE_SYSTEM, o->text, strlen(o->text));
        eval_talk_add(&talks[i], ROLE_USER, text, strlen(text));
    }
    *n_asked = questions.n;
    *n_refused = 0;
    pf_status status = evaluate_answers(e, talks, questions.n, &settings, err);
    if (status == PF_OK)
        status = take_answers(e, &questions, talks, data_options, &teacher, &pupil, n_refused, err);
    if (status == PF_OK) status = add_states(e, &teacher, &pupil, o, err);
    if (status == PF_OK) train_dataset_move(d, &pupil);
    for (size_t i = 0; i < questions.n; i++)
        eval_talk_free(&talks[i]);
    free(talks);
    free_questions(&questions);
    fact_list_free(&facts);
    train_dataset_free(&teacher);
    train_dataset_free(&pupil);
    return status;
}

size_t distill_questions(const distill_options *o)
{
    fact_list facts = {0};
    question_list questions = choose_questions(o, &facts);
    const size_t n = questions.n;
    free_questions(&questions);
    fact_list_free(&facts);
    return n;
}
