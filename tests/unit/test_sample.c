/* Sampling against plain definitions; log-probabilities; stop strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sample.h"
#include "engine/stops.h"

#include <math.h>

#define VOCAB 97

static float logits[VOCAB];

static void setup_logits(uint64_t seed)
{
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)(8 * sample_draw(seed, (uint64_t)i) - 4);
}

static int32_t pick(const sampling_options *o, uint64_t seed, uint64_t index)
{
    sample_scratch s = {0};
    int32_t id = sample_token(&s, o, logits, VOCAB, NULL, 0, seed, index);
    sample_scratch_free(&s);
    return id;
}

/* --- choices ---------------------------------------------------------------------------------- */

static void greedy_takes_the_largest_and_the_lowest_id_among_equals(void **state)
{
    (void)state;
    setup_logits(1);
    logits[40] = logits[12] = 9;
    assert_int_equal(pick(&(sampling_options){0}, 0, 0), 12);
}

static void not_a_number_is_refused(void **state)
{
    (void)state;
    setup_logits(1);
    logits[3] = NAN;
    assert_int_equal(pick(&(sampling_options){0}, 0, 0), -1);
    assert_int_equal(pick(&(sampling_options){.temperature = 1}, 0, 0), -1);
    for (int i = 0; i < VOCAB; i++)
        logits[i] = -INFINITY;
    assert_int_equal(pick(&(sampling_options){0}, 0, 0), -1);
}

/* The distribution that the documentation describes, by the definition. */
static void define(const sampling_options *o, double p[VOCAB])
{
    int order[VOCAB];
    double total = 0, sum = 0, most = -INFINITY;
    for (int i = 0; i < VOCAB; i++) {
        order[i] = i;
        most = fmax(most, (double)logits[i]);
    }
    for (int i = 0; i < VOCAB; i++)
        for (int j = i + 1; j < VOCAB; j++)
            if (logits[order[j]] > logits[order[i]]) {
                int t = order[i];
                order[i] = order[j];
                order[j] = t;
            }
    int n = o->top_k > 0 && o->top_k < VOCAB ? o->top_k : VOCAB;
    memset(p, 0, VOCAB * sizeof *p);
    for (int i = 0; i < n; i++)
        total += p[order[i]] = exp(((double)logits[order[i]] - most) / (double)o->temperature);
    if (o->top_p > 0 && o->top_p < 1) {
        int keep = 0;
        while (keep < n && sum < (double)o->top_p * total)
            sum += p[order[keep++]];
        for (int i = keep; i < n; i++)
            p[order[i]] = 0;
    }
    for (int i = 0; i < VOCAB; i++)
        if (p[i] < (double)o->min_p) p[i] = 0;
    total = 0;
    for (int i = 0; i < VOCAB; i++)
        total += p[i];
    for (int i = 0; i < VOCAB; i++)
        p[i] /= total;
}

static void frequencies_follow_the_definition(void **state)
{
    (void)state;
    static const sampling_options settings[] = {
        {.temperature = 1},
        {.temperature = 0.5f, .top_k = 7},
        {.temperature = 1.5f, .top_p = 0.8f},
        {.temperature = 2, .min_p = 0.2f},
        {.temperature = 1, .top_k = 20, .top_p = 0.7f, .min_p = 0.05f},
    };
    enum { DRAWS = 20000 };
    setup_logits(5);
    for (size_t c = 0; c < sizeof settings / sizeof *settings; c++) {
        double p[VOCAB];
        int count[VOCAB] = {0};
        define(&settings[c], p);
        for (int i = 0; i < DRAWS; i++)
            count[pick(&settings[c], 7 + c, (uint64_t)i)]++;
        for (int i = 0; i < VOCAB; i++) {
            double got = (double)count[i] / DRAWS, width = 5 * sqrt(p[i] / DRAWS);
            if (p[i] <= 0) assert_int_equal(count[i], 0);
            if (fabs(got - p[i]) > width + 1e-4)
                fail_msg("setting %zu, id %d: %g instead of %g", c, i, got, p[i]);
        }
    }
}

static void extreme_temperatures_are_finite(void **state)
{
    (void)state;
    setup_logits(2);
    logits[33] = 5;
    assert_int_equal(pick(&(sampling_options){.temperature = 1e-30f}, 3, 0), 33);
    int32_t id = pick(&(sampling_options){.temperature = 100}, 3, 0);
    assert_in_range(id, 0, VOCAB - 1);
}

static void a_token_is_penalized_once_and_only_in_the_window(void **state)
{
    (void)state;
    sample_scratch s = {0};
    const int32_t tokens[] = {4, 9, 9, 9};
    for (int i = 0; i < VOCAB; i++)
        logits[i] = 0;
    logits[4] = 5;
    logits[9] = 6;
    logits[20] = 3.5f;
    sampling_options o = {.repeat_penalty = 1.5f, .repeat_last = 3};
    assert_int_equal(sample_token(&s, &o, logits, VOCAB, tokens, 4, 0, 0), 4); /* 6 / 1.5 = 4 */
    o.repeat_last = 0;                                                         /* the last 64 */
    assert_int_equal(sample_token(&s, &o, logits, VOCAB, tokens, 4, 0, 0), 9); /* 4 > 3.5, 3.33 */
    sample_scratch_free(&s);
}

static void draws_are_a_function_of_seed_and_index(void **state)
{
    (void)state;
    assert_true(sample_draw(7, 0) == sample_draw(7, 0));
    assert_true(sample_draw(7, 0) != sample_draw(7, 1));
    assert_true(sample_draw(7, 0) != sample_draw(8, 0));
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        double u = sample_draw(i / 100, i % 100);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 0.02);
}

static void settings_are_checked_by_name(void **state)
{
    (void)state;
    static const struct {
        sampling_options o;
        const char *field; /* NULL: fine */
    } cases[] = {
        {{.temperature = 0.7f, .top_k = 40, .top_p = 0.9f, .min_p = 0.1f}, NULL},
        {{.temperature = -1}, "temperature"},
        {{.temperature = NAN}, "temperature"},
        {{.temperature = INFINITY}, "temperature"},
        {{.top_k = -1}, "top_k"},
        {{.top_p = 1.1f}, "top_p"},
        {{.top_p = -0.1f}, "top_p"},
        {{.min_p = 2}, "min_p"},
        {{.repeat_penalty = 1e38f}, "repeat_penalty"},
        {{.repeat_last = -5}, "repeat_last"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pf_err err = {0};
        pf_status status = sampling_check(&cases[i].o, &err);
        assert_int_equal(status, cases[i].field ? PF_USAGE : PF_OK);
        if (cases[i].field) assert_non_null(strstr(err.text, cases[i].field));
    }
}

static void logprobs_are_a_finite_distribution(void **state)
{
    (void)state;
    float logprob;
    token_logprob top[ENGINE_MAX_TOP];
    setup_logits(9);
    logits[50] = logits[51] = 6;
    logits[2] = -1e30f;
    sample_logprobs(logits, VOCAB, 2, 5, &logprob, top);
    assert_true(isfinite(logprob) && logprob < -1e29f);
    assert_int_equal(top[0].id, 50);
    assert_int_equal(top[1].id, 51);
    for (int i = 1; i < 5; i++)
        assert_true(top[i].logprob <= top[i - 1].logprob);
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) {
        sample_logprobs(logits, VOCAB, i, 0, &logprob, NULL);
        assert_true(logprob <= 0);
        sum += exp((double)logprob);
    }
    assert_true(fabs(sum - 1) < 1e-5);
}

/* --- stop strings ----------------------------------------------------------------------------- */

/* Pushes text in pieces of n bytes; returns whether it stopped. */
static bool run_stops(const char *const *stops, const char *text, size_t n, buf *out)
{
    stop_matcher m = {0};
    bool stopped = false;
    for (; *stops; stops++)
        stop_matcher_add(&m, *stops, strlen(*stops));
    for (size_t i = 0, len = strlen(text); i < len && !stopped; i += n)
        stopped = stop_matcher_push(&m, text + i, len - i < n ? len - i : n, out);
    if (!stopped) stop_matcher_flush(&m, out);
    stop_matcher_free(&m);
    return stopped;
}

static void stops_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    static const struct {
        const char *stops[4], *text, *shown;
        bool stopped;
    } cases[] = {
        {{"END"}, "so far END more", "so far ", true},
        {{"END"}, "ENEND", "EN", true},
        {{"aab"}, "aaab", "a", true},
        {{"abc", "b"}, "xabc", "xa", true},   /* the first complete one */
        {{"bc", "abc"}, "xabc", "x", true},   /* complete at once: the longer one */
        {{"END"}, "the EN", "the EN", false}, /* held back, then released */
        {{"\n\n"}, "a\nb\n\nc", "a\nb", true},
        {{"\xc3\xa9!"}, "caf\xc3\xa9?\xc3\xa9!", "caf\xc3\xa9?", true},
        {{"\xf0\x9f\x8d\x8e"}, "\xf0\x9f\x8d\x8f\xf0\x9f\x8d\x8e", "\xf0\x9f\x8d\x8f", true},
        {{NULL}, "free", "free", false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t n = 1; n <= 16; n++) {
            buf out = {0};
            assert_int_equal(run_stops(cases[c].stops, cases[c].text, n, &out), cases[c].stopped);
            assert_string_equal(buf_str(&out), cases[c].shown);
            buf_free(&out);
        }
}

static void held_text_comes_out_when_it_cannot_match_any_more(void **state)
{
    (void)state;
    stop_matcher m = {0};
    buf out = {0};
    stop_matcher_add(&m, "STOP", 4);
    assert_false(stop_matcher_push(&m, "a ST", 4, &out));
    assert_string_equal(buf_str(&out), "a ");
    assert_false(stop_matcher_push(&m, "O", 1, &out));
    assert_string_equal(buf_str(&out), "a ");
    assert_false(stop_matcher_push(&m, "N", 1, &out));
    assert_string_equal(buf_str(&out), "a STON");
    buf_free(&out);
    stop_matcher_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_largest_and_the_lowest_id_among_equals),
        cmocka_unit_test(not_a_number_is_refused),
        cmocka_unit_test(frequencies_follow_the_definition),
        cmocka_unit_test(extreme_temperatures_are_finite),
        cmocka_unit_test(a_token_is_penalized_once_and_only_in_the_window),
        cmocka_unit_test(draws_are_a_function_of_seed_and_index),
        cmocka_unit_test(settings_are_checked_by_name),
        cmocka_unit_test(logprobs_are_a_finite_distribution),
        cmocka_unit_test(stops_do_not_depend_on_the_cut),
        cmocka_unit_test(held_text_comes_out_when_it_cannot_match_any_more),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
