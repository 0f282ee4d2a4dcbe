/* Files that another program cuts off while they are in use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/sanitizer.h"
#include "support/scratch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_BYTES (1 << 16)

static char *folder, *path;

static int setup(void **state)
{
    (void)state;
    unsigned char *bytes = xcalloc(FILE_BYTES, 1);
    for (int i = 0; i < FILE_BYTES; i++)
        bytes[i] = (unsigned char)(i % 251);
    folder = scratch_make();
    path = scratch_write(folder, "weights", bytes, FILE_BYTES);
    free(bytes);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(path);
    scratch_remove(folder);
    return 0;
}

static void test_read_at(void **state)
{
    (void)state;
    int fd = -1;
    uint64_t size = 0;
    unsigned char bytes[1000] = {0};
    pf_err err = {0};
    assert_int_equal(file_open_regular(path, &fd, &size, &err), PF_OK);
    assert_int_equal(size, FILE_BYTES);
    assert_int_equal(file_read_at(fd, path, 20000, bytes, sizeof bytes, &err), PF_OK);
    assert_int_equal(bytes[0], 20000 % 251);
    assert_int_equal(bytes[999], 20999 % 251);
    assert_int_equal(truncate(path, 20500), 0);
    assert_int_equal(file_read_at(fd, path, 20000, bytes, sizeof bytes, &err), PF_REFUSED);
    assert_non_null(strstr(err.text, "became shorter while it was read"));
    assert_non_null(strstr(err.text, path));
    assert_int_equal(file_read_at(fd, path, 19500, bytes, sizeof bytes, &err), PF_OK);
    close(fd);
}

static void say_before(void)
{
    (void)!write(STDERR_FILENO, "[hook]", 6);
}

/* Reads a mapped file that is cut off. */
static _Noreturn void read_cut_off(int out)
{
    file_map map;
    dup2(out, STDERR_FILENO);
    signal(SIGBUS, SIG_DFL); /* cmocka has its own */
    file_map_explain();
    die_set_hook(say_before);
    if (file_map_open(path, &map, NULL) != PF_OK || truncate(path, 100) != 0) _exit(2);
    volatile unsigned char last = map.data[map.size - 1];
    _exit(last == 0 ? 3 : 4);
}

static void test_mapped_file_is_cut_off(void **state)
{
    (void)state;
    if (!MEMORY_IS_SEARCHABLE) skip(); /* sanitizers explain every fault themselves */
    int ends[2], status = 0;
    char text[2000] = "";
    size_t len = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) read_cut_off(ends[1]);
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], text + len, sizeof text - 1 - len)) > 0;)
        len += (size_t)n;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1)
        fail_msg("it ended with %x: %s", (unsigned)status, text);
    assert_int_equal(strncmp(text, "[hook]preft: ", 13), 0);
    assert_non_null(strstr(text, path));
    assert_non_null(strstr(text, "cut off by another program"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_read_at, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mapped_file_is_cut_off, setup, teardown),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
