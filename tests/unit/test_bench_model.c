/* What the bench computes without measuring: medians and verdicts, the cost of a step, predictions
 * on paper, plots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "commands/bench/bench.h"
#include "commands/bench/cost.h"
#include "commands/bench/paper.h"
#include "commands/bench/plot.h"

#include <math.h>

static bool near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

/* --- samples ---------------------------------------------------------------------------------- */

/* The standard error of the median of n equally spread values in 0..1 is 1 / (2 sqrt(n)). */
static void a_median_has_the_error_that_theory_gives_it(void **state)
{
    (void)state;
    static const int sizes[] = {25, 100, 1000};
    for (int k = 0; k < 3; k++) {
        bench_samples s = {.n = 0};
        for (int i = 0; i < sizes[k]; i++) /* in no order: 7 has no factor in common with n */
            bench_samples_add(&s, (i * 7 % sizes[k] + 0.5) / sizes[k]);
        bench_samples_add(&s, (double)NAN);
        assert_int_equal(s.n, sizes[k]);
        assert_true(near(bench_median(&s), 0.5, 1e-9));
        assert_true(near(bench_median_error(&s), 0.5 / sqrt(sizes[k]), 0.1));
    }
    bench_samples few = {.n = 0};
    for (int i = 6; i > 0; i--)
        bench_samples_add(&few, i);
    assert_true(few.v[0] == 1 && few.v[5] == 6);
    assert_true(isnan(bench_median_error(&few)));
    bench_samples_add(&few, 3.5);
    assert_true(near(bench_median(&few), 3.5, 1e-9) && bench_median_error(&few) > 0);
}

static void a_goal_within_the_error_is_not_decided(void **state)
{
    (void)state;
    static const struct {
        double value, error;
        json_type met;
    } cases[] = {{0.990, 0.004, JSON_TRUE},  {0.987, 0.004, JSON_NULL}, {0.975, 0.004, JSON_NULL},
                 {0.970, 0.004, JSON_FALSE}, {0.980, 0.000, JSON_TRUE}, {0.970, 0.020, JSON_NULL}};
    bench_report r;
    bench_report_init(&r, "test", NULL);
    bench_report_goal_within(&r, "unknown", 0.99, (double)NAN, 0.98);
    assert_int_equal(json_array_size(r.goals), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench_report_goal_within(&r, "rate", cases[i].value, cases[i].error, 0.98);
        const json_t *goal = json_array_get(r.goals, i);
        assert_int_equal(json_typeof(json_object_get(goal, "met")), cases[i].met);
        assert_true(json_real_value(json_object_get(goal, "within")) == 2 * cases[i].error);
    }
    bench_report_free(&r);
}

/* --- cost ------------------------------------------------------------------------------------- */

static const cost_machine peak = {.read_bytes = 20e9, .ops = 500e9, .adapter_ops = 200e9};

static void each_part_takes_the_longer_of_bytes_and_operations(void **state)
{
    (void)state;
    engine_work w = {.steps = 2, .weight_bytes = 40000000, .mac = 1000000, .kv_bytes = 2000000};
    cost_parts p = cost_of(&peak, &w);
    assert_true(near(p.weights, 1e-3, 1e-9) && near(p.kv, 50e-6, 1e-9) && p.adapters == 0);
    w.mac = 5000000000;
    w.adapter_bytes = 4000000;
    w.adapter_mac = 1000;
    p = cost_of(&peak, &w);
    assert_true(near(p.weights, 10e-3, 1e-9) && near(p.adapters, 100e-6, 1e-9));
    assert_true(near(cost_seconds(&p), 10.15e-3, 1e-9));
}

static void the_reason_is_what_explains_more_of_the_time(void **state)
{
    (void)state;
    double share;
    engine_work w = {.steps = 1, .weight_bytes = 20000000, .mac = 50000000};
    assert_string_equal(cost_reason(&peak, &w, 4e-3, &share), "bytes");
    assert_true(near(share, 0.25, 1e-9));
    w.mac = 1000000000;
    assert_string_equal(cost_reason(&peak, &w, 8e-3, &share), "operations");
    assert_true(near(share, 0.5, 1e-9));
}

/* Samples of a machine that reaches 0.6 and 0.3 of its peaks are recognised. */
static void the_fit_finds_the_shares_of_the_peaks(void **state)
{
    (void)state;
    enum { N = 6 };
    cost_machine truth = {12e9, 150e9, 60e9, 0};
    cost_sample samples[N];
    for (int i = 0; i < N; i++) {
        uint64_t rows = (uint64_t)1 << 2 * i;
        samples[i].work = (engine_work){.steps = 1,
                                        .weight_bytes = 96000000,
                                        .mac = 134000000 * rows,
                                        .kv_bytes = 40000 * rows};
        cost_parts p = cost_of(&truth, &samples[i].work);
        samples[i].seconds = cost_seconds(&p);
    }
    cost_machine m = cost_fit(&peak, samples, N);
    assert_true(near(m.read_bytes, truth.read_bytes, 1e-6) && near(m.ops, truth.ops, 1e-6));
    assert_true(near(m.adapter_ops, truth.adapter_ops, 1e-6) && m.overhead == 0);
}

/* --- paper ------------------------------------------------------------------------------------ */

static void shapes_have_the_sizes_that_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double parameters; /* without the input embedding */
    } known[] = {{"llama-3.1-70b", 69.5e9},
                 {"llama-3.1-8b", 7.5e9},
                 {"qwen-2.5-0.5b", 0.494e9},
                 {"smollm2-135m", 0.1345e9}};
    const paper_machine *m = paper_find_machine("h100");
    assert_non_null(m);
    assert_null(paper_find_machine("abacus"));
    assert_null(paper_find_shape("gpt"));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        engine_work w =
            paper_work(paper_find_shape(known[i].name), m, BENCH_BASE, 0, 0, 1, 0, 1, true);
        assert_true(near((double)w.weight_bytes, 2 * known[i].parameters, 0.01));
        assert_true(near((double)w.mac, known[i].parameters, 0.01));
        assert_int_equal(w.adapter_bytes, 0);
    }
    /* 10,176 numbers per layer and rank for LoRA, and DiReFT's without its biases. */
    const paper_shape *small = paper_find_shape("smollm2-135m");
    engine_work lora = paper_work(small, m, BENCH_LORA, 3, 8, 3, 100, 3, true);
    assert_int_equal(lora.adapter_bytes, 2 * 3 * 8 * 30 * 10176);
    assert_int_equal(lora.adapter_mac, 3 * 8 * 30 * 10176);
    assert_int_equal(lora.kv_bytes, 3 * 100 * 4 * 3 * 64 * 30);
    engine_work direft = paper_work(small, m, BENCH_DIREFT, 3, 8, 3, 100, 3, true);
    assert_int_equal(direft.adapter_bytes, 2 * 3 * 8 * 30 * 1152);
}

static void only_kinds_that_act_on_the_step_read_adapters(void **state)
{
    (void)state;
    const paper_shape *s = paper_find_shape("llama-3.1-8b");
    const paper_machine *m = paper_find_machine("h100");
    for (int kind = 0; kind < BENCH_KINDS; kind++) {
        engine_work decode = paper_work(s, m, (bench_kind)kind, 4, 16, 4, 100, 4, true);
        engine_work prefill = paper_work(s, m, (bench_kind)kind, 4, 16, 400, 50, 4, false);
        bool full = kind == BENCH_LORA || kind == BENCH_DIREFT;
        assert_true((decode.adapter_bytes > 0) == full);
        assert_true((prefill.adapter_bytes > 0) == (kind != BENCH_BASE));
    }
}

static void predicted_ratios_grow_with_rank_and_batch(void **state)
{
    (void)state;
    const paper_machine *m = paper_find_machine("4xh100");
    const paper_shape *s = paper_find_shape("llama-3.1-70b");
    double last = 1;
    for (int rank = 8; rank <= 64; rank *= 2) {
        paper_setting set = {256, 512, rank, 256, 256};
        double ratio = paper_rate(s, m, BENCH_LORAP, &set) / paper_rate(s, m, BENCH_LORA, &set);
        assert_true(ratio > last);
        last = ratio;
        double base = paper_decode(s, m, BENCH_BASE, &set);
        assert_true(paper_decode(s, m, BENCH_LORAP, &set) == base);
        assert_true(paper_decode(s, m, BENCH_DIREFTP, &set) == base);
        assert_true(paper_rate(s, m, BENCH_BASE, &set) >= paper_rate(s, m, BENCH_DIREFTP, &set));
    }
    /* One adapter, however many users, costs next to nothing. */
    paper_setting one = {256, 1, 16, 256, 256};
    assert_true(paper_rate(s, m, BENCH_LORA, &one) > 0.9 * paper_rate(s, m, BENCH_BASE, &one));
}

/* --- plots ------------------------------------------------------------------------------------ */

static bench_plot example(void)
{
    return (bench_plot){.title = "Rate <of> this & that",
                        .x_title = "profiles",
                        .y_title = "tokens/s",
                        .x = {1, 8, 512},
                        .n_points = 3,
                        .curves = {{"base", {100, 200, 400}}, {"lora", {50, (double)NAN, 400}}},
                        .n_curves = 2};
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

static void a_text_plot_has_every_point_in_its_place(void **state)
{
    (void)state;
    buf out = {0};
    bench_plot p = example();
    plot_text(&p, &out);
    const char *text = buf_str(&out);
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");
        assert_true(len <= 78);
        line += len + (line[len] == '\n');
    }
    assert_non_null(
        strstr(text, "     400 |                                                            *\n"));
    assert_non_null(strstr(text, "     100 |a\n"));
    assert_non_null(strstr(text, "a base b lora"));
    assert_null(strstr(text, " \n"));
    buf_free(&out);
}

static void an_svg_plot_is_well_formed(void **state)
{
    (void)state;
    buf out = {0};
    bench_plot p = example();
    plot_svg(&p, &out);
    const char *text = buf_str(&out);
    assert_int_equal(strncmp(text, "<svg ", 5), 0);
    assert_int_equal(count(text, "<circle "), 5); /* none where there is no number */
    assert_int_equal(count(text, "<g "), count(text, "</g>"));
    assert_int_equal(count(text, "<text "), count(text, "</text>"));
    assert_non_null(strstr(text, "Rate &lt;of&gt; this &amp; that"));
    assert_null(strstr(text, "nan"));
    assert_string_equal(text + out.len - 7, "</svg>\n");
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_median_has_the_error_that_theory_gives_it),
        cmocka_unit_test(a_goal_within_the_error_is_not_decided),
        cmocka_unit_test(each_part_takes_the_longer_of_bytes_and_operations),
        cmocka_unit_test(the_reason_is_what_explains_more_of_the_time),
        cmocka_unit_test(the_fit_finds_the_shares_of_the_peaks),
        cmocka_unit_test(shapes_have_the_sizes_that_are_known),
        cmocka_unit_test(only_kinds_that_act_on_the_step_read_adapters),
        cmocka_unit_test(predicted_ratios_grow_with_rank_and_batch),
        cmocka_unit_test(a_text_plot_has_every_point_in_its_place),
        cmocka_unit_test(an_svg_plot_is_well_formed),
    };
    return cmocka_run_group_tests_name("bench_model", tests, NULL, NULL);
}
