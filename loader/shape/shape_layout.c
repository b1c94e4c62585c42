/* Shape rules: operators that give the same elements another shape, and those that make or read shapes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static int no_product(const struct sy_infer *in, const struct sy_node *node,
                      const struct sy_shape *shape)
{
    int n_growing = 0;
    for (int i = 0; i < shape->rank; i++)
        n_growing += shape->dims[i].per_batch != 0;
    return sy_infer_no_product(in, node, n_growing);
}

/* total / known where a smaller one of two sizes in `total` is taken for one of them, as positions that a table limits are. */
static bool divide_minima(struct sy_infer *in, const struct sy_node *node, struct sy_dim *total,
                          struct sy_dim known, struct sy_dim *out)
{
    struct sy_size_term terms[SY_SIZE_MAX_TERMS];
    int n = sy_size_terms(*total, terms);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < terms[i].n_atoms; k++) {
            struct sy_atom atom = sy_size_atom(terms[i].atoms[k]);
            struct sy_dim own, plain;
            if (atom.kind == SY_ATOM_MIN && sy_size_atom_dim(terms[i].atoms[k], &own) == SY_OK &&
                sy_size_substitute(*total, terms[i].atoms[k], atom.a, &plain) == SY_OK &&
                sy_size_div(plain, known, out) == SY_OK &&
                sy_infer_same_size(in, node, &own, atom.a)) {
                *total = plain;
                return true;
            }
        }
    return false;
}

/* Fills in 0 (as in the input) and -1 (what is left). */
static int resolve_reshape(struct sy_infer *in, const struct sy_node *node,
                           const struct sy_shape *from, struct sy_shape *to)
{
    bool literal_zero = sy_node_int(node, "allowzero", 0) != 0;
    int open = -1;
    char a[160], b[160];
    struct sy_dim total, known = {1, 0};
    for (int i = 0; i < to->rank; i++) {
        if (sy_dim_is(to->dims[i], 0) && !literal_zero && i < from->rank)
            to->dims[i] = from->dims[i];
        if (to->dims[i].fixed == -1 && to->dims[i].per_batch == 0 && open < 0)
            open = i;
        else if (sy_dim_mul(known, to->dims[i], &known) < 0)
            return no_product(in, node, to);
    }
    if (sy_shape_product(from, 0, from->rank, &total) < 0)
        return no_product(in, node, from);
    if (open >= 0) {
        if (sy_dim_div(total, known, &to->dims[open]) < 0 &&
            !(sy_infer_meet_batch(in, &total, known) &&
              sy_dim_div(total, known, &to->dims[open]) == SY_OK) &&
            !divide_minima(in, node, &total, known, &to->dims[open]) &&
            sy_dim_floor_div(total, known, &to->dims[open]) < 0)
            return sy_infer_defer(in, node, "the rest of %s in %s",
                                  sy_shape_text(from, a, sizeof a), sy_shape_text(to, b, sizeof b));
        if (sy_dim_mul(known, to->dims[open], &known) < 0)
            return no_product(in, node, to);
    }
    if (!sy_infer_same_size(in, node, &known, total))
        return sy_infer_fail(
            node, SY_EUNSUPPORTED,
            "cannot reshape %s to %s; if the batch size is written into the model, "
            "export it with a dynamic batch",
            sy_shape_text(from, a, sizeof a), sy_shape_text(to, b, sizeof b));
    return SY_OK;
}

/* The operand with the result's shape is known at run only: uses the shape that the file declares, checked at run. */
static int leave_to_run(struct sy_infer *in, struct sy_node *node, enum sy_op op)
{
    const struct sy_tensor *x;
    struct sy_shape shape;
    SY_TRY(sy_infer_declared(in, node, 0, &shape));
    SY_TRY(sy_infer_need(in, node, 0, &x));
    node->op = op;
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

/* The target becomes the output's shape; its input is removed. */
int sy_rule_reshape(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    struct sy_dim *target;
    int n;
    if (!sy_infer_is_known(in, node, 1))
        return leave_to_run(in, node, SY_OP_RUN_RESHAPE);
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_dims(in, node, 1, "shape", &n, &target));
    if (n < 0 || n > SY_MAX_RANK) {
        free(target);
        return sy_infer_fail(node, SY_EUNSUPPORTED, "a target of %d dimensions", n);
    }
    struct sy_shape shape = {.rank = n};
    memcpy(shape.dims, target, (size_t)n * sizeof *target);
    free(target);
    SY_TRY(resolve_reshape(in, node, &x->shape, &shape));
    sy_infer_keep_inputs(node, 1);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_flatten(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int axis = 0;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    int64_t given = sy_node_int(node, "axis", 1);
    if (given == x->shape.rank)
        axis = x->shape.rank;
    else
        SY_TRY(sy_infer_axis(node, given, x->shape.rank, &axis));
    struct sy_shape shape = {.rank = 2};
    if (sy_shape_product(&x->shape, 0, axis, &shape.dims[0]) < 0 ||
        sy_shape_product(&x->shape, axis, x->shape.rank, &shape.dims[1]) < 0)
        return no_product(in, node, &x->shape);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

static int marked_axes(struct sy_infer *in, const struct sy_node *node, int rank, int *n,
                       bool *is_marked)
{
    int64_t axes[SY_MAX_RANK];
    SY_TRY(sy_infer_ints(in, node, 1, "axes", SY_MAX_RANK, n, axes));
    for (int i = 0; i < *n; i++) {
        int axis;
        SY_TRY(sy_infer_axis(node, axes[i], rank, &axis));
        if (is_marked[axis])
            return sy_infer_fail(node, SY_ECORRUPT, "axis %d is given twice", axis);
        is_marked[axis] = true;
    }
    return SY_OK;
}

int sy_rule_squeeze(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    bool is_marked[SY_MAX_RANK] = {false};
    int n;
    if (!sy_infer_is_known(in, node, 1))
        return leave_to_run(in, node, SY_OP_RUN_SQUEEZE);
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(marked_axes(in, node, x->shape.rank, &n, is_marked));
    struct sy_shape shape = {.rank = 0};
    for (int i = 0; i < x->shape.rank; i++) {
        bool one = sy_dim_is(x->shape.dims[i], 1);
        struct sy_dim width = x->shape.dims[i];
        if (is_marked[i] && !sy_infer_same_size(in, node, &width, (struct sy_dim){1, 0}))
            return sy_infer_fail(node, SY_EUNSUPPORTED, "dimension %d is not 1", i);
        if (!(n < 0 ? one : is_marked[i]))
            shape.dims[shape.rank++] = x->shape.dims[i];
    }
    sy_infer_keep_inputs(node, 1);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_unsqueeze(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    bool is_marked[SY_MAX_RANK] = {false};
    int64_t axes[SY_MAX_RANK];
    int n;
    if (!sy_infer_is_known(in, node, 1))
        return leave_to_run(in, node, SY_OP_RUN_UNSQUEEZE);
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_ints(in, node, 1, "axes", SY_MAX_RANK, &n, axes));
    struct sy_shape shape = {.rank = x->shape.rank + SY_MAX(n, 0)};
    if (n < 1 || shape.rank > SY_MAX_RANK)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "%d axes; a result of more than %d dimensions",
                             n, SY_MAX_RANK);
    SY_TRY(marked_axes(in, node, shape.rank, &n, is_marked));
    for (int i = 0, from = 0; i < shape.rank; i++)
        shape.dims[i] = is_marked[i] ? (struct sy_dim){1, 0} : x->shape.dims[from++];
    sy_infer_keep_inputs(node, 1);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_expand(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    struct sy_dim *target;
    int n;
    if (!sy_infer_is_known(in, node, 1))
        return leave_to_run(in, node, SY_OP_RUN_EXPAND);
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_dims(in, node, 1, "shape", &n, &target));
    struct sy_shape shape = {.rank = n}, own = x->shape;
    if (n >= 0 && n <= SY_MAX_RANK)
        memcpy(shape.dims, target, (size_t)n * sizeof *target);
    free(target);
    if (n < 0 || n > SY_MAX_RANK || sy_infer_broadcast(in, node, &shape, &own) < 0)
        return sy_infer_fail(node, SY_EUNSUPPORTED,
                             "its input cannot be broadcast to the target shape");
    sy_infer_keep_inputs(node, 1);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

static int64_t clamp_axis(int64_t axis, int rank)
{
    axis = axis < 0 ? axis + rank : axis;
    return axis < 0 ? 0 : axis > rank ? rank : axis;
}

/* The whole value is known here: the input's dimensions from `start` to `end`. */
int sy_rule_shape(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    int64_t start = clamp_axis(sy_node_int(node, "start", 0), x->shape.rank);
    int64_t end = clamp_axis(sy_node_int(node, "end", x->shape.rank), x->shape.rank);
    struct sy_shape shape = {.rank = 1, .dims = {{SY_MAX(end - start, 0), 0}}};
    sy_infer_set(in, node, 0, SY_DTYPE_I64, &shape);
    return SY_OK;
}

/* Becomes the Expand of a constant: the same thing, and one operator less for the engines. */
int sy_rule_constant_of_shape(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_attr *attr = sy_node_attr(node, "value");
    struct sy_dim *target;
    int n, constant;
    float *zero;
    if (attr && attr->kind == SY_ATTR_TENSOR) {
        constant = attr->tensor;
    } else {
        SY_TRY(sy_graph_alloc(1, sizeof *zero, &zero));
        struct sy_shape one = {.rank = 1, .dims = {{1, 0}}};
        SY_TRY(sy_graph_add_constant(in->graph, node->name, SY_DTYPE_F32, &one, zero, sizeof *zero,
                                     &constant));
    }
    if (!sy_infer_is_known(in, node, 0)) {
        SY_TRY(sy_node_add_input(node, node->inputs[0]));
        node->inputs[0] = constant;
        return leave_to_run(in, node, SY_OP_RUN_EXPAND);
    }
    SY_TRY(sy_infer_dims(in, node, 0, "shape", &n, &target));
    struct sy_shape shape = {.rank = n};
    if (n >= 0 && n <= SY_MAX_RANK)
        memcpy(shape.dims, target, (size_t)n * sizeof *target);
    free(target);
    if (n < 0 || n > SY_MAX_RANK ||
        in->graph->tensors[constant].data_bytes !=
            sy_dtype_bytes(in->graph->tensors[constant].dtype))
        return sy_infer_fail(node, SY_EUNSUPPORTED,
                             "%d dimensions, or a value of more than one element", n);
    node->op = SY_OP_EXPAND;
    node->inputs[0] = constant;
    sy_infer_keep_inputs(node, 1);
    if (shape.rank == 0) /* the value has one dimension; the result has none */
        node->op = SY_OP_RESHAPE;
    sy_infer_set(in, node, 0, in->graph->tensors[constant].dtype, &shape);
    return SY_OK;
}

static bool is_integer_range(const struct sy_infer *in, const struct sy_node *node)
{
    for (int i = 0; i < 3; i++)
        if (!sy_infer_is_known(in, node, i) || sy_node_input(node, i) < 0 ||
            !sy_dtype_is_integer(in->graph->tensors[node->inputs[i]].dtype))
            return false;
    return true;
}

/* How many floats a Range of constants has; -1: not of constants. */
static int64_t count_floats(const struct sy_infer *in, const struct sy_node *node)
{
    double limit[3];
    for (int i = 0; i < 3; i++) {
        int tensor = sy_node_input(node, i);
        const struct sy_tensor *t = tensor >= 0 ? &in->graph->tensors[tensor] : NULL;
        if (!t || !t->data || t->data_bytes != sy_dtype_bytes(t->dtype) ||
            (t->dtype != SY_DTYPE_F32 && t->dtype != SY_DTYPE_F64))
            return -1;
        limit[i] = sy_load_double(t->dtype, t->data);
    }
    double count = ceil((limit[1] - limit[0]) / limit[2]);
    return count > 0 && count < 1e9 ? (int64_t)count : count <= 0 ? 0 : -1;
}

/* As count_floats, for floats made of open sizes: ceil((limit - start) / step). */
static bool count_open_floats(const struct sy_infer *in, const struct sy_node *node,
                              struct sy_dim *count)
{
    struct sy_fraction limit[3], span;
    int64_t least, most;
    for (int i = 0; i < 3; i++)
        if (!sy_fraction_read(in, sy_node_input(node, i), 0, &limit[i]) || limit[i].is_rounded)
            return false;
    bool down = limit[2].over.fixed < 0;
    if (!sy_dim_is_number(limit[2].over) || limit[2].over.fixed == 0 ||
        limit[2].over.fixed < -INT32_MAX ||
        sy_fraction_sub(limit[down ? 0 : 1], limit[down ? 1 : 0], &span) < 0)
        return false;
    limit[2].over.fixed = llabs(limit[2].over.fixed);
    if (sy_fraction_div(span, limit[2], &span) < 0 || sy_fraction_floor(span, true, count) < 0)
        return false;
    sy_size_bounds(*count, &least, &most);
    return least >= 0 || sy_size_max(*count, (struct sy_dim){0, 0}, count) == SY_OK;
}

/* How many steps there are in a span. False: the step is 0, or they are too large to divide. */
static bool count_between(int64_t span, int64_t step, int64_t *count)
{
    *count = 0;
    if (step == 0 || step == INT64_MIN || span == INT64_MIN)
        return false;
    if ((span > 0) == (step > 0) && span != 0)
        *count = (span - (step > 0 ? 1 : -1)) / step + 1;
    return true;
}

/* Whether the length of a Range of known integers is known beside open limits: it grows with N, and is linear in it. */
static bool count_with_batch(const struct sy_infer *in, const struct sy_node *node,
                             struct sy_shape *shape)
{
    struct sy_dim limit[3], span;
    for (int i = 0; i < 3; i++) {
        struct sy_dim *read = NULL;
        int n;
        bool ok = sy_infer_dims(in, node, i, "", &n, &read) == SY_OK && n == 1;
        if (ok)
            limit[i] = read[0];
        free(read);
        if (!ok)
            return false;
    }
    *shape = (struct sy_shape){.rank = 1};
    if (sy_dim_sub(limit[1], limit[0], &span) < 0 || limit[2].per_batch != 0)
        return false;
    if (sy_dim_is_number(span) && limit[0].per_batch != 0)
        return count_between(span.fixed, limit[2].fixed, &shape->dims[0].fixed);
    if (sy_dim_is_expr(span)) {
        struct sy_dim zero = {0, 0}, step = {llabs(limit[2].fixed), 0}, more = {step.fixed - 1, 0};
        if (limit[2].fixed < 0 && sy_size_sub(zero, span, &span) < 0)
            return false;
        return sy_size_max(span, zero, &span) == SY_OK && sy_size_add(span, more, &span) == SY_OK &&
               sy_size_floor_div(span, step, &shape->dims[0]) == SY_OK;
    }
    return span.per_batch > 0 && limit[2].fixed > 0 &&
           sy_dim_div(span, limit[2], &shape->dims[0]) == SY_OK;
}

/* Integers known at import are folded; the rest is computed at run. */
int sy_rule_range(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    struct sy_shape linear;
    int64_t limit[3];
    SY_TRY(sy_infer_need(in, node, 0, &x));
    if (node->n_inputs != 3)
        return sy_infer_fail(node, SY_ECORRUPT, "%d inputs", node->n_inputs);
    if (!is_integer_range(in, node)) {
        struct sy_shape floats = {.rank = 1, .dims = {{count_floats(in, node), 0}}};
        bool known = true;
        for (int i = 0; i < 3; i++)
            known = known && sy_infer_is_known(in, node, i);
        if (floats.dims[0].fixed < 0 && known)
            return sy_infer_fail(node, SY_ECORRUPT, "limits and a step that give no length");
        if (floats.dims[0].fixed < 0 && count_open_floats(in, node, &floats.dims[0])) {
            sy_infer_set(in, node, 0, x->dtype, &floats);
            return SY_OK;
        }
        if (floats.dims[0].fixed < 0)
            return leave_to_run(in, node, SY_OP_RANGE);
        sy_infer_set(in, node, 0, x->dtype, &floats);
        return SY_OK;
    }
    if (count_with_batch(in, node, &linear)) {
        sy_infer_set(in, node, 0, x->dtype, &linear); /* the limits stay, for the run */
        return SY_OK;
    }
    for (int i = 0; i < 3; i++) {
        int n;
        SY_TRY(sy_infer_need(in, node, i, &x));
        SY_TRY(sy_infer_ints(in, node, i, "", 1, &n, &limit[i]));
        if (n != 1)
            return sy_infer_fail(node, SY_ECORRUPT, "input %d is not one number", i);
    }
    int64_t span, count;
    if (__builtin_sub_overflow(limit[1], limit[0], &span) || !count_between(span, limit[2], &count))
        return sy_infer_fail(node, SY_ECORRUPT, "step 0, or too long");
    if (count > SY_MAX_VALUES)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "%lld numbers", (long long)count);
    struct sy_shape shape = {.rank = 1, .dims = {{count, 0}}};
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}
