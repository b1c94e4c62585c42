/* Ensembles of trees (ai.onnx.ml): the three forms in which files have them become switchyard.Trees, whose nodes lie as they are walked.
 *
 *   inputs of Trees: x | nodes: 4 int32 each | trees: root, depth | leaves: count, then (target, weight) each | thresholds as double, or left out
 *   a node:  threshold (float bits) | feature * 2 + whether NaN takes `yes` | yes | no       next is `yes` where x[feature] <= threshold
 *   a leaf:  where its weights begin, or, with one target and one weight, that weight | 1 | itself | itself
 *
 * The other comparisons are written with that one: x < t as x <= the number before t, x > t with its sides exchanged, x == t as two nodes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand_trees.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MOST_TARGETS = 1 << 16 };

struct place {
    int64_t tree, node;
    int index;
};

/* ---- reading: versions 1 and 3 ------------------------------------------------------------------------ */

static const struct sy_attr *list(const struct sy_expand *e, const char *name,
                                  enum sy_attr_kind kind)
{
    const struct sy_attr *attr = sy_node_attr(e->node, name);
    return attr && attr->kind == kind ? attr : NULL;
}

/* Reads numbers from a list of floats, or a tensor (`name`_as_tensor, or `name` itself). *n: -1 if absent; the caller frees them. */
static int numbers(struct sy_expand *e, const char *name, int *n, double **out, bool *is_double)
{
    char other[64];
    const struct sy_attr *attr = list(e, name, SY_ATTR_FLOATS);
    snprintf(other, sizeof other, "%s_as_tensor", name);
    const struct sy_attr *tensor = list(e, other, SY_ATTR_TENSOR);
    tensor = tensor ? tensor : list(e, name, SY_ATTR_TENSOR);
    *n = -1;
    *out = NULL;
    if (!attr && !tensor)
        return SY_OK;
    const struct sy_tensor *t = tensor ? &e->graph->tensors[tensor->tensor] : NULL;
    size_t each = t ? sy_dtype_bytes(t->dtype) : 1;
    *n = t ? (int)(t->data_bytes / each) : attr->n;
    *out = calloc((size_t)*n + 1, sizeof **out);
    if (!*out)
        return sy_trees_no_memory(e);
    for (int i = 0; i < *n; i++)
        (*out)[i] = t ? sy_load_double(t->dtype, (const char *)t->data + (size_t)i * each)
                      : (double)attr->floats[i];
    if (t && t->dtype == SY_DTYPE_F64 && is_double)
        *is_double = true;
    return SY_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct place *p = a, *q = b;
    if (p->tree != q->tree)
        return p->tree < q->tree ? -1 : 1;
    return p->node < q->node ? -1 : p->node > q->node;
}

static int find(const struct place *places, int n, int64_t tree, int64_t node)
{
    struct place key = {tree, node, 0};
    const struct place *p = bsearch(&key, places, (size_t)n, sizeof *places, compare_places);
    return p ? p->index : -1;
}

static int mode_of(const char *text, size_t n, enum sy_branch_mode *out)
{
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE",    "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"};
    for (int i = 0; i < (int)SY_ARRAY_LEN(names); i++)
        if (i != SY_BRANCH_MEMBER && strlen(names[i]) == n && memcmp(names[i], text, n) == 0) {
            *out = (enum sy_branch_mode)i;
            return SY_OK;
        }
    return SY_ECORRUPT;
}

static int compare_weights(const void *a, const void *b)
{
    const struct sy_leaf_weight *p = a, *q = b;
    if (p->tree != q->tree)
        return p->tree < q->tree ? -1 : 1;
    if (p->node != q->node)
        return p->node < q->node ? -1 : 1;
    return p->at < q->at ? -1 : p->at > q->at;
}

/* Those of a leaf together, in the order of the file. Of one target only the first counts, as in ONNX Runtime: skl2onnx writes the number of a
 * classifier's leaf once for each class. */
static int read_weights(struct sy_trees *t, const char *prefix, const struct place *places)
{
    char name[4][40];
    static const char *const parts[] = {"treeids", "nodeids", "ids", "weights"};
    const struct sy_attr *of[3];
    double *values;
    int n;
    for (int i = 0; i < 4; i++)
        snprintf(name[i], sizeof name[i], "%s_%s", prefix, parts[i]);
    for (int i = 0; i < 3; i++)
        of[i] = list(t->e, name[i], SY_ATTR_INTS);
    SY_TRY(numbers(t->e, name[3], &n, &values, NULL));
    bool fits = of[0] && of[1] && of[2] && of[0]->n == n && of[1]->n == n && of[2]->n == n;
    t->weights = fits ? calloc((size_t)n + 1, sizeof *t->weights) : NULL;
    t->n_weights = n;
    for (int i = 0; t->weights && i < n; i++) {
        t->weights[i] = (struct sy_leaf_weight){of[0]->ints[i], of[1]->ints[i], (int)of[2]->ints[i],
                                                (float)values[i], i};
        fits = fits && of[2]->ints[i] >= 0 && of[2]->ints[i] < t->n_targets;
    }
    free(values);
    if (!fits || !t->weights)
        return sy_expand_fail(t->e, SY_ECORRUPT, "weights of leaves that do not fit");
    qsort(t->weights, (size_t)n, sizeof *t->weights, compare_weights);
    for (int i = 0; i < n; i++) {
        int at = find(places, t->n, t->weights[i].tree, t->weights[i].node);
        struct sy_branch *b = at < 0 ? NULL : &t->branches[at];
        if (!b)
            return sy_expand_fail(t->e, SY_ECORRUPT, "a weight of a node that does not exist");
        b->first_weight = b->n_weights == 0 ? i : b->first_weight;
        b->n_weights += t->n_targets > 1 || b->n_weights == 0;
    }
    return SY_OK;
}

struct lists {
    const struct sy_attr *tree, *node, *feature, *mode, *yes, *no, *nan;
    double *values;
    int n_values;
};

static int read_branch(struct sy_trees *t, const struct lists *l, int i, const struct place *places)
{
    size_t n;
    const char *mode = sy_attr_string(l->mode, i, &n);
    struct sy_branch *b = &t->branches[i];
    int64_t tree = l->tree->ints[i];
    if (mode_of(mode, n, &b->mode) < 0)
        return sy_expand_fail(t->e, SY_EUNSUPPORTED, "mode '%.40s'", mode);
    b->feature = l->feature->ints[i];
    b->value = l->values[i];
    b->nan_is_yes = l->nan && l->nan->ints[i] != 0;
    b->yes = b->no = -1;
    if (b->mode == SY_BRANCH_LEAF)
        return SY_OK;
    b->yes = find(places, t->n, tree, l->yes->ints[i]);
    b->no = find(places, t->n, tree, l->no->ints[i]);
    return SY_OK;
}

/* A root is a node that no other leads to: the first of its tree, as ONNX Runtime has it. */
static int find_roots(struct sy_trees *t, const struct lists *l)
{
    t->roots = calloc((size_t)t->n + 1, sizeof *t->roots);
    bool *led = calloc((size_t)t->n + 1, sizeof *led);
    if (!t->roots || !led) {
        free(led);
        return sy_trees_no_memory(t->e);
    }
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < 2 && t->branches[i].mode != SY_BRANCH_LEAF; k++) {
            int to = k ? t->branches[i].yes : t->branches[i].no;
            if (to >= 0)
                led[to] = true;
        }
    for (int i = 0; i < t->n; i++)
        if (!led[i] && (i == 0 || l->tree->ints[i] != l->tree->ints[i - 1] || led[i - 1]))
            t->roots[t->n_trees++] = i;
    free(led);
    return SY_OK;
}

static int read_lists(struct sy_trees *t, const char *prefix, const struct lists *l)
{
    struct place *places = calloc((size_t)t->n + 1, sizeof *places);
    t->branches = calloc((size_t)t->n + 1, sizeof *t->branches);
    int status = places && t->branches ? SY_OK : sy_trees_no_memory(t->e);
    for (int i = 0; status == SY_OK && i < t->n; i++)
        places[i] = (struct place){l->tree->ints[i], l->node->ints[i], i};
    if (status == SY_OK)
        qsort(places, (size_t)t->n, sizeof *places, compare_places);
    for (int i = 0; status == SY_OK && i < t->n; i++)
        status = read_branch(t, l, i, places);
    if (status == SY_OK)
        status = find_roots(t, l);
    if (status == SY_OK)
        status = read_weights(t, prefix, places);
    free(places);
    return status;
}

static int read_old(struct sy_trees *t, const char *prefix)
{
    struct sy_expand *e = t->e;
    struct lists l = {.tree = list(e, "nodes_treeids", SY_ATTR_INTS),
                      .node = list(e, "nodes_nodeids", SY_ATTR_INTS),
                      .feature = list(e, "nodes_featureids", SY_ATTR_INTS),
                      .mode = list(e, "nodes_modes", SY_ATTR_STRINGS),
                      .yes = list(e, "nodes_truenodeids", SY_ATTR_INTS),
                      .no = list(e, "nodes_falsenodeids", SY_ATTR_INTS),
                      .nan = list(e, "nodes_missing_value_tracks_true", SY_ATTR_INTS)};
    SY_TRY(numbers(e, "nodes_values", &l.n_values, &l.values, &t->is_double));
    t->n = l.tree ? l.tree->n : 0;
    if (l.nan && l.nan->n == 0)
        l.nan = NULL;
    bool fits = t->n > 0 && l.node && l.feature && l.mode && l.yes && l.no && l.node->n == t->n &&
                l.feature->n == t->n && l.mode->n == t->n && l.yes->n == t->n && l.no->n == t->n &&
                l.n_values == t->n && (!l.nan || l.nan->n == t->n);
    int status = fits ? read_lists(t, prefix, &l)
                      : sy_expand_fail(e, SY_ECORRUPT, "lists of nodes that do not fit");
    free(l.values);
    return status;
}

/* ---- what follows the scores --------------------------------------------------------------------------- */

static int with_base(struct sy_expand *e, int scores, int64_t n_targets)
{
    double *base;
    int n;
    if (numbers(e, "base_values", &n, &base, NULL) < 0 || n <= 0) {
        free(base);
        return scores;
    }
    float *narrow = calloc((size_t)n, sizeof *narrow);
    for (int i = 0; narrow && i < n; i++)
        narrow[i] = (float)base[i];
    int out = -1;
    if (n != n_targets && n != 1)
        sy_expand_fail(e, SY_ECORRUPT, "%d base values for %lld results", n, (long long)n_targets);
    else if (!narrow)
        sy_trees_no_memory(e);
    else
        out = SY_EXPAND(e, ADD, scores, sy_expand_floats(e, narrow, n));
    free(base);
    free(narrow);
    return out;
}

static int expand_tree_regressor(struct sy_expand *e)
{
    struct sy_trees t = {.e = e, .n_targets = sy_node_int(e->node, "n_targets", 1)};
    int scores = -1;
    if (t.n_targets < 1 || t.n_targets > MOST_TARGETS)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld targets", (long long)t.n_targets);
    if (read_old(&t, "target") == SY_OK && sy_trees_write(&t) == SY_OK)
        scores = sy_trees_add(&t, sy_infer_text(e->node, "aggregate_function", "SUM"));
    sy_trees_finish(&t);
    if (e->status == SY_OK)
        sy_expand_result(e, 0, sy_learn_transform(e, with_base(e, scores, t.n_targets)));
    return e->status;
}

/* Whether only one of two classes has weights. */
static bool has_one_class(const struct sy_trees *t)
{
    for (int i = 1; i < t->n_weights; i++)
        if (t->weights[i].target != t->weights[0].target)
            return false;
    return t->n_weights > 0;
}

static bool are_positive(const struct sy_trees *t)
{
    for (int i = 0; i < t->n_weights; i++)
        if (t->weights[i].value < 0)
            return false;
    return true;
}

/* Two classes from one score: probabilities are compared with 0.5, other weights with 0. */
static void classify_one(struct sy_expand *e, int score, bool positive)
{
    const char *how = sy_infer_text(e->node, "post_transform", "NONE");
    int limit = sy_expand_number(e, SY_DTYPE_F32, positive ? 0.5 : 0);
    static const int64_t flat[] = {-1};
    int is_second = sy_expand_reshape(e, SY_EXPAND(e, GREATER, score, limit), flat, 1);
    if (sy_expand_wanted(e, 0))
        sy_expand_result(e, 0, sy_learn_label(e, sy_expand_cast(e, is_second, SY_DTYPE_I64)));
    if (!sy_expand_wanted(e, 1))
        return;
    int other = positive ? SY_EXPAND(e, SUB, sy_expand_number(e, SY_DTYPE_F32, 1), score)
                         : SY_EXPAND(e, SUB, sy_expand_number(e, SY_DTYPE_F32, 0), score);
    int both = sy_expand_join(e, other, score, 1);
    if (!positive && strcmp(how, "LOGISTIC") == 0)
        both = SY_EXPAND(e, SIGMOID, both);
    else if (strcmp(how, "NONE") != 0 && strcmp(how, "LOGISTIC") != 0)
        sy_expand_fail(e, SY_EUNSUPPORTED, "post_transform '%.40s' of one score", how);
    sy_expand_result(e, 1, both);
}

static int base_of_one(struct sy_expand *e, int score)
{
    double *base;
    int n;
    if (numbers(e, "base_values", &n, &base, NULL) == SY_OK && n > 0)
        score = SY_EXPAND(e, ADD, score, sy_expand_number(e, SY_DTYPE_F32, base[n - 1]));
    free(base);
    return score;
}

static int expand_tree_classifier(struct sy_expand *e)
{
    struct sy_trees t = {.e = e, .n_targets = sy_learn_labels(e)};
    int scores = -1;
    bool one = false, positive = false;
    if (t.n_targets < 1 || t.n_targets > MOST_TARGETS)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld labels", (long long)t.n_targets);
    if (read_old(&t, "class") == SY_OK) {
        one = t.n_targets == 2 && has_one_class(&t);
        positive = are_positive(&t);
        for (int i = 0; one && i < t.n_weights; i++)
            t.weights[i].target = 0;
        t.n_targets = one ? 1 : t.n_targets;
        if (sy_trees_write(&t) == SY_OK)
            scores = sy_trees_add(&t, "SUM");
    }
    sy_trees_finish(&t);
    if (e->status == SY_OK && one)
        classify_one(e, base_of_one(e, scores), positive);
    else if (e->status == SY_OK)
        sy_learn_classify(e, with_base(e, scores, t.n_targets));
    return e->status;
}

/* ---- version 5 -------------------------------------------------------------------------------------------- */

static bool needs(const struct sy_attr *attr, int n)
{
    return attr && attr->n == n;
}

/* Leaves follow the nodes. */
static int side(int64_t to, int64_t is_leaf, int n)
{
    return to < 0 || to > INT32_MAX / 2 ? -1 : (int)to + (is_leaf ? n : 0);
}

/* Sets of members are stored one after the other, each ended by NaN, in the order of the nodes that test them. */
static int take_members(struct sy_trees *t, struct sy_branch *b, int n_members, int *at)
{
    b->first_member = *at;
    while (*at < n_members && !isnan(t->members[*at]))
        ++*at;
    b->n_members = *at - b->first_member;
    *at += 1;
    return *at <= n_members ? SY_OK
                            : sy_expand_fail(t->e, SY_ECORRUPT, "membership_values are too few");
}

static int read_new(struct sy_trees *t, const double *splits, const double *modes, int n_members,
                    int n_nodes)
{
    static const enum sy_branch_mode of[] = {SY_BRANCH_LEQ,   SY_BRANCH_LT, SY_BRANCH_GTE,
                                             SY_BRANCH_GT,    SY_BRANCH_EQ, SY_BRANCH_NEQ,
                                             SY_BRANCH_MEMBER};
    struct sy_expand *e = t->e;
    const struct sy_attr *feature = list(e, "nodes_featureids", SY_ATTR_INTS),
                         *yes = list(e, "nodes_truenodeids", SY_ATTR_INTS),
                         *no = list(e, "nodes_falsenodeids", SY_ATTR_INTS),
                         *yes_leaf = list(e, "nodes_trueleafs", SY_ATTR_INTS),
                         *no_leaf = list(e, "nodes_falseleafs", SY_ATTR_INTS),
                         *nan = list(e, "nodes_missing_value_tracks_true", SY_ATTR_INTS);
    int member = 0;
    if (!needs(feature, n_nodes) || !needs(yes, n_nodes) || !needs(no, n_nodes) ||
        !needs(yes_leaf, n_nodes) || !needs(no_leaf, n_nodes))
        return sy_expand_fail(e, SY_ECORRUPT, "lists of nodes that do not fit");
    for (int i = 0; i < n_nodes; i++) {
        struct sy_branch *b = &t->branches[i];
        if (!(modes[i] >= 0 && modes[i] <= 6))
            return sy_expand_fail(e, SY_ECORRUPT, "mode %g", modes[i]);
        *b = (struct sy_branch){.mode = of[(int)modes[i]],
                                .nan_is_yes = needs(nan, n_nodes) && nan->ints[i] != 0,
                                .feature = feature->ints[i],
                                .value = splits[i],
                                .yes = side(yes->ints[i], yes_leaf->ints[i], n_nodes),
                                .no = side(no->ints[i], no_leaf->ints[i], n_nodes)};
        if (b->mode == SY_BRANCH_MEMBER)
            SY_TRY(take_members(t, b, n_members, &member));
    }
    return SY_OK;
}

static int read_leaves(struct sy_trees *t, const double *weights, int n_nodes, int n_leaves)
{
    const struct sy_attr *target = list(t->e, "leaf_targetids", SY_ATTR_INTS),
                         *roots = list(t->e, "tree_roots", SY_ATTR_INTS);
    if (!needs(target, n_leaves) || !roots)
        return sy_expand_fail(t->e, SY_ECORRUPT, "leaves or roots that do not fit");
    t->roots = calloc((size_t)roots->n + 1, sizeof *t->roots);
    t->weights = calloc((size_t)n_leaves + 1, sizeof *t->weights);
    if (!t->roots || !t->weights)
        return sy_trees_no_memory(t->e);
    t->n_trees = roots->n;
    t->n_weights = n_leaves;
    for (int i = 0; i < roots->n; i++)
        t->roots[i] = side(roots->ints[i], 0, 0);
    for (int i = 0; i < n_leaves; i++) {
        if (target->ints[i] < 0 || target->ints[i] >= t->n_targets)
            return sy_expand_fail(t->e, SY_ECORRUPT, "target %lld", (long long)target->ints[i]);
        t->weights[i] =
            (struct sy_leaf_weight){.target = (int)target->ints[i], .value = (float)weights[i]};
        t->branches[n_nodes + i] = (struct sy_branch){
            .mode = SY_BRANCH_LEAF, .yes = -1, .no = -1, .first_weight = i, .n_weights = 1};
    }
    return SY_OK;
}

/* A root whose two sides are the same leaf stands for a tree of that leaf: it becomes the leaf, which is then visited once. */
static void join_sides(struct sy_trees *t, int n_nodes)
{
    for (int i = 0; i < n_nodes; i++) {
        struct sy_branch *b = &t->branches[i];
        if (b->yes == b->no && b->yes >= n_nodes && b->yes < t->n)
            *b = t->branches[b->yes];
    }
}

static int expand_tree_ensemble(struct sy_expand *e)
{
    static const char *const aggregates[] = {"AVERAGE", "SUM", "MIN", "MAX"};
    static const char *const names[] = {"nodes_splits", "nodes_modes", "leaf_weights",
                                        "membership_values"};
    int64_t aggregate = sy_node_int(e->node, "aggregate_function", 1);
    struct sy_trees t = {.e = e, .n_targets = sy_node_int(e->node, "n_targets", 1)};
    double *lists[4] = {NULL};
    int n[4], scores = -1, status = SY_OK;
    for (int i = 0; i < 4 && status == SY_OK; i++)
        status = numbers(e, names[i], &n[i], &lists[i], i == 0 ? &t.is_double : NULL);
    if (status == SY_OK && (n[0] < 0 || n[0] != n[1] || n[2] < 1 || aggregate < 0 ||
                            aggregate > 3 || t.n_targets < 1 || t.n_targets > MOST_TARGETS ||
                            (int64_t)n[0] + n[2] > SY_TREES_MOST_NODES))
        status = sy_expand_fail(e, SY_ECORRUPT, "lists of nodes that do not fit");
    t.n = status == SY_OK ? n[0] + n[2] : 0;
    t.members = lists[3];
    t.branches = calloc((size_t)t.n + 1, sizeof *t.branches);
    if (status == SY_OK && !t.branches)
        status = sy_trees_no_memory(e);
    if (status == SY_OK)
        status = read_new(&t, lists[0], lists[1], SY_MAX(n[3], 0), n[0]);
    if (status == SY_OK)
        status = read_leaves(&t, lists[2], n[0], n[2]);
    if (status == SY_OK) {
        join_sides(&t, n[0]);
        if (sy_trees_write(&t) == SY_OK)
            scores = sy_trees_add(&t, aggregates[aggregate]);
    }
    sy_trees_finish(&t);
    for (int i = 0; i < 4; i++)
        free(lists[i]);
    if (e->status == SY_OK && status == SY_OK) {
        scores = sy_learn_transform_numbered(e, scores);
        if (sy_expand_dtype(e, 0) == SY_DTYPE_F64)
            scores = sy_expand_cast(e, scores, SY_DTYPE_F64);
        sy_expand_result(e, 0, scores);
    }
    return e->status;
}

const struct sy_expander_line sy_expanders_trees[] = {
    {SY_OP_ML_TREE_REGRESSOR, expand_tree_regressor},
    {SY_OP_ML_TREE_CLASSIFIER, expand_tree_classifier},
    {SY_OP_ML_TREE_ENSEMBLE, expand_tree_ensemble},
    {0}};
