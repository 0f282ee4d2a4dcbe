/* Damaged files for tests: a valid file and what is known of its parts, changed at a few places.
 * The same seed gives the same changes. */
#ifndef PF_TESTS_MUTATE_H
#define PF_TESTS_MUTATE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t state;
} mutate_random;

uint64_t mutate_bits(mutate_random *r);
size_t mutate_below(mutate_random *r, size_t n); /* 0 for n = 0 */

/* What lies at a place of a file, and so what is done to it. */
typedef enum {
    PART_LITTLE, /* an integer, little-endian: 0, -1, the largest, one more, the file's size... */
    PART_BIG,    /* likewise, big-endian */
    PART_VALUE,  /* text of a value: another type, huge, nested deeply, no UTF-8... */
    PART_ENTRY,  /* one of several like it: left out, doubled, exchanged with another */
    PART_HEADER, /* text whose length the integer at the file's beginning states */
    PART_PADDING /* zeros, that what follows keeps its alignment */
} part_kind;

typedef struct {
    part_kind kind;
    size_t at, len;
    size_t count_at; /* PART_ENTRY: where a u64 counts them; 0: nowhere */
    char separator;  /* PART_ENTRY: what stands between two of them; 0: nothing */
} file_part;

/* A file's bytes with its parts. Zeroed = empty. */
typedef struct {
    buf bytes;
    file_part *parts;
    size_t n_parts;
} mutate_file;

void mutate_add_part(mutate_file *f, file_part part);
void mutate_copy(const mutate_file *from, mutate_file *to);
void mutate_free(mutate_file *f);

/* Changes one to four places; now and then lengths and paddings are made to fit again, so that
 * readers come further. */
void mutate_damage(mutate_file *f, mutate_random *r);

/* Finding the parts of a valid file, whose bytes are set. */
void parts_of_json(mutate_file *f);
void parts_of_json_lines(mutate_file *f);
void parts_of_safetensors(mutate_file *f);
void parts_of_gguf(mutate_file *f);
void parts_of_lines(mutate_file *f);  /* text: lines, and what follows `=` or a blank in them */
void parts_of_sqlite(mutate_file *f); /* the file's header, pages and the headers of pages */

#endif
