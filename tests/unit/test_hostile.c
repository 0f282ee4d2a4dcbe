/* Malformed files: each entry of hostile/index.jsonl through the loader that meets such a file.
 * "refuse": a status and a message that names the file; "accept": it loads; "survive": either.
 * Bounds on time and memory hold for the whole set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "models/model.h"
#include "models/safetensors.h"
#include "profiles/adapter_file.h"
#include "support/cpu_time.h"

#include <stdio.h>
#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#define DATA "tests/data"

static model *base; /* of the adapters */

static pf_status load_model(const char *path, pf_err *err)
{
    model *m = NULL;
    pf_status status = model_open(path, NULL, &m, err);
    if (status == PF_OK) (void)model_digest(m);
    model_close(m);
    return status;
}

static pf_status load_safetensors(const char *path, pf_err *err)
{
    file_map map = {0};
    safetensors st = {0};
    pf_status status = file_map_open(path, &map, err);
    if (status == PF_OK) status = safetensors_parse(map.data, map.size, path, &st, err);
    safetensors_free(&st);
    file_map_close(&map);
    return status;
}

static pf_status load_adapter(const char *path, pf_err *err)
{
    buf blob = {0};
    adapter_view view = {0};
    pf_status status = adapter_file_import(path, base, NULL, &blob, NULL, err);
    if (status == PF_OK) {
        pf_err again;
        if (adapter_view_open(blob.data, blob.len, model_get_config(base), &view, &again) != PF_OK)
            fail_msg("%s: imported, but its blob is refused: %s", path, again.text);
        adapter_view_close(&view);
    } else if (blob.len != 0) {
        fail_msg("%s: refused, but left a partial blob", path);
    }
    buf_free(&blob);
    return status;
}

static const struct {
    const char *folder;
    pf_status (*load)(const char *path, pf_err *err);
} groups[] = {
    {"gguf", load_model},
    {"hf", load_model},
    {"safetensors", load_safetensors},
    {"adapters", load_adapter},
};
enum { N_GROUPS = sizeof groups / sizeof groups[0] };

static long resident_peak_kib(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

static void check_entry(const json_t *entry, size_t *counts)
{
    const char *file = json_string_value(json_object_get(entry, "file"));
    const char *expect = json_string_value(json_object_get(entry, "expect"));
    assert_non_null(file);
    assert_non_null(expect);
    size_t group = 0;
    while (group < N_GROUPS && strncmp(file, groups[group].folder, strcspn(file, "/")) != 0)
        group++;
    if (group == N_GROUPS) fail_msg("no loader for %s", file);
    char *path = xasprintf(DATA "/hostile/%s", file);
    pf_err err = {0};
    int64_t start = cpu_time_ns();
    pf_status status = groups[group].load(path, &err);
    double seconds = (double)(cpu_time_ns() - start) / 1e9;
    if (strcmp(expect, "accept") == 0 && status != PF_OK)
        fail_msg("%s must load, but: %s", file, err.text);
    if (strcmp(expect, "refuse") == 0 && status != PF_REFUSED)
        fail_msg("%s must be refused; status %d: %s", file, (int)status, err.text);
    if (status != PF_OK) {
        assert_int_equal(err.status, status);
        assert_true(utf8_valid(err.text, strlen(err.text)));
        if (!strstr(err.text, path_base(path)))
            fail_msg("the message does not name %s: %s", file, err.text);
    }
    if (seconds > 5) fail_msg("%s took %.1f s", file, seconds);
    counts[group]++;
    free(path);
}

static void test_index(void **state)
{
    (void)state;
    buf text = {0};
    pf_err err;
    size_t counts[N_GROUPS] = {0}, line_number = 0;
    static const char index[] = DATA "/hostile/index.jsonl";
    assert_int_equal(file_read(index, 16 << 20, &text, &err), PF_OK);
    long before = resident_peak_kib();
    for (const char *line = buf_str(&text); *line;) {
        size_t len = strcspn(line, "\n");
        json_t *entry = NULL;
        line_number++;
        if (json_parse(line, len, index, &entry, &err) != PF_OK)
            fail_msg("line %zu: %s", line_number, err.text);
        check_entry(entry, counts);
        json_decref(entry);
        line += len + (line[len] != '\0');
    }
    long growth = resident_peak_kib() - before;
#ifndef SANITIZED
    assert_true(growth < 64 * 1024);
#endif
    for (size_t g = 0; g < N_GROUPS; g++) {
        print_message("hostile %s: %zu files as expected\n", groups[g].folder, counts[g]);
        assert_true(counts[g] > 0);
    }
    print_message("hostile: memory grew by %ld KiB\n", growth);
    buf_free(&text);
}

static int set_up(void **state)
{
    (void)state;
    pf_err err = {0};
#ifndef SANITIZED
    /* A size taken from a file and believed would fail here, and be seen. */
    const struct rlimit limit = {1u << 30, 1u << 30};
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
#endif
    if (model_open(DATA "/models/tiny-llama/hf", NULL, &base, &err) != PF_OK)
        fail_msg("%s", err.text);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    model_close(base);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_index)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
