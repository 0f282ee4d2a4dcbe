/* preft train: fine-tunes a profile on this machine, from chat history or from a file. */
#include "base/file.h"
#include "base/mem.h"
#include "commands/adapters.h"
#include "commands/command.h"
#include "commands/interrupt.h"
#include "commands/open.h"
#include "commands/print.h"
#include "commands/signin.h"
#include "commands/train_data.h"
#include "commands/train_policy.h"
#include "profiles/adapter_file.h"
#include "profiles/profile.h"
#include "profiles/secret.h"
#include "train/job.h"
#include "train/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const method_names[] = {"lorap", "direftp", "lora", "direft", NULL};
static const char *const schedule_names[] = {"cosine", "constant", NULL};
static const char *const from_names[] = {"all", "good", "rewrites", NULL};

#define KEEP_CHECKPOINTS 2
#define REPLAY_TOKENS    96

static struct {
    const char *profile, *out, *reward;
    option_list data;
    int method, schedule, from;
    int64_t rank, epochs, steps, seed, batch, max_tokens, checkpoint, replay, group, prompts,
        answer_tokens;
    double rate, alpha, held_out, warmup, clip, beta;
    bool has_rank, has_rate, dry_run, fresh, resume, orthonormal, grpo, dr_grpo;
} opt = {.epochs = 3,
         .seed = 1,
         .batch = 4,
         .max_tokens = 1024,
         .checkpoint = 20,
         .group = 6,
         .prompts = 3,
         .answer_tokens = 96,
         .beta = 0.04,
         .warmup = 0.05,
         .clip = 1};

static const option_spec options[] = {
    OPTION_STRING_SPEC('p', "profile", &opt.profile, "NAME",
                       "Train this profile of the user; it is made if there is none."),
    OPTION_STRING_SPEC('o', "out", &opt.out, "DIR",
                       "Write the adapter to folder DIR instead of a profile."),
    OPTION_LIST_SPEC('d', "data", &opt.data, "FILE",
                     "Learn from JSONL FILE, a conversation {\"messages\": [...]} a line; may be "
                     "given several times. Without it: from the profile's conversations."),
    OPTION_CHOICE_SPEC(
        0, "from", &opt.from, "WHAT", from_names,
        "What to learn from conversations: `all` answers that were not rated bad "
        "(the default), those rated `good` or rewritten, or `rewrites` only. Rewritten "
        "answers count twice."),
    OPTION_CHOICE_SPEC('m', "method", &opt.method, "METHOD", method_names,
                       "`lorap` (the default) and `direftp` act on prompts only and cost nothing "
                       "while answers are written; `lora` and `direft` act on every token."),
    OPTION_INT_SPEC('r', "rank", &opt.rank, "R", 1, ADAPTER_MAX_RANK,
                    "Size of the adapter (default 8 for LoRA, 64 for DiReFT).",
                    .given = &opt.has_rank),
    OPTION_REAL_SPEC(0, "alpha", &opt.alpha, "A", 0, 10000,
                     "LoRA's alpha (default twice the rank)."),
    OPTION_REAL_SPEC(
        0, "rate", &opt.rate, "X", 1e-9, 1000,
        "Learning rate (default 0.002 for lorap and lora, 0.001 for direftp and direft).",
        .given = &opt.has_rate),
    OPTION_CHOICE_SPEC(0, "schedule", &opt.schedule, "NAME", schedule_names,
                       "How the rate falls: `cosine` to a twentieth (the default) or `constant`."),
    OPTION_REAL_SPEC(0, "warmup", &opt.warmup, "SHARE", 0, 1,
                     "Share of the steps in which the rate rises (default 0.05)."),
    OPTION_REAL_SPEC(0, "clip", &opt.clip, "NORM", 0, 1e6,
                     "Largest norm of a step's gradient (default 1; 0: any)."),
    OPTION_FLAG_SPEC(0, "orthonormal", &opt.orthonormal,
                     "Keep DiReFT's rotation orthonormal after each step."),
    OPTION_INT_SPEC('e', "epochs", &opt.epochs, "N", 1, 10000, "Passes over the data (default 3)."),
    OPTION_INT_SPEC(0, "steps", &opt.steps, "N", 0, 10000000, "Stop after N steps; 0: all epochs."),
    OPTION_INT_SPEC('b', "batch", &opt.batch, "N", 1, 4096, "Conversations per step (default 4)."),
    OPTION_INT_SPEC(0, "max-tokens", &opt.max_tokens, "N", 16, 1 << 20,
                    "Longest example; longer conversations are cut at turns (default 1024)."),
    OPTION_REAL_SPEC(0, "held-out", &opt.held_out, "SHARE", 0, 0.5,
                     "Share of the conversations kept aside to check (default 0)."),
    OPTION_INT_SPEC(0, "replay", &opt.replay, "N", 0, 48,
                    "Mix in N of the model's own answers to general questions (16 without N), so "
                    "that facts neither leak nor damage other answers.",
                    .optional = "16"),
    OPTION_INT_SPEC(0, "seed", &opt.seed, "N", 0, (int64_t)1 << 53,
                    "The same seed and data give the same adapter (default 1)."),
    OPTION_INT_SPEC(0, "checkpoint", &opt.checkpoint, "N", 0, 1000000,
                    "Save the state every N steps, encrypted in the store (default 20; 0: never)."),
    OPTION_FLAG_SPEC(0, "resume", &opt.resume,
                     "Go on from the newest checkpoint of a training that was broken off."),
    OPTION_FLAG_SPEC(0, "fresh", &opt.fresh,
                     "Start from nothing although the profile has an adapter."),
    OPTION_FLAG_SPEC(0, "grpo", &opt.grpo,
                     "Learn from rewards instead of given answers (GRPO): the model answers the "
                     "questions of `--data` many times, `--reward` scores the answers, and better "
                     "ones become likelier. `--steps` says how often (default 30)."),
    OPTION_STRING_SPEC(0, "reward", &opt.reward, "FILE",
                       "With `--grpo`: the rules that score answers, as for preft-eval(1)."),
    OPTION_INT_SPEC(0, "prompts", &opt.prompts, "N", 1, 4096,
                    "With `--grpo`: questions per step (default 3)."),
    OPTION_INT_SPEC(0, "group", &opt.group, "N", 2, 4096,
                    "With `--grpo`: answers to each question (default 6)."),
    OPTION_INT_SPEC(0, "answer-tokens", &opt.answer_tokens, "N", 1, 1 << 20,
                    "With `--grpo`: most tokens of an answer (default 96)."),
    OPTION_REAL_SPEC(0, "beta", &opt.beta, "X", 0, 1000,
                     "With `--grpo`: weight of staying near the base model (default 0.04)."),
    OPTION_FLAG_SPEC(0, "dr-grpo", &opt.dr_grpo,
                     "With `--grpo`: the Dr. GRPO variant, without the division by the answers' "
                     "lengths and by the rewards' spread."),
    OPTION_FLAG_SPEC(0, "dry-run", &opt.dry_run,
                     "Print every token with its mark and whether it is learned; train nothing."),
    OPTIONS_END};

typedef struct {
    const command_context *ctx;
    model *m;
    engine *e;
    store *store;
    session *session;
    int64_t profile;    /* 0: none yet */
    train_dataset data; /* moved to the job when it starts */
    size_t n_examples;
    char *note; /* what a checkpoint must agree with to be gone on from; owned */
    buf start, checkpoint;
    train_job *job;
} training;

static bool is_direft(void)
{
    return opt.method & 1;
}

static bool is_prefill_only(void)
{
    return opt.method < 2;
}

static train_job_options job_options(void)
{
    double rate = opt.has_rate ? opt.rate : is_direft() ? 1e-3 : 2e-3;
    train_job_options o = {.shape = {.direft = is_direft(),
                                     .prefill_only = is_prefill_only(),
                                     .rank = opt.has_rank  ? (int)opt.rank
                                             : is_direft() ? 64
                                                           : 8,
                                     .alpha = opt.alpha,
                                     .seed = (uint64_t)opt.seed},
                           .optimizer = optimizer_defaults(rate),
                           .epochs = (int)opt.epochs,
                           .max_steps = opt.steps,
                           .batch = (int)opt.batch,
                           .seed = (uint64_t)opt.seed,
                           .checkpoint_steps = opt.profile ? opt.checkpoint : 0};
    o.optimizer.schedule = opt.schedule == 0 ? RATE_COSINE : RATE_CONSTANT;
    o.optimizer.warmup_share = opt.warmup;
    o.optimizer.clip = opt.clip;
    o.optimizer.orthonormal = opt.orthonormal;
    return o;
}

/* --- data ----------------------------------------------------------------------------------- */

static pf_status load_data(training *t, pf_err *err)
{
    train_dataset_options o = {.policy = is_prefill_only() ? POSITIONS_TURNS : POSITIONS_ALL,
                               .max_tokens = (size_t)opt.max_tokens};
    pf_status status = PF_OK;
    for (size_t i = 0; i < opt.data.count && status == PF_OK; i++)
        status = train_data_add_file(&t->data, t->m, opt.data.items[i], &o, err);
    if (status == PF_OK && opt.data.count == 0)
        status = train_data_add_history(&t->data, t->m, t->session, t->profile,
                                        (train_data_from)opt.from, &o, err);
    if (status == PF_OK) train_dataset_hold_out(&t->data, opt.held_out, (uint64_t)opt.seed);
    if (status == PF_OK && opt.replay > 0)
        status = replay_add(&t->data, t->e, (size_t)opt.replay, REPLAY_TOKENS, (uint64_t)opt.seed,
                            &o, err);
    return status;
}

static void tell_data(const training *t)
{
    const train_dataset *d = &t->data;
    for (size_t i = 0; i < d->n_skipped; i++)
        note(t->ctx, "left out: %s: %s", d->skipped[i].label, d->skipped[i].reason);
    note(t->ctx, "%zu examples, %zu tokens to learn of %zu, %zu tokens kept aside%s", d->n,
         train_dataset_targets(d, false), train_dataset_tokens(d, false),
         train_dataset_targets(d, true), d->n_cut ? ", some conversations cut at turns" : "");
}

/* --- the profile ---------------------------------------------------------------------------- */

/* Finds the profile, if it is there, and what to start from. */
static pf_status open_profile(training *t, pf_err *err)
{
    profile_info info;
    pf_status status = signin_open(t->ctx, &t->store, &t->session, err);
    if (status != PF_OK) return status;
    status = profile_find(t->session, opt.profile, &info, err);
    if (status == PF_NOT_FOUND) {
        profile_info_free(&info);
        return PF_OK;
    }
    if (status == PF_OK) {
        t->profile = info.id;
        bool same = info.has_adapter && strcmp(info.current.kind, method_names[opt.method]) == 0;
        if (same && !opt.fresh)
            status = profile_read_adapter(t->session, info.id, 0, &t->start, err);
    }
    profile_info_free(&info);
    return status;
}

static char *make_note(const training *t)
{
    train_job_options o = job_options();
    return xasprintf("{\"method\":\"%s\",\"rank\":%d,\"epochs\":%d,\"batch\":%d,\"seed\":%llu,"
                     "\"rate\":%.17g,\"targets\":%zu,\"tokens\":%zu,\"start\":%zu}",
                     method_names[opt.method], o.shape.rank, o.epochs, o.batch,
                     (unsigned long long)o.seed, o.optimizer.rate,
                     train_dataset_targets(&t->data, false), train_dataset_tokens(&t->data, false),
                     t->start.len);
}

static pf_status read_newest_checkpoint(training *t, pf_err *err)
{
    checkpoint_list list = {0};
    pf_status status =
        t->profile ? checkpoint_list_load(t->session, t->profile, &list, err) : PF_OK;
    if (status == PF_OK && list.n == 0)
        status = err_set(err, PF_NOT_FOUND, "there is no checkpoint of this profile to go on from");
    if (status == PF_OK && strcmp(list.items[list.n - 1].note, t->note) != 0)
        status =
            err_set(err, PF_REFUSED,
                    "the checkpoint belongs to a training with other data or options; give the "
                    "same ones, or leave --resume out to begin anew");
    if (status == PF_OK) {
        const checkpoint_info *newest = &list.items[list.n - 1];
        status = checkpoint_read(t->session, t->profile, newest->id, &t->checkpoint, err);
        if (status == PF_OK) note(t->ctx, "going on from step %lld", (long long)newest->step);
    }
    checkpoint_list_free(&list);
    return status;
}

static pf_status make_profile(training *t, pf_err *err)
{
    if (t->profile) return PF_OK;
    return profile_create(t->session, opt.profile, NULL, &t->profile, err);
}

static pf_status save_checkpoint(training *t, pf_err *err)
{
    buf bytes = {0};
    int64_t step = 0;
    pf_status status = PF_OK;
    if (!opt.profile || !train_job_take_checkpoint(t->job, &bytes, &step)) return PF_OK;
    status = checkpoint_save(t->session, t->profile, step, t->note, bytes.data, bytes.len,
                             KEEP_CHECKPOINTS, err);
    wipe_buf(&bytes);
    return status;
}

/* --- progress and result -------------------------------------------------------------------- */

static void show_progress(const training *t, const train_progress *p)
{
    if (t->ctx->global->quiet || !isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Kstep %lld/%lld  loss %.3f  %.0f tok/s", (long long)p->step,
            (long long)p->n_steps, p->loss, p->tokens_per_second);
    if (isfinite(p->seconds_left)) fprintf(stderr, "  about %.0f s left", p->seconds_left);
    fflush(stderr);
}

static json_t *real_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* The record that the profile keeps of its training. */
static json_t *training_record(const training *t, const train_progress *p)
{
    train_job_options o = job_options();
    return json_pack("{s:s, s:i, s:i, s:i, s:I, s:I, s:f, s:I, s:I, s:b, s:o, s:o, s:o, s:o, s:o, "
                     "s:o, s:s}",
                     "method", method_names[opt.method], "rank", o.shape.rank, "epochs", o.epochs,
                     "batch", o.batch, "steps", (json_int_t)p->step, "seed", (json_int_t)opt.seed,
                     "rate", o.optimizer.rate, "examples", (json_int_t)t->n_examples, "tokens",
                     (json_int_t)p->tokens_done, "went_on", (int)(t->start.len > 0), "loss_before",
                     real_or_null(p->train_before), "loss", real_or_null(p->train_after),
                     "loss_served", real_or_null(p->train_served), "held_out_before",
                     real_or_null(p->held_out_before), "held_out", real_or_null(p->held_out_now),
                     "held_out_served", real_or_null(p->held_out_served), "ended",
                     p->state == TRAIN_DONE ? "done" : "stopped");
}

static json_t *provenance_record(void)
{
    json_t *files = json_array();
    for (size_t i = 0; i < opt.data.count; i++)
        json_array_append_new(files, json_string(path_base(opt.data.items[i])));
    return json_pack("{s:s, s:o, s:I}", "source", opt.data.count ? "files" : from_names[opt.from],
                     "files", files, "replay", (json_int_t)opt.replay);
}

static pf_status publish(training *t, const buf *blob, json_t *record, int64_t *version,
                         pf_err *err)
{
    if (opt.out)
        return adapter_file_export(blob->data, blob->len, model_get_config(t->m), opt.out, true,
                                   err);
    buf training_text = {0}, provenance_text = {0};
    json_t *provenance = provenance_record();
    json_append(&training_text, record);
    json_append(&provenance_text, provenance);
    json_decref(provenance);
    profile_version_record r = {.base_name = model_name(t->m),
                                .training = buf_str(&training_text),
                                .provenance = buf_str(&provenance_text)};
    pf_status status =
        profile_add_version(t->session, t->profile, blob->data, blob->len, &r, version, err);
    if (status == PF_OK) status = checkpoint_remove_all(t->session, t->profile, err);
    wipe_buf(&training_text);
    wipe_buf(&provenance_text);
    return status;
}

static pf_status take_result(training *t, const train_progress *p, pf_err *err)
{
    if (p->state == TRAIN_CANCELLED) return interrupt_status(err);
    if (p->state == TRAIN_FAILED) return err_set(err, PF_FAILED, "%s", p->message);
    if (p->state == TRAIN_STOPPED) note(t->ctx, "training stopped: %s", p->message);
    buf blob = {0};
    int64_t version = 0;
    json_t *record = training_record(t, p);
    pf_status status = train_job_result(t->job, &blob, err);
    if (status == PF_OK) status = publish(t, &blob, record, &version, err);
    if (status == PF_OK) {
        note(t->ctx, "loss %.3f before, %.3f now (%.3f as served); %.0f tokens/s", p->train_before,
             p->train_after, p->train_served, p->tokens_per_second);
        if (isfinite(p->held_out_before))
            note(t->ctx, "on what was kept aside %.3f before, %.3f now%s", p->held_out_before,
                 p->held_out_now,
                 p->held_out_now > p->held_out_before ? ": it rose, the profile may be worse" : "");
        if (version) note(t->ctx, "%s is now version %lld", opt.profile, (long long)version);
        if (t->ctx->global->json) {
            json_object_set_new(record, "version", json_integer(version));
            json_object_set_new(record, "tokens_per_second", json_real(p->tokens_per_second));
            print_json(json_incref(record));
        }
    }
    json_decref(record);
    wipe_buf(&blob);
    return status;
}

static pf_status run_job(training *t, pf_err *err)
{
    train_job_options o = job_options();
    train_progress p = {0};
    pf_status status = PF_OK;
    t->note = make_note(t);
    if (opt.resume) status = read_newest_checkpoint(t, err);
    if (status == PF_OK && opt.profile) status = make_profile(t, err);
    if (status != PF_OK) return status;
    t->n_examples = t->data.n;
    status = train_job_start(t->e, &t->data, &o, t->start.data, t->start.len, t->checkpoint.data,
                             t->checkpoint.len, &t->job, err);
    if (status != PF_OK) return status;
    do {
        train_job_wait(t->job, 500);
        train_job_get(t->job, &p);
        show_progress(t, &p);
        if (interrupt_seen()) train_job_cancel(t->job);
        status = save_checkpoint(t, err);
    } while (status == PF_OK && (p.state == TRAIN_RUNNING || p.state == TRAIN_PAUSED));
    if (isatty(STDERR_FILENO) && !t->ctx->global->quiet) fputc('\n', stderr);
    return status == PF_OK ? take_result(t, &p, err) : status;
}

/* --- rewards ---------------------------------------------------------------------------------- */

static policy_options make_policy_options(void)
{
    train_job_options o = job_options();
    policy_options p = {.shape = o.shape,
                        .optimizer = o.optimizer,
                        .grpo = {.low = 0.8, .high = 1.2, .beta = opt.beta},
                        .advantage = opt.dr_grpo ? GRPO_CENTRED : GRPO_STD,
                        .prompts_per_step = (int)opt.prompts,
                        .group = (int)opt.group,
                        .max_tokens = (int)opt.answer_tokens,
                        .temperature = 1,
                        .steps = opt.steps ? opt.steps : 30,
                        .seed = (uint64_t)opt.seed};
    p.grpo.average = opt.dr_grpo ? GRPO_FIXED_LENGTH : GRPO_TOKEN_MEAN;
    p.grpo.max_length = p.max_tokens;
    p.optimizer.schedule = RATE_CONSTANT;
    p.optimizer.warmup_share = 0;
    p.optimizer.rate = opt.has_rate ? opt.rate : 1e-3;
    return p;
}

static pf_status run_policy(training *t, pf_err *err)
{
    policy_options o = make_policy_options();
    buf blob = {0};
    json_t *record = NULL;
    int64_t version = 0;
    pf_status status =
        train_policy_run(t->ctx, t->e, &opt.data, opt.reward, &o, &t->start, &blob, &record, err);
    if (status == PF_OK && opt.profile) status = make_profile(t, err);
    if (status == PF_OK) status = publish(t, &blob, record, &version, err);
    if (status == PF_OK && version)
        note(t->ctx, "%s is now version %lld", opt.profile, (long long)version);
    if (status == PF_OK && t->ctx->global->json) {
        json_object_set_new(record, "version", json_integer(version));
        print_json(json_incref(record));
    }
    json_decref(record);
    wipe_buf(&blob);
    return status;
}

/* --- the command ---------------------------------------------------------------------------- */

static pf_status check_options(const command_context *ctx, pf_err *err)
{
    if (!opt.profile == !opt.out) return usage_error(ctx, err, "give --profile NAME or --out DIR");
    if (opt.out && opt.data.count == 0) return usage_error(ctx, err, "--out needs --data");
    if (opt.grpo && (opt.data.count == 0 || !opt.reward))
        return usage_error(ctx, err, "--grpo needs --data with questions and --reward");
    if (opt.reward && !opt.grpo) return usage_error(ctx, err, "--reward belongs to --grpo");
    if (opt.grpo && (opt.resume || opt.replay || opt.dry_run))
        return usage_error(ctx, err, "--grpo goes without --resume, --replay and --dry-run");
    if (opt.out && opt.resume) return usage_error(ctx, err, "--resume needs --profile");
    return PF_OK;
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    training t = {.ctx = ctx};
    pf_status status = check_options(ctx, err);
    if (status != PF_OK) return status;
    if (opt.profile) status = open_profile(&t, err);
    if (status == PF_OK) status = open_model(ctx, &t.m, err);
    if (status != PF_OK) goto out;
    interrupt_catch();
    engine_options o = open_engine_options(ctx);
    status = engine_open(t.m, &o, &t.e, err);
    if (status == PF_OK && opt.grpo) {
        status = run_policy(&t, err);
        goto out;
    }
    if (status == PF_OK) status = load_data(&t, err);
    if (status != PF_OK) goto out;
    tell_data(&t);
    status = opt.dry_run ? train_data_print(&t.data, t.m, ctx->global->json) : run_job(&t, err);
out:
    train_job_free(t.job);
    train_dataset_free(&t.data);
    engine_close(t.e);
    model_close(t.m);
    session_unref(t.session);
    store_close(t.store);
    wipe_buf(&t.start);
    wipe_buf(&t.checkpoint);
    free(t.note);
    option_list_free(&opt.data);
    return status;
}

const struct command train_command = {
    .name = "train",
    .summary = "Fine-tune a profile from chat history or a file",
    .synopsis = TEXTS("--user U --profile NAME [OPTIONS]", "--out DIR --data FILE [OPTIONS]",
                      "--grpo --reward FILE --data FILE [OPTIONS]"),
    .description = TEXTS(
        "Trains the profile's adapter on this machine and saves it as the profile's newest "
        "version; "
        "older versions stay and can be gone back to. The base model stays as it is. If the "
        "profile "
        "has an adapter of the same kind, training goes on from it unless `--fresh` is given.",
        "Learned are the assistant's answers and their end tokens. The adapter acts on the same "
        "tokens as in chat: with `lorap` and `direftp` on everything but the answers.",
        "Ctrl-C ends the training; the profile stays as it was. After a crash `--resume` with the "
        "same options goes on from the newest checkpoint.",
        "With `--json` the record of the training is printed: losses before and after, with the "
        "weights as trained and as served (bfloat16), steps, tokens."),
    .options = options,
    .examples =
        EXAMPLES({"preft train --user mira --profile letters", "Learn from the "
                                                               "conversations under this "
                                                               "profile."},
                 {"preft train --user mira --profile facts --data facts.jsonl --replay",
                  "Learn facts from a file without spoiling other answers."},
                 {"preft train --user mira --profile brief --grpo -d ask.jsonl --reward c.json",
                  "Learn from rewards."},
                 {"preft train --out ./adapter --data chats.jsonl --method direftp",
                  "Make an adapter folder without a profile."}),
    .see_also = TEXTS("preft-profile 1", "preft-run 1", "preft 7"),
    .groups = GROUP_MODEL | GROUP_ENGINE | GROUP_SIGN_IN,
    .area = AREA_TRAINING,
    .run = run};
