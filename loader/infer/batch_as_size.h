/* The second way to read a model: its open first dimension is a size like any other (a sequence's length), not the batch N.
 *
 * Inference tries N first, since rows of several requests can be computed together only then. What N cannot be (a Conv runs along it, it is
 * clamped, multiplied with itself) would be refused or deferred to the run; then the model is inferred once more from a copy in which a symbol
 * stands for N. Both ways share the constants' data: lend, copy, and at the end the graph that stays claims what it still names. */
#ifndef SY_LOADER_INFER_BATCH_AS_SIZE_H
#define SY_LOADER_INFER_BATCH_AS_SIZE_H

#include "loader/graph/graph.h"

/* Data of constants that belongs to no graph for the time being. */
struct sy_lent {
    int n;
    void **data; /* sorted */
};

bool sy_batch_is_open(const struct sy_graph *graph); /* an input grows with N */
/* The graph's constants become borrowed ones; *lent owns their data. Claim them in every case. */
int sy_batch_lend(struct sy_graph *graph, struct sy_lent *lent);
/* A copy as it was read, whose constants borrow the same data; is_sized: whose inputs have a symbol for N. EUNSUPPORTED: too many symbols. */
int sy_batch_copy(const struct sy_graph *graph, bool is_sized, struct sy_graph **out);
/* The graph owns again what it names of the data; the rest is freed. No other graph may name it any more. */
void sy_batch_claim(struct sy_lent *lent, struct sy_graph *graph);

#endif
