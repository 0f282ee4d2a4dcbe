#include "ui/profile_words.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "profiles/secret.h"
#include "ui/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_LOSSES 100000

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static int64_t whole(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : 0;
}

/* The losses rounded as they serve, where they are known. */
static double served(const json_t *training, const char *rounded, const char *plain)
{
    double x = real(training, rounded);
    return isfinite(x) ? x : real(training, plain);
}

static void read_losses(const json_t *training, version_record *out)
{
    const json_t *list = json_object_get(training, "losses");
    size_t n = json_array_size(list);
    if (n == 0 || n > MOST_LOSSES) return;
    out->losses = xcalloc(n, sizeof *out->losses);
    out->n_losses = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);
        out->losses[i] = json_is_number(value) ? (float)json_number_value(value) : NAN;
    }
}

static void add_clean(buf *out, const char *text)
{
    text_clean_label(text, strlen(text), out);
}

/* Where the examples came from. */
static char *read_source(const json_t *provenance, int64_t examples)
{
    buf text = {0};
    const char *source = json_string_value(json_object_get(provenance, "source"));
    const json_t *files = json_object_get(provenance, "files");
    if (!source) return NULL;
    if (strcmp(source, "import") == 0) {
        buf_puts(&text, "imported");
    } else if (json_array_size(files)) {
        const char *name = json_string_value(json_array_get(files, 0));
        add_clean(&text, path_base(name ? name : "a file"));
        if (json_array_size(files) > 1)
            buf_printf(&text, " and %zu more", json_array_size(files) - 1);
    } else if (examples) {
        const char *what = strcmp(source, "rewrites") == 0 ? "rewritten answers"
                           : strcmp(source, "good") == 0   ? "good answers"
                                                           : "examples";
        buf_printf(&text, "%lld %s", (long long)examples, what);
    } else {
        add_clean(&text, source);
    }
    return buf_take(&text);
}

static json_t *parse(const char *text)
{
    json_t *root = NULL;
    if (text && *text && json_parse(text, strlen(text), "a record", &root, NULL) != PF_OK)
        return NULL;
    return root;
}

void version_record_read(const profile_version *v, version_record *out)
{
    json_t *training = parse(v->training), *provenance = parse(v->provenance);
    *out = (version_record){.loss = served(training, "loss_served", "loss"),
                            .loss_before = real(training, "loss_before"),
                            .held_out = served(training, "held_out_served", "held_out"),
                            .held_out_before = real(training, "held_out_before"),
                            .seconds = real(training, "seconds"),
                            .examples = whole(training, "examples"),
                            .tokens = whole(training, "tokens"),
                            .steps = whole(training, "steps")};
    out->source = read_source(provenance, out->examples);
    read_losses(training, out);
    json_decref(training);
    json_decref(provenance);
}

void version_record_free(version_record *r)
{
    wipe_text(r->source);
    free(r->losses);
    *r = (version_record){0};
}

void profile_date(const app *a, int64_t unix_ms, bool with_time, buf *out)
{
    char text[40];
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm local;
    if (a->scripted) {
        buf_puts(out, a->clock);
        return;
    }
    localtime_r(&seconds, &local);
    strftime(text, sizeof text, with_time ? "%-d %b %Y %H:%M" : "%-d %b", &local);
    buf_puts(out, text);
}

void profile_size(uint64_t bytes, buf *out)
{
    if (bytes < 1000000)
        buf_printf(out, "%.0f kB", ceil((double)bytes / 1e3));
    else
        buf_printf(out, "%.1f MB", (double)bytes / 1e6);
}

void version_line(const app *a, const profile_version *v, buf *out)
{
    version_record r;
    version_record_read(v, &r);
    buf_printf(out, "%s r%d", v->kind, v->max_rank);
    if (r.source) buf_printf(out, "  %s%s", strcmp(r.source, "imported") ? "from " : "", r.source);
    buf_puts(out, "  ");
    profile_date(a, v->created_ms, false, out);
    double loss = isfinite(r.held_out) ? r.held_out : r.loss;
    if (isfinite(loss)) buf_printf(out, "  loss %.2f", loss);
    version_record_free(&r);
}

void profile_line(const app *a, const profile_info *info, buf *out)
{
    if (info->damaged)
        buf_puts(out, "damaged: `preft doctor` says more");
    else if (info->has_adapter)
        version_line(a, &info->current, out);
    else
        buf_puts(out, "nothing learned yet");
}
