/* Which nodes have data-dependent shapes (README.md, G12), and why: recorded while shapes are inferred, returned as text. */
#ifndef SY_LOADER_INFER_EXPLAIN_H
#define SY_LOADER_INFER_EXPLAIN_H

#include <stdio.h>

#include "loader/shape/graph_infer.h"

/* Records that the node is deferred for the reason in sy_error_text(). Call before it is marked as deferred. */
int sy_explain_note(struct sy_infer *in, const struct sy_node *node);
/* Prints a paragraph for each group of nodes that are sized at run for one reason, or that there is none. */
int sy_explain_print(const struct sy_graph *graph, FILE *to);

#endif
