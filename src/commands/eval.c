/* preft eval: scores and losses of a profile, an adapter or the base model on a data set. */
#include "base/file.h"
#include "base/mem.h"
#include "commands/adapters.h"
#include "commands/command.h"
#include "commands/eval_report.h"
#include "commands/interrupt.h"
#include "commands/jsonl.h"
#include "commands/open.h"
#include "engine/conversation.h"
#include "profiles/adapter_file.h"
#include "profiles/secret.h"
#include "train/eval/sandbox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DATA_MAX_BYTES  ((size_t)1 << 30)
#define CHECK_MAX_BYTES ((size_t)16 << 20)
#define MAX_NEW_TOKENS  256 /* when nothing is said */

static const char *const positions_names[] = {"turns", "prompt", "all", "none", NULL};

static struct {
    const char *data, *check, *adapter, *profile, *system, *damage;
    bool force_base, has_positions, has_max_tokens, run_code;
    int format, positions;
    int64_t limit, samples, max_tokens, max_batch;
} opt;

static const option_spec options[] = {
    OPTION_STRING_SPEC('d', "data", &opt.data, "FILE",
                       "The data set: JSONL with messages, turns or prompt a line, or what "
                       "`--format` says."),
    OPTION_STRING_SPEC('c', "check", &opt.check, "FILE",
                       "The rules that answers are scored by (JSON). Without it only losses are "
                       "measured, unless the format has rules of its own."),
    OPTION_CHOICE_SPEC('f', "format", &opt.format, "NAME", eval_format_names,
                       "The format of the data set (default `chat`)."),
    OPTION_STRING_SPEC('p', "profile", &opt.profile, "NAME",
                       "Sign in and measure this profile of the user."),
    OPTION_STRING_SPEC('a', "adapter", &opt.adapter, "DIR", "Measure the adapter in folder DIR."),
    OPTION_FLAG_SPEC(0, "force-base", &opt.force_base,
                     "Use the adapter although it was made for another model."),
    OPTION_CHOICE_SPEC(0, "positions", &opt.positions, "POLICY", positions_names,
                       "Which tokens the adapter acts on (default: `turns` for prefill-only "
                       "adapters, `all` for the others).",
                       .given = &opt.has_positions),
    OPTION_STRING_SPEC('s', "system", &opt.system, "TEXT",
                       "The system text of conversations that have none (default: the profile's, "
                       "if it has one)."),
    OPTION_INT_SPEC('n', "max-tokens", &opt.max_tokens, "N", 0, INT32_MAX,
                    "Most tokens of an answer (default: the check's, else 256; 0: as many as the "
                    "context holds).",
                    .given = &opt.has_max_tokens),
    OPTION_INT_SPEC('l', "limit", &opt.limit, "N", 1, INT32_MAX, "Use the first N items only."),
    OPTION_INT_SPEC(0, "samples", &opt.samples, "N", 0, 100000,
                    "Show the first N answers beside the base model's, and how likely both are to "
                    "the base model: their losses under it."),
    OPTION_STRING_SPEC(0, "damage", &opt.damage, "FILE",
                       "Ask the unrelated questions in FILE too: the loss of the base model's own "
                       "answers with and without the adapter, and how often facts of the check "
                       "turn up in answers to them."),
    OPTION_FLAG_SPEC(0, "run-code", &opt.run_code,
                     "Allow rules to run programs that the model wrote (`humaneval`, `mbpp`)."),
    OPTION_INT_SPEC(0, "max-batch", &opt.max_batch, "N", 1, 4096,
                    "Most answers decoded at once (default 64)."),
    OPTIONS_END};

/* What is measured: the adapter as the engine and the losses see it. */
typedef struct {
    const command_context *ctx;
    profile_use profile;
    json_t *settings; /* the profile's */
    model *m;
    engine *e;
    adapter_id adapter; /* 0: the base model */
    buf blob;           /* the adapter's; empty: the base model */
    positions_policy policy;
    eval_settings answering;
} subject;

/* --- reading -------------------------------------------------------------------------------- */

static bool stopped(void *ctx)
{
    (void)ctx;
    return interrupt_seen();
}

static pf_status read_items(const char *path, eval_format format, json_t **items, size_t *left_out,
                            pf_err *err)
{
    buf data = {0};
    pf_status status = file_read(path, DATA_MAX_BYTES, &data, err);
    if (status == PF_OK)
        status = eval_format_read(format, buf_str(&data), data.len, path_base(path), items,
                                  left_out, err);
    if (status == PF_REFUSED && format == EVAL_CHAT)
        status = err_set(err, status, "%s (--format names other formats)", err->text);
    buf_free(&data);
    return status;
}

static pf_status read_check(json_t **out, pf_err *err)
{
    buf data = {0};
    if (!opt.check) {
        *out = eval_format_check((eval_format)opt.format);
        return PF_OK;
    }
    pf_status status = file_read(opt.check, CHECK_MAX_BYTES, &data, err);
    if (status == PF_OK)
        status = json_parse(buf_str(&data), data.len, path_base(opt.check), out, err);
    buf_free(&data);
    return status;
}

/* How answers are decoded: the check's word, and the options over it. Texts live in check. */
static pf_status read_decoding(const json_t *check, eval_settings *out, pf_err *err)
{
    const char *decoding = "greedy", *stop = NULL;
    int64_t max_tokens = MAX_NEW_TOKENS;
    pf_status status = json_get_string(check, "decoding", &decoding, err);
    if (status == PF_OK) status = json_get_string(check, "stop", &stop, err);
    if (status == PF_OK)
        status = json_get_int(check, "max_new_tokens", 0, INT32_MAX, &max_tokens, err);
    if (status == PF_OK && strcmp(decoding, "greedy") != 0)
        status = err_set(err, PF_REFUSED, "\"decoding\" is \"%.40s\": only greedy is possible",
                         decoding);
    if (status != PF_OK) {
        err_context(err, "%s", opt.check);
        return status;
    }
    if (stop && *stop) out->stops[out->n_stops++] = stop;
    out->max_tokens = (int)(opt.has_max_tokens ? opt.max_tokens : max_tokens);
    return PF_OK;
}

static pf_status read_set(const command_context *ctx, eval_set *set, pf_err *err)
{
    pf_status status =
        read_items(opt.data, (eval_format)opt.format, &set->items, &set->n_left_out, err);
    if (status == PF_OK) status = read_check(&set->check, err);
    if (status == PF_OK && set->check)
        status =
            reward_read(set->check, opt.check ? path_base(opt.check) : "check", &set->rules, err);
    if (status != PF_OK) return status;
    while (opt.limit && json_array_size(set->items) > (size_t)opt.limit)
        json_array_remove(set->items, json_array_size(set->items) - 1);
    bool writes_code = opt.format == EVAL_HUMANEVAL || opt.format == EVAL_MBPP;
    if (writes_code && !opt.check && !opt.run_code)
        return usage_error(ctx, err,
                           "--format %s runs programs that the model writes; allow it with "
                           "--run-code",
                           eval_format_names[opt.format]);
    for (size_t i = 0; set->rules && i < json_array_size(set->items); i++) {
        status = reward_check_item(set->rules, json_array_get(set->items, i), err);
        if (status == PF_OK) continue;
        err_context(err, "%s: item %zu", path_base(opt.data), i + 1);
        return status;
    }
    return PF_OK;
}

/* --- opening -------------------------------------------------------------------------------- */

/* The adapter twice: in the engine for answers, as its bytes for losses. */
static pf_status open_adapter(subject *s, pf_err *err)
{
    buf warnings = {0};
    pf_status status = PF_OK;
    const adapter_import_options import = {.force_base = opt.force_base};
    if (opt.adapter) {
        status = adapter_add_folder(s->e, opt.adapter, opt.force_base, &s->adapter, &warnings, err);
        if (status == PF_OK)
            status = adapter_file_import(opt.adapter, s->m, &import, &s->blob, NULL, err);
    } else if (opt.profile) {
        status = profile_use_adapter(&s->profile, s->e, opt.force_base, &s->adapter, err);
        if (status == PF_OK && s->adapter)
            status = profile_read_adapter(s->profile.session, s->profile.info.id, 0, &s->blob, err);
    }
    if (warnings.len) note(s->ctx, "%s", buf_str(&warnings));
    buf_free(&warnings);
    return status;
}

static pf_status resolve_positions(subject *s, pf_err *err)
{
    adapter_view view = {0};
    const char *name = json_string_value(json_object_get(s->settings, "positions"));
    positions_policy wanted = POSITIONS_DEFAULT;
    bool prefill_only = false;
    if (name && !positions_parse(name, &wanted))
        return err_set(err, PF_REFUSED, "the profile's positions are \"%.40s\"", name);
    if (opt.has_positions) positions_parse(positions_names[opt.positions], &wanted);
    if (s->adapter) {
        pf_status status =
            adapter_view_open(s->blob.data, s->blob.len, model_get_config(s->m), &view, err);
        prefill_only = view.prefill_only;
        adapter_view_close(&view);
        if (status != PF_OK) return status;
    }
    s->policy = positions_resolve(wanted, s->adapter != 0, prefill_only);
    return PF_OK;
}

static pf_status open_subject(subject *s, pf_err *err)
{
    pf_status status = open_model(s->ctx, &s->m, err);
    if (status != PF_OK) return status;
    engine_options o = open_engine_options(s->ctx);
    o.max_batch = (int)opt.max_batch;
    status = engine_open(s->m, &o, &s->e, err);
    if (status == PF_OK) status = open_adapter(s, err);
    if (status == PF_OK) status = resolve_positions(s, err);
    s->answering.positions = s->policy;
    s->answering.user = s->profile.user;
    s->answering.cancelled = stopped;
    return status;
}

static void close_subject(subject *s)
{
    engine_close(s->e);
    model_close(s->m);
    wipe_buf(&s->blob);
    profile_use_close(&s->profile);
    json_decref(s->settings);
}

/* --- talks ---------------------------------------------------------------------------------- */

static const char *system_text(const subject *s)
{
    return opt.system ? opt.system : json_string_value(json_object_get(s->settings, "system"));
}

static void add_message(eval_talk *t, const json_t *message)
{
    chat_role role = ROLE_USER;
    const json_t *text = json_object_get(message, "content");
    chat_role_parse(json_string_value(json_object_get(message, "role")), &role);
    eval_talk_add(t, role, json_string_value(text), json_string_length(text));
}

/* The conversation of an item; with_answer: with the answer that it ends with, if it has one. */
static void start_talk(const subject *s, const json_t *item, bool with_answer, eval_talk *t)
{
    const json_t *messages = json_object_get(item, "messages"), *message, *turn;
    const char *system = system_text(s), *first;
    size_t i;
    first = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    if (system && !(first && strcmp(first, "system") == 0))
        eval_talk_add(t, ROLE_SYSTEM, system, strlen(system));
    json_array_foreach(messages, i, message) add_message(t, message);
    if (t->n_messages && t->messages[t->n_messages - 1].role == ROLE_ASSISTANT && !with_answer)
        t->n_messages--;
    if (messages) return;
    turn = json_array_get(json_object_get(item, "turns"), 0);
    eval_talk_add(t, ROLE_USER, json_string_value(turn), json_string_length(turn));
    t->turns = json_object_get(item, "turns");
}

/* Talks about the first n items. */
static eval_talk *start_talks(const subject *s, const json_t *items, size_t n, adapter_id adapter)
{
    eval_talk *talks = xcalloc(n, sizeof *talks);
    for (size_t i = 0; i < n; i++) {
        start_talk(s, json_array_get(items, i), false, &talks[i]);
        talks[i].adapter = adapter;
    }
    return talks;
}

/* --- losses --------------------------------------------------------------------------------- */

static bool has_answer(const json_t *item)
{
    const json_t *messages = json_object_get(item, "messages"), *message;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (role && strcmp(role, "assistant") == 0) return true;
    }
    return false;
}

/* The losses of the answers that the data set holds. */
static pf_status measure_losses(const subject *s, eval_set *set, pf_err *err)
{
    train_dataset data = {0};
    const train_dataset_options o = {.policy = s->policy,
                                     .max_tokens = (size_t)engine_context(s->e)};
    size_t n = json_array_size(set->items), *owner = NULL;
    eval_loss *each = NULL;
    pf_status status = PF_OK;
    for (size_t i = 0; i < n && status == PF_OK; i++) {
        const json_t *item = json_array_get(set->items, i);
        eval_talk t = {0};
        size_t before = data.n;
        char label[32];
        if (!has_answer(item)) continue;
        snprintf(label, sizeof label, "item %zu", i + 1);
        start_talk(s, item, true, &t);
        status = train_dataset_add(&data, s->m, t.messages, NULL, t.n_messages, &o, label, err);
        eval_talk_free(&t);
        owner = xrealloc_array(owner, data.n, sizeof *owner);
        for (size_t k = before; k < data.n; k++)
            owner[k] = i;
    }
    for (size_t i = 0; i < data.n_skipped; i++)
        note(s->ctx, "left out: %s: %s", data.skipped[i].label, data.skipped[i].reason);
    if (status == PF_OK && data.n > 0) {
        each = xcalloc(data.n, sizeof *each);
        set->losses = xcalloc(n, sizeof *set->losses);
        status = evaluate_loss(s->e, &data, s->blob.len ? s->blob.data : NULL, s->blob.len, stopped,
                               NULL, &set->loss, each, err);
    }
    for (size_t k = 0; k < data.n && status == PF_OK; k++) {
        eval_loss *l = &set->losses[owner[k]];
        double sum = l->loss * (double)l->n_targets + each[k].loss * (double)each[k].n_targets;
        l->n_targets += each[k].n_targets;
        l->loss = sum / (double)l->n_targets;
    }
    free(each);
    free(owner);
    train_dataset_free(&data);
    return status;
}

/* The loss of the base model's answers, under the base model and under the adapter. */
static pf_status measure_damage(const subject *s, eval_set *set, pf_err *err)
{
    eval_damage *d = &set->damage;
    train_dataset plain = {0}, adapted = {0};
    size_t context = (size_t)engine_context(s->e);
    pf_status status = PF_OK;
    for (size_t i = 0; i < d->n && status == PF_OK; i++) {
        status = evaluate_add_answer(&plain, s->m, &d->base[i], POSITIONS_NONE, context, err);
        if (status == PF_OK)
            status = evaluate_add_answer(&adapted, s->m, &d->base[i], s->policy, context, err);
    }
    if (status == PF_OK && plain.n > 0)
        status = evaluate_loss(s->e, &plain, NULL, 0, stopped, NULL, &d->loss_base, NULL, err);
    if (status == PF_OK && adapted.n > 0)
        status = evaluate_loss(s->e, &adapted, s->blob.len ? s->blob.data : NULL, s->blob.len,
                               stopped, NULL, &d->loss, NULL, err);
    train_dataset_free(&plain);
    train_dataset_free(&adapted);
    return status;
}

/* The losses under the base model of the first answers, and of its own to the same questions: an
 * answer that the base model finds very unlikely may not be one. */
static pf_status measure_sense(const subject *s, eval_set *set, pf_err *err)
{
    const struct {
        const eval_talk *talks;
        eval_loss *loss;
    } parts[] = {{set->samples, &set->sense_base}, {set->talks, &set->sense}};
    pf_status status = PF_OK;
    for (size_t p = 0; p < 2 && status == PF_OK; p++) {
        train_dataset d = {0};
        for (size_t i = 0; i < set->n_samples && status == PF_OK; i++)
            status = evaluate_add_answer(&d, s->m, &parts[p].talks[i], POSITIONS_NONE,
                                         (size_t)engine_context(s->e), err);
        if (status == PF_OK && d.n > 0)
            status = evaluate_loss(s->e, &d, NULL, 0, stopped, NULL, parts[p].loss, NULL, err);
        train_dataset_free(&d);
    }
    return status;
}

/* --- measuring ------------------------------------------------------------------------------ */

/* All answers in one run: the data set's, the samples of the base model, the unrelated ones. */
static pf_status answer_all(const subject *s, eval_set *set, pf_err *err)
{
    size_t n = json_array_size(set->items), n_samples = 0;
    set->n_talks = set->rules || opt.samples ? n : 0;
    if (!set->rules && set->n_talks > (size_t)opt.samples) set->n_talks = (size_t)opt.samples;
    n_samples = set->n_talks < (size_t)opt.samples ? set->n_talks : (size_t)opt.samples;
    set->n_samples = n_samples;
    set->talks = start_talks(s, set->items, set->n_talks, s->adapter);
    set->samples = start_talks(s, set->items, n_samples, 0);
    eval_damage *d = &set->damage;
    d->n = json_array_size(d->items);
    d->base = start_talks(s, d->items, d->n, 0);
    d->own = start_talks(s, d->items, d->n, s->adapter);

    size_t total = set->n_talks + n_samples + 2 * d->n, at = 0;
    eval_talk *all = xcalloc(total, sizeof *all);
    eval_talk *const parts[] = {set->talks, set->samples, d->base, d->own};
    const size_t sizes[] = {set->n_talks, n_samples, d->n, d->n};
    for (size_t p = 0; p < 4; at += sizes[p++])
        if (sizes[p]) memcpy(all + at, parts[p], sizes[p] * sizeof *all);
    pf_status status = evaluate_answers(s->e, all, total, &s->answering, err);
    at = 0;
    for (size_t p = 0; p < 4; at += sizes[p++])
        if (sizes[p]) memcpy(parts[p], all + at, sizes[p] * sizeof *all);
    free(all);
    return status;
}

static pf_status measure(subject *s, eval_set *set, pf_err *err)
{
    bool programs = set->rules && reward_runs_programs(set->rules);
    pf_status status = answer_all(s, set, err);
    if (status == PF_OK && programs && !sandbox_isolated())
        note(s->ctx, "this system does not let programs be kept from the network and from files; "
                     "only their time and memory are limited");
    if (status == PF_OK) eval_set_score(set);
    if (status == PF_OK) status = measure_losses(s, set, err);
    if (status == PF_OK && set->n_samples > 0 && s->adapter) status = measure_sense(s, set, err);
    if (status == PF_OK && set->damage.n > 0) status = measure_damage(s, set, err);
    if (status == PF_OK && !set->rules && set->loss.n_targets == 0 && set->damage.n == 0)
        status = err_set(err, PF_USAGE,
                         "there is nothing to measure: give --check, or data with answers");
    return status;
}

static pf_status check_usage(const command_context *ctx, pf_err *err)
{
    bool base = ctx->argc > 0;
    if (base && strcmp(ctx->argv[0], "base") != 0)
        return usage_error(ctx, err, "\"%s\" is unknown; `base` means the base model",
                           ctx->argv[0]);
    if (!opt.data) return usage_error(ctx, err, "--data FILE is needed");
    if ((opt.adapter != NULL) + (opt.profile != NULL) + base > 1)
        return usage_error(ctx, err, "--profile, --adapter and base exclude each other");
    if (ctx->signin->user && !opt.profile) return usage_error(ctx, err, "--user needs a --profile");
    return PF_OK;
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    subject s = {.ctx = ctx, .settings = json_object()};
    eval_set set = {.loss = {NAN, 0}, .damage = {.loss = {NAN, 0}, .loss_base = {NAN, 0}}};
    size_t ignored = 0;
    pf_status status = check_usage(ctx, err);
    if (status == PF_OK) status = read_set(ctx, &set, err);
    if (status == PF_OK && opt.damage)
        status = read_items(opt.damage, EVAL_CHAT, &set.damage.items, &ignored, err);
    if (status == PF_OK) status = read_decoding(set.check, &s.answering, err);
    if (status == PF_OK && opt.profile)
        status = profile_use_open(ctx, opt.profile, &s.profile, s.settings, err);
    if (status != PF_OK) goto out;
    interrupt_catch();
    status = open_subject(&s, err);
    if (status == PF_OK) status = measure(&s, &set, err);
    if (status != PF_OK) goto out;
    if (ctx->global->json) {
        json_t *report = eval_report_json(&set);
        status = json_print(report, err);
        json_decref(report);
    } else {
        eval_report_print(&set);
        status = output_flush(err);
    }
out:
    eval_set_free(&set);
    close_subject(&s);
    return status;
}

const struct command eval_command = {
    .name = "eval",
    .summary = "Measure a profile on a data set",
    .synopsis = TEXTS("--data FILE [--check FILE] --user NAME --profile NAME",
                      "--data FILE [--check FILE] --adapter DIR",
                      "--data FILE [--check FILE] [base]", "--data FILE --format NAME [OPTIONS]"),
    .description = TEXTS(
        "Answers every item of a data set, greedily and all in one batch, and scores the answers "
        "by the rules of `--check`; measures the loss of the answers that the data set itself "
        "holds, with the marks that training uses. Without a profile or an adapter, the base "
        "model is measured.",
        "A line of the data set has messages (a list of {\"role\", \"content\"}), prompt (a "
        "user's text) or turns (user texts, answered one after another; the score is the mean "
        "over the answers). Messages that end with an assistant's are asked up to there, and give "
        "a loss. Rules may ask for expect (a text or a list of texts), target or others of the "
        "item.",
        "A check is a JSON object with rules, a list of {\"type\", \"weight\", ...}, and may have "
        "max_new_tokens and stop. An answer is trimmed; its score is the sum of the weights of the "
        "rules that hold, the data set's the mean. The types: starts_with, ends_with and "
        "every_line_starts_with (value); regex (value, POSIX extended, `^` and `$` are the ends of "
        "the answer); word_count (min, max); lines_starting_with (value, equals, no_other_lines); "
        "no_upper_case (max_share); stopwords (want, other, min_want); new_words (min, max: words "
        "that the user's messages don't hold); contains_expect (ignore_case); last_number and "
        "boxed (the item's expect, as in GSM8K and MATH); choice "
        "(a letter); length_near (unit, target: 1 at the target, falling to 0 at half and at twice "
        "of it); instructions (as in IFEval); command (argv, seconds, megabytes: a program that "
        "reads the answer exits with 0).",
        "Programs run within their limits and, where the system lets ordinary users make "
        "namespaces, without network and with all files read-only.",
        "The formats: `gsm8k`, `math`, `humaneval` and `mbpp` (only with `--run-code`), `ifeval` "
        "(instructions that can be checked without a model), `mmlu` (JSON lines or CSV) and "
        "`longbench-write` (lengths).",
        "With `--json` one object is printed: score (null without rules), n, interval (95 %), "
        "all_hold (n, share, interval), rules (type, weight, mean), turns (mean score of each "
        "answer of a conversation), loss and perplexity (null without answers), tokens, items "
        "(id, prompt, answers with text, ids, prompt_ids, score, rules and finish_reason; loss), "
        "samples, sense (losses of the samples under the base model: answers, base_own) and "
        "damage. "
        "Intervals are Wilson's, which are conservative for means of fractional scores."),
    .options = options,
    .examples = EXAMPLES({"preft eval --data eval.jsonl --check check.json --user mira --profile "
                          "letters",
                          "Score a profile; the passphrase is asked for."},
                         {"preft eval --data train.jsonl --adapter ./letters",
                          "The loss of an adapter on conversations."},
                         {"preft eval --data test.jsonl --format gsm8k --limit 100 base",
                          "The base model on arithmetic word problems."},
                         {"preft eval --data eval.jsonl --adapter ./letters --damage general.jsonl",
                          "Look for damage elsewhere too."}),
    .see_also = TEXTS("preft-train 1", "preft-run 1", "preft 7"),
    .max_operands = 1,
    .groups = GROUP_MODEL | GROUP_ENGINE | GROUP_SIGN_IN,
    .area = AREA_TRAINING,
    .run = run};
