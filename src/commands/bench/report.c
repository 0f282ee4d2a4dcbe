/* The report of a bench: rows of JSON, printed as a table, CSV or JSON. */
#include "base/file.h"
#include "commands/bench/bench.h"
#include "commands/print.h"
#include "kernels/backend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void bench_report_init(bench_report *r, const char *kind, const bench_column *columns)
{
    *r = (bench_report){kind, columns, json_object(), json_array(), json_array(), json_array()};
}

void bench_report_free(bench_report *r)
{
    json_decref(r->machine);
    json_decref(r->rows);
    json_decref(r->goals);
    json_decref(r->notes);
    *r = (bench_report){0};
}

pf_status bench_report_peak(bench_report *r, const char *isa, int threads, kn_peak *out,
                            pf_err *err)
{
    kn_peak_options o = {.isa = isa, .threads = threads};
    if (!strstr(kn_isa_list(), isa)) { /* a device: its peaks aren't measured, shares stay empty */
        *out = (kn_peak){.read_bytes = NAN, .int_ops = NAN, .float_ops = NAN};
        json_object_set_new(r->machine, "isa", json_string(isa));
        return PF_OK;
    }
    if (bench_opt.quick) {
        o.seconds = 0.01;
        o.bytes = (size_t)8 << 20;
    }
    if (!kn_peak_measure(&o, out))
        return err_set(err, PF_NO_MEMORY,
                       "the machine's peak rates can't be measured: no memory or threads left");
    json_object_set_new(r->machine, "isa", json_string(isa));
    json_object_set_new(r->machine, "threads", json_integer(threads));
    bench_set(r->machine, "read_gb_s", out->read_bytes * 1e-9);
    bench_set(r->machine, "int_gop_s", out->int_ops * 1e-9);
    bench_set(r->machine, "float_gop_s", out->float_ops * 1e-9);
    return PF_OK;
}

json_t *bench_report_row(bench_report *r)
{
    json_t *row = json_object();
    json_array_append_new(r->rows, row);
    return row;
}

void bench_set(json_t *row, const char *key, double x)
{
    if (isfinite(x)) json_object_set_new(row, key, json_real(x));
}

void bench_set_samples(json_t *row, const char *key, const bench_samples *s)
{
    char name[64];
    if (s->n == 0) return;
    bench_set(row, key, bench_median(s));
    snprintf(name, sizeof name, "%s_min", key);
    bench_set(row, name, s->v[0]);
    snprintf(name, sizeof name, "%s_max", key);
    bench_set(row, name, s->v[s->n - 1]);
}

void bench_report_goal(bench_report *r, const char *text, double value, double goal)
{
    if (!isfinite(value) || bench_opt.quick) return;
    json_array_append_new(r->goals, json_pack("{s:s, s:f, s:f, s:b}", "goal", text, "value", value,
                                              "at_least", goal, "met", (int)(value >= goal)));
}

void bench_report_goal_within(bench_report *r, const char *text, double value, double error,
                              double goal)
{
    if (!isfinite(error)) return;
    double within = 2 * error;
    size_t before = json_array_size(r->goals);
    bench_report_goal(r, text, value, goal);
    json_t *judged = json_array_get(r->goals, before);
    if (!judged) return;
    json_object_set_new(judged, "within", json_real(within));
    if (fabs(value - goal) < within) json_object_set_new(judged, "met", json_null());
}

void bench_report_note(bench_report *r, const char *fmt, ...)
{
    buf text = {0};
    va_list args;
    va_start(args, fmt);
    buf_vprintf(&text, fmt, args);
    va_end(args);
    json_array_append_new(r->notes, json_stringn(buf_str(&text), text.len));
    buf_free(&text);
}

/* --- printing --------------------------------------------------------------------------------- */

/* The text of a cell; empty where there is no value. */
static void format_cell(const json_t *row, const char *key, int decimals, char *out, size_t size)
{
    const json_t *value = json_object_get(row, key);
    if (json_is_string(value))
        snprintf(out, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(out, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(out, size, "%.*f", decimals, json_real_value(value));
    else
        out[0] = '\0';
}

static int column_width(const bench_report *r, const bench_column *c)
{
    char text[64];
    size_t width = strlen(c->title);
    for (size_t i = 0; i < json_array_size(r->rows); i++) {
        format_cell(json_array_get(r->rows, i), c->key, c->decimals, text, sizeof text);
        if (strlen(text) > width) width = strlen(text);
    }
    return (int)width;
}

static void print_table(const bench_report *r)
{
    int widths[64];
    char text[64];
    size_t n = 0;
    for (const bench_column *c = r->columns; c->key && n < 64; c++, n++)
        widths[n] = c->title ? column_width(r, c) : 0;
    for (size_t c = 0; c < n; c++)
        if (r->columns[c].title) printf("%s%*s", c ? "  " : "", widths[c], r->columns[c].title);
    putchar('\n');
    for (size_t i = 0; i < json_array_size(r->rows); i++) {
        for (size_t c = 0; c < n; c++) {
            if (!r->columns[c].title) continue;
            format_cell(json_array_get(r->rows, i), r->columns[c].key, r->columns[c].decimals, text,
                        sizeof text);
            printf("%s%*s", c ? "  " : "", widths[c], text[0] ? text : "-");
        }
        putchar('\n');
    }
}

static double real_of(const json_t *object, const char *key)
{
    return json_real_value(json_object_get(object, key));
}

static void print_goal(const json_t *goal)
{
    const json_t *met = json_object_get(goal, "met"), *within = json_object_get(goal, "within");
    char text[32] = "";
    if (within) snprintf(text, sizeof text, " +- %.3f", json_real_value(within));
    printf("%s: %s is %.3f%s, goal %.3f\n",
           json_is_true(met)    ? "met"
           : json_is_false(met) ? "missed"
                                : "not decided",
           json_string_value(json_object_get(goal, "goal")), real_of(goal, "value"), text,
           real_of(goal, "at_least"));
}

static void print_text(const bench_report *r)
{
    const json_t *m = r->machine;
    if (json_object_size(m) == 1) /* a device */
        printf("%s\n", json_string_value(json_object_get(m, "isa")));
    else if (json_object_size(m) > 0)
        printf("%s, %lld threads: reads %.1f GB/s, %.1f integer Gop/s, %.1f float Gop/s\n",
               json_string_value(json_object_get(m, "isa")),
               (long long)json_integer_value(json_object_get(m, "threads")),
               real_of(m, "read_gb_s"), real_of(m, "int_gop_s"), real_of(m, "float_gop_s"));
    print_table(r);
    for (size_t i = 0; i < json_array_size(r->notes); i++)
        printf("%s\n", json_string_value(json_array_get(r->notes, i)));
    for (size_t i = 0; i < json_array_size(r->goals); i++)
        print_goal(json_array_get(r->goals, i));
}

/* Keys and values hold no commas or quotes. */
static void append_csv(const bench_report *r, buf *out)
{
    char text[64];
    for (const bench_column *c = r->columns; c->key; c++)
        buf_printf(out, "%s%s", c == r->columns ? "" : ",", c->key);
    buf_putc(out, '\n');
    for (size_t i = 0; i < json_array_size(r->rows); i++) {
        for (const bench_column *c = r->columns; c->key; c++) {
            format_cell(json_array_get(r->rows, i), c->key, 6, text, sizeof text);
            buf_printf(out, "%s%s", c == r->columns ? "" : ",", text);
        }
        buf_putc(out, '\n');
    }
}

pf_status bench_report_write(const command_context *ctx, const bench_report *r, pf_err *err)
{
    buf csv = {0};
    pf_status status = PF_OK;
    if (ctx->global->json)
        print_json(json_pack("{s:s, s:O, s:O, s:O, s:O}", "bench", r->kind, "machine", r->machine,
                             "rows", r->rows, "notes", r->notes, "goals", r->goals));
    else
        print_text(r);
    if (bench_opt.csv) {
        append_csv(r, &csv);
        status = file_write_atomic(bench_opt.csv, buf_str(&csv), csv.len, 0644, err);
    }
    buf_free(&csv);
    return status;
}
