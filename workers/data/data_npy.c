/* .npy: inputs [samples, ...] and labels [samples] or [samples, ...], in memory. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "workers/data/data_internal.h"
#include "workers/data/npy.h"

struct npy_source {
    struct sy_data_source base;
    const struct sy_data_want *want;
    const struct sy_data_spec *spec;
    const char *label_path;
    int which; /* 0: the training set, 1: the test set */
    struct sy_npy
        inputs[SY_DATA_MAX_INPUTS]; /* as the model's; empty where the job gives a number */
    struct sy_npy labels;
};

static void npy_close(struct sy_data_source *source)
{
    struct npy_source *s = (struct npy_source *)source;
    for (int k = 0; k < SY_DATA_MAX_INPUTS; k++)
        sy_npy_finish(&s->inputs[k]);
    sy_npy_finish(&s->labels);
    free(s);
}

static double half_of(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 0    ? ldexp(fraction, -24)
                   : exponent == 31 ? (fraction ? NAN : INFINITY)
                                    : ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -value : value;
}

static double element(const struct sy_npy *npy, uint64_t i)
{
    uint16_t half;
    uint32_t wide;
    float value;
    switch (npy->dtype) {
    case SY_DTYPE_F32:
        return ((const float *)npy->data)[i];
    case SY_DTYPE_F64:
        return ((const double *)npy->data)[i];
    case SY_DTYPE_I64:
        return (double)((const int64_t *)npy->data)[i];
    case SY_DTYPE_U64:
        return (double)((const uint64_t *)npy->data)[i];
    case SY_DTYPE_U32:
        return ((const uint32_t *)npy->data)[i];
    case SY_DTYPE_U16:
        return ((const uint16_t *)npy->data)[i];
    case SY_DTYPE_I16:
        return ((const int16_t *)npy->data)[i];
    case SY_DTYPE_I32:
        return ((const int32_t *)npy->data)[i];
    case SY_DTYPE_I8:
        return ((const int8_t *)npy->data)[i];
    case SY_DTYPE_F16:
        return half_of(((const uint16_t *)npy->data)[i]);
    case SY_DTYPE_BF16:
        memcpy(&half, (const uint16_t *)npy->data + i, 2);
        wide = (uint32_t)half << 16;
        memcpy(&value, &wide, 4);
        return value;
    default: /* U8, BOOL */
        return ((const uint8_t *)npy->data)[i];
    }
}

static bool is_whole(enum sy_dtype dtype)
{
    return dtype != SY_DTYPE_F32 && dtype != SY_DTYPE_F64 && dtype != SY_DTYPE_F16 &&
           dtype != SY_DTYPE_BF16;
}

static uint64_t per_sample(const struct sy_npy *npy)
{
    return npy->bytes / sy_dtype_bytes(npy->dtype) / (uint64_t)npy->dims[0];
}

static int read_labels(struct npy_source *s, uint64_t index, void *labels)
{
    const struct sy_data_want *want = s->want;
    uint64_t n = per_sample(&s->labels), at = index * n;
    if (n == 1 && want->n_labels != 1 && is_whole(s->labels.dtype)) /* a class, several outputs */
        return sy_data_put_class(want, s->label_path, index, (int64_t)element(&s->labels, at),
                                 labels);
    for (uint64_t i = 0; i < n; i++) {
        double value = element(&s->labels, at + i);
        if (!want->are_classes && !(fabs(value) <= FLT_MAX))
            return sy_error_set(SY_ECORRUPT, "sample %llu of '%s' has label %g",
                                (unsigned long long)index, s->label_path,
                                isnan(value) ? NAN : value);
        else if (!want->are_classes)
            ((float *)labels)[i] = (float)value;
        else if (value < 0.0 || value >= (double)want->n_classes)
            return sy_error_set(
                SY_EARG, "sample %llu of '%s' has label %g, but the model has %lld outputs",
                (unsigned long long)index, s->label_path, value, (long long)want->n_classes);
        else
            ((int32_t *)labels)[i] = (int32_t)value;
    }
    return SY_OK;
}

/* A number that no network can learn from, or that float32 does not hold. */
static int check_finite(const struct npy_source *s, int k, uint64_t index, const float *x)
{
    for (uint64_t i = 0; i < s->want->inputs[k].n; i++)
        if (!isfinite(x[i]))
            return sy_error_set(SY_ECORRUPT, "sample %llu of '%s': element %llu is %g",
                                (unsigned long long)index,
                                sy_data_field_of(s->spec, s->want, k)->file[s->which],
                                (unsigned long long)i, isnan(x[i]) ? NAN : (double)x[i]);
    return SY_OK;
}

static int put_array(const struct npy_source *s, int k, uint64_t index, void *to)
{
    const struct sy_data_input *input = &s->want->inputs[k];
    const struct sy_npy *from = &s->inputs[k];
    uint64_t n = input->n;
    double mean = s->spec->mean, std = s->spec->std;
    double scale = from->dtype == SY_DTYPE_U8 ? 1.0 / 255.0 : 1.0; /* bytes are pixels */
    if (input->dtype == SY_DTYPE_F32 && from->dtype == SY_DTYPE_F32 && mean == 0.0 && std == 1.0)
        memcpy(to, (const float *)from->data + index * n, n * sizeof(float));
    else if (input->dtype == SY_DTYPE_F32)
        for (uint64_t i = 0; i < n; i++)
            ((float *)to)[i] = (float)((element(from, index * n + i) * scale - mean) / std);
    else
        for (uint64_t i = 0; i < n; i++)
            sy_data_put_input(input, i, element(from, index * n + i), to);
    return input->dtype == SY_DTYPE_F32 ? check_finite(s, k, index, to) : SY_OK;
}

static int npy_read(struct sy_data_source *source, uint64_t index, void *const *inputs,
                    void *labels)
{
    struct npy_source *s = (struct npy_source *)source;
    for (int k = 0; k < s->want->n_inputs; k++)
        if (!sy_data_put_given(sy_data_field_of(s->spec, s->want, k), &s->want->inputs[k], 0,
                               inputs[k]))
            SY_TRY(put_array(s, k, index, inputs[k]));
    return read_labels(s, index, labels);
}

static int check_array(const struct npy_source *s, int k, const char *path)
{
    const struct sy_npy *x = &s->inputs[k], *y = &s->labels;
    const struct sy_data_input *input = &s->want->inputs[k];
    char text[96];
    sy_data_input_text(s->want, k, text);
    if (x->rank < 1 || y->rank < 1 || x->dims[0] != y->dims[0] || x->dims[0] < 1)
        return sy_error_set(
            SY_ECORRUPT, "data set '%s'%s has %lld samples, '%s' has %lld labels; wanted as many",
            path, text, x->rank ? (long long)x->dims[0] : 0LL, s->label_path,
            y->rank ? (long long)y->dims[0] : 0LL);
    if (per_sample(x) != input->n)
        return sy_error_set(
            SY_EARG, "data set '%s'%s has %llu values a sample, the model's input takes %llu", path,
            text, (unsigned long long)per_sample(x), (unsigned long long)input->n);
    if (input->dtype != SY_DTYPE_F32 && !is_whole(x->dtype))
        return sy_error_set(SY_EARG, "data set '%s'%s is %s, the model's input takes %s", path,
                            text, sy_dtype_wire_name(x->dtype), sy_dtype_wire_name(input->dtype));
    return SY_OK;
}

static int open_arrays(struct npy_source *s)
{
    SY_TRY(sy_npy_read(s->label_path, &s->labels));
    for (int k = 0; k < s->want->n_inputs; k++) {
        const struct sy_data_field *field = sy_data_field_of(s->spec, s->want, k);
        if (field->from != SY_FROM_SAMPLE)
            continue;
        SY_TRY(sy_npy_read(field->file[s->which], &s->inputs[k]));
        SY_TRY(check_array(s, k, field->file[s->which]));
    }
    return SY_OK;
}

/* Sizes, and every label's range, before the first step. */
static int check_labels(struct npy_source *s)
{
    const struct sy_data_want *want = s->want;
    uint64_t n = per_sample(&s->labels);
    bool is_class = n == 1 && !want->are_classes && is_whole(s->labels.dtype);
    if ((n != want->n_labels && !is_class) || (want->are_classes && !is_whole(s->labels.dtype)))
        return sy_error_set(SY_EARG,
                            "labels '%s' are %llu %s values a sample, the loss takes %llu %s",
                            s->label_path, (unsigned long long)n,
                            sy_dtype_wire_name(s->labels.dtype), (unsigned long long)want->n_labels,
                            want->are_classes ? "classes (whole numbers)" : "values");
    void *room = calloc(want->n_labels, 4);
    int status = room ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no room for a label");
    for (uint64_t i = 0; status == SY_OK && i < (uint64_t)s->labels.dims[0]; i++)
        status = read_labels(s, i, room);
    free(room);
    return status;
}

int sy_data_npy_open(const struct sy_data_spec *spec, const struct sy_data_want *want,
                     struct sy_data_source *training, struct sy_data_source **out)
{
    int which = training != NULL, status;
    struct npy_source *s = calloc(1, sizeof *s);
    SY_TRY_ALLOC(s, "no room for data set '%s'", spec->labels[which]);
    s->base.read = npy_read;
    s->base.close = npy_close;
    s->want = want;
    s->spec = spec;
    s->which = which;
    s->label_path = spec->labels[which];
    SY_TRY_GOTO(open_arrays(s), fail);
    SY_TRY_GOTO(check_labels(s), fail);
    s->base.n = (uint64_t)s->labels.dims[0];
    *out = &s->base;
    return SY_OK;
fail:
    npy_close(&s->base);
    return status;
}
