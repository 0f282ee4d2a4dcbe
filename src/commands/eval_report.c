#include "commands/eval_report.h"

#include "base/mem.h"
#include "commands/jsonl.h"
#include "commands/print.h"
#include "train/span.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- scoring -------------------------------------------------------------------------------- */

/* Answers that an item asks for; those that failed score 0. */
static size_t count_wanted(const eval_set *set, size_t item)
{
    const json_t *turns = json_object_get(json_array_get(set->items, item), "turns");
    return turns ? json_array_size(turns) : 1;
}

static bool holds_text(const eval_talk *t, span text)
{
    for (size_t i = 0; i < t->n_answers; i++)
        if (span_has_word((span){buf_str(&t->answers[i].text), t->answers[i].text.len}, text))
            return true;
    return false;
}

/* Whether one of the texts (a text, a list, or an object of such) is in own and not in base. */
static bool leaks(const json_t *texts, const eval_talk *own, const eval_talk *base)
{
    const json_t *one;
    const char *key;
    size_t i;
    span text = span_of_json(texts);
    if (text.len > 0) return holds_text(own, text) && !holds_text(base, text);
    json_array_foreach(texts, i, one) if (leaks(one, own, base)) return true;
    json_object_foreach((json_t *)(uintptr_t)texts, key,
                        one) if (leaks(one, own, base)) return true;
    return false;
}

/* The facts are the check's, or else whatever the items expect. */
static bool leaks_fact(const eval_set *set, size_t i)
{
    const eval_talk *own = &set->damage.own[i], *base = &set->damage.base[i];
    const json_t *facts = json_object_get(set->check, "facts"), *item;
    size_t k;
    if (facts) return leaks(facts, own, base);
    json_array_foreach(set->items, k, item)
    {
        if (leaks(json_object_get(item, "expect"), own, base)) return true;
    }
    return false;
}

static bool same_text(const eval_talk *a, const eval_talk *b)
{
    return a->n_answers > 0 && b->n_answers > 0 &&
           strcmp(buf_str(&a->answers[0].text), buf_str(&b->answers[0].text)) == 0;
}

void eval_set_score(eval_set *set)
{
    size_t n_rules = set->rules ? reward_count(set->rules) : 0;
    set->scores = xcalloc(set->n_talks, sizeof *set->scores);
    for (size_t i = 0; set->rules && i < set->n_talks; i++) {
        const json_t *item = json_array_get(set->items, i);
        size_t n = count_wanted(set, i);
        set->scores[i] = xcalloc(n, sizeof **set->scores);
        for (size_t k = 0; k < n; k++) {
            eval_score *s = &set->scores[i][k];
            s->values = xcalloc(n_rules, sizeof *s->values);
            if (k >= set->talks[i].n_answers) continue;
            const buf *text = &set->talks[i].answers[k].text;
            s->result = reward_score(set->rules, item, buf_str(text), text->len, s->values);
        }
    }
    for (size_t i = 0; i < set->damage.n; i++) {
        set->damage.n_leaks += leaks_fact(set, i);
        set->damage.n_same += same_text(&set->damage.own[i], &set->damage.base[i]);
    }
}

static void free_talks(eval_talk *talks, size_t n)
{
    for (size_t i = 0; talks && i < n; i++)
        eval_talk_free(&talks[i]);
    free(talks);
}

void eval_set_free(eval_set *set)
{
    for (size_t i = 0; set->scores && i < set->n_talks; i++) {
        for (size_t k = 0; set->scores[i] && k < count_wanted(set, i); k++)
            free(set->scores[i][k].values);
        free(set->scores[i]);
    }
    free(set->scores);
    free(set->losses);
    free_talks(set->talks, set->n_talks);
    free_talks(set->samples, set->n_samples);
    free_talks(set->damage.base, set->damage.n);
    free_talks(set->damage.own, set->damage.n);
    json_decref(set->damage.items);
    reward_free(set->rules);
    json_decref(set->check);
    json_decref(set->items);
    memset(set, 0, sizeof *set);
}

/* --- sums ----------------------------------------------------------------------------------- */

typedef struct {
    size_t n, n_hold, n_failed; /* items; all rules hold in every answer; not answered */
    double score, most;         /* mean; the best there can be */
    double *rules;              /* [rules] mean value */
    double *turns;              /* [n_turns] mean score of the first, second... answer */
    size_t n_turns;
} summary;

static void summarize(const eval_set *set, summary *out)
{
    size_t n_rules = reward_count(set->rules), n_answers = 0;
    size_t *in_turn = NULL;
    *out = (summary){.n = set->n_talks, .most = reward_most(set->rules)};
    for (size_t i = 0; i < set->n_talks; i++)
        if (count_wanted(set, i) > out->n_turns) out->n_turns = count_wanted(set, i);
    out->rules = xcalloc(n_rules, sizeof *out->rules);
    out->turns = xcalloc(out->n_turns, sizeof *out->turns);
    in_turn = xcalloc(out->n_turns, sizeof *in_turn);
    for (size_t i = 0; i < set->n_talks; i++) {
        size_t n = count_wanted(set, i);
        bool all = true;
        for (size_t k = 0; k < n; k++, n_answers++) {
            const eval_score *s = &set->scores[i][k];
            out->score += s->result.score / (double)n;
            out->turns[k] += s->result.score;
            in_turn[k]++;
            all = all && s->result.all_hold;
            for (size_t r = 0; r < n_rules; r++)
                out->rules[r] += s->values[r];
        }
        out->n_hold += all;
        out->n_failed += set->talks[i].error.status != PF_OK;
    }
    out->score /= (double)(out->n ? out->n : 1);
    for (size_t r = 0; r < n_rules; r++)
        out->rules[r] /= (double)(n_answers ? n_answers : 1);
    for (size_t k = 0; k < out->n_turns; k++)
        out->turns[k] /= (double)in_turn[k];
    free(in_turn);
}

static void free_summary(summary *s)
{
    free(s->rules);
    free(s->turns);
}

static eval_interval score_interval(const summary *s)
{
    eval_interval i = evaluate_wilson(s->score / s->most, s->n);
    return (eval_interval){i.low * s->most, i.high * s->most};
}

/* --- JSON ----------------------------------------------------------------------------------- */

static json_t *real_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *interval_json(eval_interval i)
{
    json_t *pair = json_array();
    json_array_append_new(pair, json_real(i.low));
    json_array_append_new(pair, json_real(i.high));
    return pair;
}

static json_t *reals_json(const double *values, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_real(values[i]));
    return list;
}

static void write_summary(const eval_set *set, json_t *o)
{
    summary s;
    summarize(set, &s);
    json_t *all = json_object(), *rules = json_array();
    json_object_set_new(o, "score", json_real(s.score));
    json_object_set_new(o, "n", json_integer((json_int_t)s.n));
    json_object_set_new(o, "interval", interval_json(score_interval(&s)));
    double share = s.n ? (double)s.n_hold / (double)s.n : 0;
    json_object_set_new(all, "n", json_integer((json_int_t)s.n_hold));
    json_object_set_new(all, "share", json_real(share));
    json_object_set_new(all, "interval", interval_json(evaluate_wilson(share, s.n)));
    json_object_set_new(o, "all_hold", all);
    for (size_t r = 0; r < reward_count(set->rules); r++) {
        json_t *rule = json_object();
        json_object_set_new(rule, "type", json_string(reward_type(set->rules, r)));
        json_object_set_new(rule, "mean", json_real(s.rules[r]));
        json_array_append_new(rules, rule);
    }
    json_object_set_new(o, "rules", rules);
    if (s.n_turns > 1) json_object_set_new(o, "turns", reals_json(s.turns, s.n_turns));
    if (s.n_failed) json_object_set_new(o, "failed", json_integer((json_int_t)s.n_failed));
    free_summary(&s);
}

static json_t *answer_json(const eval_answer *a)
{
    json_t *o = json_object();
    json_object_set_new(o, "text", json_text(buf_str(&a->text), a->text.len));
    json_object_set_new(o, "ids", json_ids(a->ids.ids, a->ids.len));
    json_object_set_new(o, "prompt_ids", json_ids(a->prompt_ids.ids, a->prompt_ids.len));
    json_object_set_new(o, "finish_reason", json_string(finish_reason_name(a->reason)));
    return o;
}

static json_t *answers_json(const eval_set *set, size_t i)
{
    const eval_talk *t = &set->talks[i];
    json_t *list = json_array();
    for (size_t k = 0; k < t->n_answers; k++) {
        json_t *o = answer_json(&t->answers[k]);
        if (set->rules) {
            const eval_score *s = &set->scores[i][k];
            json_object_set_new(o, "score", json_real(s->result.score));
            json_object_set_new(o, "rules", reals_json(s->values, reward_count(set->rules)));
        }
        json_array_append_new(list, o);
    }
    return list;
}

/* What an item asks: its turns, or the last text of the user. */
static json_t *prompt_json(const json_t *item)
{
    const json_t *messages = json_object_get(item, "messages"), *message;
    json_t *prompt = json_object_get(item, "turns");
    size_t i;
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (strcmp(role, "user") == 0) prompt = json_object_get(message, "content");
    }
    return prompt;
}

static json_t *items_json(const eval_set *set)
{
    json_t *list = json_array();
    const json_t *item;
    size_t i;
    json_array_foreach(set->items, i, item)
    {
        json_t *o = json_object();
        if (json_object_get(item, "id")) json_object_set(o, "id", json_object_get(item, "id"));
        if (prompt_json(item)) json_object_set(o, "prompt", prompt_json(item));
        if (i < set->n_talks) json_object_set_new(o, "answers", answers_json(set, i));
        if (i < set->n_talks && set->talks[i].error.status != PF_OK)
            json_object_set_new(o, "error", json_string(set->talks[i].error.text));
        if (set->losses && set->losses[i].n_targets)
            json_object_set_new(o, "loss", real_or_null(set->losses[i].loss));
        json_array_append_new(list, o);
    }
    return list;
}

static const char *first_text(const eval_talk *t, size_t k)
{
    return k < t->n_answers ? buf_str(&t->answers[k].text) : "";
}

static json_t *samples_json(const eval_set *set)
{
    json_t *list = json_array();
    for (size_t i = 0; i < set->n_samples; i++) {
        for (size_t k = 0; k < count_wanted(set, i); k++) {
            json_t *o = json_object(), *prompt = prompt_json(json_array_get(set->items, i));
            const char *base = first_text(&set->samples[i], k),
                       *own = first_text(&set->talks[i], k);
            if (json_is_array(prompt)) prompt = json_array_get(prompt, k);
            json_object_set(o, "prompt", prompt);
            json_object_set_new(o, "base", json_text(base, strlen(base)));
            json_object_set_new(o, "answer", json_text(own, strlen(own)));
            json_array_append_new(list, o);
        }
    }
    return list;
}

static json_t *damage_json(const eval_damage *d)
{
    json_t *o = json_object();
    json_object_set_new(o, "n", json_integer((json_int_t)d->n));
    json_object_set_new(o, "loss_base", real_or_null(d->loss_base.loss));
    json_object_set_new(o, "loss", real_or_null(d->loss.loss));
    json_object_set_new(o, "tokens", json_integer((json_int_t)d->loss_base.n_targets));
    json_object_set_new(o, "leaks", json_integer((json_int_t)d->n_leaks));
    json_object_set_new(o, "same", json_integer((json_int_t)d->n_same));
    return o;
}

json_t *eval_report_json(const eval_set *set)
{
    json_t *o = json_object();
    json_object_set_new(o, "score", json_null());
    json_object_set_new(o, "n", json_integer((json_int_t)json_array_size(set->items)));
    if (set->rules) write_summary(set, o);
    if (set->n_left_out)
        json_object_set_new(o, "left_out", json_integer((json_int_t)set->n_left_out));
    json_object_set_new(o, "loss", real_or_null(set->loss.loss));
    json_object_set_new(o, "perplexity", real_or_null(exp(set->loss.loss)));
    json_object_set_new(o, "tokens", json_integer((json_int_t)set->loss.n_targets));
    json_object_set_new(o, "items", items_json(set));
    if (set->n_samples) json_object_set_new(o, "samples", samples_json(set));
    if (set->sense.n_targets)
        json_object_set_new(o, "sense",
                            json_pack("{s:o, s:o}", "answers", real_or_null(set->sense.loss),
                                      "base_own", real_or_null(set->sense_base.loss)));
    if (set->damage.n) json_object_set_new(o, "damage", damage_json(&set->damage));
    return o;
}

/* --- text ----------------------------------------------------------------------------------- */

static void print_summary(const eval_set *set)
{
    summary s;
    summarize(set, &s);
    eval_interval i = score_interval(&s);
    printf("score      %.3f of %g  (95 %%: %.3f to %.3f, %zu item%s)\n", s.score, s.most, i.low,
           i.high, s.n, s.n == 1 ? "" : "s");
    i = evaluate_wilson(s.n ? (double)s.n_hold / (double)s.n : 0, s.n);
    printf("all rules  %zu of %zu  (95 %%: %.3f to %.3f)\n", s.n_hold, s.n, i.low, i.high);
    if (reward_count(set->rules) > 1)
        for (size_t r = 0; r < reward_count(set->rules); r++)
            printf("  %-24s %.3f\n", reward_type(set->rules, r), s.rules[r]);
    for (size_t k = 0; s.n_turns > 1 && k < s.n_turns; k++)
        printf("  answer %-17zu %.3f\n", k + 1, s.turns[k]);
    if (s.n_failed) printf("not answered %zu (scored 0; see --json)\n", s.n_failed);
    free_summary(&s);
}

static void print_sample(const char *name, const char *text)
{
    printf("  %s:\n    ", name);
    for (span rest = span_trim(span_of(text)), line; span_next_line(&rest, &line);) {
        char *copy = xmemdup0(line.data, line.len);
        print_plain(copy);
        if (rest.len) printf("\n    ");
        free(copy);
    }
    putchar('\n');
}

static void print_samples(const eval_set *set)
{
    json_t *list = samples_json(set);
    const json_t *sample;
    size_t i;
    json_array_foreach(list, i, sample)
    {
        printf("\n%zu. ", i + 1);
        print_plain(json_string_value(json_object_get(sample, "prompt")));
        putchar('\n');
        print_sample("base", json_string_value(json_object_get(sample, "base")));
        print_sample("this", json_string_value(json_object_get(sample, "answer")));
    }
    json_decref(list);
}

void eval_report_print(const eval_set *set)
{
    const eval_damage *d = &set->damage;
    if (set->rules) print_summary(set);
    if (set->n_left_out) printf("left out   %zu (can't be checked here)\n", set->n_left_out);
    if (set->loss.n_targets)
        printf("loss       %.4f  (perplexity %.3f, %zu tokens)\n", set->loss.loss,
               exp(set->loss.loss), set->loss.n_targets);
    if (d->n) {
        printf("damage     loss of the base model's answers to %zu other questions: %.4f, without "
               "the adapter %.4f\n",
               d->n, d->loss.loss, d->loss_base.loss);
        printf("           facts turn up in %zu of %zu answers; %zu are the same\n", d->n_leaks,
               d->n, d->n_same);
    }
    if (set->sense.n_targets)
        printf("sense      loss under the base model of these answers: %.4f, of its own: %.4f\n",
               set->sense.loss, set->sense_base.loss);
    print_samples(set);
}
