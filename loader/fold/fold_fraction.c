/* Folding of floats that are made of open sizes: quotients of sizes, as factors of images and steps of positions make them. They are known beside
 * the nodes that compute them, which stay for readers of the floats themselves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MOST_ELEMENTS = 64, MOST_INPUTS = 16, MOST_UNDER = 64, TRIED_SIZES = 16384 };

static const struct sy_dim one = {1, 0};

/* ---- operands ----------------------------------------------------------------------------------- */

/* Whether products with it lie between the whole numbers between which those with the quotient do; tried for the sizes that images have. *up: those
 * that are whole are so too. */
static bool rounds_alike(float value, int64_t over, int64_t under, bool *up)
{
    *up = true;
    for (int64_t n = 1; n <= TRIED_SIZES && (under & (under - 1)) != 0; n++) {
        float product = (float)n * value;
        if ((int64_t)floorf(product) != n * over / under)
            return false;
        *up = *up && (int64_t)ceilf(product) == (n * over + under - 1) / under;
    }
    return true;
}

bool sy_fraction_of(double value, struct sy_fraction *out)
{
    for (int64_t under = 1; under <= MOST_UNDER && fabs(value) < 65536; under++) {
        double over = round(value * (double)under);
        bool dyadic = (under & (under - 1)) == 0, up;
        if ((float)(over / (double)under) != (float)value || (value < 0 && !dyadic) ||
            !rounds_alike((float)value, (int64_t)over, under, &up))
            continue;
        *out = (struct sy_fraction){{(int64_t)over, 0}, {under, 0}, !dyadic, under == 1, !up};
        return true;
    }
    return false;
}

bool sy_fraction_read(const struct sy_infer *in, int tensor, int64_t i, struct sy_fraction *out)
{
    if (tensor < 0)
        return false;
    const struct sy_tensor *t = &in->graph->tensors[tensor];
    int64_t n = sy_shape_elements(&t->shape, 0);
    if (i >= n || n > MOST_ELEMENTS)
        return false;
    if (in->fractions[tensor])
        *out = in->fractions[tensor][i];
    else if (in->values[tensor])
        *out = (struct sy_fraction){in->values[tensor][i], one, false, true, false};
    else if (t->data && (t->dtype == SY_DTYPE_F32 || t->dtype == SY_DTYPE_F64))
        return sy_fraction_of(
            sy_load_double(t->dtype, (char *)t->data + (size_t)i * sy_dtype_bytes(t->dtype)), out);
    else if (t->data && sy_dtype_is_integer(t->dtype))
        *out = (struct sy_fraction){
            {sy_load_integer(t->dtype, (char *)t->data + (size_t)i * sy_dtype_bytes(t->dtype)), 0},
            one,
            false,
            true,
            false};
    else
        return false;
    return true;
}

/* ---- arithmetic --------------------------------------------------------------------------------- */

/* Without what both parts have. */
static int reduce(struct sy_fraction *f)
{
    struct sy_dim quotient;
    if (sy_size_div(f->over, f->under, &quotient) < 0)
        return SY_OK;
    f->over = quotient;
    f->under = one;
    return SY_OK;
}

int sy_fraction_mul(struct sy_fraction a, struct sy_fraction b, struct sy_fraction *out)
{
    if (a.is_rounded && b.is_rounded)
        return SY_EUNSUPPORTED;
    if ((a.is_rounded && !b.is_whole) || (b.is_rounded && !a.is_whole))
        return SY_EUNSUPPORTED;
    SY_TRY(sy_size_mul(a.over, b.over, &out->over));
    SY_TRY(sy_size_mul(a.under, b.under, &out->under));
    out->is_rounded = a.is_rounded || b.is_rounded;
    out->only_down = a.only_down || b.only_down;
    out->is_whole = a.is_whole && b.is_whole;
    return reduce(out);
}

int sy_fraction_div(struct sy_fraction a, struct sy_fraction b, struct sy_fraction *out)
{
    int64_t least, most;
    sy_size_bounds(b.over, &least, &most);
    if (a.is_rounded || b.is_rounded || least < 0 || sy_dim_is(b.over, 0))
        return SY_EUNSUPPORTED;
    bool exact = sy_dim_is_number(b.over) && (b.over.fixed & (b.over.fixed - 1)) == 0;
    SY_TRY(sy_size_mul(a.over, b.under, &out->over));
    SY_TRY(sy_size_mul(a.under, b.over, &out->under));
    out->is_rounded = !exact;
    out->only_down = false;
    out->is_whole = false;
    return reduce(out);
}

typedef int size_pair(struct sy_dim a, struct sy_dim b, struct sy_dim *out);

/* A sum, a difference, the smaller or the larger of two, neither of them rounded: over a common denominator. */
static int over_common(struct sy_fraction a, struct sy_fraction b, size_pair *combine,
                       struct sy_fraction *out)
{
    struct sy_dim left, right;
    if (a.is_rounded || b.is_rounded)
        return SY_EUNSUPPORTED;
    SY_TRY(sy_size_mul(a.over, b.under, &left));
    SY_TRY(sy_size_mul(b.over, a.under, &right));
    SY_TRY(combine(left, right, &out->over));
    SY_TRY(sy_size_mul(a.under, b.under, &out->under));
    out->is_rounded = out->only_down = false;
    out->is_whole = a.is_whole && b.is_whole;
    return reduce(out);
}

int sy_fraction_sub(struct sy_fraction a, struct sy_fraction b, struct sy_fraction *out)
{
    return over_common(a, b, sy_size_sub, out);
}

int sy_fraction_floor(struct sy_fraction a, bool up, struct sy_dim *out)
{
    struct sy_dim over = a.over;
    if (up && a.only_down)
        return SY_EUNSUPPORTED;
    if (up) {
        SY_TRY(sy_size_add(over, a.under, &over));
        SY_TRY(sy_size_sub(over, one, &over));
    }
    return sy_dim_is(a.under, 1) ? (*out = a.over, SY_OK) : sy_size_floor_div(over, a.under, out);
}

/* Toward zero: known of what is not negative. */
static int cut(struct sy_fraction a, struct sy_dim *out)
{
    int64_t least, most;
    sy_size_bounds(a.over, &least, &most);
    if (least < 0 && !sy_dim_is(a.under, 1))
        return SY_EUNSUPPORTED;
    return sy_fraction_floor(a, false, out);
}

static int rounded(struct sy_fraction a, bool up, struct sy_fraction *out)
{
    *out = (struct sy_fraction){{0, 0}, one, false, true, false};
    return sy_fraction_floor(a, up, &out->over);
}

static int negated(struct sy_fraction a, struct sy_fraction *out)
{
    *out = a;
    return a.is_rounded ? SY_EUNSUPPORTED : sy_size_sub((struct sy_dim){0, 0}, a.over, &out->over);
}

static int element(const struct sy_infer *in, const struct sy_node *node,
                   const struct sy_block *blocks, const struct sy_block *out, int64_t i,
                   struct sy_fraction *to)
{
    struct sy_fraction x[2] = {{{0, 0}, one, false, true, false},
                               {{0, 0}, one, false, true, false}};
    for (int k = 0; k < node->n_inputs; k++)
        if (!sy_fraction_read(in, node->inputs[k], sy_block_offset(out, i, &blocks[k]), &x[k]))
            return SY_EUNSUPPORTED;
    switch (node->op) {
    case SY_OP_MUL:
        return sy_fraction_mul(x[0], x[1], to);
    case SY_OP_DIV:
        return sy_fraction_div(x[0], x[1], to);
    case SY_OP_ADD:
    case SY_OP_SUB:
        return over_common(x[0], x[1], node->op == SY_OP_SUB ? sy_size_sub : sy_size_add, to);
    case SY_OP_FLOOR:
    case SY_OP_CEIL:
        return rounded(x[0], node->op == SY_OP_CEIL, to);
    case SY_OP_MIN:
    case SY_OP_MAX:
        return over_common(x[0], x[1], node->op == SY_OP_MIN ? sy_size_min : sy_size_max, to);
    case SY_OP_NEG:
        return negated(x[0], to);
    default: /* a Cast */
        *to = x[0];
        return SY_OK;
    }
}

/* ---- nodes -------------------------------------------------------------------------------------- */

static bool is_float(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_F32 || dtype == SY_DTYPE_F64;
}

static bool make_block(const struct sy_shape *shape, struct sy_block *block)
{
    return sy_block_make(shape, block) && block->n <= MOST_ELEMENTS;
}

static bool is_arithmetic(const struct sy_node *node)
{
    switch (node->op) {
    case SY_OP_MUL:
    case SY_OP_DIV:
    case SY_OP_ADD:
    case SY_OP_SUB:
    case SY_OP_MIN:
    case SY_OP_MAX:
        return node->n_inputs == 2;
    case SY_OP_FLOOR:
    case SY_OP_CEIL:
    case SY_OP_NEG:
    case SY_OP_CAST:
        return node->n_inputs == 1;
    default:
        return false;
    }
}

static int compute(const struct sy_infer *in, const struct sy_node *node,
                   const struct sy_block *blocks, const struct sy_block *out,
                   struct sy_fraction *to)
{
    for (int64_t i = 0; i < out->n; i++)
        SY_TRY(element(in, node, blocks, out, i, &to[i]));
    return SY_OK;
}

/* Operators that only move elements. */
static int move(const struct sy_infer *in, const struct sy_node *node, struct sy_block *blocks,
                const struct sy_block *out, struct sy_fraction *to)
{
    struct sy_fraction *read;
    int64_t indices[MOST_ELEMENTS], total = 0;
    int status = SY_OK, n_moved = node->op == SY_OP_GATHER ? 1 : node->n_inputs;
    SY_TRY(sy_graph_alloc((size_t)(MOST_INPUTS * MOST_ELEMENTS), sizeof *read, &read));
    for (int k = 0; k < n_moved && status == SY_OK; k++) {
        blocks[k].data = (const unsigned char *)(read + total);
        for (int64_t i = 0; i < blocks[k].n && status == SY_OK; i++)
            status =
                sy_fraction_read(in, node->inputs[k], i, &read[total++]) ? SY_OK : SY_EUNSUPPORTED;
    }
    for (int64_t i = 0; n_moved < node->n_inputs && i < blocks[1].n && status == SY_OK; i++) {
        const struct sy_tensor *t = &in->graph->tensors[node->inputs[1]];
        if (!t->data || !sy_dtype_is_integer(t->dtype))
            status = SY_EUNSUPPORTED;
        else
            indices[i] =
                sy_load_integer(t->dtype, (char *)t->data + (size_t)i * sy_dtype_bytes(t->dtype));
    }
    if (status == SY_OK)
        status = sy_fold_move(node, blocks, indices, sizeof *to, out, (unsigned char *)to);
    free(read);
    return status;
}

/* As integers, for readers that take sizes from them. */
static int become_sizes(struct sy_infer *in, int tensor, int64_t n, const struct sy_fraction *from)
{
    struct sy_dim *sizes;
    int status = SY_OK;
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *sizes, &sizes));
    for (int64_t i = 0; i < n && status == SY_OK; i++)
        status = cut(from[i], &sizes[i]);
    bool any_open = false;
    for (int64_t i = 0; i < n; i++)
        any_open = any_open || sizes[i].per_batch != 0;
    if (status == SY_OK && any_open) {
        free(in->values[tensor]);
        in->values[tensor] = sizes;
        return SY_OK;
    }
    free(sizes);
    return status < 0 ? status : SY_EUNSUPPORTED;
}

static bool reads_fraction(const struct sy_infer *in, const struct sy_node *node)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && in->fractions[node->inputs[i]])
            return true;
    return node->op == SY_OP_CAST && node->n_inputs == 1 && node->inputs[0] >= 0 &&
           in->values[node->inputs[0]];
}

int sy_fold_fractions(struct sy_infer *in, const struct sy_node *node)
{
    struct sy_block blocks[MOST_INPUTS], out;
    struct sy_fraction *made;
    if (node->n_inputs < 1 || node->n_inputs > MOST_INPUTS || node->n_outputs != 1 ||
        !reads_fraction(in, node))
        return SY_EUNSUPPORTED;
    int y = node->outputs[0];
    enum sy_dtype dtype = in->graph->tensors[y].dtype;
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] < 0 ||
            !make_block(&in->graph->tensors[node->inputs[i]].shape, &blocks[i]))
            return SY_EUNSUPPORTED;
    bool becomes_sizes = node->op == SY_OP_CAST && (dtype == SY_DTYPE_I64 || dtype == SY_DTYPE_I32);
    if (!make_block(&in->graph->tensors[y].shape, &out) || (!is_float(dtype) && !becomes_sizes))
        return SY_EUNSUPPORTED;
    SY_TRY(sy_graph_alloc(MOST_ELEMENTS, sizeof *made, &made));
    int status = is_arithmetic(node) ? compute(in, node, blocks, &out, made)
                                     : move(in, node, blocks, &out, made);
    if (status == SY_OK && becomes_sizes)
        status = become_sizes(in, y, out.n, made);
    if (status < 0 || becomes_sizes) {
        free(made);
        return status;
    }
    free(in->fractions[y]);
    in->fractions[y] = made;
    return SY_OK;
}
