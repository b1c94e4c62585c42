#include "workers/job/job_keys.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- unknown keys -------------------------------------------------------------------------------- */

/* Letters to change to make one word the other. Words are at most 63 long here. */
static int distance(const char *a, const char *b)
{
    int row[64], n = (int)strnlen(b, 63);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; *a && i < 64; i++, a++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = diagonal + (*a != b[j - 1]);
            diagonal = row[j];
            row[j] = SY_MIN(change, SY_MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

bool sy_job_keys_has(const struct key *key, int variant)
{
    uint32_t variants = key->flags & ~KEY_NEEDED;
    return !variants || variants & KEY_OF(variant);
}

static const struct key *find_key(const struct key *keys, size_t n, const char *section,
                                  int variant, const char *name, const char **nearest)
{
    int best = INT_MAX;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(keys[i].section, section) || !sy_job_keys_has(&keys[i], variant))
            continue;
        int d = distance(name, keys[i].name);
        if (d == 0)
            return &keys[i];
        if (d < best) {
            best = d;
            *nearest = keys[i].name;
        }
    }
    return NULL;
}

/* "section.name", for messages: "%s%s%s" of section, this, name. */
static const char *dot_of(const char *section)
{
    return *section ? "." : "";
}

int sy_job_keys_check(const struct key *keys, size_t n, const char *section, int variant,
                      const json_t *object)
{
    const char *name, *nearest = "", *dot = dot_of(section);
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (!find_key(keys, n, section, variant, name, &nearest))
            return sy_error_set(SY_EARG, "job: unknown key '%s%s%s'; did you mean '%s%s%s'?",
                                section, dot, name, section, dot, nearest);
    }
    return SY_OK;
}

/* ---- values -------------------------------------------------------------------------------------- */

static int refuse(const struct key *key, const char *wanted)
{
    return sy_error_set(SY_EARG, "job: '%s%s%s' must be %s", key->section, dot_of(key->section),
                        key->name, wanted);
}

static int copy_text(const struct key *key, const json_t *value, char **out)
{
    *out = strdup(json_string_value(value));
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "job: no room for '%s'", key->name);
}

static int take_text(const struct key *key, const json_t *value, char **out)
{
    if (!json_is_string(value) || !*json_string_value(value))
        return refuse(key, "a text");
    return out ? copy_text(key, value, out) : SY_OK;
}

static int take_texts(const struct key *key, const json_t *value, char ***out)
{
    size_t n = json_array_size(value);
    for (size_t i = 0; i < n; i++)
        if (!json_is_string(json_array_get(value, i)))
            return refuse(key, "a list of texts");
    if (n == 0)
        return refuse(key, "a list of texts, at least one");
    *out = calloc(n + 1, sizeof **out);
    SY_TRY_ALLOC(*out, "job: no room for '%s'", key->name);
    for (size_t i = 0; i < n; i++)
        SY_TRY(copy_text(key, json_array_get(value, i), &(*out)[i]));
    return SY_OK;
}

static int check_number(const struct key *key, const json_t *value)
{
    char wanted[128];
    double number = json_number_value(value);
    bool is_count = key->kind == KIND_COUNT;
    if (json_is_number(value) && number >= key->low && number <= key->high &&
        (!is_count || json_is_integer(value)))
        return SY_OK;
    snprintf(wanted, sizeof wanted, "a %s from %g to %g", is_count ? "whole number" : "number",
             key->low, key->high);
    return refuse(key, wanted);
}

static int take_value(const struct key *key, const json_t *value, void *at)
{
    switch (key->kind) {
    case KIND_OWN:
        return SY_OK;
    case KIND_OBJECT:
        return json_is_object(value) ? SY_OK : refuse(key, "an object in braces");
    case KIND_TEXT:
    case KIND_PATH:
        return take_text(key, value, at);
    case KIND_TEXTS:
        return take_texts(key, value, at);
    case KIND_FLAG:
        if (!json_is_boolean(value))
            return refuse(key, "true or false");
        if (at)
            *(bool *)at = json_is_true(value);
        return SY_OK;
    case KIND_COUNT:
        SY_TRY(check_number(key, value));
        if (at)
            *(uint64_t *)at = (uint64_t)json_integer_value(value);
        return SY_OK;
    case KIND_NUMBER:
        SY_TRY(check_number(key, value));
        if (at)
            *(double *)at = json_number_value(value);
        return SY_OK;
    }
    return SY_OK;
}

int sy_job_keys_take(const struct key *key, const json_t *value, void *to)
{
    void *at = key->offset == SIZE_MAX ? NULL : (char *)to + key->offset;
    if (value)
        return take_value(key, value, at);
    if (key->flags & KEY_NEEDED)
        return sy_error_set(SY_EARG, "job: '%s%s%s' is missing", key->section, dot_of(key->section),
                            key->name);
    if (!at)
        return SY_OK;
    if (key->kind == KIND_COUNT)
        *(uint64_t *)at = (uint64_t)key->otherwise;
    else if (key->kind == KIND_NUMBER)
        *(double *)at = key->otherwise;
    else if (key->kind == KIND_FLAG)
        *(bool *)at = key->otherwise != 0.0;
    return SY_OK;
}

void sy_job_keys_free(const struct key *keys, size_t n, void *from)
{
    for (size_t i = 0; i < n; i++) {
        if (keys[i].offset == SIZE_MAX)
            continue;
        void *at = (char *)from + keys[i].offset;
        if (keys[i].kind == KIND_TEXT || keys[i].kind == KIND_PATH) {
            free(*(char **)at);
            *(char **)at = NULL; /* two keys of different variants may share a place */
        } else if (keys[i].kind == KIND_TEXTS && *(char ***)at) {
            for (char **text = *(char ***)at; *text; text++)
                free(*text);
            free(*(char ***)at);
            *(char ***)at = NULL;
        }
    }
}

int sy_job_keys_choose(const char *section, const char *name, const json_t *value,
                       const char *const *words, int *out)
{
    char known[256] = "";
    const char *text = json_string_value(value);
    *out = 0;
    if (!value)
        return SY_OK;
    for (int i = 0; words[i]; i++) {
        if (text && !strcmp(words[i], text)) {
            *out = i;
            return SY_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s'%s'", i ? ", " : "", words[i]);
    }
    return sy_error_set(SY_EARG, "job: '%s%s%s' is '%s'; known: %s", section, dot_of(section), name,
                        text ? text : "no text", known);
}
