/* The status line: the truth of this moment; a figure that isn't known is a dash. */
#include "ui/text.h"
#include "ui/window.h"

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

/* The parts, most important first; those that don't fit are left out from the end. */
#define PARTS 7

static void make_parts(const app *a, buf parts[PARTS])
{
    engine_stats s = a->stats;
    if (a->scripted) { /* figures of the moment differ from run to run */
        s.last_batch = s.running = 0;
        s.decode_rate = s.prefill_rate = 0;
    }
    int people = count_people(a), batch = s.running ? s.last_batch : 0;
    buf_printf(&parts[0], "%d %s", people, people == 1 ? "person" : "people");
    if (batch)
        buf_printf(&parts[1], "batch %d", batch);
    else
        buf_puts(&parts[1], "batch -");
    add_rate(&parts[2], batch > 1 ? s.decode_rate / batch : s.decode_rate, " tok/s");
    if (batch > 1) buf_puts(&parts[2], " each");
    buf_puts(&parts[3], "prompt ");
    add_rate(&parts[3], s.prefill_rate, " tok/s");
    double used =
        s.kv_tokens_total ? 100.0 * (double)s.kv_tokens_used / (double)s.kv_tokens_total : 0;
    buf_printf(&parts[4], "KV %.0f%%", used);
    buf_printf(&parts[5], "profiles %d in memory", s.adapters_loaded);
    const char *name = model_name(engine_model(a->options.engine));
    text_clean_label(name, strlen(name), &parts[6]);
    if (!a->scripted) buf_printf(&parts[6], " %s %s", s.device, s.isa);
}

void status_draw(app *a, area line)
{
    area_clear(line, STYLE_STATUS);
    if (a->message) {
        buf clean = {0};
        text_clean_label(a->message, strlen(a->message), &clean);
        area_text(line, 1, 0, STYLE_NOTICE, buf_str(&clean), clean.len);
        buf_free(&clean);
        return;
    }
    buf hint = {0}, parts[PARTS] = {0};
    action_key(ACTION_HELP, &hint);
    buf_puts(&hint, " help ");
    make_parts(a, parts);
    int room = line.w - text_width(buf_str(&hint), hint.len) - 2, x = 1;
    for (int i = 0; i < PARTS; i++) {
        int width = text_width(buf_str(&parts[i]), parts[i].len) + (i ? 3 : 0);
        if (x + width > room) break;
        if (i) x += area_put(line, x, 0, STYLE_STATUS, " · ");
        x += area_text(line, x, 0, STYLE_STATUS, buf_str(&parts[i]), parts[i].len);
    }
    area_put_right(line, 0, STYLE_STATUS, buf_str(&hint));
    for (int i = 0; i < PARTS; i++)
        buf_free(&parts[i]);
    buf_free(&hint);
}
