/* Which nodes have data-dependent shapes (README.md, G12), and why: recorded while shapes are inferred, returned as text. */
#ifndef SY_LOADER_INFER_EXPLAIN_H
#define SY_LOADER_INFER_EXPLAIN_H

#include <stdio.h>

#include "loader/shape/graph_infer.h"

/* Notes that the node, as it was read, is deferred for what sy_error_text() says. Before it is marked as such. */
int sy_explain_note(struct sy_infer *in, const struct sy_node *node);
/* Of an inferred graph, for people: one paragraph per stretch of nodes that waits for one reason, or that nothing is sized at run. */
int sy_explain_print(const struct sy_graph *graph, FILE *to);

#endif
