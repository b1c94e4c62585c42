#include "runtime/front/classify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/package/class_labels.h"
#include "runtime/base/assert.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"

static bool value_at(enum sy_dtype dtype, const void *data, int64_t i, double *out)
{
    switch (dtype) {
    case SY_DTYPE_F32:
        *out = (double)((const float *)data)[i];
        return true;
    case SY_DTYPE_F64:
        *out = ((const double *)data)[i];
        return true;
    case SY_DTYPE_F16:
        *out = (double)sy_half_to_float(((const uint16_t *)data)[i]);
        return true;
    case SY_DTYPE_BF16:
        *out = (double)sy_bf16_to_float(((const uint16_t *)data)[i]);
        return true;
    case SY_DTYPE_I8:
        *out = ((const int8_t *)data)[i];
        return true;
    case SY_DTYPE_U8:
        *out = ((const uint8_t *)data)[i];
        return true;
    case SY_DTYPE_I16:
        *out = ((const int16_t *)data)[i];
        return true;
    case SY_DTYPE_U16:
        *out = ((const uint16_t *)data)[i];
        return true;
    case SY_DTYPE_U32:
        *out = ((const uint32_t *)data)[i];
        return true;
    case SY_DTYPE_U64:
        *out = (double)((const uint64_t *)data)[i];
        return true;
    case SY_DTYPE_I32:
        *out = ((const int32_t *)data)[i];
        return true;
    case SY_DTYPE_I64:
        *out = (double)((const int64_t *)data)[i];
        return true;
    default:
        return false;
    }
}

struct best {
    double value;
    int64_t index;
};

static bool is_better(const struct best *a, const struct best *b)
{
    return a->value > b->value || (a->value == b->value && a->index < b->index);
}

static int compare_best(const void *a, const void *b)
{
    return is_better(a, b) ? -1 : 1; /* no two are equal: their indices differ */
}

/* Room for n; the k best come first, in order. */
static void find_best(enum sy_dtype dtype, const void *data, int64_t first, int64_t n,
                      struct best *best)
{
    for (int64_t i = 0; i < n; i++) {
        best[i].index = i;
        value_at(dtype, data, first + i, &best[i].value);
        if (isnan(best[i].value))
            best[i].value = -INFINITY;
    }
    qsort(best, (size_t)n, sizeof(*best), compare_best);
}

/* Fixed point, as Triton has it, as far as it stays short. */
static void print_class(char *to, const struct best *best, const char *label)
{
    char value[40];

    snprintf(value, sizeof value, fabs(best->value) < 1e15 ? "%.6f" : "%.17g", best->value);
    snprintf(to, SY_CLASSIFY_TEXT, "%s:%lld%s%s", value, (long long)best->index, label ? ":" : "",
             label ? label : "");
}

static int fill(const struct sy_front_tensor *tensor, int output,
                const struct sy_class_labels *labels, int64_t n_classes, struct sy_classes *out)
{
    struct best *best = malloc(((size_t)n_classes + 1) * sizeof(*best));

    SY_TRY_ALLOC(best, "no memory for classes");
    for (int64_t row = 0; row < out->rows; row++) {
        find_best(tensor->dtype, tensor->data, row * n_classes, n_classes, best);
        for (int64_t i = 0; i < out->k; i++)
            print_class(out->texts[row * out->k + i], &best[i],
                        sy_class_labels_name(labels, output, best[i].index));
    }
    free(best);
    return SY_OK;
}

int sy_classify(const struct sy_front_tensor *tensor, int output,
                const struct sy_class_labels *labels, bool has_rows, int64_t k,
                struct sy_classes *out)
{
    double value;
    int64_t n = 1;

    if (k < 1 || !value_at(tensor->dtype, &(double){0}, 0, &value))
        return sy_error_set(SY_EARG, "output \"%s\": %lld classes of datatype %s", tensor->name,
                            (long long)k, sy_dtype_wire_name(tensor->dtype));
    for (int d = 0; d < tensor->rank; d++)
        n *= tensor->dims[d];
    has_rows = has_rows && tensor->rank > 0;
    *out = (struct sy_classes){.rows = has_rows ? tensor->dims[0] : 1, .has_rows = has_rows};
    int64_t n_classes = out->rows > 0 ? n / out->rows : 0;
    out->k = SY_MIN(k, n_classes);
    if (out->rows * out->k > SY_CLASSIFY_MOST)
        return sy_error_set(
            SY_EARG, "output \"%s\": %lld classes of %lld rows; at most %d together", tensor->name,
            (long long)out->k, (long long)out->rows, SY_CLASSIFY_MOST);
    out->texts = calloc((size_t)(out->rows * out->k) + 1, SY_CLASSIFY_TEXT);
    SY_TRY_ALLOC(out->texts, "no memory for classes of output \"%s\"", tensor->name);
    int status = fill(tensor, output, labels, n_classes, out);
    if (status < 0)
        free(out->texts);
    return status;
}

int sy_classify_output(const struct sy_front_infer *infer, int output,
                       const struct sy_front_tensor *tensor, int64_t k, struct sy_classes *out)
{
    const struct sy_core_model_ref *model = sy_front_infer_model(infer);
    const struct sy_graph *graph = model->package->graph;
    const struct sy_shape *shape = &graph->tensors[graph->outputs[output]].shape;
    bool has_rows = shape->rank > 1 && !sy_dim_is_number(shape->dims[0]);

    return sy_classify(tensor, output, model->labels, has_rows, k, out);
}

uint64_t sy_classes_packed_bytes(const struct sy_classes *classes)
{
    uint64_t bytes = 0;

    for (int64_t i = 0; i < classes->rows * classes->k; i++)
        bytes += sizeof(uint32_t) + strlen(classes->texts[i]);
    return bytes;
}

void sy_classes_pack(const struct sy_classes *classes, unsigned char *to)
{
    for (int64_t i = 0; i < classes->rows * classes->k; i++) {
        uint32_t n = (uint32_t)strlen(classes->texts[i]);

        memcpy(to, &n, sizeof n);
        memcpy(to + sizeof n, classes->texts[i], n);
        to += sizeof n + n;
    }
}
