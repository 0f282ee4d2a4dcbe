/* JSON through jansson, with this program's rules: duplicate keys, bad UTF-8, trailing bytes, NaN
 * and numbers out of range are refused with the place. Values are reference counted (json_decref).
 */
#ifndef PF_BASE_JSON_H
#define PF_BASE_JSON_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Parses exactly one value of data[0..len) (white space around it is fine); *out is owned. name is
 * for messages (a path, "line 3 of x.jsonl"). */
pf_status json_parse(const char *data, size_t len, const char *name, json_t **out, pf_err *err);

/* Typed members of an object. A missing key keeps *out and returns PF_OK; a wrong type or a number
 * out of [low, high] is refused, naming the key. Borrowed strings live as long as object. */
pf_status json_get_string(const json_t *object, const char *key, const char **out, pf_err *err);
pf_status json_get_int(const json_t *object, const char *key, int64_t low, int64_t high,
                       int64_t *out, pf_err *err);
pf_status json_get_real(const json_t *object, const char *key, double low, double high, double *out,
                        pf_err *err);
pf_status json_get_bool(const json_t *object, const char *key, bool *out, pf_err *err);

/* Appends the compact text of value (UTF-8 kept, keys in insertion order, reals with 9 digits that
 * round-trip a float). */
void json_append(buf *out, const json_t *value);

#endif
