/* form: a few labelled fields, one below the other. Secret fields live in guarded memory and show
 * one bullet a character. */
#ifndef PF_UI_FORM_H
#define PF_UI_FORM_H

#include "profiles/secret.h"
#include "ui/editor.h"
#include "ui/grid.h"
#include "ui/keys.h"

#include <stdbool.h>

/* KEY: a secret that is shown while it is typed (a recovery key, copied from paper). */
typedef enum { FIELD_TEXT, FIELD_SECRET, FIELD_KEY, FIELD_CHECK, FIELD_CHOICE } field_kind;

typedef struct {
    field_kind kind;
    const char *label;          /* static text */
    editor text;                /* TEXT */
    secret *value;              /* SECRET, KEY; owned */
    bool checked;               /* CHECK */
    const char *const *choices; /* CHOICE: static texts, NULL-terminated */
    int chosen;                 /* CHOICE */
    area place;                 /* of the last drawing, for clicks */
} form_field;

#define FORM_FIELDS 5

typedef struct {
    form_field fields[FORM_FIELDS];
    int len, focus;
} form;

void form_free(form *f); /* wipes */
void form_add(form *f, field_kind kind, const char *label);
/* One of several, changed with the keys for left and right; its field is returned. */
form_field *form_add_choice(form *f, const char *label, const char *const *choices, int chosen);
/* Takes text, pastes, clicks and the keys of fields and between fields; false for Enter in the last
 * field, Esc and everything else. */
bool form_input(form *f, const input_event *ev);
void form_clear_secrets(form *f);
/* Rows from the top of a; note (may be NULL) is shown beside field note_field. Returns the rows
 * used. */
int form_draw(form *f, area a, bool focused, int note_field, const char *note, style note_style);

#endif
