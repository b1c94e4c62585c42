/* Mixtures of experts: ONNX Runtime's MoE and QMoE, each token's result a sum over the experts that its router ranks highest.
 *
 * All experts are computed for all tokens, as two products that are as wide as the experts together:
 *
 *     x [t, h] -> x W1 [t, experts * f] -> activation -> times the gates [t, experts, 1] -> (...) W2 [t, h] + gates b2
 *
 * The gate of an expert that a token does not use is 0; the second product sums over the experts. */
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand_bits.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { FIRST, SECOND, THIRD, N_LAYERS };

/* An expert's layer: `rows` results of `columns` numbers. */
struct layer {
    int weights, scales, bias, zeros,
        bits; /* inputs of the node; bits: 0 where weights are floats */
    int64_t rows, columns;
};

struct experts {
    struct layer layers[N_LAYERS];
    int64_t n, most,
        fused; /* n: experts; most: how many a token uses; fused: 1 interleaved, 2 concatenated */
    enum sy_dtype dtype;
    const char *activation;
    bool has_third;
};

static int measure_layer(struct sy_expand *e, struct experts *x, struct layer *l)
{
    const struct sy_tensor *w = sy_expand_tensor(e, l->weights);
    int64_t n;
    if (!w || w->shape.rank != 3)
        return sy_expand_fail(e, SY_ECORRUPT, "weights of other than three dimensions");
    SY_TRY(sy_infer_fixed(e->in, e->node, &w->shape, 0, &n));
    SY_TRY(sy_infer_fixed(e->in, e->node, &w->shape, 1, &l->rows));
    SY_TRY(sy_infer_fixed(e->in, e->node, &w->shape, 2, &l->columns));
    if (l->bits > 0)
        l->columns = l->columns * 8 / l->bits;
    if (n < 1 || n > 1 << 16 || l->rows < 1 || l->columns < 1 || l->rows > 1 << 24 ||
        l->columns > 1 << 24 || (x->n != 0 && n != x->n))
        return sy_expand_fail(e, SY_ECORRUPT, "%lld experts of %lld by %lld", (long long)n,
                              (long long)l->rows, (long long)l->columns);
    x->n = n;
    return SY_OK;
}

/* A bias [1, rows] would be added to all experts, and a choice beyond the last expert to none. */
static int check_router(struct sy_expand *e, const struct experts *x)
{
    const struct sy_tensor *router = sy_expand_tensor(e, 1);
    if (router->shape.rank != 2 || !sy_dim_is(router->shape.dims[1], x->n))
        return sy_expand_fail(e, SY_ECORRUPT, "router probabilities of other than %lld experts",
                              (long long)x->n);
    for (int i = 0; i < N_LAYERS; i++) {
        const struct layer *l = &x->layers[i];
        const struct sy_tensor *bias = sy_expand_tensor(e, l->bias);
        if (bias && (i != THIRD || x->has_third) &&
            (bias->shape.rank != 2 || !sy_dim_is(bias->shape.dims[0], x->n) ||
             !sy_dim_is(bias->shape.dims[1], l->rows)))
            return sy_expand_fail(e, SY_ECORRUPT, "input %d: a bias is [%lld, %lld]", l->bias,
                                  (long long)x->n, (long long)l->rows);
    }
    return SY_OK;
}

static int read_experts(struct sy_expand *e, struct experts *x)
{
    static const char *const known[] = {"relu", "gelu", "silu", "swiglu", "identity"};
    bool is_known = false;
    x->activation = sy_infer_text(e->node, "activation_type", "relu");
    x->most = sy_node_int(e->node, "k", 1);
    x->fused = sy_node_int(e->node, "swiglu_fusion", 0);
    x->dtype = sy_expand_dtype(e, 0);
    x->has_third = sy_expand_input(e, x->layers[THIRD].weights) >= 0;
    for (size_t i = 0; i < SY_ARRAY_LEN(known); i++)
        is_known = is_known || strcmp(known[i], x->activation) == 0;
    bool is_swiglu = strcmp(x->activation, "swiglu") == 0;
    if (!is_known)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "activation '%s'", x->activation);
    if (sy_node_int(e->node, "use_sparse_mixer", 0) != 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "a sparse mixer");
    if (is_swiglu && (x->has_third ? x->fused != 0 : x->fused < 1 || x->fused > 2))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "swiglu_fusion %lld %s", (long long)x->fused,
                              x->has_third ? "with a third layer" : "without a third layer");
    for (int i = 0; i < N_LAYERS; i++)
        if (i != THIRD || x->has_third)
            SY_TRY(measure_layer(e, x, &x->layers[i]));
    const struct layer *first = &x->layers[FIRST], *second = &x->layers[SECOND],
                       *third = &x->layers[THIRD];
    bool halves = is_swiglu && !x->has_third;
    if (first->rows != second->columns * (halves ? 2 : 1) || second->rows != first->columns ||
        x->most < 1 || x->most > x->n ||
        (x->has_third && (third->rows != first->rows || third->columns != first->columns)))
        return sy_expand_fail(e, SY_ECORRUPT, "layers that do not fit, or %lld of %lld experts",
                              (long long)x->most, (long long)x->n);
    return check_router(e, x);
}

/* ---- weights of a few bits ---------------------------------------------------------------------- */

struct few {
    const struct sy_tensor *scales;
    const unsigned char *w, *zeros;
    int64_t bits, blocks, block, row_bytes, zero_bytes;
    int64_t zero_rows; /* rows whose zeros share zero_bytes bytes: 1, or an expert's */
};

static int read_few(struct sy_expand *e, const struct experts *x, const struct layer *l,
                    struct few *f)
{
    const struct sy_tensor *w = sy_expand_tensor(e, l->weights),
                           *scales = sy_expand_tensor(e, l->scales),
                           *zeros = sy_expand_tensor(e, l->zeros);
    int64_t block = sy_node_int(e->node, "block_size", 0), rows = x->n * l->rows;
    *f = (struct few){.scales = scales, .bits = l->bits, .block = block > 0 ? block : l->columns};
    if (!w || !scales || !w->data || !scales->data || (zeros && !zeros->data))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "weights that are computed");
    if (l->columns % f->block != 0 || (l->columns * l->bits) % 8 != 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%lld columns in blocks of %lld",
                              (long long)l->columns, (long long)f->block);
    f->blocks = l->columns / f->block;
    f->row_bytes = l->columns * l->bits / 8;
    /* zeros of blocks are packed along a row; one zero a row: along the rows of an expert */
    f->zero_rows = block > 0 ? 1 : l->rows;
    f->zero_bytes = (f->zero_rows * f->blocks * l->bits + 7) / 8;
    f->w = w->data;
    f->zeros = zeros ? zeros->data : NULL;
    if (w->dtype != SY_DTYPE_U8 || w->data_bytes != (size_t)(rows * f->row_bytes) ||
        !sy_bits_is_float(scales) ||
        scales->data_bytes != (size_t)(rows * f->blocks) * sy_dtype_bytes(scales->dtype) ||
        (zeros && (zeros->dtype != SY_DTYPE_U8 ||
                   zeros->data_bytes != (size_t)(rows / f->zero_rows * f->zero_bytes))))
        return sy_expand_fail(e, SY_ECORRUPT, "weights, scales or zeros of another size");
    return SY_OK;
}

/* Row r of all experts' rows. */
static void unpack_row(const struct few *f, int64_t r, float *to)
{
    for (int64_t k = 0; k < f->blocks * f->block; k++) {
        int64_t group = k / f->block;
        int zero = f->zeros ? sy_bits_at(f->zeros + r / f->zero_rows * f->zero_bytes,
                                         r % f->zero_rows * f->blocks + group, f->bits)
                            : 1 << (f->bits - 1);
        to[k] = (float)(sy_bits_at(f->w + r * f->row_bytes, k, f->bits) - zero) *
                sy_bits_float_at(f->scales, r * f->blocks + group);
    }
}

/* The layer's weights as floats [experts, rows, columns], in the type of the activations. */
static int weights_of(struct sy_expand *e, const struct experts *x, const struct layer *l)
{
    struct few f;
    float *all;
    int made = -1;
    if (l->bits == 0)
        return sy_expand_input(e, l->weights);
    e->status = read_few(e, x, l, &f);
    if (e->status != SY_OK)
        return -1;
    size_t n = (size_t)(x->n * l->rows * l->columns);
    e->status = sy_graph_alloc(n, sizeof *all, &all);
    if (e->status != SY_OK)
        return -1;
    for (int64_t r = 0; r < x->n * l->rows; r++)
        unpack_row(&f, r, all + r * l->columns);
    const struct sy_shape shape = {.rank = 3, .dims = {{x->n, 0}, {l->rows, 0}, {l->columns, 0}}};
    e->status = sy_graph_add_constant(e->graph, e->node->name, SY_DTYPE_F32, &shape, all,
                                      n * sizeof *all, &made);
    return sy_expand_cast(e, made, x->dtype);
}

/* ---- the sum ------------------------------------------------------------------------------------ */

/* [tokens, experts]: the probabilities of the experts that a token uses, 0 for the others. */
static int gates_of(struct sy_expand *e, const struct experts *x)
{
    const int64_t last = -1, middle = 1;
    int best[2], all = SY_EXPAND(e, SOFTMAX, sy_expand_input(e, 1));
    sy_expand_set_int(e, "axis", -1);
    sy_expand_op_many(e, SY_OP_TOP_K, (const int[]){all, sy_expand_ints(e, &x->most, 1)}, 2, best,
                      2);
    sy_expand_set_int(e, "axis", -1);
    int share = best[0];
    if (sy_node_int(e->node, "normalize_routing_weights", 0) != 0)
        share =
            SY_EXPAND(e, DIV, share, SY_EXPAND(e, REDUCE_SUM, share, sy_expand_ints(e, &last, 1)));
    int used = SY_EXPAND(e, EQUAL, sy_expand_unsqueeze(e, best[1], 2),
                         sy_expand_count(e, sy_expand_int(e, x->n)));
    int each =
        SY_EXPAND(e, MUL, sy_expand_cast(e, used, x->dtype), sy_expand_unsqueeze(e, share, 2));
    int gates = SY_EXPAND(e, REDUCE_SUM, each, sy_expand_ints(e, &middle, 1));
    sy_expand_set_int(e, "keepdims", 0);
    return gates;
}

/* All experts' layer of x [tokens, columns]: [tokens, experts, rows]. */
static int apply_layer(struct sy_expand *e, const struct experts *all, const struct layer *l, int x)
{
    static const int64_t swap[] = {1, 0};
    const int64_t flat[] = {all->n * l->rows, l->columns}, cut[] = {-1, all->n, l->rows};
    int w = sy_expand_reshape(e, weights_of(e, all, l), flat, 2);
    int y = SY_EXPAND(e, MATMUL, x, sy_expand_transpose(e, w, swap, 2));
    y = sy_expand_reshape(e, y, cut, 3);
    return sy_expand_input(e, l->bias) < 0 ? y : SY_EXPAND(e, ADD, y, sy_expand_input(e, l->bias));
}

/* G sigmoid(alpha G) (L + beta), both clamped. */
static int swiglu(struct sy_expand *e, const struct experts *x, int gate, int line)
{
    double limit = (double)sy_node_float(e->node, "swiglu_limit", 0);
    int alpha =
            sy_expand_number(e, x->dtype, (double)sy_node_float(e->node, "activation_alpha", 1)),
        beta = sy_expand_number(e, x->dtype, (double)sy_node_float(e->node, "activation_beta", 0));
    if (limit > 0) {
        int most = sy_expand_number(e, x->dtype, limit),
            least = sy_expand_number(e, x->dtype, -limit);
        gate = SY_EXPAND(e, MIN, gate, most);
        line = SY_EXPAND(e, CLIP, line, least, most);
    }
    int bent = SY_EXPAND(e, MUL, gate, SY_EXPAND(e, SIGMOID, SY_EXPAND(e, MUL, gate, alpha)));
    return SY_EXPAND(e, MUL, bent, SY_EXPAND(e, ADD, line, beta));
}

static int activate(struct sy_expand *e, const struct experts *x, int y, int third)
{
    const int64_t half = x->layers[SECOND].columns, pairs[] = {0, 0, half, 2}, zero = 0, one = 1;
    if (strcmp(x->activation, "swiglu") == 0) {
        int gate = y, line = third;
        if (x->fused == 1) {
            int both = sy_expand_reshape(e, y, pairs, 4);
            gate = SY_EXPAND(e, GATHER, both, sy_expand_int(e, zero));
            sy_expand_set_int(e, "axis", 3);
            line = SY_EXPAND(e, GATHER, both, sy_expand_int(e, one));
            sy_expand_set_int(e, "axis", 3);
        } else if (x->fused == 2) {
            gate = sy_expand_slice(e, y, 2, 0, half);
            line = sy_expand_slice(e, y, 2, half, 2 * half);
        }
        return swiglu(e, x, gate, line);
    }
    if (strcmp(x->activation, "relu") == 0)
        y = SY_EXPAND(e, RELU, y);
    else if (strcmp(x->activation, "silu") == 0)
        y = SY_EXPAND(e, MUL, y, SY_EXPAND(e, SIGMOID, y));
    else if (strcmp(x->activation, "gelu") == 0) {
        y = SY_EXPAND(e, GELU, y);
        sy_expand_set_text(e, "approximate", "tanh");
    }
    return third >= 0 ? SY_EXPAND(e, MUL, y, third) : y;
}

static int mix_experts(struct sy_expand *e, struct experts *all)
{
    static const int64_t swap[] = {0, 2, 1};
    SY_TRY(read_experts(e, all));
    const struct layer *second = &all->layers[SECOND];
    const int64_t tokens[] = {-1, all->layers[FIRST].columns},
                  wide[] = {-1, all->n * second->columns},
                  tall[] = {all->n * second->columns, second->rows};
    int x = sy_expand_reshape(e, sy_expand_input(e, 0), tokens, 2), gates = gates_of(e, all);
    int third = all->has_third ? apply_layer(e, all, &all->layers[THIRD], x) : -1;
    int y = activate(e, all, apply_layer(e, all, &all->layers[FIRST], x), third);
    y = SY_EXPAND(e, MUL, y, sy_expand_unsqueeze(e, gates, 2));
    int w =
        sy_expand_reshape(e, sy_expand_transpose(e, weights_of(e, all, second), swap, 3), tall, 2);
    y = SY_EXPAND(e, MATMUL, sy_expand_reshape(e, y, wide, 2), w);
    if (sy_expand_input(e, second->bias) >= 0)
        y = SY_EXPAND(e, ADD, y, SY_EXPAND(e, MATMUL, gates, sy_expand_input(e, second->bias)));
    y = SY_EXPAND(e, RESHAPE, y, SY_EXPAND(e, SHAPE, sy_expand_input(e, 0)));
    sy_expand_result(e, 0, y);
    return e->status;
}

static int expand_moe(struct sy_expand *e)
{
    struct experts x = {.layers = {{.weights = 2, .bias = 3},
                                   {.weights = 4, .bias = 5},
                                   {.weights = 6, .bias = 7}}};
    return mix_experts(e, &x);
}

static int expand_qmoe(struct sy_expand *e)
{
    static const char *const names[] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits",
                                        "fc3_expert_weight_bits"};
    enum { AFTER_ZEROS = 14 };
    struct experts x = {.layers = {{.weights = 2, .scales = 3, .bias = 4, .zeros = 11},
                                   {.weights = 5, .scales = 6, .bias = 7, .zeros = 12},
                                   {.weights = 8, .scales = 9, .bias = 10, .zeros = 13}}};
    int64_t usual = sy_node_int(e->node, "expert_weight_bits", 4);
    if (strcmp(sy_infer_text(e->node, "quant_type", "int"), "int") != 0 ||
        sy_node_int(e->node, "weights_prepacked", 0) > 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "weights other than packed whole numbers");
    for (int i = AFTER_ZEROS; i < e->node->n_inputs; i++)
        if (sy_expand_input(e, i) >= 0)
            return sy_expand_fail(e, SY_EUNSUPPORTED, "input %d", i);
    for (int i = 0; i < N_LAYERS; i++) {
        int64_t bits = sy_node_int(e->node, names[i], usual);
        if (bits != 2 && bits != 4 && bits != 8)
            return sy_expand_fail(e, SY_EUNSUPPORTED, "weights of %lld bits", (long long)bits);
        x.layers[i].bits = (int)bits;
    }
    return mix_experts(e, &x);
}

const struct sy_expander_line sy_expanders_experts[] = {
    {SY_OP_MS_MOE, expand_moe}, {SY_OP_MS_QMOE, expand_qmoe}, {0}};
