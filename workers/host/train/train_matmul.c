/* Products of two tensors that are both computed: MatMul with batches, Gemm in all its forms. Products with a constant matrix
 * are linear layers (train_conv.c), which pack it. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

/* y = alpha * a b, seen as [batches..., m, n]. */
struct product {
    int rank; /* 2 and more */
    dnnl_dims_t a, b, y;
    dnnl_memory_desc_t a_md, b_md, y_md;
    float alpha;
    bool swaps_a, swaps_b;     /* Gemm's transA, transB */
    bool spreads_a, spreads_b; /* repeated over batches of the other */
};

/* Row-major, or with the last two dimensions swapped in memory; dims as the product sees them. */
static dnnl_memory_desc_t matrix(int rank, const int64_t *dims, bool is_swapped)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t strides;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims[i];
    }
    /* The layout of a row or a column is the same either way; oneDNN accepts a leading dimension of 1 in one of them only. */
    if (is_swapped && dims[rank - 1] > 1 && dims[rank - 2] > 1) {
        strides[rank - 1] = dims[rank - 2];
        strides[rank - 2] = 1;
    }
    memset(&md, 0, sizeof md);
    dnnl_memory_desc_init_by_strides(&md, rank, dims, dnnl_f32, strides);
    return md;
}

static void swap_last(int rank, int64_t *dims)
{
    int64_t last = dims[rank - 1];
    dims[rank - 1] = dims[rank - 2];
    dims[rank - 2] = last;
}

static dnnl_memory_desc_t transposed(int rank, const int64_t *dims, bool is_swapped)
{
    dnnl_dims_t other;
    memcpy(other, dims, sizeof other);
    swap_last(rank, other);
    return matrix(rank, other, !is_swapped);
}

/* Ones in front, so that both sides have the result's rank; a vector is a row (a) or a column (b). */
static int side(const struct sy_trainer *t, int tensor, bool is_right, int rank, int64_t *dims)
{
    int64_t own[SY_MAX_RANK + 1];
    int n = sy_tr_dims(t, tensor, own);
    SY_TRY(n);
    if (n == 1) {
        own[1] = is_right ? 1 : own[0];
        own[0] = is_right ? own[0] : 1;
        n = 2;
    }
    for (int i = 0; i < rank; i++)
        dims[i] = i < rank - n ? 1 : own[i - (rank - n)];
    return SY_OK;
}

static int describe(const struct sy_trainer *t, const struct sy_node *node, struct product *p)
{
    int ra = t->graph->tensors[node->inputs[0]].shape.rank,
        rb = t->graph->tensors[node->inputs[1]].shape.rank;
    memset(p, 0, sizeof *p);
    p->rank = SY_MAX(2, SY_MAX(ra, rb));
    p->alpha = sy_node_float(node, "alpha", 1.0f);
    SY_TRY(side(t, node->inputs[0], false, p->rank, p->a));
    SY_TRY(side(t, node->inputs[1], true, p->rank, p->b));
    p->swaps_a = node->op == SY_OP_GEMM && sy_node_int(node, "transA", 0);
    p->swaps_b = node->op == SY_OP_GEMM && sy_node_int(node, "transB", 0);
    if (p->swaps_a)
        swap_last(p->rank, p->a);
    if (p->swaps_b)
        swap_last(p->rank, p->b);
    p->a_md = matrix(p->rank, p->a, p->swaps_a);
    p->b_md = matrix(p->rank, p->b, p->swaps_b);
    for (int i = 0; i < p->rank - 2; i++) {
        p->y[i] = SY_MAX(p->a[i], p->b[i]);
        p->spreads_a |= p->a[i] != p->y[i];
        p->spreads_b |= p->b[i] != p->y[i];
    }
    p->y[p->rank - 2] = p->a[p->rank - 2];
    p->y[p->rank - 1] = p->b[p->rank - 1];
    p->y_md = sy_tr_plain(p->rank, p->y);
    return SY_OK;
}

static int add_product(struct sy_trainer *t, unsigned when, const struct sy_node *node, float alpha,
                       const dnnl_memory_desc_t *a_md, int a, const dnnl_memory_desc_t *b_md, int b,
                       const dnnl_memory_desc_t *y_md, int y)
{
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    int status, va, vb, vy;
    SY_TRY(sy_tr_value_view(t, a, a_md, &va));
    SY_TRY(sy_tr_value_view(t, b, b_md, &vb));
    SY_TRY(sy_tr_value_view(t, y, y_md, &vy));
    SY_TRY(sy_tr_check(dnnl_primitive_attr_clone(&attr, t->attr), "attributes", node->name));
    SY_TRY_GOTO(
        sy_tr_check(dnnl_matmul_desc_init(&desc, a_md, b_md, NULL, y_md), "matmul", node->name),
        done);
    if (alpha != 1.0f)
        SY_TRY_GOTO(sy_tr_check(dnnl_primitive_attr_set_output_scales(attr, 1, 0, &alpha),
                                "attributes", node->name),
                    done);
    SY_TRY_GOTO(sy_tr_check(dnnl_primitive_desc_create(&pd, &desc, attr, t->engine, NULL), "matmul",
                            node->name),
                done);
    struct sy_tr_arg args[] = {{DNNL_ARG_SRC, va}, {DNNL_ARG_WEIGHTS, vb}, {DNNL_ARG_DST, vy}};
    SY_TRY_GOTO(sy_tr_add_primitive(t, when, node->name, pd, args, 3), done);
done:
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

/* Sums [n_before, n_sum, n_after] over the middle, which is how batches were repeated. */
struct reduction {
    int rank;
    dnnl_dims_t from, to;
    int64_t n_from, n_to;
};

static int run_fold(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct reduction *f = step->data;
    float *to = sy_tr_at(t, step, 0);
    const float *from = sy_tr_at(t, step, 1);
    memset(to, 0, (size_t)f->n_to * sizeof *to);
    for (int64_t i = 0; i < f->n_from; i++) {
        int64_t left = i, at = 0, stride = 1;
        for (int d = f->rank - 1; d >= 0; d--) {
            at += f->to[d] == 1 ? 0 : left % f->from[d] * stride;
            left /= f->from[d];
            stride *= f->to[d];
        }
        to[at] += from[i];
    }
    return SY_OK;
}

static int add_fold(struct sy_trainer *t, int rank, const dnnl_dim_t *from, const dnnl_dim_t *to,
                    int to_value, int from_value)
{
    struct reduction *f;
    SY_TRY(sy_tr_alloc(sizeof *f, &f));
    f->rank = rank;
    f->n_from = f->n_to = 1;
    for (int i = 0; i < rank; i++) {
        f->n_from *= f->from[i] = from[i];
        f->n_to *= f->to[i] = to[i];
    }
    return sy_tr_add_call(t, SY_TR_TRAIN, run_fold, 1, 2, (const int[]){to_value, from_value}, f);
}

/* ---- Gemm's C, MatMul's fused bias: a row, a column, a number or a matrix that is added ------------ */

struct addend {
    int64_t rows, columns, row_stride, column_stride, n;
};

static int run_addend(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct addend *a = step->data;
    float *y = sy_tr_at(t, step, 0);
    const float *c = sy_tr_at(t, step, 1);
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->columns; i++)
            y[r * a->columns + i] += c[r * a->row_stride + i * a->column_stride];
    return SY_OK;
}

static int run_addend_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct addend *a = step->data;
    float *dc = sy_tr_at(t, step, 0);
    const float *dy = sy_tr_at(t, step, 1);
    memset(dc, 0, (size_t)a->n * sizeof *dc);
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->columns; i++)
            dc[r * a->row_stride + i * a->column_stride] += dy[r * a->columns + i];
    return SY_OK;
}

static int addend_tensor(const struct sy_node *node)
{
    int at = node->op == SY_OP_GEMM ? 2 : node->bias_input;
    return at >= 0 && at < node->n_inputs ? node->inputs[at] : -1;
}

static int add_addend(struct sy_trainer *t, unsigned when, const struct sy_node *node,
                      const struct product *p, sy_tr_fn *fn, int to, int from)
{
    int64_t dims[SY_MAX_RANK];
    struct addend *a;
    int tensor = addend_tensor(node), rank = sy_tr_dims(t, tensor, dims);
    SY_TRY(rank);
    if (rank > 2 || (node->op == SY_OP_GEMM && sy_node_float(node, "beta", 1.0f) != 1.0f))
        return sy_tr_refuse(node, "beta other than 1, or a C of more than two dimensions");
    SY_TRY(sy_tr_alloc(sizeof *a, &a));
    a->columns = p->y[p->rank - 1];
    a->rows = sy_tr_count(t, node->outputs[0]) / a->columns;
    a->n = sy_tr_count(t, tensor);
    a->column_stride = rank > 0 && dims[rank - 1] > 1;
    a->row_stride = rank > 1 && dims[0] > 1 ? dims[1] : 0;
    return sy_tr_add_call(t, when, fn, 1, 2, (const int[]){to, from}, a);
}

/* ---- MatMul, Gemm ----------------------------------------------------------------------------------- */

/* A constant matrix on the right, without special cases. */
static bool is_linear(const struct sy_trainer *t, const struct sy_node *node)
{
    const struct sy_tensor *b = &t->graph->tensors[node->inputs[1]];
    int c = addend_tensor(node);
    bool is_plain = node->op != SY_OP_GEMM ||
                    (!sy_node_int(node, "transA", 0) && sy_node_float(node, "beta", 1.0f) == 1.0f);
    int64_t dims[SY_MAX_RANK];
    int rank = sy_tr_shape(t, node->outputs[0], dims);
    bool has_row = c < 0 || (t->graph->tensors[c].data && sy_tr_needs(t, c) && rank > 0 &&
                             sy_tr_count(t, c) == dims[rank - 1]);
    return b->data && b->shape.rank == 2 && sy_tr_needs(t, node->inputs[1]) && is_plain &&
           has_row && sy_node_float(node, "alpha", 1.0f) == 1.0f &&
           t->graph->tensors[node->inputs[0]].shape.rank >= 2 &&
           !t->graph->tensors[node->inputs[0]].data;
}

int sy_tr_matmul_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct product p;
    int a, b, y, c = addend_tensor(node);
    if (t->graph->tensors[node->outputs[0]].dtype != SY_DTYPE_F32)
        return sy_tr_plain_forward(t, n);
    if (is_linear(t, node))
        return sy_tr_linear_forward(t, n);
    SY_TRY(describe(t, node, &p));
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[0], &a));
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[1], &b));
    SY_TRY(sy_tr_result(t, node->outputs[0], &y));
    SY_TRY(add_product(t, SY_TR_FORWARD, node, p.alpha, &p.a_md, a, &p.b_md, b, &p.y_md, y));
    if (c < 0)
        return SY_OK;
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, c, &c));
    return add_addend(t, SY_TR_FORWARD, node, &p, run_addend, y, c);
}

/* The gradient of one side, as its own dims in memory; summed over batches where the side was repeated. */
static int add_side(struct sy_trainer *t, const struct sy_node *node, const struct product *p,
                    bool is_right, int dy, int other)
{
    int d, to, tensor = node->inputs[is_right];
    const int64_t *own = is_right ? p->b : p->a;
    bool spreads = is_right ? p->spreads_b : p->spreads_a;
    dnnl_dims_t whole;
    dnnl_memory_desc_t md = is_right ? p->b_md : p->a_md;
    SY_TRY(sy_tr_diff_begin(t, tensor, &d));
    to = d;
    if (spreads) {
        memcpy(whole, p->y, sizeof whole);
        whole[p->rank - 2] = own[p->rank - 2];
        whole[p->rank - 1] = own[p->rank - 1];
        md = sy_tr_plain(p->rank, whole);
        SY_TRY(sy_tr_value_new(t, &md, false, &to));
    }
    dnnl_memory_desc_t flipped =
        is_right ? transposed(p->rank, p->a, p->swaps_a) : transposed(p->rank, p->b, p->swaps_b);
    SY_TRY(
        is_right
            ? add_product(t, SY_TR_TRAIN, node, p->alpha, &flipped, other, &p->y_md, dy, &md, to)
            : add_product(t, SY_TR_TRAIN, node, p->alpha, &p->y_md, dy, &flipped, other, &md, to));
    if (spreads)
        SY_TRY(add_fold(t, p->rank, whole, is_right ? p->b : p->a, d, to));
    return sy_tr_diff_end(t, tensor, d);
}

int sy_tr_matmul_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct product p;
    int a, b, dy, d, c = addend_tensor(node);
    if (is_linear(t, node))
        return sy_tr_linear_backward(t, n, gradient);
    SY_TRY(describe(t, node, &p));
    SY_TRY(sy_tr_diff_of(t, node->outputs[0], &dy));
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[0], &a));
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[1], &b));
    if (sy_tr_needs(t, node->inputs[0]))
        SY_TRY(add_side(t, node, &p, false, dy, b));
    if (sy_tr_needs(t, node->inputs[1]))
        SY_TRY(add_side(t, node, &p, true, dy, a));
    if (!sy_tr_needs(t, c))
        return SY_OK;
    SY_TRY(sy_tr_diff_begin(t, c, &d));
    SY_TRY(add_addend(t, SY_TR_TRAIN, node, &p, run_addend_back, d, dy));
    return sy_tr_diff_end(t, c, d);
}
