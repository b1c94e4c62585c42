/* Gemm and MatMul on oneDNN's matmul: constant weights packed at import, with bias and activation fused; otherwise batched. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program_internal.h"

#define REFERENCE_ROWS 128 /* rows of the input that the weights' layout is chosen for */

/* y[M, N] = x[M, K] w[K, N]. */
struct matmul_shape {
    int64_t m, k, n;
};

static bool transposed(const struct sy_node *node, int input)
{
    return node->op == SY_OP_GEMM && sy_node_int(node, input == 0 ? "transA" : "transB", 0) != 0;
}

static int bias_of(const struct sy_node *node)
{
    if (node->bias_input >= 0)
        return node->bias_input;
    return node->op == SY_OP_GEMM && node->n_inputs > 2 && node->inputs[2] >= 0 ? 2 : -1;
}

static int weights_dims(const struct sy_graph *graph, const struct sy_node *node, int64_t *k,
                        int64_t *n)
{
    const struct sy_tensor *w = &graph->tensors[node->inputs[1]];
    if (w->shape.rank != 2)
        return sy_unsupported(node, "constant weights that are not a matrix");
    *k = w->shape.dims[transposed(node, 1)].fixed;
    *n = w->shape.dims[!transposed(node, 1)].fixed;
    return SY_OK;
}

static int make_pd(const struct sy_node *node, const struct matmul_shape *s,
                   const dnnl_memory_desc_t *weights, bool with_bias, dnnl_primitive_desc_t *out)
{
    dnnl_matmul_desc_t desc;
    dnnl_memory_desc_t src, w, bias, dst;
    dnnl_primitive_attr_t attr;
    sy_dnnl_plain_md(&src, 2, (int64_t[]){s->m, s->k});
    sy_dnnl_plain_md(&dst, 2, (int64_t[]){s->m, s->n});
    sy_dnnl_plain_md(&bias, 2, (int64_t[]){1, s->n});
    dnnl_memory_desc_init_by_tag(&w, 2, (dnnl_dims_t){s->k, s->n}, dnnl_f32, dnnl_format_tag_any);
    SY_DNNL(
        dnnl_matmul_desc_init(&desc, &src, weights ? weights : &w, with_bias ? &bias : NULL, &dst),
        node->name);
    SY_TRY(sy_dnnl_node_attr(node, node->residual_input >= 0, &attr));
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

static int layout_matmul(const struct sy_graph *graph, const struct sy_node *node, int input,
                         dnnl_memory_desc_t *md)
{
    struct matmul_shape s = {.m = REFERENCE_ROWS};
    dnnl_primitive_desc_t pd;
    if (input != 1 || !constant_matrix(graph, node))
        return SY_OK;
    SY_TRY(weights_dims(graph, node, &s.k, &s.n));
    SY_TRY(make_pd(node, &s, NULL, bias_of(node) >= 0, &pd));
    *md = *sy_dnnl_md(pd, dnnl_query_weights_md);
    dnnl_primitive_desc_destroy(pd);
    return SY_OK;
}

/* Gemm's transposition, alpha and beta (and a folded alpha of MatMul) go into the constants at import. */
static int prepare_matmul(const struct sy_graph *graph, const struct sy_node *node, int input,
                          void *out)
{
    const struct sy_tensor *t = &graph->tensors[node->inputs[input]];
    const float *from = t->data;
    float *to = out;
    size_t n = t->data_bytes / sizeof *to;
    float scale = 1;
    if (input == 1)
        scale = sy_node_float(node, "alpha", 1);
    else if (input == bias_of(node) && node->op == SY_OP_GEMM)
        scale = sy_node_float(node, "beta", 1);
    if (input == 1 && transposed(node, 1)) {
        int64_t rows = t->shape.dims[0].fixed, columns = t->shape.dims[1].fixed;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                to[c * rows + r] = scale * from[r * columns + c];
        return SY_OK;
    }
    for (size_t i = 0; i < n; i++)
        to[i] = scale * from[i];
    return SY_OK;
}

/* Where the product goes: over (a copy of) the residual, or fresh. */
static int place_output(struct sy_program *p, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    int residual;
    if (node->residual_input < 0)
        return sy_program_output_plain(p, 0, out);
    SY_TRY(sy_program_input_plain(p, node->residual_input, &residual));
    if (sy_program_is_last_use(p, node->residual_input, residual))
        SY_TRY(sy_program_new_alias(p, residual, node->outputs[0], NULL, out));
    else
        SY_TRY(sy_program_output_plain(p, 0, out));
    sy_program_set_output(p, 0, *out);
    return p->values[*out].root == p->values[residual].root
               ? SY_OK
               : sy_program_add_reorder(p, residual, *out);
}

/* The same bytes as a matrix of `columns` columns. */
static int as_matrix(struct sy_program *p, int value, int tensor, int64_t rows, int64_t columns,
                     int *out)
{
    dnnl_memory_desc_t md;
    sy_dnnl_plain_md(&md, 2, (int64_t[]){rows, columns});
    return sy_program_new_alias(p, value, tensor, &md, out);
}

static int build_constant(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    struct matmul_shape s;
    dnnl_primitive_desc_t pd;
    int src, dst, weights, bias = -1, args[4][2], n = 0;
    if (transposed(node, 0))
        return sy_unsupported(node, "transA");
    SY_TRY(weights_dims(p->graph, node, &s.k, &s.n));
    SY_TRY(sy_program_input_plain(p, 0, &src));
    int64_t elements = 1;
    for (int i = 0; i < p->values[src].rank; i++)
        elements *= p->values[src].dims[i];
    s.m = s.k ? elements / s.k : 0;
    SY_TRY(sy_program_param(p, 1, &weights));
    if (bias_of(node) >= 0) {
        int64_t bias_elements = 1;
        SY_TRY(sy_program_input_plain(p, bias_of(node), &bias));
        for (int i = 0; i < p->values[bias].rank; i++)
            bias_elements *= p->values[bias].dims[i];
        if (bias_elements != s.n)
            return sy_unsupported(node, "a bias that is not one row");
        SY_TRY(as_matrix(p, bias, node->inputs[bias_of(node)], 1, s.n, &bias));
    }
    SY_TRY(as_matrix(p, src, node->inputs[0], s.m, s.k, &src));
    SY_TRY(place_output(p, &dst));
    SY_TRY(as_matrix(p, dst, node->outputs[0], s.m, s.n, &dst));
    SY_TRY(make_pd(node, &s, &p->values[weights].md, bias >= 0, &pd));
    memcpy(args[n++], (int[]){DNNL_ARG_SRC, src}, sizeof args[0]);
    memcpy(args[n++], (int[]){DNNL_ARG_WEIGHTS, weights}, sizeof args[0]);
    if (bias >= 0)
        memcpy(args[n++], (int[]){DNNL_ARG_BIAS, bias}, sizeof args[0]);
    memcpy(args[n++], (int[]){DNNL_ARG_DST, dst}, sizeof args[0]);
    return sy_program_add_primitive(p, pd, (const int(*)[2])args, n);
}

/* Rank raised with ones in front, as numpy broadcasts. */
static void raise_rank(const struct sy_value *v, int rank, dnnl_memory_desc_t *md)
{
    int64_t dims[SY_MAX_RANK];
    for (int i = 0; i < rank; i++)
        dims[i] = i < rank - v->rank ? 1 : v->dims[i - (rank - v->rank)];
    sy_dnnl_plain_md(md, rank, dims);
}

static int batched_attr(const struct sy_node *node, dnnl_primitive_attr_t *out)
{
    float alpha = sy_node_float(node, "alpha", 1);
    SY_TRY(sy_dnnl_node_attr(node, false, out));
    if (alpha != 1)
        SY_DNNL(dnnl_primitive_attr_set_output_scales(*out, 1, 0, &alpha), node->name);
    return SY_OK;
}

static int build_batched(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t a_md, b_md, y_md;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr;
    int a, b, y;
    if (sy_program_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || node->op != SY_OP_MATMUL ||
        bias_of(node) >= 0 || node->residual_input >= 0)
        return sy_unsupported(node, "a product of computed matrices with these types or fusions");
    SY_TRY(sy_program_input_plain(p, 0, &a));
    SY_TRY(sy_program_input_plain(p, 1, &b));
    SY_TRY(sy_program_output_plain(p, 0, &y));
    int rank = SY_MAX(p->values[a].rank, p->values[b].rank);
    if (p->values[a].rank < 2 || p->values[b].rank < 2 || p->values[y].rank != rank)
        return sy_unsupported(node, "a product with a vector");
    raise_rank(&p->values[a], rank, &a_md);
    raise_rank(&p->values[b], rank, &b_md);
    raise_rank(&p->values[y], rank, &y_md);
    SY_TRY(sy_program_new_alias(p, a, node->inputs[0], &a_md, &a));
    SY_TRY(sy_program_new_alias(p, b, node->inputs[1], &b_md, &b));
    SY_DNNL(dnnl_matmul_desc_init(&desc, &a_md, &b_md, NULL, &y_md), node->name);
    SY_TRY(batched_attr(node, &attr));
    dnnl_status_t status = dnnl_primitive_desc_create(&pd, &desc, attr, sy_dnnl_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    SY_DNNL(status, node->name);
    const int args[][2] = {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, y}};
    return sy_program_add_primitive(p, pd, args, 3);
}

static int build_matmul(struct sy_program *p)
{
    bool constant = sy_program_is_param(p, 1) && constant_matrix(p->graph, sy_program_node(p));
    return constant ? build_constant(p) : build_batched(p);
}

const struct sy_host_op sy_host_ops_matmul[] = {
    {SY_OP_GEMM, build_matmul, layout_matmul, prepare_matmul},
    {SY_OP_MATMUL, build_matmul, layout_matmul, prepare_matmul},
    {0}};
