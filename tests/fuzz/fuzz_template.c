/* Chat templates. The input is read as a template's source, and as messages: a byte for the role,
 * then text up to the next 0xFF. What must hold: nothing crashes; contents never add a control
 * token; a rendering of fewer messages is a beginning of that of more. */
#include "base/mem.h"
#include "base/utf8.h"
#include "models/template.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define N_BYTES      256
#define MAX_MESSAGES 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const markers[] = {"<|im_start|>",      "<|im_end|>", "<|start_header_id|>",
                                      "<|end_header_id|>", "<|eot_id|>", "<think>"};
#define N_MARKERS (sizeof markers / sizeof markers[0])

/* Every byte's piece, in the order of the alphabet's characters, and the markers. */
static tokenizer *create(void)
{
    static char texts[N_BYTES][8];
    const char *pieces[N_BYTES + N_MARKERS];
    size_t lengths[N_BYTES + N_MARKERS], n = 0;
    token_kind kinds[N_BYTES + N_MARKERS] = {TOKEN_NORMAL};
    for (uint32_t c = 33; n < N_BYTES; c++) {
        if ((c > 126 && c < 161) || c == 173) continue;
        texts[n][utf8_encode(c, texts[n])] = 0;
        pieces[n] = texts[n];
        n++;
    }
    for (size_t i = 0; i < N_MARKERS; i++) {
        kinds[n] = i + 1 < N_MARKERS ? TOKEN_CONTROL : TOKEN_ADDED;
        pieces[n++] = markers[i];
    }
    for (size_t i = 0; i < n; i++)
        lengths[i] = strlen(pieces[i]);
    tokenizer_source source = {.name = "fuzz",
                               .pretokenizer = "smollm",
                               .n_tokens = n,
                               .pieces = pieces,
                               .piece_lengths = lengths,
                               .kinds = kinds,
                               .bos_id = -1,
                               .eos_id = N_BYTES + 1};
    tokenizer *t = NULL;
    pf_err err;
    if (tokenizer_create(&source, &t, &err) != PF_OK) die("%s", err.text);
    return t;
}

static size_t read_messages(const uint8_t *data, size_t size, chat_message *messages)
{
    size_t n = 0;
    for (size_t at = 0; at < size && n < MAX_MESSAGES; n++) {
        const uint8_t *end = memchr(data + at, 0xFF, size - at);
        size_t len = end ? (size_t)(end - data) - at : size - at;
        messages[n] = (chat_message){.role = (chat_role)(data[at] % 3),
                                     .text = (const char *)data + at + (len > 0),
                                     .len = len ? len - 1 : 0};
        at += len + 1;
    }
    return n;
}

static size_t count_control(const tokenizer *t, const id_list *ids)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->len; i++)
        n += tokenizer_kind(t, ids->ids[i]) == TOKEN_CONTROL;
    return n;
}

static void check_messages(const chat_template *ct, const tokenizer *t,
                           const chat_message *messages, size_t n)
{
    chat_message empty[MAX_MESSAGES];
    chat_rendering all = {0}, part = {0}, bare = {0};
    memcpy(empty, messages, n * sizeof *empty);
    for (size_t i = 0; i < n; i++)
        empty[i].len = 0;
    if (chat_template_render(ct, t, messages, n, true, &all, NULL) != PF_OK) goto out;
    PF_ASSERT(chat_template_render(ct, t, empty, n, true, &bare, NULL) == PF_OK);
    PF_ASSERT(count_control(t, &all.ids) == count_control(t, &bare.ids));
    PF_ASSERT(utf8_valid(buf_str(&all.text), all.text.len));
    if (n < 2 || strcmp(chat_template_name(ct), "qwen3") == 0) goto out; /* rewrites history */
    PF_ASSERT(chat_template_render(ct, t, messages, n - 1, false, &part, NULL) == PF_OK);
    PF_ASSERT(part.ids.len == all.message_end[n - 2]);
    PF_ASSERT(memcmp(part.ids.ids, all.ids.ids, part.ids.len * sizeof *part.ids.ids) == 0);
out:
    chat_rendering_free(&all);
    chat_rendering_free(&part);
    chat_rendering_free(&bare);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"chatml", "qwen3", "llama3", "llama3.1", "plain"};
    static tokenizer *t;
    static chat_template *known[sizeof names / sizeof names[0]];
    chat_message messages[MAX_MESSAGES];
    chat_template *ct = NULL;
    if (!t) t = create();
    size_t n = read_messages(data, size, messages);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!known[i] && chat_template_create(names[i], NULL, 0, t, &known[i], NULL) != PF_OK)
            die("no template %s", names[i]);
        check_messages(known[i], t, messages, n);
    }
    if (chat_template_create(NULL, (const char *)data, size, t, &ct, NULL) == PF_OK)
        check_messages(ct, t, messages, n);
    chat_template_free(ct);
    return 0;
}
