#include "workers/host/operators/part_rows.h"

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/program/channel_layout.h"

#define PARALLEL_FROM 16384 /* elements; below it waking the threads costs more than they save */
#define AT_ONCE       4096  /* floats: they stay in the first cache between two passes */

/* `channels` numbers of each of `pixels` rows; from one row to the next, and where the first one begins. */
struct operand {
    int value;
    int64_t step, offset;
};

/* Pixels of all images. */
static int64_t pixels_of(const struct sy_program *p, int tensor, int64_t *channels)
{
    int64_t dims[SY_MAX_RANK], n;
    int rank = p->graph->tensors[tensor].shape.rank;
    sy_program_dims(p, tensor, dims);
    *channels = dims[1];
    n = dims[0];
    for (int i = 2; i < rank; i++)
        n *= dims[i];
    return n;
}

/* Whether the input is a part of a value that lies with channels last. */
static bool is_part(const struct sy_program *p, int input)
{
    int tensor = sy_program_node(p)->inputs[input];
    return tensor >= 0 && !sy_program_is_param(p, input) && p->native[tensor] >= 0 &&
           p->values[p->native[tensor]].pending &&
           sy_channel_layout_of(&p->values[p->parts[tensor].value]) == SY_CHANNELS_LAST;
}

/* Whether the input can be read in rows of channels without a copy. */
static bool is_in_rows(const struct sy_program *p, int input)
{
    int tensor = sy_program_node(p)->inputs[input];
    if (is_part(p, input))
        return true;
    return tensor >= 0 && !sy_program_is_param(p, input) && p->native[tensor] >= 0 &&
           !p->values[p->native[tensor]].pending &&
           sy_channel_layout_of(&p->values[p->native[tensor]]) == SY_CHANNELS_LAST;
}

static int take(struct sy_program *p, int input, struct operand *out)
{
    struct sy_part part = {.first = 0};
    if (!sy_program_input_part(p, input, &part))
        SY_TRY(sy_program_input_native(p, input, &part.value));
    *out = (struct operand){part.value, p->values[part.value].dims[1], part.first};
    return SY_OK;
}

static int place_output(struct sy_program *p, int *out)
{
    int64_t dims[SY_MAX_RANK];
    dnnl_memory_desc_t md;
    int tensor = sy_program_node(p)->outputs[0];
    sy_program_dims(p, tensor, dims);
    SY_TRY(sy_channel_layout_md(SY_CHANNELS_LAST, p->graph->tensors[tensor].shape.rank, dims, &md));
    SY_TRY(sy_program_new_laid_out(p, tensor, &md, out));
    sy_program_set_output(p, 0, *out);
    return SY_OK;
}

/* ---- one input ------------------------------------------------------------------------------------------ */

SY_CLONES static void gather_rows(int64_t rows, int64_t n, const float *from, int64_t step,
                                  float *restrict to)
{
    for (int64_t r = 0; r < rows; r++, from += step, to += n)
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i];
}

/* numbers: operator, form of Gelu, pixels, channels, the input's step and offset */
static int run_curve(struct sy_program *p, struct sy_step *step)
{
    const int64_t *n = step->numbers, pixels = n[2], channels = n[3];
    const struct sy_curve c = {.op = (enum sy_op)n[0],
                               .a = step->floats[0],
                               .b = step->floats[1],
                               .is_tanh_gelu = n[1] != 0};
    const float *from = (const float *)sy_program_pointer(p, step->args[0].value) + n[5];
    float *to = sy_program_pointer(p, step->args[1].value);
    int64_t rows = SY_MAX(1, AT_ONCE / channels);
    /* Gathered first: a call for each row of 32 channels takes twice as long. */
#pragma omp parallel for schedule(static) if (pixels * channels > PARALLEL_FROM)
    for (int64_t i = 0; i < pixels; i += rows) {
        int64_t some = SY_MIN(rows, pixels - i);
        gather_rows(some, channels, from + i * n[4], n[4], to + i * channels);
        sy_curve_rows_here(&c, some * channels, to + i * channels, to + i * channels);
    }
    return SY_OK;
}

int sy_part_curve_build(struct sy_program *p, const struct sy_curve *curve, bool *built)
{
    struct operand x;
    int64_t channels, pixels = pixels_of(p, sy_program_node(p)->outputs[0], &channels);
    int out;
    *built = is_part(p, 0);
    if (!*built)
        return SY_OK;
    SY_TRY(take(p, 0, &x));
    SY_TRY(place_output(p, &out));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_curve, (int[]){x.value, out}, 2, &step));
    SY_TRY(sy_step_set_floats(step, (float[]){curve->a, curve->b}, 2));
    return sy_step_set_numbers(
        step, (int64_t[]){curve->op, curve->is_tanh_gelu, pixels, channels, x.step, x.offset}, 6);
}

/* ---- two inputs ----------------------------------------------------------------------------------------- */

#define ROWS_OF(name, operation)                                                               \
    SY_CLONES static void name##_rows(int64_t rows, int64_t n, const float *a, int64_t a_step, \
                                      const float *b, int64_t b_step, float *restrict out)     \
    {                                                                                          \
        for (int64_t r = 0; r < rows; r++, a += a_step, b += b_step, out += n)                 \
            for (int64_t i = 0; i < n; i++)                                                    \
                out[i] = a[i] operation b[i];                                                  \
    }
ROWS_OF(add, +)
ROWS_OF(subtract, -)
ROWS_OF(multiply, *)

/* numbers: operator, pixels, channels, both inputs' steps, both offsets */
static int run_pair(struct sy_program *p, struct sy_step *step)
{
    const int64_t *n = step->numbers, pixels = n[1], channels = n[2];
    const float *a = (const float *)sy_program_pointer(p, step->args[0].value) + n[5],
                *b = (const float *)sy_program_pointer(p, step->args[1].value) + n[6];
    float *to = sy_program_pointer(p, step->args[2].value);
    int64_t rows = SY_MAX(1, AT_ONCE / channels);
#pragma omp parallel for schedule(static) if (pixels * channels > PARALLEL_FROM)
    for (int64_t i = 0; i < pixels; i += rows)
        (n[0] == SY_OP_ADD   ? add_rows
         : n[0] == SY_OP_SUB ? subtract_rows
                             : multiply_rows)(SY_MIN(rows, pixels - i), channels, a + i * n[3],
                                              n[3], b + i * n[4], n[4], to + i * channels);
    return SY_OK;
}

static bool is_pair_of_parts(const struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_shape *y = &p->graph->tensors[node->outputs[0]].shape;
    bool parts = false;
    for (int i = 0; i < 2; i++) {
        const struct sy_tensor *x = sy_program_input_tensor(p, i);
        if (x->dtype != SY_DTYPE_F32 || !sy_shape_equal(&x->shape, y) || !is_in_rows(p, i))
            return false;
        parts = parts || is_part(p, i);
    }
    return parts;
}

int sy_part_pair_build(struct sy_program *p, enum sy_op op, bool *built)
{
    int64_t channels, pixels = pixels_of(p, sy_program_node(p)->outputs[0], &channels);
    struct operand x[2];
    int out;
    *built = (op == SY_OP_ADD || op == SY_OP_SUB || op == SY_OP_MUL) && is_pair_of_parts(p);
    if (!*built)
        return SY_OK;
    for (int i = 0; i < 2; i++)
        SY_TRY(take(p, i, &x[i]));
    SY_TRY(place_output(p, &out));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_pair, (int[]){x[0].value, x[1].value, out}, 3, &step));
    const int64_t numbers[] = {op,        pixels,      channels,   x[0].step,
                               x[1].step, x[0].offset, x[1].offset};
    return sy_step_set_numbers(step, numbers, SY_ARRAY_LEN(numbers));
}
