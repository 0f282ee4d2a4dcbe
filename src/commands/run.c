/* preft run: one answer, streamed to standard output. */
#include "base/file.h"
#include "base/mem.h"
#include "commands/adapters.h"
#include "commands/answer.h"
#include "commands/command.h"
#include "commands/interrupt.h"
#include "commands/jsonl.h"
#include "commands/open.h"
#include "commands/print.h"
#include "commands/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROMPT_MAX_BYTES ((size_t)64 << 20)

static const char *const positions_names[] = {"turns", "prompt", "all", "none", NULL};

static struct {
    const char *messages, *system, *ids, *adapter, *profile;
    bool raw, greedy, ignore_eos, force_base;
    int positions;
    int64_t chunk;
    option_list stops;
    bool has_positions;
} opt;

/* The numbers, by their keys in a request. */
enum { MAX_TOKENS, TOP_K, REPEAT_LAST, LOGPROBS, SEED, N_INTS };
static const char *const int_keys[N_INTS] = {"max_tokens", "top_k", "repeat_last", "logprobs",
                                             "seed"};
static int64_t ints[N_INTS];
static bool ints_given[N_INTS];
enum { TEMPERATURE, TOP_P, MIN_P, REPEAT_PENALTY, N_REALS };
static const char *const real_keys[N_REALS] = {"temperature", "top_p", "min_p", "repeat_penalty"};
static double reals[N_REALS];
static bool reals_given[N_REALS];

static const option_spec options[] = {
    OPTION_STRING_SPEC('m', "messages", &opt.messages, "FILE",
                       "Read the conversation from FILE (`-`: standard input): a JSON list of "
                       "{\"role\", \"content\"}, or an object with such a list as \"messages\"."),
    OPTION_STRING_SPEC('s', "system", &opt.system, "TEXT", "The system text."),
    OPTION_STRING_SPEC(0, "ids", &opt.ids, "LIST",
                       "Continue these token ids, separated by commas or blanks."),
    OPTION_FLAG_SPEC(0, "raw", &opt.raw, "Continue PROMPT as plain text, without the template."),
    OPTION_STRING_SPEC('a', "adapter", &opt.adapter, "DIR",
                       "Use the LoRA or DiReFT adapter in folder DIR."),
    OPTION_STRING_SPEC('p', "profile", &opt.profile, "NAME",
                       "Sign in and use this profile of the user: its adapter and its settings, "
                       "which the other options override."),
    OPTION_FLAG_SPEC(0, "force-base", &opt.force_base,
                     "Use the adapter although it was made for another model."),
    OPTION_CHOICE_SPEC(0, "positions", &opt.positions, "POLICY", positions_names,
                       "Which tokens the adapter acts on (default: `turns` for prefill-only "
                       "adapters, `all` for the others).",
                       .given = &opt.has_positions),
    OPTION_INT_SPEC('n', "max-tokens", &ints[MAX_TOKENS], "N", 0, INT32_MAX,
                    "Most tokens of the answer (default 512; 0: as many as the context holds).",
                    .given = &ints_given[MAX_TOKENS]),
    OPTION_FLAG_SPEC(0, "greedy", &opt.greedy,
                     "Always take the most likely token (the default without `--temperature`)."),
    OPTION_REAL_SPEC('t', "temperature", &reals[TEMPERATURE], "T", 0, 100,
                     "Sampling temperature; 0 is greedy.", .given = &reals_given[TEMPERATURE]),
    OPTION_INT_SPEC(0, "top-k", &ints[TOP_K], "K", 0, INT32_MAX,
                    "Sample from the K most likely tokens; 0: all.", .given = &ints_given[TOP_K]),
    OPTION_REAL_SPEC(0, "top-p", &reals[TOP_P], "P", 0, 1,
                     "Sample from the most likely tokens whose probabilities add up to P.",
                     .given = &reals_given[TOP_P]),
    OPTION_REAL_SPEC(0, "min-p", &reals[MIN_P], "P", 0, 1,
                     "Leave out tokens less likely than P times the most likely one.",
                     .given = &reals_given[MIN_P]),
    OPTION_REAL_SPEC(0, "repeat-penalty", &reals[REPEAT_PENALTY], "X", 0, 100,
                     "Penalty on tokens that occurred before; 1: off.",
                     .given = &reals_given[REPEAT_PENALTY]),
    OPTION_INT_SPEC(0, "repeat-last", &ints[REPEAT_LAST], "N", 0, INT32_MAX,
                    "Tokens that `--repeat-penalty` looks back at (default 64).",
                    .given = &ints_given[REPEAT_LAST]),
    OPTION_INT_SPEC(0, "seed", &ints[SEED], "N", 0, (int64_t)1 << 53,
                    "Seed of the sampling; without it every run differs.",
                    .given = &ints_given[SEED]),
    OPTION_LIST_SPEC(0, "stop", &opt.stops, "TEXT",
                     "End the answer before TEXT; may be given up to 16 times."),
    OPTION_INT_SPEC(0, "logprobs", &ints[LOGPROBS], "K", 0, ENGINE_MAX_TOP,
                    "With `--json`: log-probabilities with the K most likely tokens.",
                    .given = &ints_given[LOGPROBS]),
    OPTION_FLAG_SPEC(0, "ignore-eos", &opt.ignore_eos, "Continue after the end of the answer."),
    OPTION_INT_SPEC(0, "chunk", &opt.chunk, "N", 1, 65536,
                    "Read exactly N prompt tokens per step (default: measured)."),
    OPTIONS_END};

/* --- the request ------------------------------------------------------------------------------ */

static pf_status read_all(const char *path, buf *out, pf_err *err)
{
    if (strcmp(path, "-") == 0)
        return file_read_fd(STDIN_FILENO, "standard input", PROMPT_MAX_BYTES, out, err);
    return file_read(path, PROMPT_MAX_BYTES, out, err);
}

static pf_status set_messages(json_t *request, pf_err *err)
{
    buf data = {0};
    json_t *value = NULL;
    const char *name = strcmp(opt.messages, "-") == 0 ? "standard input" : opt.messages;
    pf_status status = read_all(opt.messages, &data, err);
    if (status == PF_OK) status = json_parse(buf_str(&data), data.len, name, &value, err);
    if (status == PF_OK) {
        json_t *list = json_is_object(value) ? json_object_get(value, "messages") : value;
        if (list)
            json_object_set(request, "messages", list);
        else
            status = err_set(err, PF_USAGE, "%s: no \"messages\" in the object", name);
    }
    json_decref(value);
    buf_free(&data);
    return status;
}

static pf_status set_ids(json_t *request, pf_err *err)
{
    json_t *list = json_array();
    char *copy = xstrdup(opt.ids), *rest = NULL;
    pf_status status = PF_OK;
    json_object_set_new(request, "ids", list);
    for (char *word = strtok_r(copy, ", \t\n", &rest); word && status == PF_OK;
         word = strtok_r(NULL, ", \t\n", &rest)) {
        int64_t id = 0;
        status = parse_int(word, "--ids", 0, INT32_MAX, &id, err);
        json_array_append_new(list, json_integer(id));
    }
    free(copy);
    return status;
}

/* PROMPT, or standard input where it is `-` or not given. */
static pf_status set_prompt(const command_context *ctx, json_t *request, pf_err *err)
{
    if (ctx->argc > 0 && strcmp(ctx->argv[0], "-") != 0) {
        json_object_set_new(request, "prompt", json_text(ctx->argv[0], strlen(ctx->argv[0])));
        return PF_OK;
    }
    if (ctx->argc == 0 && isatty(STDIN_FILENO))
        return usage_error(ctx, err, "a PROMPT, --messages or --ids is needed");
    buf data = {0};
    pf_status status = read_all("-", &data, err);
    if (status == PF_OK)
        json_object_set_new(request, "prompt", json_text(buf_str(&data), data.len));
    buf_free(&data);
    return status;
}

static pf_status set_source(const command_context *ctx, json_t *request, pf_err *err)
{
    if (ctx->argc > 0 && (opt.messages || opt.ids))
        return usage_error(ctx, err, "PROMPT and %s exclude each other",
                           opt.messages ? "--messages" : "--ids");
    if (opt.messages && opt.ids)
        return usage_error(ctx, err, "--messages and --ids exclude each other");
    if (opt.messages) return set_messages(request, err);
    return opt.ids ? set_ids(request, err) : set_prompt(ctx, request, err);
}

/* What was given on the command line, over what the profile says. */
static void set_settings(json_t *o)
{
    for (int i = 0; i < N_INTS; i++)
        if (ints_given[i]) json_object_set_new(o, int_keys[i], json_integer(ints[i]));
    for (int i = 0; i < N_REALS; i++)
        if (reals_given[i]) json_object_set_new(o, real_keys[i], json_real(reals[i]));
    if (opt.ignore_eos) json_object_set_new(o, "ignore_eos", json_true());
    if (opt.greedy) json_object_set_new(o, "greedy", json_true());
    if (opt.raw) json_object_set_new(o, "raw", json_true());
    if (opt.has_positions)
        json_object_set_new(o, "positions", json_string(positions_names[opt.positions]));
    if (opt.system) json_object_set_new(o, "system", json_text(opt.system, strlen(opt.system)));
    if (opt.stops.count == 0) return;
    json_t *stops = json_array();
    for (size_t i = 0; i < opt.stops.count; i++)
        json_array_append_new(stops, json_text(opt.stops.items[i], strlen(opt.stops.items[i])));
    json_object_set_new(o, "stop", stops);
}

/* A profile's system text is for prompts that have none of their own and go through the template.
 */
static void drop_system(json_t *o)
{
    const json_t *first = json_array_get(json_object_get(o, "messages"), 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    if (opt.ids || opt.raw || (role && strcmp(role, "system") == 0)) json_object_del(o, "system");
}

/* The request: the profile's settings, the prompt, and the options over them. */
static pf_status build_request(const command_context *ctx, json_t *settings, request_input *in,
                               pf_err *err)
{
    pf_status status = set_source(ctx, settings, err);
    if (status != PF_OK) return status;
    if (!opt.system) drop_system(settings);
    set_settings(settings);
    return request_read(settings, in, err);
}

/* --- the answer ------------------------------------------------------------------------------- */

/* Shows what came. A lone request waits for nothing but its own adapter: no word of that. */
static pf_status show(const command_context *ctx, const engine_event *ev, pf_err *err)
{
    switch (ev->kind) {
    case ENGINE_EVENT_STARTED:
        if (ev->n_dropped)
            note(ctx, "%d message%s left the context", ev->n_dropped,
                 ev->n_dropped == 1 ? "" : "s");
        return PF_OK;
    case ENGINE_EVENT_TOKEN:
    case ENGINE_EVENT_FINISHED:
        if (ctx->global->json || ev->text_len == 0) return PF_OK;
        if (isatty(STDOUT_FILENO))
            print_plain_to(stdout, ev->text, ev->text_len);
        else
            fwrite(ev->text, 1, ev->text_len, stdout);
        return output_flush(err);
    case ENGINE_EVENT_WAITING:
    case ENGINE_EVENT_FAILED:
        return PF_OK;
    }
    return PF_OK;
}

/* Takes events until the answer has ended; a signal or a closed output cancels it. */
static pf_status follow(const command_context *ctx, engine *e, engine_client *client, request_id id,
                        answer *a, pf_err *err)
{
    pf_status status = PF_OK;
    while (!a->ended) {
        engine_event ev;
        if (status == PF_OK && interrupt_seen()) {
            status = interrupt_status(err);
            engine_cancel(e, id);
        }
        if (!engine_client_next(client, &ev)) {
            engine_client_wait(client, 200);
            continue;
        }
        if (status == PF_OK && (status = show(ctx, &ev, err)) != PF_OK) engine_cancel(e, id);
        answer_take(a, &ev);
    }
    return status;
}

static pf_status print_answer(const command_context *ctx, const answer *a, pf_err *err)
{
    if (a->error.status != PF_OK) {
        *err = a->error;
        return a->error.status;
    }
    if (ctx->global->json) {
        buf line = {0};
        json_t *object = json_object();
        answer_write(a, object);
        json_append(&line, object);
        puts(buf_str(&line));
        buf_free(&line);
        json_decref(object);
    } else if (a->text.len && a->text.data[a->text.len - 1] != '\n')
        putchar('\n');
    if (a->reason == FINISH_CONTEXT)
        note(ctx, "the context of %d tokens is full", a->usage.prompt_tokens + (int)a->ids.len);
    return output_flush(err);
}

/* The adapter of --adapter or of the profile; 0: none. */
static pf_status find_adapter(const command_context *ctx, engine *e, const profile_use *profile,
                              adapter_id *out, pf_err *err)
{
    buf warnings = {0};
    pf_status status = PF_OK;
    if (opt.adapter)
        status = adapter_add_folder(e, opt.adapter, opt.force_base, out, &warnings, err);
    else if (opt.profile)
        status = profile_use_adapter(profile, e, opt.force_base, out, err);
    if (warnings.len) note(ctx, "%s", buf_str(&warnings));
    buf_free(&warnings);
    return status;
}

static pf_status answer_request(const command_context *ctx, engine *e, request_input *in,
                                pf_err *err)
{
    answer a = {0};
    request_id id = 0;
    engine_client *client = engine_client_open(e);
    if (!client) return err_set(err, PF_FAILED, "no more file descriptors are available");
    in->request.want_prompt = ctx->global->json;
    pf_status status = engine_submit(client, &in->request, &id, err);
    if (status == PF_OK) {
        pf_err output = {0};
        status = follow(ctx, e, client, id, &a, err);
        pf_status printed = print_answer(ctx, &a, &output);
        if (status == PF_OK && printed != PF_OK) {
            status = printed;
            *err = output;
        }
    }
    engine_client_close(client);
    answer_free(&a);
    return status;
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    model *m = NULL;
    engine *e = NULL;
    request_input in = {0};
    profile_use profile = {0};
    json_t *settings = json_object();
    pf_status status = PF_OK;
    if (opt.adapter && opt.profile)
        return usage_error(ctx, err, "--adapter and --profile exclude each other");
    if (ctx->signin->user && !opt.profile) return usage_error(ctx, err, "--user needs a --profile");
    if (opt.profile) status = profile_use_open(ctx, opt.profile, &profile, settings, err);
    if (status == PF_OK) status = build_request(ctx, settings, &in, err);
    if (status != PF_OK) goto out;
    interrupt_catch();
    status = open_model(ctx, &m, err);
    if (status != PF_OK) goto out;
    engine_options o = open_engine_options(ctx);
    o.step_tokens = (int)opt.chunk;
    o.max_batch = 1;
    status = engine_open(m, &o, &e, err);
    if (status == PF_OK) status = find_adapter(ctx, e, &profile, &in.request.adapter, err);
    in.request.user = profile.user;
    if (status == PF_OK) status = answer_request(ctx, e, &in, err);
out:
    engine_close(e);
    model_close(m);
    profile_use_close(&profile);
    request_free(&in);
    json_decref(settings);
    option_list_free(&opt.stops);
    return status;
}

const struct command run_command = {
    .name = "run",
    .summary = "Answer one prompt",
    .synopsis = TEXTS("[OPTIONS] [PROMPT]", "[OPTIONS] --messages FILE", "[OPTIONS] --ids LIST"),
    .description = TEXTS(
        "Reads a prompt and streams the model's answer to standard output. _PROMPT_ is "
        "a message of the user and goes through the model's chat template; without _PROMPT_ it is "
        "read from standard input. The answer is greedy unless `--temperature` is given.",
        "With `--json` one object is printed at the end: text, ids (end tokens included), "
        "prompt_ids, marks (1 where the adapter acts), finish_reason (stop, length or cancelled; "
        "an "
        "answer that ends because the context is full has length, and context_full is true), usage "
        "(prompt_tokens, completion_tokens, cached_tokens, preemptions), logprobs and timings.",
        "Ctrl-C ends the answer; what was written stays."),
    .options = options,
    .examples = EXAMPLES({"preft run 'What is a prime number?'", "Ask one question."},
                         {"preft run --adapter ./letters -n 200 < question.txt",
                          "Answer a text from a file with an adapter."},
                         {"preft run --user mira --profile letters 'Write to the landlord.'",
                          "Answer under a profile; the passphrase is asked for."},
                         {"preft run --json --ids 1,2,3 --logprobs 5",
                          "Continue token ids and print the five likeliest tokens at each step."}),
    .see_also = TEXTS("preft-batch 1", "preft-chat 1", "preft 7"),
    .max_operands = 1,
    .groups = GROUP_MODEL | GROUP_ENGINE | GROUP_SIGN_IN,
    .area = AREA_CHAT,
    .run = run};
