/* Folding: a node whose inputs are known becomes a constant, or a value linear in N. */
#include <stdlib.h>
#include <string.h>

#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_FOLDED = 1 << 20, MAX_COMPUTED = 1 << 24, MAX_INPUTS = 16 };

/* Inputs and outputs of a fold. */
struct fold {
    struct sy_infer *in;
    const struct sy_node *node;
    int n;
    struct sy_block inputs[MAX_INPUTS], out;
    enum sy_dtype dtypes[MAX_INPUTS], out_dtype;
    struct sy_dim *dims[MAX_INPUTS]; /* owned copies, when working on values */
    int64_t *indices;                /* of a Gather, owned */
};

static bool is_known(const struct sy_infer *in, int tensor)
{
    return tensor >= 0 && (in->graph->tensors[tensor].data || in->values[tensor]);
}

/* Operands that may be omitted; an omitted operand has no elements. */
static bool may_lack(enum sy_op op)
{
    return op == SY_OP_CLIP || op == SY_OP_RUN_CLIP;
}

/* Folds only results that are small or have their elements once: constants enlarged by an Expand would only cost memory and transfer. */
static bool prepare(struct fold *f)
{
    const struct sy_node *node = f->node;
    int64_t largest = MAX_FOLDED;
    if (node->n_outputs != 1 || node->n_inputs < 1 || node->n_inputs > MAX_INPUTS ||
        node->outputs[0] < 0)
        return false;
    f->n = node->n_inputs;
    for (int i = 0; i < f->n; i++) {
        if (i > 0 && node->inputs[i] < 0 && may_lack(node->op)) {
            f->inputs[i] = (struct sy_block){.rank = 1};
            f->dtypes[i] = f->dtypes[0];
            continue;
        }
        if (!is_known(f->in, node->inputs[i]))
            return false;
        const struct sy_tensor *t = &f->in->graph->tensors[node->inputs[i]];
        if (t->dtype == SY_DTYPE_STRING || !sy_block_make(&t->shape, &f->inputs[i]))
            return false;
        f->inputs[i].data = t->data;
        f->dtypes[i] = t->dtype;
        largest = SY_MAX(largest, f->inputs[i].n);
    }
    f->out_dtype = f->in->graph->tensors[node->outputs[0]].dtype;
    if (f->out_dtype == SY_DTYPE_STRING)
        return false; /* a string's heap exists at run only */
    return sy_block_make(&f->in->graph->tensors[node->outputs[0]].shape, &f->out) &&
           f->out.n <= largest;
}

static void finish(struct fold *f)
{
    for (int i = 0; i < f->n; i++)
        free(f->dims[i]);
    free(f->indices);
}

/* ---- on values -------------------------------------------------------------------------------- */

static bool is_for_dims(const struct fold *f)
{
    for (int i = 0; i < f->n; i++)
        if (!sy_dtype_is_integer(f->dtypes[i]) || f->inputs[i].n > MAX_FOLDED)
            return false;
    return true;
}

static int load_dims(struct fold *f)
{
    for (int i = 0; i < f->n; i++) {
        size_t n = (size_t)f->inputs[i].n;
        const struct sy_dim *known =
            f->node->inputs[i] < 0 ? NULL : f->in->values[f->node->inputs[i]];
        SY_TRY(sy_graph_alloc(n, sizeof(struct sy_dim), &f->dims[i]));
        if (known)
            memcpy(f->dims[i], known, n * sizeof *known);
        for (size_t k = 0; !known && k < n; k++)
            f->dims[i][k].fixed =
                sy_load_integer(f->dtypes[i], f->inputs[i].data + k * sy_dtype_bytes(f->dtypes[i]));
        f->inputs[i].data = (const unsigned char *)f->dims[i];
    }
    return SY_OK;
}

/* Its second input holds indices. */
static bool has_indices(enum sy_op op)
{
    return op == SY_OP_GATHER || op == SY_OP_GATHER_ELEMENTS || op == SY_OP_SCATTER_ELEMENTS ||
           op == SY_OP_GATHER_ND || op == SY_OP_SCATTER_ND;
}

static int load_indices(struct fold *f)
{
    if (!has_indices(f->node->op) || f->n < 2)
        return SY_OK;
    SY_TRY(sy_graph_alloc((size_t)f->inputs[1].n, sizeof *f->indices, &f->indices));
    for (int64_t i = 0; i < f->inputs[1].n; i++) {
        if (f->dims[1] && f->dims[1][i].per_batch != 0)
            return SY_EUNSUPPORTED;
        f->indices[i] =
            f->dims[1]
                ? f->dims[1][i].fixed
                : sy_load_integer(f->dtypes[1],
                                  f->inputs[1].data + (size_t)i * sy_dtype_bytes(f->dtypes[1]));
    }
    return SY_OK;
}

static int store_constant(struct fold *f, unsigned char *data)
{
    struct sy_tensor *tensor = &f->in->graph->tensors[f->node->outputs[0]];
    tensor->data = data;
    tensor->is_derived = true;
    tensor->data_bytes = (size_t)f->out.n * sy_dtype_bytes(f->out_dtype);
    return SY_OK;
}

/* A constant if N is in none of them, a value otherwise. Takes `dims`. */
static int store_dims(struct fold *f, struct sy_dim *dims)
{
    bool linear = false;
    unsigned char *data;
    size_t bytes = sy_dtype_bytes(f->out_dtype);
    for (int64_t i = 0; i < f->out.n; i++)
        linear |= dims[i].per_batch != 0;
    if (linear) {
        if (!sy_dtype_is_integer(f->out_dtype) || f->out.n > SY_MAX_VALUES) {
            free(dims);
            return SY_EUNSUPPORTED;
        }
        f->in->values[f->node->outputs[0]] = dims;
        return SY_OK;
    }
    int status = sy_graph_alloc((size_t)f->out.n, bytes, &data);
    if (status == SY_OK) {
        for (int64_t i = 0; i < f->out.n; i++)
            sy_store_integer(f->out_dtype, dims[i].fixed, data + (size_t)i * bytes);
        store_constant(f, data);
    }
    free(dims);
    return status;
}

static int fold_dims(struct fold *f)
{
    struct sy_dim *to;
    if (f->out_dtype == SY_DTYPE_F16 || f->out_dtype == SY_DTYPE_BF16 ||
        f->out_dtype == SY_DTYPE_U64)
        return SY_EUNSUPPORTED;
    SY_TRY(load_dims(f));
    SY_TRY(load_indices(f));
    SY_TRY(sy_graph_alloc((size_t)f->out.n, sizeof *to, &to));
    int status =
        sy_fold_move(f->node, f->inputs, f->indices, sizeof *to, &f->out, (unsigned char *)to);
    if (status == SY_EUNSUPPORTED)
        status =
            sy_fold_index(f->node, f->inputs, f->indices, sizeof *to, &f->out, (unsigned char *)to);
    if (status == SY_EUNSUPPORTED)
        status = sy_fold_dims(f->in, f->node, f->inputs, &f->out, to);
    if (status < 0) {
        free(to);
        return status;
    }
    return store_dims(f, to);
}

static int fold_shape(struct sy_infer *in, const struct sy_node *node)
{
    struct fold f = {.in = in, .node = node, .out_dtype = SY_DTYPE_I64};
    const struct sy_shape *shape = &in->graph->tensors[node->inputs[0]].shape;
    struct sy_dim *dims;
    sy_block_make(&in->graph->tensors[node->outputs[0]].shape, &f.out);
    SY_TRY(sy_graph_alloc((size_t)f.out.n, sizeof *dims, &dims));
    int64_t start = sy_node_int(node, "start", 0);
    start = start < 0 ? start + shape->rank : start;
    for (int64_t i = 0; i < f.out.n; i++)
        dims[i] = shape->dims[SY_MAX(start, 0) + i];
    return store_dims(&f, dims);
}

static int fold_size(struct sy_infer *in, const struct sy_node *node)
{
    struct fold f = {.in = in, .node = node, .out_dtype = SY_DTYPE_I64};
    const struct sy_shape *shape = &in->graph->tensors[node->inputs[0]].shape;
    struct sy_dim *count;
    sy_block_make(&in->graph->tensors[node->outputs[0]].shape, &f.out);
    SY_TRY(sy_graph_alloc(1, sizeof *count, &count));
    int status = sy_shape_product(shape, 0, shape->rank, count);
    if (status < 0) {
        free(count);
        return status;
    }
    return store_dims(&f, count);
}

/* ---- on constants ----------------------------------------------------------------------------- */

/* Types whose elements are computed in double: halves round elsewhere, uint64 has more digits than a double. */
static bool has_doubles(enum sy_dtype dtype)
{
    return dtype != SY_DTYPE_F16 && dtype != SY_DTYPE_BF16 && dtype != SY_DTYPE_U64;
}

/* Small results are always folded; larger ones, up to MAX_COMPUTED, only where they have no more bytes than the largest operand. Half types and uint64 are
 * not. */
static bool is_for_floats(const struct fold *f)
{
    int64_t bytes = f->out.n * (int64_t)sy_dtype_bytes(f->out_dtype), most = 0;
    for (int i = 0; i < f->n; i++) {
        if (!has_doubles(f->dtypes[i]))
            return false;
        most = SY_MAX(most, f->inputs[i].n * (int64_t)sy_dtype_bytes(f->dtypes[i]));
    }
    return has_doubles(f->out_dtype) &&
           (f->out.n <= MAX_FOLDED || (f->out.n <= MAX_COMPUTED && bytes <= most));
}

static bool same_type(const struct fold *f)
{
    if (f->node->op == SY_OP_CONCAT)
        for (int i = 1; i < f->n; i++)
            if (f->dtypes[i] != f->dtypes[0])
                return false;
    return f->node->op != SY_OP_GATHER || sy_dtype_is_integer(f->dtypes[1]);
}

/* A table lookup whose index depends on an open size is left to the run. */
static bool all_have_data(const struct fold *f)
{
    for (int i = 0; i < f->n; i++)
        if (!f->inputs[i].data)
            return false;
    return true;
}

static int fold_constants(struct fold *f)
{
    unsigned char *to;
    if (!same_type(f) || !all_have_data(f))
        return SY_EUNSUPPORTED;
    SY_TRY(load_indices(f));
    SY_TRY(sy_graph_alloc((size_t)f->out.n, sy_dtype_bytes(f->out_dtype), &to));
    int status =
        sy_fold_move(f->node, f->inputs, f->indices, sy_dtype_bytes(f->out_dtype), &f->out, to);
    if (status == SY_EUNSUPPORTED && is_for_floats(f))
        status = sy_fold_floats(f->node, f->inputs, f->dtypes, &f->out, f->out_dtype, to);
    if (status < 0) {
        free(to);
        return status;
    }
    return store_constant(f, to);
}

int sy_fold_node(struct sy_infer *in, const struct sy_node *node, bool *folded)
{
    struct fold f = {.in = in, .node = node};
    int status = SY_EUNSUPPORTED;
    *folded = false;
    if (node->n_outputs < 1 || node->outputs[0] < 0)
        return SY_OK;
    if (node->op == SY_OP_SHAPE)
        status = fold_shape(in, node);
    else if (node->op == SY_OP_SIZE)
        status = fold_size(in, node);
    else if (sy_op_facts(node->op)->fold != SY_FOLD_NONE && prepare(&f))
        status = is_for_dims(&f) ? fold_dims(&f) : fold_constants(&f);
    finish(&f);
    if (status == SY_EUNSUPPORTED) {
        status = sy_fold_fractions(in, node);
        *folded = status == SY_OK && in->values[node->outputs[0]];
        return status == SY_EUNSUPPORTED ? SY_OK : status;
    }
    *folded = status == SY_OK;
    return status == SY_EUNSUPPORTED ? SY_OK : status;
}
