/* Damaged files of every format that comes from outside (fuzz/formats.h), each through the function
 * that reads it. What must hold of every one: no crash, nothing allocated stays behind, a refusal
 * names the file in one line of UTF-8, memory and time are bounded. The valid file is read.
 *
 * PREFT_TEST_SEED (1) chooses other ones; PREFT_TEST_SECONDS, shared by the formats, more of them
 * (`make mutate`). What fails prints its seed, format and number; PREFT_TEST_CASE=FORMAT:NUMBER
 * reads that one alone, PREFT_TEST_CASE=FORMAT those of one format. The damaged file is left where
 * it was read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "fuzz/formats.h"
#include "fuzz/heap.h"
#include "support/cpu_time.h"
#include "support/scratch.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum {
    MOST_SECONDS = 20,     /* of computing, for one file, with sanitizers too */
    HANGS_AFTER = 120,     /* seconds, on the clock */
    MEMORY_BASE = 8 << 20, /* what reading may take, and */
    MEMORY_TIMES = 100,    /* so often the file's size */
};

static const char *only; /* FORMAT, FORMAT:NUMBER or NULL */
static uint64_t seed = 1;
static double seconds;
static char *folder;
static size_t n_begun, n_ended;

/* What is being read, for messages at any end of the process. */
static char now[128];

static void tell(void)
{
    if (now[0]) (void)!write(STDERR_FILENO, now, strlen(now));
}

/* A sanitizer's, where there is one. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void on_alarm(int signal_number)
{
    (void)signal_number;
    tell();
    _exit(1);
}

/* --- one file ------------------------------------------------------------------------------- */

typedef struct {
    const file_format *format;
    mutate_file valid;
    char *file; /* what is damaged */
    char *path; /* what is read: the same, or its folder */
    size_t n, n_refused, most_memory;
    bool reading_valid;
} subject;

static void write_file(const char *path, const buf *data)
{
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(buf_str(data), 1, data->len, out) != data->len || fclose(out) != 0)
        die("%s can't be written", path);
}

static void expect_message(const subject *s, pf_status status, const pf_err *err)
{
    if (err->status != status)
        fail_msg("%sstatus %d, but %d in the error", now, status, err->status);
    if (!strstr(err->text, path_base(s->path)) && !strstr(err->text, path_base(s->file)))
        fail_msg("%sthe message does not name the file: %s", now, err->text);
    if (!utf8_valid(err->text, strlen(err->text)))
        fail_msg("%sthe message is no UTF-8: %s", now, err->text);
    for (const char *c = err->text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            fail_msg("%sthe message has a control character: %s", now, err->text);
}

static pf_status read_once(subject *s, size_t size)
{
    pf_err err = {0};
    int64_t before = heap_now(), start = cpu_time_ns();
    heap_take_peak();
    alarm(HANGS_AFTER);
    pf_status status = s->format->read(s->path, &err);
    alarm(0);
    double took = (double)(cpu_time_ns() - start) / 1e9;
    int64_t memory = heap_take_peak() - before;
    if (status != PF_OK) expect_message(s, status, &err);
    if (status != PF_OK && s->reading_valid)
        fail_msg("%sthe valid file is refused: %s", now, err.text);
    if (took > MOST_SECONDS) fail_msg("%sit took %.1f s", now, took);
    if (memory > MEMORY_BASE + MEMORY_TIMES * (int64_t)size)
        fail_msg("%sit took %lld bytes of memory; the file has %zu", now, (long long)memory, size);
    if (memory > 0 && (size_t)memory > s->most_memory) s->most_memory = (size_t)memory;
    return status;
}

/* Caches may grow once: what is allocated is looked at again when it has grown. */
static pf_status read_without_leak(subject *s, size_t size)
{
    pf_status status = PF_OK;
    int64_t grown = 1;
    for (int tries = 0; tries < 4 && grown > 0; tries++) {
        int64_t before = heap_now();
        status = read_once(s, size);
        grown = heap_now() - before;
    }
    if (grown > 0) fail_msg("%sreading it leaves %lld bytes allocated", now, (long long)grown);
    return status;
}

static void run_case(subject *s, size_t number)
{
    mutate_random r = {seed * 1000003 + number};
    mutate_file damaged = {0};
    n_begun++;
    snprintf(now, sizeof now,
             "PREFT_TEST_SEED=%llu PREFT_TEST_CASE=%s:%zu: ", (unsigned long long)seed,
             s->format->name, number);
    s->reading_valid = number == 0;
    mutate_copy(&s->valid, &damaged);
    if (number > 0 && !s->format->damage) mutate_damage(&damaged, &r);
    write_file(s->file, &damaged.bytes);
    if (number > 0 && s->format->damage) s->format->damage(s->file, &r);
    pf_status status = read_without_leak(s, damaged.bytes.len);
    s->n++;
    s->n_refused += status != PF_OK;
    mutate_free(&damaged);
    now[0] = '\0';
    n_ended++;
}

/* --- a format ------------------------------------------------------------------------------- */

static void open_subject(const file_format *format, subject *s)
{
    *s = (subject){.format = format};
    const char *name = format->file ? format->file : path_base(format->source);
    char *own = path_join(folder, format->name);
    if (format->source && format->file)
        scratch_copy_folder(format->source, own);
    else if (file_make_folder(own, 0700, NULL) != PF_OK)
        die("no folder %s", own);
    s->file = path_join(own, name);
    if (format->make)
        format->make(&s->valid.bytes);
    else
        scratch_read(format->file ? s->file : format->source, &s->valid.bytes);
    s->path = format->source && format->file ? own : xstrdup(s->file);
    if (s->path != own) free(own);
    if (format->find_parts) format->find_parts(&s->valid);
}

static void close_subject(subject *s)
{
    free(s->file);
    free(s->path);
    mutate_free(&s->valid);
}

static void test_format(void **state)
{
    subject s;
    const file_format *format = *state;
    const char *number = only ? strchr(only, ':') : NULL;
    size_t name_len = only ? strcspn(only, ":") : 0;
    if (only && (strlen(format->name) != name_len || memcmp(only, format->name, name_len) != 0))
        return;
    open_subject(format, &s);
    double share = only ? seconds : seconds / (double)n_file_formats;
    int64_t end = clock_monotonic_ns() + (int64_t)(share * 1e9);
    if (number)
        run_case(&s, strtoul(number + 1, NULL, 10));
    else
        for (size_t i = 0; i <= format->cases || (share > 0 && clock_monotonic_ns() < end); i++)
            run_case(&s, i);
    print_message("%s: %zu files, %zu refused, at most %zu KiB\n", format->name, s.n, s.n_refused,
                  s.most_memory / 1024);
    if (!number) assert_true(s.n_refused > 0 && s.n_refused < s.n);
    close_subject(&s);
}

/* After a crash too, which cmocka catches. */
static int tell_case(void **state)
{
    (void)state;
    if (now[0]) print_message("%sthe damaged file is kept in %s\n", now, folder);
    now[0] = '\0';
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    folder = scratch_make();
    formats_open();
    heap_start();
    signal(SIGALRM, on_alarm);
    die_set_hook(tell);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(tell);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    formats_close();
    if (n_begun == n_ended) scratch_remove(folder);
    return 0;
}

static uint64_t environment_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

int main(void)
{
    struct CMUnitTest tests[64] = {{0}};
    seed = environment_number("PREFT_TEST_SEED", 1);
    seconds = (double)environment_number("PREFT_TEST_SECONDS", 0);
    only = getenv("PREFT_TEST_CASE");
    PF_ASSERT(n_file_formats <= sizeof tests / sizeof *tests);
    for (size_t i = 0; i < n_file_formats; i++)
        tests[i] = (struct CMUnitTest){.name = file_formats[i].name,
                                       .test_func = test_format,
                                       .teardown_func = tell_case,
                                       .initial_state = (void *)(uintptr_t)&file_formats[i]};
    return _cmocka_run_group_tests("mutations", tests, n_file_formats, set_up, tear_down);
}
