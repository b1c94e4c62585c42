/* A graph's inputs and outputs: limits on their number, and sequences. */
#ifndef SY_LOADER_INFER_SEQUENCE_ENDS_H
#define SY_LOADER_INFER_SEQUENCE_ENDS_H

#include "loader/shape/graph_infer.h"

/* After all nodes: outputs that are sequences become one output for each tensor, NAME[0] and on. EUNSUPPORTED: such a name is taken, or none is left. */
int sy_sequence_outputs(struct sy_infer *in);
/* EUNSUPPORTED: the graph has more inputs or outputs than a model may have. */
int sy_check_ends(const struct sy_graph *graph);

#endif
