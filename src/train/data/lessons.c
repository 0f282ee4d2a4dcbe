#include "train/data/lessons.h"

#include "base/mem.h"
#include "profiles/notes.h"
#include "profiles/secret.h"
#include "train/data/distill.h"
#include "train/data/gather.h"
#include "train/data/replay.h"

#include <stdlib.h>

#define DEFAULT_REPLAY 40
#define DEFAULT_AFTER  0.25
#define REPLAY_TOKENS  96

#define MOST_QUESTIONS      400 /* kept for distilling */
#define MOST_QUESTION_BYTES 2000

/* --- what the data holds ---------------------------------------------------------------------- */

static void keep_question(lessons_seen *s, const chat_message *messages, size_t n)
{
    size_t i = 0;
    while (i < n && messages[i].role != ROLE_USER)
        i++;
    if (i == n || messages[i].len > MOST_QUESTION_BYTES || s->questions.n == MOST_QUESTIONS) return;
    char *text = xmemdup0(messages[i].text, messages[i].len);
    if (*text) (void)wording_list_add(&s->questions, text);
    free(text);
}

void lessons_see(void *ctx, const chat_message *messages, size_t n)
{
    lessons_seen *s = ctx;
    s->n_conversations++;
    s->n_asking += fact_pairs_add_conversation(&s->asked, messages, n);
    keep_question(s, messages, n);
    for (size_t i = 0; i < n; i++)
        if (messages[i].role == ROLE_USER)
            fact_list_find(&s->found, (span){messages[i].text, messages[i].len}, 0);
}

void lessons_seen_free(lessons_seen *s)
{
    fact_pairs_free(&s->asked);
    fact_list_free(&s->found);
    wording_list_free(&s->questions);
    wipe_text(s->system);
    *s = (lessons_seen){0};
}

/* --- facts ------------------------------------------------------------------------------------ */

typedef struct {
    fact *items;
    size_t n;
} fact_array;

static void take_fact(fact_array *to, const char *text, bool any)
{
    fact f;
    if (!fact_read(span_of(text), any, &f)) return;
    to->items = xrealloc_array(to->items, to->n + 1, sizeof *to->items);
    to->items[to->n++] = f;
}

static void free_facts(fact_array *a)
{
    for (size_t i = 0; i < a->n; i++)
        fact_free(&a->items[i]);
    free(a->items);
    *a = (fact_array){0};
}

static pf_status take_notes(session *s, int64_t profile, fact_array *to, pf_err *err)
{
    note_list notes = {0};
    if (!s) return PF_OK;
    pf_status status = note_list_load(s, profile, &notes, err);
    for (size_t i = 0; i < notes.n && status == PF_OK; i++)
        if (notes.items[i].state == NOTE_CONFIRMED) take_fact(to, notes.items[i].text, true);
    note_list_free(&notes);
    return status;
}

/* Whether an example that is kept aside asks this. */
static bool is_kept_aside(const train_dataset *d, const char *question)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->items[i].held_out &&
            span_equal(span_trim(span_of(d->items[i].question)), span_of(question)))
            return true;
    return false;
}

/* All but what is kept aside: other wordings of it would be learned. */
static void copy_pairs(const fact_pairs *from, const train_dataset *d, fact_pairs *to)
{
    for (size_t i = 0; i < from->n; i++)
        if (!is_kept_aside(d, from->items[i].question))
            fact_pairs_add(to, from->items[i].question, from->items[i].answer, from->items[i].fact);
}

/* The pairs that are learned: given ones first, then those made of notes and statements. */
static pf_status collect_pairs(const train_dataset *d, engine *e, session *s,
                               const train_request *r, const lessons_seen *seen,
                               const facts_options *options, fact_pairs *pairs, train_added *added,
                               pf_err *err)
{
    fact_array facts = {0};
    facts_report made = {0};
    added->n_found = seen->found.n;
    if (r->facts == LEARN_NO_FACTS) return PF_OK;
    pf_status status = take_notes(s, r->profile, &facts, err);
    added->n_notes = facts.n;
    for (size_t i = 0; i < seen->found.n && r->facts == LEARN_FOUND_FACTS; i++)
        take_fact(&facts, seen->found.items[i].fact.note, false);
    if (2 * seen->n_asking > seen->n_conversations) copy_pairs(&seen->asked, d, pairs);
    added->n_given = pairs->n;
    if (status == PF_OK) status = facts_ask_about_given(e, options, pairs, &made, err);
    if (status == PF_OK)
        status = facts_make_pairs(e, facts.items, facts.n, fact_pairs_facts(pairs), options, pairs,
                                  &made, err);
    if (status == PF_OK) facts_multiply(pairs, (size_t)r->wordings, r->seed, &made);
    added->n_by_kind = made.from_templates;
    added->n_by_model = made.from_model;
    added->n_refused = made.refused;
    added->n_reworded = made.wordings;
    added->n_pairs = pairs->n;
    added->n_facts = fact_pairs_facts(pairs);
    free_facts(&facts);
    return status;
}

/* --- all of it -------------------------------------------------------------------------------- */

static pf_status ask_replay(engine *e, const train_request *r, const char *system, bool facts,
                            const facts_options *making, replay_set *out, pf_err *err)
{
    int n = r->replay ? r->replay : facts ? DEFAULT_REPLAY : 0;
    if (!e || n <= 0) return PF_OK;
    const replay_options o = {.n = (size_t)n,
                              .system = system,
                              .user = making->user,
                              .max_tokens = REPLAY_TOKENS,
                              .seed = r->seed,
                              .cancelled = making->cancelled,
                              .ctx = making->ctx};
    return replay_ask(e, &o, out, err);
}

/* The given examples have only lent their questions. */
static pf_status distill(train_dataset *d, engine *e, const train_request *r,
                         const lessons_seen *seen, const facts_options *making, train_added *added,
                         pf_err *err)
{
    const train_dataset_options options = gather_options(r, seen->system);
    const distill_options o = {.text = r->distill,
                               .asked = &seen->questions,
                               .seed = r->seed,
                               .user = making->user,
                               .cancelled = making->cancelled,
                               .ctx = making->ctx};
    train_dataset_cut(d, 0);
    if (!e) {
        added->n_distilled = distill_questions(&o);
        return PF_OK;
    }
    pf_status status = distill_add(d, e, &o, &options, &added->n_distilled, &added->n_refused, err);
    if (status == PF_OK) train_dataset_hold_out(d, r->held_out, r->seed);
    return status;
}

pf_status lessons_add(train_dataset *d, const model *m, engine *e, session *s,
                      const train_request *r, const lessons_seen *seen,
                      bool (*cancelled)(void *ctx), void *ctx, train_added *added, pf_err *err)
{
    fact_pairs pairs = {0};
    replay_set replay = {0};
    const train_dataset_options options = gather_options(r, seen->system);
    /* What is asked holds the user's texts: its cached pages are the user's too. */
    const facts_options making = {.seed = r->seed,
                                  .user = s ? session_engine_user(s) : 0,
                                  .cancelled = cancelled,
                                  .ctx = ctx};
    *added = (train_added){0};
    if (r->distill) return distill(d, e, r, seen, &making, added, err);
    pf_status status = collect_pairs(d, e, s, r, seen, &making, &pairs, added, err);
    if (status == PF_OK)
        status = ask_replay(e, r, seen->system, pairs.n > 0, &making, &replay, err);
    if (status == PF_OK && pairs.n > 0) {
        const facts_layout layout = {.unrelated = &replay,
                                     .after_share = r->after ? *r->after : DEFAULT_AFTER,
                                     .skip = added->n_given,
                                     .seed = r->seed};
        status = facts_add_examples(d, m, &pairs, &layout, &options, &added->n_after, err);
        d->facts = true;
    }
    size_t before = d->n;
    if (status == PF_OK) status = replay_add(d, m, &replay, &options, err);
    added->n_replayed = d->n - before;
    fact_pairs_free(&pairs);
    replay_free(&replay);
    return status;
}
