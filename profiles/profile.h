/* Profiles: a name, settings and a sequence of adapter versions, all sealed. A profile without an
 * adapter is the plain model with settings. See store.h for threads, ownership and statuses. */
#ifndef PF_PROFILES_PROFILE_H
#define PF_PROFILES_PROFILE_H

#include "base/buf.h"
#include "profiles/user.h"

#define PROFILE_MAX_ADAPTER_BYTES (4ull << 30)

/* One adapter version. JSON members are texts of one JSON object; "" = none. */
typedef struct {
    int64_t id;     /* of the row; never reused */
    int64_t number; /* 1, 2, ... within the profile; never reused */
    int64_t created_ms;
    char *kind; /* "lorap", "direftp", "lora", "direft" */
    int max_rank;
    uint64_t bytes;           /* of the blob (models/adapter_blob.h) */
    unsigned char digest[32]; /* BLAKE2b-256 of the blob */
    bool has_base_digest;
    unsigned char base_digest[32]; /* of the model it was made for */
    char *base_name;               /* in words, "" if unknown */
    char *training;                /* JSON: method, steps, losses, ... */
    char *provenance;              /* JSON: where it came from, data counts, conversation ids */
} profile_version;

typedef struct {
    int64_t id; /* never reused */
    char *name;
    char *settings; /* JSON object: system, positions, sampling, ...; "{}" when none */
    int64_t created_ms, updated_ms;
    int64_t n_versions;
    bool has_adapter;        /* false: plain */
    bool damaged;            /* it has an adapter, but its record can't be opened: don't use it */
    profile_version current; /* zeroed without an adapter, or when damaged */
} profile_info;

typedef struct {
    profile_info *items; /* by name */
    size_t n;
} profile_list;

pf_status profile_list_load(session *s, profile_list *out, pf_err *err);
void profile_list_free(profile_list *list);
pf_status profile_get(session *s, int64_t id, profile_info *out, pf_err *err);
/* By name, folded as name.h says. PF_NOT_FOUND names it. */
pf_status profile_find(session *s, const char *name, profile_info *out, pf_err *err);
void profile_info_free(profile_info *info);

/* settings: text of a JSON object or NULL. PF_USAGE: name refused or taken. */
pf_status profile_create(session *s, const char *name, const char *settings, int64_t *id,
                         pf_err *err);
pf_status profile_rename(session *s, int64_t id, const char *name, pf_err *err);
/* Settings and the current version only. */
pf_status profile_copy(session *s, int64_t id, const char *name, int64_t *copy, pf_err *err);
/* With all its versions and checkpoints. Conversations stay, without a profile. */
pf_status profile_remove(session *s, int64_t id, pf_err *err);
typedef enum {
    PROFILE_UNUSED,
    PROFILE_UNFINISHED, /* it has a checkpoint of a training */
    PROFILE_USED        /* a version, settings, another name, conversations or notes */
} profile_usage;
/* Removes a profile that was created with this name and without settings, if it has not been used
 * since; *use says whether it was. */
pf_status profile_remove_unused(session *s, int64_t id, const char *name, profile_usage *use,
                                pf_err *err);
pf_status profile_set_settings(session *s, int64_t id, const char *settings, pf_err *err);

/* --- adapters --------------------------------------------------------------------------------- */

/* What the caller knows about a new version; every member may be NULL. */
typedef struct {
    const char *base_name;
    const char *training, *provenance; /* texts of JSON objects */
} profile_version_record;

/* Checks the blob's form (adapter_view_open without a model) and saves it as the profile's newest
 * and current version, all or nothing. number and record may be NULL. */
pf_status profile_add_version(session *s, int64_t id, const void *blob, size_t len,
                              const profile_version_record *record, int64_t *number, pf_err *err);
/* Makes a profile with this as its first version: both or neither. Name as in profile_create. */
pf_status profile_create_with(session *s, const char *name, const void *blob, size_t len,
                              const profile_version_record *record, int64_t *id, pf_err *err);

typedef struct {
    profile_version *items; /* by number */
    size_t n;
} profile_version_list;
pf_status profile_versions_load(session *s, int64_t id, profile_version_list *out, pf_err *err);
void profile_version_list_free(profile_version_list *list);
void profile_version_free(profile_version *v);

/* Makes an older (or newer) version the current one; 0: plain, no adapter. */
pf_status profile_use_version(session *s, int64_t id, int64_t number, pf_err *err);
/* Really deletes a version; the current one can't be (PF_USAGE). */
pf_status profile_remove_version(session *s, int64_t id, int64_t number, pf_err *err);

/* Appends the blob of a version (0: the current one) to *out, authenticated and with its digest
 * checked; wipe_buf it after use. On failure *out is as it was. PF_NOT_FOUND: plain. */
pf_status profile_read_adapter(session *s, int64_t id, int64_t number, buf *out, pf_err *err);

/* For the engine: the pair of functions and the ctx of an adapter_source (src/engine/engine.h).
 * profile_source_open refers to one version (0: the current one) and keeps a reference to the
 * session; digest receives the blob's. After sign-out fetch fails with PF_DENIED, safely. */
pf_status profile_source_open(session *s, int64_t id, int64_t number, void **ctx,
                              unsigned char digest[32], pf_err *err);
pf_status profile_source_fetch(void *ctx, buf *out, pf_err *err);
void profile_source_release(void *ctx);

/* --- training checkpoints --------------------------------------------------------------------- */

typedef struct {
    int64_t id;
    int64_t step, created_ms;
    uint64_t bytes;
    char *note; /* JSON */
} checkpoint_info;
typedef struct {
    checkpoint_info *items; /* by step */
    size_t n;
} checkpoint_list;
/* What a checkpoint holds must not outlive its sources. The note may name them: "conversations", an
 * array of ids, and "messages", for each of them the number of its messages when it was read and
 * the last one's id (conversation_extent); "notes", an array of the notes' ids and revisions.
 *
 * Makes a profile for a training, with what the training begins with as its first checkpoint, of
 * step 0: both or neither. Name as in profile_create, PF_REFUSED as in checkpoint_save. */
pf_status checkpoint_begin(session *s, const char *name, const char *note, const void *data,
                           size_t len, int64_t *profile, pf_err *err);
/* Saves the state of a training job of this profile, and drops all but the newest `keep`, and those
 * that can't be opened. PF_REFUSED: a conversation that the note names is deleted, or messages of
 * it are. */
pf_status checkpoint_save(session *s, int64_t profile, int64_t step, const char *note,
                          const void *data, size_t len, int keep, pf_err *err);
/* The same behind former states of the job. PF_REFUSED also when none of them is there any more:
 * messages that they held were deleted, and they with them. */
pf_status checkpoint_save_next(session *s, int64_t profile, int64_t step, const char *note,
                               const void *data, size_t len, int keep, pf_err *err);
/* PF_DAMAGED: out has the intact ones. */
pf_status checkpoint_list_load(session *s, int64_t profile, checkpoint_list *out, pf_err *err);
void checkpoint_list_free(checkpoint_list *list);
pf_status checkpoint_read(session *s, int64_t profile, int64_t id, buf *out, pf_err *err);
pf_status checkpoint_remove_all(session *s, int64_t profile, pf_err *err);

#endif
