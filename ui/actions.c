#include "ui/actions.h"

#include "base/utf8.h"

#include <string.h>

typedef struct {
    const char *id, *keys, *slash, *description;
    context where;
} action_row;

static const action_row table[ACTION_COUNT] = {
#define X(id, context, keys, slash, description)                                                   \
    [ACTION_##id] = {#id, keys, slash, description, CONTEXT_##context},
#include "ui/actions.def"
#undef X
};

static struct {
    char name[32];                  /* of the id */
    key_code keys[ACTION_MAX_KEYS]; /* 0-terminated unless full */
    bool chosen;                    /* by action_bind */
} bound[ACTION_COUNT];
static bool ready;

/* --- names ------------------------------------------------------------------------------------ */

static void make_name(const char *id, char *out, size_t size)
{
    size_t len = strlen(id);
    PF_ASSERT(len < size);
    for (size_t i = 0; i <= len; i++)
        out[i] = (char)(id[i] == '_' ? '-' : id[i] >= 'A' && id[i] <= 'Z' ? id[i] | 0x20 : id[i]);
}

/* Reads key names separated by blanks. False: word (owned by the caller, of size bytes) is no key,
 * or empty when there are too many. */
static bool read_keys(const char *text, key_code keys[ACTION_MAX_KEYS], char *word, size_t size)
{
    int n = 0;
    memset(keys, 0, ACTION_MAX_KEYS * sizeof *keys);
    for (text += strspn(text, " \t"); *text; text += strspn(text, " \t")) {
        size_t len = strcspn(text, " \t"), kept = len < size ? len : size - 1;
        memcpy(word, text, kept);
        word[kept] = '\0';
        text += len;
        if (n == ACTION_MAX_KEYS) {
            word[0] = '\0';
            return false;
        }
        if (len >= size || !key_parse(word, &keys[n])) return false;
        n++;
    }
    return true;
}

/* The bindings are filled at first use (by the one thread that owns the screen). */
static void prepare(void)
{
    if (ready) return;
    ready = true;
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
        char word[32];
        make_name(table[a].id, bound[a].name, sizeof bound[a].name);
        PF_ASSERT(read_keys(table[a].keys, bound[a].keys, word, sizeof word));
        bound[a].chosen = false;
    }
}

void action_bind_defaults(void)
{
    ready = false;
}

context action_context(action a)
{
    return table[a].where;
}

const char *context_title(context where)
{
    static const char *const titles[CONTEXT_COUNT] = {
#define CONTEXT_TITLE(name, title) title,
        CONTEXT_LIST_OF(CONTEXT_TITLE)
#undef CONTEXT_TITLE
    };
    return titles[where];
}

const char *action_description(action a)
{
    return table[a].description;
}

const char *action_name(action a)
{
    prepare();
    return bound[a].name;
}

action action_find(const char *name)
{
    prepare();
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++)
        if (strcmp(bound[a].name, name) == 0) return (action)a;
    return ACTION_NONE;
}

const char *action_slash(action a)
{
    return table[a].slash;
}

action action_of_slash(const char *word, size_t len)
{
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT && len; a++) {
        const char *slash = table[a].slash;
        if (strcspn(slash, " ") == len && memcmp(slash, word, len) == 0) return (action)a;
    }
    return ACTION_NONE;
}

/* --- keys ------------------------------------------------------------------------------------- */

action action_of(key_code key, context where)
{
    prepare();
    if (!key) return ACTION_NONE;
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++)
        for (int i = 0; table[a].where == where && i < ACTION_MAX_KEYS && bound[a].keys[i]; i++)
            if (bound[a].keys[i] == key) return (action)a;
    return ACTION_NONE;
}

key_code input_key(const input_event *ev)
{
    uint32_t cp;
    if (ev->kind == INPUT_KEY) return ev->key;
    if (ev->kind != INPUT_TEXT || ev->len == 0) return 0;
    if (utf8_decode(ev->text, ev->len, &cp, NULL) != ev->len || cp == UINT32_MAX) return 0;
    return cp == ' ' ? KEY_SPACE : cp;
}

const char *action_default_keys(action a)
{
    return table[a].keys;
}

void action_keys(action a, buf *out)
{
    prepare();
    for (int i = 0; i < ACTION_MAX_KEYS && bound[a].keys[i]; i++) {
        if (i) buf_puts(out, " or ");
        key_name(bound[a].keys[i], out);
    }
}

void action_key(action a, buf *out)
{
    prepare();
    if (bound[a].keys[0]) key_name(bound[a].keys[0], out);
}

/* --- binding ---------------------------------------------------------------------------------- */

/* Contexts whose keys a view looks up together: the same key in both would hide one of the two.
 * What a more particular context takes from a list on purpose (a page, say) is not among them. */
static bool meet(context a, context b)
{
    unsigned both = CONTEXT_BIT(a) | CONTEXT_BIT(b);
    return a == b || a == CONTEXT_WINDOW || b == CONTEXT_WINDOW ||
           both == (CONTEXT_BIT(CONTEXT_CHAT) | CONTEXT_BIT(CONTEXT_EDITOR)) ||
           both == (CONTEXT_BIT(CONTEXT_LIST) | CONTEXT_BIT(CONTEXT_PROFILES)) ||
           both == (CONTEXT_BIT(CONTEXT_LIST) | CONTEXT_BIT(CONTEXT_NOTES)) ||
           both == (CONTEXT_BIT(CONTEXT_LIST) | CONTEXT_BIT(CONTEXT_CONVERSATIONS));
}

/* Where a character without modifiers is always text. (The window leaves it to the view where the
 * view takes text.) */
static bool writes_text(context where)
{
    return where != CONTEXT_WINDOW && where != CONTEXT_TRAIN && where != CONTEXT_MESSAGE;
}

static void take_key(action a, int at)
{
    key_code *keys = bound[a].keys;
    for (; at + 1 < ACTION_MAX_KEYS; at++)
        keys[at] = keys[at + 1];
    keys[ACTION_MAX_KEYS - 1] = 0;
}

/* Finds who else has the key: a holder by default loses it, one that was given it is returned. */
static action holder(action a, key_code key)
{
    for (int other = ACTION_NONE + 1; other < ACTION_COUNT; other++) {
        if (other == (int)a || !meet(table[a].where, table[other].where)) continue;
        for (int i = 0; i < ACTION_MAX_KEYS && bound[other].keys[i]; i++)
            if (bound[other].keys[i] == key && bound[other].chosen) return (action)other;
    }
    return ACTION_NONE;
}

static void take_from_defaults(action a, key_code key)
{
    for (int other = ACTION_NONE + 1; other < ACTION_COUNT; other++) {
        if (other == (int)a || !meet(table[a].where, table[other].where)) continue;
        for (int i = 0; i < ACTION_MAX_KEYS && bound[other].keys[i];)
            if (bound[other].keys[i] == key)
                take_key((action)other, i);
            else
                i++;
    }
}

static pf_status check_key(action a, key_code key, pf_err *err)
{
    buf name = {0};
    pf_status status = PF_OK;
    action other = holder(a, key);
    key_name(key, &name);
    if (other)
        status = err_set(err, PF_USAGE, "%s was given to %s before; choose another key for one",
                         buf_str(&name), action_name(other));
    else if ((key < KEY_BASE || key == KEY_SPACE) && writes_text(table[a].where))
        status = err_set(err, PF_USAGE,
                         "%s alone is text where this holds; add Ctrl- or Alt-, or use F1 to F12",
                         buf_str(&name));
    buf_free(&name);
    return status;
}

pf_status action_bind(action a, const char *keys, pf_err *err)
{
    prepare();
    char word[32] = "";
    key_code wanted[ACTION_MAX_KEYS] = {0};
    if (strcmp(keys, "none") != 0 && !read_keys(keys, wanted, word, sizeof word))
        return word[0]
                   ? err_set(err, PF_USAGE,
                             "\"%s\" is no key; keys are written like F2, Ctrl-P, Alt-Enter", word)
                   : err_set(err, PF_USAGE, "more than %d keys; leave some out", ACTION_MAX_KEYS);
    if (strcmp(keys, "none") != 0 && !wanted[0])
        return err_set(err, PF_USAGE, "no key; write none to have none");
    for (int i = 0; i < ACTION_MAX_KEYS && wanted[i]; i++) {
        pf_status status = check_key(a, wanted[i], err);
        if (status != PF_OK) return status;
    }
    for (int i = 0; i < ACTION_MAX_KEYS && wanted[i]; i++)
        take_from_defaults(a, wanted[i]);
    memcpy(bound[a].keys, wanted, sizeof wanted);
    bound[a].chosen = true;
    return PF_OK;
}
