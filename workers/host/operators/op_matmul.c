/* Gemm and MatMul on oneDNN's matmul. Constant matrices on the right are packed at import, alpha and transposition in them, and on CPUs
 * without AVX-512 multiplied by a product of our own (op_blocked.h); all other products take both sides as they lie. A bias of one row is
 * the product's; any other C is put into the result's memory first, and the product is added to it. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/product_node.h"
#include "workers/host/operators/op_blocked.h"
#include "workers/host/program/program_internal.h"

#define REFERENCE_ROWS 128 /* the weights' layout is chosen for this many rows */
#define MANY_ROWS      384
#define MOST_UNPACKED  ((int64_t)8 << 20) /* elements */

/* y[M, N] = x[M, K] w[K, N], + bias row, + what is in y times sum_scale (0: nothing). */
struct matmul_shape {
    dnnl_data_type_t type, dst_type; /* type: of both factors; dst_type: of the product */
    int64_t m, k, n;
    bool with_bias;
    float sum_scale;
};

static int weights_dims(const struct sy_graph *graph, const struct sy_node *node, int64_t *k,
                        int64_t *n)
{
    const struct sy_tensor *w = &graph->tensors[node->inputs[1]];
    if (w->shape.rank != 2)
        return sy_unsupported(node, "constant weights that are not a matrix");
    *k = w->shape.dims[sy_product_is_transposed(node, 1)].fixed;
    *n = w->shape.dims[!sy_product_is_transposed(node, 1)].fixed;
    return SY_OK;
}

/* A row-major matrix of these extents; `transposed`: it lies there as [columns, rows]. */
static void matrix_md(dnnl_memory_desc_t *md, dnnl_data_type_t type, int64_t rows, int64_t columns,
                      bool is_transposed)
{
    dnnl_dims_t dims = {rows, columns};
    dnnl_dims_t strides = {is_transposed ? 1 : columns, is_transposed ? rows : 1};
    dnnl_memory_desc_init_by_strides(md, 2, dims, type, strides);
}

static int make_pd(const struct sy_node *node, const struct matmul_shape *s,
                   const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *out)
{
    dnnl_matmul_desc_t desc;
    dnnl_memory_desc_t src, w, bias, dst;
    dnnl_primitive_attr_t attr;
    matrix_md(&src, s->type, s->m, s->k, sy_product_is_transposed(node, 0));
    sy_dnnl_plain_md_of(&dst, s->dst_type, 2, (int64_t[]){s->m, s->n});
    sy_dnnl_plain_md(&bias, 2, (int64_t[]){1, s->n});
    dnnl_memory_desc_init_by_tag(&w, 2, (dnnl_dims_t){s->k, s->n}, s->type, dnnl_format_tag_any);
    SY_TRY(sy_dnnl_check_sizes(node->name, &src, &w, &dst));
    SY_DNNL(dnnl_matmul_desc_init(&desc, &src, weights ? weights : &w, s->with_bias ? &bias : NULL,
                                  &dst),
            node->name);
    SY_TRY(sy_dnnl_node_attr(node, s->dst_type, s->sum_scale, &attr));
    dnnl_status_t status = dnnl_primitive_desc_create(out, &desc, attr, sy_dnnl_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    return sy_dnnl_check(status, "matmul", node->name);
}

static bool constant_matrix(const struct sy_graph *graph, const struct sy_node *node)
{
    const struct sy_tensor *w = &graph->tensors[node->inputs[1]];
    const struct sy_tensor *x = &graph->tensors[node->inputs[0]];
    return w->dtype == SY_DTYPE_F32 && w->shape.rank == 2 && x->shape.rank >= 2;
}

static int choose_layout(const struct sy_node *node, const struct matmul_shape *s,
                         dnnl_memory_desc_t *md, bool *fast)
{
    dnnl_primitive_desc_t pd;
    const char *name = "";
    SY_TRY(make_pd(node, s, NULL, &pd));
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    *fast = strncmp(name, "ref", 3) != 0;
    *md = *sy_dnnl_md(pd, dnnl_query_weights_md);
    dnnl_primitive_desc_destroy(pd);
    return SY_OK;
}

static bool is_blocked(const struct matmul_shape *s)
{
    return sy_blocked_is_gain() && s->k > 0 && s->n > 0;
}

static int layout_matmul(const struct sy_graph *graph, const struct sy_node *node, int input,
                         dnnl_memory_desc_t *md)
{
    struct matmul_shape s = {.type = dnnl_bf16,
                             .dst_type = dnnl_f32,
                             .m = REFERENCE_ROWS,
                             .with_bias = sy_product_bias(node) >= 0,
                             .sum_scale = node->residual_input >= 0};
    bool fast = false;
    if (input != 1 || !constant_matrix(graph, node))
        return SY_OK;
    SY_TRY(weights_dims(graph, node, &s.k, &s.n));
    if (is_blocked(&s)) {
        sy_blocked_md(s.k, s.n, md);
        return SY_OK;
    }
    if (sy_node_packs_narrow(graph, node)) {
        int status = choose_layout(node, &s, md, &fast);
        if (status < 0 && status != SY_EUNSUPPORTED)
            return status;
    }
    s.type = dnnl_f32;
    return fast ? SY_OK : choose_layout(node, &s, md, &fast);
}

/* Gemm's transposition, alpha and beta (and a folded alpha of MatMul) go into the constants at import. */
static int prepare_matmul(const struct sy_graph *graph, const struct sy_node *node, int input,
                          void *out)
{
    struct matmul_shape s = {0};
    bool is_matrix = input == 1 && constant_matrix(graph, node);
    sy_product_pack(graph, node, input, is_matrix, out);
    if (!is_matrix)
        return SY_OK;
    SY_TRY(weights_dims(graph, node, &s.k, &s.n));
    return is_blocked(&s) ? sy_blocked_prepare(node, s.k, s.n, out) : SY_OK;
}

/* Chooses the product's output: over (a copy of) the residual, over C (both float32), or fresh. *sum_scale: factor of its previous content. */
static int place_output(struct sy_program *p, bool over_bias, bool narrow, int *out,
                        float *sum_scale)
{
    const struct sy_node *node = sy_program_node(p);
    int over = over_bias ? sy_product_bias(node) : node->residual_input, from;
    *sum_scale = 0;
    if (over < 0 && narrow) {
        SY_TRY(sy_program_new_narrow(p, node->outputs[0], out));
        sy_program_set_output(p, 0, *out);
        return SY_OK;
    }
    if (over < 0)
        return sy_program_output_plain(p, 0, out);
    if (over_bias && node->residual_input >= 0)
        return sy_unsupported(node, "a residual together with a bias that is not one row");
    SY_TRY(sy_program_input_plain(p, over, &from));
    *sum_scale = 1;
    if (over_bias && node->op == SY_OP_GEMM && !sy_program_is_param(p, over))
        *sum_scale = sy_node_float(node, "beta", 1);
    if (!over_bias && sy_program_is_last_use(p, over, from)) {
        SY_TRY(sy_program_new_alias(p, from, node->outputs[0], NULL, out));
        sy_program_set_output(p, 0, *out);
        return SY_OK;
    }
    SY_TRY(sy_program_output_plain(p, 0, out));
    return sy_program_add_expand(p, from, *out);
}

/* Views the same bytes as a matrix. */
static int as_matrix(struct sy_program *p, int value, int tensor, int64_t rows, int64_t columns,
                     bool is_transposed, int *out)
{
    dnnl_memory_desc_t md;
    matrix_md(&md, p->values[value].md.data_type, rows, columns, is_transposed);
    return sy_program_new_alias(p, value, tensor, &md, out);
}

/* Whether the bias is one row of `columns`, without a factor. */
static bool is_row_bias(const struct sy_program *p, int64_t columns)
{
    const struct sy_node *node = sy_program_node(p);
    int64_t dims[SY_MAX_RANK], n = 1;
    int bias = sy_product_bias(node), rank;
    if (bias < 0 || (node->op == SY_OP_GEMM && !sy_program_is_param(p, bias) &&
                     sy_node_float(node, "beta", 1) != 1))
        return false;
    rank = sy_program_input_tensor(p, bias)->shape.rank;
    sy_program_dims(p, node->inputs[bias], dims);
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    return rank > 0 && dims[rank - 1] == columns && n == columns;
}

static int64_t count(const struct sy_value *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++)
        n *= v->dims[i];
    return n;
}

/* The right side is packed for our own product. */
static int build_blocked(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    struct sy_blocked_step s = {.x_transposed = sy_product_is_transposed(node, 0), .bias = -1};
    SY_TRY(weights_dims(p->graph, node, &s.k, &s.n));
    SY_TRY(sy_program_input_plain(p, 0, &s.x));
    s.m = count(&p->values[s.x]) / s.k;
    int bias = sy_product_bias(node);
    bool is_row = is_row_bias(p, s.n);
    if (is_row)
        SY_TRY(sy_program_input_plain(p, bias, &s.bias));
    SY_TRY(place_output(p, bias >= 0 && !is_row, false, &s.y, &s.sum_scale));
    SY_TRY(sy_program_add_blocked(p, 1, &s));
    return sy_program_add_activation(p, s.y);
}

static int add_own_activation(struct sy_program *p, int y)
{
    return sy_activation_is_own(sy_program_node(p), p->values[y].md.data_type)
               ? sy_program_add_activation(p, y)
               : SY_OK;
}

/* The right side is a matrix: packed for oneDNN, or row-major. */
static int build_constant(struct sy_program *p, int weights)
{
    const struct sy_node *node = sy_program_node(p);
    struct matmul_shape s = {0};
    dnnl_primitive_desc_t pd;
    int src, dst, args[4][2], n = 0;
    SY_TRY(weights_dims(p->graph, node, &s.k, &s.n));
    s.type = p->values[weights].md.data_type;
    bool narrow = s.type == dnnl_bf16;
    SY_TRY(narrow ? sy_program_input_narrow(p, 0, &src) : sy_program_input_plain(p, 0, &src));
    s.m = s.k ? count(&p->values[src]) / s.k : 0;
    s.with_bias = is_row_bias(p, s.n);
    SY_TRY(as_matrix(p, src, node->inputs[0], s.m, s.k, sy_product_is_transposed(node, 0), &src));
    memcpy(args[n++], (int[]){DNNL_ARG_SRC, src}, sizeof args[0]);
    memcpy(args[n++], (int[]){DNNL_ARG_WEIGHTS, weights}, sizeof args[0]);
    if (s.with_bias) {
        int bias, tensor = node->inputs[sy_product_bias(node)];
        SY_TRY(sy_program_input_plain(p, sy_product_bias(node), &bias));
        SY_TRY(as_matrix(p, bias, tensor, 1, s.n, false, &bias));
        memcpy(args[n++], (int[]){DNNL_ARG_BIAS, bias}, sizeof args[0]);
    }
    SY_TRY(place_output(p, sy_product_bias(node) >= 0 && !s.with_bias,
                        narrow && sy_program_wanted(p, 0) == SY_WANT_NARROW, &dst, &s.sum_scale));
    s.dst_type = p->values[dst].md.data_type;
    SY_TRY(as_matrix(p, dst, node->outputs[0], s.m, s.n, false, &dst));
    memcpy(args[n++], (int[]){DNNL_ARG_DST, dst}, sizeof args[0]);
    SY_TRY(make_pd(node, &s, &p->values[weights].md, &pd));
    SY_TRY(sy_program_add_primitive(p, pd, (const int(*)[2])args, n));
    return add_own_activation(p, dst);
}

/* For many rows oneDNN's product is faster, even if the matrix is unpacked in each run. */
static int build_packed(struct sy_program *p)
{
    int64_t k = 0, n = 0;
    int x, weights;
    SY_TRY(weights_dims(p->graph, sy_program_node(p), &k, &n));
    if (k < 1)
        return sy_error_set(SY_ECORRUPT, "node %s: packed weights of no rows",
                            sy_program_node(p)->name);
    SY_TRY(sy_program_input_plain(p, 0, &x));
    if (count(&p->values[x]) / k < MANY_ROWS || n > MOST_UNPACKED / k)
        return build_blocked(p);
    SY_TRY(sy_program_add_unpacked(p, 1, k, n, &weights));
    return build_constant(p, weights);
}

/* Rank raised with ones in front, as numpy broadcasts; Gemm's operands perhaps transposed. */
static void operand_md(const struct sy_value *v, int rank, bool is_transposed,
                       dnnl_memory_desc_t *md)
{
    int64_t dims[SY_MAX_RANK];
    for (int i = 0; i < rank; i++)
        dims[i] = i < rank - v->rank ? 1 : v->dims[i - (rank - v->rank)];
    if (is_transposed)
        matrix_md(md, v->md.data_type, dims[1], dims[0], true);
    else
        sy_dnnl_plain_md_of(md, v->md.data_type, rank, dims);
}

static int make_batched_pd(const struct sy_node *node, const dnnl_memory_desc_t *const *mds,
                           float sum_scale, dnnl_primitive_desc_t *out)
{
    float alpha = sy_node_float(node, "alpha", 1);
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr;
    SY_TRY(sy_dnnl_check_sizes(node->name, mds[0], mds[1], mds[2]));
    SY_DNNL(dnnl_matmul_desc_init(&desc, mds[0], mds[1], NULL, mds[2]), node->name);
    SY_TRY(sy_dnnl_node_attr(node, mds[2]->data_type, sum_scale, &attr));
    dnnl_status_t status = dnnl_success;
    if (alpha != 1)
        status = dnnl_primitive_attr_set_output_scales(attr, 1, 0, &alpha);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(out, &desc, attr, sy_dnnl_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    return sy_dnnl_check(status, "matmul", node->name);
}

/* Both sides in their own layouts. */
static int build_batched(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t a_md, b_md, y_md;
    dnnl_primitive_desc_t pd;
    float sum_scale;
    int a, b, y;
    bool narrow = sy_program_multiplies_narrow(p, &p->layers[p->layer]);
    SY_TRY(narrow ? sy_program_input_narrow(p, 0, &a) : sy_program_input_plain(p, 0, &a));
    SY_TRY(narrow ? sy_program_input_narrow(p, 1, &b) : sy_program_input_plain(p, 1, &b));
    int rank = SY_MAX(p->values[a].rank, p->values[b].rank);
    SY_TRY(place_output(p, sy_product_bias(node) >= 0,
                        narrow && sy_program_wanted(p, 0) == SY_WANT_NARROW, &y, &sum_scale));
    operand_md(&p->values[a], rank, sy_product_is_transposed(node, 0), &a_md);
    operand_md(&p->values[b], rank, sy_product_is_transposed(node, 1), &b_md);
    operand_md(&p->values[y], rank, false, &y_md);
    SY_TRY(sy_program_new_alias(p, a, node->inputs[0], &a_md, &a));
    SY_TRY(sy_program_new_alias(p, b, node->inputs[1], &b_md, &b));
    SY_TRY(
        make_batched_pd(node, (const dnnl_memory_desc_t *[]){&a_md, &b_md, &y_md}, sum_scale, &pd));
    const int args[][2] = {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, y}};
    SY_TRY(sy_program_add_primitive(p, pd, args, 3));
    return add_own_activation(p, y);
}

/* oneDNN divides by dimensions, so none may be zero. */
static bool is_plain_operand(const struct sy_program *p, const struct sy_tensor *t)
{
    return t->dtype == SY_DTYPE_F32 && t->shape.rank >= 2 &&
           sy_shape_elements(&t->shape, p->batch) > 0;
}

static bool types_agree(const struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_tensor *tensors = p->graph->tensors;
    for (int i = 1; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 &&
            tensors[node->inputs[i]].dtype != tensors[node->inputs[0]].dtype)
            return false;
    return true;
}

static int build_matmul(struct sy_program *p)
{
    if (!types_agree(p))
        return sy_unsupported(sy_program_node(p), "inputs of different element types");
    int weights;
    if (sy_blocked_is_packed(p, 1))
        return build_packed(p);
    if (!is_plain_operand(p, sy_program_input_tensor(p, 0)) ||
        !is_plain_operand(p, sy_program_input_tensor(p, 1)))
        return sy_program_add_kernel(p);
    if (!sy_program_is_param(p, 1) || !constant_matrix(p->graph, sy_program_node(p)))
        return build_batched(p);
    SY_TRY(sy_program_param(p, 1, &weights));
    return build_constant(p, weights);
}

const struct sy_host_op sy_host_ops_matmul[] = {{.build = build_matmul,
                                                 .layout = layout_matmul,
                                                 .prepare = prepare_matmul,
                                                 SY_OPS(SY_OP_GEMM, SY_OP_MATMUL)},
                                                {0}};
