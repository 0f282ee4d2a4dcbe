#include "ui/keymap.h"

#include "ui/actions.h"

#include <string.h>

#define SECTION "keys"

static pf_status unknown(const char *name, pf_err *err)
{
    const char *names[ACTION_COUNT] = {0};
    for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++)
        names[a - 1] = action_name((action)a);
    const char *near = nearest_name(name, names);
    return near ? err_set(err, PF_USAGE, "there is no such action: did you mean %s?", near)
                : err_set(err, PF_USAGE,
                          "there is no such action; F1 in the chat and "
                          "preft.conf(5) list them");
}

void keymap_apply(const config *file, buf *problems)
{
    action_bind_defaults();
    for (size_t i = 0; file && i < file->count; i++) {
        const config_entry *e = &file->entries[i];
        if (strcmp(e->section, SECTION) != 0) continue;
        pf_err err = {0};
        action a = action_find(e->name);
        pf_status status = a ? action_bind(a, e->value, &err) : unknown(e->name, &err);
        if (status != PF_OK) config_problem(file, e, err.text, problems);
    }
}

void keymap_write(buf *out)
{
    buf_puts(out, "[" SECTION "]\n"
                  "# Up to four keys for each action, separated by blanks; none: no key.\n"
                  "# Keys are written like F2, Ctrl-P, Alt-Enter, Shift-Up, Ctrl-Alt-X.\n");
    for (int c = 0; c < CONTEXT_COUNT; c++) {
        bool any = false;
        for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
            if (action_context((action)a) != (context)c) continue;
            const char *keys = action_default_keys((action)a);
            if (!any) buf_printf(out, "\n# --- %s ---\n", context_title((context)c));
            any = true;
            buf_printf(out, "\n# %s\n#%s = %s\n", action_description((action)a),
                       action_name((action)a), *keys ? keys : "none");
        }
    }
}
