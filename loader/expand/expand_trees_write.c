/* Ensembles of trees as they are walked. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand_trees.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

int sy_trees_no_memory(struct sy_expand *e)
{
    return sy_expand_fail(e, SY_ENOMEM_HOST, "no memory for its trees");
}

/* ---- writing --------------------------------------------------------------------------------------- */

static int new_node(struct sy_trees *t, int *out)
{
    if (t->n_out == t->room)
        return sy_expand_fail(t->e, SY_ECORRUPT, "a node that is reached twice");
    *out = t->n_out++;
    return SY_OK;
}

static void put_node(struct sy_trees *t, int at, double threshold, int64_t feature, bool nan_is_yes,
                     int yes, int no)
{
    float narrow = (float)threshold;
    int32_t *to = t->nodes + 4 * (size_t)at;
    memcpy(to, &narrow, sizeof narrow);
    to[1] = (int32_t)(feature * 2 + nan_is_yes);
    to[2] = yes;
    to[3] = no;
    t->thresholds[at] = threshold;
}

static void put_leaf(struct sy_trees *t, int at, const struct sy_branch *b)
{
    int32_t *to = t->nodes + 4 * (size_t)at;
    to[0] = t->n_leaves;
    if (t->is_single)
        memcpy(to, &t->weights[b->first_weight].value, sizeof *to);
    to[1] = 1;
    to[2] = to[3] = at;
    t->thresholds[at] = 0;
    if (t->is_single)
        return;
    t->leaves[t->n_leaves++] = b->n_weights;
    for (int i = 0; i < b->n_weights; i++) {
        const struct sy_leaf_weight *w = &t->weights[b->first_weight + i];
        t->leaves[t->n_leaves++] = w->target;
        memcpy(&t->leaves[t->n_leaves++], &w->value, sizeof w->value);
    }
}

static double before(const struct sy_trees *t, double value)
{
    return t->is_double ? nextafter(value, -INFINITY) : (double)nextafterf((float)value, -INFINITY);
}

/* yes where x == value: at most it, and not at most the number before it. NaN as `nan_is_yes` says. */
static int put_equal(struct sy_trees *t, int at, double value, const struct sy_branch *b, int yes,
                     int no)
{
    int second = 0;
    SY_TRY(new_node(t, &second));
    put_node(t, at, value, b->feature, b->nan_is_yes, second, no);
    put_node(t, second, before(t, value), b->feature, false, no, yes);
    return SY_OK;
}

static int put_members(struct sy_trees *t, int at, const struct sy_branch *b, int yes, int no)
{
    for (int i = 0; i < b->n_members; i++) {
        int next = no;
        if (i + 1 < b->n_members)
            SY_TRY(new_node(t, &next));
        SY_TRY(put_equal(t, at, t->members[b->first_member + i], b, yes, next));
        at = next;
    }
    if (b->n_members == 0)
        put_node(t, at, 0, b->feature, false, no, no);
    return SY_OK;
}

static int write_branch(struct sy_trees *t, int index, int depth, int *at, int *deepest);

static int write_sides(struct sy_trees *t, const struct sy_branch *b, int at, int depth,
                       int *deepest)
{
    int yes = 0, no = 0;
    bool nan = b->nan_is_yes;
    int more = b->mode == SY_BRANCH_MEMBER                           ? 2 * SY_MAX(b->n_members, 1)
               : b->mode == SY_BRANCH_EQ || b->mode == SY_BRANCH_NEQ ? 2
                                                                     : 1;
    SY_TRY(write_branch(t, b->yes, depth + more, &yes, deepest));
    SY_TRY(write_branch(t, b->no, depth + more, &no, deepest));
    switch (b->mode) {
    case SY_BRANCH_LT:
        put_node(t, at, before(t, b->value), b->feature, nan, yes, no);
        return SY_OK;
    case SY_BRANCH_GTE:
        put_node(t, at, before(t, b->value), b->feature, !nan, no, yes);
        return SY_OK;
    case SY_BRANCH_GT:
        put_node(t, at, b->value, b->feature, !nan, no, yes);
        return SY_OK;
    case SY_BRANCH_EQ:
        return put_equal(t, at, b->value, b, yes, no);
    case SY_BRANCH_NEQ: { /* its sides exchanged, NaN too */
        struct sy_branch other = *b;
        other.nan_is_yes = !nan;
        return put_equal(t, at, b->value, &other, no, yes);
    }
    case SY_BRANCH_MEMBER:
        return put_members(t, at, b, yes, no);
    default:
        put_node(t, at, b->value, b->feature, nan, yes, no);
        return SY_OK;
    }
}

/* Node first, then its `yes` side: a walk goes forward in memory. */
static int write_branch(struct sy_trees *t, int index, int depth, int *at, int *deepest)
{
    if (index < 0 || index >= t->n || t->branches[index].seen)
        return sy_expand_fail(t->e, SY_ECORRUPT, "a node that does not exist, or is reached twice");
    struct sy_branch *b = &t->branches[index];
    if (depth > SY_TREES_MOST_DEPTH)
        return sy_expand_fail(t->e, SY_EUNSUPPORTED, "a tree deeper than %d", SY_TREES_MOST_DEPTH);
    if (b->mode != SY_BRANCH_LEAF && (b->feature < 0 || b->feature > INT32_MAX / 2 - 1))
        return sy_expand_fail(t->e, SY_ECORRUPT, "feature %lld", (long long)b->feature);
    b->seen = true;
    *deepest = SY_MAX(*deepest, depth);
    SY_TRY(new_node(t, at));
    if (b->mode != SY_BRANCH_LEAF)
        return write_sides(t, b, *at, depth, deepest);
    put_leaf(t, *at, b);
    return SY_OK;
}

static bool has_single_weights(const struct sy_trees *t)
{
    bool single = t->n_targets == 1;
    for (int i = 0; i < t->n && single; i++)
        single = t->branches[i].mode != SY_BRANCH_LEAF || t->branches[i].n_weights == 1;
    return single;
}

int sy_trees_write(struct sy_trees *t)
{
    int64_t room = 0;
    for (int i = 0; i < t->n; i++)
        room += t->branches[i].mode == SY_BRANCH_MEMBER
                    ? 2 * (int64_t)SY_MAX(t->branches[i].n_members, 1)
                : t->branches[i].mode == SY_BRANCH_EQ || t->branches[i].mode == SY_BRANCH_NEQ ? 2
                                                                                              : 1;
    if (room > SY_TREES_MOST_NODES)
        return sy_expand_fail(t->e, SY_EUNSUPPORTED, "%lld nodes", (long long)room);
    t->room = (int)room;
    t->is_single = has_single_weights(t);
    t->nodes = calloc((size_t)room * 4 + 1, sizeof *t->nodes);
    t->thresholds = calloc((size_t)room + 1, sizeof *t->thresholds);
    t->trees = calloc((size_t)t->n_trees * 2 + 1, sizeof *t->trees);
    t->leaves = calloc((size_t)t->n_weights * 2 + (size_t)t->n + 1, sizeof *t->leaves);
    if (!t->nodes || !t->thresholds || !t->trees || !t->leaves)
        return sy_trees_no_memory(t->e);
    for (int i = 0; i < t->n_trees; i++) {
        int deepest = 0;
        SY_TRY(write_branch(t, t->roots[i], 0, &t->trees[2 * i], &deepest));
        t->trees[2 * i + 1] = deepest;
    }
    return SY_OK;
}

static int constant(struct sy_expand *e, enum sy_dtype dtype, const void *data, int64_t n)
{
    struct sy_shape shape = {.rank = 1, .dims = {{n, 0}}};
    size_t bytes = (size_t)n * sy_dtype_bytes(dtype);
    void *copy;
    int out = -1;
    if (e->status == SY_OK && (e->status = sy_graph_alloc(bytes + 1, 1, &copy)) == SY_OK) {
        memcpy(copy, data, bytes);
        e->status = sy_graph_add_constant(e->graph, "trees", dtype, &shape, copy, bytes, &out);
    }
    if (e->status == SY_OK)
        e->status = sy_expand_grow(e->in);
    return out;
}

/* How many a row must have. */
static int64_t features_of(const struct sy_trees *t)
{
    int64_t most = 1;
    for (int i = 0; i < t->n_out; i++)
        most = SY_MAX(most, (t->nodes[4 * (size_t)i + 1] >> 1) + 1);
    return most;
}

/* The scores: [rows, targets]. */
int sy_trees_add(struct sy_trees *t, const char *aggregate)
{
    struct sy_expand *e = t->e;
    int x = sy_expand_input(e, 0);
    enum sy_dtype dtype = sy_expand_dtype(e, 0);
    if (dtype != SY_DTYPE_F32 && dtype != SY_DTYPE_F64)
        x = sy_expand_cast(e, x, SY_DTYPE_F32);
    const int inputs[] = {x, constant(e, SY_DTYPE_I32, t->nodes, 4 * (int64_t)t->n_out),
                          constant(e, SY_DTYPE_I32, t->trees, 2 * (int64_t)t->n_trees),
                          constant(e, SY_DTYPE_I32, t->leaves, SY_MAX(t->n_leaves, 1)),
                          constant(e, SY_DTYPE_F64, t->thresholds, t->is_double ? t->n_out : 1)};
    int scores = sy_expand_op(e, SY_OP_TREES, inputs, 5);
    sy_expand_set_int(e, "targets", t->n_targets);
    sy_expand_set_int(e, "single", t->is_single);
    sy_expand_set_int(e, "features", features_of(t));
    sy_expand_set_text(e, "aggregate", aggregate);
    return scores;
}

void sy_trees_finish(struct sy_trees *t)
{
    free(t->branches);
    free(t->weights);
    free(t->roots);
    free(t->nodes);
    free(t->leaves);
    free(t->trees);
    free(t->thresholds);
}
