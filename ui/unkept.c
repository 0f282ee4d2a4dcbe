#include "ui/unkept.h"

#include "base/clock.h"
#include "base/mem.h"
#include "profiles/secret.h"
#include "profiles/settings.h"
#include "ui/window.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_MS   500
#define AGAIN_WAIT 20 /* each time */
#define GIVE_UP_MS 60000

struct unkept_text {
    session *session;
    int64_t conversation;
    char *key; /* a setting; NULL: the conversation's draft */
    char *text;
    size_t len;
    int64_t since_ms;
    bool leaving; /* its session is to be signed out */
};

static int64_t now_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

static bool same_user(const session *a, const session *b)
{
    return session_store(a) == session_store(b) && session_user_id(a) == session_user_id(b);
}

static bool same_key(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static size_t find(const unkept *u, const session *s, int64_t conversation, const char *key)
{
    size_t i = 0;
    while (i < u->n && !(same_user(u->items[i].session, s) && same_key(u->items[i].key, key) &&
                         (key || u->items[i].conversation == conversation)))
        i++;
    return i;
}

static void end_session(app *a, session *s)
{
    const uint64_t user = session_engine_user(s);
    session_sign_out(s);
    engine_forget_user(a->options.engine, user);
}

static void drop(app *a, size_t i)
{
    unkept *u = &a->unkept;
    unkept_text gone = u->items[i];
    bool last = true;
    u->items[i] = u->items[--u->n];
    for (size_t k = 0; k < u->n; k++)
        last = last && u->items[k].session != gone.session;
    if (gone.leaving && last) end_session(a, gone.session);
    session_unref(gone.session);
    wipe_free(gone.text, gone.len);
    free(gone.key);
    if (u->n) return;
    free(u->items);
    u->items = NULL;
}

void unkept_add(app *a, session *s, int64_t conversation, const char *key, const char *text,
                size_t len)
{
    unkept *u = &a->unkept;
    unkept_forget(a, s, conversation, key);
    u->items = xrealloc_array(u->items, u->n + 1, sizeof *u->items);
    u->items[u->n++] = (unkept_text){.session = session_ref(s),
                                     .conversation = conversation,
                                     .key = key ? xstrdup(key) : NULL,
                                     .text = xmemdup0(text, len),
                                     .len = len,
                                     .since_ms = now_ms()};
}

bool unkept_take(app *a, const session *s, int64_t conversation, buf *out)
{
    const size_t i = find(&a->unkept, s, conversation, NULL);
    if (i == a->unkept.n) return false;
    buf_append(out, a->unkept.items[i].text, a->unkept.items[i].len);
    drop(a, i);
    return true;
}

void unkept_forget(app *a, const session *s, int64_t conversation, const char *key)
{
    const size_t i = find(&a->unkept, s, conversation, key);
    if (i < a->unkept.n) drop(a, i);
}

void unkept_sign_out(app *a, session *s)
{
    bool held = false;
    for (size_t i = 0; i < a->unkept.n; i++) {
        if (a->unkept.items[i].session != s) continue;
        a->unkept.items[i].leaving = held = true;
    }
    if (!held) end_session(a, s);
}

static pf_status save(const unkept_text *t)
{
    return t->key ? settings_set(t->session, t->key, t->text, t->len, NULL)
                  : draft_save(t->session, t->conversation, t->text, t->len, NULL);
}

void unkept_tick(app *a)
{
    const int64_t now = now_ms();
    if (a->unkept.n == 0 || now - a->unkept.tried_ms < AGAIN_MS) return;
    a->unkept.tried_ms = now;
    for (size_t i = a->unkept.n; i-- > 0;) {
        const bool late = now - a->unkept.items[i].since_ms >= GIVE_UP_MS;
        store_wait_at_most(AGAIN_WAIT);
        const pf_status status = save(&a->unkept.items[i]);
        if ((status == PF_BUSY || status == PF_FAILED) && !late) continue;
        if (status != PF_OK)
            app_say(a, "What was being written could not be kept: the store can't be written.");
        drop(a, i);
    }
    store_wait_at_most(-1);
}

int64_t unkept_due(const app *a)
{
    return a->unkept.n ? a->unkept.tried_ms + AGAIN_MS : INT64_MAX;
}

bool unkept_close(app *a)
{
    bool all = true;
    while (a->unkept.n) {
        if (save(&a->unkept.items[a->unkept.n - 1]) != PF_OK) all = false;
        drop(a, a->unkept.n - 1);
    }
    return all;
}
