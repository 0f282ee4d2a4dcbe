/* The settings of a profile, parsed from and written as JSON. */
#ifndef PF_PROFILES_PROFILE_SETTINGS_H
#define PF_PROFILES_PROFILE_SETTINGS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Members of the JSON object have these names. "Not set" leaves the choice to the program. */
typedef struct {
    char *system;    /* system text; NULL: not set (the model's own), "": none */
    char *positions; /* "turns", "prompt", "all", "none"; NULL: not set (by the adapter's kind) */
    /* Sampling; below 0: not set. temperature 0 is greedy; 0 turns the others off. */
    double temperature, top_p, min_p, repeat_penalty;
    int64_t top_k, repeat_last;
    int64_t max_tokens; /* of an answer; below 0: not set */
    int64_t seed;       /* below 0: not set (a new one each time) */
} profile_settings;

profile_settings profile_settings_none(void); /* nothing set */
/* PF_REFUSED names an unknown member or one that is out of range. json "" or NULL: nothing set. */
pf_status profile_settings_parse(const char *json, profile_settings *out, pf_err *err);
char *profile_settings_write(const profile_settings *s); /* JSON of what is set; owned */
/* Sets one by its name from text, as typed; value "" or NULL: not set any more (for the system text
 * only NULL: "" means none). PF_USAGE. */
pf_status profile_settings_set(profile_settings *s, const char *key, const char *value,
                               pf_err *err);
void profile_settings_free(profile_settings *s);

#endif
