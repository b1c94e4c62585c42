/* The second attempt to infer a model: its open first dimension is an ordinary size (a sequence's length) instead of the batch N.
 *
 * Inference tries N first, since only then rows of several requests can be batched. If the model uses the dimension as N cannot be used (a Conv
 * along it, a clamp, a product with itself), nodes would be refused or deferred to the run; then the model is inferred again from a copy in which a
 * symbol stands for N. Both attempts share the constants' data: lent, copied, and in the end claimed by the graph that is kept. */
#ifndef SY_LOADER_INFER_BATCH_AS_SIZE_H
#define SY_LOADER_INFER_BATCH_AS_SIZE_H

#include "loader/graph/graph.h"

/* Data of constants that is temporarily owned by no graph. */
struct sy_lent {
    int n;
    void **data; /* sorted */
};

bool sy_batch_is_open(const struct sy_graph *graph); /* an input grows with N */
/* Makes the graph's constants borrowed; *lent owns their data. Always call sy_batch_claim afterwards. */
int sy_batch_lend(struct sy_graph *graph, struct sy_lent *lent);
/* Copies the graph as read, with constants that borrow the same data; is_sized: its inputs have a symbol for N. EUNSUPPORTED: too many symbols. */
int sy_batch_copy(const struct sy_graph *graph, bool is_sized, struct sy_graph **out);
/* Returns the data that `graph` references to it, and frees the rest. No other graph may reference the data any more. */
void sy_batch_claim(struct sy_lent *lent, struct sy_graph *graph);

#endif
