/* The tree of a message that came as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/repository/pbtxt_internal.h"

static int add_value(struct sy_pbtxt_builder *builder, const char *name, const json_t *value,
                     int depth, struct sy_pbtxt ***end);

static int add_fields(struct sy_pbtxt_builder *builder, const json_t *object, int depth,
                      struct sy_pbtxt **first)
{
    struct sy_pbtxt **end = first;
    const char *name;
    json_t *value;

    if (depth > SY_PBTXT_MOST_DEPTH)
        return sy_error_set(SY_EARG, "messages lie more than %d deep", SY_PBTXT_MOST_DEPTH);
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
        SY_TRY(add_value(builder, name, value, depth, &end));
    return SY_OK;
}

static char *scalar_text(const json_t *value, enum sy_pbtxt_kind *kind)
{
    char number[40];

    *kind = json_is_string(value)    ? SY_PBTXT_STRING
            : json_is_boolean(value) ? SY_PBTXT_NAME
                                     : SY_PBTXT_NUMBER;
    if (json_is_string(value))
        return strdup(json_string_value(value));
    if (json_is_boolean(value))
        return strdup(json_is_true(value) ? "true" : "false");
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    return strdup(number);
}

static int add_array(struct sy_pbtxt_builder *builder, const char *name, const json_t *array,
                     int depth, struct sy_pbtxt ***end)
{
    const json_t *item;
    size_t i;

    json_array_foreach(array, i, item)
    {
        if (json_is_array(item) || json_is_null(item))
            return sy_error_set(SY_EARG, "field %.100s: a list holds values, no lists and no null",
                                name);
        SY_TRY(add_value(builder, name, item, depth, end));
    }
    return SY_OK;
}

static int add_value(struct sy_pbtxt_builder *builder, const char *name, const json_t *value,
                     int depth, struct sy_pbtxt ***end)
{
    struct sy_pbtxt like = {.name = (char *)(uintptr_t)name, .kind = SY_PBTXT_MESSAGE}, *node;

    if (json_is_null(value))
        return SY_OK;
    if (json_is_array(value))
        return add_array(builder, name, value, depth, end);
    SY_TRY(sy_pbtxt_add(builder, &like, end, &node));
    if (json_is_object(value))
        return add_fields(builder, value, depth + 1, &node->first);
    node->text = scalar_text(value, &node->kind);
    SY_TRY_ALLOC(node->text, "no memory for a field");
    node->bytes = strlen(node->text);
    return SY_OK;
}

int sy_pbtxt_from_json(const json_t *json, struct sy_pbtxt **out)
{
    struct sy_pbtxt_builder builder = {0};
    struct sy_pbtxt *root;
    int status;

    if (!json_is_object(json))
        return sy_error_set(SY_EARG, "a message in JSON is an object");
    root = calloc(1, sizeof *root);
    SY_TRY_ALLOC(root, "no memory for a message");
    status = add_fields(&builder, json, 1, &root->first);
    if (status < 0) {
        sy_pbtxt_free(root);
        return status;
    }
    *out = root;
    return SY_OK;
}
