/* Gemm and MatMul. Of constant matrices on the right alpha and the transposition are in the package; all other products take
 * both sides as they lie. A bias of one row is the product's own; any other C is put into the result's memory first, and the product is
 * added to it. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"
#include "workers/engine/product_node.h"

/* ---- operands ----------------------------------------------------------------------------------------- */

struct product {
    int a, b, y, rank;               /* values; rank of the result */
    bool prepared;                   /* of b: [k, n] lies there whatever the tensor's shape says */
    int64_t dims[SY_MAX_RANK];       /* of the result's batch: rank - 2 */
    int64_t strides[3][SY_MAX_RANK]; /* in it: a, b, y */
    struct sy_math_matmul m;
};

static int check_operands(struct sy_program *p, const struct product *x)
{
    const struct sy_node *node = sy_cuda_node(p);
    const struct sy_cuda_value *a = &p->values[x->a], *b = &p->values[x->b];
    if (sy_cuda_input_tensor(p, 0)->dtype != SY_DTYPE_F32 ||
        sy_cuda_input_tensor(p, 1)->dtype != SY_DTYPE_F32)
        return sy_unsupported(node, "these element types; only float32");
    if (a->rank < 2 || b->rank < 2)
        return sy_unsupported(node, "a product with a vector");
    if (node->op == SY_OP_GEMM && (a->rank != 2 || b->rank != 2))
        return sy_unsupported(node, "operands that are not matrices");
    return SY_OK;
}

/* Extents of the matrices themselves. */
static int read_extents(struct sy_program *p, struct product *x)
{
    const struct sy_node *node = sy_cuda_node(p);
    const struct sy_cuda_value *a = &p->values[x->a], *b = &p->values[x->b];
    struct sy_math_matmul *m = &x->m;
    m->a_transposed = sy_product_is_transposed(node, 0);
    m->b_transposed = sy_product_is_transposed(node, 1) && !x->prepared;
    bool b_swapped = sy_product_is_transposed(node, 1);
    m->m = a->dims[a->rank - (m->a_transposed ? 1 : 2)];
    m->k = a->dims[a->rank - (m->a_transposed ? 2 : 1)];
    m->n = b->dims[b->rank - (b_swapped ? 2 : 1)];
    if (b->dims[b->rank - (b_swapped ? 1 : 2)] != m->k)
        return sy_unsupported(node, "operands that do not fit each other");
    m->count = 1;
    m->alpha = x->prepared ? 1 : sy_node_float(node, "alpha", 1);
    m->activation = node->activation;
    m->act_alpha = node->act_alpha;
    m->act_beta = node->act_beta;
    return SY_OK;
}

/* Strides of `value` in the result's batch dimensions, 0 where it is repeated. */
static int batch_strides(struct sy_program *p, const struct product *x, int value, int64_t *strides)
{
    const struct sy_cuda_value *v = &p->values[value];
    int64_t stride = v->dims[v->rank - 1] * v->dims[v->rank - 2];
    for (int i = x->rank - 3; i >= 0; i--) {
        int k = i - (x->rank - v->rank);
        int64_t extent = k >= 0 ? v->dims[k] : 1;
        if (extent != 1 && extent != x->dims[i])
            return sy_unsupported(sy_cuda_node(p), "shapes that cannot be broadcast");
        strides[i] = extent == 1 ? 0 : stride;
        stride *= extent;
    }
    return SY_OK;
}

/* The result's batch as loops around strided products; the rows of many products with one b are one product. */
static int read_batch(struct sy_program *p, struct product *x, struct sy_cuda_loops *loops)
{
    const struct sy_cuda_value *y = &p->values[x->y];
    struct sy_math_matmul *m = &x->m;
    x->rank = y->rank;
    if (x->rank < 2 || p->values[x->a].rank > x->rank || p->values[x->b].rank > x->rank ||
        y->dims[x->rank - 2] != m->m || y->dims[x->rank - 1] != m->n)
        return sy_unsupported(sy_cuda_node(p), "a result of another shape");
    memcpy(x->dims, y->dims, sizeof x->dims);
    SY_TRY(batch_strides(p, x, x->a, x->strides[0]));
    SY_TRY(batch_strides(p, x, x->b, x->strides[1]));
    SY_TRY(batch_strides(p, x, x->y, x->strides[2]));
    int n = sy_cuda_collapse(x->rank - 2, x->dims,
                             (int64_t *[]){x->strides[2], x->strides[0], x->strides[1]}, 3);
    if (n > 0 && x->strides[1][n - 1] == 0 && x->strides[0][n - 1] == m->m * m->k &&
        !m->a_transposed)
        m->m *= x->dims[--n];
    if (n > 0) {
        m->count = x->dims[--n];
        m->a_stride = x->strides[0][n];
        m->b_stride = x->strides[1][n];
        m->y_stride = x->strides[2][n];
    }
    if (n > SY_CUDA_MATMUL_RANK)
        return sy_unsupported(sy_cuda_node(p), "so many batch dimensions");
    *loops = (struct sy_cuda_loops){.rank = n};
    m->align_bytes = 16;
    for (int i = 0; i < n; i++) {
        loops->dims[i] = x->dims[i];
        for (int k = 0; k < 3; k++) {
            loops->strides[k][i] = x->strides[k][i];
            while (loops->strides[k][i] * sy_math_float_bytes(k < 2 ? m->type : m->y_type) %
                   m->align_bytes)
                m->align_bytes /= 2;
        }
    }
    return SY_OK;
}

/* ---- what is added ------------------------------------------------------------------------------------ */

/* Whether the bias is one row of `columns`, and nothing is left to multiply it with. */
static bool is_row_bias(const struct sy_program *p, int64_t columns)
{
    const struct sy_node *node = sy_cuda_node(p);
    int64_t dims[SY_MAX_RANK], n = 1;
    int bias = sy_product_bias(node);
    if (bias < 0 || (node->op == SY_OP_GEMM && !sy_cuda_is_param(p, bias) &&
                     sy_node_float(node, "beta", 1) != 1))
        return false;
    int rank = sy_cuda_input_tensor(p, bias)->shape.rank;
    sy_cuda_dims(p, node->inputs[bias], dims);
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    return rank > 0 && dims[rank - 1] == columns && n == columns;
}

/* The product's destination, and *c, which is added to it times m->beta: the residual, or C broadcast to the result's shape. */
static int place_output(struct sy_program *p, bool over_bias, struct sy_math_matmul *m, int *c,
                        int *y)
{
    const struct sy_node *node = sy_cuda_node(p);
    int over = over_bias ? sy_product_bias(node) : node->residual_input, from;
    bool narrow = sy_math_is_narrow(m->y_type);
    *c = -1;
    m->beta = 0;
    if (over < 0)
        return sy_cuda_output_as(p, 0, m->y_type, false, y);
    if (over_bias && node->residual_input >= 0)
        return sy_unsupported(node, "a residual together with a bias that is not one row");
    SY_TRY(sy_cuda_input_as(p, over, false, narrow, &from));
    m->beta = 1;
    if (over_bias && node->op == SY_OP_GEMM && !sy_cuda_is_param(p, over))
        m->beta = sy_node_float(node, "beta", 1);
    if (over_bias) {
        SY_TRY(sy_cuda_output_as(p, 0, m->y_type, false, y));
        *c = *y;
        return sy_cuda_add_expand(p, from, *y);
    }
    SY_TRY(sy_cuda_output_over(p, over, from, m->y_type, y));
    *c = from;
    if (p->values[from].bytes == p->values[*y].bytes)
        return SY_OK;
    *c = *y; /* a residual that is repeated */
    return sy_cuda_add_expand(p, from, *y);
}

/* args: a, b, bias, c, y */
static int run_matmul(struct sy_program *p, const struct sy_cuda_step *step)
{
    const struct sy_cuda_loops *l = &step->loops;
    unsigned char *at[5];
    int64_t total = 1, bytes = sy_math_float_bytes(step->matmul.type),
            y_bytes = sy_math_float_bytes(step->matmul.y_type);
    for (int i = 0; i < 5; i++)
        at[i] = sy_cuda_pointer(p, step->args[i]);
    for (int i = 0; i < l->rank; i++)
        total *= l->dims[i];
    for (int64_t k = 0; k < total; k++) {
        int64_t left = k, offset[3] = {0, 0, 0};
        for (int i = l->rank - 1; i >= 0; i--) {
            for (int o = 0; o < 3; o++)
                offset[o] += left % l->dims[i] * l->strides[o][i];
            left /= l->dims[i];
        }
        SY_TRY(p->ops->matmul(
            p->math, step->plan, at[0] + offset[0] * bytes, at[1] + offset[1] * bytes, at[2],
            at[3] ? at[3] + offset[2] * y_bytes : NULL, at[4] + offset[2] * y_bytes,
            (unsigned char *)p->binding->workspace + p->scratch_offset));
    }
    return SY_OK;
}

static int build_matmul(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct product x = {0};
    struct sy_cuda_loops loops;
    struct sy_cuda_step *step;
    int bias = -1, c;
    bool narrow = sy_cuda_multiplies_narrow(p, &p->layers[p->layer]);
    SY_TRY(sy_cuda_input_as(p, 0, false, narrow, &x.a));
    SY_TRY(sy_cuda_input_as(p, 1, false, narrow, &x.b));
    SY_TRY(check_operands(p, &x));
    x.m.type = p->values[x.a].dtype;
    x.m.y_type = narrow ? sy_cuda_wanted(p, 0) : SY_DTYPE_F32;
    x.prepared = sy_cuda_is_param(p, 1) && sy_cuda_packs_product(p->graph, node);
    SY_TRY(read_extents(p, &x));
    x.m.has_bias = is_row_bias(p, x.m.n);
    if (x.m.has_bias)
        SY_TRY(sy_cuda_input_plain(p, sy_product_bias(node), &bias));
    SY_TRY(place_output(p, sy_product_bias(node) >= 0 && !x.m.has_bias, &x.m, &c, &x.y));
    SY_TRY(read_batch(p, &x, &loops));
    SY_TRY(sy_cuda_add_step(p, run_matmul, (int[]){x.a, x.b, bias, c, x.y}, 5, &step));
    step->matmul = x.m;
    step->loops = loops;
    step->plan_kind = SY_CUDA_MATMUL_PLAN;
    return SY_OK;
}

const struct sy_cuda_op sy_cuda_ops_matmul[] = {
    {.build = build_matmul, SY_OPS(SY_OP_GEMM, SY_OP_MATMUL)}, {0}};
