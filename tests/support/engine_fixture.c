#include "support/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

#define PATIENCE_MS 300000 /* other work may hold up a step for long */
#define MAX_OPEN    16

/* The engines that tests have not closed yet, with their models. */
static struct {
    engine *e;
    const model *m;
} opened[MAX_OPEN];

void outcome_free(outcome *o)
{
    id_list_free(&o->ids);
    id_list_free(&o->prompt_ids);
    free(o->logprobs);
    free(o->top);
    free(o->marks);
    buf_free(&o->text);
    memset(o, 0, sizeof *o);
}

void outcome_expect_equal(const outcome *got, const outcome *want, const char *where)
{
    if (got->failed || want->failed)
        fail_msg("%s: failed: %s%s", where, got->message, want->message);
    if (got->ids.len != want->ids.len)
        fail_msg("%s: %zu tokens instead of %zu", where, got->ids.len, want->ids.len);
    for (size_t i = 0; i < want->ids.len; i++)
        if (got->ids.ids[i] != want->ids.ids[i])
            fail_msg("%s: token %zu is %d instead of %d", where, i, got->ids.ids[i],
                     want->ids.ids[i]);
    assert_int_equal(got->n_top, want->n_top);
    if (want->n_top) {
        size_t n = want->ids.len;
        if (memcmp(got->logprobs, want->logprobs, n * sizeof *want->logprobs) != 0 ||
            memcmp(got->top, want->top, n * (size_t)want->n_top * sizeof *want->top) != 0)
            fail_msg("%s: same tokens, other log-probabilities", where);
    }
    assert_string_equal(buf_str(&got->text), buf_str(&want->text));
    assert_int_equal(got->reason, want->reason);
}

model *fixture_model(const char *path)
{
    model *m = NULL;
    pf_err err = {0};
    if (model_open(path, NULL, &m, &err) != PF_OK) fail_msg("%s", err.text);
    return m;
}

engine *fixture_engine(const model *m, const engine_options *options)
{
    engine *e = NULL;
    pf_err err = {0};
    size_t i = 0;
    while (i < MAX_OPEN && opened[i].e)
        i++;
    if (i == MAX_OPEN) fail_msg("%d engines are open", MAX_OPEN);
    if (engine_open(m, options, &e, &err) != PF_OK) fail_msg("%s", err.text);
    opened[i].e = e;
    opened[i].m = m;
    return e;
}

void fixture_engine_close(engine *e)
{
    for (size_t i = 0; i < MAX_OPEN; i++)
        if (opened[i].e == e) opened[i].e = NULL;
    engine_close(e);
}

void fixture_model_close(model *m)
{
    for (size_t i = 0; i < MAX_OPEN; i++)
        if (opened[i].e && opened[i].m == m) fixture_engine_close(opened[i].e);
    model_close(m);
}

request_id fixture_submit(engine_client *c, const engine_request *request, outcome *o)
{
    request_id id = 0;
    pf_err err = {0};
    engine_request r = *request;
    r.tag = o;
    if (engine_submit(c, &r, &id, &err) != PF_OK) fail_msg("%s", err.text);
    return id;
}

static void take_token(outcome *o, const engine_event *ev)
{
    size_t i = o->ids.len;
    id_list_append(&o->ids, ev->token);
    buf_append(&o->text, ev->text, ev->text_len);
    if (ev->n_top == 0) return;
    o->n_top = ev->n_top;
    size_t n = (size_t)ev->n_top;
    o->logprobs = xrealloc_array(o->logprobs, i + 1, sizeof *o->logprobs);
    o->top = xrealloc_array(o->top, (i + 1) * n, sizeof *o->top);
    o->logprobs[i] = ev->logprob;
    memcpy(o->top + i * n, ev->top, n * sizeof *ev->top);
}

static void take_event(const engine_event *ev)
{
    outcome *o = ev->tag;
    assert_false(o->ended); /* nothing comes after the last event */
    o->n_events++;
    switch (ev->kind) {
    case ENGINE_EVENT_WAITING:
        snprintf(o->waited + strlen(o->waited), sizeof o->waited - strlen(o->waited), "%s\n",
                 ev->text);
        break;
    case ENGINE_EVENT_STARTED:
        assert_false(o->started);
        o->started = true;
        if (!ev->prompt_ids) break;
        id_list_append_all(&o->prompt_ids, ev->prompt_ids, (size_t)ev->n_prompt);
        o->marks = xmalloc((size_t)ev->n_prompt);
        memcpy(o->marks, ev->marks, (size_t)ev->n_prompt);
        break;
    case ENGINE_EVENT_TOKEN:
        assert_true(o->started);
        take_token(o, ev);
        break;
    case ENGINE_EVENT_FINISHED:
    case ENGINE_EVENT_FAILED:
        o->ended = true;
        o->failed = ev->kind == ENGINE_EVENT_FAILED;
        o->reason = ev->reason;
        o->usage = ev->usage;
        if (o->failed)
            snprintf(o->message, sizeof o->message, "%s", ev->text);
        else
            buf_append(&o->text, ev->text, ev->text_len);
    }
}

static bool satisfied(const outcome *list, int n, int n_tokens)
{
    bool all = true;
    for (int i = 0; i < n; i++) {
        if (n_tokens > 0 && list[i].ids.len >= (size_t)n_tokens) return true;
        all &= list[i].ended;
    }
    return all;
}

void fixture_collect(engine_client *c, outcome *list, int n, int n_tokens)
{
    engine_event ev;
    while (!satisfied(list, n, n_tokens)) {
        if (!engine_client_next(c, &ev)) {
            if (!engine_client_wait(c, PATIENCE_MS)) fail_msg("no event for %d ms", PATIENCE_MS);
            continue;
        }
        take_event(&ev);
        engine_event_free(&ev);
    }
}

void fixture_take(engine_client *c)
{
    engine_event ev;
    while (engine_client_next(c, &ev)) {
        take_event(&ev);
        engine_event_free(&ev);
    }
}

void fixture_run(engine *e, const engine_request *requests, int n, const int *order,
                 outcome *outcomes)
{
    engine_client *c = engine_client_open(e);
    memset(outcomes, 0, (size_t)n * sizeof *outcomes);
    for (int i = 0; i < n; i++) {
        int k = order ? order[i] : i;
        fixture_submit(c, &requests[k], &outcomes[k]);
    }
    fixture_collect(c, outcomes, n, 0);
    engine_client_close(c);
}
