/* Output helpers shared by commands. */
#ifndef PF_COMMANDS_PRINT_H
#define PF_COMMANDS_PRINT_H

#include "base/json.h"

#include <stdint.h>
#include <stdio.h>

/* Prints one line of compact JSON and drops the reference. */
void print_json(json_t *value);
/* "2024-05-06 07:08" in local time; out has at least 20 bytes. */
const char *print_time(int64_t unix_ms, char out[20]);
/* Text of others (files, models, users) for the terminal: control characters but tab and line feed,
 * which begin escape sequences, and ill-formed bytes as "?". */
void print_plain(const char *text); /* to standard output */
void print_plain_to(FILE *to, const char *text, size_t len);

#endif
