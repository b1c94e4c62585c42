#include "workers/job/job_inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* Kinds of input; the first is the sample itself. */
struct word {
    const char *text;
    enum sy_data_from from;
};

#define OF_SEQUENCES                                    \
    {"mask", SY_FROM_MASK}, {"length", SY_FROM_LENGTH}, \
    {                                                   \
        "positions", SY_FROM_POSITIONS                  \
    }

static const struct word image_words[] = {{"image", SY_FROM_SAMPLE}, {0}},
                         text_words[] = {{"text", SY_FROM_SAMPLE}, OF_SEQUENCES, {0}},
                         synthetic_words[] = {{"random", SY_FROM_SAMPLE}, OF_SEQUENCES, {0}};

static int no_room(void)
{
    return sy_error_set(SY_ENOMEM_HOST, "job: no room for 'data.inputs'");
}

static int copy_text(const json_t *value, char **out)
{
    *out = strdup(json_string_value(value));
    return *out ? SY_OK : no_room();
}

static int take_word(const struct word *words, const json_t *value, struct sy_data_field *field)
{
    char known[128] = "";
    const char *text = json_string_value(value);
    for (const struct word *w = words; w->text; w++) {
        if (text && !strcmp(w->text, text)) {
            field->from = w->from;
            return SY_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "'%s', ", w->text);
    }
    return sy_error_set(SY_EARG, "job: 'data.inputs.%s' is '%s'; known: %sor a number",
                        field->input, text ? text : "no text", known);
}

/* A column's name, or a list of them. */
static int take_columns(const json_t *value, struct sy_data_field *field)
{
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    field->columns = calloc(n + 1, sizeof *field->columns);
    if (!field->columns)
        return no_room();
    for (size_t i = 0; i < n; i++) {
        const json_t *name = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(name))
            break;
        SY_TRY(copy_text(name, &field->columns[i]));
    }
    if (n == 0 || !field->columns[n - 1])
        return sy_error_set(
            SY_EARG, "job: 'data.inputs.%s' must be a column, a list of columns, or a number",
            field->input);
    return SY_OK;
}

static int take_file(const json_t *value, const char *key, struct sy_data_field *field, int which)
{
    if (!json_is_string(value) || !*json_string_value(value))
        return sy_error_set(SY_EARG, "job: 'data.%s%s%s' must be a path%s", key,
                            field->input ? "." : "", field->input ? field->input : "",
                            which ? "" : ", or a number");
    return copy_text(value, &field->file[which]);
}

static int take_field(enum sy_data_kind kind, const json_t *value, struct sy_data_field *field)
{
    if (json_is_number(value)) {
        field->from = SY_FROM_CONSTANT;
        field->constant = json_number_value(value);
        return SY_OK;
    }
    switch (kind) {
    case SY_DATA_NPY:
        return take_file(value, "inputs", field, 0);
    case SY_DATA_CSV:
        return take_columns(value, field);
    case SY_DATA_TEXT:
        return take_word(text_words, value, field);
    case SY_DATA_SYNTHETIC:
        return take_word(synthetic_words, value, field);
    default:
        return take_word(image_words, value, field);
    }
}

static int take_map(const json_t *inputs, struct sy_data_spec *spec)
{
    const char *name;
    json_t *value;
    size_t n = json_object_size(inputs);
    if (n == 0 || n > SY_DATA_MAX_INPUTS)
        return sy_error_set(SY_EARG, "job: 'data.inputs' has %zu inputs; 1 to %d are possible", n,
                            SY_DATA_MAX_INPUTS);
    spec->fields = calloc(n, sizeof *spec->fields);
    if (!spec->fields)
        return no_room();
    json_object_foreach((json_t *)(uintptr_t)inputs, name, value)
    {
        struct sy_data_field *field = &spec->fields[spec->n_fields++];
        field->input = strdup(name);
        if (!field->input)
            return no_room();
        SY_TRY(take_field(spec->kind, value, field));
    }
    return SY_OK;
}

static int take_only_file(const json_t *inputs, struct sy_data_spec *spec)
{
    spec->fields = calloc(1, sizeof *spec->fields);
    if (!spec->fields)
        return no_room();
    spec->n_fields = 1;
    return take_file(inputs, "inputs", spec->fields, 0);
}

/* ---- the test set ------------------------------------------------------------------------------------ */

static int check_test_names(const json_t *test, const struct sy_data_spec *spec)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)test, name, value)
    {
        bool is_known = false;
        for (int i = 0; i < spec->n_fields; i++)
            is_known |= spec->fields[i].from == SY_FROM_SAMPLE && spec->fields[i].input &&
                        !strcmp(spec->fields[i].input, name);
        if (!is_known)
            return sy_error_set(
                SY_EARG, "job: 'data.test_inputs.%s': 'data.inputs' has no file of that name",
                name);
    }
    return SY_OK;
}

static int take_test(const json_t *test, struct sy_data_spec *spec)
{
    if (!test != !spec->labels[1])
        return sy_error_set(SY_EARG, "job: 'data.test_inputs' and 'data.test_labels' go together");
    if (!test)
        return SY_OK;
    if (!spec->fields[0].input)
        return take_file(test, "test_inputs", spec->fields, 1);
    if (!json_is_object(test))
        return sy_error_set(SY_EARG, "job: 'data.test_inputs' must name inputs, as 'data.inputs'");
    SY_TRY(check_test_names(test, spec));
    for (int i = 0; i < spec->n_fields; i++)
        if (spec->fields[i].from == SY_FROM_SAMPLE)
            SY_TRY(take_file(json_object_get(test, spec->fields[i].input), "test_inputs",
                             &spec->fields[i], 1));
    return SY_OK;
}

int sy_job_inputs_take(const json_t *object, struct sy_data_spec *spec)
{
    const json_t *inputs = json_object_get(object, "inputs");
    bool is_npy = spec->kind == SY_DATA_NPY;
    if (!inputs)
        return is_npy ? sy_error_set(SY_EARG, "job: 'data.inputs' is missing") : SY_OK;
    if (spec->features)
        return sy_error_set(SY_EARG, "job: 'data.inputs' names the columns; 'data.features' is one "
                                     "key too many");
    if (json_is_object(inputs))
        SY_TRY(take_map(inputs, spec));
    else if (is_npy)
        SY_TRY(take_only_file(inputs, spec));
    else
        return sy_error_set(SY_EARG, "job: 'data.inputs' must be an object in braces: from the "
                                     "model's inputs to where they come from");
    return is_npy ? take_test(json_object_get(object, "test_inputs"), spec) : SY_OK;
}

void sy_job_inputs_free(struct sy_data_spec *spec)
{
    for (int i = 0; i < spec->n_fields; i++) {
        struct sy_data_field *field = &spec->fields[i];
        for (char **column = field->columns; column && *column; column++)
            free(*column);
        free(field->columns);
        free(field->input);
        free(field->file[0]);
        free(field->file[1]);
    }
    free(spec->fields);
    spec->fields = NULL;
    spec->n_fields = 0;
}

void sy_job_inputs_each_path(json_t *object,
                             void (*change)(json_t *object, const char *name, void *context),
                             void *context)
{
    static const char *const keys[] = {"inputs", "test_inputs"};
    const char *kind = json_string_value(json_object_get(object, "kind")), *name;
    for (size_t i = 0; kind && !strcmp(kind, "npy") && i < SY_ARRAY_LEN(keys); i++) {
        json_t *inputs = json_object_get(object, keys[i]), *value;
        void *next;
        change(object, keys[i], context);
        json_object_foreach_safe(inputs, next, name, value) change(inputs, name, context);
    }
}
