/* The status line: the truth of this moment; a figure that isn't known is a dash. */
#include "ui/text.h"
#include "ui/training.h"

#include <stdlib.h>
#include <string.h>

static int count_people(const app *a)
{
    int64_t ids[LAYOUT_MAX_PANES];
    int n = 0;
    for (int i = 0; i < LAYOUT_MAX_PANES; i++) {
        if (!a->panes[i] || !a->panes[i]->session) continue;
        int64_t id = session_user_id(a->panes[i]->session);
        int k = 0;
        while (k < n && ids[k] != id)
            k++;
        if (k == n) ids[n++] = id;
    }
    return n;
}

static void add_rate(buf *out, double rate, const char *unit)
{
    if (rate > 0)
        buf_printf(out, "%.0f%s", rate, unit);
    else
        buf_printf(out, "-%s", unit);
}

/* Of everybody's trainings only that there are some, and how far the focused pane's is. */
static void put_training(const app *a, buf *out)
{
    int n = 0;
    for (int i = 0; i < LAYOUT_MAX_PANES; i++)
        n += a->panes[i] && training_runs(a->panes[i]);
    const pane *p = a->panes[a->focus];
    if (n > 1)
        buf_printf(out, "%d trainings", n);
    else if (n == 1)
        buf_puts(out, "training");
    if (!training_runs(p)) return;
    const live_status *now = training_status(p);
    if (now->phase == LIVE_PAUSED)
        buf_puts(out, " paused");
    else if (!a->scripted)
        buf_printf(out, " %.0f%%", 100 * now->share_done);
}

/* The parts, most important first; those that don't fit are left out from the end. */
#define PARTS 8

static void make_parts(const app *a, buf parts[PARTS])
{
    engine_stats s = a->stats;
    if (a->scripted) { /* live figures differ from run to run */
        s.last_batch = s.running = 0;
        s.decode_rate = s.prefill_rate = 0;
    }
    int people = count_people(a), batch = s.running ? s.last_batch : 0;
    buf_printf(&parts[0], "%d %s", people, people == 1 ? "person" : "people");
    put_training(a, &parts[1]);
    if (batch)
        buf_printf(&parts[2], "batch %d", batch);
    else
        buf_puts(&parts[2], "batch -");
    add_rate(&parts[3], batch > 1 ? s.decode_rate / batch : s.decode_rate, " tok/s");
    if (batch > 1) buf_puts(&parts[3], " each");
    buf_puts(&parts[4], "prompt ");
    add_rate(&parts[4], s.prefill_rate, " tok/s");
    double used =
        s.kv_tokens_total ? 100.0 * (double)s.kv_tokens_used / (double)s.kv_tokens_total : 0;
    buf_printf(&parts[5], "KV %.0f%%", used);
    buf_printf(&parts[6], "profiles %d in memory", s.adapters_loaded);
    if (s.adapter_bytes_used >= 50000)
        buf_printf(&parts[6], " (%.1f MB)", (double)s.adapter_bytes_used / 1e6);
    const char *name = model_name(engine_model(a->options.engine));
    text_clean_label(name, strlen(name), &parts[7]);
    if (!a->scripted) buf_printf(&parts[7], " %s %s", s.device, s.isa);
}

/* A message that is wider than the screen covers rows above the last one. */
static void draw_message(const app *a, area whole)
{
    buf clean = {0};
    text_lines lines = {0};
    text_clean_label(a->message, strlen(a->message), &clean);
    text_wrap(&lines, buf_str(&clean), clean.len, whole.w - 2);
    int n = (int)lines.len, most = whole.h / 2;
    if (n > most) n = most;
    area rows = area_sub(whole, 0, whole.h - n, whole.w, n);
    area_clear(rows, STYLE_STATUS);
    if (whole.g->cursor_y >= whole.h - n) whole.g->cursor_shown = false;
    for (int y = 0; y < n; y++) {
        const text_line *line = &lines.lines[y];
        size_t len = y + 1 < n ? line->len : clean.len - line->start;
        buf cut = {0};
        text_ellipsis(buf_str(&clean) + line->start, len, whole.w - 2, &cut);
        area_text(rows, 1, y, STYLE_NOTICE, buf_str(&cut), cut.len);
        buf_free(&cut);
    }
    text_lines_free(&lines);
    buf_free(&clean);
}

void status_draw(app *a, area whole)
{
    if (a->message) {
        draw_message(a, whole);
        return;
    }
    area line = area_sub(whole, 0, whole.h - 1, whole.w, 1);
    area_clear(line, STYLE_STATUS);
    buf hint = {0}, parts[PARTS] = {0};
    action_key(ACTION_HELP, &hint);
    buf_puts(&hint, " help ");
    make_parts(a, parts);
    int room = line.w - text_width(buf_str(&hint), hint.len) - 2, x = 1;
    for (int i = 0; i < PARTS; i++) {
        if (parts[i].len == 0) continue;
        int width = text_width(buf_str(&parts[i]), parts[i].len) + (i ? 3 : 0);
        char *aside = strstr(buf_str(&parts[i]), " (");
        if (x + width > room && aside) { /* without what stands in brackets it may fit */
            parts[i].len = (size_t)(aside - parts[i].data);
            width = text_width(buf_str(&parts[i]), parts[i].len) + (i ? 3 : 0);
        }
        if (x + width > room) break;
        if (i) x += area_put(line, x, 0, STYLE_STATUS, " · ");
        x += area_text(line, x, 0, STYLE_STATUS, buf_str(&parts[i]), parts[i].len);
    }
    area_put_right(line, 0, STYLE_STATUS, buf_str(&hint));
    for (int i = 0; i < PARTS; i++)
        buf_free(&parts[i]);
    buf_free(&hint);
}
