/* transcript: what was said in a pane, as it is shown. Answers are shown as Markdown or as they
 * were written. Texts are made harmless and laid out when they come into view and not before, so a
 * long conversation opens at once; of a growing answer only the tail is laid out again, so a token
 * costs the same in a long answer as in a short one.
 *
 * The view either follows the end or stands where the reader put it: the top line then stays the
 * same text while text arrives below, and after a resize. */
#ifndef PF_UI_TRANSCRIPT_H
#define PF_UI_TRANSCRIPT_H

#include "ui/grid.h"
#include "ui/markdown.h"
#include "ui/text.h"

typedef enum {
    ENTRY_YOU,    /* the person's message: a line with speaker and time above */
    ENTRY_ANSWER, /* the model's answer: Markdown */
    ENTRY_NOTICE, /* said by the program, not part of the conversation */
    ENTRY_ERROR
} entry_kind;

typedef struct {
    entry_kind kind;
    char time[8];    /* "19:02" or empty */
    int64_t message; /* in the store; 0: none (a notice, an answer under way) */
    size_t turn;     /* the caller's: which of the conversation's messages it is */
    bool annotated;  /* note and details are up to date */
    buf raw;         /* as it came in and not looked at yet */
    buf text;        /* clean */
    bool whole;      /* no more text comes */
    char *note;      /* at the right below it: "‹2/3›  good ✓"; owned, NULL: none */
    char *details;   /* below it when details are shown; owned, NULL: none */
    text_cleaner cleaner;
    text_lines lines;   /* as written */
    markdown *rendered; /* as Markdown; made when needed */
} transcript_entry;

#define TRANSCRIPT_NONE ((size_t)-1)

typedef struct {
    transcript_entry *entries;
    size_t len, cap;
    bool as_written;   /* answers without Markdown */
    bool details;      /* shown */
    bool selecting;    /* `selected` is marked */
    size_t selected;   /* an entry */
    bool reading;      /* stands at top_*; else follows the end */
    size_t top;        /* entry of the first visible row */
    int top_row;       /* row in it */
    size_t top_byte;   /* the text there, to find it again after a resize */
    bool new_text;     /* something arrived below while reading */
    int width, height; /* of the last drawing */
    /* Optional: makes note and details of an entry with a message, when it comes into view. */
    void (*annotate)(void *ctx, size_t entry);
    void *annotate_ctx;
    size_t laid_out; /* entries laid out from their start so far: what opening and scrolling cost */
} transcript;

/* Wipes the texts. Nothing is left but how texts are shown (as_written, details, annotate). */
void transcript_clear(transcript *t);
void transcript_free(transcript *t); /* wipes the texts; zeroed again */

/* Adds an entry and returns its index. time may be NULL. An answer may still grow. */
size_t transcript_add(transcript *t, entry_kind kind, const char *time, const char *text,
                      size_t len);
/* Appends to the last-added entries' text: a token of an answer. */
void transcript_append(transcript *t, size_t entry, const char *text, size_t len);
/* No more text comes for it. */
void transcript_finish(transcript *t, size_t entry);
/* Note and details of an entry have changed: annotate is called again. */
void transcript_changed(transcript *t, size_t entry);
/* What stands below an entry, clean; copied, NULL or "": nothing. */
void transcript_annotate(transcript *t, size_t entry, const char *note, const char *details);

/* Puts a notice in front of an entry, whose index (and those after it) grows by one. */
void transcript_insert_notice(transcript *t, size_t before, const char *text);

/* Answers as Markdown or as they were written; details shown or not. The reader's place stays. */
void transcript_show_as_written(transcript *t, bool as_written);
void transcript_show_details(transcript *t, bool details);
/* Marks an entry and brings it into view; TRANSCRIPT_NONE: no mark. */
void transcript_select(transcript *t, size_t entry);
/* The entry at a row of the last drawing; TRANSCRIPT_NONE below the last. */
size_t transcript_at(transcript *t, int y);

/* Scrolls by rows (negative: up). Reaching the end follows it again. */
void transcript_scroll(transcript *t, int rows);
void transcript_to_start(transcript *t);
void transcript_to_end(transcript *t);
/* The reader stands at the beginning of an entry. */
void transcript_to_entry(transcript *t, size_t entry);

/* busy: a mark that is drawn behind an answer that is not whole, also when something was said after
 * it ("" for none). */
void transcript_draw(transcript *t, area a, const char *busy);

#endif
