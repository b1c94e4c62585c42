/* The second attempt to infer a model: its open first dimension is an ordinary size (a sequence's length) instead of the batch N.
 *
 * Inference tries N first, since only then rows of several requests can be batched. If the model uses the dimension as N cannot be used (a Conv
 * along it, a clamp, a product with itself), nodes would be refused or deferred to the run; then the model is inferred again from a copy in which a
 * symbol stands for N. Both attempts share the constants' data: lent, copied, and in the end claimed by the graph that is kept. */
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
