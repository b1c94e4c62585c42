#include "workers/train_data.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/data_internal.h"

/* ---- what the network wants ------------------------------------------------------------------------ */

static int fixed_dims(const struct sy_tensor *tensor, struct sy_data_want *want)
{
    char text[128];
    const struct sy_shape *shape = &tensor->shape;
    want->n_inputs = 1;
    want->rank = shape->rank - 1;
    if (shape->rank < 2)
        return sy_error_set(SY_EUNSUPPORTED, "input '%s' is %s; a batch and a sample are needed",
                            tensor->name, sy_shape_text(shape, text, sizeof text));
    for (int d = 1; d < shape->rank; d++) {
        int64_t dim = shape->dims[d].fixed;
        if (shape->dims[d].per_batch || dim < 1 ||
            __builtin_mul_overflow(want->n_inputs, (uint64_t)dim, &want->n_inputs))
            return sy_error_set(SY_EUNSUPPORTED, "input '%s' is %s; a sample's size must be fixed",
                                tensor->name, sy_shape_text(shape, text, sizeof text));
        want->dims[d - 1] = dim;
    }
    return SY_OK;
}

int sy_data_want_of(const struct sy_graph *graph, const struct sy_train_options *options,
                    struct sy_data_want *want)
{
    if (graph->n_inputs != 1 || graph->n_outputs != 1)
        return sy_error_set(SY_EUNSUPPORTED, "%d inputs and %d outputs; training takes one of each",
                            graph->n_inputs, graph->n_outputs);
    const struct sy_tensor *input = &graph->tensors[graph->inputs[0]];
    const struct sy_shape *output = &graph->tensors[graph->outputs[0]].shape;
    *want = (struct sy_data_want){.dtype = input->dtype};
    if (want->dtype != SY_DTYPE_F32 && want->dtype != SY_DTYPE_I64 && want->dtype != SY_DTYPE_I32)
        return sy_error_set(SY_EUNSUPPORTED, "input '%s' is %s; training takes FP32, INT64, INT32",
                            input->name, sy_dtype_wire_name(want->dtype));
    SY_TRY(fixed_dims(input, want));
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

void sy_data_source_close(struct sy_data_source *source)
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
    SY_TRY(sy_data_source_open(spec, want, NULL, &data.training));
    data.n = data.training->n;
    int status = hold_out(&data);
    if (status == SY_OK && sy_job_data_has_test(spec)) {
        status = sy_data_source_open(spec, want, data.training, &data.test);
        data.n_test = status == SY_OK ? data.test->n : 0;
    }
    if (status < 0) {
        sy_data_source_close(data.training);
        return status;
    }
    *out = data;
    return SY_OK;
}

void sy_train_data_close(struct sy_train_data *data)
{
    sy_data_source_close(data->test);
    sy_data_source_close(data->training);
    memset(data, 0, sizeof *data);
}

/* ---- order ----------------------------------------------------------------------------------------- */

uint64_t sy_data_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

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

/* Of the held out set too: a permutation that only the seed names deals the samples out, the last ones to the test set. */
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
                       uint64_t position, bool is_test, int64_t rows, void *input, void *labels)
{
    struct sy_data_source *source = is_test && data->test ? data->test : data->training;
    uint64_t input_bytes = want->n_inputs * sy_dtype_bytes(want->dtype);
    uint64_t label_bytes = want->n_labels * 4; /* int32 or float */
    for (uint64_t row = 0; row < (uint64_t)rows; row++)
        SY_TRY(source->read(source, sample_of(data, position + row, is_test),
                            (char *)input + row * input_bytes, (char *)labels + row * label_bytes));
    return SY_OK;
}

/* ---- what readers share ---------------------------------------------------------------------------- */

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

void sy_data_put_input(const struct sy_data_want *want, uint64_t i, double value, void *input)
{
    if (want->dtype == SY_DTYPE_F32)
        ((float *)input)[i] = (float)value;
    else if (want->dtype == SY_DTYPE_I64)
        ((int64_t *)input)[i] = (int64_t)value;
    else
        ((int32_t *)input)[i] = (int32_t)value;
}
