#include "base/mem.h"
#include "profiles/secret.h"
#include "train/data/gather.h"
#include "train/job.h"
#include "train/live/live.h"
#include "train/live/live_request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Moves what people look at out of the data set. */
static void describe(train_dataset *d, train_plan *out)
{
    out->n_sources = d->n_sources;
    out->n_cut = d->n_cut;
    out->n_tokens = train_dataset_tokens(d, false);
    out->n_learned = train_dataset_targets(d, false);
    out->n_held_out_learned = train_dataset_targets(d, true);
    out->examples = xcalloc(d->n + 1, sizeof *out->examples);
    out->skipped = xcalloc(d->n_skipped + 1, sizeof *out->skipped);
    for (; out->n_examples < d->n; out->n_examples++) {
        train_example *e = &d->items[out->n_examples];
        out->examples[out->n_examples] = (train_plan_example){.label = e->label,
                                                              .question = e->question,
                                                              .answer = e->answer,
                                                              .n_tokens = (size_t)e->length,
                                                              .n_learned = (size_t)e->n_targets,
                                                              .repeat = e->repeat,
                                                              .held_out = e->held_out};
        e->label = e->question = e->answer = NULL;
    }
    for (; out->n_skipped < d->n_skipped; out->n_skipped++) {
        train_skipped *s = &d->skipped[out->n_skipped];
        out->skipped[out->n_skipped] = (train_plan_skipped){s->label, s->reason};
        s->label = s->reason = NULL;
    }
}

/* What an epoch goes over. */
typedef struct {
    size_t examples, tokens;
} plan_size;

static plan_size measure(const train_dataset *d)
{
    plan_size size = {.examples = train_dataset_repeats(d)};
    for (size_t i = 0; i < d->n; i++)
        if (!d->items[i].held_out)
            size.tokens += (size_t)d->items[i].repeat * (size_t)d->items[i].length;
    return size;
}

static void count_steps(plan_size size, const train_job_options *o, train_plan *out)
{
    const train_steps steps = train_job_steps(size.examples, o);
    double rate = live_last_rate();
    double epochs = steps.per_epoch ? (double)steps.all / (double)steps.per_epoch : 0;
    out->n_steps = steps.all;
    if (size.tokens > 0 && rate > 0) out->seconds = epochs * (double)size.tokens / rate;
}

/* What is distilled is written by the model first: every question counts as an example, of a length
 * that nobody knows. */
static pf_status check(const train_dataset *d, const train_request *r, const train_job_options *o,
                       train_plan *out, pf_err *reason)
{
    plan_size size = measure(d);
    if (!r->distill) {
        count_steps(size, o, out);
        return train_job_check(d, 0, o, reason);
    }
    const size_t asked = out->added.n_distilled;
    size.examples = asked - train_dataset_kept_aside(r->held_out, asked);
    count_steps(size, o, out);
    return train_job_check_count(size.examples, o, reason);
}

static pf_status find_start(session *s, const train_request *r, train_plan *out, pf_err *err)
{
    profile_info info = {0};
    if (!r->profile) return PF_OK;
    pf_status status = profile_get(s, r->profile, &info, err);
    if (status == PF_OK)
        out->goes_on = info.has_adapter && !r->fresh &&
                       strcmp(info.current.kind, train_method_name(r->method)) == 0;
    profile_info_free(&info);
    return status;
}

pf_status train_live_plan(session *s, engine *e, const train_request *r, train_plan *out,
                          pf_err *err)
{
    train_dataset d = {0};
    lessons_seen seen = {0};
    train_job_options options;
    pf_err reason = {0};
    *out = (train_plan){.seconds = NAN};
    pf_status status = find_start(s, r, out, err);
    if (status == PF_OK) status = gather_examples(s, engine_model(e), r, &d, NULL, &seen, err);
    if (status == PF_OK)
        status = lessons_add(&d, engine_model(e), NULL, s, r, &seen, NULL, NULL, &out->added, err);
    options = live_request_options(r, &d);
    if (status == PF_OK) {
        out->enough = check(&d, r, &options, out, &reason) == PF_OK;
        out->hint = xstrdup(reason.text);
        describe(&d, out);
    }
    lessons_seen_free(&seen);
    train_dataset_free(&d);
    return status;
}

pf_status train_live_count(session *s, int64_t profile, size_t answers[LEARN_REWRITES + 1],
                           pf_err *err)
{
    return gather_count(s, profile, answers, err);
}

void train_plan_free(train_plan *p)
{
    for (size_t i = 0; i < p->n_examples; i++) {
        wipe_text(p->examples[i].label);
        wipe_text(p->examples[i].question);
        wipe_text(p->examples[i].answer);
    }
    for (size_t i = 0; i < p->n_skipped; i++)
        train_plan_skipped_free(&p->skipped[i]);
    free(p->examples);
    free(p->skipped);
    free(p->hint);
    *p = (train_plan){0};
}
