#include "ui/form.h"

#include "ui/actions.h"
#include "ui/text.h"

#include <string.h>

#define FIELD_WIDTH 48 /* most columns */

void form_free(form *f)
{
    for (int i = 0; i < f->len; i++) {
        editor_free(&f->fields[i].text);
        secret_free(f->fields[i].value);
    }
    *f = (form){0};
}

void form_add(form *f, field_kind kind, const char *label)
{
    form_field *field = &f->fields[f->len++];
    *field = (form_field){.kind = kind, .label = label};
    editor_init(&field->text);
    if (kind == FIELD_SECRET || kind == FIELD_KEY) field->value = secret_new(SECRET_MAX);
}

form_field *form_add_choice(form *f, const char *label, const char *const *choices, int chosen)
{
    form_add(f, FIELD_CHOICE, label);
    form_field *field = &f->fields[f->len - 1];
    field->choices = choices;
    field->chosen = chosen;
    return field;
}

void form_clear_secrets(form *f)
{
    for (int i = 0; i < f->len; i++)
        if (f->fields[i].value) secret_truncate(f->fields[i].value, 0);
}

static bool move(form *f, int by)
{
    int to = f->focus + by;
    f->focus = to < 0 ? f->len - 1 : to >= f->len ? 0 : to;
    return true;
}

/* The part of a typed or pasted text up to its first line end or control character. */
static size_t first_line(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && (unsigned char)text[n] >= 0x20 && text[n] != 0x7F)
        n++;
    return n;
}

static bool field_text(form_field *field, const char *text, size_t len)
{
    len = first_line(text, len);
    if (field->kind == FIELD_TEXT)
        editor_insert(&field->text, text, len, true);
    else if (field->value)
        secret_append(field->value, text, len);
    else if (field->kind == FIELD_CHECK && len == 1 && text[0] == ' ')
        field->checked = !field->checked;
    return true;
}

static bool choose(form_field *field, action a)
{
    if (a == ACTION_LEFT && field->chosen > 0) field->chosen--;
    if (a == ACTION_RIGHT && field->choices[field->chosen + 1]) field->chosen++;
    return a == ACTION_LEFT || a == ACTION_RIGHT;
}

static bool field_key(form_field *field, key_code key)
{
    action a = action_of(key, CONTEXT_EDITOR);
    if (field->value) {
        if (a == ACTION_ERASE_LEFT)
            secret_truncate(field->value, text_without_last(field->value->data, field->value->len));
        if (a == ACTION_ERASE_TO_START) secret_truncate(field->value, 0);
        return a != ACTION_NONE;
    }
    if (a == ACTION_NEWLINE) return true;
    if (field->kind == FIELD_CHOICE) return choose(field, a);
    return field->kind == FIELD_TEXT && a != ACTION_NONE && editor_do(&field->text, a);
}

static void click(form *f, const input_event *ev)
{
    for (int i = 0; i < f->len; i++) {
        form_field *field = &f->fields[i];
        const area *a = &field->place;
        if (ev->y < a->y || ev->y >= a->y + a->h || ev->x < a->x || ev->x >= a->x + a->w) continue;
        if (field->kind == FIELD_CHECK) field->checked = !field->checked;
        f->focus = i;
    }
}

bool form_input(form *f, const input_event *ev)
{
    form_field *field = &f->fields[f->focus];
    if (ev->kind == INPUT_CLICK) {
        click(f, ev);
        return true;
    }
    if (ev->kind == INPUT_TEXT || ev->kind == INPUT_PASTE)
        return field_text(field, ev->text, ev->len);
    if (ev->kind != INPUT_KEY) return false;
    switch (action_of(ev->key, CONTEXT_LIST)) {
    case ACTION_NEXT:
        return move(f, 1);
    case ACTION_PREVIOUS:
        return move(f, -1);
    case ACTION_CHOOSE:
        if (f->focus + 1 < f->len) return move(f, 1);
        return false;
    case ACTION_BACK:
        return false;
    default:
        return field_key(field, ev->key);
    }
}

static void draw_secret(const form_field *field, area a, bool focused)
{
    area_clear(a, STYLE_FIELD);
    size_t n = text_count(field->value->data, field->value->len);
    int shown = a.w > 0 && n >= (size_t)a.w ? a.w - 1 : (int)n;
    for (int i = 0; i < shown; i++)
        area_put(a, i, 0, STYLE_FIELD, "•");
    if (focused) area_cursor(a, shown, 0);
}

/* The end of it, if it is longer than the field. */
static void draw_key(const form_field *field, area a, bool focused)
{
    const char *text = field->value->data;
    size_t len = field->value->len;
    area_clear(a, STYLE_FIELD);
    while (len && text_width(text, len) >= a.w) {
        size_t n = text_next(text, len).len;
        text += n;
        len -= n;
    }
    int used = area_text(a, 0, 0, STYLE_FIELD, text, len);
    if (focused) area_cursor(a, used, 0);
}

int form_draw(form *f, area a, bool focused, int note_field, const char *note, style note_style)
{
    int labels = 0, y = 0;
    for (int i = 0; i < f->len; i++) {
        int width = text_width_z(f->fields[i].label);
        if (f->fields[i].kind != FIELD_CHECK && width > labels) labels = width;
    }
    for (int i = 0; i < f->len; i++, y++) {
        form_field *field = &f->fields[i];
        bool here = focused && i == f->focus;
        if (field->kind == FIELD_CHECK) {
            area_put(a, 0, y, here ? STYLE_SELECTED : STYLE_TEXT, field->checked ? "[x]" : "[ ]");
            int rows = area_paragraph(area_sub(a, 4, 0, a.w - 4, a.h), y, STYLE_TEXT, field->label);
            field->place = area_sub(a, 0, y, a.w, rows);
            y += rows - 1;
            continue;
        }
        area_put(a, 0, y, here ? STYLE_TITLE : STYLE_TEXT, field->label);
        int note_width = note && note_field == i ? text_width_z(note) + 2 : 0;
        int width = a.w - labels - 2 - note_width;
        if (width > FIELD_WIDTH) width = FIELD_WIDTH;
        area box = area_sub(a, labels + 2, y, width, 1);
        field->place = area_sub(a, 0, y, a.w, 1);
        if (field->kind == FIELD_CHOICE)
            area_printf(box, 0, 0, here ? STYLE_SELECTED : STYLE_TEXT, "‹ %s ›",
                        field->choices[field->chosen]);
        else if (field->kind == FIELD_KEY)
            draw_key(field, box, here);
        else if (field->kind == FIELD_SECRET)
            draw_secret(field, box, here);
        else
            editor_draw_field(&field->text, box, STYLE_FIELD, here);
        if (note_width) area_put(a, labels + 2 + box.w + 2, y, note_style, note);
    }
    return y;
}
