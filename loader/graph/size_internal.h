/* Sums as arrays, for size_*.c: size_expr.c calls size_bounds.c, which calls size_sum.c. */
#ifndef SY_LOADER_GRAPH_SIZE_INTERNAL_H
#define SY_LOADER_GRAPH_SIZE_INTERNAL_H

#include "loader/graph/size_expr.h"

/* Terms of higher degree first, then by atoms; no two of the same atoms, none of factor 0. */
struct sy_sum {
    int n;
    struct sy_size_term terms[SY_SIZE_MAX_TERMS];
};

/* The atom of this kind and these parts, made if there is none: EUNSUPPORTED if it is nested too deep or its name is too long. */
int sy_size_put_atom(enum sy_atom_kind kind, const char *name, struct sy_dim a, struct sy_dim b,
                     int *out);
void sy_sum_load(struct sy_dim dim, struct sy_sum *sum);
int sy_sum_store(const struct sy_sum *sum, struct sy_dim *out);
int sy_sum_add_term(struct sy_sum *to, const struct sy_size_term *term);
/* *to += factor * x * (the term's atoms) */
int sy_sum_add(struct sy_sum *to, const struct sy_sum *x, const struct sy_size_term *times);

/* Whether `from` is `atom`, or is made of it. */
bool sy_atom_mentions(int from, int atom);

#endif
