#include "train/data/propose.h"

#include "base/mem.h"
#include "profiles/history.h"
#include "profiles/notes.h"
#include "train/data/facts.h"

#include <stdlib.h>
#include <string.h>

/* Whether a note says this already, in whatever words. */
static bool is_noted(const note_list *notes, const fact *found, int64_t profile)
{
    bool same = false;
    for (size_t i = 0; i < notes->n && !same; i++) {
        const note_info *note = &notes->items[i];
        fact f;
        if (note->profile && note->profile != profile) continue;
        if (!fact_read(span_of(note->text), true, &f)) continue;
        same = fact_same(&f, found);
        fact_free(&f);
    }
    return same;
}

static void find_in(const conversation *c, fact_list *found)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->messages[i].role == HISTORY_USER)
            fact_list_find(found, (span){c->messages[i].text, c->messages[i].len}, c->info.id);
}

/* Saves what one profile's conversations state. */
static pf_status save_found(session *s, const fact_list *found, int64_t profile, size_t *n,
                            pf_err *err)
{
    note_list notes = {0};
    pf_status status = note_list_load(s, profile, &notes, err);
    for (size_t i = 0; i < found->n && status == PF_OK; i++) {
        const fact_found *f = &found->items[i];
        const note_info note = {.profile = profile,
                                .text = f->fact.note,
                                .state = NOTE_PROPOSED,
                                .conversation = f->conversation};
        if (is_noted(&notes, &f->fact, profile)) continue;
        status = note_add(s, &note, NULL, err);
        ++*n;
    }
    note_list_free(&notes);
    return status;
}

/* The statements of the profile's conversations among those of the list. */
static pf_status propose_for(session *s, const conversation_list *list, int64_t profile, size_t *n,
                             pf_err *err)
{
    fact_list found = {0};
    pf_status status = PF_OK;
    for (size_t i = list->n; i-- > 0 && status == PF_OK;) { /* oldest first */
        conversation c = {0};
        if (list->items[i].profile != profile) continue;
        status = conversation_load(s, list->items[i].id, &c, err);
        if (status == PF_OK) find_in(&c, &found);
        conversation_free(&c);
    }
    if (status == PF_OK) status = save_found(s, &found, profile, n, err);
    fact_list_free(&found);
    return status;
}

pf_status notes_propose(session *s, int64_t profile, size_t *n, pf_err *err)
{
    conversation_list list = {0};
    size_t added = 0;
    pf_status status = conversation_list_load(s, profile, 0, 0, &list, err);
    for (size_t i = 0; i < list.n && status == PF_OK; i++) {
        bool done = false;
        for (size_t k = 0; k < i && !done; k++)
            done = list.items[k].profile == list.items[i].profile;
        if (!done) status = propose_for(s, &list, list.items[i].profile, &added, err);
    }
    conversation_list_free(&list);
    if (n) *n = added;
    return status;
}
