/* profile words: what a profile's records say, in words for people. Private to ui/. */
#ifndef PF_UI_PROFILE_WORDS_H
#define PF_UI_PROFILE_WORDS_H

#include "profiles/profile.h"
#include "ui/window.h"

/* What the record of a version says; what it does not say is NAN, 0 or NULL. */
typedef struct {
    double loss, loss_before, held_out, held_out_before, seconds;
    int64_t examples, tokens, steps;
    char *source;  /* "34 answers", "letters.jsonl", "imported": clean, owned */
    float *losses; /* [n_losses]; owned */
    size_t n_losses;
} version_record;

void version_record_read(const profile_version *v, version_record *out);
void version_record_free(version_record *r);

/* "lorap r16  from 34 answers  12 Nov  loss 1.31" */
void profile_line(const app *a, const profile_info *info, buf *out);
void version_line(const app *a, const profile_version *v, buf *out);
/* "12 Nov 2026 19:02"; a script's time is its own. */
void profile_date(const app *a, int64_t unix_ms, bool with_time, buf *out);
/* "1.2 MB" */
void profile_size(uint64_t bytes, buf *out);

#endif
