#include "commands/train_policy.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "commands/interrupt.h"
#include "train/eval/eval_format.h"
#include "train/eval/reward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA_MAX_BYTES  ((size_t)1 << 30)
#define CHECK_MAX_BYTES ((size_t)16 << 20)

typedef struct {
    const command_context *ctx;
    const policy_options *options;
    json_t *items; /* all files' */
    reward *rules;
    policy_prompt *prompts; /* [n]; messages owned here, texts borrowed from items */
    size_t n;
    policy_step first, last, kept; /* kept: whose weights are the result */
    json_t *rewards, *checks;      /* of each step */
    double seconds, sync_seconds;
} run_state;

/* The messages of an item up to its last user message: what is asked. */
static pf_status read_prompt(const json_t *item, policy_prompt *out, pf_err *err)
{
    const json_t *list = json_object_get(item, "messages");
    size_t n = json_array_size(list);
    chat_message *messages = xcalloc(n + 1, sizeof *messages);
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(list, i), *content;
        const char *role = json_string_value(json_object_get(message, "role"));
        content = json_object_get(message, "content");
        if (!role || !chat_role_parse(role, &messages[i].role) || !json_is_string(content)) {
            free(messages);
            return err_set(err, PF_REFUSED, "message %zu needs a role and a content", i);
        }
        messages[i].text = json_string_value(content);
        messages[i].len = json_string_length(content);
    }
    while (n > 0 && messages[n - 1].role != ROLE_USER)
        n--;
    *out = (policy_prompt){messages, n};
    return n ? PF_OK : err_set(err, PF_REFUSED, "there is no message of the user");
}

static pf_status read_file(run_state *s, const char *path, pf_err *err)
{
    buf data = {0};
    json_t *items = NULL;
    size_t left_out = 0;
    pf_status status = file_read(path, DATA_MAX_BYTES, &data, err);
    if (status == PF_OK)
        status = eval_format_read(EVAL_CHAT, buf_str(&data), data.len, path_base(path), &items,
                                  &left_out, err);
    if (status == PF_OK) json_array_extend(s->items, items);
    json_decref(items);
    buf_free(&data);
    return status;
}

static pf_status read_rules(run_state *s, const char *path, pf_err *err)
{
    buf data = {0};
    json_t *value = NULL;
    pf_status status = file_read(path, CHECK_MAX_BYTES, &data, err);
    if (status == PF_OK)
        status = json_parse(buf_str(&data), data.len, path_base(path), &value, err);
    if (status == PF_OK) status = reward_read(value, path_base(path), &s->rules, err);
    json_decref(value);
    buf_free(&data);
    return status;
}

static pf_status read_all(run_state *s, const option_list *files, const char *reward_path,
                          pf_err *err)
{
    pf_status status = read_rules(s, reward_path, err);
    for (size_t i = 0; i < files->count && status == PF_OK; i++)
        status = read_file(s, files->items[i], err);
    size_t n = json_array_size(s->items);
    s->prompts = xcalloc(n + 1, sizeof *s->prompts);
    for (s->n = 0; s->n < n && status == PF_OK; s->n++) {
        const json_t *item = json_array_get(s->items, s->n);
        status = reward_check_item(s->rules, item, err);
        if (status == PF_OK) status = read_prompt(item, &s->prompts[s->n], err);
        if (status != PF_OK) err_context(err, "question %zu", s->n + 1);
    }
    return status;
}

static double score(void *ctx, size_t prompt, const char *answer, size_t len)
{
    const run_state *s = ctx;
    return reward_score(s->rules, json_array_get(s->items, prompt), answer, len, NULL).score;
}

static void tell_step(const policy_step *a)
{
    fprintf(
        stderr,
        "step %lld/%lld  reward %.3f  about %.2f  loss under the base %.3f  KL %.4f  %.0f tokens, "
        "%.0f %% ended, moved %.3f  ",
        (long long)a->step, (long long)a->n_steps, a->reward, a->about, a->base_loss, a->kl,
        a->tokens, 100 * a->ended, a->moved);
    if (a->checked)
        fprintf(stderr, "%zu kept aside: reward %.3f, counts %.3f%s  ", a->checked, a->check_reward,
                a->check, a->kept ? " (best)" : "");
    fprintf(stderr, "%.1f s sampling, %.1f s learning, %.3f s sync\n", a->sample_seconds,
            a->train_seconds, a->sync_seconds);
}

static bool step(void *ctx, const policy_step *a)
{
    run_state *s = ctx;
    if (a->step == 1) s->first = *a;
    if (a->step == 1 && a->ended == 0 && s->options->cut_off < 1)
        note(s->ctx,
             "no answer ended within %d tokens, so that it counts %g of its reward: give "
             "--answer-tokens or --cut-off more",
             s->options->max_tokens, s->options->cut_off);
    s->last = *a;
    json_array_append_new(s->rewards, json_real(round(a->reward * 1e4) / 1e4));
    if (a->checked) json_array_append_new(s->checks, json_real(round(a->check * 1e4) / 1e4));
    if (a->kept) s->kept = *a;
    s->seconds += a->sample_seconds + a->train_seconds + a->sync_seconds;
    s->sync_seconds += a->sync_seconds;
    if (!s->ctx->global->quiet) tell_step(a);
    return !interrupt_seen();
}

static json_t *make_record(const run_state *s)
{
    const policy_options *o = s->options;
    double answers = (double)s->last.step * o->prompts_per_step * o->group;
    return json_pack("{s:s, s:I, s:i, s:i, s:f, s:f, s:f, s:f, s:O, s:O, s:I, s:f, s:f}", "method",
                     "grpo", "steps", (json_int_t)s->last.step, "prompts_per_step",
                     o->prompts_per_step, "group", o->group, "beta", o->grpo.beta, "reward_first",
                     s->first.reward, "reward_last", s->last.reward, "kl_last", s->last.kl,
                     "rewards", s->rewards, "checks", s->checks, "kept_step",
                     (json_int_t)s->kept.step, "answers_per_second",
                     s->seconds > 0 ? answers / s->seconds : 0.0, "sync_share",
                     s->seconds > 0 ? s->sync_seconds / s->seconds : 0.0);
}

static void tell(const run_state *s, const json_t *record)
{
    if (s->last.step == 0) return;
    if (s->last.step < s->last.n_steps)
        note(s->ctx, "ended by a signal after step %lld of %lld; what was reached is saved",
             (long long)s->last.step, (long long)s->last.n_steps);
    if (s->kept.checked)
        note(s->ctx,
             "kept: the weights after step %lld, whose answers to %zu questions that were "
             "kept aside score %.3f",
             (long long)s->kept.step, s->kept.checked, s->kept.check_reward);
    note(
        s->ctx,
        "mean reward %.3f in the first step, %.3f in the last; KL to the base %.3f per token; %.2f "
        "answers per second; publishing the weights took %.2f %% of the time",
        s->first.reward, s->last.reward, s->last.kl,
        json_real_value(json_object_get(record, "answers_per_second")),
        100 * json_real_value(json_object_get(record, "sync_share")));
}

pf_status train_policy_run(const command_context *ctx, engine *e, const option_list *files,
                           const char *reward_path, const policy_options *options, const buf *start,
                           buf *blob, json_t **record, pf_err *err)
{
    run_state s = {.ctx = ctx,
                   .options = options,
                   .items = json_array(),
                   .rewards = json_array(),
                   .checks = json_array()};
    const policy_caller caller = {.score = score, .step = step, .ctx = &s};
    pf_status status = read_all(&s, files, reward_path, err);
    if (status == PF_OK)
        status = policy_run(e, s.prompts, s.n, options, start->len ? start->data : NULL, start->len,
                            &caller, blob, err);
    if (status == PF_OK) {
        *record = make_record(&s);
        tell(&s, *record);
    }
    for (size_t i = 0; i < s.n; i++)
        free((void *)(uintptr_t)s.prompts[i].messages);
    free(s.prompts);
    reward_free(s.rules);
    json_decref(s.rewards);
    json_decref(s.checks);
    json_decref(s.items);
    return status;
}
