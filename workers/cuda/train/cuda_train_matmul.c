/* MatMul with batches and broadcasting, Gemm in all its forms. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"

#define FLOP_PER_NS 20000.0

enum { A, B };

/* y = alpha a b, seen as [batches..., m, n]; `rank` counts the batches. */
struct product {
    int rank, tensors[2];
    int64_t batch[SY_MAX_RANK + 2], own[2][SY_MAX_RANK + 2]; /* of the result, of each side */
    int64_t m, n, k, count;
    bool swapped[2]; /* in memory: Gemm's transA, transB */
    bool repeated[2], is_single[2];
    bool folds; /* one matrix on the right: the batches are rows */
    float alpha;
};

/* Ones in front, so that both sides have the result's rank; a vector is a row (a) or a column (b). */
static int read_side(const struct sy_trainer *t, struct product *p, int side, int rank,
                     int64_t *matrix)
{
    int64_t own[SY_MAX_RANK + 1];
    int n = sy_cutr_dims(t, p->tensors[side], own);
    SY_TRY(n);
    if (n == 1) {
        own[1] = side == B ? 1 : own[0];
        own[0] = side == B ? own[0] : 1;
        n = 2;
    }
    for (int i = 0; i < rank - 2; i++)
        p->own[side][i] = i < rank - n ? 1 : own[i - (rank - n)];
    matrix[p->swapped[side]] = own[n - 2];
    matrix[!p->swapped[side]] = own[n - 1];
    return SY_OK;
}

static int describe(const struct sy_trainer *t, const struct sy_node *node, struct product *p)
{
    int64_t a[2], b[2];
    const struct sy_tensor *x = t->graph->tensors;
    int rank = SY_MAX(2, SY_MAX(x[node->inputs[A]].shape.rank, x[node->inputs[B]].shape.rank));
    bool gemm = node->op == SY_OP_GEMM;
    *p = (struct product){.rank = rank - 2,
                          .tensors = {node->inputs[A], node->inputs[B]},
                          .count = 1,
                          .is_single = {true, true},
                          .alpha = gemm ? sy_node_float(node, "alpha", 1.0f) : 1.0f};
    p->swapped[A] = gemm && sy_node_int(node, "transA", 0);
    p->swapped[B] = gemm && sy_node_int(node, "transB", 0);
    SY_TRY(read_side(t, p, A, rank, a));
    SY_TRY(read_side(t, p, B, rank, b));
    p->m = a[0];
    p->k = a[1];
    p->n = b[1];
    for (int i = 0; i < p->rank; i++) {
        p->batch[i] = SY_MAX(p->own[A][i], p->own[B][i]);
        p->count *= p->batch[i];
        for (int s = A; s <= B; s++) {
            p->repeated[s] |= p->own[s][i] != p->batch[i];
            p->is_single[s] &= p->own[s][i] == 1;
            if (p->own[s][i] != p->batch[i] && p->own[s][i] != 1)
                return sy_cutr_refuse(node, "shapes that cannot be broadcast");
        }
    }
    if (a[1] != b[0] || sy_cutr_elements(t, node->outputs[0]) != p->count * p->m * p->n)
        return sy_cutr_refuse(node, "operands that do not fit each other");
    p->folds = p->is_single[B] && !p->repeated[A] && !p->swapped[A];
    if (p->folds) {
        p->m *= p->count;
        p->count = 1;
    }
    return SY_OK;
}

/* args: a, b, bias, result */
static int run_matmul(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    void *y = sy_cutr_pointer(t, step->args[3]);
    return t->ops->matmul(t->math, step->plan, sy_cutr_pointer(t, step->args[0]),
                          sy_cutr_pointer(t, step->args[1]), sy_cutr_pointer(t, step->args[2]), y,
                          y, sy_cutr_scratch(t));
}

static void align_to(struct sy_math_matmul *m, const struct sy_cutr_value *v, int64_t stride)
{
    int64_t bytes = stride * sy_math_float_bytes(v->dtype);
    while ((int64_t)v->delta_bytes % m->align_bytes || (m->count > 1 && bytes % m->align_bytes))
        m->align_bytes /= 2;
}

int sy_cutr_add_product(struct sy_trainer *t, unsigned when, const char *name,
                        struct sy_math_matmul m, const int *args)
{
    struct sy_cutr_step *step;
    SY_TRY(sy_cutr_step_new(t, when, name, run_matmul, args, 4, &step));
    m.type = t->values[args[0]].dtype;
    m.y_type = t->values[args[3]].dtype;
    m.has_bias = args[2] >= 0;
    m.y_stride = m.m * m.n;
    m.align_bytes = 16;
    align_to(&m, &t->values[args[0]], m.a_stride);
    align_to(&m, &t->values[args[1]], m.b_stride);
    align_to(&m, &t->values[args[3]], m.y_stride);
    step->cost_ns +=
        (uint64_t)(2.0 * (double)m.count * (double)m.m * (double)m.n * (double)m.k / FLOP_PER_NS);
    step->matmul = m;
    step->plan_kind = SY_CUTR_MATMUL_PLAN;
    return SY_OK;
}

/* m: extents, transpositions, strides. */
static int add_matmul(struct sy_trainer *t, unsigned when, const struct sy_node *node,
                      const struct product *p, struct sy_math_matmul m, const int *args)
{
    m.count = p->count;
    m.alpha = p->alpha;
    return sy_cutr_add_product(t, when, node->name, m, args);
}

/* Layout of one operand's matrices: contiguous, one for all (stride 0), or, if they repeat unevenly, copied first. */
static int side_operand(struct sy_trainer *t, unsigned when, const struct sy_node *node,
                        const struct product *p, int side, int *value, int64_t *stride)
{
    int64_t rows = side == A ? p->m : p->k, columns = side == A ? p->k : p->n, dims[3];
    SY_TRY(sy_cutr_operand_typed(t, when, p->tensors[side], SY_CUTR_PLAIN, sy_cutr_product_type(t),
                                 value));
    *stride = p->is_single[side] || p->count == 1 ? 0 : rows * columns;
    if (!p->repeated[side] || p->is_single[side])
        return SY_OK;
    struct sy_math_move move = {.rank = p->rank + 1};
    int64_t from = rows * columns, to = rows * columns;
    if (move.rank > SY_MAX_RANK)
        return sy_cutr_refuse(node, "so many dimensions");
    move.dims[p->rank] = rows * columns;
    move.from_strides[p->rank] = move.to_strides[p->rank] = 1;
    for (int i = p->rank - 1; i >= 0; i--) {
        move.dims[i] = p->batch[i];
        move.from_strides[i] = p->own[side][i] == 1 ? 0 : from;
        move.to_strides[i] = to;
        from *= p->own[side][i];
        to *= p->batch[i];
    }
    dims[0] = p->count;
    dims[1] = rows;
    dims[2] = columns;
    int plain = *value;
    SY_TRY(sy_cutr_value_typed(t, t->values[plain].dtype, 3, dims, false, false, value));
    return sy_cutr_move(t, when, node->name, &move, plain, *value);
}

/* ---- Gemm's C, MatMul's fused bias ------------------------------------------------------------------------ */

static int addend_of(const struct sy_node *node)
{
    int at = node->op == SY_OP_GEMM ? 2 : node->bias_input;
    return at >= 0 && at < node->n_inputs ? node->inputs[at] : -1;
}

static bool is_row(const struct sy_trainer *t, int tensor, int64_t columns)
{
    const struct sy_shape *shape = &t->graph->tensors[tensor].shape;
    return shape->rank > 0 && sy_cutr_elements(t, tensor) == columns &&
           sy_dim_at(shape->dims[shape->rank - 1], t->options.batch) == columns;
}

/* args: y, c */
static int add_addend(struct sy_trainer *t, const struct sy_node *node, const struct product *p,
                      int c, int y)
{
    int64_t dims[SY_MAX_RANK] = {1, 1}, rows, columns;
    int rank = sy_cutr_dims(t, addend_of(node), dims);
    SY_TRY(rank);
    if (rank > 2)
        return sy_cutr_refuse(node, "a C of more than two dimensions");
    columns = rank > 0 ? dims[rank - 1] : 1;
    rows = rank > 1 ? dims[0] : 1;
    if (p->count > 1 || (rows != 1 && rows != p->m))
        return sy_cutr_refuse(node, "an addend that is repeated over batches");
    struct sy_math_chain chain = {.n_inputs = 2,
                                  .n_steps = 2,
                                  .rank = 2,
                                  .dims = {p->m, p->n},
                                  .in_strides = {{p->n, 1}, {rows > 1 ? columns : 0, columns > 1}},
                                  .steps = {{SY_CHAIN_LOAD, 0, 0, 0}, {SY_CHAIN_ADD, 1, 0, 0}}};
    return sy_cutr_strided_chain(t, SY_CUTR_FORWARD, node->name, &chain, (int[]){y, c}, y);
}

/* ---- forward, backward -------------------------------------------------------------------------------- */

int sy_cutr_matmul_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct product p;
    int a, b, y, c = addend_of(node), bias = -1;
    SY_TRY(describe(t, node, &p));
    if (node->op == SY_OP_GEMM && sy_node_float(node, "beta", 1.0f) != 1.0f && c >= 0)
        return sy_cutr_refuse(node, "beta other than 1");
    struct sy_math_matmul m = {
        .m = p.m, .n = p.n, .k = p.k, .a_transposed = p.swapped[A], .b_transposed = p.swapped[B]};
    SY_TRY(side_operand(t, SY_CUTR_FORWARD, node, &p, A, &a, &m.a_stride));
    SY_TRY(side_operand(t, SY_CUTR_FORWARD, node, &p, B, &b, &m.b_stride));
    if (c >= 0)
        SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, c, SY_CUTR_PLAIN, &c));
    if (c >= 0 && is_row(t, addend_of(node), p.n))
        bias = c;
    SY_TRY(sy_cutr_result_typed(t, node->outputs[0], false,
                                sy_cutr_wanted_type(t, node->outputs[0]), &y));
    SY_TRY(add_matmul(t, SY_CUTR_FORWARD, node, &p, m, (int[]){a, b, bias, y}));
    return c >= 0 && bias < 0 ? add_addend(t, node, &p, c, y) : SY_OK;
}

/* The gradient of one side, in the order in which its matrix lies; summed over the batches to which it was repeated.
 * Of a: dy b', or b dy' if it is swapped. Of b: a' dy, or dy' a. */
static int side_backward(struct sy_trainer *t, const struct sy_node *node, const struct product *p,
                         int side, int dy)
{
    int64_t rows = side == A ? p->m : p->k, columns = side == A ? p->k : p->n, stride;
    int64_t dims[SY_MAX_RANK + 2];
    int other, full;
    bool sums = p->repeated[side] && p->count > 1;
    int64_t y_stride = p->count > 1 ? p->m * p->n : 0;
    SY_TRY(side_operand(t, SY_CUTR_TRAIN, node, p, side == A ? B : A, &other, &stride));
    for (int i = 0; i < p->rank; i++)
        dims[i] = p->batch[i];
    bool is_column = side == B && t->graph->tensors[p->tensors[B]].shape.rank == 1;
    dims[p->rank] = is_column ? columns : rows;
    dims[p->rank + 1] = is_column ? rows : columns;
    if (p->rank + 2 > SY_MAX_RANK)
        return sy_cutr_refuse(node, "so many dimensions");
    if (sums)
        SY_TRY(sy_cutr_value_new(t, p->rank + 2, dims, false, false, &full));
    else /* what is summed over many is kept as exact as it comes */
        SY_TRY(sy_cutr_diff_begin_typed(
            t, p->tensors[side], false,
            t->tensors[p->tensors[side]].param >= 0 ? SY_DTYPE_F32 : sy_cutr_product_type(t),
            &full));
    bool swapped = p->swapped[side], dy_first = (side == A) != swapped,
         other_swapped = p->swapped[side == A ? B : A];
    struct sy_math_matmul m = {.m = swapped ? columns : rows,
                               .n = swapped ? rows : columns,
                               .k = side == A ? p->n : p->m,
                               .a_stride = dy_first ? y_stride : stride,
                               .b_stride = dy_first ? stride : y_stride};
    m.a_transposed = dy_first ? side == B : (side == B) != other_swapped;
    m.b_transposed = dy_first ? (side == A) != other_swapped : side == A;
    SY_TRY(add_matmul(t, SY_CUTR_TRAIN, node, p, m,
                      dy_first ? (int[]){dy, other, -1, full} : (int[]){other, dy, -1, full}));
    return sums ? sy_cutr_diff_reduction(t, node->name, p->tensors[side], p->rank + 2, dims, full)
                : sy_cutr_diff_end(t, p->tensors[side], full);
}

int sy_cutr_matmul_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct product p;
    int dy, c = addend_of(node);
    SY_TRY(describe(t, node, &p));
    SY_TRY(sy_cutr_as_typed(t, SY_CUTR_TRAIN, gradient, false, sy_cutr_product_type(t), &dy));
    for (int side = A; side <= B; side++)
        if (sy_cutr_needs(t, p.tensors[side]))
            SY_TRY(side_backward(t, node, &p, side, dy));
    if (!sy_cutr_needs(t, c))
        return SY_OK;
    if (is_row(t, c, p.n))
        return sy_cutr_bias_gradient(t, node->name, c, dy, p.n);
    return sy_cutr_diff_reduction(t, node->name, c, 2, (int64_t[]){p.m, p.n}, dy);
}
