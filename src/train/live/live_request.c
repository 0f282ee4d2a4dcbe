#include "train/live/live_request.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>

/* What works without tuning: a style needs three passes; facts in many wordings two, and DiReFT a
 * lower rate to leave other answers alone. */
#define EPOCHS            3
#define FACT_EPOCHS       2
#define LORA_RATE         2e-3
#define DIREFT_RATE       1e-3
#define DIREFT_FACTS_RATE 5e-4

/* --- copies ---------------------------------------------------------------------------------- */

static const double *copy_real(const double *from)
{
    if (!from) return NULL;
    double *copy = xmalloc(sizeof *copy);
    *copy = *from;
    return copy;
}

static const char *const *copy_texts(const char *const *from, size_t n, bool names_only)
{
    if (n == 0) return NULL;
    const char **copy = xcalloc(n, sizeof *copy);
    for (size_t i = 0; i < n; i++)
        copy[i] = xstrdup(names_only ? path_base(from[i]) : from[i]);
    return copy;
}

void live_request_copy(const train_request *from, bool names_only, train_request *out)
{
    *out = *from;
    out->new_profile = from->new_profile ? xstrdup(from->new_profile) : NULL;
    out->distill = from->distill ? xstrdup(from->distill) : NULL;
    out->conversations = NULL;
    if (from->n_conversations) {
        int64_t *ids = xcalloc(from->n_conversations, sizeof *ids);
        memcpy(ids, from->conversations, from->n_conversations * sizeof *ids);
        out->conversations = ids;
    }
    out->files = copy_texts(from->files, from->n_files, names_only);
    out->questions = copy_texts(from->questions, from->n_questions, false);
    out->warmup = copy_real(from->warmup);
    out->after = copy_real(from->after);
    out->clip = copy_real(from->clip);
}

static void free_texts(const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        wipe_text((char *)(uintptr_t)texts[i]);
    free((void *)(uintptr_t)texts);
}

void live_request_free(train_request *r)
{
    wipe_text((char *)(uintptr_t)r->new_profile);
    wipe_text((char *)(uintptr_t)r->distill);
    free((void *)(uintptr_t)r->conversations);
    free_texts(r->files, r->n_files);
    free_texts(r->questions, r->n_questions);
    free((void *)(uintptr_t)r->warmup);
    free((void *)(uintptr_t)r->after);
    free((void *)(uintptr_t)r->clip);
    *r = (train_request){0};
}

/* --- JSON ------------------------------------------------------------------------------------ */

/* The members that are plain numbers, under the names that checkpoints use. */
typedef enum {
    FIELD_INT,
    FIELD_INT64,
    FIELD_SIZE,
    FIELD_UINT64,
    FIELD_REAL,
    FIELD_BOOL
} field_kind;
typedef struct {
    const char *name;
    field_kind kind;
    size_t at;
} field;

#define FIELD(kind_, member)                                                                       \
    {                                                                                              \
#member, kind_, offsetof(train_request, member)                                            \
    }
static const field fields[] = {
    FIELD(FIELD_SIZE, max_tokens),
    FIELD(FIELD_REAL, held_out),
    FIELD(FIELD_INT, replay),
    FIELD(FIELD_INT, wordings),
    FIELD(FIELD_BOOL, fresh),
    FIELD(FIELD_INT, rank),
    FIELD(FIELD_REAL, alpha),
    FIELD(FIELD_REAL, rate),
    FIELD(FIELD_INT, epochs),
    FIELD(FIELD_INT, batch),
    FIELD(FIELD_INT64, steps),
    FIELD(FIELD_UINT64, seed),
    FIELD(FIELD_INT64, checkpoint_steps),
    FIELD(FIELD_BOOL, constant_rate),
    FIELD(FIELD_BOOL, orthonormal),
    FIELD(FIELD_INT, sample_questions),
};
#define N_FIELDS (sizeof fields / sizeof fields[0])

static json_t *write_field(const train_request *r, const field *f)
{
    const void *at = (const char *)r + f->at;
    switch (f->kind) {
    case FIELD_INT:
        return json_integer(*(const int *)at);
    case FIELD_INT64:
        return json_integer(*(const int64_t *)at);
    case FIELD_SIZE:
        return json_integer((json_int_t) * (const size_t *)at);
    case FIELD_UINT64:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case FIELD_REAL:
        return json_real(*(const double *)at);
    case FIELD_BOOL:
        return json_boolean(*(const bool *)at);
    }
    return NULL;
}

static pf_status read_field(const json_t *object, const field *f, train_request *r, pf_err *err)
{
    void *at = (char *)r + f->at;
    int64_t integer = 0;
    pf_status status = PF_OK;
    if (f->kind == FIELD_REAL) return json_get_real(object, f->name, -1e9, 1e9, at, err);
    if (f->kind == FIELD_BOOL) return json_get_bool(object, f->name, at, err);
    bool narrow = f->kind == FIELD_INT;
    status = json_get_int(object, f->name, narrow ? INT32_MIN : INT64_MIN,
                          narrow ? INT32_MAX : INT64_MAX, &integer, err);
    if (f->kind == FIELD_INT) *(int *)at = (int)integer;
    if (f->kind == FIELD_INT64) *(int64_t *)at = integer;
    if (f->kind == FIELD_SIZE) *(size_t *)at = (size_t)integer;
    if (f->kind == FIELD_UINT64) *(uint64_t *)at = (uint64_t)integer;
    return status;
}

static json_t *write_texts(const char *const *texts, size_t n, bool names_only)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, json_string(names_only ? path_base(texts[i]) : texts[i]));
    return array;
}

static const char *const *read_texts(const json_t *array, size_t *n)
{
    size_t count = json_array_size(array);
    const char **texts = count ? xcalloc(count, sizeof *texts) : NULL;
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(array, i));
        texts[i] = xstrdup(text ? text : "");
    }
    *n = count;
    return texts;
}

json_t *live_request_write(const train_request *r)
{
    json_t *object = json_object(), *conversations = json_array();
    json_object_set_new(object, "method", json_string(train_method_name(r->method)));
    json_object_set_new(object, "from", json_integer(r->from));
    json_object_set_new(object, "facts", json_integer(r->facts));
    for (size_t i = 0; i < N_FIELDS; i++)
        json_object_set_new(object, fields[i].name, write_field(r, &fields[i]));
    for (size_t i = 0; i < r->n_conversations; i++)
        json_array_append_new(conversations, json_integer(r->conversations[i]));
    json_object_set_new(object, "conversations", conversations);
    json_object_set_new(object, "files", write_texts(r->files, r->n_files, true));
    json_object_set_new(object, "questions", write_texts(r->questions, r->n_questions, false));
    if (r->warmup) json_object_set_new(object, "warmup", json_real(*r->warmup));
    if (r->distill) json_object_set_new(object, "distill", json_string(r->distill));
    if (r->after) json_object_set_new(object, "after", json_real(*r->after));
    if (r->clip) json_object_set_new(object, "clip", json_real(*r->clip));
    return object;
}

static pf_status read_real(const json_t *object, const char *name, const double **out, pf_err *err)
{
    double value = 0;
    if (!json_object_get(object, name)) return PF_OK;
    pf_status status = json_get_real(object, name, 0, 1e9, &value, err);
    if (status == PF_OK) *out = copy_real(&value);
    return status;
}

pf_status live_request_read(const json_t *object, train_request *out, pf_err *err)
{
    const char *method = "";
    int64_t from = 0, facts = 0;
    *out = (train_request){0};
    pf_status status = json_get_string(object, "method", &method, err);
    if (status == PF_OK) status = json_get_int(object, "from", 0, LEARN_REWRITES, &from, err);
    if (status == PF_OK) status = json_get_int(object, "facts", 0, LEARN_NO_FACTS, &facts, err);
    if (status == PF_OK && !train_method_parse(method, &out->method))
        status = err_set(err, PF_REFUSED, "\"%s\" is no method of training", method);
    out->from = (learn_from)from;
    out->facts = (learn_facts)facts;
    for (size_t i = 0; i < N_FIELDS && status == PF_OK; i++)
        status = read_field(object, &fields[i], out, err);
    if (status == PF_OK) status = read_real(object, "warmup", &out->warmup, err);
    if (status == PF_OK) status = read_real(object, "after", &out->after, err);
    if (status == PF_OK) status = read_real(object, "clip", &out->clip, err);
    if (status != PF_OK) return status;
    const char *distill = json_string_value(json_object_get(object, "distill"));
    if (distill) out->distill = xstrdup(distill);
    const json_t *list = json_object_get(object, "conversations");
    size_t n = json_array_size(list);
    int64_t *ids = n ? xcalloc(n, sizeof *ids) : NULL;
    for (size_t i = 0; i < n; i++)
        ids[i] = json_integer_value(json_array_get(list, i));
    out->conversations = ids;
    out->n_conversations = n;
    out->files = read_texts(json_object_get(object, "files"), &out->n_files);
    out->questions = read_texts(json_object_get(object, "questions"), &out->n_questions);
    return PF_OK;
}

bool train_request_equal(const train_request *a, const train_request *b)
{
    json_t *first = live_request_write(a), *second = live_request_write(b);
    buf first_text = {0}, second_text = {0};
    json_append(&first_text, first);
    json_append(&second_text, second);
    bool equal = strcmp(buf_str(&first_text), buf_str(&second_text)) == 0;
    wipe_buf(&first_text);
    wipe_buf(&second_text);
    json_decref(first);
    json_decref(second);
    return equal;
}

/* --- defaults -------------------------------------------------------------------------------- */

train_job_options live_request_options(const train_request *r, const train_dataset *d)
{
    bool direft = r->method == TRAIN_DIREFTP || r->method == TRAIN_DIREFT;
    bool prefill_only = r->method == TRAIN_LORAP || r->method == TRAIN_DIREFTP;
    bool facts = d && d->facts;
    double usual = !direft ? LORA_RATE : facts ? DIREFT_FACTS_RATE : DIREFT_RATE;
    double rate = r->rate > 0 ? r->rate : usual;
    train_job_options o = {.shape = {.direft = direft,
                                     .prefill_only = prefill_only,
                                     .rank = r->rank  ? r->rank
                                             : direft ? 64
                                                      : 8,
                                     .alpha = r->alpha,
                                     .seed = r->seed},
                           .optimizer = optimizer_defaults(rate),
                           .epochs = r->epochs ? r->epochs
                                     : facts   ? FACT_EPOCHS
                                               : EPOCHS,
                           .max_steps = r->steps,
                           .batch = r->batch ? r->batch : 4,
                           .seed = r->seed};
    o.optimizer.schedule = r->constant_rate ? RATE_CONSTANT : RATE_COSINE;
    o.optimizer.warmup_share = r->warmup ? *r->warmup : 0.05;
    o.optimizer.clip = r->clip ? *r->clip : 1;
    o.optimizer.orthonormal = r->orthonormal;
    if (r->checkpoint_steps >= 0)
        o.checkpoint_steps = r->checkpoint_steps ? r->checkpoint_steps : 20;
    return o;
}
