/* transcript: what was said in a pane, as it is shown. Texts are made harmless when they come in;
 * wrapped lines are cached per message and only the tail of a growing answer is wrapped again, so
 * a token costs the same in a long answer as in a short one. Only what is visible is wrapped, so a
 * long conversation opens at once.
 *
 * The view either follows the end or stands where the reader put it: the top line then stays the
 * same text while text arrives below, and after a resize. */
#ifndef PF_UI_TRANSCRIPT_H
#define PF_UI_TRANSCRIPT_H

#include "ui/grid.h"
#include "ui/text.h"

typedef enum {
    ENTRY_YOU,    /* the person's message: a line with speaker and time above */
    ENTRY_ANSWER, /* the model's answer */
    ENTRY_NOTICE, /* said by the program, not part of the conversation */
    ENTRY_ERROR
} entry_kind;

typedef struct {
    entry_kind kind;
    char time[8]; /* "19:02" or empty */
    buf text;     /* clean */
    text_cleaner cleaner;
    text_lines lines;
} transcript_entry;

typedef struct {
    transcript_entry *entries;
    size_t len, cap;
    bool reading;      /* stands at top_*; else follows the end */
    size_t top;        /* entry of the first visible row */
    int top_row;       /* row in it */
    size_t top_byte;   /* the text there, to find it again after a resize */
    bool new_text;     /* something arrived below while reading */
    int width, height; /* of the last drawing */
} transcript;

void transcript_free(transcript *t); /* wipes the texts; zeroed again */

/* Adds an entry and returns its index. time may be NULL. */
size_t transcript_add(transcript *t, entry_kind kind, const char *time, const char *text,
                      size_t len);
/* Appends to the last-added entries' text: a token of an answer. */
void transcript_append(transcript *t, size_t entry, const char *text, size_t len);
/* No more text comes for it. */
void transcript_finish(transcript *t, size_t entry);

/* Puts a notice in front of an entry, whose index (and those after it) grows by one. */
void transcript_insert_notice(transcript *t, size_t before, const char *text);
/* The last n entries go. */
void transcript_remove_last(transcript *t, size_t n);

/* Scrolls by rows (negative: up). Reaching the end follows it again. */
void transcript_scroll(transcript *t, int rows);
void transcript_to_start(transcript *t);
void transcript_to_end(transcript *t);
/* The reader stands at the beginning of an entry. */
void transcript_to_entry(transcript *t, size_t entry);

/* busy: a mark that is drawn behind the last entry's text ("" for none). */
void transcript_draw(transcript *t, area a, const char *busy);

#endif
