/* Shape rules: operators that pick, join, cut and turn. */
#include <stdlib.h>
#include <string.h>

#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
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
    enum sy_dtype dtype = x->dtype;
    SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", 1), shape.rank, &axis));
    for (int i = 1; i < node->n_inputs; i++) {
        SY_TRY(sy_infer_need(in, node, i, &x));
        if (x->dtype != dtype)
            return sy_infer_fail(node, SY_ECORRUPT,
                                 "input %d has another element type than the first", i);
        for (int k = 0; k < shape.rank; k++)
            if (x->shape.rank != shape.rank ||
                (k != axis && !sy_infer_same_size(in, node, &shape.dims[k], x->shape.dims[k])))
                return sy_infer_fail(node, SY_ECORRUPT, "input %d does not fit the others", i);
        if (sy_dim_add(shape.dims[axis], x->shape.dims[axis], &shape.dims[axis]) < 0)
            return sy_infer_fail(node, SY_ECORRUPT, "too large");
    }
    SY_TRY(sy_node_set_int(node, "axis", axis));
    sy_infer_set(in, node, 0, dtype, &shape);
    return SY_OK;
}

/* Equal parts, the last one smaller if need be. */
static int equal_parts(const struct sy_node *node, struct sy_dim size, struct sy_dim *parts)
{
    struct sy_dim n = {node->n_outputs, 0}, zero = {0, 0}, each, rest = size;
    if (sy_size_div(size, n, &each) < 0) {
        SY_TRY(sy_size_add(size, (struct sy_dim){n.fixed - 1, 0}, &each));
        SY_TRY(sy_size_floor_div(each, n, &each));
    }
    for (int i = 0; i < node->n_outputs; i++) {
        SY_TRY(sy_size_min(each, rest, &parts[i]));
        SY_TRY(sy_size_max(parts[i], zero, &parts[i]));
        SY_TRY(sy_size_sub(rest, each, &rest));
    }
    return SY_OK;
}

/* Sizes: an attribute, an input, or absent; here always the attribute `split`. */
static int split_parts(struct sy_infer *in, struct sy_node *node, const struct sy_tensor *x,
                       struct sy_dim *parts)
{
    int axis, n;
    struct sy_dim *given, sum = {0, 0};
    char text[160];
    SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", 0), x->shape.rank, &axis));
    struct sy_dim size = x->shape.dims[axis];
    SY_TRY(sy_infer_dims(in, node, 1, "split", &n, &given));
    for (int i = 0; i < n && i < node->n_outputs; i++)
        parts[i] = given[i];
    free(given);
    if (n >= 0 && n != node->n_outputs)
        return sy_infer_fail(node, SY_ECORRUPT, "%d sizes for %d outputs", n, node->n_outputs);
    if (n < 0 && equal_parts(node, size, parts) < 0)
        return sy_infer_defer(in, node, "parts of the batch");
    for (int i = 0; i < node->n_outputs; i++) {
        if (!sy_dim_is_number(parts[i]) && !sy_dim_is_expr(parts[i]))
            return sy_infer_defer(in, node, "parts of the batch");
        if ((!sy_dim_is_expr(parts[i]) && parts[i].fixed < 0) || sy_dim_add(sum, parts[i], &sum))
            return sy_infer_fail(node, SY_ECORRUPT, "part %d of size %lld", i,
                                 (long long)parts[i].fixed);
    }
    if (!sy_infer_same_size(in, node, &sum, size))
        return sy_infer_fail(node, SY_ECORRUPT, "parts that are not together dimension %d of %s",
                             axis, sy_shape_text(&x->shape, text, sizeof text));
    for (int i = 0; i < node->n_outputs; i++) {
        struct sy_shape shape = x->shape;
        shape.dims[axis] = parts[i];
        sy_infer_set(in, node, i, x->dtype, &shape);
    }
    SY_TRY(sy_node_set_int(node, "axis", axis));
    return sy_node_set_sizes(node, "split", node->n_outputs, parts);
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
    struct sy_dim *parts;
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
    struct sy_dim start, count;
    int64_t step;
};

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* "To the end", as exporters write it: no size is larger, which becomes a condition where it cannot be proven. */
enum { FAR_END = 100000000 };

/* Whether the end lies behind all elements. */
static bool is_far(struct sy_infer *in, const struct sy_node *node, struct sy_dim size,
                   struct sy_dim end)
{
    return sy_dim_is_number(end) &&
           (end.fixed >= INT32_MAX ||
            (end.fixed >= FAR_END && sy_infer_at_most(in, node, size, end)));
}

/* A bound of a slice as an element's number from 0 to `high`: from the end if it is negative. A difference of sizes is taken for one that is not
 * below 0, minus a size for one that is. */
static int clamp_open(struct sy_infer *in, const struct sy_node *node, struct sy_dim bound,
                      struct sy_dim size, struct sy_dim low, struct sy_dim high, struct sy_dim *out)
{
    int64_t least, most;
    sy_size_bounds(bound, &least, &most);
    if (is_far(in, node, size, bound)) {
        *out = high;
        return SY_OK;
    }
    if (least < 0 && most > 0 && sy_infer_at_most(in, node, (struct sy_dim){0, 0}, bound))
        least = 0;
    if (most == 0 && least < 0 && sy_infer_at_most(in, node, bound, (struct sy_dim){-1, 0}))
        most = -1;
    if (most < 0) /* -9223372036854775807 is before the first element, whatever the size */
        SY_TRY(most < -INT32_MAX ? (bound = low, SY_OK) : sy_size_add(bound, size, &bound));
    else if (least < 0)
        return SY_EUNSUPPORTED;
    SY_TRY(sy_size_max(bound, low, &bound));
    return sy_size_min(bound, high, out);
}

/* For open sizes. With a negative step both ends are one lower. */
static int slice_open(struct sy_infer *in, const struct sy_node *node, struct sy_dim size,
                      struct sy_dim start, struct sy_dim end, int64_t step, struct range *out)
{
    struct sy_dim zero = {0, 0}, one = {1, 0}, minus = {-1, 0}, last, first, span, top = size,
                  stride = {step > 0 ? step : -step, 0};
    if (step < 0)
        SY_TRY(sy_size_sub(size, one, &top));
    SY_TRY(clamp_open(in, node, start, size, zero, top, &first));
    SY_TRY(clamp_open(in, node, end, size, step > 0 ? zero : minus, top, &last));
    SY_TRY(step > 0 ? sy_size_sub(last, first, &span) : sy_size_sub(first, last, &span));
    SY_TRY(sy_size_max(span, zero, &span));
    SY_TRY(sy_size_add(span, (struct sy_dim){stride.fixed - 1, 0}, &span));
    SY_TRY(sy_size_floor_div(span, stride, &out->count));
    out->start = first;
    out->step = step;
    return SY_OK;
}

/* Whether a reader of the node's result joins dimension `axis` of it with one of the size `count` (element by element, or beside each other). */
static bool meets(const struct sy_infer *in, const struct sy_node *node, int rank, int axis,
                  struct sy_dim count)
{
    const struct sy_graph *graph = in->graph;
    bool found = false;
    for (const struct sy_node *r = node + 1; r < graph->nodes + graph->n_nodes && !found; r++) {
        bool reads = false, with = false, is_concat = r->op == SY_OP_CONCAT;
        if (!is_concat && r->op != SY_OP_ADD && r->op != SY_OP_SUB && r->op != SY_OP_MUL &&
            r->op != SY_OP_DIV && r->op != SY_OP_WHERE)
            continue;
        for (int i = 0; i < r->n_inputs; i++) {
            const struct sy_shape *other =
                r->inputs[i] < 0 ? NULL : &graph->tensors[r->inputs[i]].shape;
            int at = other ? axis + other->rank - rank : -1;
            bool is_own = r->inputs[i] == node->outputs[0];
            reads = reads || is_own;
            with = with ||
                   (!is_own && at >= 0 && at < other->rank && sy_dim_equal(other->dims[at], count));
        }
        int64_t along = sy_node_int(r, "axis", 0);
        found = reads && with && !(is_concat && (along < 0 ? along + rank : along) == axis);
    }
    return found;
}

/* One axis of a Slice, by numpy's rules. A dimension that depends on N can only be sliced whole. */
static int slice_axis(struct sy_infer *in, const struct sy_node *node, struct sy_dim size,
                      struct sy_dim start, struct sy_dim end, int64_t step, struct range *out)
{
    *out = (struct range){{0, 0}, size, 1};
    bool from_start = sy_dim_is(start, 0),
         to_end = sy_dim_equal(end, size) || is_far(in, node, size, end);
    if (step == 1 && from_start && to_end)
        return SY_OK;
    if (step == 0 || step == INT64_MIN)
        return sy_infer_fail(node, SY_ECORRUPT, "step %lld", (long long)step);
    if ((sy_dim_is_expr(size) || sy_dim_is_expr(start) || sy_dim_is_expr(end)) &&
        slice_open(in, node, size, start, end, step, out) == SY_OK)
        return SY_OK;
    if (size.per_batch != 0 || start.per_batch != 0 || end.per_batch != 0)
        return sy_infer_defer(in, node, "a slice that depends on the batch size");
    int64_t n = size.fixed;
    int64_t first = start.fixed < 0 ? start.fixed + n : start.fixed;
    int64_t last = end.fixed < 0 ? end.fixed + n : end.fixed;
    first = step > 0 ? clamp(first, 0, n) : clamp(first, 0, n - 1);
    last = step > 0 ? clamp(last, 0, n) : clamp(last, -1, n - 1);
    int64_t span = step > 0 ? last - first : first - last;
    int64_t stride = step > 0 ? step : -step;
    *out = (struct range){{first, 0}, {span <= 0 ? 0 : (span - 1) / stride + 1, 0}, step};
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
    int64_t steps[SY_MAX_RANK], axes[SY_MAX_RANK];
    struct sy_dim starts[SY_MAX_RANK] = {{0, 0}};
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
        int64_t step = s->n_steps >= 0 ? s->steps[i] : 1;
        struct sy_dim size = x->shape.dims[axis];
        if (step == 1 && sy_dim_is(s->starts[i], 0) &&
            meets(in, node, shape.rank, axis, s->ends[i]) &&
            sy_infer_meet_sliced(in, size, s->ends[i]))
            size = s->ends[i];
        SY_TRY(slice_axis(in, node, size, s->starts[i], s->ends[i], step, &range));
        starts[axis] = range.start;
        steps[axis] = range.step;
        shape.dims[axis] = range.count;
    }
    sy_infer_set(in, node, 0, x->dtype, &shape);
    SY_TRY(sy_node_set_sizes(node, "starts", shape.rank, starts));
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
