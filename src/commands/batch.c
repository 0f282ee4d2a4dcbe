/* preft batch: many requests through one engine at once. */
#include "base/file.h"
#include "base/mem.h"
#include "commands/adapters.h"
#include "commands/answer.h"
#include "commands/command.h"
#include "commands/interrupt.h"
#include "commands/open.h"
#include "commands/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_MAX_BYTES ((size_t)1 << 30)

static struct {
    const char *output;
    int64_t max_batch, adapter_slots, chunk;
} opt;

static const option_spec options[] = {
    OPTION_STRING_SPEC('o', "output", &opt.output, "FILE",
                       "Write the results to FILE, all at the end, instead of standard output."),
    OPTION_INT_SPEC(0, "max-batch", &opt.max_batch, "N", 1, 4096,
                    "Most answers decoded at once (default 64)."),
    OPTION_INT_SPEC(0, "adapter-slots", &opt.adapter_slots, "N", 1, 1 << 20,
                    "Most adapters in memory at once (default: by memory)."),
    OPTION_INT_SPEC(0, "chunk", &opt.chunk, "N", 1, 65536,
                    "Read up to N prompt tokens per step (default: measured)."),
    OPTIONS_END};

/* One line of the input and what became of it. */
typedef struct {
    json_t *id; /* the line's, or its number */
    request_input in;
    answer *answers; /* one, or one per turn */
    size_t n_answers;
    request_id request;
    bool done;
    pf_err error;
} job;

typedef struct {
    const command_context *ctx;
    engine *e;
    engine_client *client;
    adapter_set adapters;
    job **jobs;
    size_t n_jobs, n_done, n_written;
    buf out;
} batch;

/* --- reading ---------------------------------------------------------------------------------- */

static void read_line(batch *b, size_t number, const char *data, size_t len)
{
    char name[64];
    json_t *object = NULL;
    job *j = xcalloc(1, sizeof *j);
    b->jobs = xrealloc_array(b->jobs, b->n_jobs + 1, sizeof *b->jobs);
    b->jobs[b->n_jobs++] = j;
    snprintf(name, sizeof name, "line %zu", number);
    pf_status status = json_parse(data, len, name, &object, &j->error);
    if (status == PF_OK) {
        j->id = json_incref(json_object_get(object, "id"));
        status = request_read(object, &j->in, &j->error);
        if (status != PF_OK) err_context(&j->error, "%s", name);
    }
    if (!j->id) j->id = json_integer((json_int_t)number);
    j->n_answers = j->in.n_turns ? j->in.n_turns : 1;
    j->answers = xcalloc(j->n_answers, sizeof *j->answers);
    json_decref(object);
}

static bool is_blank(const char *data, size_t len)
{
    return strspn(data, " \t\r") >= len;
}

static void read_lines(batch *b, const buf *data)
{
    size_t number = 0, at = 0;
    while (at < data->len) {
        const char *end = memchr(data->data + at, '\n', data->len - at);
        size_t len = end ? (size_t)(end - data->data) - at : data->len - at;
        number++;
        if (!is_blank(data->data + at, len)) read_line(b, number, data->data + at, len);
        at += len + 1;
    }
}

/* --- running ---------------------------------------------------------------------------------- */

static void finish(batch *b, job *j)
{
    j->done = true;
    b->n_done++;
}

/* The answer that the job waits for. */
static answer *current_answer(job *j)
{
    size_t i = 0;
    while (i + 1 < j->n_answers && j->answers[i].ended)
        i++;
    return &j->answers[i];
}

static void submit(batch *b, job *j)
{
    pf_status status = j->error.status;
    if (status == PF_OK && j->in.adapter_folder && !j->in.request.adapter)
        status = adapter_set_get(&b->adapters, b->e, j->in.adapter_folder, &j->in.request.adapter,
                                 &j->error);
    j->in.request.want_prompt = true;
    j->in.request.tag = j;
    if (status == PF_OK) status = engine_submit(b->client, &j->in.request, &j->request, &j->error);
    if (status != PF_OK) finish(b, j);
}

/* The ids of an answer's content: all but an end token. */
static size_t content_ids(const batch *b, const answer *a)
{
    const model_config *config = model_get_config(engine_model(b->e));
    size_t n = a->ids.len;
    for (int i = 0; n == a->ids.len && n > 0 && i < config->n_stop_ids; i++)
        if (a->ids.ids[n - 1] == config->stop_ids[i]) n--;
    return n;
}

/* Puts the next user text behind the answer. An answer that a stop string cut short is kept as its
 * text, since its ids reach beyond that. */
static void next_turn(batch *b, job *j, const answer *a, size_t turn)
{
    size_t n = content_ids(b, a);
    bool cut = a->reason == FINISH_STOP && n == a->ids.len;
    request_add_message(&j->in, ROLE_ASSISTANT, buf_str(&a->text), a->text.len,
                        cut ? NULL : a->ids.ids, cut ? 0 : n);
    request_add_message(&j->in, ROLE_USER, j->in.turns[turn], strlen(j->in.turns[turn]), NULL, 0);
    submit(b, j);
}

static void take_event(batch *b, engine_event *ev)
{
    job *j = ev->tag;
    answer *a = current_answer(j);
    answer_take(a, ev);
    if (!a->ended) return;
    size_t turn = (size_t)(a - j->answers) + 1;
    bool next = turn < j->n_answers && a->error.status == PF_OK && a->reason != FINISH_CANCELLED;
    if (next)
        next_turn(b, j, a, turn);
    else
        finish(b, j);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void write_turns(const job *j, json_t *object)
{
    json_t *turns = json_array();
    for (size_t i = 0; i < j->n_answers && j->answers[i].ended; i++) {
        json_t *turn = json_object();
        answer_write(&j->answers[i], turn);
        json_array_append_new(turns, turn);
    }
    json_object_set_new(object, "turns", turns);
    if (j->error.status != PF_OK) answer_write_error(object, &j->error);
}

static void write_job(batch *b, const job *j)
{
    json_t *object = json_object();
    json_object_set(object, "id", j->id);
    if (j->in.n_turns)
        write_turns(j, object);
    else if (j->error.status != PF_OK)
        answer_write_error(object, &j->error);
    else
        answer_write(&j->answers[0], object);
    json_append(&b->out, object);
    buf_putc(&b->out, '\n');
    json_decref(object);
}

static void free_job(job *j)
{
    for (size_t i = 0; i < j->n_answers; i++)
        answer_free(&j->answers[i]);
    free(j->answers);
    request_free(&j->in);
    json_decref(j->id);
    free(j);
}

/* Results in the order of the input, each as soon as it and those before it are there. */
static pf_status write_finished(batch *b, pf_err *err)
{
    while (b->n_written < b->n_jobs && b->jobs[b->n_written]->done) {
        write_job(b, b->jobs[b->n_written]);
        free_job(b->jobs[b->n_written]);
        b->jobs[b->n_written++] = NULL;
    }
    if (opt.output) return PF_OK;
    fwrite(buf_str(&b->out), 1, b->out.len, stdout);
    buf_clear(&b->out);
    return output_flush(err);
}

static pf_status run_jobs(batch *b, pf_err *err)
{
    pf_status status = PF_OK;
    for (size_t i = 0; i < b->n_jobs && !interrupt_seen(); i++)
        submit(b, b->jobs[i]);
    while (status == PF_OK && b->n_written < b->n_jobs) {
        engine_event ev;
        while (engine_client_next(b->client, &ev))
            take_event(b, &ev);
        status = write_finished(b, err);
        if (status == PF_OK && interrupt_seen()) status = interrupt_status(err);
        if (status == PF_OK && b->n_written < b->n_jobs) engine_client_wait(b->client, 200);
    }
    return status;
}

/* --- command ---------------------------------------------------------------------------------- */

static pf_status open_batch(const command_context *ctx, batch *b, model **m, pf_err *err)
{
    buf input = {0};
    const char *path = ctx->argv[0];
    pf_status status = strcmp(path, "-") == 0 ? file_read_fd(STDIN_FILENO, "standard input",
                                                             INPUT_MAX_BYTES, &input, err)
                                              : file_read(path, INPUT_MAX_BYTES, &input, err);
    if (status == PF_OK) {
        read_lines(b, &input);
        status = open_model(ctx, m, err);
    }
    buf_free(&input);
    if (status != PF_OK) return status;
    engine_options o = open_engine_options(ctx);
    o.max_batch = (int)opt.max_batch;
    o.adapter_slots = (int)opt.adapter_slots;
    o.step_tokens = (int)opt.chunk;
    status = engine_open(*m, &o, &b->e, err);
    if (status != PF_OK) return status;
    b->client = engine_client_open(b->e);
    return b->client ? PF_OK : err_set(err, PF_FAILED, "no more file descriptors are available");
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    model *m = NULL;
    batch b = {.ctx = ctx};
    pf_status status = opt.output ? file_check_place(opt.output, false, err) : PF_OK;
    if (status != PF_OK) return status;
    interrupt_catch();
    status = open_batch(ctx, &b, &m, err);
    if (status == PF_OK) status = run_jobs(&b, err);
    if (status == PF_OK && opt.output)
        status = file_write_atomic(opt.output, buf_str(&b.out), b.out.len, 0600, err);
    engine_client_close(b.client);
    engine_close(b.e);
    model_close(m);
    adapter_set_free(&b.adapters);
    for (size_t i = b.n_written; i < b.n_jobs; i++)
        free_job(b.jobs[i]);
    free(b.jobs);
    buf_free(&b.out);
    return status;
}

const struct command batch_command = {
    .name = "batch",
    .summary = "Answer many requests at once",
    .synopsis = TEXTS("[OPTIONS] FILE", "[OPTIONS] - < FILE"),
    .description = TEXTS(
        "Reads one JSON object per line and answers all of them through one engine, in one batch. "
        "Results are JSON lines in the order of the input, each written as soon as it and those "
        "before it are done; id is the line's own, or its number.",
        "A line has one of messages (a list of {\"role\", \"content\"}), prompt (a user's message; "
        "with \"raw\": true plain text), ids (token ids) and turns (user texts that are answered "
        "one after another in one conversation). It may have id, system, adapter (a folder), "
        "positions, max_tokens (default 512; 0: as many as the context holds), seed, greedy, "
        "temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, logprobs, ignore_eos, stop "
        "(a text or a list), user (a number or a name: users share fairly and never share cached "
        "tokens), priority and drop_oldest (drop the oldest turns if the messages don't fit).",
        "A result is what `preft run --json` prints; for turns it has a list of them. A line that "
        "can't be read or answered has error (message, status) instead, and the other lines "
        "continue; the exit code is 0."),
    .options = options,
    .examples = EXAMPLES(
        {"preft batch questions.jsonl -o answers.jsonl", "Answer a file."},
        {"echo '{\"prompt\":\"Hello\",\"max_tokens\":20}' | preft batch -", "Answer one line."}),
    .see_also = TEXTS("preft-run 1"),
    .min_operands = 1,
    .max_operands = 1,
    .groups = GROUP_MODEL | GROUP_ENGINE,
    .area = AREA_CHAT,
    .run = run};
