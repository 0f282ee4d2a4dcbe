/* Small things that commands print alike. */
#ifndef PF_COMMANDS_PRINT_H
#define PF_COMMANDS_PRINT_H

#include "base/json.h"

#include <stdint.h>
#include <stdio.h>

/* Prints one line of compact JSON and drops the reference. */
void print_json(json_t *value);
/* "2024-05-06 07:08" in local time; out has at least 20 bytes. */
const char *print_time(int64_t unix_ms, char out[20]);
/* Text of others for the terminal: control characters (escape sequences) as "?". */
void print_plain(const char *text);

#endif
