/* Comparisons and selections of sizes, as size expressions: a truth value is a size of 0 or 1, built from minima. Pure; errors as in size_expr.h. */
#ifndef SY_LOADER_GRAPH_SIZE_CHOICE_H
#define SY_LOADER_GRAPH_SIZE_CHOICE_H

#include "loader/graph/size_expr.h"

/* 1 where a >= b, else 0. */
int sy_size_at_least(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
/* 1 where a is b, else 0. */
int sy_size_same(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
/* 1 where the size is not 0, else 0. */
int sy_size_truth(struct sy_dim a, struct sy_dim *out);
/* a where `truth` is 1, b where it is 0. */
int sy_size_choose(struct sy_dim truth, struct sy_dim a, struct sy_dim b, struct sy_dim *out);
int sy_size_abs(struct sy_dim a, struct sy_dim *out);

#endif
