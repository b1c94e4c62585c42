#include "runtime/repository/config_schema.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/status.h"

/* ---- the table ------------------------------------------------------------------------------------------------ */

static const char *const data_types[] = {"TYPE_INVALID", "TYPE_BOOL",   "TYPE_UINT8", "TYPE_UINT16",
                                         "TYPE_UINT32",  "TYPE_UINT64", "TYPE_INT8",  "TYPE_INT16",
                                         "TYPE_INT32",   "TYPE_INT64",  "TYPE_FP16",  "TYPE_FP32",
                                         "TYPE_FP64",    "TYPE_STRING", "TYPE_BF16",  NULL};
static const char *const formats[] = {"FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW", NULL};
static const char *const timeout_actions[] = {"REJECT", "DELAY", NULL};

#define ONE(name_, type_)                        \
    {                                            \
        .name = name_, .type = SY_CONFIG_##type_ \
    }
#define MANY(name_, type_)                                                    \
    {                                                                         \
        .name = name_, .type = SY_CONFIG_##type_, .shape = SY_CONFIG_REPEATED \
    }
#define ENUM(name_, words_)                                    \
    {                                                          \
        .name = name_, .type = SY_CONFIG_ENUM, .words = words_ \
    }
#define MESSAGE(name_, of)                                     \
    {                                                          \
        .name = name_, .type = SY_CONFIG_MESSAGE, .fields = of \
    }
#define MESSAGES(name_, of)                                                                 \
    {                                                                                       \
        .name = name_, .type = SY_CONFIG_MESSAGE, .shape = SY_CONFIG_REPEATED, .fields = of \
    }
#define MAP(name_, of)                                                                 \
    {                                                                                  \
        .name = name_, .type = SY_CONFIG_MESSAGE, .shape = SY_CONFIG_MAP, .fields = of \
    }
#define UNUSED(name_)                                \
    {                                                \
        .name = name_, .effect = SY_CONFIG_NO_EFFECT \
    }
#define REFUSED(name_, why_)                                    \
    {                                                           \
        .name = name_, .effect = SY_CONFIG_REFUSED, .why = why_ \
    }
#define END          \
    {                \
        .name = NULL \
    }

static const struct sy_config_field reshape[] = {MANY("shape", INTEGER), END};

static const struct sy_config_field input[] = {ONE("name", STRING),
                                               ENUM("data_type", data_types),
                                               ENUM("format", formats),
                                               MANY("dims", INTEGER),
                                               MESSAGE("reshape", reshape),
                                               ONE("is_shape_tensor", BOOL),
                                               ONE("allow_ragged_batch", BOOL),
                                               ONE("optional", BOOL),
                                               ONE("is_non_linear_format_io", BOOL),
                                               END};
static const struct sy_config_field output[] = {ONE("name", STRING),
                                                ENUM("data_type", data_types),
                                                MANY("dims", INTEGER),
                                                MESSAGE("reshape", reshape),
                                                ONE("label_filename", STRING),
                                                ONE("is_shape_tensor", BOOL),
                                                ONE("is_non_linear_format_io", BOOL),
                                                END};

static const struct sy_config_field latest[] = {ONE("num_versions", COUNT), END};
static const struct sy_config_field all[] = {END};
static const struct sy_config_field specific[] = {MANY("versions", INTEGER), END};
static const struct sy_config_field version_policy[] = {
    MESSAGE("latest", latest), MESSAGE("all", all), MESSAGE("specific", specific), END};

static const struct sy_config_field queue_policy[] = {
    ENUM("timeout_action", timeout_actions), ONE("default_timeout_microseconds", COUNT),
    ONE("allow_timeout_override", BOOL), UNUSED("max_queue_size"), END};
static const struct sy_config_field dynamic_batching[] = {
    MANY("preferred_batch_size", INTEGER),
    ONE("max_queue_delay_microseconds", COUNT),
    UNUSED("preserve_ordering"),
    ONE("priority_levels", COUNT),
    ONE("default_priority_level", COUNT),
    MESSAGE("default_queue_policy", queue_policy),
    MAP("priority_queue_policy", queue_policy),
    END};

static const struct sy_config_field state[] = {
    ONE("input_name", STRING),
    ONE("output_name", STRING),
    ENUM("data_type", data_types),
    MANY("dims", INTEGER),
    REFUSED("initial_state", "a session begins with no positions, or zeros"),
    ONE("use_same_buffer_for_input_output", BOOL),
    ONE("use_growable_memory", BOOL),
    END};
static const struct sy_config_field sequence_batching[] = {
    UNUSED("direct"),
    UNUSED("oldest"),
    ONE("max_sequence_idle_microseconds", COUNT),
    REFUSED("control_input", "inputs that the server makes of a sequence are not supported"),
    MESSAGES("state", state),
    ONE("iterative_sequence", BOOL),
    END};

static const struct sy_config_field warmup_input[] = {
    ENUM("data_type", data_types), MANY("dims", INTEGER),          ONE("zero_data", BOOL),
    ONE("random_data", BOOL),      ONE("input_data_file", STRING), END};
static const struct sy_config_field model_warmup[] = {ONE("name", STRING), ONE("batch_size", COUNT),
                                                      MAP("inputs", warmup_input),
                                                      ONE("count", COUNT), END};

static const struct sy_config_field parameter[] = {ONE("string_value", STRING), END};
static const struct sy_config_field transaction[] = {ONE("decoupled", BOOL), END};

const struct sy_config_field sy_config_message[] = {
    ONE("name", STRING),
    ONE("platform", STRING),
    ONE("backend", STRING),
    UNUSED("runtime"),
    MESSAGE("version_policy", version_policy),
    ONE("max_batch_size", INTEGER),
    MESSAGES("input", input),
    MESSAGES("output", output),
    REFUSED("batch_input", "inputs that the server makes of the batch are not supported"),
    REFUSED("batch_output", "outputs that are split by an input are not supported"),
    UNUSED("optimization"),
    MESSAGE("dynamic_batching", dynamic_batching),
    MESSAGE("sequence_batching", sequence_batching),
    REFUSED("ensemble_scheduling", "ensembles are not supported"),
    UNUSED("instance_group"),
    ONE("default_model_filename", STRING),
    UNUSED("cc_model_filenames"),
    UNUSED("metric_tags"),
    MAP("parameters", parameter),
    MESSAGES("model_warmup", model_warmup),
    REFUSED("model_operations", "libraries of custom operators are not loaded"),
    MESSAGE("model_transaction_policy", transaction),
    REFUSED("model_repository_agents",
            "agents, which may change a model before it is loaded, are not run"),
    UNUSED("response_cache"),
    UNUSED("model_metrics"),
    END};

/* ---- a tree by the table ---------------------------------------------------------------------------------------- */

static int wrong(const struct sy_pbtxt *field, int status, const char *what)
{
    char place[160];

    return sy_error_set(status, "%s: %s", sy_pbtxt_place(field, place, sizeof place), what);
}

static int message_json(const struct sy_pbtxt *message, const struct sy_config_field *fields,
                        char *warning, json_t **out);

static int enum_json(const struct sy_pbtxt *node, const struct sy_config_field *field, json_t **out)
{
    char what[160];
    int64_t number = -1;
    int n = 0;

    while (field->words[n])
        n++;
    if (node->kind == SY_PBTXT_NUMBER)
        SY_TRY(sy_pbtxt_integer(node, 0, n - 1, &number));
    for (int i = 0; node->text && i < n; i++)
        if (i == number || strcmp(node->text, field->words[i]) == 0) {
            *out = json_string(field->words[i]);
            return SY_OK;
        }
    snprintf(what, sizeof what, "'%.60s' is not one of its values: %s, %s ...",
             node->text ? node->text : "a message", field->words[0], field->words[1]);
    return wrong(node, SY_EARG, what);
}

static int string_json(const struct sy_pbtxt *node, json_t **out)
{
    const char *text;

    SY_TRY(sy_pbtxt_string(node, &text));
    *out = json_string(text);
    return *out ? SY_OK : wrong(node, SY_EARG, "its text is not UTF-8");
}

static int number_json(const struct sy_pbtxt *node, int64_t least, json_t **out)
{
    int64_t value;

    SY_TRY(sy_pbtxt_integer(node, least, INT64_MAX, &value));
    *out = json_integer(value);
    return SY_OK;
}

static int bool_json(const struct sy_pbtxt *node, json_t **out)
{
    bool value;

    SY_TRY(sy_pbtxt_bool(node, &value));
    *out = json_boolean(value);
    return SY_OK;
}

static int value_json(const struct sy_pbtxt *node, const struct sy_config_field *field,
                      char *warning, json_t **out)
{
    switch (field->type) {
    case SY_CONFIG_BOOL:
        return bool_json(node, out);
    case SY_CONFIG_COUNT:
        return number_json(node, 0, out);
    case SY_CONFIG_INTEGER:
        return number_json(node, INT64_MIN, out);
    case SY_CONFIG_STRING:
        return string_json(node, out);
    case SY_CONFIG_ENUM:
        return enum_json(node, field, out);
    default:
        return node->kind == SY_PBTXT_MESSAGE ? message_json(node, field->fields, warning, out)
                                              : wrong(node, SY_EARG, "a message { } is expected");
    }
}

/* { key: "a" value { } }: one entry of a map in the text. */
static int map_entry(const struct sy_pbtxt *entry, const struct sy_config_field *field,
                     char *warning, json_t *into)
{
    const struct sy_pbtxt *key = sy_pbtxt_find(entry, "key"),
                          *value = sy_pbtxt_find(entry, "value");
    json_t *json;

    if (!key || !value || key->kind == SY_PBTXT_MESSAGE)
        return wrong(entry, SY_EARG, "an entry is { key: ... value ... }");
    SY_TRY(value_json(value, field, warning, &json));
    if (json_object_set_new(into, key->text, json) != 0)
        return wrong(key, SY_EARG, "a key that is not UTF-8");
    return SY_OK;
}

/* In JSON a map is an object: its fields are the entries. */
static int map_json(const struct sy_pbtxt *node, const struct sy_config_field *field, char *warning,
                    json_t *into)
{
    if (node->kind != SY_PBTXT_MESSAGE)
        return wrong(node, SY_EARG, "a map's entry { } is expected");
    if (node->line > 0)
        return map_entry(node, field, warning, into);
    for (const struct sy_pbtxt *entry = node->first; entry; entry = entry->next) {
        json_t *json;

        SY_TRY(value_json(entry, field, warning, &json));
        json_object_set_new(into, entry->name, json);
    }
    return SY_OK;
}

/* The member of `into` for the field's values, created if it is missing. */
static json_t *member_of(json_t *into, const struct sy_config_field *field)
{
    json_t *home = json_object_get(into, field->name);

    if (home)
        return home;
    home = field->shape == SY_CONFIG_MAP ? json_object() : json_array();
    json_object_set_new(into, field->name, home);
    return home;
}

static int add_value(const struct sy_pbtxt *node, const struct sy_config_field *field,
                     char *warning, json_t *into)
{
    json_t *json;

    if (field->shape == SY_CONFIG_MAP)
        return map_json(node, field, warning, member_of(into, field));
    if (field->shape == SY_CONFIG_ONE && json_object_get(into, field->name))
        return wrong(node, SY_EARG, "it is given twice");
    SY_TRY(value_json(node, field, warning, &json));
    if (field->shape == SY_CONFIG_ONE)
        json_object_set_new(into, field->name, json);
    else
        json_array_append_new(member_of(into, field), json);
    return SY_OK;
}

static void note_without_effect(char *warning, const char *name)
{
    size_t used = strlen(warning), n = strlen(name);
    const char *at = strstr(warning, name);

    if (at && (at == warning || at[-1] == ' ') && (at[n] == ',' || at[n] == '\0'))
        return;
    if (used < SY_CONFIG_WARNING_BYTES)
        snprintf(warning + used, SY_CONFIG_WARNING_BYTES - used, "%s%s", used ? ", " : "", name);
}

/* JSON that Triton wrote has all fields, those that were never set too. */
static bool says_nothing(const struct sy_pbtxt *node)
{
    return node->line == 0 && !node->first && node->bytes == 0;
}

static int add_field(const struct sy_pbtxt *node, const struct sy_config_field *fields,
                     char *warning, json_t *into)
{
    const struct sy_config_field *field = fields;

    while (field->name && strcmp(field->name, node->name) != 0)
        field++;
    if (!field->name)
        return wrong(node, SY_EARG, "there is no such field in Triton's model configuration");
    if (field->effect == SY_CONFIG_REFUSED)
        return wrong(node, SY_EUNSUPPORTED, field->why);
    if (field->effect == SY_CONFIG_HONOURED)
        return add_value(node, field, warning, into);
    if (!says_nothing(node))
        note_without_effect(warning, field->name);
    return SY_OK;
}

static int message_json(const struct sy_pbtxt *message, const struct sy_config_field *fields,
                        char *warning, json_t **out)
{
    json_t *into = json_object();
    int status = into ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a configuration");

    for (const struct sy_pbtxt *node = message->first; node && status == SY_OK; node = node->next)
        status = add_field(node, fields, warning, into);
    if (status < 0) {
        json_decref(into);
        return status;
    }
    *out = into;
    return SY_OK;
}

int sy_config_to_json(const struct sy_pbtxt *message, char warning[SY_CONFIG_WARNING_BYTES],
                      json_t **out)
{
    *warning = '\0';
    return message_json(message, sy_config_message, warning, out);
}
