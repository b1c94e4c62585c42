/* Folding of operators that look at many elements at once: reductions, ArgMax and ArgMin, NonZero, normalisation by the batch (of
 * standardised weights). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* Maps each element of the input to an element of the result, by strides that are 0 along reduced axes. */
struct reduction {
    int64_t strides[SY_MAX_RANK], each; /* each: elements that meet in one */
};

static bool is_axis(const struct sy_attr *axes, int axis)
{
    for (int i = 0; axes && i < axes->n; i++)
        if (axes->ints[i] == axis)
            return true;
    return false;
}

static void plan(const struct sy_block *x, const struct sy_attr *axes, int one_axis,
                 struct reduction *r)
{
    int64_t stride = 1;
    r->each = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        bool reduced = i == one_axis || is_axis(axes, i);
        r->strides[i] = reduced ? 0 : stride;
        r->each *= reduced ? x->dims[i] : 1;
        stride *= reduced ? 1 : x->dims[i];
    }
}

static int64_t target(const struct sy_block *x, const struct reduction *r, int64_t i)
{
    int64_t to = 0;
    for (int d = x->rank - 1; d >= 0; d--) {
        to += i % x->dims[d] * r->strides[d];
        i /= x->dims[d];
    }
    return to;
}

static bool reduces(enum sy_op op)
{
    return sy_op_facts(op)->fold == SY_FOLD_REDUCE;
}

/* ---- numbers linear in N ------------------------------------------------------------------------ */

static struct sy_dim dim_at(const struct sy_block *x, int64_t i)
{
    struct sy_dim dim;
    memcpy(&dim, x->data + (size_t)i * sizeof dim, sizeof dim);
    return dim;
}

static int join_dims(enum sy_op op, struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    if (op == SY_OP_REDUCE_SUM)
        return sy_dim_add(a, b, out);
    if (op == SY_OP_REDUCE_PROD)
        return sy_dim_mul(a, b, out);
    if ((sy_dim_is_expr(a) || sy_dim_is_expr(b)) && op != SY_OP_REDUCE_MEAN)
        return op == SY_OP_REDUCE_MIN ? sy_size_min(a, b, out) : sy_size_max(a, b, out);
    if (a.per_batch != b.per_batch || op == SY_OP_REDUCE_MEAN)
        return SY_EUNSUPPORTED;
    *out = (a.fixed < b.fixed) == (op == SY_OP_REDUCE_MIN) ? a : b;
    return SY_OK;
}

static int reduce_dims(const struct sy_node *node, const struct sy_block *x,
                       const struct sy_block *out, struct sy_dim *to)
{
    struct reduction r;
    bool *begun;
    int status = SY_OK;
    plan(x, sy_node_attr(node, "axes"), -1, &r);
    bool has_neutral = node->op == SY_OP_REDUCE_SUM || node->op == SY_OP_REDUCE_PROD;
    if (r.each == 0 && !has_neutral)
        return SY_EUNSUPPORTED;
    SY_TRY(sy_graph_alloc((size_t)out->n, sizeof *begun, &begun));
    for (int64_t i = 0; i < out->n; i++)
        to[i] = (struct sy_dim){node->op == SY_OP_REDUCE_PROD, 0};
    for (int64_t i = 0; i < x->n && status == SY_OK; i++) {
        int64_t k = target(x, &r, i);
        struct sy_dim dim = dim_at(x, i);
        if (begun[k])
            status = join_dims(node->op, to[k], dim, &to[k]);
        else
            to[k] = dim;
        begun[k] = true;
    }
    free(begun);
    return status;
}

/* Coordinates along axis 0 of what is not zero, or how many there are, where `to` is NULL. */
static int64_t write_places(const struct sy_block *x, const bool *is_set, int64_t n, int64_t *to)
{
    int64_t found = 0;
    for (int64_t i = 0; i < x->n; i++) {
        int64_t rest = i;
        if (!is_set[i])
            continue;
        for (int d = x->rank - 1; d >= 0 && to; d--) {
            to[d * n + found] = rest % x->dims[d];
            rest /= x->dims[d];
        }
        found++;
    }
    return found;
}

static int places(const struct sy_block *x, const bool *is_set, const struct sy_block *out,
                  int64_t **to)
{
    int64_t n = write_places(x, is_set, 0, NULL);
    if (out->rank != 2 || out->dims[0] != x->rank || out->dims[1] != n)
        return SY_EUNSUPPORTED;
    SY_TRY(sy_graph_alloc((size_t)out->n, sizeof **to, to));
    write_places(x, is_set, n, *to);
    return SY_OK;
}

static int places_of_dims(const struct sy_block *x, const struct sy_block *out, struct sy_dim *to)
{
    bool *is_set;
    int64_t *found = NULL;
    int status = SY_OK;
    SY_TRY(sy_graph_alloc((size_t)x->n, sizeof *is_set, &is_set));
    for (int64_t i = 0; i < x->n; i++) {
        struct sy_dim dim = dim_at(x, i);
        if (dim.per_batch != 0)
            status = SY_EUNSUPPORTED;
        is_set[i] = dim.fixed != 0;
    }
    if (status == SY_OK)
        status = places(x, is_set, out, &found);
    for (int64_t i = 0; i < out->n && status == SY_OK; i++)
        to[i] = (struct sy_dim){found[i], 0};
    free(is_set);
    free(found);
    return status;
}

int sy_fold_whole_dims(const struct sy_node *node, const struct sy_block *x,
                       const struct sy_block *out, struct sy_dim *to)
{
    if (node->op == SY_OP_NON_ZERO)
        return places_of_dims(x, out, to);
    return reduces(node->op) && node->n_inputs == 1 ? reduce_dims(node, x, out, to)
                                                    : SY_EUNSUPPORTED;
}

/* ---- floats ------------------------------------------------------------------------------------- */

static double join(enum sy_op op, double a, double b)
{
    if (op == SY_OP_REDUCE_SUM || op == SY_OP_REDUCE_MEAN)
        return a + b;
    if (op == SY_OP_REDUCE_PROD)
        return a * b;
    if (isnan(a) || isnan(b))
        return NAN;
    return (a < b) == (op == SY_OP_REDUCE_MIN) ? a : b;
}

static int reduce(const struct sy_node *node, const struct sy_block *x, enum sy_dtype dtype,
                  const struct sy_block *out, unsigned char *to)
{
    struct reduction r;
    double *sums;
    size_t bytes = sy_dtype_bytes(dtype);
    plan(x, sy_node_attr(node, "axes"), -1, &r);
    if (r.each == 0)
        return SY_EUNSUPPORTED;
    SY_TRY(sy_graph_alloc((size_t)out->n, sizeof *sums, &sums));
    for (int64_t i = 0; i < out->n; i++)
        sums[i] = NAN;
    for (int64_t i = 0; i < x->n; i++) {
        int64_t k = target(x, &r, i);
        double v = sy_load_double(dtype, x->data + (size_t)i * bytes);
        /* The first of each is element 0 along all that is reduced. */
        int64_t rest = i, before = 0;
        for (int d = x->rank - 1; d >= 0; d--) {
            before += r.strides[d] == 0 ? rest % x->dims[d] : 0;
            rest /= x->dims[d];
        }
        sums[k] = before == 0 ? v : join(node->op, sums[k], v);
    }
    for (int64_t i = 0; i < out->n; i++)
        sy_store_double(dtype, node->op == SY_OP_REDUCE_MEAN ? sums[i] / (double)r.each : sums[i],
                        to + (size_t)i * bytes);
    free(sums);
    return SY_OK;
}

static int arg(const struct sy_node *node, const struct sy_block *x, enum sy_dtype dtype,
               const struct sy_block *out, unsigned char *to)
{
    int64_t axis = sy_node_int(node, "axis", 0), after = 1;
    bool last = sy_node_int(node, "select_last_index", 0) != 0;
    size_t bytes = sy_dtype_bytes(dtype);
    axis += axis < 0 ? x->rank : 0;
    if (axis < 0 || axis >= x->rank || x->dims[axis] < 1)
        return SY_EUNSUPPORTED;
    for (int d = (int)axis + 1; d < x->rank; d++)
        after *= x->dims[d];
    for (int64_t i = 0; i < out->n; i++) {
        int64_t from = i / after * x->dims[axis] * after + i % after, best = 0;
        double at_best = 0;
        for (int64_t k = 0; k < x->dims[axis]; k++) {
            double v = sy_load_double(dtype, x->data + (size_t)(from + k * after) * bytes);
            bool better = node->op == SY_OP_ARG_MAX ? v > at_best : v < at_best;
            if (k > 0 && !better && !(last && v == at_best))
                continue;
            best = k;
            at_best = v;
        }
        memcpy(to + (size_t)i * sizeof best, &best, sizeof best);
    }
    return SY_OK;
}

static int places_of(const struct sy_block *x, enum sy_dtype dtype, const struct sy_block *out,
                     unsigned char *to)
{
    bool *is_set;
    int64_t *found = NULL;
    SY_TRY(sy_graph_alloc((size_t)x->n, sizeof *is_set, &is_set));
    for (int64_t i = 0; i < x->n; i++)
        is_set[i] = sy_load_double(dtype, x->data + (size_t)i * sy_dtype_bytes(dtype)) != 0;
    int status = places(x, is_set, out, &found);
    if (status == SY_OK && out->n > 0)
        memcpy(to, found, (size_t)out->n * sizeof *found);
    free(is_set);
    free(found);
    return status;
}

int sy_fold_batch_norm(const struct sy_node *node, const struct sy_block *inputs,
                       const enum sy_dtype *dtypes, const struct sy_block *out, unsigned char *to)
{
    const struct sy_block *x = &inputs[0];
    if (node->n_inputs != 5 || sy_node_int(node, "training_mode", 0) == 0 || x->rank < 2 ||
        out->n != x->n || dtypes[0] != SY_DTYPE_F32 || x->n == 0)
        return SY_EUNSUPPORTED;
    int64_t channels = x->dims[1], inner = x->n / x->dims[0] / channels, each = x->dims[0] * inner;
    const float *from = (const float *)(const void *)x->data;
    float *y = (float *)(void *)to;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, square = 0, ab[2];
        for (int k = 0; k < 2; k++)
            ab[k] = sy_load_double(dtypes[1 + k],
                                   inputs[1 + k].data + (size_t)c * sy_dtype_bytes(dtypes[1 + k]));
        for (int64_t i = 0; i < each; i++)
            sum += (double)from[(i / inner * channels + c) * inner + i % inner];
        double mean = sum / (double)each;
        for (int64_t i = 0; i < each; i++) {
            double d = (double)from[(i / inner * channels + c) * inner + i % inner] - mean;
            square += d * d;
        }
        double rate =
            1 / sqrt(square / (double)each + (double)sy_node_float(node, "epsilon", 1e-5f));
        for (int64_t i = 0; i < each; i++) {
            int64_t at = (i / inner * channels + c) * inner + i % inner;
            y[at] = (float)(((double)from[at] - mean) * rate * ab[0] + ab[1]);
        }
    }
    return SY_OK;
}

int sy_fold_whole(const struct sy_node *node, const struct sy_block *x, enum sy_dtype dtype,
                  const struct sy_block *out, unsigned char *to)
{
    if (node->op == SY_OP_NON_ZERO)
        return places_of(x, dtype, out, to);
    if (node->op == SY_OP_ARG_MAX || node->op == SY_OP_ARG_MIN)
        return arg(node, x, dtype, out, to);
    return reduces(node->op) && node->n_inputs == 1 ? reduce(node, x, dtype, out, to)
                                                    : SY_EUNSUPPORTED;
}

int sy_fold_count_set(const struct sy_tensor *t, int64_t *n)
{
    int64_t all = sy_shape_elements(&t->shape, 0);
    size_t bytes = sy_dtype_bytes(t->dtype);
    *n = 0;
    if (!t->data || t->dtype == SY_DTYPE_F16 || t->dtype == SY_DTYPE_BF16 || all < 0)
        return SY_EUNSUPPORTED;
    for (int64_t i = 0; i < all; i++)
        *n += sy_load_double(t->dtype, (const unsigned char *)t->data + (size_t)i * bytes) != 0;
    return SY_OK;
}
