/* Notes: what users tell the program about themselves ("My dog is called Biscuit."), typed or found
 * in their own messages and confirmed. Training makes questions and answers of the confirmed ones
 * (train/data/facts.h). Sealed like everything of a user. See store.h for threads, ownership and
 * statuses. */
#ifndef PF_PROFILES_NOTES_H
#define PF_PROFILES_NOTES_H

#include "profiles/user.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NOTE_MAX_BYTES 2000

typedef enum {
    NOTE_PROPOSED,  /* found in a message, not confirmed yet */
    NOTE_CONFIRMED, /* typed by the user, or found and confirmed: learned from */
    NOTE_REFUSED    /* found, and rejected by the user: not to be proposed again */
} note_state;
const char *note_state_name(note_state state); /* "proposed", "confirmed", "refused" */

/* As an argument text is borrowed, and only the marked members count. */
typedef struct {
    int64_t id;           /* set by the store; never reused */
    int64_t profile;      /* * whose training uses it; 0: every profile's of the user */
    char *text;           /* * one sentence or several, in the user's words, valid UTF-8 */
    note_state state;     /* * */
    int64_t conversation; /* * where it was found; 0: typed */
    int64_t created_ms, updated_ms;
    int64_t revision; /* another one when it was changed */
} note_info;

typedef struct {
    note_info *items; /* oldest first */
    size_t n;
} note_list;

/* profile -1: all notes of the user; otherwise those of this profile and those of every profile.
 * A note whose profile was removed counts as one of every profile. */
pf_status note_list_load(session *s, int64_t profile, note_list *out, pf_err *err);
void note_list_free(note_list *list);

/* Adds a note; white space around the text is dropped. The same text (letters in either case)
 * under the same profile is kept once: then *id is that note's, its state becomes the new one
 * unless the new one is NOTE_PROPOSED. id may be NULL. PF_USAGE: empty, too long, not UTF-8, with
 * control characters, or an unknown profile. */
pf_status note_add(session *s, const note_info *note, int64_t *id, pf_err *err);

/* Changes the text (NULL: unchanged) and the state. Checkpoints of unfinished trainings that learn
 * from it as it was are deleted, here and in note_remove. */
pf_status note_update(session *s, int64_t id, const char *text, note_state state, pf_err *err);

/* Really deletes it. PF_NOT_FOUND. */
pf_status note_remove(session *s, int64_t id, pf_err *err);

#endif
