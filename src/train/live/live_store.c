#include "train/live/live_store.h"

#include "base/json.h"
#include "base/mem.h"
#include "profiles/notes.h"
#include "profiles/secret.h"
#include "train/live/live_request.h"

#include <stdlib.h>
#include <string.h>

#define KEEP_CHECKPOINTS 2

void live_note_free(live_note *n)
{
    live_request_free(&n->request);
    gathered_list_free(&n->used);
    json_decref(n->notes);
    wipe_text(n->made);
    *n = (live_note){0};
}

/* --- the note -------------------------------------------------------------------------------- */

pf_status live_note_take_notes(live_note *n, session *s, pf_err *err)
{
    note_list list = {0};
    n->notes = json_array();
    if (!s || n->request.facts == LEARN_NO_FACTS) return PF_OK;
    pf_status status = note_list_load(s, n->request.profile, &list, err);
    for (size_t i = 0; i < list.n; i++)
        if (list.items[i].state == NOTE_CONFIRMED)
            json_array_append_new(n->notes, json_pack("[I, I]", (json_int_t)list.items[i].id,
                                                      (json_int_t)list.items[i].revision));
    note_list_free(&list);
    return status;
}

/* The counts that the profile's record tells. */
typedef struct {
    const char *name;
    size_t at;
} count;
#define COUNT(name_, member)                                                                       \
    {                                                                                              \
        name_, offsetof(train_added, member)                                                       \
    }
static const count counts[] = {COUNT("facts", n_facts), COUNT("questions", n_pairs),
                               COUNT("replay", n_replayed), COUNT("distilled", n_distilled)};
#define N_COUNTS (sizeof counts / sizeof counts[0])

void live_added_write(const train_added *a, json_t *object)
{
    for (size_t i = 0; i < N_COUNTS; i++) {
        size_t n = *(const size_t *)(const void *)((const char *)a + counts[i].at);
        json_object_set_new(object, counts[i].name, json_integer((json_int_t)n));
    }
}

static pf_status read_added(const json_t *object, train_added *a, pf_err *err)
{
    pf_status status = PF_OK;
    for (size_t i = 0; i < N_COUNTS && status == PF_OK; i++) {
        int64_t n = 0;
        status = json_get_int(object, counts[i].name, 0, INT32_MAX, &n, err);
        *(size_t *)(void *)((char *)a + counts[i].at) = (size_t)n;
    }
    return status;
}

static json_t *write_note(const live_note *n)
{
    json_t *used = json_array(), *messages = json_array();
    for (size_t i = 0; i < n->used.n; i++) {
        const conversation_extent *c = &n->used.items[i];
        json_array_append_new(used, json_integer(c->id));
        json_array_append_new(
            messages, json_pack("[I, I]", (json_int_t)c->n_messages, (json_int_t)c->last_message));
    }
    json_t *added = json_object();
    live_added_write(&n->added, added);
    return json_pack("{s:o, s:o, s:o, s:O*, s:o, s:s*, s:I, s:I, s:b, s:I, s:I, s:s}", "request",
                     live_request_write(&n->request), "conversations", used, "messages", messages,
                     "notes", n->notes, "added", added, "made", n->made, "started_ms",
                     (json_int_t)n->started_ms, "former_version", (json_int_t)n->former_version,
                     "went_on", (int)n->went_on, "step", (json_int_t)n->step, "steps",
                     (json_int_t)n->n_steps, "base", n->base);
}

static pf_status read_note(const char *text, live_note *n, pf_err *err)
{
    json_t *object = NULL;
    const char *base = "", *made = NULL;
    pf_status status = json_parse(text, strlen(text), "the checkpoint's note", &object, err);
    if (status != PF_OK) return status;
    status = live_request_read(json_object_get(object, "request"), &n->request, err);
    const struct {
        const char *name;
        int64_t *out;
    } numbers[] = {{"started_ms", &n->started_ms},
                   {"former_version", &n->former_version},
                   {"step", &n->step},
                   {"steps", &n->n_steps}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == PF_OK; i++)
        status = json_get_int(object, numbers[i].name, 0, INT64_MAX, numbers[i].out, err);
    if (status == PF_OK) status = read_added(json_object_get(object, "added"), &n->added, err);
    if (status == PF_OK) status = json_get_bool(object, "went_on", &n->went_on, err);
    if (status == PF_OK) status = json_get_string(object, "base", &base, err);
    if (status == PF_OK) status = json_get_string(object, "made", &made, err);
    if (status == PF_OK && made) n->made = xstrdup(made);
    if (strlen(base) < sizeof n->base) memcpy(n->base, base, strlen(base) + 1);
    const json_t *used = json_object_get(object, "conversations");
    const json_t *messages = json_object_get(object, "messages");
    n->used.items = xcalloc(json_array_size(used) + 1, sizeof *n->used.items);
    for (; n->used.n < json_array_size(used); n->used.n++) {
        const json_t *extent = json_array_get(messages, n->used.n);
        n->used.items[n->used.n] =
            (conversation_extent){.id = json_integer_value(json_array_get(used, n->used.n)),
                                  .n_messages = json_integer_value(json_array_get(extent, 0)),
                                  .last_message = json_integer_value(json_array_get(extent, 1))};
    }
    n->notes = json_incref(json_object_get(object, "notes"));
    json_decref(object);
    return status;
}

/* --- saving and loading ---------------------------------------------------------------------- */

/* The note and the bytes of a checkpoint, see split. */
static void pack(const live_note *n, const buf *data, const buf *state, buf *text, buf *bytes)
{
    uint64_t data_len = data->len;
    json_t *note = write_note(n);
    json_append(text, note);
    json_decref(note);
    buf_append(bytes, &data_len, sizeof data_len);
    buf_append(bytes, data->data, data->len);
    buf_append(bytes, state->data, state->len);
}

pf_status live_checkpoint_begin(session *s, const live_note *n, const buf *data, int64_t *profile,
                                pf_err *err)
{
    static const buf no_state;
    buf bytes = {0}, text = {0};
    pack(n, data, &no_state, &text, &bytes);
    pf_status status =
        checkpoint_begin(s, n->made, buf_str(&text), bytes.data, bytes.len, profile, err);
    wipe_buf(&bytes);
    wipe_buf(&text);
    return status;
}

pf_status live_checkpoint_save(session *s, int64_t profile, const live_note *n, const buf *data,
                               const buf *state, bool next, pf_err *err)
{
    buf bytes = {0}, text = {0};
    pack(n, data, state, &text, &bytes);
    pf_status status = (next ? checkpoint_save_next : checkpoint_save)(
        s, profile, n->step, buf_str(&text), bytes.data, bytes.len, KEEP_CHECKPOINTS, err);
    wipe_buf(&bytes);
    wipe_buf(&text);
    return status;
}

/* Whether a version of the profile came of the training: it ended, and only the removal of its
 * checkpoints was cut off. */
static bool was_finished(session *s, int64_t profile, const live_note *n)
{
    profile_version_list list = {0};
    bool found = false;
    if (profile_versions_load(s, profile, &list, NULL) == PF_OK)
        for (size_t i = 0; i < list.n && !found; i++) {
            json_t *record = NULL;
            int64_t started = -1;
            const char *text = list.items[i].training;
            if (!text || !*text) continue;
            if (json_parse(text, strlen(text), "record", &record, NULL) == PF_OK &&
                json_get_int(record, "started_ms", 0, INT64_MAX, &started, NULL) == PF_OK)
                found = started == n->started_ms;
            json_decref(record);
        }
    profile_version_list_free(&list);
    return found;
}

static pf_status split(const buf *bytes, buf *data, buf *state, pf_err *err)
{
    uint64_t data_len = 0;
    if (bytes->len < sizeof data_len)
        return err_set(err, PF_REFUSED, "the checkpoint is too short");
    memcpy(&data_len, bytes->data, sizeof data_len);
    size_t left = bytes->len - sizeof data_len;
    if (data_len > left) return err_set(err, PF_REFUSED, "the checkpoint is too short");
    buf_append(data, bytes->data + sizeof data_len, (size_t)data_len);
    buf_append(state, bytes->data + sizeof data_len + data_len, left - (size_t)data_len);
    return PF_OK;
}

static pf_status read_checkpoint(session *s, int64_t profile, const checkpoint_info *c,
                                 live_note *n, buf *data, buf *state, pf_err *err)
{
    buf bytes = {0};
    pf_status status = read_note(c->note ? c->note : "", n, err);
    if (status == PF_OK && state) status = checkpoint_read(s, profile, c->id, &bytes, err);
    if (status == PF_OK && state) status = split(&bytes, data, state, err);
    if (status != PF_OK) live_note_free(n);
    wipe_buf(&bytes);
    return status;
}

pf_status live_checkpoint_load(session *s, int64_t profile, live_note *n, buf *data, buf *state,
                               int64_t *saved_ms, int64_t *lost_step, pf_err *err)
{
    checkpoint_list list = {0};
    pf_err older = {0};
    pf_status status = checkpoint_list_load(s, profile, &list, err);
    bool lost = status == PF_DAMAGED;
    size_t at = list.n;
    if (status != PF_OK && !(lost && at)) goto out;
    *lost_step = lost ? -1 : 0;
    status = at ? PF_DAMAGED : PF_NOT_FOUND;
    while (at > 0 && (status == PF_DAMAGED || status == PF_REFUSED)) {
        const bool newest = at == list.n;
        status =
            read_checkpoint(s, profile, &list.items[--at], n, data, state, newest ? err : &older);
        if (status != PF_OK && newest && !lost) *lost_step = list.items[at].step;
    }
    /* what is wrong with the newest one is told, unless something else is */
    if (status != PF_OK && status != PF_DAMAGED && status != PF_REFUSED && older.text[0] && err)
        *err = older;
    if (status == PF_NOT_FOUND || (status == PF_OK && was_finished(s, profile, n)))
        status = err_set(err, PF_NOT_FOUND, "there is no checkpoint of this profile to go on from");
    if (status != PF_OK) goto out;
    n->request.profile = profile;
    if (saved_ms) *saved_ms = list.items[at].created_ms;
out:
    checkpoint_list_free(&list);
    return status;
}
