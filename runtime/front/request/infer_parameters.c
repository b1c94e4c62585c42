#include "runtime/front/request/infer_parameters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/client/switchyard.h"

#define MOST_CLASS 9

/* A number, also one in a string, as some clients send 64 bits. */
static int read_whole(const json_t *value, const char *name, int64_t *out)
{
    json_t *parsed =
        json_is_string(value) ? json_loads(json_string_value(value), JSON_DECODE_ANY, NULL) : NULL;
    const json_t *number = parsed ? parsed : value;
    bool good = json_is_integer(number) && json_integer_value(number) >= 0;
    char *said = good ? NULL : json_dumps(value, JSON_ENCODE_ANY);

    *out = json_integer_value(number);
    json_decref(parsed);
    int status =
        good ? SY_OK
             : sy_error_set(SY_EARG, "the parameter \"%s\" is not a whole number from 0 on: %.60s",
                            name, said ? said : "?");
    free(said);
    return status;
}

static int set_priority(struct sy_front_infer *request, const json_t *value)
{
    int64_t priority;

    SY_TRY(read_whole(value, "priority", &priority));
    return priority == 0 ? SY_OK
                         : sy_front_infer_set_class(request, SY_MIN(priority - 1, MOST_CLASS));
}

static int set_timeout(struct sy_front_infer *request, const json_t *value)
{
    int64_t us;

    SY_TRY(read_whole(value, "timeout", &us));
    if (us == 0)
        return SY_OK;
    if (us > (int64_t)(SWITCHYARD_MAX_DEADLINE_MS * 1e3))
        return sy_error_set(SY_EARG, "the parameter \"timeout\" is %lld us; at most %.0f",
                            (long long)us, SWITCHYARD_MAX_DEADLINE_MS * 1e3);
    return sy_front_infer_set_deadline(request, (sy_ns)us * SY_NS_PER_US);
}

static int set_tenant(struct sy_front_infer *request, const json_t *value)
{
    if (!json_is_string(value))
        return sy_error_set(SY_EARG, "the parameter \"tenant\" is not a string");
    return sy_front_infer_set_tenant(request, json_string_value(value));
}

static int set_class(struct sy_front_infer *request, const json_t *value)
{
    int64_t class_;

    SY_TRY(read_whole(value, "class", &class_));
    return sy_front_infer_set_class(request, class_);
}

static int set_deadline(struct sy_front_infer *request, const json_t *value)
{
    double ms = json_number_value(value);

    if (!(ms > 0 && ms <= SWITCHYARD_MAX_DEADLINE_MS))
        return sy_error_set(SY_EARG, "the parameter \"deadline_ms\": a number above 0, at most %g",
                            SWITCHYARD_MAX_DEADLINE_MS);
    return sy_front_infer_set_deadline(request, (sy_ns)(ms * 1e6));
}

/* A number, 0 for none, or a text, "" for none. */
static int set_sequence(struct sy_front_infer *request, const json_t *value)
{
    char number[24] = "";

    if (json_is_string(value))
        return sy_front_infer_set_sequence(request, json_string_value(value));
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return sy_error_set(SY_EARG, "the parameter \"sequence_id\" is neither a whole number from "
                                     "0 on nor a string");
    if (json_integer_value(value) != 0)
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    return sy_front_infer_set_sequence(request, number);
}

static int read_switch(const json_t *value, const char *name, bool *out)
{
    *out = json_is_true(value) || (json_is_integer(value) && json_integer_value(value) != 0);
    return json_is_boolean(value) || json_is_integer(value)
               ? SY_OK
               : sy_error_set(SY_EARG, "the parameter \"%s\" is neither true nor false", name);
}

static int set_start(struct sy_front_infer *request, const json_t *value)
{
    bool starts;

    SY_TRY(read_switch(value, "sequence_start", &starts));
    sy_front_infer_set_session_ends(request, starts, false);
    return SY_OK;
}

static int set_end(struct sy_front_infer *request, const json_t *value)
{
    bool ends;

    SY_TRY(read_switch(value, "sequence_end", &ends));
    sy_front_infer_set_session_ends(request, false, ends);
    return SY_OK;
}

int sy_infer_parameters_set(struct sy_front_infer *request, const json_t *parameters)
{
    static const struct {
        const char *name;
        int (*set)(struct sy_front_infer *request, const json_t *value);
    } known[] = {
        {"priority", set_priority},    {"timeout", set_timeout},      {"tenant", set_tenant},
        {"class", set_class},          {"deadline_ms", set_deadline}, {"sequence_id", set_sequence},
        {"sequence_start", set_start}, {"sequence_end", set_end},
    };

    if (!json_is_object(parameters))
        return sy_error_set(SY_EARG, "\"parameters\" is not an object");
    for (size_t i = 0; i < SY_ARRAY_LEN(known); i++) {
        const json_t *value = json_object_get(parameters, known[i].name);

        if (value)
            SY_TRY(known[i].set(request, value));
    }
    return SY_OK;
}
