/* check_reference: runs every test of a folder of reference data (its README's layout) through the
 * program's real code paths and prints a line per group. Any folder of that layout will do, with
 * other models and shapes. */
#include "groups.h"

#include "base/mem.h"

#include <dirent.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(const check_context *c, report *rep);
    bool computes; /* runs once for every instruction set */
} groups[] = {
    {"tokenizer", check_tokenizer, false}, {"chat", check_chat, false},
    {"hostile", check_hostile, false},     {"forward", check_forward, true},
    {"adapters", check_adapters, true},    {"turns", check_turns, true},
    {"quant", check_quant, true},          {"training", check_training, true},
};

typedef struct {
    int passed, failed, skipped;
} totals;

/* Whether name is in a list with commas or spaces between. */
static bool in_list(const char *list, const char *name)
{
    const size_t len = strlen(name);

    for (const char *p = list; *p;) {
        size_t part = strcspn(p, ", ");
        if (part == len && memcmp(p, name, len) == 0) return true;
        p += part;
        p += strspn(p, ", ");
    }
    return false;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The folders under models/ in order, then the real model's name; those of list only, unless it is
 * NULL. NULL-terminated, owned. */
static char **find_models(const char *folder, const char *list)
{
    char *path = data_path(folder, "models");
    DIR *dir = opendir(path);
    char **names = NULL;
    size_t n = 0;

    if (!dir) die("%s: no such folder; expected the layout of the reference data", path);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (e->d_name[0] == '.' || (list && !in_list(list, e->d_name))) continue;
        names = xrealloc_array(names, n + 1, sizeof *names);
        names[n++] = xstrdup(e->d_name);
    }
    closedir(dir);
    free(path);
    if (n > 0) qsort(names, n, sizeof *names, compare_names);
    names = xrealloc_array(names, n + 2, sizeof *names);
    if (!list || in_list(list, REAL_MODEL)) names[n++] = xstrdup(REAL_MODEL);
    names[n] = NULL;
    if (n == 0) die("%s: no such models in it", folder);
    return names;
}

static void free_models(char **names)
{
    for (char **name = names; *name; name++)
        free(*name);
    free(names);
}

static void run_group(size_t g, const check_context *c, totals *sum)
{
    report rep;

    report_init(&rep, groups[g].name, groups[g].computes ? c->isa : "");
    char why[256] = "";
    const bool cuda = c->isa && strncmp(c->isa, "cuda", 4) == 0;

    if (groups[g].computes && cuda && !kn_cuda_usable(why, sizeof why))
        report_skip(&rep, 1, "%s", why);
    else if (groups[g].computes && !cuda && !in_list(kn_isa_list(), c->isa))
        report_skip(&rep, 1, "this machine has no %s", c->isa);
    else
        groups[g].run(c, &rep);
    report_print(&rep);
    sum->passed += rep.passed;
    sum->failed += rep.failed;
    sum->skipped += rep.skipped;
}

static void run_groups(check_context *c, const char *only, const char *isa_list, totals *sum)
{
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
        if (!groups[g].computes && in_list(only, groups[g].name)) run_group(g, c, sum);
    for (const char *p = isa_list; *p;) {
        char isa[32];
        size_t len = strcspn(p, ", ");
        snprintf(isa, sizeof isa, "%.*s", (int)len, p);
        c->isa = isa;
        for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
            if (groups[g].computes && in_list(only, groups[g].name)) run_group(g, c, sum);
        p += len;
        p += strspn(p, ", ");
    }
}

static _Noreturn void usage(int code)
{
    fprintf(
        code ? stderr : stdout,
        "usage: check_reference [--isa LIST] [--threads N] [--real GGUF] [--models LIST] "
        "[--only GROUPS] FOLDER\n"
        "  --isa LIST     instruction sets, default ref,avx2,avx512; also cuda, cuda-exact,\n"
        "                 cuda-precise\n"
        "  --threads N    threads of the kernels, default one per core\n"
        "  --real GGUF    SmolLM2-135M-Instruct.Q4_1.gguf, for the cases of %s\n"
        "  --models LIST  some of the folder's models and %s\n"
        "  --only GROUPS  some of: tokenizer,chat,hostile,forward,adapters,turns,quant,training\n",
        REAL_MODEL, REAL_MODEL);
    exit(code);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"isa", required_argument, NULL, 'i'},
        {"threads", required_argument, NULL, 't'},
        {"real", required_argument, NULL, 'r'},
        {"only", required_argument, NULL, 'o'},
        {"models", required_argument, NULL, 'm'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *isa = "ref,avx2,avx512";
    const char *only = "tokenizer,chat,hostile,forward,adapters,turns,quant,training";
    const char *models = NULL;
    check_context c = {0};
    totals sum = {0};

    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'i') isa = optarg;
        if (o == 't') c.threads = atoi(optarg);
        if (o == 'r' && *optarg) c.real = optarg;
        if (o == 'o') only = optarg;
        if (o == 'm') models = optarg;
        if (o == 'h') usage(0);
        if (o == '?') usage(2);
    }
    if (optind != argc - 1) usage(2);
    c.folder = argv[optind];
    c.models = find_models(c.folder, models);
    run_groups(&c, only, isa, &sum);
    free_models(c.models);
    printf("%d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped);
    return sum.failed > 0 ? 1 : 0;
}
