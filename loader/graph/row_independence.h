/* Whether each row of a batch has the result that it would have alone. Pure. */
#ifndef SY_LOADER_GRAPH_ROW_INDEPENDENCE_H
#define SY_LOADER_GRAPH_ROW_INDEPENDENCE_H

#include "loader/graph/graph.h"

/* True: row i of each result follows from row i of each input alone, whatever the other rows are, so that rows of several requests may be computed
 * as one batch. By rules that are sufficient, operator by operator, of where the batch lies in each tensor: what they do not know (bodies,
 * results sized at run, indices into the batch as RoiAlign has them, sums over it) is not apart.
 * `usual`: the graph with its usual sizes (sy_graph_bind), where the batch is plain to see. */
bool sy_graph_rows_are_independent(const struct sy_graph *graph, const struct sy_graph *usual);

#endif
