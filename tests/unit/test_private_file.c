/* Texts that are files for a while: who can read them, that they go, also when we are killed. */
#include "ui/external_editor.h"
#include "ui/private_file.h"

#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char base[64];

static int setup(void **state)
{
    (void)state;
    strcpy(base, "/tmp/preft-test-XXXXXX");
    assert_non_null(mkdtemp(base));
    setenv("XDG_RUNTIME_DIR", base, 1);
    unsetenv("VISUAL");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(base); /* nothing was left in it */
}

static int entries(void)
{
    int n = 0;
    DIR *dir = opendir(base);
    for (const struct dirent *d; (d = readdir(dir));)
        n += strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
    closedir(dir);
    return n;
}

static void nothing_left_soon(void)
{
    for (int i = 0; i < 1200 && entries(); i++)
        poll(NULL, 0, 50);
    assert_int_equal(entries(), 0);
}

static void only_the_owner(void **state)
{
    (void)state;
    private_folder f;
    pf_err err;
    char *path = NULL, *again = NULL;
    struct stat st;
    assert_int_equal(private_folder_make(NULL, &f, &err), PF_OK);
    assert_int_equal(private_folder_write(&f, "a.md", "secret", 6, &path, &err), PF_OK);
    assert_int_equal(stat(f.path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_size, 6);
    assert_int_equal(private_folder_write(&f, "a.md", "x", 1, &again, &err), PF_FAILED);
    free(path);
    private_folder_wipe(&f);
    private_folder_wipe(&f);
    assert_int_equal(entries(), 0);
}

/* A folder whose process is gone goes when the next one is made; that of a living one stays, and so
 * does what only looks alike. */
static void left_behind(void **state)
{
    (void)state;
    private_folder mine, next;
    pf_err err;
    char other[128];
    snprintf(other, sizeof other, "%s/.preft-text-other", base);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(private_folder_make(NULL, &mine, &err), PF_OK);
    pid_t child = fork();
    if (child == 0) {
        private_folder lost;
        char *path = NULL;
        int code = private_folder_make(NULL, &lost, &err) == PF_OK &&
                           private_folder_write(&lost, "b", "text", 4, &path, &err) == PF_OK
                       ? 0
                       : 1;
        free(path);
        _exit(code);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(entries(), 3);
    assert_int_equal(private_folder_make(NULL, &next, &err), PF_OK);
    assert_int_equal(entries(), 3);
    private_folder_wipe(&next);
    private_folder_wipe(&mine);
    assert_int_equal(rmdir(other), 0);
}

static void edited(void **state)
{
    (void)state;
    pf_err err;
    buf out = {0};
    setenv("EDITOR", "sed -i -e s/cat/dog/", 1);
    assert_int_equal(external_edit(NULL, "the cat\n漢字", 14, NULL, false, &out, &err), PF_OK);
    assert_string_equal(buf_str(&out), "the dog\n漢字");
    buf_clear(&out);
    setenv("EDITOR", "false", 1);
    assert_int_equal(external_edit(NULL, "text", 4, NULL, false, &out, &err), PF_FAILED);
    setenv("EDITOR", "/no/such/editor 2>/dev/null", 1);
    assert_int_equal(external_edit(NULL, "text", 4, NULL, false, &out, &err), PF_FAILED);
    assert_int_equal(out.len, 0);
    setenv("VISUAL", "printf visual >", 1); /* goes before EDITOR, and is a shell's command */
    assert_int_equal(external_edit(NULL, "text", 4, NULL, false, &out, &err), PF_OK);
    assert_string_equal(buf_str(&out), "visual");
    buf_clear(&out);
    assert_int_equal(external_edit("printf chosen >", "text", 4, NULL, false, &out, &err), PF_OK);
    assert_string_equal(buf_str(&out), "chosen");
    unsetenv("VISUAL");
    buf_free(&out);
    nothing_left_soon();
}

/* Killed while the editor runs: its file goes all the same. */
static void killed(void **state)
{
    (void)state;
    setenv("EDITOR", "sleep 30; true", 1);
    pid_t child = fork();
    if (child == 0) {
        pf_err err;
        buf out = {0};
        setpgid(0, 0);
        external_edit(NULL, "secret", 6, NULL, false, &out, &err);
        _exit(0);
    }
    for (int i = 0; i < 100 && entries() == 0; i++)
        poll(NULL, 0, 20);
    assert_int_equal(entries(), 1);
    poll(NULL, 0, 300); /* the editor has begun */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    nothing_left_soon();
    kill(-child, SIGKILL); /* the editor that is still there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_owner),
        cmocka_unit_test(left_behind),
        cmocka_unit_test(edited),
        cmocka_unit_test(killed),
    };
    return cmocka_run_group_tests_name("private_file", tests, setup, teardown);
}
