/* Trainings killed (signal 9) at random moments: each restart goes on from a checkpoint that is at
 * most an interval old, the end is the same bytes as without a kill, and nothing of the texts lies
 * in the store's files. KILLS says how often (5; the soak tier 50). */
#include "base/mem.h"
#include "profiles/secret.h"
#include "support/engine_fixture.h"
#include "support/store_fixture.h"
#include "train/live/live.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define INTERVAL   4
#define EPOCHS     60
#define N_CHATS    10
#define LAST_STEP  (EPOCHS * 4) /* 8 conversations are not kept aside, two a step */
#define PASSPHRASE "a passphrase of mira"

/* What a child tells while it lives. */
typedef struct {
    volatile int64_t step, resumed, version;
    volatile int made, failed;
} report;

static void fill(session *s, int64_t profile)
{
    for (int i = 0; i < N_CHATS; i++) {
        char ask[64];
        int64_t id = 0;
        snprintf(ask, sizeof ask, "What is number %d called?", i);
        assert_int_equal(conversation_create(s, profile, "chat", &id, NULL), PF_OK);
        fixture_message(s, id, HISTORY_USER, ask);
        fixture_message(s, id, HISTORY_ASSISTANT, "Its quiddity is secret.");
    }
}

/* In a process of its own: trains, or goes on, to the end unless killed. A profile that isn't there
 * is made. */
static void train(const char *home, const char *name, bool resume, report *out)
{
    const store_options options = fixture_options();
    store *st = NULL;
    session *s = NULL;
    train_live *l = NULL;
    profile_info info = {0};
    pf_err err = {0};
    secret *passphrase = secret_from(PASSPHRASE, strlen(PASSPHRASE));
    pf_status status = store_open(home, &options, &st, &err);
    if (status == PF_OK) status = user_sign_in(st, "mira", passphrase, &s, &err);
    if (status == PF_OK) status = profile_find(s, name, &info, &err);
    if (status == PF_NOT_FOUND && !resume) status = PF_OK;
    model *m = fixture_model(TINY_MODEL);
    engine *e = fixture_engine(m, &(engine_options){.threads = 1, .context = 256});
    const train_request r = {.profile = info.id,
                             .new_profile = name,
                             .rank = 2,
                             .rate = 5e-3,
                             .epochs = EPOCHS,
                             .batch = 2,
                             .seed = 5,
                             .fresh = true,
                             .held_out = 0.2,
                             .checkpoint_steps = INTERVAL};
    if (status == PF_OK)
        status = resume ? train_live_resume(s, e, info.id, NULL, &l, &err)
                        : train_live_start(s, e, &r, &l, &err);
    live_status now = {0};
    while (status == PF_OK && !live_phase_over(now.phase)) {
        train_live_wait(l, 100);
        train_live_get(l, &now);
        out->step = now.step;
        out->resumed = now.resumed_step;
        out->made = now.made == LIVE_MADE;
    }
    out->version = now.version;
    out->failed = status != PF_OK || now.phase != LIVE_DONE;
    if (out->failed) fprintf(stderr, "%s%s\n", err.text, now.message);
    train_live_close(l);
    fixture_engine_close(e);
    fixture_model_close(m);
    _exit(0);
}

static pid_t spawn(const store_fixture *f, const char *name, bool resume, report *out)
{
    out->step = out->resumed = out->version = out->made = out->failed = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) train(f->home, name, resume, out);
    return pid;
}

/* The step of the newest checkpoint; 0: there is none. */
static int64_t saved_step(store_fixture *f, const char *name)
{
    session *s = NULL;
    live_unfinished_list list = {0};
    int64_t step = 0;
    fixture_reopen(f);
    assert_ok(f, fixture_sign_in(f, "mira", PASSPHRASE, &s));
    assert_ok(f, train_live_unfinished(s, &list, &f->err));
    for (size_t i = 0; i < list.n; i++)
        if (strcmp(list.items[i].name, name) == 0) step = list.items[i].step;
    live_unfinished_list_free(&list);
    session_unref(s);
    return step;
}

static buf read_profile(store_fixture *f, const char *name)
{
    session *s = NULL;
    profile_info info = {0};
    buf blob = {0};
    fixture_reopen(f);
    assert_ok(f, fixture_sign_in(f, "mira", PASSPHRASE, &s));
    assert_ok(f, profile_find(s, name, &info, &f->err));
    assert_ok(f, profile_read_adapter(s, info.id, 0, &blob, &f->err));
    profile_info_free(&info);
    session_unref(s);
    return blob;
}

static void test_kills(void **state)
{
    (void)state;
    const char *word = getenv("KILLS");
    int kills = word ? atoi(word) : 5, killed = 0, resumed = 0;
    store_fixture f = {0};
    report *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r != MAP_FAILED);
    fixture_open(&f);
    session *s = fixture_user(&f, "mira", PASSPHRASE);
    int64_t whole = 0, broken = 0, worst = 0;
    assert_ok(&f, profile_create(s, "whole", NULL, &whole, &f.err));
    assert_ok(&f, profile_create(s, "broken", NULL, &broken, &f.err));
    fill(s, whole);
    fill(s, broken);
    session_unref(s);
    store_close(f.store); /* no open database is taken into a child */
    f.store = NULL;

    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_int_equal(waitpid(spawn(&f, "whole", false, r), NULL, 0) > 0, 1);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_false(r->failed);
    double seconds =
        (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
    /* Runs end by themselves now and then; the next one begins anew. */
    bool go_on = false;
    unsigned seed = 20;
    while (killed < kills) {
        pid_t pid = spawn(&f, "broken", go_on, r);
        usleep((useconds_t)(seconds * 0.6e6 * (double)rand_r(&seed) / (double)RAND_MAX));
        kill(pid, SIGKILL);
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFSIGNALED(status))
            killed++;
        else
            assert_false(r->failed);
        int64_t step = r->step, saved = saved_step(&f, "broken"), resumed_at = r->resumed;
        store_close(f.store);
        f.store = NULL;
        if (r->version > 0 || (!WIFSIGNALED(status) && saved == 0)) {
            go_on = false; /* it had ended */
            continue;
        }
        if (saved == 0 && step == 0) continue; /* before the first step: nothing is lost */
        if (step < resumed_at) step = resumed_at;
        if (step - saved > worst) worst = step - saved;
        if (step - saved > INTERVAL)
            fail_msg("kill %d at step %lld: the checkpoint is of step %lld", killed,
                     (long long)step, (long long)saved);
        go_on = saved > 0;
        resumed += go_on;
    }
    pid_t pid = spawn(&f, "broken", go_on, r);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(r->failed);
    buf one = read_profile(&f, "whole"), other = read_profile(&f, "broken");
    assert_int_equal(one.len, other.len);
    assert_memory_equal(one.data, other.data, one.len);
    assert_int_equal(fixture_find_bytes(&f, "quiddity", 8), 0);
    print_message("%d kills, %d trainings gone on with, at most %lld steps lost of %d allowed\n",
                  killed, resumed, (long long)worst, INTERVAL);
    wipe_buf(&one);
    wipe_buf(&other);
    fixture_close(&f);
    munmap(r, sizeof *r);
}

/* Around the save of a second version: the profile always has one whole adapter, old or new, and
 * what was left over is never used. */
static void test_kills_at_the_save(void **state)
{
    (void)state;
    const char *word = getenv("KILLS");
    int kills = word ? 2 * atoi(word) : 5, before = 0, after = 0;
    store_fixture f = {0};
    session *s = NULL;
    report *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r != MAP_FAILED);
    fixture_open(&f);
    s = fixture_user(&f, "mira", PASSPHRASE);
    int64_t id = 0, versions = 1;
    assert_ok(&f, profile_create(s, "saved", NULL, &id, &f.err));
    fill(s, id);
    session_unref(s);
    store_close(f.store);
    f.store = NULL;
    assert_int_equal(waitpid(spawn(&f, "saved", false, r), NULL, 0) > 0, 1);
    assert_false(r->failed);
    unsigned seed = 4;
    for (int i = 0; i < kills; i++) {
        pid_t pid = spawn(&f, "saved", false, r);
        while (r->step < LAST_STEP && waitpid(pid, NULL, WNOHANG) == 0)
            usleep(200);
        usleep((useconds_t)(rand_r(&seed) % 40000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        profile_info info = {0};
        buf blob = read_profile(&f, "saved"); /* authenticated, its digest checked */
        assert_ok(&f, fixture_sign_in(&f, "mira", PASSPHRASE, &s));
        assert_ok(&f, profile_find(s, "saved", &info, &f.err));
        assert_true(info.has_adapter && !info.damaged);
        assert_true(info.n_versions == versions || info.n_versions == versions + 1);
        *(info.n_versions > versions ? &after : &before) += 1;
        versions = info.n_versions;
        profile_info_free(&info);
        wipe_buf(&blob);
        session_unref(s);
        store_close(f.store);
        f.store = NULL;
    }
    print_message("%d kills around the save: %d times the old version, %d times the new\n", kills,
                  before, after);
    fixture_reopen(&f);
    fixture_close(&f);
    munmap(r, sizeof *r);
}

/* Whether the store offers to go on with the training of a profile. */
static bool offered(store_fixture *f, const char *name)
{
    session *s = NULL;
    live_unfinished_list list = {0};
    bool found = false;
    fixture_reopen(f);
    assert_ok(f, fixture_sign_in(f, "mira", PASSPHRASE, &s));
    assert_ok(f, train_live_unfinished(s, &list, &f->err));
    for (size_t i = 0; i < list.n; i++) {
        found |= strcmp(list.items[i].name, name) == 0;
        assert_int_equal(list.items[i].n_steps, LAST_STEP);
    }
    live_unfinished_list_free(&list);
    session_unref(s);
    store_close(f->store);
    f->store = NULL;
    return found;
}

/* As soon as a training has made its profile, or some time later: the profile never stays behind
 * without a training that can be gone on with, to the same bytes as if nothing had been. */
static void test_kills_at_the_beginning(void **state)
{
    (void)state;
    const char *word = getenv("KILLS");
    int kills = word ? atoi(word) : 1;
    store_fixture f = {0};
    report *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r != MAP_FAILED);
    fixture_open(&f);
    session *s = fixture_user(&f, "mira", PASSPHRASE);
    fill(s, 0);
    session_unref(s);
    store_close(f.store);
    f.store = NULL;
    assert_true(waitpid(spawn(&f, "whole", false, r), NULL, 0) > 0);
    assert_false(r->failed);
    for (int i = 0; i < kills; i++) {
        char name[32];
        int status = 0;
        snprintf(name, sizeof name, "broken %d", i);
        pid_t pid = spawn(&f, name, false, r);
        while (!r->made && waitpid(pid, NULL, WNOHANG) == 0)
            usleep(200);
        usleep((useconds_t)(i % 10) * 3000);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_true(offered(&f, name));
        assert_true(waitpid(spawn(&f, name, true, r), NULL, 0) > 0);
        assert_false(r->failed);
        buf one = read_profile(&f, "whole"), other = read_profile(&f, name);
        assert_int_equal(one.len, other.len);
        assert_memory_equal(one.data, other.data, one.len);
        wipe_buf(&one);
        wipe_buf(&other);
        assert_false(offered(&f, name));
    }
    fixture_reopen(&f);
    fixture_close(&f);
    munmap(r, sizeof *r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kills),
                                       cmocka_unit_test(test_kills_at_the_beginning),
                                       cmocka_unit_test(test_kills_at_the_save)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
