/* Shared by the readers: which field feeds which input, and the parsing of values and classes. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/data/data_internal.h"

bool sy_data_is_for(const struct sy_data_field *field, const struct sy_data_input *input)
{
    return field->input && input->name && !strcmp(field->input, input->name);
}

const struct sy_data_field *sy_data_field_of(const struct sy_data_spec *spec,
                                             const struct sy_data_want *want, int i)
{
    static const struct sy_data_field sample = {.from = SY_FROM_SAMPLE};
    for (int f = 0; f < spec->n_fields; f++)
        if (!spec->fields[f].input || sy_data_is_for(&spec->fields[f], &want->inputs[i]))
            return &spec->fields[f];
    return &sample;
}

uint64_t sy_data_input_bytes(const struct sy_data_input *input)
{
    return input->n * sy_dtype_bytes(input->dtype);
}

uint64_t sy_data_longest(const struct sy_data_spec *spec, const struct sy_data_want *want)
{
    uint64_t n = 0;
    for (int i = 0; i < want->n_inputs; i++)
        if (sy_data_field_of(spec, want, i)->from == SY_FROM_SAMPLE)
            n = SY_MAX(n, want->inputs[i].n);
    return n;
}

const char *sy_data_input_text(const struct sy_data_want *want, int i, char *text)
{
    text[0] = '\0';
    if (want->n_inputs > 1)
        snprintf(text, 96, ", input '%.80s'", want->inputs[i].name);
    return text;
}

uint64_t sy_data_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint64_t sy_data_max_classes(const struct sy_data_want *want)
{
    if (want->are_classes)
        return (uint64_t)want->n_classes;
    return SY_MAX(want->n_labels, 2u);
}

int sy_data_put_class(const struct sy_data_want *want, const char *where, uint64_t sample,
                      int64_t label, void *labels)
{
    int64_t n = want->are_classes ? want->n_classes : (int64_t)want->n_labels;
    if (label < 0 || (uint64_t)label >= sy_data_max_classes(want))
        return sy_error_set(SY_EARG,
                            "sample %llu of '%s' has label %lld, but the model has %lld %s",
                            (unsigned long long)sample, where, (long long)label, (long long)n,
                            n == 1 ? "output" : "outputs");
    if (want->are_classes && want->n_labels != 1)
        return sy_error_set(SY_EARG, "'%s' has one label a sample, the model's output takes %llu",
                            where, (unsigned long long)want->n_labels);
    if (want->are_classes) {
        *(int32_t *)labels = (int32_t)label;
        return SY_OK;
    }
    for (int64_t i = 0; i < n; i++)
        ((float *)labels)[i] = n == 1 ? (float)label : i == label ? 1.0f : 0.0f;
    return SY_OK;
}

void sy_data_put_input(const struct sy_data_input *input, uint64_t i, double value, void *to)
{
    if (input->dtype == SY_DTYPE_F32)
        ((float *)to)[i] = (float)value;
    else if (input->dtype == SY_DTYPE_I64)
        ((int64_t *)to)[i] = (int64_t)value;
    else if (input->dtype == SY_DTYPE_I32)
        ((int32_t *)to)[i] = (int32_t)value;
    else
        ((uint8_t *)to)[i] = value != 0.0;
}

static double given(const struct sy_data_field *field, uint64_t i, uint64_t length)
{
    switch (field->from) {
    case SY_FROM_MASK:
        return i < length ? 1.0 : 0.0;
    case SY_FROM_LENGTH:
        return (double)length;
    case SY_FROM_POSITIONS:
        return (double)i;
    default:
        return field->constant;
    }
}

bool sy_data_put_given(const struct sy_data_field *field, const struct sy_data_input *input,
                       uint64_t length, void *to)
{
    if (field->from == SY_FROM_SAMPLE)
        return false;
    for (uint64_t i = 0; i < input->n; i++)
        sy_data_put_input(input, i, given(field, i, length), to);
    return true;
}
