/* Ensembles of trees, read from a file's attributes and written as switchyard.Trees has them (expand_trees.c draws it). */
#ifndef SY_LOADER_EXPAND_EXPAND_TREES_H
#define SY_LOADER_EXPAND_EXPAND_TREES_H

#include "loader/expand/expand_learn.h"

enum { SY_TREES_MOST_NODES = 1 << 26, SY_TREES_MOST_DEPTH = 10000 };

enum sy_branch_mode {
    SY_BRANCH_LEQ,
    SY_BRANCH_LT,
    SY_BRANCH_GTE,
    SY_BRANCH_GT,
    SY_BRANCH_EQ,
    SY_BRANCH_NEQ,
    SY_BRANCH_MEMBER,
    SY_BRANCH_LEAF
};

/* A node as the file has it. */
struct sy_branch {
    enum sy_branch_mode mode;
    bool nan_is_yes, seen;
    int64_t feature;
    double value;
    int yes, no;
    int first_weight, n_weights; /* leaves: in `weights` */
    int first_member, n_members; /* SY_BRANCH_MEMBER */
};

struct sy_leaf_weight {
    int64_t tree, node; /* of the file, before they are found */
    int target;
    float value;
    int at; /* in the file's lists */
};

struct sy_trees {
    struct sy_expand *e;
    int n, n_trees, n_weights;
    struct sy_branch *branches;
    struct sy_leaf_weight *weights;
    int *roots;
    const double *members;
    /* what is made */
    int n_out, n_leaves, room;
    int32_t *nodes, *leaves, *trees;
    double *thresholds;
    bool is_double, is_single;
    int64_t n_targets;
};

/* Sets the node's error. */
int sy_trees_no_memory(struct sy_expand *e);
/* From branches, weights and roots: nodes, leaves, trees. ECORRUPT: they do not form trees. */
int sy_trees_write(struct sy_trees *t);
/* The node switchyard.Trees; its result: [rows, targets]. */
int sy_trees_add(struct sy_trees *t, const char *aggregate);
void sy_trees_finish(struct sy_trees *t); /* frees what it has; zeroed is fine */

#endif
