/* The pass that makes one node of attention where an exporter took it apart:
 *
 *   softmax(scale * q k + masks) v        q [.., rows, depth], k [.., depth, columns], v [.., columns, width]
 *
 * with the scale on q, on k, on both or behind their product, up to four masks, and the transposes around. The node's inputs are q, k, v,
 * then the masks in their order; attributes:
 *
 *   scale                        float
 *   q_perm, k_perm, v_perm       q is input 0 transposed by it, and so on
 *   y_perm                       the node's result is the product's, transposed by it
 *   mask_kinds, mask_fills       per mask: 0 it is added; 1 where it is false the score becomes the fill; 2 where it is true
 *   mask_causal                  per mask, if one is a constant triangle: n > 0: a row keeps the columns before its own number + n; to the others
 *                                what is added is the fill. The engine need not read it, nor compute what it takes. 0: another mask
 *   zero_nan                     1: rows of NaN (nothing is left by the masks) become zeros before v
 *   group, group_axis            grouped queries: each matrix of k and v along that axis serves `group` consecutive ones of q (1: no grouping)
 *
 * Masks are broadcast to [.., rows, columns]. The last axis of an input ends up as rows or columns of its matrix, that of the result as width,
 * so that the engine reads and writes matrices where they lie. */
#include <limits.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MAX_MASKS 4

enum { MASK_ADD, MASK_KEEP, MASK_DROP };

struct view {
    int tensor, rank;
    int64_t perm[SY_MAX_RANK];
    int64_t group; /* each matrix of axis group_axis serves so many consecutive ones */
    int group_axis;
};

struct attention {
    struct view q, k, v;
    bool in_groups; /* repetitions of k's and v's heads are looked through */
    float scale;
    bool zero_nan;
    int n_masks, masks[MAX_MASKS];
    int64_t kinds[MAX_MASKS], causal[MAX_MASKS];
    float fills[MAX_MASKS];
};

static void set_straight(int64_t *perm, int rank)
{
    for (int i = 0; i < rank; i++)
        perm[i] = i;
}

static bool same_shape(const struct sy_fuse *f, int a, int b)
{
    return sy_shape_equal(&sy_fuse_tensor(f, a)->shape, &sy_fuse_tensor(f, b)->shape);
}

/* ---- operands ---------------------------------------------------------------------------------- */

/* The view through one more transpose, if the last axis still lies in the matrix. */
static bool look_through(const struct sy_node *transpose, struct view *v)
{
    const struct sy_attr *perm = sy_node_attr(transpose, "perm");
    struct view deeper = *v;
    deeper.tensor = transpose->inputs[0];
    if (!perm || perm->n != v->rank)
        return false;
    for (int i = 0; i < v->rank; i++)
        deeper.perm[i] = perm->ints[v->perm[i]];
    if (deeper.perm[v->rank - 1] != v->rank - 1 && deeper.perm[v->rank - 2] != v->rank - 1)
        return false;
    *v = deeper;
    return true;
}

/* `node` is the tensor `*x` of the same shape, times `*factor`. */
static bool is_scaled(const struct sy_fuse *f, const struct sy_node *node, float *factor, int *x)
{
    float scalar;
    if (!node || !sy_fuse_split_scalar(f, node, &scalar, x) || !same_shape(f, *x, node->outputs[0]))
        return false;
    if (node->op == SY_OP_DIV && (*x != node->inputs[0] || scalar == 0))
        return false;
    *factor = node->op == SY_OP_DIV ? 1 / scalar : scalar;
    return true;
}

static const struct sy_node *inner_product_or_quotient(const struct sy_fuse *f, int tensor)
{
    const struct sy_node *mul = sy_fuse_inner(f, tensor, SY_OP_MUL);
    return mul ? mul : sy_fuse_inner(f, tensor, SY_OP_DIV);
}

/* `many` is `few` but for an extent of 1 that is `times` there, and `merged` has it and the axis before it as one: that axis; else -1. */
static int repeated_axis(const struct sy_shape *few, const struct sy_shape *many,
                         const struct sy_shape *merged, int64_t *times)
{
    int at = -1;
    if (many->rank != few->rank || merged->rank != few->rank - 1)
        return -1;
    for (int i = 0; i < few->rank; i++)
        if (!sy_dim_equal(few->dims[i], many->dims[i]))
            at = at < 0 ? i : INT_MAX;
    if (at < 1 || at == INT_MAX || !sy_dim_is(few->dims[at], 1) ||
        !sy_dim_is_number(many->dims[at]) || !sy_dim_is_number(few->dims[at - 1]))
        return -1;
    *times = many->dims[at].fixed;
    for (int i = 0; i < merged->rank; i++) {
        struct sy_dim dim = few->dims[i + (i >= at)];
        dim.fixed *= i == at - 1 ? *times : 1;
        if (!sy_dim_equal(dim, merged->dims[i]))
            return -1;
    }
    return at - 1;
}

/* A view that moves extents of 1 only, from `from` to `to` without its axis `skip`: which of from's axes each of to's is. */
static bool moves_ones(const struct sy_shape *from, const struct sy_shape *to, int skip, int *axes)
{
    int n = 0, ones = 0, others = 0;
    if (from->rank != to->rank - 1)
        return false;
    for (int i = 0; i < to->rank; i++) {
        bool is_one = sy_dim_is(to->dims[i], 1);
        int *next = is_one ? &ones : &others;
        if (i == skip)
            continue;
        while (*next < from->rank && sy_dim_is(from->dims[*next], 1) != is_one)
            ++*next;
        if (*next == from->rank || !sy_dim_equal(from->dims[*next], to->dims[i]))
            return false;
        axes[n++] = (*next)++;
    }
    return true;
}

/* The view through a repetition of one of its heads' axes: an extent of 1 behind the axis, expanded, and the two made one. */
static bool look_through_group(const struct sy_fuse *f, struct view *v)
{
    const struct sy_node *merge = sy_fuse_maker(f, v->tensor, SY_OP_RESHAPE), *expand, *insert;
    struct view deeper = *v;
    int axes[SY_MAX_RANK];
    if (!merge || v->group > 1 || !(expand = sy_fuse_maker(f, merge->inputs[0], SY_OP_EXPAND)))
        return false;
    if (!(insert = sy_fuse_maker(f, expand->inputs[0], SY_OP_UNSQUEEZE)) &&
        !(insert = sy_fuse_maker(f, expand->inputs[0], SY_OP_RESHAPE)))
        return false;
    const struct sy_shape *few = &sy_fuse_tensor(f, expand->inputs[0])->shape;
    int axis = repeated_axis(few, &sy_fuse_tensor(f, expand->outputs[0])->shape,
                             &sy_fuse_tensor(f, v->tensor)->shape, &deeper.group);
    deeper.tensor = insert->inputs[0];
    if (axis < 0 || deeper.group < 2 ||
        !moves_ones(&sy_fuse_tensor(f, deeper.tensor)->shape, few, axis + 1, axes))
        return false;
    for (int i = 0; i < v->rank; i++) {
        deeper.perm[i] = axes[v->perm[i]];
        if (v->perm[i] == axis)
            deeper.group_axis = i;
    }
    if (deeper.group_axis >= v->rank - 2 ||
        (deeper.perm[v->rank - 1] != v->rank - 1 && deeper.perm[v->rank - 2] != v->rank - 1))
        return false;
    *v = deeper;
    return true;
}

/* The operand without the transposes, if `groups` repetitions of heads, and, if `scale` is not NULL, the factors before it. */
static struct view operand(const struct sy_fuse *f, int tensor, bool groups, float *scale)
{
    struct view v = {.tensor = tensor, .rank = sy_fuse_tensor(f, tensor)->shape.rank, .group = 1};
    set_straight(v.perm, v.rank);
    for (bool more = true; more;) {
        const struct sy_node *transpose = sy_fuse_maker(f, v.tensor, SY_OP_TRANSPOSE);
        float factor;
        int x;
        more = (transpose && look_through(transpose, &v)) ||
               (groups && v.rank < SY_MAX_RANK && look_through_group(f, &v));
        if (!more && scale && is_scaled(f, inner_product_or_quotient(f, v.tensor), &factor, &x)) {
            *scale *= factor;
            v.tensor = x;
            more = true;
        }
    }
    return v;
}

/* ---- scores ------------------------------------------------------------------------------------ */

static bool match_scores(const struct sy_fuse *f, int tensor, struct attention *a, int depth);

/* A trained tensor is no mask: the fused operator has no gradient for it. */
static bool add_mask(const struct sy_fuse *f, struct attention *a, int mask, int kind, float fill)
{
    if (a->n_masks == MAX_MASKS || (kind == MASK_ADD && f->learns && f->learns[mask]))
        return false;
    a->masks[a->n_masks] = mask;
    a->kinds[a->n_masks] = kind;
    a->fills[a->n_masks++] = fill;
    return true;
}

/* Element i of a constant mask leaves the score as it is; *gone: what it adds otherwise. */
static bool leaves(const struct sy_tensor *t, int kind, int64_t i, float *gone)
{
    if (kind != MASK_ADD)
        return (((const uint8_t *)t->data)[i] != 0) == (kind == MASK_KEEP);
    *gone = ((const float *)t->data)[i];
    return *gone == 0;
}

/* A constant of one matrix of some rows, of a mask's type. */
static bool is_matrix_of_mask(const struct sy_tensor *t, int kind)
{
    bool fits = t->data && t->shape.rank >= 2 && !sy_shape_is_open(&t->shape) &&
                t->dtype == (kind == MASK_ADD ? SY_DTYPE_F32 : SY_DTYPE_BOOL);
    for (int i = 0; i < t->shape.rank - 2 && fits; i++)
        fits = sy_dim_is(t->shape.dims[i], 1);
    return fits && !sy_dim_is(t->shape.dims[t->shape.rank - 2], 1);
}

/* The mask that was looked at last, which other layers read too: large ones take milliseconds. */
struct seen_mask {
    int tensor, kind;
    int64_t causal;
    float fill; /* if it adds */
};

/* mask_causal of the tensor as a mask of that kind, and the fill if it adds. */
static int64_t read_triangle(const struct sy_tensor *t, int kind, float *fill)
{
    int64_t n = 0;
    float gone = 0;
    *fill = 0;
    if (!is_matrix_of_mask(t, kind))
        return 0;
    int64_t rows = t->shape.dims[t->shape.rank - 2].fixed,
            columns = t->shape.dims[t->shape.rank - 1].fixed;
    while (n < columns && leaves(t, kind, n, fill))
        n++;
    if (n == 0 || n == columns || (kind == MASK_ADD && !(*fill < 0)))
        return 0;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < columns; k++)
            if (leaves(t, kind, row * columns + k, &gone) != (k < row + n) ||
                (k >= row + n && kind == MASK_ADD && gone != *fill))
                return 0;
    return n;
}

/* mask_causal of mask `m`, and the fill if it adds. */
static void find_causal(const struct sy_fuse *f, struct attention *a, int m, struct seen_mask *seen)
{
    const int kind = (int)a->kinds[m];
    if (seen->tensor != a->masks[m] || seen->kind != kind) {
        *seen = (struct seen_mask){.tensor = a->masks[m], .kind = kind};
        seen->causal = read_triangle(sy_fuse_tensor(f, a->masks[m]), kind, &seen->fill);
    }
    a->causal[m] = seen->causal;
    if (kind == MASK_ADD && seen->causal > 0)
        a->fills[m] = seen->fill;
}

static bool is_empty(const struct sy_shape *shape)
{
    return !sy_shape_is_open(shape) && sy_shape_elements(shape, 1) <= 0;
}

/* Only products of two computed matrices: a constant one is packed, which is faster. */
static bool is_computed_product(const struct sy_fuse *f, const struct sy_node *matmul)
{
    const struct sy_tensor *a = sy_fuse_tensor(f, matmul->inputs[0]),
                           *b = sy_fuse_tensor(f, matmul->inputs[1]);
    return matmul->activation == SY_ACT_NONE && matmul->residual_input < 0 &&
           a->dtype == SY_DTYPE_F32 && b->dtype == SY_DTYPE_F32 && !b->data && a->shape.rank >= 2 &&
           a->shape.rank == b->shape.rank && !is_empty(&a->shape) && !is_empty(&b->shape);
}

static bool match_product(const struct sy_fuse *f, const struct sy_node *matmul,
                          struct attention *a)
{
    if (!is_computed_product(f, matmul))
        return false;
    a->n_masks = 0;
    a->scale = sy_node_float(matmul, "alpha", 1);
    a->q = operand(f, matmul->inputs[0], false, &a->scale);
    a->k = operand(f, matmul->inputs[1], a->in_groups, &a->scale);
    return matmul->bias_input < 0 ||
           add_mask(f, a, matmul->inputs[matmul->bias_input], MASK_ADD, 0);
}

/* scores + mask */
static bool match_added(const struct sy_fuse *f, const struct sy_node *add, struct attention *a,
                        int depth)
{
    for (int i = 0; i < 2 && add->n_inputs == 2; i++) {
        int scores = add->inputs[i], mask = add->inputs[1 - i];
        if (scores >= 0 && mask >= 0 && same_shape(f, scores, add->outputs[0]) &&
            match_scores(f, scores, a, depth + 1))
            return add_mask(f, a, mask, MASK_ADD, 0);
    }
    return false;
}

/* Where(mask, scores, number) or Where(mask, number, scores) */
static bool match_chosen(const struct sy_fuse *f, const struct sy_node *where, struct attention *a,
                         int depth)
{
    float fill;
    if (where->n_inputs != 3 || where->inputs[0] < 0)
        return false;
    for (int i = 1; i < 3; i++)
        if (sy_graph_scalar(f->graph, where->inputs[3 - i], &fill) && where->inputs[i] >= 0 &&
            same_shape(f, where->inputs[i], where->outputs[0]) &&
            match_scores(f, where->inputs[i], a, depth + 1))
            return add_mask(f, a, where->inputs[0], i == 1 ? MASK_KEEP : MASK_DROP, fill);
    return false;
}

/* `tensor`, which has one reader, is the product of two matrices behind scales and masks. */
static bool match_scores(const struct sy_fuse *f, int tensor, struct attention *a, int depth)
{
    const struct sy_node *node;
    float factor;
    int x;
    if (depth > MAX_MASKS + 1)
        return false;
    if ((node = sy_fuse_inner(f, tensor, SY_OP_MATMUL)))
        return match_product(f, node, a);
    if ((node = sy_fuse_inner(f, tensor, SY_OP_ADD)))
        return match_added(f, node, a, depth);
    if ((node = sy_fuse_inner(f, tensor, SY_OP_WHERE)))
        return match_chosen(f, node, a, depth);
    if (!is_scaled(f, inner_product_or_quotient(f, tensor), &factor, &x) ||
        !match_scores(f, x, a, depth + 1) || a->n_masks > 0)
        return false;
    a->scale *= factor;
    return true;
}

/* ---- probabilities, and the whole -------------------------------------------------------------- */

/* Where(IsNaN(p), 0, p): the tensor p, which is read there only; else -1. */
static int without_nan(const struct sy_fuse *f, int tensor)
{
    float zero;
    const struct sy_node *where = sy_fuse_inner(f, tensor, SY_OP_WHERE);
    if (!where || where->n_inputs != 3 || where->inputs[2] < 0 ||
        !sy_graph_scalar(f->graph, where->inputs[1], &zero) || zero != 0)
        return -1;
    const struct sy_node *test = sy_fuse_inner(f, where->inputs[0], SY_OP_IS_NAN);
    int p = where->inputs[2];
    return test && test->inputs[0] == p && p < f->n_tensors && f->uses[p] == 2 ? p : -1;
}

static bool match_probabilities(const struct sy_fuse *f, int tensor, struct attention *a)
{
    int p = without_nan(f, tensor);
    a->zero_nan = p >= 0;
    const struct sy_node *softmax =
        a->zero_nan ? sy_fuse_maker(f, p, SY_OP_SOFTMAX) : sy_fuse_inner(f, tensor, SY_OP_SOFTMAX);
    if (!softmax)
        return false;
    int rank = sy_fuse_tensor(f, softmax->inputs[0])->shape.rank;
    int64_t axis = sy_node_int(softmax, "axis", -1);
    return (axis == -1 || axis == rank - 1) && match_scores(f, softmax->inputs[0], a, 0);
}

/* Extent of a matrix's axis `i`, counted from the last. */
static int64_t extent(const struct sy_fuse *f, const struct view *v, int i)
{
    struct sy_dim dim = sy_fuse_tensor(f, v->tensor)->shape.dims[v->perm[v->rank - 1 - i]];
    return sy_dim_is_number(dim) ? dim.fixed : INT64_MAX;
}

static bool match_grouped(const struct sy_fuse *f, const struct sy_node *matmul, bool in_groups,
                          struct attention *a)
{
    a->in_groups = in_groups;
    if (!match_probabilities(f, matmul->inputs[0], a))
        return false;
    a->v = operand(f, matmul->inputs[1], in_groups, NULL);
    return a->v.rank == a->q.rank && a->v.group == a->k.group &&
           a->v.group_axis == a->k.group_axis &&
           f->has(SY_OP_ATTENTION, SY_MAX(extent(f, &a->q, 0), extent(f, &a->v, 0)));
}

static bool match_attention(const struct sy_fuse *f, const struct sy_node *matmul,
                            struct attention *a)
{
    return is_computed_product(f, matmul) && matmul->bias_input < 0 &&
           sy_node_float(matmul, "alpha", 1) == 1 &&
           (match_grouped(f, matmul, true, a) || match_grouped(f, matmul, false, a));
}

static int write_attention(struct sy_fuse *f, struct sy_node *node, struct attention *a,
                           struct seen_mask *seen)
{
    int inputs[3 + MAX_MASKS] = {a->q.tensor, a->k.tensor, a->v.tensor};
    struct view y = {.rank = a->q.rank};
    struct sy_attr *fills;
    bool has_causal = false;
    for (int m = 0; m < a->n_masks; m++) {
        find_causal(f, a, m, seen);
        has_causal = has_causal || a->causal[m] > 0;
    }
    memcpy(&inputs[3], a->masks, (size_t)a->n_masks * sizeof *inputs);
    set_straight(y.perm, y.rank);
    SY_TRY(sy_fuse_become(f, node, SY_OP_ATTENTION, 3 + a->n_masks, inputs));
    SY_TRY(sy_node_set_float(node, "scale", a->scale));
    SY_TRY(sy_node_set_ints(node, "q_perm", a->q.rank, a->q.perm));
    SY_TRY(sy_node_set_ints(node, "k_perm", a->k.rank, a->k.perm));
    SY_TRY(sy_node_set_ints(node, "v_perm", a->v.rank, a->v.perm));
    SY_TRY(sy_node_set_ints(node, "y_perm", y.rank, y.perm));
    SY_TRY(sy_node_set_int(node, "zero_nan", a->zero_nan));
    SY_TRY(sy_node_set_int(node, "group", a->k.group));
    SY_TRY(sy_node_set_int(node, "group_axis", a->k.group_axis));
    SY_TRY(sy_node_set_ints(node, "mask_kinds", a->n_masks, a->kinds));
    SY_TRY(sy_node_attr_slot(node, "mask_fills", &fills));
    fills->kind = SY_ATTR_FLOATS;
    SY_TRY(sy_graph_alloc((size_t)a->n_masks, sizeof *fills->floats, &fills->floats));
    memcpy(fills->floats, a->fills, (size_t)a->n_masks * sizeof *fills->floats);
    fills->n = a->n_masks;
    return has_causal ? sy_node_set_ints(node, "mask_causal", a->n_masks, a->causal) : SY_OK;
}

/* Transpose(attention) -> attention that writes there, if the last axis stays the last. */
static int absorb_transpose(struct sy_fuse *f, struct sy_node *transpose)
{
    struct sy_node *attention = sy_fuse_inner(f, transpose->inputs[0], SY_OP_ATTENTION);
    const struct sy_attr *perm = sy_node_attr(transpose, "perm"), *before;
    int64_t both[SY_MAX_RANK];
    if (!attention || !perm || perm->n > SY_MAX_RANK || perm->ints[perm->n - 1] != perm->n - 1)
        return SY_OK;
    before = sy_node_attr(attention, "y_perm");
    for (int i = 0; i < perm->n; i++)
        both[i] = before->ints[perm->ints[i]];
    SY_TRY(sy_node_set_ints(attention, "y_perm", perm->n, both));
    sy_fuse_absorb(f, attention, transpose);
    return SY_OK;
}

int sy_fuse_attention(struct sy_fuse *f)
{
    struct attention a;
    struct seen_mask seen = {.tensor = -1};
    for (int n = 0; n < f->graph->n_nodes; n++)
        if (f->graph->nodes[n].op == SY_OP_MATMUL && match_attention(f, &f->graph->nodes[n], &a))
            SY_TRY(write_attention(f, &f->graph->nodes[n], &a, &seen));
    for (int n = 0; n < f->graph->n_nodes; n++)
        if (f->graph->nodes[n].op == SY_OP_TRANSPOSE)
            SY_TRY(absorb_transpose(f, &f->graph->nodes[n]));
    return SY_OK;
}
