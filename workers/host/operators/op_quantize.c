/* QuantizeLinear and DequantizeLinear between float32 and 8 bits: loops on all threads, row-major. Other types: the kernels. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/rows/elementwise.h"
#include "workers/host/rows/int8_rows.h"

#define PIECE 4096 /* elements that one thread takes at once */

enum { X, SCALE, ZERO, Y, NARROW, N_ARGS };

/* x is [outer, channels, inner]; one scale for all (channels 1) or one for each channel. */
struct quantize {
    int64_t outer, channels, inner, is_signed;
};

/* Scales of a row of `n` neighbours: one scale and zero point (step 0), or one for each (step 1). */
struct row {
    const float *scale;
    const void *zero; /* 8 bits, or NULL: 0 */
    int64_t step;
    bool is_signed;
};

SY_CLONES static void dequantize_unsigned(int64_t n, const uint8_t *x, float scale, float zero,
                                          float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ((float)x[i] - zero) * scale;
}

SY_CLONES static void dequantize_signed(int64_t n, const int8_t *x, float scale, float zero,
                                        float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ((float)x[i] - zero) * scale;
}

static float zero_of(const struct row *r, int64_t i)
{
    if (!r->zero)
        return 0;
    return r->is_signed ? (float)((const int8_t *)r->zero)[i]
                        : (float)((const uint8_t *)r->zero)[i];
}

static void quantize_row(const struct row *r, int64_t n, const float *x, uint8_t *y)
{
    float low = r->is_signed ? -128 : 0, high = r->is_signed ? 127 : 255;
    int64_t run = r->step ? 1 : n;
    for (int64_t i = 0; i < n; i += run)
        sy_int8_quantize(run, x + i, r->scale[i * r->step], zero_of(r, i * r->step), low, high,
                         y + i);
}

static void dequantize_row(const struct row *r, int64_t n, const uint8_t *x, float *y)
{
    int64_t run = r->step ? 1 : n;
    for (int64_t i = 0; i < n; i += run) {
        float scale = r->scale[i * r->step], zero = zero_of(r, i * r->step);
        if (r->is_signed)
            dequantize_signed(run, (const int8_t *)x + i, scale, zero, y + i);
        else
            dequantize_unsigned(run, x + i, scale, zero, y + i);
    }
}

/* Neighbours that share a scale, or rows of channels; cut into pieces. */
struct cut {
    int64_t row, n_rows, pieces;
};

static struct cut cut_up(const struct quantize *q)
{
    struct cut c = {.row = q->inner, .n_rows = q->outer * q->channels};
    if (q->inner == 1)
        c = (struct cut){.row = q->channels, .n_rows = q->outer};
    c.pieces = (c.row + PIECE - 1) / PIECE;
    return c;
}

/* Piece p: where it begins, how long it is, and its scales. */
static struct row piece_at(const struct quantize *q, const struct cut *c, int64_t p,
                           const float *scale, const uint8_t *zero, int64_t *at, int64_t *n)
{
    int64_t row = p / c->pieces, offset = p % c->pieces * PIECE;
    bool each = q->inner == 1 && q->channels > 1;
    int64_t channel = each ? offset : row % q->channels;
    *at = row * c->row + offset;
    *n = SY_MIN((int64_t)PIECE, c->row - offset);
    return (struct row){.scale = scale + channel,
                        .zero = zero ? zero + channel : NULL,
                        .step = each,
                        .is_signed = q->is_signed != 0};
}

static int run_quantize(struct sy_program *p, struct sy_step *step)
{
    const struct quantize *q = (const struct quantize *)step->numbers;
    const struct cut c = cut_up(q);
    const float *x = sy_program_pointer(p, step->args[X].value),
                *scale = sy_program_pointer(p, step->args[SCALE].value);
    const uint8_t *zero =
        step->args[ZERO].value >= 0 ? sy_program_pointer(p, step->args[ZERO].value) : NULL;
    uint8_t *y = sy_program_pointer(p, step->args[Y].value);
#pragma omp parallel for schedule(static) if (c.n_rows * c.row > 4 * PIECE)
    for (int64_t i = 0; i < c.n_rows * c.pieces; i++) {
        int64_t at, n;
        struct row r = piece_at(q, &c, i, scale, zero, &at, &n);
        quantize_row(&r, n, x + at, y + at);
    }
    return SY_OK;
}

/* Writes float32, bf16, or both. */
static int run_dequantize(struct sy_program *p, struct sy_step *step)
{
    const struct quantize *q = (const struct quantize *)step->numbers;
    const struct cut c = cut_up(q);
    const struct sy_step_arg *args = step->args;
    const uint8_t *x = sy_program_pointer(p, args[X].value),
                  *zero = args[ZERO].value >= 0 ? sy_program_pointer(p, args[ZERO].value) : NULL;
    const float *scale = sy_program_pointer(p, args[SCALE].value);
    float *y = args[Y].value >= 0 ? sy_program_pointer(p, args[Y].value) : NULL;
    uint16_t *narrow = args[NARROW].value >= 0 ? sy_program_pointer(p, args[NARROW].value) : NULL;
#pragma omp parallel for schedule(static) if (c.n_rows * c.row > 4 * PIECE)
    for (int64_t i = 0; i < c.n_rows * c.pieces; i++) {
        float room[PIECE];
        int64_t at, n;
        struct row r = piece_at(q, &c, i, scale, zero, &at, &n);
        float *to = y ? y + at : room;
        dequantize_row(&r, n, x + at, to);
        if (narrow)
            sy_elementwise_narrow(n, to, narrow + at);
    }
    return SY_OK;
}

static bool is_8_bits(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_U8 || dtype == SY_DTYPE_I8;
}

/* ---- by the range of what the run has ------------------------------------------------------------- */

/* args: x, y, scale, zero point. */
static int run_dynamic(struct sy_program *p, struct sy_step *step)
{
    const int64_t n = step->numbers[0], pieces = (n + PIECE - 1) / PIECE;
    const float *x = sy_program_pointer(p, step->args[0].value);
    uint8_t *y = sy_program_pointer(p, step->args[1].value);
    float low, high;
    sy_int8_range(n, x, &low, &high);
    float scale, zero;
    sy_int8_scale_of(low, high, &scale, &zero);
    *(float *)sy_program_pointer(p, step->args[2].value) = scale;
    *(uint8_t *)sy_program_pointer(p, step->args[3].value) = (uint8_t)zero;
#pragma omp parallel for schedule(static) if (pieces > 4)
    for (int64_t i = 0; i < pieces; i++)
        sy_int8_quantize(SY_MIN((int64_t)PIECE, n - i * PIECE), x + i * PIECE, scale, zero, 0, 255,
                         y + i * PIECE);
    return SY_OK;
}

static int build_dynamic(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_tensor *x = sy_program_input_tensor(p, 0);
    int values[4];
    int64_t n = sy_shape_elements(&x->shape, p->batch);
    if (x->dtype != SY_DTYPE_F32 || n <= 0 || node->n_outputs != 3 || node->outputs[0] < 0 ||
        node->outputs[1] < 0 || node->outputs[2] < 0)
        return sy_program_add_kernel(p);
    SY_TRY(sy_program_input_plain(p, 0, &values[0]));
    for (int i = 0; i < 3; i++)
        SY_TRY(sy_program_output_plain(p, i, &values[1 + i]));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_dynamic, values, 4, &step));
    return sy_step_set_numbers(step, &n, 1);
}

/* ---- by given scales ------------------------------------------------------------------------------- */

/* Whether the loops support these types and shapes. */
static bool has_loop(const struct sy_program *p, struct quantize *q)
{
    const struct sy_node *node = sy_program_node(p);
    bool to_8 = node->op == SY_OP_QUANTIZE_LINEAR;
    const struct sy_tensor *x = sy_program_input_tensor(p, 0), *zero = NULL,
                           *y = &p->graph->tensors[node->outputs[0]];
    int64_t dims[SY_MAX_RANK];
    if (node->n_inputs < 2 || node->inputs[1] < 0)
        return false;
    if (sy_node_input(node, 2) >= 0)
        zero = sy_program_input_tensor(p, 2);
    enum sy_dtype small = to_8 ? y->dtype : x->dtype, wide = to_8 ? x->dtype : y->dtype;
    const struct sy_tensor *scale = sy_program_input_tensor(p, 1);
    if (!is_8_bits(small) || wide != SY_DTYPE_F32 || scale->dtype != SY_DTYPE_F32 ||
        (zero && zero->dtype != small))
        return false;
    int64_t n = sy_shape_elements(&scale->shape, p->batch), axis = sy_node_int(node, "axis", 1);
    axis += axis < 0 ? x->shape.rank : 0;
    if ((zero && sy_shape_elements(&zero->shape, p->batch) != n) ||
        sy_shape_elements(&x->shape, p->batch) <= 0)
        return false;
    *q =
        (struct quantize){.outer = 1, .channels = 1, .inner = 1, .is_signed = small == SY_DTYPE_I8};
    sy_program_dims(p, node->inputs[0], dims);
    bool along = n != 1;
    if (along && (axis < 0 || axis >= x->shape.rank || dims[axis] != n))
        return false;
    for (int d = 0; d < x->shape.rank; d++)
        *(!along || d > axis ? &q->inner : d < axis ? &q->outer : &q->channels) *= dims[d];
    return true;
}

/* Numbers with one scale keep the layout that they come in, if it has no padding. *md: the result's, ndims 0 for row-major. */
static int native_input(struct sy_program *p, const struct quantize *q, bool to_8, int *x,
                        dnnl_memory_desc_t *md)
{
    int native;
    *md = (dnnl_memory_desc_t){0};
    if (q->channels > 1 || sy_program_is_param(p, 0) || sy_program_input_tensor(p, 0)->data)
        return sy_program_input_plain(p, 0, x);
    SY_TRY(sy_program_input_native(p, 0, &native));
    const struct sy_value *v = &p->values[native];
    if (sy_program_is_plain(v) || sy_value_is_narrow(v) ||
        dnnl_memory_desc_get_size(&v->md) != (size_t)q->inner * sy_dtype_bytes(v->dtype))
        return sy_program_input_plain(p, 0, x);
    *x = native;
    *md = v->md;
    md->data_type = to_8 ? (q->is_signed ? dnnl_s8 : dnnl_u8) : dnnl_f32;
    return SY_OK;
}

/* A fresh value for the result: as `md`, or row-major. */
static int laid_out_output(struct sy_program *p, const dnnl_memory_desc_t *md, int *y)
{
    if (md->ndims == 0)
        return sy_program_output_plain(p, 0, y);
    SY_TRY(sy_program_new_laid_out(p, sy_program_node(p)->outputs[0], md, y));
    sy_program_set_output(p, 0, *y);
    return SY_OK;
}

static int build_quantize(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    bool to_8 = node->op == SY_OP_QUANTIZE_LINEAR;
    int values[N_ARGS] = {-1, -1, -1, -1, -1};
    struct quantize q;
    dnnl_memory_desc_t md = {0};
    if (!has_loop(p, &q))
        return sy_program_add_kernel(p);
    unsigned wanted = to_8 ? SY_WANT_WIDE : sy_program_wanted(p, 0);
    if (wanted == SY_WANT_WIDE)
        SY_TRY(native_input(p, &q, to_8, &values[X], &md));
    else
        SY_TRY(sy_program_input_plain(p, X, &values[X]));
    for (int i = 1; i < 3 && i < node->n_inputs; i++)
        if (node->inputs[i] >= 0)
            SY_TRY(sy_program_input_plain(p, i, &values[i]));
    if (wanted & SY_WANT_NARROW) {
        SY_TRY(sy_program_new_narrow(p, node->outputs[0], &values[NARROW]));
        sy_program_set_output(p, 0, values[NARROW]);
        p->narrow[node->outputs[0]] = values[NARROW];
    }
    if (wanted != SY_WANT_NARROW)
        SY_TRY(laid_out_output(p, &md, &values[Y]));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, to_8 ? run_quantize : run_dequantize, values, N_ARGS, &step));
    _Static_assert(sizeof q % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)&q, (int)(sizeof q / sizeof(int64_t)));
}

const struct sy_host_op sy_host_ops_quantize[] = {
    {.build = build_quantize, SY_OPS(SY_OP_QUANTIZE_LINEAR, SY_OP_DEQUANTIZE_LINEAR)},
    {.build = build_dynamic, SY_OPS(SY_OP_DYNAMIC_QUANTIZE_LINEAR)},
    {0}};
