/* Sums as arrays, for size_expr.c and size_value.c. */
#ifndef SY_LOADER_GRAPH_SIZE_INTERNAL_H
#define SY_LOADER_GRAPH_SIZE_INTERNAL_H

#include "loader/graph/size_expr.h"

/* Terms of higher degree first, then by atoms; no two of the same atoms, none of factor 0. */
struct sy_sum {
    int n;
    struct sy_size_term terms[SY_SIZE_MAX_TERMS];
};

void sy_sum_load(struct sy_dim dim, struct sy_sum *sum);
int sy_sum_store(const struct sy_sum *sum, struct sy_dim *out);
/* *to += factor * x * (the term's atoms) */
int sy_sum_add(struct sy_sum *to, const struct sy_sum *x, const struct sy_size_term *times);

#endif
