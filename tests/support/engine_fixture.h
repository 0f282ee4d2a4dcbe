/* Running requests through an engine in tests: submit, collect every event, compare bit by bit. */
#ifndef PF_TESTS_ENGINE_FIXTURE_H
#define PF_TESTS_ENGINE_FIXTURE_H

#include "base/buf.h"
#include "engine/engine.h"

#define TINY_MODEL "tests/data/models/tiny-llama/tiny-llama-q8_0.gguf"

/* What became of a request. */
typedef struct {
    id_list ids;
    float *logprobs;    /* [ids.len] if asked */
    token_logprob *top; /* [ids.len, n_top] */
    int n_top;
    buf text;
    bool started, ended, failed;
    finish_reason reason;
    char message[512]; /* FAILED */
    char waited[512];  /* the texts of WAITING events */
    request_usage usage;
    id_list prompt_ids;
    unsigned char *marks;
    int n_events;
} outcome;
void outcome_free(outcome *o);
/* Fails the test if they differ in ids, text, log-probabilities (bits) or reason. */
void outcome_expect_equal(const outcome *got, const outcome *want, const char *where);

/* Opens, or fails the test; to be closed by the functions below. A test that fails leaves its
 * engine running: fixture_model_close closes the model's engines first. */
model *fixture_model(const char *path);
engine *fixture_engine(const model *m, const engine_options *options);
void fixture_engine_close(engine *e);
void fixture_model_close(model *m);

/* Submits requests in this order (order[i] indexes requests; NULL: as they are) through one client
 * and waits for all. outcomes[i] belongs to requests[i]. */
void fixture_run(engine *e, const engine_request *requests, int n, const int *order,
                 outcome *outcomes);
/* Submits one; fails the test if it is refused. The tag must point to a zeroed outcome. */
request_id fixture_submit(engine_client *c, const engine_request *request, outcome *o);
/* Takes events until every outcome in list[0..n) has ended, or until one of them has n_tokens
 * tokens (n_tokens > 0). */
void fixture_collect(engine_client *c, outcome *list, int n, int n_tokens);
/* Takes the events that are there. */
void fixture_take(engine_client *c);

#endif
