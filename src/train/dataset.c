#include "train/dataset.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "profiles/secret.h"
#include "train/random.h"

#include <stdlib.h>
#include <string.h>

static void free_example(train_example *e)
{
    wipe_text(e->label);
    wipe_text(e->question);
    wipe_text(e->answer);
    wipe_free(e->ids, (size_t)e->length * sizeof *e->ids);
    free(e->adapted);
    free(e->target);
    wipe_free(e->teacher, (size_t)e->n_targets * e->width * sizeof *e->teacher);
    *e = (train_example){0};
}

void train_dataset_cut(train_dataset *d, size_t n)
{
    while (d->n > n)
        free_example(&d->items[--d->n]);
}

void train_dataset_free(train_dataset *d)
{
    train_dataset_cut(d, 0);
    for (size_t i = 0; i < d->n_skipped; i++) {
        free(d->skipped[i].label);
        free(d->skipped[i].reason);
    }
    free(d->items);
    free(d->skipped);
    *d = (train_dataset){0};
}

static void skip(train_dataset *d, const char *label, const char *reason)
{
    d->skipped = xrealloc_array(d->skipped, d->n_skipped + 1, sizeof *d->skipped);
    d->skipped[d->n_skipped++] = (train_skipped){xstrdup(label), xstrdup(reason)};
}

/* --- one conversation ----------------------------------------------------------------------- */

/* Whether the answer number index (from 0, among the assistant messages of messages) is learned. */
static bool learns_answer(const chat_message *messages, const unsigned char *learn, size_t n,
                          size_t index)
{
    if (!learn) return true;
    for (size_t i = 0; i < n; i++) {
        if (messages[i].role != ROLE_ASSISTANT) continue;
        if (index-- == 0) return learn[i];
    }
    return false;
}

static char *copy_text(const chat_message *message)
{
    buf text = {0};
    utf8_repair(message->text, message->len, &text);
    return buf_take(&text);
}

/* The last answer to learn from and the user text before it, for display. */
static void keep_texts(train_example *e, const chat_message *messages, const unsigned char *learn,
                       size_t n)
{
    size_t answer = n;
    for (size_t i = 0; i < n; i++)
        if (messages[i].role == ROLE_ASSISTANT && (!learn || learn[i])) answer = i;
    size_t question = answer < n ? answer : 0;
    while (question > 0 && messages[question].role != ROLE_USER)
        question--;
    e->question =
        n && messages[question].role == ROLE_USER ? copy_text(&messages[question]) : xstrdup("");
    e->answer = answer < n ? copy_text(&messages[answer]) : xstrdup("");
}

/* The rendered window as an example; the tail after the last target is of no use and is left out.
 */
static train_example make_example(const conversation_prompt *prompt, const chat_message *messages,
                                  const unsigned char *learn, size_t n_messages)
{
    train_example e = {0};
    size_t answer = 0, n = prompt->ids.len;
    bool empty = true; /* the current answer: then its end is no target either */
    e.target = xcalloc(n, 1);
    for (size_t i = 0; i < n; i++) {
        if (prompt->parts[i] == PART_PROMPT) continue;
        bool end = prompt->parts[i] == PART_END;
        empty = empty && end;
        if (i > 0 && !empty && learns_answer(messages, learn, n_messages, answer)) {
            e.target[i] = 1;
            e.n_targets++;
            e.length = (int32_t)i + 1;
        }
        if (!end) continue;
        answer++;
        empty = true;
    }
    e.ids = xcalloc((size_t)e.length, sizeof *e.ids);
    e.adapted = xcalloc((size_t)e.length, 1);
    if (e.length > 0) {
        memcpy(e.ids, prompt->ids.ids, (size_t)e.length * sizeof *e.ids);
        memcpy(e.adapted, prompt->marks, (size_t)e.length);
    }
    keep_texts(&e, messages, learn, n_messages);
    return e;
}

static void add_example(train_dataset *d, train_example *e, const char *label, int repeat)
{
    if (e->n_targets == 0) {
        skip(d, label, "there is no answer to learn from");
        free_example(e);
        return;
    }
    e->label = xstrdup(label);
    e->repeat = repeat > 0 ? repeat : 1;
    d->items = xrealloc_array(d->items, d->n + 1, sizeof *d->items);
    d->items[d->n++] = *e;
}

/* Number of system messages at the front: they stay in every part of a cut conversation. */
static size_t count_system(const chat_message *messages, size_t n)
{
    size_t i = 0;
    while (i < n && messages[i].role == ROLE_SYSTEM)
        i++;
    return i;
}

static pf_status add_whole(train_dataset *d, const model *m, const chat_message *messages,
                           const unsigned char *learn, size_t n_messages,
                           const train_dataset_options *options, const char *label, pf_err *err)
{
    const chat_template *ct = NULL;
    pf_status status = model_template(m, &ct, err);
    if (status != PF_OK) return status;
    conversation_options render = {.policy = options->policy, .budget = options->max_tokens};
    render.drop_oldest = true;
    size_t system = count_system(messages, n_messages), end = n_messages;
    d->n_sources++;
    /* From the last turn back: what did not fit the window becomes the next part. */
    while (end > system || end == n_messages) {
        conversation_prompt prompt = {0};
        pf_err reason = {0};
        status = conversation_render(ct, model_get_tokenizer(m), messages, end, &render, &prompt,
                                     &reason);
        if (status != PF_OK) {
            conversation_prompt_free(&prompt);
            skip(d, label, reason.text);
            /* The last turn alone is too long: the turns before it may still serve. */
            while (end > system && messages[--end].role != ROLE_USER)
                ;
            if (end <= system) break;
            continue;
        }
        size_t first = system + prompt.n_dropped, n_window = end - first;
        train_example e =
            make_example(&prompt, messages + first, learn ? learn + first : NULL, n_window);
        if (prompt.n_dropped > 0 && end == n_messages) d->n_cut++;
        add_example(d, &e, label, options->repeat);
        end = prompt.n_dropped > 0 ? first : system;
        conversation_prompt_free(&prompt);
        if (end <= system) break;
    }
    return PF_OK;
}

pf_status train_dataset_add(train_dataset *d, const model *m, const chat_message *messages,
                            const unsigned char *learn, size_t n_messages,
                            const train_dataset_options *options, const char *label, pf_err *err)
{
    const char *system = options->system;
    if (!system || !*system || count_system(messages, n_messages) > 0)
        return add_whole(d, m, messages, learn, n_messages, options, label, err);
    chat_message *with = xcalloc(n_messages + 1, sizeof *with);
    unsigned char *also = learn ? xcalloc(n_messages + 1, 1) : NULL;
    with[0] = (chat_message){.role = ROLE_SYSTEM, .text = system, .len = strlen(system)};
    if (n_messages) memcpy(with + 1, messages, n_messages * sizeof *with);
    if (also && n_messages) memcpy(also + 1, learn, n_messages);
    pf_status status = add_whole(d, m, with, also, n_messages + 1, options, label, err);
    free(with);
    free(also);
    return status;
}

/* --- JSONL ---------------------------------------------------------------------------------- */

/* messages borrow their texts from line. */
static pf_status read_messages(const json_t *line, chat_message **out, size_t *n, pf_err *err)
{
    const json_t *list = json_object_get(line, "messages");
    if (!json_is_array(list) || json_array_size(list) == 0)
        return err_set(err, PF_REFUSED, "\"messages\" must be a list of at least one message");
    chat_message *messages = xcalloc(json_array_size(list), sizeof *messages);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i), *content = json_object_get(item, "content");
        const char *role = json_string_value(json_object_get(item, "role"));
        if (!role || !chat_role_parse(role, &messages[i].role) || !json_is_string(content)) {
            free(messages);
            return err_set(err, PF_REFUSED,
                           "message %zu needs a \"role\" (system, user or assistant) and a "
                           "\"content\" that is a text",
                           i);
        }
        messages[i].text = json_string_value(content);
        messages[i].len = json_string_length(content);
    }
    *out = messages;
    *n = json_array_size(list);
    return PF_OK;
}

static pf_status add_line(train_dataset *d, const model *m, const char *line, size_t len,
                          const char *label, const train_dataset_options *options, pf_err *err)
{
    json_t *value = NULL;
    chat_message *messages = NULL;
    size_t n = 0;
    pf_status status = json_parse(line, len, label, &value, err);
    if (status != PF_OK) return status;
    status = read_messages(value, &messages, &n, err);
    if (status == PF_OK && options->seen) options->seen(options->seen_ctx, messages, n);
    if (status != PF_OK)
        err_context(err, "%s", label);
    else
        status = train_dataset_add(d, m, messages, NULL, n, options, label, err);
    free(messages);
    json_decref(value);
    return status;
}

void train_dataset_move(train_dataset *d, train_dataset *from)
{
    d->items = xrealloc_array(d->items, d->n + from->n, sizeof *d->items);
    if (from->n) memcpy(d->items + d->n, from->items, from->n * sizeof *d->items);
    d->skipped = xrealloc_array(d->skipped, d->n_skipped + from->n_skipped, sizeof *d->skipped);
    if (from->n_skipped)
        memcpy(d->skipped + d->n_skipped, from->skipped, from->n_skipped * sizeof *d->skipped);
    d->n += from->n;
    d->n_skipped += from->n_skipped;
    d->n_cut += from->n_cut;
    d->n_sources += from->n_sources;
    free(from->items);
    free(from->skipped);
    *from = (train_dataset){0};
}

static bool is_blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r", text[i])) return false;
    return true;
}

pf_status train_dataset_add_jsonl(train_dataset *d, const model *m, const char *data, size_t len,
                                  const char *name, const train_dataset_options *options,
                                  pf_err *err)
{
    train_dataset added = {0};
    pf_status status = PF_OK;
    size_t number = 0;
    for (const char *p = data, *end = data + len; p < end && status == PF_OK;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t line = (size_t)((stop ? stop : end) - p);
        number++;
        if (!is_blank(p, line)) {
            char *label = xasprintf("%s, line %zu", name, number);
            status = add_line(&added, m, p, line, label, options, err);
            free(label);
        }
        p += line + 1;
    }
    if (status == PF_OK) train_dataset_move(d, &added);
    train_dataset_free(&added);
    return status;
}

/* --- split ---------------------------------------------------------------------------------- */

size_t train_dataset_kept_aside(double share, size_t n)
{
    if (n < 4 || !(share > 0)) return 0;
    if (share > 0.5) return n / 2;
    size_t wanted = (size_t)(share * (double)n + 0.5);
    if (wanted < 1) wanted = 1;
    return wanted > n / 2 ? n / 2 : wanted;
}

void train_dataset_hold_out(train_dataset *d, double share, uint64_t seed)
{
    /* Groups: examples of one conversation follow each other and share its label. */
    size_t *first = xcalloc(d->n + 1, sizeof *first), groups = 0;
    for (size_t i = 0; i < d->n; i++) {
        d->items[i].held_out = false;
        if (i == 0 || strcmp(d->items[i].label, d->items[i - 1].label) != 0) first[groups++] = i;
    }
    first[groups] = d->n;
    size_t wanted = train_dataset_kept_aside(share, groups);
    size_t *order = xcalloc(groups, sizeof *order);
    random_permutation(seed, order, groups);
    for (size_t g = 0; g < wanted; g++)
        for (size_t i = first[order[g]]; i < first[order[g] + 1]; i++)
            d->items[i].held_out = true;
    free(order);
    free(first);
}

size_t train_dataset_targets(const train_dataset *d, bool held_out)
{
    size_t sum = 0;
    for (size_t i = 0; i < d->n; i++)
        if (d->items[i].held_out == held_out) sum += (size_t)d->items[i].n_targets;
    return sum;
}

size_t train_dataset_repeats(const train_dataset *d)
{
    size_t sum = 0;
    for (size_t i = 0; i < d->n; i++)
        if (!d->items[i].held_out) sum += (size_t)d->items[i].repeat;
    return sum;
}

size_t train_dataset_tokens(const train_dataset *d, bool held_out)
{
    size_t sum = 0;
    for (size_t i = 0; i < d->n; i++)
        if (d->items[i].held_out == held_out) sum += (size_t)d->items[i].length;
    return sum;
}

train_sequence train_example_sequence(const train_example *e)
{
    return (train_sequence){.ids = e->ids,
                            .adapted = e->adapted,
                            .target = e->target,
                            .length = e->length,
                            .teacher = e->teacher};
}
