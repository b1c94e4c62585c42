/* Products of constants alone, and what is made of them alone, become constants: DeBERTa multiplies its table of distances by each layer's weights, as often
 * as it has layers, whatever the text is.
 *
 *   table W (+ b) -> Reshape -> Transpose     becomes     a constant, no larger than table or W */
#include <stdlib.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* Limits over all nodes. Multiplications: some ten seconds of an import, and more than the 26 G of DeBERTa-large. */
#define MOST_PRODUCTS (INT64_C(1) << 35)
#define MOST_BYTES    (INT64_C(1) << 30)

/* MOST_INPUTS is more than what is folded here has; LANES: sums side by side. */
enum { MOST_INPUTS = 4, LANES = 8 };

struct known {
    struct sy_fuse *f;
    bool *made; /* by tensor: a constant of this pass */
    int64_t products_left, bytes_left;
    struct sy_block inputs[MOST_INPUTS], out;
    enum sy_dtype dtypes[MOST_INPUTS];
};

/* A product by one matrix that nothing is fused to yet. */
static bool is_plain_product(const struct sy_fuse *f, const struct sy_node *node)
{
    bool fits = node->n_inputs == 2 && node->activation == SY_ACT_NONE && node->bias_input < 0 &&
                sy_fuse_tensor(f, node->inputs[1])->shape.rank == 2;
    if (node->op == SY_OP_MATMUL)
        return fits && sy_fuse_tensor(f, node->inputs[0])->shape.rank >= 2 && node->n_attrs == 0;
    return node->op == SY_OP_GEMM && fits && sy_node_int(node, "transA", 0) == 0 &&
           sy_node_float(node, "alpha", 1) == 1;
}

/* Reads shapes and elements; the result may not be larger than all that it is made of. */
static bool read_blocks(struct known *k, const struct sy_node *node)
{
    int64_t largest = 0;
    if (node->n_outputs != 1 || node->outputs[0] < 0 || node->n_inputs < 1 ||
        node->n_inputs > MOST_INPUTS || sy_graph_is_output(k->f->graph, node->outputs[0]))
        return false;
    for (int i = 0; i < node->n_inputs; i++) {
        const struct sy_tensor *t =
            node->inputs[i] < 0 ? NULL : sy_fuse_tensor(k->f, node->inputs[i]);
        if (!t || !t->data || !sy_block_make(&t->shape, &k->inputs[i]))
            return false;
        k->inputs[i].data = t->data;
        k->dtypes[i] = t->dtype;
        largest = SY_MAX(largest, k->inputs[i].n);
    }
    const struct sy_tensor *y = sy_fuse_tensor(k->f, node->outputs[0]);
    return y->dtype == SY_DTYPE_F32 && k->dtypes[0] == SY_DTYPE_F32 &&
           sy_block_make(&y->shape, &k->out) && k->out.n <= largest;
}

/* The product of one row and b[depth][n], summed in double. */
static void multiply_row(const float *a, const float *b, int64_t n, int64_t depth, double *sums)
{
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int64_t i = 0; i < depth; i++)
        for (int64_t j = 0; j < n; j++)
            sums[j] += (double)a[i] * (double)b[i * n + j];
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sums[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            sums[l] += (double)a[i + l] * (double)b[i + l];
    for (; i < n; i++)
        sums[0] += (double)a[i] * (double)b[i];
    for (int l = 1; l < LANES; l++)
        sums[0] += sums[l];
    return sums[0];
}

/* The product of one row and b[n][depth], transposed. */
static void multiply_turned(const float *a, const float *b, int64_t n, int64_t depth, double *sums)
{
    for (int64_t j = 0; j < n; j++)
        sums[j] = dot(a, b + j * depth, depth);
}

static int multiply(const struct known *k, const struct sy_node *node, float *to)
{
    bool turned = node->op == SY_OP_GEMM && sy_node_int(node, "transB", 0) != 0;
    const struct sy_block *b = &k->inputs[1];
    int64_t n = b->dims[turned ? 0 : 1], depth = b->dims[turned ? 1 : 0];
    double *sums;
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *sums, &sums));
    for (int64_t row = 0; n > 0 && row < k->out.n / n; row++) {
        const float *a = (const float *)(const void *)k->inputs[0].data + row * depth;
        (turned ? multiply_turned : multiply_row)(a, (const float *)(const void *)b->data, n, depth,
                                                  sums);
        for (int64_t j = 0; j < n; j++)
            to[row * n + j] = (float)sums[j];
    }
    free(sums);
    return SY_OK;
}

static int64_t depth_of(const struct known *k)
{
    const struct sy_block *a = &k->inputs[0];
    return a->rank > 0 ? a->dims[a->rank - 1] : 0;
}

static bool is_small_product(const struct known *k, const struct sy_node *node)
{
    return is_plain_product(k->f, node) && k->dtypes[1] == SY_DTYPE_F32 &&
           (depth_of(k) == 0 || k->out.n <= k->products_left / depth_of(k));
}

/* Moves and arithmetic on what this pass made; by itself a constant subgraph stays as it is (fold/). */
static bool follows(const struct known *k, const struct sy_node *node)
{
    bool any = false;
    for (int i = 0; i < node->n_inputs; i++)
        any |= k->made[node->inputs[i]];
    return any && sy_op_facts(node->op)->fold != SY_FOLD_NONE && node->op != SY_OP_GATHER;
}

static int compute(struct known *k, const struct sy_node *node, float *to)
{
    if (is_plain_product(k->f, node)) {
        k->products_left -= k->out.n * depth_of(k);
        return multiply(k, node, to);
    }
    int status = sy_fold_move(node, k->inputs, NULL, sizeof *to, &k->out, (unsigned char *)to);
    if (status == SY_EUNSUPPORTED)
        status =
            sy_fold_floats(node, k->inputs, k->dtypes, &k->out, SY_DTYPE_F32, (unsigned char *)to);
    return status;
}

/* The node's result becomes a constant, and the node nothing. */
static int make_known(struct known *k, struct sy_node *node)
{
    struct sy_tensor *y = &k->f->graph->tensors[node->outputs[0]];
    float *to;
    SY_TRY(sy_graph_alloc((size_t)k->out.n, sizeof *to, &to));
    int status = compute(k, node, to);
    if (status < 0) {
        free(to);
        return status == SY_EUNSUPPORTED ? SY_OK : status;
    }
    y->data = to;
    y->data_bytes = (size_t)k->out.n * sizeof *to;
    k->bytes_left -= (int64_t)y->data_bytes;
    y->is_derived = true;
    k->made[node->outputs[0]] = true;
    k->f->producer[node->outputs[0]] = -1;
    sy_node_finish(node);
    *node = (struct sy_node){.bias_input = -1, .residual_input = -1};
    return SY_OK;
}

int sy_fuse_known_products_within(struct sy_fuse *f, int64_t products, int64_t bytes)
{
    struct known k = {.f = f, .products_left = products, .bytes_left = bytes};
    int status = SY_OK;
    SY_TRY(sy_graph_alloc((size_t)f->n_tensors, sizeof *k.made, &k.made));
    for (int n = 0; status == SY_OK && n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        if (read_blocks(&k, node) && k.out.n <= k.bytes_left / (int64_t)sizeof(float) &&
            (is_small_product(&k, node) || follows(&k, node)))
            status = make_known(&k, node);
    }
    free(k.made);
    return status;
}

int sy_fuse_known_products(struct sy_fuse *f)
{
    return sy_fuse_known_products_within(f, MOST_PRODUCTS, MOST_BYTES);
}
