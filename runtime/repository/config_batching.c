/* The fields dynamic_batching and parameters: what requests have that say nothing else.
 *
 * Triton's priorities are 1 (first) to priority_levels; ours are classes from 0 on: level L is class L - 1, and levels beyond the last class share it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/repository/model_config_internal.h"

#define LAST_CLASS 9
#define MOST_US    ((json_int_t)(INT64_MAX / 1000))

static json_int_t number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* A timeout whose request is only put back is no deadline. */
static void read_queue_policy(const json_t *policy, struct sy_core_model_defaults *defaults)
{
    json_int_t us = number_of(policy, "default_timeout_microseconds");
    const char *action = json_string_value(json_object_get(policy, "timeout_action"));

    if (us <= 0 || us > MOST_US || (action && strcmp(action, "DELAY") == 0))
        return;
    defaults->deadline_ns = (sy_ns)us * 1000;
    defaults->keeps_deadline = !json_is_true(json_object_get(policy, "allow_timeout_override"));
}

static int read_levels(const json_t *batching, struct sy_core_model_defaults *defaults,
                       const json_t **policy)
{
    json_int_t n = number_of(batching, "priority_levels"),
               level = number_of(batching, "default_priority_level");
    char key[32];

    if (n == 0)
        return SY_OK;
    if (level < 1 || level > n)
        return sy_error_set(SY_EARG,
                            "field dynamic_batching: default_priority_level %lld is not from 1 to "
                            "priority_levels, %lld",
                            (long long)level, (long long)n);
    defaults->has_class = true;
    defaults->class_ = (int)SY_MIN(level - 1, LAST_CLASS);
    snprintf(key, sizeof key, "%lld", (long long)level);
    const json_t *own = json_object_get(json_object_get(batching, "priority_queue_policy"), key);
    *policy = own ? own : *policy;
    return SY_OK;
}

static int read_preferred(struct sy_model_config *config, const json_t *batching)
{
    const json_t *size;
    size_t i;

    config->max_gathered = config->max_batch_size;
    json_array_foreach(json_object_get(batching, "preferred_batch_size"), i, size)
    {
        json_int_t rows = json_integer_value(size);

        if (rows < 1 || rows > config->max_batch_size)
            return sy_error_set(SY_EARG,
                                "field dynamic_batching: preferred_batch_size %lld is not from 1 "
                                "to max_batch_size, %lld",
                                (long long)rows, (long long)config->max_batch_size);
        config->max_gathered = i == 0 ? rows : SY_MAX(config->max_gathered, rows);
    }
    return SY_OK;
}

int sy_config_read_batching(struct sy_model_config *config)
{
    const json_t *batching = json_object_get(config->json, "dynamic_batching"),
                 *policy = json_object_get(batching, "default_queue_policy");
    json_int_t delay_us = number_of(batching, "max_queue_delay_microseconds");

    if (!batching)
        return SY_OK;
    if (config->max_batch_size == 0)
        return sy_error_set(SY_EARG, "field dynamic_batching: it needs a max_batch_size above 0");
    SY_TRY(read_preferred(config, batching));
    SY_TRY(read_levels(batching, &config->defaults, &policy));
    read_queue_policy(policy, &config->defaults);
    config->max_delay_ns = (sy_ns)SY_MIN(delay_us, MOST_US) * 1000;
    return SY_OK;
}

/* ---- parameters ---------------------------------------------------------------------------------------------------- */

static int read_class(struct sy_core_model_defaults *defaults, const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (end == text || *end || value < 0 || value > LAST_CLASS)
        return sy_error_set(SY_EARG, "parameter class: '%.40s' is not from 0 to %d", text,
                            LAST_CLASS);
    defaults->has_class = true;
    defaults->class_ = (int)value;
    return SY_OK;
}

static int read_tenant(struct sy_core_model_defaults *defaults, const char *text)
{
    if (strlen(text) >= sizeof defaults->tenant)
        return sy_error_set(SY_EARG, "parameter tenant: a name of %zu bytes; at most %zu",
                            strlen(text), sizeof defaults->tenant - 1);
    strcpy(defaults->tenant, text);
    return SY_OK;
}

static int read_slice(struct sy_core_model_defaults *defaults, const char *text)
{
    if (strlen(text) >= sizeof defaults->slice)
        return sy_error_set(SY_EARG, "parameter slice: a name of %zu bytes; at most %zu",
                            strlen(text), sizeof defaults->slice - 1);
    strcpy(defaults->slice, text);
    return SY_OK;
}

static int read_precision(struct sy_model_config *config, const char *text)
{
    if (sy_precision_from_name(text, &config->precision) < 0)
        return sy_error_prefix(SY_EARG, "parameter precision");
    config->has_precision = true;
    return SY_OK;
}

/* Unknown keys are ignored: they belong to backends or clients. */
int sy_config_read_parameters(struct sy_model_config *config)
{
    json_t *parameters = json_object_get(config->json, "parameters"), *parameter;
    const char *key;

    json_object_foreach(parameters, key, parameter)
    {
        const char *text = json_string_value(json_object_get(parameter, "string_value"));

        if (!text)
            continue;
        if (strcmp(key, "class") == 0)
            SY_TRY(read_class(&config->defaults, text));
        if (strcmp(key, "tenant") == 0)
            SY_TRY(read_tenant(&config->defaults, text));
        if (strcmp(key, "slice") == 0)
            SY_TRY(read_slice(&config->defaults, text));
        if (strcmp(key, "precision") == 0)
            SY_TRY(read_precision(config, text));
    }
    return SY_OK;
}
