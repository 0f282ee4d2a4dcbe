#include "profiles/search.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "models/unicode.h"
#include "profiles/history_rows.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_LIMIT 1000
#define CONTEXT_CHARS 40 /* on each side of a hit */

/* What is looked for, in lower case. */
typedef struct {
    uint32_t *chars;
    size_t n;
} needle;

static uint32_t next_lower(const char *text, size_t len, size_t *at)
{
    unsigned char byte = (unsigned char)text[*at];
    uint32_t c = byte;
    if (byte < 0x80) {
        ++*at;
        return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
    }
    *at += utf8_decode(text + *at, len - *at, &c, NULL);
    return c == UINT32_MAX ? c : unicode_lower(c);
}

static void needle_set(needle *out, const char *text)
{
    const size_t len = strlen(text);
    out->chars = xcalloc(len + 1, sizeof *out->chars);
    out->n = 0;
    for (size_t at = 0; at < len;)
        out->chars[out->n++] = next_lower(text, len, &at);
}

/* The first hit: start and length in bytes. */
static bool find(const needle *what, const char *text, size_t len, size_t *start, size_t *hit_len)
{
    for (size_t at = 0; at < len;) {
        const size_t here = at;
        bool same = next_lower(text, len, &at) == what->chars[0];
        size_t ahead = at;
        for (size_t i = 1; same && i < what->n; i++)
            same = ahead < len && next_lower(text, len, &ahead) == what->chars[i];
        if (!same) continue;
        *start = here;
        *hit_len = ahead - here;
        return true;
    }
    return false;
}

/* Appends text with runs of blanks, line ends and control characters as one blank. */
static void append_line(buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool blank = c <= 0x20 || c == 0x7f;
        if (!blank)
            buf_putc(out, (char)c);
        else if (out->len > 0 && out->data[out->len - 1] != ' ')
            buf_putc(out, ' ');
    }
}

static void set_context(search_hit *hit, const char *text, size_t len, size_t start, size_t hit_len)
{
    buf line = {0};
    size_t from = start, to = start + hit_len;
    for (int i = 0; i < CONTEXT_CHARS && from > 0; i++) {
        do
            from--;
        while (from > 0 && ((unsigned char)text[from] & 0xc0) == 0x80);
    }
    for (int i = 0; i < CONTEXT_CHARS && to < len; i++) {
        uint32_t c = 0;
        to += utf8_decode(text + to, len - to, &c, NULL);
    }
    /* room for all at once: growing would leave copies of the text behind */
    buf_reserve(&line, to - from + 8);
    if (from > 0) buf_puts(&line, "…");
    append_line(&line, text + from, start - from);
    hit->start = line.len;
    append_line(&line, text + start, hit_len);
    hit->len = line.len - hit->start;
    append_line(&line, text + start + hit_len, to - start - hit_len);
    if (to < len) buf_puts(&line, "…");
    hit->context = buf_take(&line);
}

typedef struct {
    session *session;
    const needle *what;
    search_result *result;
    size_t limit;
    const conversation_info *in;
} scan;

static pf_status visit_message(void *ctx, const row *r, pf_err *err)
{
    scan *sc = ctx;
    search_result *result = sc->result;
    size_t start = 0, len = 0;
    history_message m;
    if (atomic_load(&sc->session->leaving))
        return err_set(err, PF_DENIED, "%s is signed out; sign in again", sc->session->name);
    if (result->more) return PF_OK;
    message_take(r, &m);
    if (find(sc->what, m.text, m.len, &start, &len)) {
        result->more = result->n == sc->limit;
        if (!result->more) {
            result->items = xrealloc_array(result->items, result->n + 1, sizeof *result->items);
            search_hit *hit = &result->items[result->n++];
            *hit = (search_hit){.conversation = sc->in->id,
                                .message = m.id,
                                .role = m.role,
                                .title = xstrdup(sc->in->title),
                                .created_ms = m.created_ms};
            set_context(hit, m.text, m.len, start, len);
        }
    }
    history_message_free(&m);
    return PF_OK;
}

/* Scans one conversation. Damage is told by its verdicts; the digest is conversation_load's
 * concern. */
static pf_status scan_conversation(scan *sc, pf_err *err)
{
    tx t;
    damage bad = {0};
    store_give_way(sc->session->store);
    pf_status status = tx_begin(sc->session, TX_READ, &t, err);
    if (status != PF_OK) return status;
    status = row_scan(&t, ROW_MESSAGE, sc->in->id, NULL, &bad, visit_message, sc, err);
    if (status == PF_OK && bad.n > 0) {
        char *what = xasprintf("messages of conversation %lld", (long long)sc->in->id);
        vault_head same = {0};
        status = damage_report(&bad, &same, &same, what, err);
        free(what);
    }
    damage_free(&bad);
    return tx_end(&t, status, err);
}

pf_status search_messages(session *s, const char *text, int64_t conversation_id, size_t limit,
                          search_result *out, pf_err *err)
{
    tx t;
    needle what = {0};
    conversation_list list = {0};
    pf_status damaged = PF_OK;
    pf_err first = {0};
    *out = (search_result){0};
    if (!*text || !utf8_valid(text, strlen(text)))
        return err_set(err, PF_USAGE, "a text of at least one character is needed to search for");
    pf_status status = tx_begin(s, TX_READ, &t, err);
    if (status != PF_OK) return status;
    needle_set(&what, text);
    scan sc = {.session = s, .what = &what, .result = out, .limit = limit ? limit : DEFAULT_LIMIT};
    status = conversation_list_read(&t, &list, &first);
    if (status == PF_DAMAGED) {
        damaged = status;
        status = PF_OK;
    } else if (status != PF_OK && err) {
        *err = first;
    }
    /* one transaction for each: what others save meanwhile doesn't wait for the whole search */
    status = tx_end(&t, status, status == PF_OK ? err : NULL);
    for (size_t i = 0; i < list.n && status == PF_OK && !out->more; i++) {
        if (conversation_id > 0 && list.items[i].id != conversation_id) continue;
        pf_err found = {0};
        sc.in = &list.items[i];
        status = scan_conversation(&sc, &found);
        if (status == PF_DAMAGED) {
            if (damaged == PF_OK) first = found;
            damaged = status;
            status = PF_OK;
        } else if (status != PF_OK && err) {
            *err = found;
        }
    }
    if (status == PF_OK && damaged != PF_OK) {
        status = damaged;
        if (err) *err = first;
    }
    wipe_free(what.chars, what.n * sizeof *what.chars);
    conversation_list_free(&list);
    return status;
}

void search_result_free(search_result *r)
{
    for (size_t i = 0; i < r->n; i++) {
        wipe_text(r->items[i].title);
        wipe_text(r->items[i].context);
    }
    free(r->items);
    *r = (search_result){0};
}
