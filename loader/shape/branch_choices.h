/* Branches of Ifs whose conditions depend on open sizes, as chosen in one attempt to infer a model (infer_ways.c). */
#ifndef SY_LOADER_SHAPE_BRANCH_CHOICES_H
#define SY_LOADER_SHAPE_BRANCH_CHOICES_H

#include "loader/shape/graph_infer.h"

enum { SY_MOST_CHOICES = 16 };

struct sy_branches {
    int n;
    struct sy_choice {
        char *result; /* the If's first result */
        enum { SY_LEFT_TO_RUN = -1, SY_ELSE = 0, SY_THEN = 1 } taken;
    } of[SY_MOST_CHOICES];
    char *open; /* set by inference: the first such If that no choice was made for; NULL: none */
};

/* Records the node as an If that allows a choice, unless another is recorded already. */
int sy_branches_offer(const struct sy_infer *in, const struct sy_node *node);
/* Whether a branch was chosen for the If: SY_ELSE or SY_THEN. */
bool sy_branches_find(const struct sy_infer *in, const struct sy_node *node, int *taken);

#endif
