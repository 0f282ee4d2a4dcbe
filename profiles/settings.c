#include "profiles/settings.h"

#include "base/mem.h"
#include "profiles/internal.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>

enum { SETTING_KEY = 1, SETTING_VALUE };

/* Finds a setting's row; *out is zeroed if there is none. */
static pf_status find_setting(tx *t, const char *key, unsigned char tag[VAULT_DIGEST_BYTES],
                              row *out, pf_err *err)
{
    int64_t id = 0;
    *out = (row){0};
    vault_name_tag(t->key, "setting", key, tag);
    pf_status status =
        db_number(t->d, &id, err, "SELECT id FROM setting WHERE owner = ? AND tag = ?", "ib",
                  t->user, tag, (size_t)VAULT_DIGEST_BYTES);
    if (status == PF_NOT_FOUND) return PF_OK;
    if (status == PF_OK) status = row_read(t, ROW_SETTING, id, out, err);
    if (status != PF_OK) return status;
    char *found = record_get_text(&out->body, SETTING_KEY);
    if (strcmp(found, key) != 0) {
        status = err_set(err, PF_DAMAGED, "setting %lld of %s is stored in another setting's place",
                         (long long)id, t->session->name);
        row_free(out);
    }
    wipe_text(found);
    return status;
}

static pf_status get(tx *t, const char *key, buf *out, pf_err *err)
{
    row r = {0};
    user_head head = {0};
    vault_head found;
    damage none = {0};
    unsigned char tag[VAULT_DIGEST_BYTES];
    pf_status status = find_setting(t, key, tag, &r, err);
    if (status == PF_OK) status = user_head_read(t, &head, err);
    if (status == PF_OK) status = row_head(t, ROW_SETTING, t->user, &found, err);
    if (status == PF_OK) status = damage_report(&none, &found, &head.settings, "settings", err);
    if (status == PF_OK && r.id == 0)
        status = err_set(err, PF_NOT_FOUND, "the setting %s is not set", key);
    if (status == PF_OK) {
        const void *value = NULL;
        size_t len = 0;
        (void)record_get(&r.body, SETTING_VALUE, &value, &len);
        buf_append(out, len > 0 ? value : "", len);
    }
    row_free(&r);
    user_head_free(&head);
    return status;
}

static pf_status put(tx *t, user_head *head, const char *key, const void *value, size_t len,
                     pf_err *err)
{
    row r = {0};
    record_writer w = {0};
    unsigned char tag[VAULT_DIGEST_BYTES];
    if (len > SETTINGS_MAX_BYTES)
        return err_set(err, PF_REFUSED, "the setting %s has %zu bytes; at most %u can be kept", key,
                       len, SETTINGS_MAX_BYTES);
    pf_status status = find_setting(t, key, tag, &r, err);
    if (status != PF_OK) return status;
    record_put_text(&w, SETTING_KEY, key);
    record_put(&w, SETTING_VALUE, value, len);
    if (r.id)
        status = row_update(t, ROW_SETTING, &r, &w, &head->settings, err);
    else
        status = row_insert(t, ROW_SETTING, t->user, &w, tag, &head->settings, NULL, err);
    record_free(&w);
    row_free(&r);
    return status;
}

pf_status settings_drop(tx *t, user_head *head, const char *key, pf_err *err)
{
    row r = {0};
    unsigned char tag[VAULT_DIGEST_BYTES];
    pf_status status = find_setting(t, key, tag, &r, err);
    if (status == PF_OK && r.id) status = row_remove(t, ROW_SETTING, &r, &head->settings, err);
    row_free(&r);
    return status;
}

pf_status settings_get(session *s, const char *key, buf *out, pf_err *err)
{
    tx t;
    pf_status status = tx_begin(s, TX_READ, &t, err);
    return status == PF_OK ? tx_end(&t, get(&t, key, out, err), err) : status;
}

pf_status settings_set(session *s, const char *key, const void *value, size_t len, pf_err *err)
{
    tx t;
    user_head head = {0};
    pf_status status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) return status;
    status = user_head_read(&t, &head, err);
    if (status == PF_OK) status = put(&t, &head, key, value, len, err);
    if (status == PF_OK) status = user_head_write(&t, &head, err);
    user_head_free(&head);
    return tx_end(&t, status, err);
}

pf_status settings_remove(session *s, const char *key, pf_err *err)
{
    tx t;
    user_head head = {0};
    pf_status status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) return status;
    status = user_head_read(&t, &head, err);
    if (status == PF_OK) status = settings_drop(&t, &head, key, err);
    if (status == PF_OK) status = user_head_write(&t, &head, err);
    user_head_free(&head);
    return tx_end(&t, status, err);
}

/* --- input history ---------------------------------------------------------------------------- */

/* The value: for each input, 4 bytes of length (little-endian) and the text. */
#define ITEM_HEAD 4

char *input_history_key(int64_t profile)
{
    return xasprintf("input-history/%lld", (long long)profile);
}

static size_t item_len(const char *at)
{
    const unsigned char *p = (const unsigned char *)at;
    return (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
}

/* Whether a whole item starts at `at`. */
static bool item_there(const buf *b, size_t at)
{
    return b->len - at >= ITEM_HEAD && b->len - at - ITEM_HEAD >= item_len(b->data + at);
}

pf_status input_history_load(session *s, int64_t profile, input_history *out, pf_err *err)
{
    buf value = {0};
    char *key = input_history_key(profile);
    *out = (input_history){0};
    pf_status status = settings_get(s, key, &value, err);
    if (status == PF_NOT_FOUND) status = PF_OK;
    for (size_t at = 0; status == PF_OK && item_there(&value, at);) {
        const size_t len = item_len(value.data + at);
        out->items = xrealloc_array(out->items, out->n + 1, sizeof *out->items);
        out->items[out->n++] = xmemdup0(value.data + at + ITEM_HEAD, len);
        at += ITEM_HEAD + len;
    }
    wipe_buf(&value);
    free(key);
    return status;
}

/* Appends text to the value unless it repeats the last item; drops the oldest ones over a limit. */
static bool append_input(buf *value, const char *text)
{
    const size_t len = strlen(text);
    size_t n = 0, last = 0, at = 0;
    for (; item_there(value, at); at += ITEM_HEAD + item_len(value->data + at), n++)
        last = at;
    if (n > 0 && item_len(value->data + last) == len &&
        memcmp(value->data + last + ITEM_HEAD, text, len) == 0)
        return false;
    for (int i = 0; i < ITEM_HEAD; i++)
        buf_putc(value, (char)(len >> (8 * i)));
    buf_append(value, text, len);
    n++;
    size_t drop = 0;
    while (n > SETTINGS_INPUTS || value->len - drop > SETTINGS_MAX_BYTES) {
        drop += ITEM_HEAD + item_len(value->data + drop);
        n--;
    }
    memmove(value->data, value->data + drop, value->len - drop);
    value->len -= drop;
    return true;
}

pf_status input_history_add(session *s, int64_t profile, const char *text, pf_err *err)
{
    tx t;
    user_head head = {0};
    buf value = {0};
    if (!*text || strlen(text) > SETTINGS_MAX_BYTES / 2) return PF_OK; /* not worth keeping */
    char *key = input_history_key(profile);
    pf_status status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) goto out;
    /* one allocation that no growth copies */
    buf_reserve(&value, 2 * SETTINGS_MAX_BYTES);
    status = get(&t, key, &value, err);
    if (status == PF_NOT_FOUND) status = PF_OK;
    if (status == PF_OK) status = user_head_read(&t, &head, err);
    if (status == PF_OK && append_input(&value, text)) {
        status = put(&t, &head, key, value.data, value.len, err);
        if (status == PF_OK) status = user_head_write(&t, &head, err);
    }
    user_head_free(&head);
    status = tx_end(&t, status, err);
out:
    wipe_buf(&value);
    free(key);
    return status;
}

static bool is_one_of(const char *text, size_t len, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(texts[i], text, len) == 0 && !texts[i][len]) return true;
    return false;
}

pf_status inputs_forget(tx *t, user_head *head, int64_t profile, const char *const *texts, size_t n,
                        pf_err *err)
{
    row r = {0};
    buf value = {0}, kept = {0};
    unsigned char tag[VAULT_DIGEST_BYTES];
    const void *data = NULL;
    char *key = input_history_key(profile);
    pf_status status = find_setting(t, key, tag, &r, err);
    if (status == PF_OK && r.id) (void)record_get(&r.body, SETTING_VALUE, &data, &value.len);
    value.data = (char *)(uintptr_t)data; /* borrowed, not changed */
    if (status == PF_OK && value.len) buf_reserve(&kept, value.len);
    for (size_t at = 0; status == PF_OK && item_there(&value, at);) {
        const size_t len = item_len(value.data + at);
        if (!is_one_of(value.data + at + ITEM_HEAD, len, texts, n))
            buf_append(&kept, value.data + at, ITEM_HEAD + len);
        at += ITEM_HEAD + len;
    }
    if (status == PF_OK && kept.len < value.len)
        status = kept.len ? put(t, head, key, kept.data, kept.len, err)
                          : settings_drop(t, head, key, err);
    wipe_buf(&kept);
    row_free(&r);
    free(key);
    return status == PF_DAMAGED ? PF_OK : status; /* damage elsewhere is no reason to keep */
}

void input_history_free(input_history *h)
{
    for (size_t i = 0; i < h->n; i++)
        wipe_text(h->items[i]);
    free(h->items);
    *h = (input_history){0};
}

/* --- drafts ----------------------------------------------------------------------------------- */

char *draft_key(int64_t conversation)
{
    return xasprintf("draft/%lld", (long long)conversation);
}

char *message_draft_key(int64_t message, bool rewrite)
{
    return xasprintf("%s/%lld", rewrite ? "rewrite" : "edit", (long long)message);
}

pf_status draft_load(session *s, int64_t conversation, buf *out, pf_err *err)
{
    char *key = draft_key(conversation);
    pf_status status = settings_get(s, key, out, err);
    free(key);
    return status == PF_NOT_FOUND ? PF_OK : status;
}

pf_status draft_save(session *s, int64_t conversation, const char *text, size_t len, pf_err *err)
{
    char *key = draft_key(conversation);
    pf_status status = len ? settings_set(s, key, text, len, err) : settings_remove(s, key, err);
    free(key);
    return status;
}
