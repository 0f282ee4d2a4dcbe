#include "profiles/profile_settings.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "profiles/secret.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum { TEXT, REAL, WHOLE } member_kind;

static const struct {
    const char *name;
    member_kind kind;
    size_t offset;
    double low, high;
} members[] = {
    {"system", TEXT, offsetof(profile_settings, system), 0, 0},
    {"positions", TEXT, offsetof(profile_settings, positions), 0, 0},
    {"temperature", REAL, offsetof(profile_settings, temperature), 0, 100},
    {"top_p", REAL, offsetof(profile_settings, top_p), 0, 1},
    {"min_p", REAL, offsetof(profile_settings, min_p), 0, 1},
    {"repeat_penalty", REAL, offsetof(profile_settings, repeat_penalty), 0, 100},
    {"top_k", WHOLE, offsetof(profile_settings, top_k), 0, 1e6},
    {"repeat_last", WHOLE, offsetof(profile_settings, repeat_last), 0, 1e6},
    {"max_tokens", WHOLE, offsetof(profile_settings, max_tokens), 1, 1e7},
    {"seed", WHOLE, offsetof(profile_settings, seed), 0, 9007199254740992.0},
};
#define N_MEMBERS (sizeof members / sizeof *members)

static char **text_of(profile_settings *s, size_t i)
{
    return (char **)(void *)((char *)s + members[i].offset);
}

static double *real_of(profile_settings *s, size_t i)
{
    return (double *)(void *)((char *)s + members[i].offset);
}

static int64_t *whole_of(profile_settings *s, size_t i)
{
    return (int64_t *)(void *)((char *)s + members[i].offset);
}

profile_settings profile_settings_none(void)
{
    return (profile_settings){.temperature = -1,
                              .top_p = -1,
                              .min_p = -1,
                              .repeat_penalty = -1,
                              .top_k = -1,
                              .repeat_last = -1,
                              .max_tokens = -1,
                              .seed = -1};
}

void profile_settings_free(profile_settings *s)
{
    wipe_text(s->system);
    wipe_text(s->positions);
    *s = profile_settings_none();
}

static bool positions_known(const char *name)
{
    return strcmp(name, "turns") == 0 || strcmp(name, "prompt") == 0 || strcmp(name, "all") == 0 ||
           strcmp(name, "none") == 0;
}

static size_t find_member(const char *name)
{
    size_t i = 0;
    while (i < N_MEMBERS && strcmp(members[i].name, name) != 0)
        i++;
    return i;
}

static pf_status set_text(profile_settings *s, size_t i, const char *value, pf_err *err)
{
    if (strcmp(members[i].name, "positions") == 0 && !positions_known(value))
        return err_set(err, PF_REFUSED,
                       "\"positions\" is \"%s\"; it must be turns, prompt, all or none", value);
    if (!utf8_valid(value, strlen(value)))
        return err_set(err, PF_REFUSED, "\"%s\" is not valid UTF-8", members[i].name);
    wipe_text(*text_of(s, i));
    *text_of(s, i) = xstrdup(value);
    return PF_OK;
}

static pf_status set_number(profile_settings *s, size_t i, double value, pf_err *err)
{
    if (!(value >= members[i].low && value <= members[i].high))
        return err_set(err, PF_REFUSED, "\"%s\" is %g; it must be in [%g, %g]", members[i].name,
                       value, members[i].low, members[i].high);
    if (members[i].kind == WHOLE && value != floor(value))
        return err_set(err, PF_REFUSED, "\"%s\" must be a whole number", members[i].name);
    if (members[i].kind == REAL)
        *real_of(s, i) = value;
    else
        *whole_of(s, i) = (int64_t)value;
    return PF_OK;
}

static pf_status take_member(profile_settings *s, const char *name, const json_t *value,
                             pf_err *err)
{
    size_t i = find_member(name);
    if (i == N_MEMBERS) return err_set(err, PF_REFUSED, "\"%s\" is no setting of a profile", name);
    if (members[i].kind == TEXT)
        return json_is_string(value) ? set_text(s, i, json_string_value(value), err)
                                     : err_set(err, PF_REFUSED, "\"%s\" must be a string", name);
    return json_is_number(value) ? set_number(s, i, json_number_value(value), err)
                                 : err_set(err, PF_REFUSED, "\"%s\" must be a number", name);
}

pf_status profile_settings_parse(const char *json, profile_settings *out, pf_err *err)
{
    json_t *object = NULL;
    const char *name = NULL;
    json_t *value = NULL;
    *out = profile_settings_none();
    if (!json || !*json) return PF_OK;
    pf_status status = json_parse(json, strlen(json), "the profile's settings", &object, err);
    if (status == PF_OK && !json_is_object(object))
        status = err_set(err, PF_REFUSED, "the profile's settings must be a JSON object");
    if (status == PF_OK) {
        json_object_foreach(object, name, value)
        {
            status = take_member(out, name, value, err);
            if (status != PF_OK) break;
        }
    }
    json_decref(object);
    if (status != PF_OK) profile_settings_free(out);
    return status;
}

char *profile_settings_write(const profile_settings *s)
{
    profile_settings copy = *s; /* for the accessors, which give places to write to */
    json_t *object = json_object();
    buf text = {0};
    for (size_t i = 0; i < N_MEMBERS; i++) {
        json_t *value = NULL;
        if (members[i].kind == TEXT && *text_of(&copy, i))
            value = json_string(*text_of(&copy, i));
        else if (members[i].kind == REAL && *real_of(&copy, i) >= 0)
            value = json_real(*real_of(&copy, i));
        else if (members[i].kind == WHOLE && *whole_of(&copy, i) >= 0)
            value = json_integer(*whole_of(&copy, i));
        if (value) json_object_set_new(object, members[i].name, value);
    }
    json_append(&text, object);
    json_decref(object);
    return buf_take(&text);
}

static pf_status known_settings(const char *key, pf_err *err)
{
    buf names = {0};
    for (size_t i = 0; i < N_MEMBERS; i++)
        buf_printf(&names, "%s%s", i ? ", " : "", members[i].name);
    pf_status status =
        err_set(err, PF_USAGE, "there is no setting \"%s\"; there are %s", key, buf_str(&names));
    buf_free(&names);
    return status;
}

pf_status profile_settings_set(profile_settings *s, const char *key, const char *value, pf_err *err)
{
    size_t i = find_member(key);
    pf_status status = PF_OK;
    if (i == N_MEMBERS) return known_settings(key, err);
    const bool none = !value || (!*value && strcmp(key, "system") != 0);
    if (members[i].kind == TEXT && none) {
        wipe_text(*text_of(s, i));
        *text_of(s, i) = NULL;
    } else if (members[i].kind == TEXT) {
        status = set_text(s, i, value, err);
    } else if (none) {
        if (members[i].kind == REAL)
            *real_of(s, i) = -1;
        else
            *whole_of(s, i) = -1;
    } else {
        char *end = NULL;
        errno = 0;
        double number = strtod(value, &end);
        if (errno != 0 || *end || !isfinite(number))
            return err_set(err, PF_USAGE, "%s must be a number, not \"%s\"", key, value);
        status = set_number(s, i, number, err);
    }
    if (status != PF_OK && err) err->status = PF_USAGE;
    return status == PF_OK ? PF_OK : PF_USAGE;
}
