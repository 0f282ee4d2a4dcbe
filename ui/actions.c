#include "ui/actions.h"

#include "base/err.h"

#include <string.h>

#define MAX_KEYS 4 /* of one action */

static const struct {
    const char *name, *keys, *description;
    context where;
} table[ACTION_COUNT] = {
#define ACTION_ROW(name, context, keys, description) [name] = {#name, keys, description, context},
    ACTION_LIST(ACTION_ROW)
#undef ACTION_ROW
};

static key_code bound[ACTION_COUNT][MAX_KEYS]; /* 0-terminated unless full */
static bool ready;

/* The bindings are filled from the names at first use (by the one thread that owns the screen). */
static void prepare(void)
{
    if (ready) return;
    ready = true;
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
        char names[128];
        size_t len = strlen(table[a].keys);
        PF_ASSERT(len < sizeof names);
        memcpy(names, table[a].keys, len + 1);
        char *rest = names;
        int n = 0;
        for (char *name; (name = strtok_r(rest, " ", &rest));) {
            PF_ASSERT(n < MAX_KEYS);
            PF_ASSERT(key_parse(name, &bound[a][n]));
            n++;
        }
    }
}

action action_of(key_code key, context where)
{
    prepare();
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++)
        for (int i = 0; table[a].where == where && i < MAX_KEYS && bound[a][i]; i++)
            if (bound[a][i] == key) return (action)a;
    return ACTION_NONE;
}

context action_context(action a)
{
    return table[a].where;
}

const char *action_description(action a)
{
    return table[a].description;
}

void action_keys(action a, buf *out)
{
    prepare();
    for (int i = 0; i < MAX_KEYS && bound[a][i]; i++) {
        if (i) buf_puts(out, " or ");
        key_name(bound[a][i], out);
    }
}

void action_key(action a, buf *out)
{
    prepare();
    key_name(bound[a][0], out);
}

const char *context_title(context where)
{
    static const char *const titles[CONTEXT_COUNT] = {
        [CONTEXT_WINDOW] = "Anywhere",
        [CONTEXT_CHAT] = "In a conversation",
        [CONTEXT_LIST] = "In lists and forms",
        [CONTEXT_EDITOR] = "While writing",
    };
    return titles[where];
}
