/* Shape rules: operators that pick, join, cut and turn. */
#include <stdlib.h>
#include <string.h>

#include "loader/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

int sy_rule_gather(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *indices;
    int axis;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &indices));
    SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", 0), x->shape.rank, &axis));
    if (x->shape.rank - 1 + indices->shape.rank > SY_MAX_RANK)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "result of more than %d dimensions",
                             SY_MAX_RANK);
    struct sy_shape shape = {.rank = 0};
    for (int i = 0; i < axis; i++)
        shape.dims[shape.rank++] = x->shape.dims[i];
    for (int i = 0; i < indices->shape.rank; i++)
        shape.dims[shape.rank++] = indices->shape.dims[i];
    for (int i = axis + 1; i < x->shape.rank; i++)
        shape.dims[shape.rank++] = x->shape.dims[i];
    SY_TRY(sy_node_set_int(node, "axis", axis));
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_concat(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int axis;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", 1), shape.rank, &axis));
    for (int i = 1; i < node->n_inputs; i++) {
        SY_TRY(sy_infer_need(in, node, i, &x));
        for (int k = 0; k < shape.rank; k++)
            if (x->shape.rank != shape.rank ||
                (k != axis && !sy_dim_equal(x->shape.dims[k], shape.dims[k])))
                return sy_infer_fail(node, SY_ECORRUPT, "input %d does not fit the others", i);
        if (sy_dim_add(shape.dims[axis], x->shape.dims[axis], &shape.dims[axis]) < 0)
            return sy_infer_fail(node, SY_ECORRUPT, "too large");
    }
    SY_TRY(sy_node_set_int(node, "axis", axis));
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

/* Equal parts, the last one smaller if need be. */
static int equal_parts(const struct sy_node *node, int64_t size, int64_t *parts)
{
    int64_t each = (size + node->n_outputs - 1) / node->n_outputs;
    for (int i = 0; i < node->n_outputs; i++)
        parts[i] = SY_MAX(0, SY_MIN(each, size - i * each));
    return SY_OK;
}

/* Sizes: an attribute, an input, or absent; here always the attribute `split`. */
static int split_parts(struct sy_infer *in, struct sy_node *node, const struct sy_tensor *x,
                       int64_t *parts)
{
    int axis, n;
    int64_t size, sum = 0;
    SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", 0), x->shape.rank, &axis));
    SY_TRY(sy_infer_fixed(node, &x->shape, axis, &size));
    SY_TRY(sy_infer_ints(in, node, 1, "split", node->n_outputs, &n, parts));
    if (n < 0)
        SY_TRY(equal_parts(node, size, parts));
    else if (n != node->n_outputs)
        return sy_infer_fail(node, SY_ECORRUPT, "%d sizes for %d outputs", n, node->n_outputs);
    for (int i = 0; i < node->n_outputs; i++) {
        if (parts[i] < 0 || parts[i] > size)
            return sy_infer_fail(node, SY_ECORRUPT, "part %d of size %lld", i, (long long)parts[i]);
        sum += parts[i];
    }
    if (sum != size)
        return sy_infer_fail(node, SY_ECORRUPT, "parts are %lld together, not %lld", (long long)sum,
                             (long long)size);
    for (int i = 0; i < node->n_outputs; i++) {
        struct sy_shape shape = x->shape;
        shape.dims[axis] = (struct sy_dim){parts[i], 0};
        sy_infer_set(in, node, i, x->dtype, &shape);
    }
    SY_TRY(sy_node_set_int(node, "axis", axis));
    return sy_node_set_ints(node, "split", node->n_outputs, parts);
}

static int declared_split(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    for (int i = 0; i < node->n_outputs; i++) {
        struct sy_shape shape;
        SY_TRY(sy_infer_declared(in, node, i, &shape));
        sy_infer_set(in, node, i, x->dtype, &shape);
    }
    node->op = SY_OP_RUN_SPLIT;
    return SY_OK;
}

int sy_rule_split(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int64_t *parts;
    if (!sy_infer_is_known(in, node, 1))
        return declared_split(in, node);
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_graph_alloc((size_t)node->n_outputs, sizeof *parts, &parts));
    int status = split_parts(in, node, x, parts);
    free(parts);
    sy_infer_keep_inputs(node, 1);
    return status;
}

struct range {
    int64_t start, step;
    struct sy_dim count;
};

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* One axis of a Slice, numpy's rules. A dimension with N can only be taken whole. */
static int slice_axis(const struct sy_infer *in, const struct sy_node *node, struct sy_dim size,
                      struct sy_dim start, struct sy_dim end, int64_t step, struct range *out)
{
    *out = (struct range){0, 1, size};
    bool from_start = sy_dim_is(start, 0),
         to_end = sy_dim_equal(end, size) || (end.per_batch == 0 && end.fixed >= INT32_MAX);
    if (step == 1 && from_start && to_end)
        return SY_OK;
    if (size.per_batch != 0 || start.per_batch != 0 || end.per_batch != 0)
        return sy_infer_put_off(in, node, "a slice that depends on the batch size");
    if (step == 0 || step == INT64_MIN)
        return sy_infer_fail(node, SY_ECORRUPT, "step %lld", (long long)step);
    int64_t n = size.fixed;
    int64_t first = start.fixed < 0 ? start.fixed + n : start.fixed;
    int64_t last = end.fixed < 0 ? end.fixed + n : end.fixed;
    first = step > 0 ? clamp(first, 0, n) : clamp(first, 0, n - 1);
    last = step > 0 ? clamp(last, 0, n) : clamp(last, -1, n - 1);
    int64_t span = step > 0 ? last - first : first - last;
    int64_t stride = step > 0 ? step : -step;
    *out = (struct range){first, step, {span <= 0 ? 0 : (span - 1) / stride + 1, 0}};
    return SY_OK;
}

struct slice_lists {
    struct sy_dim *starts, *ends;
    int n_starts, n_ends, n_axes, n_steps;
    int64_t axes[SY_MAX_RANK], steps[SY_MAX_RANK];
};

static int read_slice(struct sy_infer *in, const struct sy_node *node, struct slice_lists *s)
{
    SY_TRY(sy_infer_dims(in, node, 1, "starts", &s->n_starts, &s->starts));
    SY_TRY(sy_infer_dims(in, node, 2, "ends", &s->n_ends, &s->ends));
    SY_TRY(sy_infer_ints(in, node, 3, "axes", SY_MAX_RANK, &s->n_axes, s->axes));
    SY_TRY(sy_infer_ints(in, node, 4, "steps", SY_MAX_RANK, &s->n_steps, s->steps));
    if (s->n_starts < 0 || s->n_starts > SY_MAX_RANK || s->n_ends != s->n_starts ||
        (s->n_axes >= 0 && s->n_axes != s->n_starts) ||
        (s->n_steps >= 0 && s->n_steps != s->n_starts))
        return sy_infer_fail(node, SY_ECORRUPT, "starts, ends, axes and steps differ in length");
    return SY_OK;
}

static int apply_slice(struct sy_infer *in, struct sy_node *node, const struct slice_lists *s)
{
    const struct sy_tensor *x;
    int64_t starts[SY_MAX_RANK] = {0}, steps[SY_MAX_RANK], axes[SY_MAX_RANK];
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    for (int i = 0; i < shape.rank; i++) {
        axes[i] = i;
        steps[i] = 1;
    }
    for (int i = 0; i < s->n_starts; i++) {
        int axis;
        struct range range;
        SY_TRY(sy_infer_axis(node, s->n_axes >= 0 ? s->axes[i] : i, shape.rank, &axis));
        SY_TRY(slice_axis(in, node, x->shape.dims[axis], s->starts[i], s->ends[i],
                          s->n_steps >= 0 ? s->steps[i] : 1, &range));
        starts[axis] = range.start;
        steps[axis] = range.step;
        shape.dims[axis] = range.count;
    }
    sy_infer_set(in, node, 0, x->dtype, &shape);
    SY_TRY(sy_node_set_ints(node, "starts", shape.rank, starts));
    SY_TRY(sy_node_set_ints(node, "steps", shape.rank, steps));
    return sy_node_set_ints(node, "axes", shape.rank, axes);
}

/* Here always attributes for all dimensions: element i of an axis is x[starts + i * steps]; ends follow from the
 * output's shape. */
int sy_rule_slice(struct sy_infer *in, struct sy_node *node)
{
    struct slice_lists s = {.starts = NULL};
    for (int i = 1; i < node->n_inputs; i++) {
        if (!sy_infer_is_known(in, node, i)) {
            const struct sy_tensor *x;
            struct sy_shape shape;
            SY_TRY(sy_infer_need(in, node, 0, &x));
            SY_TRY(sy_infer_declared(in, node, 0, &shape));
            node->op = SY_OP_RUN_SLICE;
            sy_infer_set(in, node, 0, x->dtype, &shape);
            return SY_OK;
        }
    }
    int status = read_slice(in, node, &s);
    if (status == SY_OK)
        status = apply_slice(in, node, &s);
    free(s.starts);
    free(s.ends);
    sy_infer_keep_inputs(node, 1);
    return status;
}

int sy_rule_transpose(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int64_t perm[SY_MAX_RANK];
    bool seen[SY_MAX_RANK] = {false};
    int n;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_ints(in, node, 1, "perm", SY_MAX_RANK, &n, perm));
    struct sy_shape shape = {.rank = x->shape.rank};
    for (int i = 0; n < 0 && i < shape.rank; i++)
        perm[i] = shape.rank - 1 - i;
    if (n >= 0 && n != shape.rank)
        return sy_infer_fail(node, SY_ECORRUPT, "perm has %d entries for %d dimensions", n,
                             shape.rank);
    for (int i = 0; i < shape.rank; i++) {
        int axis;
        SY_TRY(sy_infer_axis(node, perm[i], shape.rank, &axis));
        if (seen[axis])
            return sy_infer_fail(node, SY_ECORRUPT, "perm names dimension %d twice", axis);
        seen[axis] = true;
        perm[i] = axis;
        shape.dims[i] = x->shape.dims[axis];
    }
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return sy_node_set_ints(node, "perm", shape.rank, perm);
}
