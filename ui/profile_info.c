/* What a profile has learned: the record of its versions, and which one is used. */
#include "base/mem.h"
#include "profiles/profile_settings.h"
#include "profiles/secret.h"
#include "ui/hints.h"
#include "ui/list.h"
#include "ui/picker.h"
#include "ui/plot.h"
#include "ui/profile_words.h"
#include "ui/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_WIDTH 14
#define MOST_LIST   6 /* rows of versions */

typedef struct {
    view base;
    int64_t profile;
    profile_info info;
    profile_version_list versions;
    list list; /* of versions, the newest first; id: number, 0 the plain model */
    pf_err err;
} info_screen;

static info_screen *screen_of(view *v)
{
    return (info_screen *)v;
}

/* --- reading ---------------------------------------------------------------------------------- */

static int64_t in_use(const info_screen *s)
{
    return s->info.has_adapter ? s->info.current.number : 0;
}

static const profile_version *version_of(const info_screen *s, int64_t number)
{
    for (size_t i = 0; i < s->versions.n; i++)
        if (s->versions.items[i].number == number) return &s->versions.items[i];
    return NULL;
}

static void add_version(info_screen *s, const profile_version *v)
{
    char name[32];
    buf detail = {0};
    snprintf(name, sizeof name, "version %lld", (long long)v->number);
    version_line(s->base.pane->app, v, &detail);
    if (v->number == in_use(s)) buf_puts(&detail, "  in use");
    list_add(&s->list, v->number, name, buf_str(&detail));
    wipe_buf(&detail);
}

static void unload(info_screen *s)
{
    profile_info_free(&s->info);
    profile_version_list_free(&s->versions);
    list_free(&s->list);
    s->info = (profile_info){0};
}

static void load(info_screen *s)
{
    session *person = s->base.pane->session;
    unload(s);
    if (profile_get(person, s->profile, &s->info, &s->err) != PF_OK) return;
    profile_versions_load(person, s->profile, &s->versions, &s->err); /* intact ones at least */
    for (size_t i = s->versions.n; i-- > 0;)
        add_version(s, &s->versions.items[i]);
    list_add(&s->list, 0, "the plain model", in_use(s) ? "" : "in use");
    list_select(&s->list, in_use(s));
}

static int64_t chosen(const info_screen *s)
{
    const list_item *item = list_chosen(&s->list);
    return item ? item->id : 0;
}

/* --- keys ------------------------------------------------------------------------------------- */

static void use_version(info_screen *s)
{
    int64_t number = chosen(s);
    pane *p = s->base.pane;
    if (profile_use_version(p->session, s->profile, number, &s->err) != PF_OK) return;
    profile_changed_everywhere(p, s->profile);
    load(s);
}

static void remove_version(info_screen *s)
{
    int64_t number = chosen(s);
    if (number &&
        profile_remove_version(s->base.pane->session, s->profile, number, &s->err) == PF_OK)
        load(s);
}

/* With the version in use; that one with the plain model. */
static void compare(info_screen *s)
{
    int64_t number = chosen(s), other = in_use(s);
    if (number == other) other = 0;
    if (number == 0) {
        number = other;
        other = 0;
    }
    if (number)
        pane_push(s->base.pane, compare_view(s->base.pane, s->profile, number, other));
    else
        app_say(s->base.pane->app, "There is no version to compare with.");
}

static bool info_act(view *v, action a, const char *argument)
{
    (void)argument;
    info_screen *s = screen_of(v);
    s->err = (pf_err){0};
    switch (a) {
    case ACTION_PROFILE_DELETE:
        remove_version(s);
        break;
    case ACTION_PROFILE_COMPARE:
        compare(s);
        break;
    default:
        return false;
    }
    return true;
}

static void info_input(view *v, const input_event *ev)
{
    info_screen *s = screen_of(v);
    input_event as_key;
    ev = list_event(&s->list, ev, &as_key);
    /* Letters don't narrow so short a list. */
    if (ev->kind == INPUT_TEXT || ev->kind == INPUT_PASTE) return;
    if (list_input(&s->list, ev) || ev->kind != INPUT_KEY) return;
    if (info_act(v, action_of(ev->key, CONTEXT_PROFILES), "")) return;
    switch (action_of(ev->key, CONTEXT_LIST)) {
    case ACTION_CHOOSE:
        s->err = (pf_err){0};
        use_version(s);
        break;
    case ACTION_BACK:
        pane_pop(v->pane);
        break;
    default:
        if (action_of(ev->key, CONTEXT_EDITOR) == ACTION_LEFT) pane_pop(v->pane);
    }
}

/* --- drawing ---------------------------------------------------------------------------------- */

static int put_row(area a, int y, const char *label, buf *text)
{
    if (text->len && y < a.h) {
        area_put(a, 0, y, STYLE_DIM, label);
        y += area_paragraph(area_sub(a, LABEL_WIDTH, y, a.w - LABEL_WIDTH, a.h - y), 0, STYLE_TEXT,
                            buf_str(text));
    }
    wipe_buf(text);
    return y;
}

static void put_losses(const version_record *r, buf *out)
{
    if (isfinite(r->loss) && isfinite(r->loss_before))
        buf_printf(out, "%.2f, %.2f before", r->loss, r->loss_before);
    if (isfinite(r->held_out))
        buf_printf(out, "%son what was kept aside %.2f", out->len ? " · " : "", r->held_out);
    if (isfinite(r->held_out) && isfinite(r->held_out_before))
        buf_printf(out, ", %.2f before", r->held_out_before);
}

static void put_learning(const app *a, const version_record *r, buf *out)
{
    if (r->source) buf_puts(out, r->source);
    if (r->tokens) buf_printf(out, " · %lld tokens read", (long long)r->tokens);
    if (r->steps) buf_printf(out, " · %lld steps", (long long)r->steps);
    if (isfinite(r->seconds) && !a->scripted) buf_printf(out, " in %.0f s", ceil(r->seconds));
}

static int draw_version(const info_screen *s, const profile_version *v, area a)
{
    version_record r;
    buf text = {0};
    int y = 0;
    version_record_read(v, &r);
    buf_printf(&text, "%s, rank %d, ", v->kind, v->max_rank);
    profile_size(v->bytes, &text);
    y = put_row(a, y, "Adapter", &text);
    text_clean_label(v->base_name, strlen(v->base_name), &text);
    y = put_row(a, y, "Made for", &text);
    profile_date(s->base.pane->app, v->created_ms, true, &text);
    y = put_row(a, y, "Since", &text);
    put_learning(s->base.pane->app, &r, &text);
    y = put_row(a, y, "Learned from", &text);
    put_losses(&r, &text);
    y = put_row(a, y, "Loss", &text);
    int rows = a.h - y < 4 ? a.h - y : 4;
    if (r.n_losses && rows > 0) {
        plot_with_scale(area_sub(a, 0, y, a.w, rows), r.losses, r.n_losses);
        y += rows;
    }
    version_record_free(&r);
    return y;
}

static int draw_settings(const info_screen *s, area a, int y)
{
    profile_settings settings = profile_settings_none();
    buf text = {0};
    if (profile_settings_parse(s->info.settings, &settings, NULL) == PF_OK && settings.system)
        text_clean_label(settings.system, strlen(settings.system), &text);
    y = put_row(a, y, "System text", &text);
    profile_settings_free(&settings);
    return y;
}

static void info_draw(view *v, area a, bool focused)
{
    (void)focused;
    info_screen *s = screen_of(v);
    static const hint hints[] = {HINT(ACTION_CHOOSE, "use"),
                                 HINT(ACTION_PROFILE_COMPARE, "compare"),
                                 HINT(ACTION_PROFILE_DELETE, "remove"), HINT(ACTION_BACK, "back")};
    int rows = (int)s->list.len < MOST_LIST ? (int)s->list.len : MOST_LIST;
    int hint_rows = a.h > 5 ? 1 : 0;
    int list_height = rows < a.h - hint_rows ? rows : a.h - hint_rows;
    list_draw(&s->list, area_sub(a, 0, 0, a.w, list_height));
    int y = list_height + 1;
    if (s->err.text[0]) y += area_paragraph(a, y, STYLE_ERROR, s->err.text) + 1;
    const profile_version *version = version_of(s, chosen(s));
    area below = area_sub(a, 0, y, a.w, a.h - y - 2 * hint_rows);
    int used = version ? draw_version(s, version, below) : 0;
    draw_settings(s, below, used);
    HINTS_DRAW(a, hint_rows, hints);
}

static void info_title(view *v, buf *out)
{
    const info_screen *s = screen_of(v);
    if (s->info.name) text_clean_label(s->info.name, strlen(s->info.name), out);
}

static void info_free(view *v)
{
    unload(screen_of(v));
    free(v);
}

static const view_ops info_ops = {.name = "profile information",
                                  .draw = info_draw,
                                  .input = info_input,
                                  .title = info_title,
                                  .free = info_free,
                                  .contexts =
                                      CONTEXT_BIT(CONTEXT_PROFILES) | CONTEXT_BIT(CONTEXT_LIST),
                                  .act = info_act};

view *profile_info_view(pane *p, int64_t profile)
{
    info_screen *s = xcalloc(1, sizeof *s);
    s->base = (view){.ops = &info_ops, .pane = p};
    s->profile = profile;
    load(s);
    return &s->base;
}
