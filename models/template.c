#include "models/template.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "models/template_form.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SOURCE ((size_t)256 * 1024) /* longer than any known template */

typedef struct renderer renderer;

typedef struct {
    const char *name;
    const char *const *markers; /* control tokens that the vocabulary must have; NULL-terminated */
    /* Everything before the first message; may be NULL. */
    void (*begin)(renderer *r);
    /* Message i, its end marker and what follows it. */
    void (*message)(renderer *r, size_t i);
    void (*generation)(renderer *r);
} template_kind;

struct chat_template {
    const template_kind *kind;
    char *system; /* the default system text; NULL: none */
};

struct renderer {
    const chat_template *ct;
    const tokenizer *t;
    const chat_message *messages;
    size_t n_messages;
    chat_rendering *out;
    size_t parts_cap;
    buf stretch;           /* text since the last control token, not yet tokenized */
    size_t stretch_prompt; /* its first bytes are PART_PROMPT, the rest PART_ANSWER */
    size_t last_query;     /* qwen3 only */
};

bool chat_role_parse(const char *name, chat_role *out)
{
    for (chat_role role = ROLE_SYSTEM; role <= ROLE_ASSISTANT; role++) {
        if (strcmp(name, chat_role_name(role)) != 0) continue;
        *out = role;
        return true;
    }
    return false;
}

const char *chat_role_name(chat_role role)
{
    static const char *const names[] = {"system", "user", "assistant"};
    return names[role];
}

void chat_rendering_free(chat_rendering *r)
{
    buf_free(&r->text);
    id_list_free(&r->ids);
    free(r->parts);
    free(r->message_end);
    *r = (chat_rendering){0};
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Gives the ids after the marked ones their part. */
static void mark_rest(renderer *r, size_t from, token_part part)
{
    size_t n = r->out->ids.len;
    if (r->parts_cap < n) {
        r->parts_cap = n * 2;
        r->out->parts = xrealloc_array(r->out->parts, r->parts_cap, 1);
    }
    if (n > from) memset(r->out->parts + from, part, n - from);
}

/* Tokenizes the gathered stretch as one piece of ordinary text. A token belongs to the part in
 * which it starts. (The boundary is the line feed of an assistant header, which no normalisation
 * moves.) */
static void flush(renderer *r)
{
    size_t from = r->out->ids.len, at = 0;
    tokenizer_encode(r->t, buf_str(&r->stretch), r->stretch.len, false, false, &r->out->ids);
    mark_rest(r, from, PART_PROMPT);
    for (size_t i = from; i < r->out->ids.len; i++) {
        size_t len;
        tokenizer_bytes(r->t, r->out->ids.ids[i], &len);
        if (at >= r->stretch_prompt) r->out->parts[i] = PART_ANSWER;
        at += len;
    }
    buf_clear(&r->stretch);
    r->stretch_prompt = 0;
}

/* Template text; always before an answer in its stretch. */
static void put_text(renderer *r, const char *text, size_t len)
{
    buf_append(&r->out->text, text, len);
    buf_append(&r->stretch, text, len);
    r->stretch_prompt = r->stretch.len;
}

static void put(renderer *r, const char *text)
{
    put_text(r, text, strlen(text));
}

static void put_answer(renderer *r, const char *text, size_t len)
{
    buf_append(&r->out->text, text, len);
    buf_append(&r->stretch, text, len);
}

static void put_control(renderer *r, int32_t id, token_part part)
{
    size_t len, from;
    flush(r);
    from = r->out->ids.len;
    const char *text = tokenizer_bytes(r->t, id, &len);
    buf_append(&r->out->text, text, len);
    id_list_append(&r->out->ids, id);
    mark_rest(r, from, part);
}

/* One of the kind's markers; chat_template_create made sure that the vocabulary has it. */
static void put_marker(renderer *r, const char *marker, token_part part)
{
    put_control(r, tokenizer_find_special(r->t, marker), part);
}

static void put_stored_ids(renderer *r, const chat_message *m)
{
    flush(r);
    size_t from = r->out->ids.len;
    buf_append(&r->out->text, m->text, m->len);
    id_list_append_all(&r->out->ids, m->ids, m->n_ids);
    mark_rest(r, from, PART_ANSWER);
}

/* A message's content as it is. */
static void put_content(renderer *r, const chat_message *m)
{
    if (m->role == ROLE_ASSISTANT && m->ids)
        put_stored_ids(r, m);
    else if (m->role == ROLE_ASSISTANT)
        put_answer(r, m->text, m->len);
    else
        put_text(r, m->text, m->len);
}

static token_part end_part(const chat_message *m)
{
    return m->role == ROLE_ASSISTANT ? PART_END : PART_PROMPT;
}

/* --- ChatML ----------------------------------------------------------------------------------- */

static const char *const chatml_markers[] = {"<|im_start|>", "<|im_end|>", NULL};

static void chatml_header(renderer *r, chat_role role)
{
    put_marker(r, "<|im_start|>", PART_PROMPT);
    put(r, chat_role_name(role));
    put(r, "\n");
}

static void chatml_end(renderer *r, token_part part)
{
    put_marker(r, "<|im_end|>", part);
    put(r, "\n");
}

/* The default system text, unless the conversation begins with one of its own. */
static void chatml_begin(renderer *r)
{
    if (!r->ct->system || r->messages[0].role == ROLE_SYSTEM) return;
    chatml_header(r, ROLE_SYSTEM);
    put(r, r->ct->system);
    chatml_end(r, PART_PROMPT);
}

static void chatml_message(renderer *r, size_t i)
{
    const chat_message *m = &r->messages[i];
    chatml_header(r, m->role);
    put_content(r, m);
    chatml_end(r, end_part(m));
}

static void chatml_generation(renderer *r)
{
    chatml_header(r, ROLE_ASSISTANT);
}

/* --- Qwen 3: ChatML that drops the thinking of earlier answers ------------------------------ */

typedef struct {
    const char *text;
    size_t len;
} span;

static span strip_feeds(span s, bool left, bool right)
{
    while (left && s.len && s.text[0] == '\n') {
        s.text++;
        s.len--;
    }
    while (right && s.len && s.text[s.len - 1] == '\n')
        s.len--;
    return s;
}

/* What follows the last mark in s (all of s if there is none). */
static span after_last(span s, const char *mark)
{
    size_t n = strlen(mark);
    for (size_t at = s.len; at-- > 0;)
        if (s.len - at >= n && memcmp(s.text + at, mark, n) == 0)
            return (span){s.text + at + n, s.len - at - n};
    return s;
}

static bool begins_with(span s, const char *text)
{
    size_t n = strlen(text);
    return s.len >= n && memcmp(s.text, text, n) == 0;
}

static bool ends_with(span s, const char *text)
{
    size_t n = strlen(text);
    return s.len >= n && memcmp(s.text + s.len - n, text, n) == 0;
}

/* Index of the last user message that is no tool response; the last message if there is none. */
static size_t find_last_query(const renderer *r)
{
    for (size_t i = r->n_messages; i-- > 0;) {
        span s = {r->messages[i].text, r->messages[i].len};
        bool response = begins_with(s, "<tool_response>") && ends_with(s, "</tool_response>");
        if (r->messages[i].role == ROLE_USER && !response) return i;
    }
    return r->n_messages - 1;
}

static void qwen3_begin(renderer *r)
{
    r->last_query = find_last_query(r);
}

static void qwen3_answer(renderer *r, size_t i)
{
    span content = {r->messages[i].text, r->messages[i].len}, thought = {"", 0};
    const char *end = content.len ? memmem(content.text, content.len, "</think>", 8) : NULL;
    if (end) {
        span before = {content.text, (size_t)(end - content.text)};
        thought = strip_feeds(after_last(strip_feeds(before, false, true), "<think>"), true, false);
        content = strip_feeds(after_last(content, "</think>"), true, false);
    }
    if (i > r->last_query && (i + 1 == r->n_messages || thought.len)) {
        thought = strip_feeds(thought, true, true);
        put_answer(r, "<think>\n", 8);
        put_answer(r, thought.text, thought.len);
        put_answer(r, "\n</think>\n\n", 11);
        content = strip_feeds(content, true, false);
    }
    put_answer(r, content.text, content.len);
}

static void qwen3_message(renderer *r, size_t i)
{
    const chat_message *m = &r->messages[i];
    chatml_header(r, m->role);
    if (m->role == ROLE_ASSISTANT && !m->ids)
        qwen3_answer(r, i);
    else
        put_content(r, m);
    chatml_end(r, end_part(m));
}

/* --- Llama 3 ---------------------------------------------------------------------------------- */

static const char *const llama3_markers[] = {"<|start_header_id|>", "<|end_header_id|>",
                                             "<|eot_id|>", NULL};

/* What Python's str.strip takes away: Unicode white space and U+001C..U+001F. */
static bool is_python_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static span python_strip(span s)
{
    uint32_t c;
    while (s.len) {
        size_t n = utf8_decode(s.text, s.len, &c, NULL);
        if (!is_python_space(c)) break;
        s.text += n;
        s.len -= n;
    }
    while (s.len) {
        size_t n = 1;
        while (n < s.len && n < 4 && (s.text[s.len - n] & 0xC0) == 0x80)
            n++;
        utf8_decode(s.text + s.len - n, n, &c, NULL);
        if (!is_python_space(c)) break;
        s.len -= n;
    }
    return s;
}

static void llama3_header(renderer *r, const char *role)
{
    put_marker(r, "<|start_header_id|>", PART_PROMPT);
    put(r, role);
    put_marker(r, "<|end_header_id|>", PART_PROMPT);
    put(r, "\n\n");
}

static void llama3_begin(renderer *r)
{
    if (tokenizer_bos(r->t) >= 0) put_control(r, tokenizer_bos(r->t), PART_PROMPT);
}

static void llama3_message(renderer *r, size_t i)
{
    chat_message m = r->messages[i];
    span content = python_strip((span){m.text, m.len});
    if (!m.ids) {
        m.text = content.text;
        m.len = content.len;
    }
    llama3_header(r, chat_role_name(m.role));
    put_content(r, &m);
    put_marker(r, "<|eot_id|>", end_part(&m));
}

static void llama3_generation(renderer *r)
{
    llama3_header(r, "assistant");
}

/* Llama 3.1 always writes a system block with two dates, and the system text into it. */
static void llama31_begin(renderer *r)
{
    llama3_begin(r);
    llama3_header(r, "system");
    put(r, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
    if (r->messages[0].role != ROLE_SYSTEM) put_marker(r, "<|eot_id|>", PART_PROMPT);
}

static void llama31_message(renderer *r, size_t i)
{
    const chat_message *m = &r->messages[i];
    if (i > 0 || m->role != ROLE_SYSTEM) {
        llama3_message(r, i);
        return;
    }
    span content = python_strip((span){m->text, m->len});
    put_text(r, content.text, content.len);
    put_marker(r, "<|eot_id|>", PART_PROMPT);
}

/* --- plain: for models that were given no template ------------------------------------------ */

static void plain_header(renderer *r, chat_role role)
{
    static const char *const headers[] = {"", "User:\n", "Assistant:\n"};
    put(r, headers[role]);
}

/* Each message is a stretch of its own, so that a history is tokenized as it was written. */
static void plain_message(renderer *r, size_t i)
{
    const chat_message *m = &r->messages[i];
    plain_header(r, m->role);
    put_content(r, m);
    flush(r);
    if (m->role == ROLE_ASSISTANT && tokenizer_eos(r->t) >= 0)
        put_control(r, tokenizer_eos(r->t), PART_END);
    put(r, "\n\n");
    flush(r);
}

static void plain_generation(renderer *r)
{
    plain_header(r, ROLE_ASSISTANT);
}

/* --- the known templates ---------------------------------------------------------------------- */

static const char *const no_markers[] = {NULL};

static const template_kind kinds[] = {
    {"chatml", chatml_markers, chatml_begin, chatml_message, chatml_generation},
    {"qwen3", chatml_markers, qwen3_begin, qwen3_message, chatml_generation},
    {"llama3", llama3_markers, llama3_begin, llama3_message, llama3_generation},
    {"llama3.1", llama3_markers, llama31_begin, llama31_message, llama3_generation},
    {"plain", no_markers, NULL, plain_message, plain_generation},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

#define CHATML_MESSAGE                                                                             \
    "\"<|im_start|>\"{message.role}\"\\n\"{message.content}\"<|im_end|>\\n\"%endfor%"              \
    "%if add_generation_prompt%\"<|im_start|>assistant\\n\"%endif%"
#define LLAMA3_TEXT                                                                                \
    "'<|start_header_id|>'+message.role+'<|end_header_id|>\\n\\n'+message.content|trim+"           \
    "'<|eot_id|>'%"
#define LLAMA3_REST(name)                                                                          \
    "%if loop.index0==0%%set " name "=bos_token+" name "%%endif%{" name "}%endfor%"                \
    "%if add_generation_prompt%\"<|start_header_id|>assistant<|end_header_id|>\\n\\n\"%endif%"

/* Canonical forms (template_form.h) of short templates, with * for the default system text. */
static const struct {
    const char *form, *kind;
} known_forms[] = {
    {"%for message in messages%" CHATML_MESSAGE, "chatml"},
    {"%for message in messages%%if loop.first and messages[0].role!='system'%"
     "\"<|im_start|>system\\n*<|im_end|>\\n\"%endif%" CHATML_MESSAGE,
     "chatml"},
    {"%for message in messages%%set text=" LLAMA3_TEXT LLAMA3_REST("text"), "llama3"},
    {"%for message in messages%%set content=" LLAMA3_TEXT LLAMA3_REST("content"), "llama3"},
    {"%set loop_messages=messages%%for message in loop_messages%%set content=" LLAMA3_TEXT
         LLAMA3_REST("content"),
     "llama3"},
};

/* BLAKE2b-256 of the canonical forms of long templates, most of whose text is about tools. */
static const struct {
    const char *digest, *kind;
} known_digests[] = {
    /* Qwen 2.5, in two spellings of its text on tools: else as ChatML */
    {"eff92b5536d1ebacb18d45aeb4ac30dd461dec0d2f4272ba6ac8e789f793690d", "chatml"},
    {"cba81129b0560979e18f9d1786cd325fc857f279e79ae4c4609c25a993612805", "chatml"},
    /* Qwen 3, as first published and as later revised */
    {"bb35d2d11b651a3d9a04996c8505d42a39be571d9629ff35b61671c45d351d41", "qwen3"},
    {"63424ea502d9b18e4beb6792a12e5549d77b83621f19d3fccdbfa12e72d463f3", "qwen3"},
    /* Llama 3.1; Llama 3.2, which would ask the clock for its second date: here it has the date
     * that it falls back to, so that a conversation reads the same on every day */
    {"d06f9783600482cfe2a67ba7b26ee7b56bb258918fc5b036514c6d85a7e16095", "llama3.1"},
    {"7889b1372de217b326bd8eeb1f5a5ffa1e7adf3b81ebb817a3caff1f66067aeb", "llama3.1"},
};

/* A first statement that changes nothing here, where the variable is always defined. */
static const char no_generation[] =
    "%if not add_generation_prompt is defined%%set add_generation_prompt=false%%endif%";

static const template_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return NULL;
}

static const template_kind *recognise(const buf *form)
{
    unsigned char digest[32];
    char hex[65];
    const char *text = buf_str(form);
    size_t len = form->len, skip = sizeof no_generation - 1;
    if (len >= skip && memcmp(text, no_generation, skip) == 0) {
        text += skip;
        len -= skip;
    }
    for (size_t i = 0; i < sizeof known_forms / sizeof known_forms[0]; i++)
        if (len == strlen(known_forms[i].form) && memcmp(text, known_forms[i].form, len) == 0)
            return find_kind(known_forms[i].kind);
    crypto_generichash(digest, sizeof digest, (const unsigned char *)text, len, NULL, 0);
    sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
    for (size_t i = 0; i < sizeof known_digests / sizeof known_digests[0]; i++)
        if (strcmp(hex, known_digests[i].digest) == 0) return find_kind(known_digests[i].kind);
    return NULL;
}

static pf_status refuse(const char *what, pf_err *err)
{
    buf names = {0};
    for (size_t i = 0; i < N_KINDS; i++)
        buf_printf(&names, "%s%s", i ? ", " : "", kinds[i].name);
    err_set(err, PF_REFUSED, "%s; known templates are: %s (choose one with --template NAME)", what,
            buf_str(&names));
    buf_free(&names);
    return PF_REFUSED;
}

static pf_status check_markers(const template_kind *kind, const tokenizer *t, pf_err *err)
{
    for (const char *const *m = kind->markers; *m; m++) {
        int32_t id = tokenizer_find_special(t, *m);
        if (id < 0 || tokenizer_kind(t, id) != TOKEN_CONTROL)
            return err_set(err, PF_REFUSED,
                           "the chat template \"%s\" needs the control token %s, which the "
                           "vocabulary lacks; choose another with --template NAME",
                           kind->name, *m);
    }
    return PF_OK;
}

pf_status chat_template_create(const char *name, const char *template_text, size_t len,
                               const tokenizer *t, chat_template **out, pf_err *err)
{
    pf_status status = PF_OK;
    buf form = {0}, system = {0};
    bool has_system = false;
    *out = NULL;
    const template_kind *kind = name ? find_kind(name) : NULL;
    if (name && !kind) {
        char *what = xasprintf("there is no chat template \"%.64s\"", name);
        status = refuse(what, err);
        free(what);
        goto out;
    }
    if (template_text && len && len <= MAX_SOURCE && utf8_valid(template_text, len) &&
        template_form_append(template_text, len, &form)) {
        has_system = template_form_take_system(&form, &system);
        if (!kind) kind = recognise(&form);
    }
    if (!kind) {
        status = refuse(template_text && len ? "the model's chat template is not a known one"
                                             : "the model has no chat template",
                        err);
        goto out;
    }
    if ((status = check_markers(kind, t, err)) != PF_OK) goto out;
    *out = xcalloc(1, sizeof **out);
    (*out)->kind = kind;
    if (has_system) (*out)->system = buf_take(&system);
out:
    buf_free(&form);
    buf_free(&system);
    return status;
}

void chat_template_free(chat_template *ct)
{
    if (!ct) return;
    free(ct->system);
    free(ct);
}

const char *chat_template_name(const chat_template *ct)
{
    return ct->kind->name;
}

/* --- rendering -------------------------------------------------------------------------------- */

static pf_status check_messages(const tokenizer *t, const chat_message *messages, size_t n,
                                pf_err *err)
{
    if (n == 0) return err_set(err, PF_REFUSED, "there are no messages to render");
    for (size_t i = 0; i < n; i++) {
        const chat_message *m = &messages[i];
        if (m->role < ROLE_SYSTEM || m->role > ROLE_ASSISTANT)
            return err_set(err, PF_REFUSED, "message %zu has no known role", i);
        if (!m->text && m->len) return err_set(err, PF_REFUSED, "message %zu has no text", i);
        for (size_t j = 0; m->ids && j < m->n_ids; j++)
            if (m->ids[j] < 0 || (size_t)m->ids[j] >= tokenizer_size(t))
                return err_set(err, PF_REFUSED,
                               "message %zu: stored token %zu has the id %d, outside the "
                               "vocabulary of %zu",
                               i, j, m->ids[j], tokenizer_size(t));
    }
    return PF_OK;
}

/* A copy of the messages whose texts are valid UTF-8; the repaired ones are in *repaired, one
 * after another. NULL if all were valid. */
static chat_message *repair_messages(const chat_message *messages, size_t n, buf *repaired)
{
    chat_message *copy = NULL;
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        if (messages[i].len && !utf8_valid(messages[i].text, messages[i].len))
            total += 3 * messages[i].len;
    if (total == 0) return NULL;
    copy = xcalloc(n, sizeof *copy);
    buf_reserve(repaired, total); /* at most three bytes for each, so nothing moves */
    for (size_t i = 0; i < n; i++) {
        copy[i] = messages[i];
        if (!messages[i].len || utf8_valid(messages[i].text, messages[i].len)) continue;
        size_t start = repaired->len;
        utf8_repair(messages[i].text, messages[i].len, repaired);
        copy[i].text = repaired->data + start;
        copy[i].len = repaired->len - start;
    }
    return copy;
}

/* Puts the start token in front where the model asks for it and the template has not written it. */
static void add_start(renderer *r)
{
    chat_rendering *out = r->out;
    int32_t bos = tokenizer_bos(r->t);
    size_t n = out->ids.len;
    if (!tokenizer_adds_bos(r->t) || (n && out->ids.ids[0] == bos)) return;
    id_list_append(&out->ids, bos);
    mark_rest(r, n, PART_PROMPT);
    memmove(out->ids.ids + 1, out->ids.ids, n * sizeof *out->ids.ids);
    memmove(out->parts + 1, out->parts, n);
    out->ids.ids[0] = bos;
    out->parts[0] = PART_PROMPT;
    for (size_t i = 0; i < out->n_messages; i++)
        out->message_end[i]++;
}

pf_status chat_template_render(const chat_template *ct, const tokenizer *t,
                               const chat_message *messages, size_t n_messages, bool generation,
                               chat_rendering *out, pf_err *err)
{
    pf_status status = check_messages(t, messages, n_messages, err);
    if (status != PF_OK) return status;
    buf repaired = {0};
    chat_message *copy = repair_messages(messages, n_messages, &repaired);
    renderer r = {
        .ct = ct, .t = t, .messages = copy ? copy : messages, .n_messages = n_messages, .out = out};
    out->message_end = xcalloc(n_messages, sizeof *out->message_end);
    out->n_messages = n_messages;
    if (ct->kind->begin) ct->kind->begin(&r);
    for (size_t i = 0; i < n_messages; i++) {
        ct->kind->message(&r, i);
        flush(&r);
        out->message_end[i] = out->ids.len;
    }
    if (generation) ct->kind->generation(&r);
    flush(&r);
    add_start(&r);
    buf_free(&r.stretch);
    buf_free(&repaired);
    free(copy);
    return PF_OK;
}
