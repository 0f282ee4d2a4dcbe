/* The content of a sealed row: a list of fields (number, length, bytes). Absent numbers read as 0,
 * absent texts as "". Internal to profiles/. */
#ifndef PF_PROFILES_RECORD_H
#define PF_PROFILES_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A record being written; zeroed = empty. Grows without leaving copies behind. */
typedef struct {
    unsigned char *data;
    size_t len, cap;
} record_writer;
void record_put(record_writer *w, unsigned field, const void *data, size_t len);
void record_put_text(record_writer *w, unsigned field, const char *text); /* NULL: left out */
void record_put_int(record_writer *w, unsigned field, int64_t number);    /* 0: left out */
void record_free(record_writer *w);                                       /* wiped */

/* A record being read: borrowed bytes. */
typedef struct {
    const unsigned char *data;
    size_t len;
} record;
bool record_valid(const record *r); /* lengths are right to the end */
/* false: absent (then *len = 0). */
bool record_get(const record *r, unsigned field, const void **data, size_t *len);
char *record_get_text(const record *r, unsigned field); /* owned; wipe_text */
int64_t record_get_int(const record *r, unsigned field);

#endif
