#include "runtime/front/request/trace_settings.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/core/core.h"

#define MOST_MODELS  4096
#define USUAL_RATE   1000
#define NO_END       (-1)
#define UINT32_LIMIT 4294967295ll

/* X(field, name in JSON, least, most) of those that are numbers */
#define NUMBER_TABLE(X)                        \
    X(rate, "trace_rate", 0, UINT32_LIMIT)     \
    X(count, "trace_count", NO_END, INT32_MAX) \
    X(frequency, "log_frequency", 0, UINT32_LIMIT)

enum number {
#define X(field, name, least, most) NUMBER_##field,
    NUMBER_TABLE(X)
#undef X
        N_NUMBERS
};

static const struct {
    const char *name;
    int64_t least, most;
} numbers[N_NUMBERS] = {
#define X(field, name, least, most) {name, least, most},
    NUMBER_TABLE(X)
#undef X
};

/* Settings that were given; unset ones inherit from the global settings. */
struct given {
    bool has_level, is_on;
    bool has[N_NUMBERS];
    int64_t of[N_NUMBERS];
};

struct entry {
    char model[SY_CORE_MODEL_NAME]; /* "": all others */
    struct given given;
    uint64_t n_seen;
    int64_t n_left; /* of trace_count; NO_END */
    double due;     /* parts of requests, by the ratio */
};

struct sy_trace_settings {
    struct given usual;
    double ratio;
    struct entry *entries; /* the first is the global one */
    int n;
};

int sy_trace_settings_create(bool is_on, double ratio, struct sy_trace_settings **out)
{
    struct sy_trace_settings *settings = calloc(1, sizeof *settings);

    if (settings)
        settings->entries = calloc(1, sizeof *settings->entries);
    if (!settings || !settings->entries) {
        free(settings);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for trace settings");
    }
    int64_t rate = !is_on ? USUAL_RATE : ratio > 0 ? (int64_t)fmin(1 / ratio + 0.5, 4e9) : 0;
    settings->usual = (struct given){
        .has_level = true, .is_on = is_on, .has = {true, true, true}, .of = {rate, NO_END, 0}};
    settings->ratio = is_on ? ratio : 0;
    settings->entries[0].n_left = NO_END;
    settings->n = 1;
    *out = settings;
    return SY_OK;
}

void sy_trace_settings_destroy(struct sy_trace_settings *settings)
{
    if (!settings)
        return;
    free(settings->entries);
    free(settings);
}

/* A model's own, or the global one. */
static struct entry *find(const struct sy_trace_settings *settings, const char *model)
{
    for (int i = 1; model && *model && i < settings->n; i++)
        if (strcmp(settings->entries[i].model, model) == 0)
            return &settings->entries[i];
    return &settings->entries[0];
}

static void put_over(struct given *below, const struct given *above)
{
    if (above->has_level)
        below->is_on = above->is_on;
    for (int i = 0; i < N_NUMBERS; i++)
        if (above->has[i])
            below->of[i] = above->of[i];
}

/* T1: what holds for the entry. */
static struct given settled(const struct sy_trace_settings *settings, const struct entry *entry)
{
    struct given all = settings->usual;

    put_over(&all, &settings->entries[0].given);
    put_over(&all, &entry->given);
    return all;
}

int sy_trace_settings_get(const struct sy_trace_settings *settings, const char *model, json_t **out)
{
    struct given all = settled(settings, find(settings, model));

    *out = json_pack("{s:[s], s:s, s:s}", "trace_level", all.is_on ? "TIMESTAMPS" : "OFF",
                     "trace_file", "", "trace_mode", "opentelemetry");
    for (int i = 0; *out && i < N_NUMBERS; i++)
        json_object_set_new(*out, numbers[i].name, json_sprintf("%" PRId64, all.of[i]));
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for trace settings");
}

/* ---- changes --------------------------------------------------------------------------------------------------------- */

/* How many strings the value has; -1: it has something else. null has 0. */
static int n_strings(const json_t *value)
{
    size_t n = json_array_size(value);

    if (json_is_null(value))
        return 0;
    if (json_is_string(value))
        return 1;
    for (size_t i = 0; i < n; i++)
        if (!json_is_string(json_array_get(value, i)))
            return -1;
    return json_is_array(value) && n <= INT32_MAX ? (int)n : -1;
}

static const char *string_at(const json_t *value, int i)
{
    return json_string_value(json_is_string(value) ? value : json_array_get(value, (size_t)i));
}

static int change_level(struct given *given, const json_t *value)
{
    int n = n_strings(value);

    if (n < 0)
        return sy_error_set(SY_EARG, "setting 'trace_level' takes OFF or TIMESTAMPS, as a string "
                                     "or in a list of strings");
    given->has_level = n > 0;
    for (int i = 0; i < n; i++) {
        const char *level = string_at(value, i);
        bool is_off = strcmp(level, "OFF") == 0;

        if (is_off && n > 1)
            return sy_error_set(SY_EARG, "trace_level 'OFF' stands alone; %d levels were given", n);
        if (strcmp(level, "TENSORS") == 0)
            return sy_error_set(SY_EUNSUPPORTED,
                                "trace_level 'TENSORS' is not supported: traces hold no tensors; "
                                "TIMESTAMPS is");
        if (!is_off && strcmp(level, "TIMESTAMPS") != 0)
            return sy_error_set(SY_EARG, "trace_level '%.40s' is not known: OFF or TIMESTAMPS",
                                level);
        given->is_on = !is_off;
    }
    return SY_OK;
}

static int change_number(struct given *given, enum number which, const json_t *value)
{
    int n = n_strings(value);
    char *end;

    if (json_is_integer(value)) {
        given->of[which] = json_integer_value(value);
    } else if (n == 0) {
        given->has[which] = false;
        return SY_OK;
    } else if (n != 1) {
        return sy_error_set(SY_EARG, "setting '%s' takes one number", numbers[which].name);
    } else {
        const char *text = string_at(value, 0);

        errno = 0;
        given->of[which] = strtoll(text, &end, 10);
        if (!*text || *end || errno)
            return sy_error_set(SY_EARG, "setting '%s' takes a number, not '%.40s'",
                                numbers[which].name, text);
    }
    if (given->of[which] < numbers[which].least || given->of[which] > numbers[which].most)
        return sy_error_set(
            SY_EARG, "setting '%s' is %" PRId64 "; %" PRId64 " to %" PRId64 " are possible",
            numbers[which].name, given->of[which], numbers[which].least, numbers[which].most);
    given->has[which] = true;
    return SY_OK;
}

static int change(struct given *given, const char *name, const json_t *value)
{
    if (strcmp(name, "trace_level") == 0)
        return change_level(given, value);
    if (strcmp(name, "trace_file") == 0 || strcmp(name, "trace_mode") == 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "setting '%s' cannot be changed by clients: traces go to the collector "
                            "that serve --otlp names",
                            name);
    for (int i = 0; i < N_NUMBERS; i++)
        if (strcmp(name, numbers[i].name) == 0)
            return change_number(given, (enum number)i, value);
    return sy_error_set(SY_EARG,
                        "setting '%.40s' is not known: trace_level, trace_rate, trace_count, "
                        "log_frequency",
                        name);
}

static int add_entry(struct sy_trace_settings *settings, const char *model)
{
    struct entry *entries;

    if (strlen(model) >= SY_CORE_MODEL_NAME)
        return sy_error_set(SY_EARG, "the model's name has more than %d bytes",
                            SY_CORE_MODEL_NAME - 1);
    if (settings->n > MOST_MODELS)
        return sy_error_set(SY_EBUSY, "%d models have trace settings of their own already",
                            MOST_MODELS);
    entries = realloc(settings->entries, ((size_t)settings->n + 1) * sizeof *entries);
    SY_TRY_ALLOC(entries, "no memory for trace settings");
    settings->entries = entries;
    entries[settings->n] = (struct entry){.n_left = NO_END};
    memcpy(entries[settings->n].model, model, strlen(model) + 1);
    settings->n++;
    return SY_OK;
}

/* A count that is set begins anew; the others go on. */
static void count_anew(struct sy_trace_settings *settings, struct entry *entry)
{
    for (int i = 0; i < settings->n; i++)
        if (&settings->entries[i] == entry ||
            (entry == settings->entries && !settings->entries[i].given.has[NUMBER_count]))
            settings->entries[i].n_left = settled(settings, &settings->entries[i]).of[NUMBER_count];
}

int sy_trace_settings_update(struct sy_trace_settings *settings, const char *model, json_t *changes)
{
    struct entry *entry = find(settings, model);
    bool is_new = model && *model && entry == settings->entries;
    struct given given = is_new ? (struct given){0} : entry->given;
    const char *name;
    json_t *value;

    if (!json_is_object(changes))
        return sy_error_set(SY_EARG, "trace settings are a JSON object");
    json_object_foreach(changes, name, value)
    {
        SY_TRY(change(&given, name, value));
    }
    if (is_new && json_object_size(changes) > 0) {
        SY_TRY(add_entry(settings, model));
        entry = &settings->entries[settings->n - 1];
    } else if (is_new) {
        return SY_OK;
    }
    entry->given = given;
    if (is_new || json_object_get(changes, numbers[NUMBER_count].name))
        count_anew(settings, entry);
    return SY_OK;
}

/* ---- requests -------------------------------------------------------------------------------------------------------- */

/* By the ratio until a rate is set. */
static bool is_due(struct sy_trace_settings *settings, struct entry *entry, int64_t rate)
{
    bool is_set = settings->entries[0].given.has[NUMBER_rate] || entry->given.has[NUMBER_rate];

    if (is_set)
        return rate > 0 && ++entry->n_seen % (uint64_t)rate == 0;
    entry->due += settings->ratio;
    if (entry->due < 1)
        return false;
    entry->due -= 1;
    return true;
}

bool sy_trace_settings_samples(struct sy_trace_settings *settings, const char *model,
                               bool has_parent, bool is_sampled)
{
    struct entry *entry = find(settings, model);
    struct given all = settled(settings, entry);

    if (!all.is_on || entry->n_left == 0)
        return false;
    if (!(has_parent ? is_sampled : is_due(settings, entry, all.of[NUMBER_rate])))
        return false;
    entry->n_left -= entry->n_left > 0;
    return true;
}
