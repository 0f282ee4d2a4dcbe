/* preft train: fine-tunes a profile on this machine, from chat history or from a file. */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
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
#include "train/data/gather.h"
#include "train/data/lessons.h"
#include "train/live/live.h"
#include "train/live/live_request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const method_names[] = {"lorap", "direftp", "lora", "direft", NULL};
static const char *const schedule_names[] = {"cosine", "constant", NULL};
static const char *const from_names[] = {"all", "good", "rewrites", NULL};
static const char *const facts_names[] = {"auto", "found", "none", NULL};

#define MOST_TEXT_BYTES ((size_t)1 << 20)

static struct {
    const char *profile, *out, *reward, *distill;
    option_list data, conversations;
    int method, schedule, from, facts;
    int64_t rank, epochs, steps, seed, batch, max_tokens, checkpoint, replay, group, prompts, check,
        answer_tokens, updates, wordings;
    double after, rate, alpha, held_out, warmup, clip, beta, cut_off, trust, ema, sense, sense_free,
        spread, about;
    bool has_schedule, has_warmup, has_clip, has_checkpoint, has_replay, has_after, dry_run, fresh,
        resume, orthonormal, grpo, dr_grpo;
} opt = {.seed = 1,
         .group = 12,
         .prompts = 12,
         .answer_tokens = 64,
         .updates = 1,
         .trust = 0.03,
         .ema = 0.8,
         .beta = 0.02,
         .sense = 0.5,
         .spread = 0.2,
         .sense_free = 1,
         .about = 1};

static const option_spec options[] = {
    OPTION_STRING_SPEC('p', "profile", &opt.profile, "NAME",
                       "Train this profile of the user; it is made if there is none."),
    OPTION_STRING_SPEC('o', "out", &opt.out, "DIR",
                       "Write the adapter to folder DIR instead of a profile; one that is there is "
                       "replaced."),
    OPTION_LIST_SPEC(
        'd', "data", &opt.data, "FILE",
        "Learn from JSONL FILE, a conversation {\"messages\": [...]} a line; may be "
        "given several times. Without it: from the profile's conversations (of a new profile: "
        "from all of the user's)."),
    OPTION_CHOICE_SPEC(
        0, "from", &opt.from, "WHAT", from_names,
        "What to learn from conversations: `all` answers that were not rated bad "
        "(the default), those rated `good` or rewritten, or `rewrites` only. Rewritten "
        "answers count twice."),
    OPTION_LIST_SPEC(0, "conversation", &opt.conversations, "NUMBER",
                     "Learn from this conversation only (preft-history(1) gives the numbers); may "
                     "be given several times."),
    OPTION_CHOICE_SPEC('m', "method", &opt.method, "METHOD", method_names,
                       "`lorap` (the default) and `direftp` act on prompts only and cost nothing "
                       "while answers are written; `lora` and `direft` act on every token."),
    OPTION_INT_SPEC('r', "rank", &opt.rank, "R", 1, ADAPTER_MAX_RANK,
                    "Size of the adapter (default 8 for LoRA, 64 for DiReFT)."),
    OPTION_REAL_SPEC(0, "alpha", &opt.alpha, "A", 0, 10000,
                     "LoRA's alpha (default twice the rank)."),
    OPTION_REAL_SPEC(
        0, "rate", &opt.rate, "X", 1e-9, 1000,
        "Learning rate (default 0.002 for lorap and lora, 0.001 for direftp and direft, 0.0005 "
        "where these learn facts; 0.003 with `--grpo`)."),
    OPTION_CHOICE_SPEC(
        0, "schedule", &opt.schedule, "NAME", schedule_names,
        "How the rate falls: `cosine` to a twentieth (the default) or `constant` (with "
        "`--grpo` the default).",
        .given = &opt.has_schedule),
    OPTION_REAL_SPEC(0, "warmup", &opt.warmup, "SHARE", 0, 1,
                     "Share of the steps in which the rate rises (default 0.05).",
                     .given = &opt.has_warmup),
    OPTION_REAL_SPEC(0, "clip", &opt.clip, "NORM", 0, 1e6,
                     "Largest norm of a step's gradient (default 1, with `--grpo` 0.1; 0: any).",
                     .given = &opt.has_clip),
    OPTION_FLAG_SPEC(0, "orthonormal", &opt.orthonormal,
                     "Keep DiReFT's rotation orthonormal after each step."),
    OPTION_INT_SPEC('e', "epochs", &opt.epochs, "N", 1, 10000,
                    "Passes over the data (default 3; 2 where facts are learned)."),
    OPTION_INT_SPEC(0, "steps", &opt.steps, "N", 0, 10000000, "Stop after N steps; 0: all epochs."),
    OPTION_INT_SPEC('b', "batch", &opt.batch, "N", 1, 4096, "Conversations per step (default 4)."),
    OPTION_INT_SPEC(0, "max-tokens", &opt.max_tokens, "N", 16, 1 << 20,
                    "Longest example; longer conversations are cut at turns (default 1024)."),
    OPTION_REAL_SPEC(0, "held-out", &opt.held_out, "SHARE", 0, 0.5,
                     "Share of the conversations kept aside to check (default 0)."),
    OPTION_CHOICE_SPEC(0, "facts", &opt.facts, "WHAT", facts_names,
                       "Facts about the user: `auto` (the default) learns the confirmed notes of "
                       "preft-note(1), and asks in many words what the data asks about the user; "
                       "`found` also learns what users state about themselves in the data, "
                       "unconfirmed; `none` does nothing of this."),
    OPTION_INT_SPEC(0, "wordings", &opt.wordings, "N", 0, 1000,
                    "Ask for each fact in N ways (default: by their number, 8 to 30)."),
    OPTION_INT_SPEC(0, "replay", &opt.replay, "N", 0, 72,
                    "Mix in N of the model's own answers to general questions, so that facts "
                    "neither leak nor damage other answers (40 without N, and where facts are "
                    "learned; else 0).",
                    .optional = "40", .given = &opt.has_replay),
    OPTION_REAL_SPEC(0, "after-unrelated", &opt.after, "SHARE", 0, 1,
                     "Share of the made questions that follow turns about something else (default "
                     "0.25).",
                     .given = &opt.has_after),
    OPTION_INT_SPEC(0, "seed", &opt.seed, "N", 0, (int64_t)1 << 53,
                    "The same seed and data give the same adapter (default 1)."),
    OPTION_INT_SPEC(0, "checkpoint", &opt.checkpoint, "N", 0, 1000000,
                    "Save the state, encrypted in the store, so that a crash costs at most N steps "
                    "(default 20; 0: never).",
                    .given = &opt.has_checkpoint),
    OPTION_FLAG_SPEC(0, "resume", &opt.resume,
                     "Go on from the newest checkpoint of a training that was broken off."),
    OPTION_FLAG_SPEC(0, "fresh", &opt.fresh,
                     "Start from nothing although the profile has an adapter."),
    OPTION_STRING_SPEC(
        0, "distill", &opt.distill, "TEXT|@FILE",
        "Learn what this system text does (facts, a way of writing), so that it need "
        "not be given any more. Data or conversations only give questions then; "
        "neither need be there."),
    OPTION_FLAG_SPEC(0, "grpo", &opt.grpo,
                     "Learn from rewards instead of given answers (GRPO): the model answers the "
                     "questions of `--data` many times, `--reward` scores the answers, and better "
                     "ones become likelier. `--steps` says how often (default 30)."),
    OPTION_STRING_SPEC(0, "reward", &opt.reward, "FILE",
                       "With `--grpo`: the rules that score answers, as for preft-eval(1)."),
    OPTION_INT_SPEC(0, "prompts", &opt.prompts, "N", 1, 4096,
                    "With `--grpo`: questions per step (default 12)."),
    OPTION_INT_SPEC(0, "group", &opt.group, "N", 2, 4096,
                    "With `--grpo`: answers to each question (default 12)."),
    OPTION_INT_SPEC(0, "answer-tokens", &opt.answer_tokens, "N", 1, 1 << 20,
                    "With `--grpo`: most tokens of an answer (default 64)."),
    OPTION_INT_SPEC(0, "updates", &opt.updates, "N", 1, 100,
                    "With `--grpo`: updates with the answers of a step (default 1); the ratio to "
                    "the weights that gave them is clipped to 0.8 to 1.2."),
    OPTION_REAL_SPEC(0, "cut-off", &opt.cut_off, "X", 0, 1,
                     "With `--grpo`: how much of its reward an answer keeps that isn't through "
                     "after `--answer-tokens` (default 0: what is no answer counts nothing)."),
    OPTION_REAL_SPEC(0, "beta", &opt.beta, "X", 0, 1000,
                     "With `--grpo`: weight of staying near the base model (default 0.02)."),
    OPTION_REAL_SPEC(
        0, "trust", &opt.trust, "X", 0, 1000,
        "With `--grpo`: how far a step may move the answers, in nats per token (KL divergence); "
        "one that goes further is cut short (default 0.03; 0: no bound)."),
    OPTION_REAL_SPEC(
        0, "ema", &opt.ema, "X", 0, 0.99,
        "With `--grpo`: the result is the weights' exponential moving average, which decays by X "
        "with each step (default 0.8; 0: the last weights), so that it doesn't swing as they do."),
    OPTION_REAL_SPEC(
        0, "sense", &opt.sense, "X", 0, 1000,
        "With `--grpo`: how much less an answer counts whose words the base model finds "
        "unlikely, so that rules are not met by nonsense: the reward is multiplied by "
        "exp(-X (loss - `--sense-free`)), without the loss of the answer's end (default 0.5)."),
    OPTION_REAL_SPEC(
        0, "sense-free", &opt.sense_free, "X", 0, 1000,
        "With `--grpo`: the loss per token that costs an answer nothing (default 1), so that "
        "answers need not become likelier and likelier, which long ones are."),
    OPTION_REAL_SPEC(
        0, "about", &opt.about, "X", 0, 1,
        "With `--grpo`: how much of its reward an answer loses that the base model could as well "
        "have given to the step's next question; what tells its question by its words keeps all "
        "(default 1)."),
    OPTION_REAL_SPEC(
        0,
        "spread", &opt.spread, "X", GRPO_LEAST_SPREAD, 1000,
        "With `--grpo`: added to the standard deviation of a question's rewards before they are "
        "divided by it, so that answers that are about equally good change little (default 0.2)."),
    OPTION_INT_SPEC(
        0,
        "check", &opt.check, "N", 0, 4096,
        "With `--grpo`: questions that are kept aside, at most a quarter of all; after each step "
        "they are answered greedily, and the weights that did best are the result (default 0: "
        "those after the last step are)."),
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
    int64_t profile; /* 0: none yet */
    train_live *live;
    char *distill;          /* the text; owned */
    int64_t *conversations; /* those of --conversation; owned */
} training;

/* The text of --distill, or the file's that it names. */
static pf_status read_distilled(training *t, pf_err *err)
{
    buf text = {0};
    pf_status status = PF_OK;
    if (opt.distill[0] == '@')
        status = file_read(opt.distill + 1, MOST_TEXT_BYTES, &text, err);
    else
        buf_puts(&text, opt.distill);
    if (status == PF_OK && (text.len == 0 || strlen(buf_str(&text)) != text.len ||
                            !utf8_valid(buf_str(&text), text.len)))
        status = err_set(err, PF_USAGE, "--distill needs a text in UTF-8");
    if (status == PF_OK) t->distill = xstrdup(buf_str(&text));
    wipe_buf(&text);
    return status;
}

static pf_status read_conversations(training *t, pf_err *err)
{
    const size_t n = opt.conversations.count;
    pf_status status = PF_OK;
    if (n) t->conversations = xcalloc(n, sizeof *t->conversations);
    for (size_t i = 0; i < n && status == PF_OK; i++)
        status = parse_int(opt.conversations.items[i], "the conversation", 1, INT64_MAX,
                           &t->conversations[i], err);
    return status;
}

/* What the options ask for; files and numbers are borrowed from them. */
static train_request make_request(const training *t)
{
    train_request r = {.profile = t->profile,
                       .new_profile = opt.profile,
                       .method = (train_method)opt.method,
                       .from = (learn_from)opt.from,
                       .files = (const char *const *)opt.data.items,
                       .n_files = opt.data.count,
                       .conversations = t->conversations,
                       .n_conversations = opt.conversations.count,
                       .max_tokens = (size_t)opt.max_tokens,
                       .held_out = opt.held_out,
                       .replay = opt.has_replay && opt.replay == 0 ? -1 : (int)opt.replay,
                       .facts = (learn_facts)opt.facts,
                       .wordings = (int)opt.wordings,
                       .distill = t->distill,
                       .after = opt.has_after ? &opt.after : NULL,
                       .fresh = opt.fresh,
                       .rank = (int)opt.rank,
                       .alpha = opt.alpha,
                       .rate = opt.rate,
                       .epochs = (int)opt.epochs,
                       .batch = (int)opt.batch,
                       .steps = opt.steps,
                       .constant_rate = opt.schedule == 1,
                       .orthonormal = opt.orthonormal,
                       .warmup = opt.has_warmup ? &opt.warmup : NULL,
                       .clip = opt.has_clip ? &opt.clip : NULL,
                       .seed = (uint64_t)opt.seed,
                       .checkpoint_steps = opt.checkpoint};
    if (opt.has_checkpoint && opt.checkpoint == 0) r.checkpoint_steps = -1;
    return r;
}

/* Whether options say anything about what to learn and how. */
static bool says_something(const train_request *r)
{
    const train_request nothing = {.seed = 1};
    return !train_request_equal(r, &nothing);
}

/* --- data ----------------------------------------------------------------------------------- */

static bool interrupted(void *ctx)
{
    (void)ctx;
    return interrupt_seen();
}

static void tell_added(const training *t, const train_added *a)
{
    if (t->ctx->global->quiet) return;
    if (a->n_pairs)
        note(t->ctx,
             "facts: %zu, asked for in %zu ways (%zu given, %zu by their kind, %zu by the model, "
             "%zu in other words; %zu of the model's refused)",
             a->n_facts, a->n_pairs, a->n_given, a->n_by_kind, a->n_by_model, a->n_reworded,
             a->n_refused);
    if (a->n_distilled)
        note(t->ctx, "distilled: %zu questions answered with the text, %zu answers refused",
             a->n_distilled, a->n_refused);
    if (a->n_replayed)
        note(t->ctx, "replay: %zu of the model's own answers to general questions", a->n_replayed);
    if (a->n_after)
        note(t->ctx, "%zu of the made questions follow turns about something else", a->n_after);
    if (a->n_found && opt.facts == LEARN_FACTS)
        note(t->ctx,
             "%zu statements of users about themselves were found; `preft note find` or `--facts "
             "found` makes facts of them",
             a->n_found);
}

/* Every token that would be learned from. */
static pf_status dry_run(const training *t, pf_err *err)
{
    train_dataset d = {0};
    lessons_seen seen = {0};
    train_added added = {0};
    const train_request r = make_request(t);
    pf_status status = gather_examples(t->session, t->m, &r, &d, NULL, &seen, err);
    if (status == PF_OK)
        status = lessons_add(&d, t->m, t->e, t->session, &r, &seen, interrupted, NULL, &added, err);
    for (size_t i = 0; i < d.n_skipped && status == PF_OK; i++)
        note(t->ctx, "left out: %s: %s", d.skipped[i].label, d.skipped[i].reason);
    if (status == PF_OK) tell_added(t, &added);
    if (status == PF_OK) status = train_data_print(&d, t->m, t->ctx->global->json);
    lessons_seen_free(&seen);
    train_dataset_free(&d);
    return status;
}

static void tell_data(const training *t, const live_status *s)
{
    for (size_t i = 0; i < s->n_left_out; i++) {
        train_plan_skipped left;
        train_live_left_out(t->live, i, &left);
        note(t->ctx, "left out: %s: %s", left.label, left.reason);
        train_plan_skipped_free(&left);
    }
    if (s->n_examples == 0) return;
    note(t->ctx, "%zu examples, %zu tokens to learn of %zu, %zu tokens kept aside%s", s->n_examples,
         s->n_learned, s->n_tokens, s->n_held_out_learned,
         s->n_cut ? ", some conversations cut at turns" : "");
    tell_added(t, &s->added);
    if (s->resumed_step) {
        buf lost = {0};
        live_lost_words(s, &lost);
        note(t->ctx, "going on from step %lld%s", (long long)s->resumed_step, buf_str(&lost));
        buf_free(&lost);
    }
}

/* --- the profile ---------------------------------------------------------------------------- */

static pf_status open_profile(training *t, pf_err *err)
{
    profile_info info = {0};
    pf_status status = signin_open(t->ctx, &t->store, &t->session, err);
    if (status == PF_OK) status = profile_find(t->session, opt.profile, &info, err);
    if (status == PF_OK) t->profile = info.id;
    profile_info_free(&info);
    return status == PF_NOT_FOUND && t->session ? PF_OK : status;
}

/* --- progress and result -------------------------------------------------------------------- */

static void show_progress(const training *t, const live_status *s)
{
    if (t->ctx->global->quiet || !isatty(STDERR_FILENO)) return;
    if (s->phase == LIVE_PREPARING)
        fprintf(stderr, "\r\033[K%s", s->doing);
    else
        fprintf(stderr, "\r\033[Kstep %lld/%lld  loss %.3f  %.0f tok/s", (long long)s->step,
                (long long)s->n_steps, s->loss, s->tokens_per_second);
    if (s->phase == LIVE_TRAINING && isfinite(s->seconds_left))
        fprintf(stderr, "  about %.0f s left", s->seconds_left);
    fflush(stderr);
}

static void tell_result(const training *t, const live_status *s)
{
    if (s->phase == LIVE_STOPPED) note(t->ctx, "training stopped: %s", s->message);
    note(t->ctx, "loss %.3f before, %.3f now (%.3f as served); %.0f tokens/s", s->loss_before,
         s->loss_after, s->loss_served, s->tokens_per_second);
    if (isfinite(s->held_out_before))
        note(t->ctx, "on what was kept aside %.3f before, %.3f now%s", s->held_out_before,
             s->held_out_now,
             s->held_out_now > s->held_out_before ? ": it rose, the profile may be worse" : "");
    if (s->version) note(t->ctx, "%s is now version %lld", opt.profile, (long long)s->version);
}

static pf_status print_record(const training *t, const live_status *s, pf_err *err)
{
    buf text = {0};
    json_t *record = NULL;
    pf_status status = train_live_record(t->live, &text, err);
    if (status == PF_OK) status = json_parse(buf_str(&text), text.len, "the record", &record, err);
    if (status == PF_OK) {
        json_object_set_new(record, "version", json_integer(s->version));
        json_object_set_new(record, "tokens_per_second", json_real(s->tokens_per_second));
        print_json(record);
    }
    buf_free(&text);
    return status;
}

static pf_status take_result(training *t, const live_status *s, pf_err *err)
{
    buf blob = {0};
    pf_status status = PF_OK;
    const char *made = live_made_words(s->made);
    if (made) note(t->ctx, "%s", made);
    if (s->phase == LIVE_FAILED) return err_set(err, s->status, "%s", s->message);
    if (s->phase == LIVE_CANCELLED) return interrupt_status(err);
    if (opt.out) {
        status = train_live_result(t->live, &blob, err);
        if (status == PF_OK)
            status = adapter_file_export(blob.data, blob.len, model_get_config(t->m), opt.out, true,
                                         err);
        wipe_buf(&blob);
    }
    if (status != PF_OK) return status;
    tell_result(t, s);
    return t->ctx->global->json ? print_record(t, s, err) : PF_OK;
}

static pf_status start_live(training *t, pf_err *err)
{
    const train_request r = make_request(t);
    if (!opt.resume) return train_live_start(t->session, t->e, &r, &t->live, err);
    if (!t->profile)
        return err_set(err, PF_NOT_FOUND, "there is no profile %s to go on with", opt.profile);
    return train_live_resume(t->session, t->e, t->profile, says_something(&r) ? &r : NULL, &t->live,
                             err);
}

/* After the training was ended early: whether there is a state to go on from. */
static void tell_stopped(const training *t)
{
    live_unfinished_list list = {0};
    profile_info info = {0};
    bool saved = false;
    if (!opt.profile || profile_find(t->session, opt.profile, &info, NULL) != PF_OK) return;
    if (train_live_unfinished(t->session, &list, NULL) == PF_OK)
        for (size_t i = 0; i < list.n; i++)
            saved |= list.items[i].profile == info.id;
    if (saved) note(t->ctx, "stopped; --resume goes on");
    live_unfinished_list_free(&list);
    profile_info_free(&info);
}

static pf_status run_live(training *t, pf_err *err)
{
    live_status s = {0};
    bool told = false;
    pf_status status = start_live(t, err);
    if (status != PF_OK) return status;
    do {
        train_live_wait(t->live, 500);
        train_live_get(t->live, &s);
        if (!told && s.phase != LIVE_PREPARING) {
            tell_data(t, &s);
            told = true;
        }
        show_progress(t, &s);
    } while (!live_phase_over(s.phase) && !interrupt_seen());
    if (isatty(STDERR_FILENO) && !t->ctx->global->quiet) fputc('\n', stderr);
    if (live_phase_over(s.phase)) return take_result(t, &s, err);
    train_live_close(t->live); /* saves what can be gone on from */
    t->live = NULL;
    tell_stopped(t);
    return interrupt_status(err);
}

/* --- rewards ---------------------------------------------------------------------------------- */

/* Momentum over ten steps, as usual, overshoots where there are thirty. */
#define POLICY_BETA1 0.6
/* More than for given answers: what goes too far is cut short (policy_options.trust). */
#define POLICY_RATE 3e-3
/* Norms are mostly around this. Some steps' are several times that; such a step would be the
 * momentum's direction for several more, and the second moments' size for all that follow. */
#define POLICY_CLIP 0.1

static policy_options make_policy_options(const train_request *r)
{
    train_job_options o = live_request_options(r, NULL);
    policy_options p = {.shape = o.shape,
                        .optimizer = o.optimizer,
                        .grpo = {.low = 0.8, .high = 1.2, .beta = opt.beta},
                        .advantage = opt.dr_grpo ? GRPO_CENTRED : GRPO_STD,
                        .prompts_per_step = (int)opt.prompts,
                        .group = (int)opt.group,
                        .max_tokens = (int)opt.answer_tokens,
                        .updates = (int)opt.updates,
                        .cut_off = opt.cut_off,
                        .trust = opt.trust,
                        .ema = opt.ema,
                        .check_prompts = (int)opt.check,
                        .temperature = 1,
                        .last_temperature = 0.7,
                        .sense = opt.sense,
                        .sense_free = opt.sense_free,
                        .spread = opt.spread,
                        .about = opt.about,
                        .steps = opt.steps ? opt.steps : 30,
                        .seed = (uint64_t)opt.seed};
    p.grpo.average = opt.dr_grpo ? GRPO_FIXED_LENGTH : GRPO_SEQUENCE_MEAN;
    p.grpo.max_length = p.max_tokens;
    p.optimizer.warmup_share = 0;
    p.optimizer.beta1 = POLICY_BETA1;
    if (!opt.has_schedule) p.optimizer.schedule = RATE_CONSTANT;
    p.optimizer.rate = opt.rate > 0 ? opt.rate : POLICY_RATE;
    p.optimizer.clip = opt.has_clip ? opt.clip : POLICY_CLIP;
    return p;
}

/* The profile's adapter, if it is of the kind that is trained. */
static pf_status read_start(const training *t, buf *start, pf_err *err)
{
    profile_info info = {0};
    if (!t->profile || opt.fresh) return PF_OK;
    pf_status status = profile_get(t->session, t->profile, &info, err);
    if (status == PF_OK && info.has_adapter &&
        strcmp(info.current.kind, method_names[opt.method]) == 0)
        status = profile_read_adapter(t->session, t->profile, 0, start, err);
    profile_info_free(&info);
    return status;
}

static pf_status save_policy(training *t, const buf *blob, const json_t *record, int64_t *version,
                             pf_err *err)
{
    buf text = {0};
    if (opt.out)
        return adapter_file_export(blob->data, blob->len, model_get_config(t->m), opt.out, true,
                                   err);
    json_append(&text, record);
    const profile_version_record r = {.base_name = model_name(t->m),
                                      .training = buf_str(&text),
                                      .provenance = "{\"source\":\"rewards\"}"};
    *version = 1;
    pf_status status = t->profile ? profile_add_version(t->session, t->profile, blob->data,
                                                        blob->len, &r, version, err)
                                  : profile_create_with(t->session, opt.profile, blob->data,
                                                        blob->len, &r, &t->profile, err);
    buf_free(&text);
    return status;
}

static pf_status run_policy(training *t, pf_err *err)
{
    const train_request r = make_request(t);
    const policy_options o = make_policy_options(&r);
    buf blob = {0}, start = {0};
    json_t *record = NULL;
    int64_t version = 0;
    pf_status status = read_start(t, &start, err);
    if (status == PF_OK)
        status =
            train_policy_run(t->ctx, t->e, &opt.data, opt.reward, &o, &start, &blob, &record, err);
    if (status == PF_OK) status = save_policy(t, &blob, record, &version, err);
    if (status == PF_OK && version)
        note(t->ctx, "%s is now version %lld", opt.profile, (long long)version);
    if (status == PF_OK && t->ctx->global->json) {
        json_object_set_new(record, "version", json_integer(version));
        print_json(json_incref(record));
    }
    json_decref(record);
    wipe_buf(&blob);
    wipe_buf(&start);
    return status;
}

/* --- the command ---------------------------------------------------------------------------- */

static pf_status check_options(const command_context *ctx, pf_err *err)
{
    if (!opt.profile == !opt.out) return usage_error(ctx, err, "give --profile NAME or --out DIR");
    if (opt.out && opt.data.count == 0 && !opt.distill)
        return usage_error(ctx, err, "--out needs --data or --distill");
    if (opt.conversations.count && (opt.data.count || !opt.profile))
        return usage_error(ctx, err, "--conversation goes with --profile and without --data");
    if (opt.distill && opt.grpo)
        return usage_error(ctx, err, "--distill and --grpo exclude each other");
    if (opt.grpo && (opt.data.count == 0 || !opt.reward))
        return usage_error(ctx, err, "--grpo needs --data with questions and --reward");
    if (opt.reward && !opt.grpo) return usage_error(ctx, err, "--reward belongs to --grpo");
    if (opt.grpo && (opt.resume || opt.has_replay || opt.dry_run))
        return usage_error(ctx, err, "--grpo goes without --resume, --replay and --dry-run");
    if (opt.out && opt.resume) return usage_error(ctx, err, "--resume needs --profile");
    return PF_OK;
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    training t = {.ctx = ctx};
    pf_status status = check_options(ctx, err);
    if (status != PF_OK) return status;
    if (opt.out) status = file_check_place(opt.out, true, err);
    if (status == PF_OK && opt.distill) status = read_distilled(&t, err);
    if (status == PF_OK) status = read_conversations(&t, err);
    if (status == PF_OK && opt.profile) status = open_profile(&t, err);
    if (status == PF_OK) status = open_model(ctx, &t.m, err);
    if (status != PF_OK) goto out;
    interrupt_catch();
    engine_options o = open_engine_options(ctx);
    status = engine_open(t.m, &o, &t.e, err);
    if (status != PF_OK) goto out;
    status = opt.grpo ? run_policy(&t, err) : opt.dry_run ? dry_run(&t, err) : run_live(&t, err);
out:
    train_live_close(t.live);
    engine_close(t.e);
    model_close(t.m);
    session_unref(t.session);
    store_close(t.store);
    option_list_free(&opt.data);
    option_list_free(&opt.conversations);
    free(t.conversations);
    wipe_text(t.distill);
    return status;
}

const struct command train_command = {
    .name = "train",
    .summary = "Fine-tune a profile from chat history or a file",
    .synopsis =
        TEXTS("--user U --profile NAME [OPTIONS]", "--out DIR --data FILE [OPTIONS]",
              "--distill TEXT|@FILE [OPTIONS]", "--grpo --reward FILE --data FILE [OPTIONS]"),
    .description = TEXTS(
        "Trains the profile's adapter on this machine and saves it as the profile's newest "
        "version; "
        "older versions stay and can be gone back to. The base model stays as it is. If the "
        "profile "
        "has an adapter of the same kind, training goes on from it unless `--fresh` is given.",
        "Learned are the assistant's answers and their end tokens. The adapter acts on the same "
        "tokens as in chat: with `lorap` and `direftp` on everything but the answers.",
        "Facts are learned as questions and answers: what was only stated in a chat can't be asked "
        "for afterwards. Confirmed notes (preft-note(1)) become questions, by their kind and by "
        "the "
        "model, whose own answers are kept only if they hold the note's words; data that asks for "
        "facts about the user is noticed. Each fact is then asked for in many wordings, some of "
        "them after turns about something else, and the model's own answers to general questions "
        "are mixed in (replay), so that a profile neither spoils other answers nor tells its facts "
        "where nobody asked. preft(7) has the figures behind the defaults.",
        "With `--distill` the text is the system text of a teacher, the base model: it answers the "
        "user's own questions, general ones, and ones that ask for what the text states about the "
        "user; the profile learns to give each token of these answers the same probabilities "
        "without the text.",
        "Ctrl-C ends the training; the profile stays as it was. Then, and after a crash, "
        "`--resume` goes on from the newest checkpoint with the examples and options it was "
        "started with. With `--grpo` it ends after the step at hand, and what was reached is "
        "saved; a second Ctrl-C ends at once and saves nothing.",
        "With `--json` the record of the training is printed: losses before and after, with the "
        "weights as trained and as served (bfloat16), steps, tokens."),
    .options = options,
    .examples =
        EXAMPLES({"preft train --user mira --profile letters", "Learn from the "
                                                               "conversations under this "
                                                               "profile."},
                 {"preft train --user mira --profile facts --data facts.jsonl --replay",
                  "Learn facts from a file without spoiling other answers."},
                 {"preft train --user mira --profile me --dry-run",
                  "See what would be learned from notes and chats, token by token."},
                 {"preft train --user mira --profile polite --distill @style.txt",
                  "Learn what a system text does."},
                 {"preft train --user mira --profile brief --grpo -d ask.jsonl --reward c.json",
                  "Learn from rewards."},
                 {"preft train --out ./adapter --data chats.jsonl --method direftp",
                  "Make an adapter folder without a profile."}),
    .see_also = TEXTS("preft-note 1", "preft-profile 1", "preft-eval 1", "preft-run 1", "preft 7"),
    .groups = GROUP_MODEL | GROUP_ENGINE | GROUP_SIGN_IN,
    .area = AREA_TRAINING,
    .run = run};
