/* Shape rules: repeats, diagonals, normalisations, losses, windows of signals, products by formula. */
#include <stdlib.h>
#include <string.h>

#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

int sy_rule_tile(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    struct sy_dim *repeats;
    int n, status = SY_OK;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    if (!sy_infer_is_known(in, node, 1)) {
        SY_TRY(sy_infer_declared(in, node, 0, &shape));
        sy_infer_set(in, node, 0, x->dtype, &shape);
        return SY_OK;
    }
    SY_TRY(sy_infer_dims(in, node, 1, "repeats", &n, &repeats));
    if (n != shape.rank)
        status = sy_infer_fail(node, SY_ECORRUPT, "%d repeats for %d dimensions", n, shape.rank);
    for (int i = 0; status == SY_OK && i < n; i++)
        if (sy_dim_mul(shape.dims[i], repeats[i], &shape.dims[i]) < 0)
            status = sy_infer_no_product(
                in, node, (shape.dims[i].per_batch != 0) + (repeats[i].per_batch != 0));
    free(repeats);
    SY_TRY(status);
    sy_infer_keep_inputs(node, 1); /* the kernel needs the sizes only */
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

/* Folded: the number of elements, linear in N. */
int sy_rule_size(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    struct sy_dim count;
    struct sy_shape scalar = {.rank = 0};
    SY_TRY(sy_infer_need(in, node, 0, &x));
    if (sy_shape_product(&x->shape, 0, x->shape.rank, &count) < 0)
        return sy_infer_defer(in, node, "a size that is not linear in the batch size");
    sy_infer_set(in, node, 0, SY_DTYPE_I64, &scalar);
    return SY_OK;
}

int sy_rule_eye_like(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    enum sy_dtype dtype = (enum sy_dtype)sy_node_int(node, "dtype", x->dtype);
    if (shape.rank != 2 || sy_dtype_bytes(dtype) == 0)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "%d dimensions, element type %d", shape.rank,
                             (int)dtype);
    sy_infer_set(in, node, 0, dtype, &shape);
    return SY_OK;
}

/* "of_batch": the first dimension is the batch's, all rows of which get the same numbers. */
int sy_rule_random_like(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    enum sy_dtype dtype = (enum sy_dtype)sy_node_int(node, "dtype", x->dtype);
    if (dtype != SY_DTYPE_F32 && dtype != SY_DTYPE_F64 && dtype != SY_DTYPE_F16 &&
        dtype != SY_DTYPE_BF16)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "element type %d", (int)dtype);
    SY_TRY(sy_node_set_int(node, "of_batch", shape.rank > 0 && shape.dims[0].per_batch != 0));
    sy_infer_set(in, node, 0, dtype, &shape);
    return SY_OK;
}

int sy_rule_trilu(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *k;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    if (x->shape.rank < 2)
        return sy_infer_fail(node, SY_ECORRUPT, "%d dimensions", x->shape.rank);
    if (sy_node_input(node, 1) >= 0) {
        SY_TRY(sy_infer_need(in, node, 1, &k));
        if (k->dtype != SY_DTYPE_I64 || sy_shape_elements(&k->shape, 1) != 1)
            return sy_infer_fail(node, SY_ECORRUPT, "k is not one int64");
    }
    return sy_infer_same(in, node);
}

/* Normalisations with any parameters: like the first input. */
int sy_rule_norm(struct sy_infer *in, struct sy_node *node)
{
    SY_TRY(sy_infer_keep_outputs(in, node, 1));
    return sy_infer_same(in, node);
}

static bool is_reduced(const struct sy_node *node)
{
    return strcmp(sy_infer_text(node, "reduction", "mean"), "none") != 0;
}

/* [N, d1, ...] of [N, C, d1, ...], or one number. */
static struct sy_shape loss_shape(const struct sy_node *node, const struct sy_shape *x)
{
    struct sy_shape shape = *x;
    for (int i = 1; i + 1 < shape.rank; i++)
        shape.dims[i] = shape.dims[i + 1];
    shape.rank--;
    if (is_reduced(node))
        shape = (struct sy_shape){.rank = 0};
    return shape;
}

int sy_rule_nll_loss(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *target;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &target));
    if (x->shape.rank < 2 || target->shape.rank != x->shape.rank - 1)
        return sy_infer_fail(node, SY_ECORRUPT, "scores of %d dimensions, targets of %d",
                             x->shape.rank, target->shape.rank);
    struct sy_shape shape = loss_shape(node, &x->shape);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_softmax_loss(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(sy_rule_nll_loss(in, node));
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    sy_infer_set(in, node, 1, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_det(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    if (shape.rank < 2 ||
        !sy_infer_same_size(in, node, &shape.dims[shape.rank - 1], shape.dims[shape.rank - 2]))
        return sy_infer_fail(node, SY_ECORRUPT, "no square matrices");
    shape.rank -= 2;
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

/* HannWindow and the like: `size` values. */
int sy_rule_window(struct sy_infer *in, struct sy_node *node)
{
    struct sy_shape shape = {.rank = 1};
    int n;
    int64_t size;
    enum sy_dtype dtype = (enum sy_dtype)sy_node_int(node, "output_datatype", SY_DTYPE_F32);
    if (sy_infer_is_known(in, node, 0)) {
        SY_TRY(sy_infer_ints(in, node, 0, "size", 1, &n, &size));
        if (n != 1)
            return sy_infer_fail(node, SY_ECORRUPT, "size is not one number");
        shape.dims[0].fixed = size;
    } else {
        SY_TRY(sy_infer_declared(in, node, 0, &shape));
    }
    if (sy_dtype_bytes(dtype) == 0 || shape.rank != 1)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "element type %d", (int)dtype);
    sy_infer_set(in, node, 0, dtype, &shape);
    return SY_OK;
}

/* The length that is given, or the signal's; of an inverse of half the bins the one that has so many. */
static int dft_length(struct sy_infer *in, const struct sy_node *node, bool halves_back,
                      struct sy_dim *size, struct sy_dim *length)
{
    struct sy_dim one = {1, 0}, two = {2, 0}, bins, *given;
    int n;
    *length = *size;
    if (sy_node_input(node, 1) < 0 && !halves_back)
        return SY_OK;
    if (sy_node_input(node, 1) < 0) {
        SY_TRY(sy_size_sub(*size, one, length));
        return sy_size_mul(*length, two, length);
    }
    if (!sy_infer_is_known(in, node, 1))
        return sy_infer_defer(in, node, "dft_length is computed");
    SY_TRY(sy_infer_dims(in, node, 1, "dft_length", &n, &given));
    if (n == 1)
        *length = given[0];
    free(given);
    if (n != 1)
        return sy_infer_fail(node, SY_ECORRUPT, "%d lengths", n);
    SY_TRY(sy_size_floor_div(*length, two, &bins));
    SY_TRY(sy_size_add(bins, one, &bins));
    if (halves_back && !sy_infer_same_size(in, node, size, bins))
        return sy_infer_fail(node, SY_EUNSUPPORTED, "a length that %s bins are not half of",
                             sy_dim_is_number(*size) ? "its" : "so many");
    return SY_OK;
}

/* The axis is an attribute up to opset 19, then input 2; the length stays an input. */
int sy_rule_dft(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int axis, n;
    struct sy_dim length, one = {1, 0}, two = {2, 0};
    int64_t given = sy_node_int(node, "axis", node->opset >= 20 ? -2 : 1);
    SY_TRY(sy_infer_need(in, node, 0, &x));
    bool onesided = sy_node_int(node, "onesided", 0) != 0,
         inverse = sy_node_int(node, "inverse", 0) != 0;
    struct sy_shape shape = x->shape;
    if (sy_node_input(node, 2) >= 0)
        SY_TRY(sy_infer_ints(in, node, 2, "axis", 1, &n, &given));
    SY_TRY(sy_infer_axis(node, given, shape.rank, &axis));
    if (shape.rank < 2 || axis == shape.rank - 1)
        return sy_infer_fail(node, SY_ECORRUPT, "axis %d", axis);
    if (shape.dims[axis].per_batch != 0 && !sy_dim_is_expr(shape.dims[axis]))
        return sy_infer_fail(node, SY_EUNSUPPORTED, "along the batch");
    int status = dft_length(in, node, onesided && inverse, &shape.dims[axis], &length);
    shape.dims[axis] = length;
    if (status == SY_OK && onesided && !inverse) {
        status = sy_size_floor_div(length, two, &shape.dims[axis]);
        if (status == SY_OK)
            status = sy_size_add(shape.dims[axis], one, &shape.dims[axis]);
    }
    if (status == SY_EUNSUPPORTED && sy_dim_is_expr(length))
        return sy_infer_defer(in, node, "a length that depends on open sizes");
    SY_TRY(status);
    shape.dims[shape.rank - 1] = (struct sy_dim){onesided && inverse ? 1 : 2, 0};
    SY_TRY(sy_node_set_int(node, "axis", axis));
    sy_infer_set(in, node, 0, x->dtype, &shape);
    sy_infer_keep_inputs(node, 2);
    return SY_OK;
}

int sy_rule_tf_idf(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    const struct sy_attr *indexes = sy_node_attr(node, "ngram_indexes");
    int64_t columns = 0;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    if (!indexes || indexes->kind != SY_ATTR_INTS || x->shape.rank < 1 || x->shape.rank > 2)
        return sy_infer_fail(node, SY_ECORRUPT, "ngram_indexes are missing, or %d dimensions",
                             x->shape.rank);
    for (int i = 0; i < indexes->n; i++) {
        if (indexes->ints[i] < 0 || indexes->ints[i] > INT32_MAX)
            return sy_infer_fail(node, SY_ECORRUPT, "an index out of range");
        columns = SY_MAX(columns, indexes->ints[i] + 1);
    }
    struct sy_shape shape = x->shape;
    if (sy_node_attr(node, "tokenexp") || sy_node_attr(node, "separators"))
        shape.rank =
            2; /* each element is a row, which it cuts itself (loader/expand/expand_text.c) */
    shape.dims[shape.rank - 1] = (struct sy_dim){columns, 0};
    sy_infer_set(in, node, 0, SY_DTYPE_F32, &shape);
    return SY_OK;
}

/* ---- Einsum ------------------------------------------------------------------------------------- */

/* Sizes of the letters 'A'..'z'; `dots`: of the ellipsis, aligned at its end. */
struct letters {
    struct sy_dim sizes[128];
    bool seen[128];
    int uses[128];
    struct sy_shape dots;
};

/* Reads one operand's term from *at on and moves *at behind it. */
static int read_term(struct sy_infer *in, const struct sy_node *node, const char **at,
                     const struct sy_shape *x, struct letters *l)
{
    const char *c = *at;
    int letters = 0, axis = 0;
    for (const char *s = c; *s && *s != ',' && *s != '-'; s++)
        letters += *s != ' ' && *s != '.';
    for (; *c && *c != ',' && *c != '-'; c++) {
        if (*c == ' ')
            continue;
        if (strncmp(c, "...", 3) == 0 && x->rank >= letters) {
            struct sy_shape dots = {.rank = x->rank - letters};
            memcpy(dots.dims, &x->dims[axis], (size_t)dots.rank * sizeof *dots.dims);
            if (sy_infer_broadcast(in, node, &l->dots, &dots) < 0)
                return sy_infer_fail(node, SY_ECORRUPT, "the dimensions of ... do not fit");
            axis += dots.rank;
            c += 2;
            continue;
        }
        int k = (unsigned char)*c & 127;
        if (*c == '.' || axis >= x->rank ||
            (l->seen[k] && !sy_infer_same_size(in, node, &l->sizes[k], x->dims[axis])))
            return sy_infer_fail(node, SY_ECORRUPT, "the equation does not fit its operands");
        l->seen[k] = true;
        l->uses[k]++;
        l->sizes[k] = x->dims[axis++];
    }
    *at = c;
    return axis == x->rank
               ? SY_OK
               : sy_infer_fail(node, SY_ECORRUPT, "an operand of %d dimensions", x->rank);
}

static int append(struct sy_shape *shape, const struct sy_dim *dims, int n)
{
    for (int i = 0; i < n; i++) {
        if (shape->rank == SY_MAX_RANK)
            return SY_EUNSUPPORTED;
        shape->dims[shape->rank++] = dims[i];
    }
    return SY_OK;
}

/* Explicit after "->", else the letters that come once, in order. */
static int result_shape(const struct sy_node *node, const char *arrow, const struct letters *l,
                        struct sy_shape *out)
{
    int status = SY_OK;
    for (const char *c = arrow ? arrow + 2 : ""; *c && status == SY_OK; c++) {
        if (*c == ' ')
            continue;
        if (strncmp(c, "...", 3) == 0) {
            status = append(out, l->dots.dims, l->dots.rank);
            c += 2;
        } else {
            status = l->seen[(unsigned char)*c & 127]
                         ? append(out, &l->sizes[(unsigned char)*c & 127], 1)
                         : SY_EUNSUPPORTED;
        }
    }
    if (!arrow)
        status = append(out, l->dots.dims, l->dots.rank);
    for (int c = 0; !arrow && c < 128 && status == SY_OK; c++)
        if (l->seen[c] && l->uses[c] == 1)
            status = append(out, &l->sizes[c], 1);
    return status == SY_OK ? SY_OK : sy_infer_fail(node, SY_EUNSUPPORTED, "this equation");
}

int sy_rule_einsum(struct sy_infer *in, struct sy_node *node)
{
    const char *equation = sy_infer_text(node, "equation", ""), *at = equation;
    const struct sy_tensor *x = NULL;
    struct letters l = {.dots = {.rank = 0}};
    for (int i = 0; i < node->n_inputs; i++) {
        SY_TRY(sy_infer_need(in, node, i, &x));
        SY_TRY(read_term(in, node, &at, &x->shape, &l));
        if (i + 1 < node->n_inputs && *at++ != ',')
            return sy_infer_fail(node, SY_ECORRUPT, "'%.60s' has too few terms", equation);
    }
    if (!x || *at == ',')
        return sy_infer_fail(node, SY_ECORRUPT, "'%.60s' has too many terms", equation);
    struct sy_shape shape = {.rank = 0};
    SY_TRY(result_shape(node, strstr(equation, "->"), &l, &shape));
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}
