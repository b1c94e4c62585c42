/* Operators that move elements: strided moves, indices, maps that are made once. Their gradients move the other way. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/rows/movement.h"
#include "workers/host/train/train_internal.h"

/* ---- strided moves: Transpose, Slice, Split, Concat, Expand --------------------------------------- */

struct moving {
    struct sy_strided_move there, back;
    bool is_spread;  /* elements are read more than once: back is a sum */
    int64_t n_clear; /* floats of the gradient to set to zero first */
};

static void describe_transpose(const struct sy_node *node, int rank, const int64_t *strides,
                               struct sy_strided_move *m)
{
    const struct sy_attr *perm = sy_node_ints(node, "perm", rank);
    for (int i = 0; i < rank; i++)
        m->from_strides[i] = strides[perm ? perm->ints[i] : rank - 1 - i];
}

static int describe_slice(const struct sy_node *node, int rank, const int64_t *strides,
                          struct sy_strided_move *m)
{
    const struct sy_attr *axes = sy_node_attr(node, "axes"), *starts = sy_node_attr(node, "starts"),
                         *steps = sy_node_attr(node, "steps");
    memcpy(m->from_strides, strides, (size_t)rank * sizeof *strides);
    if (!axes || !starts || starts->n < axes->n)
        return sy_tr_refuse(node, "its bounds are not known");
    for (int i = 0; i < axes->n; i++) {
        int64_t axis = axes->ints[i];
        m->from_offset += starts->ints[i] * strides[axis];
        m->from_strides[axis] = strides[axis] * (steps && i < steps->n ? steps->ints[i] : 1);
    }
    return SY_OK;
}

static void describe_expand(int rank, int in_rank, const int64_t *in, const int64_t *strides,
                            struct sy_strided_move *m)
{
    for (int i = 0; i < in_rank; i++)
        m->from_strides[rank - in_rank + i] = in[i] == 1 ? 0 : strides[i];
}

/* Offset of part `which` along the axis, in elements of `axis`. */
static int64_t part_offset(const struct sy_trainer *t, const int *tensors, int which, int64_t axis)
{
    int64_t dims[SY_MAX_RANK], at = 0;
    for (int i = 0; i < which; i++) {
        sy_tr_shape(t, tensors[i], dims);
        at += dims[axis];
    }
    return at;
}

static int64_t axis_of(const struct sy_node *node, int rank)
{
    int64_t axis = sy_node_int(node, "axis", 0);
    return axis < 0 ? axis + rank : axis;
}

/* Copies from input number `in` to output number `out`. */
static int describe(const struct sy_trainer *t, const struct sy_node *node, int in, int out,
                    struct moving *moving)
{
    struct sy_strided_move *m = &moving->there;
    int64_t from[SY_MAX_RANK], to[SY_MAX_RANK], from_strides[SY_MAX_RANK], to_strides[SY_MAX_RANK];
    int from_rank = sy_tr_shape(t, node->inputs[in], from),
        rank = sy_tr_shape(t, node->outputs[out], to);
    sy_row_major_strides(from_rank, from, from_strides);
    sy_row_major_strides(rank, to, to_strides);
    m->element_bytes = (int64_t)sy_dtype_bytes(t->graph->tensors[node->outputs[out]].dtype);
    m->rank = rank;
    memcpy(m->dims, to, sizeof to);
    memcpy(m->to_strides, to_strides, sizeof to_strides);
    int64_t n = sy_tr_count(t, node->inputs[in]), axis = axis_of(node, rank);
    if (node->op == SY_OP_TRANSPOSE) {
        describe_transpose(node, rank, from_strides, m);
    } else if (node->op == SY_OP_SLICE) {
        SY_TRY(describe_slice(node, rank, from_strides, m));
        moving->n_clear = n;
    } else if (node->op == SY_OP_EXPAND) {
        describe_expand(rank, from_rank, from, from_strides, m);
        moving->is_spread = true;
        moving->n_clear = n;
    } else if (node->op == SY_OP_SPLIT) {
        memcpy(m->from_strides, from_strides, sizeof from_strides);
        m->from_offset = part_offset(t, node->outputs, out, axis) * from_strides[axis];
    } else { /* Concat */
        memcpy(m->from_strides, from_strides, sizeof from_strides);
        memcpy(m->dims, from, sizeof from);
        m->to_offset = part_offset(t, node->inputs, in, axis) * to_strides[axis];
    }
    moving->back = *m;
    moving->back.from_offset = m->to_offset;
    moving->back.to_offset = m->from_offset;
    memcpy(moving->back.from_strides, m->to_strides, sizeof m->to_strides);
    memcpy(moving->back.to_strides, m->from_strides, sizeof m->from_strides);
    return SY_OK;
}

static int run_move(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct moving *m = step->data;
    sy_move(&m->there, sy_tr_at(t, step, 1), sy_tr_at(t, step, 0));
    return SY_OK;
}

static void add_back(const struct sy_strided_move *m, const float *from, float *to)
{
    int64_t rows = 1, last = m->rank - 1, n = m->rank ? m->dims[last] : 1;
    for (int64_t d = 0; d < last; d++)
        rows *= m->dims[d];
    for (int64_t row = 0; row < rows; row++) {
        int64_t left = row, a = m->from_offset, b = m->to_offset;
        for (int64_t d = last - 1; d >= 0; d--) {
            a += left % m->dims[d] * m->from_strides[d];
            b += left % m->dims[d] * m->to_strides[d];
            left /= m->dims[d];
        }
        for (int64_t i = 0; i < n; i++)
            to[b + i * (m->rank ? m->to_strides[last] : 1)] +=
                from[a + i * (m->rank ? m->from_strides[last] : 1)];
    }
}

static int run_move_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct moving *m = step->data;
    float *to = sy_tr_at(t, step, 0);
    const float *from = sy_tr_at(t, step, 1);
    if (m->n_clear)
        memset(to, 0, (size_t)m->n_clear * sizeof *to);
    if (m->is_spread)
        add_back(&m->back, from, to);
    else if (from)
        sy_move(&m->back, from, to);
    return SY_OK;
}

static int add_move(struct sy_trainer *t, unsigned when, const struct sy_node *node, int in,
                    int out, sy_tr_fn *fn, int to, int from, int64_t n_clear)
{
    struct moving *m;
    SY_TRY(sy_tr_alloc(sizeof *m, &m));
    int status = describe(t, node, in, out, m);
    if (status < 0) {
        free(m);
        return status;
    }
    m->n_clear = SY_MAX(m->n_clear, n_clear);
    return sy_tr_add_call(t, when, fn, 1, 2, (const int[]){to, from}, m);
}

int sy_tr_move_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x, y;
    for (int o = 0; o < node->n_outputs; o++) {
        if (node->outputs[o] < 0)
            continue;
        SY_TRY(sy_tr_result(t, node->outputs[o], &y));
        int n_in = node->op == SY_OP_CONCAT ? node->n_inputs : 1;
        for (int i = 0; i < n_in; i++) {
            if (sy_tr_count(t, node->inputs[i]) < 1)
                continue;
            SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[i], &x));
            SY_TRY(add_move(t, SY_TR_FORWARD, node, i, o, run_move, y, x, 0));
        }
    }
    return SY_OK;
}

/* One input from several outputs. The first clears what those without a gradient leave out. */
static int split_backward(struct sy_trainer *t, const struct sy_node *node)
{
    int dx, dy;
    bool is_first = true;
    SY_TRY(sy_tr_diff_begin(t, node->inputs[0], &dx));
    for (int o = 0; o < node->n_outputs; o++) {
        if (node->outputs[o] < 0 || t->tensors[node->outputs[o]].gradient < 0)
            continue;
        SY_TRY(sy_tr_diff_of(t, node->outputs[o], &dy));
        SY_TRY(add_move(t, SY_TR_TRAIN, node, 0, o, run_move_back, dx, dy,
                        is_first ? sy_tr_count(t, node->inputs[0]) : 0));
        is_first = false;
    }
    return sy_tr_diff_end(t, node->inputs[0], dx);
}

int sy_tr_move_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int dx, dy, n_in = node->op == SY_OP_CONCAT ? node->n_inputs : 1;
    (void)gradient;
    if (node->op == SY_OP_SPLIT)
        return split_backward(t, node);
    SY_TRY(sy_tr_diff_of(t, node->outputs[0], &dy));
    for (int i = 0; i < n_in; i++) {
        if (!sy_tr_needs(t, node->inputs[i]) || sy_tr_count(t, node->inputs[i]) < 1)
            continue;
        SY_TRY(sy_tr_diff_begin(t, node->inputs[i], &dx));
        SY_TRY(add_move(t, SY_TR_TRAIN, node, i, 0, run_move_back, dx, dy, 0));
        SY_TRY(sy_tr_diff_end(t, node->inputs[i], dx));
    }
    return SY_OK;
}

/* ---- Gather: embeddings --------------------------------------------------------------------------- */

static void describe_gather(const struct sy_trainer *t, const struct sy_node *node,
                            struct sy_gather *g)
{
    int64_t dims[SY_MAX_RANK];
    const struct sy_tensor *x = &t->graph->tensors[node->inputs[0]];
    int rank = sy_tr_shape(t, node->inputs[0], dims);
    int64_t axis = axis_of(node, rank), inner = 1;
    g->outer = 1;
    for (int i = 0; i < axis; i++)
        g->outer *= dims[i];
    for (int i = (int)axis + 1; i < rank; i++)
        inner *= dims[i];
    g->extent = dims[axis];
    g->n_indices = sy_tr_count(t, node->inputs[1]);
    g->inner_bytes = inner * (int64_t)sy_dtype_bytes(x->dtype);
    g->wide = t->graph->tensors[node->inputs[1]].dtype == SY_DTYPE_I64;
}

static int run_gather(struct sy_trainer *t, const struct sy_tr_step *step)
{
    struct sy_gather g = *(const struct sy_gather *)step->data;
    int64_t bad;
    g.to = sy_tr_at(t, step, 0);
    g.from = sy_tr_at(t, step, 1);
    g.indices = sy_tr_at(t, step, 2);
    if (sy_move_gather(&g, &bad))
        return SY_OK;
    return sy_error_set(SY_EARG, "node '%s' (Gather): index %lld, the table has rows 0 to %lld",
                        step->name, (long long)bad, (long long)g.extent - 1);
}

/* Rows that were not read keep a zero gradient; those read twice get the sum in the order of the indices. */
static int run_gather_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct sy_gather *g = step->data;
    float *to = sy_tr_at(t, step, 0);
    const float *dy = sy_tr_at(t, step, 1);
    const void *indices = sy_tr_at(t, step, 2);
    int64_t inner = g->inner_bytes / (int64_t)sizeof *to;
    memset(to, 0, (size_t)(g->outer * g->extent * inner) * sizeof *to);
    for (int64_t o = 0; o < g->outer; o++)
        for (int64_t k = 0; k < g->n_indices; k++) {
            int64_t at = g->wide ? ((const int64_t *)indices)[k] : ((const int32_t *)indices)[k];
            at += at < 0 ? g->extent : 0;
            float *row = to + (o * g->extent + at) * inner;
            const float *from = dy + (o * g->n_indices + k) * inner;
            for (int64_t i = 0; i < inner; i++)
                row[i] += from[i];
        }
    return SY_OK;
}

static int add_gather(struct sy_trainer *t, unsigned when, const struct sy_node *node, sy_tr_fn *fn,
                      const int *values)
{
    struct sy_gather *g;
    SY_TRY(sy_tr_alloc(sizeof *g, &g));
    describe_gather(t, node, g);
    return sy_tr_add_call(t, when, fn, 1, 3, values, g);
}

int sy_tr_gather_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x, indices, y;
    enum sy_dtype dtype = t->graph->tensors[node->inputs[1]].dtype;
    if (dtype != SY_DTYPE_I64 && dtype != SY_DTYPE_I32)
        return sy_tr_refuse(node, "indices that are not int64 or int32");
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[0], &x));
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[1], &indices));
    SY_TRY(sy_tr_result(t, node->outputs[0], &y));
    return add_gather(t, SY_TR_FORWARD, node, run_gather, (const int[]){y, x, indices});
}

int sy_tr_gather_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int indices, dx, dy;
    (void)gradient;
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[1], &indices));
    SY_TRY(sy_tr_diff_of(t, node->outputs[0], &dy));
    SY_TRY(sy_tr_diff_begin(t, node->inputs[0], &dx));
    SY_TRY(add_gather(t, SY_TR_TRAIN, node, run_gather_back, (const int[]){dx, dy, indices}));
    return sy_tr_diff_end(t, node->inputs[0], dx);
}

/* ---- by the inference engine's kernels ------------------------------------------------------------ */

struct kernel_step {
    const struct sy_kernel *kernel;
    struct sy_call call;
};

static void describe_array(const struct sy_trainer *t, int tensor, struct sy_array *a)
{
    a->dtype = tensor < 0 ? SY_DTYPE_NONE : t->graph->tensors[tensor].dtype;
    if (tensor < 0)
        return;
    a->rank = sy_tr_shape(t, tensor, a->dims);
    a->n = sy_tr_count(t, tensor);
}

static int run_kernel(struct sy_trainer *t, const struct sy_tr_step *step)
{
    struct kernel_step *k = step->data;
    int at = 0;
    for (int i = 0; i < k->call.n_out; i++)
        if (k->call.out[i].dtype != SY_DTYPE_NONE)
            k->call.out[i].data = sy_tr_at(t, step, at++);
    for (int i = 0; i < k->call.n_in; i++)
        if (k->call.in[i].dtype != SY_DTYPE_NONE)
            k->call.in[i].data = sy_tr_at(t, step, at++);
    k->call.scratch = sy_tr_at(t, step, at);
    return k->kernel->run(&k->call);
}

static int fill_call(const struct sy_trainer *t, const struct sy_node *node, struct kernel_step *k)
{
    k->kernel = sy_kernel_find(node->op);
    if (!k->kernel || node->n_inputs > SY_KERNEL_INPUTS || node->n_outputs > SY_KERNEL_OUTPUTS)
        return sy_tr_refuse(node, "the operator has no row-major form here");
    k->call.node = node;
    k->call.n_in = node->n_inputs;
    k->call.n_out = node->n_outputs;
    for (int i = 0; i < node->n_inputs; i++) {
        describe_array(t, node->inputs[i], &k->call.in[i]);
        if (node->inputs[i] >= 0 && t->graph->tensors[node->inputs[i]].data)
            k->call.in[i].data = t->graph->tensors[node->inputs[i]].data;
    }
    for (int i = 0; i < node->n_outputs; i++)
        describe_array(t, node->outputs[i], &k->call.out[i]);
    return k->kernel->check ? k->kernel->check(&k->call) : SY_OK;
}

static int kernel_values(struct sy_trainer *t, const struct sy_node *node,
                         const struct kernel_step *k, int *values)
{
    int n = 0, n_used = 0;
    for (int i = 0; i < node->n_outputs; i++)
        n_used += node->outputs[i] >= 0;
    for (int i = 0; i < node->n_inputs; i++)
        n_used += node->inputs[i] >= 0;
    if (n_used + 1 > SY_TR_MAX_VALUES)
        return sy_tr_refuse(node, "too many inputs and outputs");
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0)
            SY_TRY(sy_tr_result(t, node->outputs[i], &values[n++]));
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0)
            SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[i], &values[n++]));
    int64_t scratch = k->kernel->scratch ? k->kernel->scratch(&k->call) : 0;
    if (scratch > 0) {
        int64_t floats = (scratch + 3) / 4;
        dnnl_memory_desc_t md = sy_tr_plain(1, &floats);
        SY_TRY(sy_tr_value_new(t, &md, false, &values[n++]));
    }
    return n;
}

int sy_tr_plain_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct kernel_step *k;
    int values[SY_TR_MAX_VALUES], status, n_results = 0;
    SY_TRY(sy_tr_alloc(sizeof *k, &k));
    SY_TRY_GOTO(fill_call(t, node, k), fail);
    SY_TRY_GOTO(kernel_values(t, node, k, values), fail);
    for (int i = 0; i < node->n_outputs; i++)
        n_results += node->outputs[i] >= 0;
    return sy_tr_add_call(t, SY_TR_FORWARD, run_kernel, n_results, status, values, k);
fail:
    free(k);
    return status;
}

int sy_tr_no_backward(struct sy_trainer *t, int n, int gradient)
{
    (void)t;
    (void)n;
    (void)gradient;
    return SY_OK;
}

/* ---- maps: Pad, Tile, Trilu, DepthToSpace, SpaceToDepth ------------------------------------------- */

struct map {
    int64_t n_from, n_to;
    int64_t from[]; /* of each result: 1 + the element that it is, 0: a fill value */
};

static int run_map_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct map *m = step->data;
    float *to = sy_tr_at(t, step, 0);
    const float *dy = sy_tr_at(t, step, 1);
    memset(to, 0, (size_t)m->n_from * sizeof *to);
    for (int64_t i = 0; i < m->n_to; i++)
        if (m->from[i] > 0)
            to[m->from[i] - 1] += dy[i];
    return SY_OK;
}

/* The operator itself, run on the numbers of its elements, says where each comes from. */
static int make_map(const struct sy_trainer *t, const struct sy_node *node, struct map *m)
{
    struct kernel_step *k;
    struct sy_node bare = *node;
    struct sy_attr attrs[8];
    int64_t *numbers = NULL;
    int status;
    if (node->n_attrs > (int)SY_ARRAY_LEN(attrs))
        return sy_tr_refuse(node, "too many attributes");
    bare.n_attrs = 0; /* without the value that Pad fills with: it stands for 0 */
    for (int i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, "value"))
            attrs[bare.n_attrs++] = node->attrs[i];
    bare.attrs = attrs;
    SY_TRY(sy_tr_alloc(sizeof *k, &k));
    SY_TRY_GOTO(sy_tr_alloc((size_t)m->n_from * sizeof *numbers, &numbers), done);
    SY_TRY_GOTO(fill_call(t, &bare, k), done);
    for (int64_t i = 0; i < m->n_from; i++)
        numbers[i] = i + 1;
    k->call.in[0].dtype = k->call.out[0].dtype = SY_DTYPE_I64;
    k->call.in[0].data = numbers;
    k->call.out[0].data = m->from;
    if (k->kernel->scratch)
        SY_TRY_GOTO(sy_tr_alloc((size_t)k->kernel->scratch(&k->call) + 1, &k->call.scratch), done);
    SY_TRY_GOTO(k->kernel->run(&k->call), done);
done:
    free(k->call.scratch);
    free(numbers);
    free(k);
    return status;
}

int sy_tr_map_forward(struct sy_trainer *t, int n)
{
    return sy_tr_plain_forward(t, n);
}

int sy_tr_map_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int dx, dy;
    struct map *m;
    int64_t n_to = sy_tr_count(t, node->outputs[0]);
    (void)gradient;
    SY_TRY(sy_tr_diff_of(t, node->outputs[0], &dy));
    SY_TRY(sy_tr_diff_begin(t, node->inputs[0], &dx));
    SY_TRY(sy_tr_alloc(sizeof *m + (size_t)n_to * sizeof *m->from, &m));
    m->n_from = sy_tr_count(t, node->inputs[0]);
    m->n_to = n_to;
    int status = make_map(t, node, m);
    if (status < 0) {
        free(m);
        return status;
    }
    SY_TRY(sy_tr_add_call(t, SY_TR_TRAIN, run_map_back, 1, 2, (const int[]){dx, dy}, m));
    return sy_tr_diff_end(t, node->inputs[0], dx);
}
