/* Secrets: short texts (passphrases, recovery keys) in guarded, locked memory that is wiped when
 * freed; and wiping for ordinary memory that held private text. */
#ifndef PF_PROFILES_SECRET_H
#define PF_PROFILES_SECRET_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

#define SECRET_MAX 1024 /* bytes a passphrase may have */

typedef struct {
    char *data; /* cap + 1 bytes; always NUL-terminated */
    size_t len, cap;
} secret;

secret *secret_new(size_t cap); /* empty; die() when out of memory */
secret *secret_from(const void *data, size_t len);
bool secret_append(secret *s, const void *data, size_t len); /* false: full, nothing added */
void secret_truncate(secret *s, size_t len);         /* wipes what is cut off; for backspace */
bool secret_equal(const secret *a, const secret *b); /* constant time in the content */
void secret_free(secret *s);                         /* wipes; NULL is fine */

/* Overwrites and frees; ptr may be NULL. wipe_text: up to the NUL. */
void wipe_free(void *ptr, size_t len);
void wipe_text(char *text);
void wipe_buf(buf *b); /* the whole capacity, then buf_free */

#endif
