#include "workers/data/train_data.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/data/data_internal.h"

/* ---- what the network wants ------------------------------------------------------------------------ */

static int fixed_dims(const struct sy_tensor *tensor, struct sy_data_input *input)
{
    char text[128];
    const struct sy_shape *shape = &tensor->shape;
    input->n = 1;
    input->rank = shape->rank - 1;
    if (shape->rank < 1 || !shape->dims[0].per_batch)
        return sy_error_set(SY_EUNSUPPORTED,
                            "input '%s' is %s; its first dimension must be the batch", tensor->name,
                            sy_shape_text(shape, text, sizeof text));
    for (int d = 1; d < shape->rank; d++) {
        int64_t dim = shape->dims[d].fixed;
        if (shape->dims[d].per_batch || dim < 1 ||
            __builtin_mul_overflow(input->n, (uint64_t)dim, &input->n))
            return sy_error_set(SY_EUNSUPPORTED, "input '%s' is %s; a sample's size must be fixed",
                                tensor->name, sy_shape_text(shape, text, sizeof text));
        input->dims[d - 1] = dim;
    }
    return SY_OK;
}

static int want_inputs(const struct sy_graph *graph, struct sy_data_want *want)
{
    if (graph->n_inputs < 1 || graph->n_inputs > SY_DATA_MAX_INPUTS)
        return sy_error_set(SY_EUNSUPPORTED, "%d inputs; training takes 1 to %d", graph->n_inputs,
                            SY_DATA_MAX_INPUTS);
    for (int i = 0; i < graph->n_inputs; i++) {
        const struct sy_tensor *tensor = &graph->tensors[graph->inputs[i]];
        struct sy_data_input *input = &want->inputs[want->n_inputs++];
        *input = (struct sy_data_input){.name = tensor->name, .dtype = tensor->dtype};
        if (input->dtype != SY_DTYPE_F32 && input->dtype != SY_DTYPE_I64 &&
            input->dtype != SY_DTYPE_I32 && input->dtype != SY_DTYPE_BOOL)
            return sy_error_set(SY_EUNSUPPORTED,
                                "input '%s' is %s; training takes FP32, INT64, INT32, BOOL",
                                input->name, sy_dtype_wire_name(input->dtype));
        SY_TRY(fixed_dims(tensor, input));
    }
    return SY_OK;
}

int sy_data_want_of(const struct sy_graph *graph, const struct sy_train_options *options,
                    struct sy_data_want *want)
{
    *want = (struct sy_data_want){0};
    if (graph->n_outputs != 1)
        return sy_error_set(SY_EUNSUPPORTED, "%d outputs; training takes one", graph->n_outputs);
    SY_TRY(want_inputs(graph, want));
    const struct sy_shape *output = &graph->tensors[graph->outputs[0]].shape;
    int64_t batch = options->batch, elements = sy_shape_elements(output, batch);
    want->n_classes = output->rank > 1 ? sy_dim_at(output->dims[output->rank - 1], batch) : 1;
    if (elements < batch || elements % batch || want->n_classes < 1)
        return sy_error_set(SY_EUNSUPPORTED, "%lld outputs for a batch of %lld",
                            (long long)elements, (long long)batch);
    want->are_classes = options->loss == SY_LOSS_SOFTMAX_CROSS_ENTROPY;
    want->n_labels = (uint64_t)(elements / batch);
    if (want->are_classes)
        want->n_labels /= (uint64_t)want->n_classes;
    return SY_OK;
}

/* ---- where inputs come from -------------------------------------------------------------------------- */

static const char *list_inputs(const struct sy_data_want *want, char *text, size_t bytes)
{
    text[0] = '\0';
    for (int i = 0; i < want->n_inputs; i++) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s'%s'", i ? ", " : "",
                 want->inputs[i].name ? want->inputs[i].name : "");
    }
    return text;
}

/* Each input of the model once, and nothing else. JSON has no key twice. */
static int check_inputs(const struct sy_data_spec *spec, const struct sy_data_want *want)
{
    char known[512];
    bool is_map = spec->n_fields && spec->fields[0].input;
    if (!is_map && want->n_inputs > 1)
        return sy_error_set(SY_EARG,
                            "the model has inputs %s: 'data.inputs' must say where each comes from",
                            list_inputs(want, known, sizeof known));
    for (int f = 0; is_map && f < spec->n_fields; f++) {
        int i = 0;
        while (i < want->n_inputs && !sy_data_is_for(&spec->fields[f], &want->inputs[i]))
            i++;
        if (i == want->n_inputs)
            return sy_error_set(SY_EARG, "'data.inputs.%s': the model's inputs are %s",
                                spec->fields[f].input, list_inputs(want, known, sizeof known));
    }
    for (int i = 0; is_map && i < want->n_inputs; i++)
        if (!sy_data_is_for(sy_data_field_of(spec, want, i), &want->inputs[i]))
            return sy_error_set(SY_EARG, "'data.inputs' lacks '%s', an input of the model",
                                want->inputs[i].name);
    return SY_OK;
}

/* ---- opening --------------------------------------------------------------------------------------- */

int sy_data_source_open(const struct sy_data_spec *spec, const struct sy_data_want *want,
                        struct sy_data_source *training, struct sy_data_source **out)
{
    static sy_data_open *const readers[] = {
        [SY_DATA_IDX] = sy_data_idx_open,       [SY_DATA_NPY] = sy_data_npy_open,
        [SY_DATA_CSV] = sy_data_csv_open,       [SY_DATA_TEXT] = sy_data_text_open,
        [SY_DATA_IMAGES] = sy_data_images_open, [SY_DATA_SYNTHETIC] = sy_data_synthetic_open};
    return readers[spec->kind](spec, want, training, out);
}

/* NULL is fine */
static void close_source(struct sy_data_source *source)
{
    if (source)
        source->close(source);
}

static int hold_out(struct sy_train_data *data)
{
    data->n_test = (uint64_t)((double)data->n * data->spec->holdout);
    if (data->spec->holdout > 0.0 && (data->n_test == 0 || data->n_test == data->n))
        return sy_error_set(SY_EARG, "data.holdout %g of %llu samples leaves one set empty",
                            data->spec->holdout, (unsigned long long)data->n);
    data->n -= data->n_test;
    return SY_OK;
}

int sy_train_data_open(const struct sy_data_spec *spec, const struct sy_data_want *want,
                       struct sy_train_data *out)
{
    struct sy_train_data data = {.spec = spec};
    SY_TRY(check_inputs(spec, want));
    SY_TRY(sy_data_source_open(spec, want, NULL, &data.training));
    data.n = data.training->n;
    int status = hold_out(&data);
    if (status == SY_OK && sy_job_data_has_test(spec)) {
        status = sy_data_source_open(spec, want, data.training, &data.test);
        data.n_test = status == SY_OK ? data.test->n : 0;
    }
    if (status < 0) {
        close_source(data.training);
        return status;
    }
    *out = data;
    return SY_OK;
}

void sy_train_data_close(struct sy_train_data *data)
{
    close_source(data->test);
    close_source(data->training);
    memset(data, 0, sizeof *data);
}

/* ---- order ----------------------------------------------------------------------------------------- */

/* A Feistel network over 2 * half bits, which is a permutation whatever `mix` does; six rounds mix well. */
static uint64_t shuffle_bits(uint64_t x, unsigned half, uint64_t key)
{
    uint64_t mask = (1ull << half) - 1, left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 6; round++) {
        uint64_t next =
            left ^ (sy_data_mix(right + sy_data_mix(key + round * 0x9e3779b97f4a7c15ull)) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t sy_train_data_index(uint64_t n, uint64_t seed, uint64_t position)
{
    uint64_t x = position % n;
    uint64_t key = sy_data_mix(seed + 0x9e3779b97f4a7c15ull) ^ sy_data_mix(position / n + 1);
    unsigned half = 1;
    while (1ull << (2 * half) < n)
        half++;
    do /* walks the cycle back into range: under four rounds on average, since 4^half < 4 n */
        x = shuffle_bits(x, half, key);
    while (x >= n);
    return x;
}

/* Also for the held-out set: a permutation determined by the seed distributes the samples, the last ones to the test set. */
static uint64_t sample_of(const struct sy_train_data *data, uint64_t position, bool is_test)
{
    const struct sy_data_spec *spec = data->spec;
    uint64_t index = is_test         ? SY_MIN(position, data->n_test - 1)
                     : spec->shuffle ? sy_train_data_index(data->n, spec->seed, position)
                                     : position % data->n;
    if (spec->holdout == 0.0)
        return index;
    return sy_train_data_index(data->n + data->n_test, ~spec->seed,
                               is_test ? data->n + index : index);
}

int sy_train_data_fill(const struct sy_train_data *data, const struct sy_data_want *want,
                       uint64_t position, bool is_test, int64_t rows, void *const *inputs,
                       void *labels)
{
    struct sy_data_source *source = is_test && data->test ? data->test : data->training;
    uint64_t label_bytes = want->n_labels * 4; /* int32 or float */
    void *places[SY_DATA_MAX_INPUTS];
    for (uint64_t row = 0; row < (uint64_t)rows; row++) {
        for (int i = 0; i < want->n_inputs; i++)
            places[i] = (char *)inputs[i] + row * sy_data_input_bytes(&want->inputs[i]);
        SY_TRY(source->read(source, sample_of(data, position + row, is_test), places,
                            (char *)labels + row * label_bytes));
    }
    return SY_OK;
}
