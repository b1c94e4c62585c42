#include "runtime/repository/pbtxt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/repository/pbtxt_internal.h"

void sy_pbtxt_free(struct sy_pbtxt *tree)
{
    while (tree) { /* fields of a message in a loop: only messages nest, T2 */
        struct sy_pbtxt *next = tree->next;

        sy_pbtxt_free(tree->first);
        free(tree->name);
        free(tree->text);
        free(tree);
        tree = next;
    }
}

int sy_pbtxt_add(struct sy_pbtxt_builder *builder, const struct sy_pbtxt *like,
                 struct sy_pbtxt ***end, struct sy_pbtxt **out)
{
    struct sy_pbtxt *node;

    if (builder->n_nodes++ == SY_PBTXT_MOST_NODES)
        return sy_error_set(SY_EARG, "more than %d values", SY_PBTXT_MOST_NODES);
    node = calloc(1, sizeof *node);
    SY_TRY_ALLOC(node, "no memory for a field");
    *node = *like;
    node->next = node->first = NULL;
    node->text = NULL;
    node->name = like->name ? strdup(like->name) : NULL;
    if (like->name && !node->name) {
        free(node);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a field");
    }
    **end = node;
    *end = &node->next;
    *out = node;
    return SY_OK;
}

const struct sy_pbtxt *sy_pbtxt_find(const struct sy_pbtxt *message, const char *name)
{
    const struct sy_pbtxt *field = message->first;

    while (field && strcmp(field->name, name) != 0)
        field = field->next;
    return field;
}

/* ---- values ------------------------------------------------------------------------------------------------ */

const char *sy_pbtxt_place(const struct sy_pbtxt *field, char *buffer, size_t bytes)
{
    if (field->line > 0)
        snprintf(buffer, bytes, "line %d, column %d: field %s", field->line, field->column,
                 field->name);
    else
        snprintf(buffer, bytes, "field %s", field->name);
    return buffer;
}

static int wrong_value(const struct sy_pbtxt *field, const char *expected)
{
    char place[160];
    bool is_message = field->kind == SY_PBTXT_MESSAGE;

    return sy_error_set(SY_EARG, "%s: %s%.60s%s is not %s",
                        sy_pbtxt_place(field, place, sizeof place), is_message ? "" : "'",
                        is_message ? "a message" : field->text, is_message ? "" : "'", expected);
}

static bool may_be_number(const struct sy_pbtxt *field)
{
    return field->kind == SY_PBTXT_NUMBER ||
           (field->kind == SY_PBTXT_STRING && field->line == 0 && field->bytes > 0);
}

int sy_pbtxt_integer(const struct sy_pbtxt *field, int64_t least, int64_t most, int64_t *out)
{
    char expected[96], *end = NULL;
    long long value = 0;

    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    if (!may_be_number(field))
        return wrong_value(field, expected);
    errno = 0;
    value = strtoll(field->text, &end, 0);
    if (errno || end == field->text || *end || value < least || value > most)
        return wrong_value(field, expected);
    *out = value;
    return SY_OK;
}

int sy_pbtxt_bool(const struct sy_pbtxt *field, bool *out)
{
    static const char *const words[] = {"false", "true", "f", "t",   "False",
                                        "True",  "0",    "1", "0x0", "0x1"};

    for (size_t i = 0; field->kind != SY_PBTXT_MESSAGE && field->kind != SY_PBTXT_STRING &&
                       i < sizeof words / sizeof *words;
         i++)
        if (strcmp(field->text, words[i]) == 0) {
            *out = i % 2 == 1;
            return SY_OK;
        }
    return wrong_value(field, "true or false");
}

int sy_pbtxt_string(const struct sy_pbtxt *field, const char **out)
{
    if (field->kind != SY_PBTXT_STRING || memchr(field->text, 0, field->bytes))
        return wrong_value(field, "a string in quotes without zero bytes");
    *out = field->text;
    return SY_OK;
}
