/* Malformed files (README section 8). Every file is opened in a process of its own with bounded
 * memory and time, so that a crash, a hang or a huge allocation is a failed test and nothing more.
 */
#include "groups.h"

#include "base/mem.h"
#include "profiles/adapter_file.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_SECONDS 20
#define MOST_BYTES   ((rlim_t)1 << 30)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* What a child says through its exit status. */
typedef enum {
    OUTCOME_OK = 10, /* loaded, and ran with finite results */
    OUTCOME_REFUSED,
    OUTCOME_VAGUE,    /* refused by a message without the file's name or a status that exits 0 */
    OUTCOME_NONSENSE, /* loaded, but the results are not finite */
    OUTCOME_CRASHED
} outcome;

static const char *outcome_words(int o)
{
    switch (o) {
    case OUTCOME_OK:
        return "was accepted";
    case OUTCOME_REFUSED:
        return "was refused";
    case OUTCOME_VAGUE:
        return "was refused without naming the file";
    case OUTCOME_NONSENSE:
        return "was accepted and gives no finite results";
    default:
        return "ended the process (crash, time or memory)";
    }
}

/* The message must name the file or the folder that holds it. */
static outcome refusal(const char *path, pf_status status, const pf_err *err)
{
    char *folder = xstrdup(path);
    char *slash = strrchr(folder, '/');

    if (slash) *slash = '\0';
    bool named = strstr(err->text, path_base(path)) || strstr(err->text, path_base(folder));
    free(folder);
    return named && status_exit_code(status) != 0 ? OUTCOME_REFUSED : OUTCOME_VAGUE;
}

static void check_finite(void *ctx, int position, const float *logits, int vocab)
{
    bool *finite = ctx;

    (void)position;
    for (int i = 0; i < vocab; i++)
        if (!isfinite(logits[i])) *finite = false;
}

/* A few tokens through the plain kernels. */
static outcome run_model(const char *path, const packed_adapter *adapter, runner *r)
{
    int32_t ids[8];
    bool adapted[8], wanted[8];
    bool finite = true;
    pf_err err;

    for (int i = 0; i < 8; i++) {
        ids[i] = i % model_get_config(r->m)->vocab;
        adapted[i] = wanted[i] = true;
    }
    const runner_sequence s = {.ids = ids,
                               .n = 8,
                               .adapter = adapter,
                               .adapted = adapted,
                               .wanted = wanted,
                               .logits = check_finite,
                               .ctx = &finite};
    pf_status status = runner_run(r, &s, 1, &err);
    if (status != PF_OK) return refusal(path, status, &err);
    return finite ? OUTCOME_OK : OUTCOME_NONSENSE;
}

static const runner_options one_thread = {.threads = 1};

static outcome try_model(const char *path, const char *base)
{
    runner r;
    pf_err err;

    (void)base;
    pf_status status = runner_open(path, &one_thread, &r, &err);
    if (status != PF_OK) return refusal(path, status, &err);
    outcome o = run_model(path, NULL, &r);
    runner_close(&r);
    return o;
}

static outcome try_safetensors(const char *path, const char *base)
{
    file_map map;
    safetensors st = {0};
    pf_err err;

    (void)base;
    pf_status status = file_map_open(path, &map, &err);
    if (status != PF_OK) return refusal(path, status, &err);
    status = safetensors_parse(map.data, map.size, path, &st, &err);
    safetensors_free(&st);
    file_map_close(&map);
    return status == PF_OK ? OUTCOME_OK : refusal(path, status, &err);
}

static outcome try_adapter(const char *path, const char *base)
{
    packed_adapter *adapter = NULL;
    runner r;
    pf_err err;

    if (runner_open(base, &one_thread, &r, &err) != PF_OK) die("%s", err.text);
    pf_status status = runner_adapter(&r, path, &adapter, &err);
    outcome o = status == PF_OK ? run_model(path, adapter, &r) : refusal(path, status, &err);
    packed_adapter_free(adapter);
    runner_close(&r);
    return o;
}

/* By the folder that a file of the index lies in. */
static const struct {
    const char *folder;
    outcome (*attempt)(const char *path, const char *base);
} attempts[] = {{"gguf/", try_model},
                {"hf/", try_model},
                {"safetensors/", try_safetensors},
                {"adapters/", try_adapter}};

static void bound_child(void)
{
    const struct rlimit seconds = {MOST_SECONDS, MOST_SECONDS};
    const struct rlimit bytes = {MOST_BYTES, MOST_BYTES};
    const struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_CORE, &none);
    if (!SANITIZED) setrlimit(RLIMIT_AS, &bytes);
    alarm(2 * MOST_SECONDS);
}

static int attempt_in_child(const char *file, const char *path, const char *base)
{
    int status = 0;

    fflush(NULL);
    pid_t child = fork();
    if (child < 0) die("fork failed");
    if (child == 0) {
        bound_child();
        for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++)
            if (strncmp(file, attempts[i].folder, strlen(attempts[i].folder)) == 0)
                _exit((int)attempts[i].attempt(path, base));
        die("reference data: %s lies in an unknown folder", file);
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return OUTCOME_CRASHED;
    return WEXITSTATUS(status);
}

typedef struct {
    const check_context *c;
    report *rep;
} hostile_run;

static void check_entry(void *ctx, const json_t *entry)
{
    hostile_run *run = ctx;
    const char *file = data_string(entry, "file");
    const char *expect = data_string(entry, "expect");
    const char *base_name = json_string_value(json_object_get(entry, "base"));
    char *path = data_path(run->c->folder, "hostile/%s", file);
    char *base = data_path(run->c->folder, "models/%s/hf", base_name ? base_name : "");

    if (base_name && !file_is_folder(base)) {
        report_skip(run->rep, 1, "the base model %s is not there", base_name);
    } else if (access(path, F_OK) != 0) {
        report_skip(run->rep, 1, "files of the index that are not there");
    } else {
        int o = attempt_in_child(file, path, base);
        bool refused = o == OUTCOME_REFUSED, accepted = o == OUTCOME_OK;
        bool ok = strcmp(expect, "refuse") == 0   ? refused
                  : strcmp(expect, "accept") == 0 ? accepted
                                                  : refused || accepted;
        report_check(run->rep, ok, "%s (expected: %s) %s", file, expect, outcome_words(o));
    }
    free(path);
    free(base);
}

void check_hostile(const check_context *c, report *rep)
{
    char *index = data_path(c->folder, "hostile/index.jsonl");
    hostile_run run = {.c = c, .rep = rep};

    if (!data_jsonl(index, check_entry, &run)) report_skip(rep, 1, "no hostile/index.jsonl");
    free(index);
}
