/* Steps that many operators share: moves from layout to layout, elementwise chains; and the arithmetic of strides. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"

int sy_cuda_add_step(struct sy_program *p, sy_cuda_step_run run, const int *values, int n,
                     struct sy_cuda_step **out)
{
    assert(n <= SY_CUDA_STEP_ARGS);
    struct sy_cuda_step *step = sy_append(&p->steps, &p->n_steps, sizeof *step);
    if (!step)
        return SY_ENOMEM_HOST;
    step->run = run;
    step->node = sy_cuda_node(p);
    for (int i = 0; i < SY_CUDA_STEP_ARGS; i++) {
        step->args[i] = i < n ? values[i] : -1;
        if (step->args[i] >= 0)
            sy_cuda_touch(p, step->args[i]);
    }
    *out = step;
    return SY_OK;
}

/* ---- strides ------------------------------------------------------------------------------------------ */

static void swap_dims(int64_t *dims, int64_t *const *strides, int n, int i, int k)
{
    int64_t held = dims[i];
    dims[i] = dims[k];
    dims[k] = held;
    for (int a = 0; a < n; a++) {
        held = strides[a][i];
        strides[a][i] = strides[a][k];
        strides[a][k] = held;
    }
}

static bool can_join(const int64_t *dims, int64_t *const *strides, int n, int outer, int inner)
{
    for (int a = 0; a < n; a++)
        if (strides[a][outer] != strides[a][inner] * dims[inner])
            return false;
    return true;
}

int sy_cuda_collapse(int rank, int64_t *dims, int64_t *const *strides, int n_arrays)
{
    int n = 0;
    for (int i = 0; i < rank; i++) /* without dimensions of 1 */
        if (dims[i] != 1)
            swap_dims(dims, strides, n_arrays, n++, i);
    for (int i = 1; i < n; i++) /* at most 8: insertion, stable */
        for (int k = i; k > 0 && llabs(strides[0][k]) > llabs(strides[0][k - 1]); k--)
            swap_dims(dims, strides, n_arrays, k, k - 1);
    int kept = 0;
    for (int i = 1; i < n; i++) {
        if (can_join(dims, strides, n_arrays, kept, i)) {
            dims[kept] *= dims[i];
            for (int a = 0; a < n_arrays; a++)
                strides[a][kept] = strides[a][i];
        } else {
            swap_dims(dims, strides, n_arrays, ++kept, i);
        }
    }
    if (n > 0)
        return kept + 1;
    if (rank > 0)
        dims[0] = 1;
    return rank > 0;
}

int sy_cuda_broadcast(const struct sy_program *p, int in, int out, int64_t *strides)
{
    const struct sy_cuda_value *v = &p->values[in], *to = &p->values[out];
    int64_t own[SY_MAX_RANK];
    sy_cuda_strides(v, own);
    for (int i = 0; i < to->rank; i++) {
        int k = i - (to->rank - v->rank);
        int64_t extent = k >= 0 ? v->dims[k] : 1;
        if (extent != 1 && extent != to->dims[i])
            return sy_unsupported(sy_cuda_node(p), "shapes that cannot be broadcast");
        strides[i] = extent == 1 ? 0 : own[k];
    }
    if (v->rank > to->rank)
        return sy_unsupported(sy_cuda_node(p), "shapes that cannot be broadcast");
    return SY_OK;
}

/* ---- moves --------------------------------------------------------------------------------------------- */

static int run_move(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->move(p->math, &step->move, sy_cuda_pointer(p, step->args[0]),
                        sy_cuda_pointer(p, step->args[1]));
}

int sy_cuda_add_move(struct sy_program *p, const struct sy_math_move *move, int from, int to)
{
    struct sy_cuda_step *step;
    SY_TRY(sy_cuda_add_step(p, run_move, (int[]){from, to}, 2, &step));
    step->move = *move;
    struct sy_math_move *m = &step->move;
    m->rank = sy_cuda_collapse(m->rank, m->dims, (int64_t *[]){m->to_strides, m->from_strides}, 2);
    return SY_OK;
}

/* Between float types: a chain that only loads. */
static int add_conversion(struct sy_program *p, int from, int to)
{
    struct sy_math_chain chain = {.n_inputs = 1};
    sy_cuda_chain_add(&chain, SY_CHAIN_LOAD, 0, 0, 0);
    return sy_cuda_add_chain(p, &chain, &from, to);
}

int sy_cuda_add_reorder(struct sy_program *p, int from, int to)
{
    const struct sy_cuda_value *v = &p->values[from];
    if (v->dtype != p->values[to].dtype)
        return add_conversion(p, from, to);
    struct sy_math_move move = {.element_bytes = (int64_t)sy_dtype_bytes(v->dtype),
                                .rank = v->rank};
    memcpy(move.dims, v->dims, sizeof move.dims);
    sy_cuda_strides(v, move.from_strides);
    sy_cuda_strides(&p->values[to], move.to_strides);
    return sy_cuda_add_move(p, &move, from, to);
}

int sy_cuda_add_expand(struct sy_program *p, int from, int to)
{
    struct sy_cuda_value *v = &p->values[to];
    struct sy_math_move move = {.element_bytes = (int64_t)sy_dtype_bytes(v->dtype),
                                .rank = v->rank};
    if (p->values[from].dtype != v->dtype)
        return sy_unsupported(sy_cuda_node(p), "inputs of different element types");
    memcpy(move.dims, v->dims, sizeof move.dims);
    SY_TRY(sy_cuda_broadcast(p, from, to, move.from_strides));
    sy_cuda_strides(v, move.to_strides);
    return sy_cuda_add_move(p, &move, from, to);
}

/* ---- chains -------------------------------------------------------------------------------------------- */

static int run_chain(struct sy_program *p, const struct sy_cuda_step *step)
{
    const void *in[SY_MATH_CHAIN_IN];
    for (int i = 0; i < step->chain.n_inputs; i++)
        in[i] = sy_cuda_pointer(p, step->args[i]);
    return p->ops->chain(p->math, &step->chain, in, sy_cuda_pointer(p, step->args[5]));
}

void sy_cuda_chain_add(struct sy_math_chain *chain, enum sy_math_chain_code code, int input,
                       float alpha, float beta)
{
    assert(chain->n_steps < SY_MATH_CHAIN_STEP);
    chain->steps[chain->n_steps++] = (struct sy_math_chain_step){code, input, alpha, beta};
}

void sy_cuda_chain_activation(struct sy_math_chain *chain, const struct sy_node *node)
{
    static const enum sy_math_chain_code codes[] = {[SY_ACT_RELU] = SY_CHAIN_LEAKY,
                                                    [SY_ACT_GELU_ERF] = SY_CHAIN_GELU_ERF,
                                                    [SY_ACT_TANH] = SY_CHAIN_TANH,
                                                    [SY_ACT_SIGMOID] = SY_CHAIN_SIGMOID,
                                                    [SY_ACT_CLIP] = SY_CHAIN_CLIP};
    if (node->activation == SY_ACT_NONE)
        return;
    bool clip = node->activation == SY_ACT_CLIP;
    sy_cuda_chain_add(chain, codes[node->activation], 0, clip ? node->act_alpha : 0,
                      clip ? node->act_beta : 0);
}

static bool is_float(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_F32 || sy_math_is_narrow(dtype);
}

int sy_cuda_add_chain(struct sy_program *p, struct sy_math_chain *chain, const int *inputs, int out)
{
    struct sy_cuda_step *step;
    int values[SY_CUDA_STEP_ARGS] = {-1, -1, -1, -1, -1, out};
    int64_t *strides[1 + SY_MATH_CHAIN_IN];
    _Static_assert(SY_CUDA_STEP_ARGS == SY_MATH_CHAIN_IN + 1, "the output comes behind the inputs");
    const struct sy_cuda_value *to = &p->values[out];
    chain->dtype = is_float(to->dtype) ? SY_DTYPE_F32 : to->dtype;
    chain->out_type = to->dtype;
    chain->rank = to->rank;
    memcpy(chain->dims, to->dims, sizeof chain->dims);
    sy_cuda_strides(to, chain->out_strides);
    for (int i = 0; i < chain->n_inputs; i++) {
        enum sy_dtype dtype = p->values[inputs[i]].dtype;
        if (dtype != to->dtype && !(is_float(dtype) && is_float(to->dtype)))
            return sy_unsupported(sy_cuda_node(p), "inputs of different element types");
        chain->in_types[i] = dtype;
        SY_TRY(sy_cuda_broadcast(p, inputs[i], out, chain->in_strides[i]));
        values[i] = inputs[i];
    }
    SY_TRY(sy_cuda_add_step(p, run_chain, values, SY_CUDA_STEP_ARGS, &step));
    step->chain = *chain;
    strides[0] = step->chain.out_strides;
    for (int i = 0; i < chain->n_inputs; i++)
        strides[1 + i] = step->chain.in_strides[i];
    step->chain.rank =
        sy_cuda_collapse(chain->rank, step->chain.dims, strides, 1 + chain->n_inputs);
    return SY_OK;
}

int sy_cuda_program_steps(struct sy_program *p, int first, int end)
{
    for (int i = first; i < end; i++) {
        const struct sy_cuda_step *step = &p->steps[i];
        int status = step->run(p, step);
        if (status < 0)
            return sy_error_prefix(status, "node %s: %s", step->node->name,
                                   sy_op_name(step->node->op));
    }
    return SY_OK;
}
