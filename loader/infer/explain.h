/* Which nodes have data-dependent shapes (README.md, G12), and why: recorded while shapes are inferred, returned as text. */
#ifndef SY_LOADER_INFER_EXPLAIN_H
#define SY_LOADER_INFER_EXPLAIN_H

#include <stdio.h>

#include "loader/shape/graph_infer.h"

/* Notes that the node, as it was read, is deferred for what sy_error_text() says. Before it is marked as such. */
int sy_explain_note(struct sy_infer *in, const struct sy_node *node);
/* Explains an inferred graph to people: a paragraph for each stretch of nodes sized at run for one reason, or that there is none. */
int sy_explain_print(const struct sy_graph *graph, FILE *to);

#endif
