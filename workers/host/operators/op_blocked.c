#include "workers/host/operators/op_blocked.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/operators/late_curve.h"
#include "workers/host/products/blocked_product.h"
#include "workers/host/rows/curve_rows.h"

bool sy_blocked_is_gain(void)
{
    return sy_dnnl_has_avx2() && !sy_dnnl_has_avx512() && __builtin_cpu_supports("fma");
}

void sy_blocked_md(int64_t k, int64_t n, dnnl_memory_desc_t *md)
{
    int64_t elements = sy_blocked_elements(k, n);
    sy_dnnl_plain_md(md, 1, &elements);
}

int sy_blocked_prepare(const struct sy_node *node, int64_t k, int64_t n, float *matrix)
{
    size_t bytes = (size_t)(k * n) * sizeof *matrix;
    float *copy = malloc(bytes);
    SY_TRY_ALLOC(copy, "no memory to pack the weights of %s", node->name);
    memcpy(copy, matrix, bytes);
    sy_blocked_pack(k, n, copy, matrix);
    free(copy);
    return SY_OK;
}

bool sy_blocked_is_packed(const struct sy_program *p, int input)
{
    dnnl_memory_desc_t md;
    const struct sy_param *param = sy_layer_param(&p->layers[p->layer], input);
    if (!param || param->layout_bytes != sizeof md || !sy_blocked_is_gain())
        return false;
    memcpy(&md, param->layout, sizeof md);
    return md.ndims == 1;
}

enum { X, WEIGHTS, BIAS, Y, SCRATCH, N_VALUES };

/* numbers: m, k, n, row and column stride of x; floats: the scale of the previous content of y. */
static int run_blocked(struct sy_program *p, struct sy_step *step)
{
    const int64_t *n = step->numbers;
    const struct sy_step_arg *args = step->args;
    struct sy_blocked_product b = {
        .m = n[0],
        .k = n[1],
        .n = n[2],
        .x = sy_program_pointer(p, args[X].value),
        .x_row = n[3],
        .x_column = n[4],
        .w = sy_program_pointer(p, args[WEIGHTS].value),
        .narrow = sy_value_is_narrow(&p->values[args[WEIGHTS].value]),
        .bias = args[BIAS].value >= 0 ? sy_program_pointer(p, args[BIAS].value) : NULL,
        .y_scale = step->floats[0],
        .y = sy_program_pointer(p, args[Y].value),
        .scratch = sy_program_pointer(p, args[SCRATCH].value)};
    sy_blocked_product_run(&b);
    return SY_OK;
}

/* The parameter as stored, checked to be large enough. */
static int packed_param(struct sy_program *p, int input, int64_t k, int64_t n, int *out)
{
    SY_TRY(sy_program_stored_param(p, input, out));
    const struct sy_value *w = &p->values[*out];
    uint64_t least = (uint64_t)sy_blocked_elements(k, n) * sy_value_element_bytes(w);
    if (w->bytes < least)
        return sy_error_set(SY_ECORRUPT, "node %s: input %d: %llu bytes of weights, %llu needed",
                            sy_program_node(p)->name, input, (unsigned long long)w->bytes,
                            (unsigned long long)least);
    return SY_OK;
}

/* numbers: k, n. */
static int run_unpack(struct sy_program *p, struct sy_step *step)
{
    const int64_t *n = step->numbers;
    int from = step->args[0].value;
    sy_blocked_unpack(n[0], n[1], sy_program_pointer(p, from), sy_value_is_narrow(&p->values[from]),
                      sy_program_pointer(p, step->args[1].value));
    return SY_OK;
}

int sy_program_add_unpacked(struct sy_program *p, int input, int64_t k, int64_t n, int *out)
{
    int from;
    SY_TRY(packed_param(p, input, k, n, &from));
    SY_TRY(sy_program_new_value(p, SY_DTYPE_F32, 2, (int64_t[]){k, n}, out));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_unpack, (int[]){from, *out}, 2, &step));
    return sy_step_set_numbers(step, (int64_t[]){k, n}, 2);
}

int sy_program_add_blocked(struct sy_program *p, int input, const struct sy_blocked_step *s)
{
    int weights, scratch;
    if (s->m < 1)
        return SY_OK;
    SY_TRY(packed_param(p, input, s->k, s->n, &weights));
    SY_TRY(sy_program_new_value(p, SY_DTYPE_F32, 2, (int64_t[]){s->m, s->k}, &scratch));
    struct sy_step *step = sy_program_add_step(p, run_blocked, N_VALUES);
    SY_TRY_ALLOC(step, "no memory for a step");
    const int values[N_VALUES] = {
        [X] = s->x, [WEIGHTS] = weights, [BIAS] = s->bias, [Y] = s->y, [SCRATCH] = scratch};
    for (int i = 0; i < N_VALUES; i++)
        sy_step_set(p, step, i, 0, values[i]);
    SY_TRY(sy_step_set_floats(step, &s->sum_scale, 1));
    const int64_t numbers[] = {s->m, s->k, s->n, s->x_transposed ? 1 : s->k,
                               s->x_transposed ? s->m : 1};
    return sy_step_set_numbers(step, numbers, (int)SY_ARRAY_LEN(numbers));
}

/* ---- activations -------------------------------------------------------------------------------------------- */

static struct sy_curve curve_of(const struct sy_node *node)
{
    struct sy_curve curve = {0};
    sy_fused_curve_read(node, &curve);
    return curve;
}

/* numbers: elements. */
static int run_activation(struct sy_program *p, struct sy_step *step)
{
    struct sy_curve curve = curve_of(step->node);
    float *y = sy_program_pointer(p, step->args[0].value);
    sy_curve_rows(&curve, step->numbers[0], y, y);
    return SY_OK;
}

bool sy_activation_is_own(const struct sy_node *node, dnnl_data_type_t type)
{
    return node->activation == SY_ACT_GELU_ERF && type == dnnl_f32;
}

int sy_program_add_activation(struct sy_program *p, int value)
{
    const struct sy_node *node = sy_program_node(p);
    if (node->activation == SY_ACT_NONE)
        return SY_OK;
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_activation, (int[]){value}, 1, &step));
    step->node = node;
    int64_t n = (int64_t)(p->values[value].bytes / sizeof(float));
    return sy_step_set_numbers(step, &n, 1);
}
