/* Names of users and profiles.
 *
 * A name is composed first (NFC); it then has 1..64 characters and at most 200 bytes, doesn't begin
 * or end with a blank and has no two blanks in a row (the only blank is U+0020). Refused are:
 * control, unassigned, private and invisible characters (zero width, direction marks, variation
 * selectors, fillers); "/"; a first character "." or "-"; letters of scripts that are not written
 * together (Latin with Cyrillic, say). User names have letters, marks, digits, blanks and - _ . '
 * only; profile names also other visible characters, but the words "base" and "none" are reserved.
 *
 * Two names are the same when their keys are: compatibility forms, case and look-alike letters of
 * other scripts are folded (Eva, eva, EVA; Cyrillic "сор" and Latin "cop"). */
#ifndef PF_PROFILES_NAME_H
#define PF_PROFILES_NAME_H

#include "base/err.h"

#define NAME_MAX_CHARS 64
#define NAME_MAX_BYTES 200

typedef enum { NAME_USER, NAME_PROFILE } name_kind;

/* Checks name and gives its composed form and its key, both owned (free). PF_USAGE tells the rule
 * that refuses it; nothing is given then. */
pf_status name_check(name_kind kind, const char *name, char **composed, char **key, pf_err *err);

/* The key alone, for looking up: NULL if no valid name could have it. Owned. */
char *name_key(const char *name);

#endif
