/* Sequences that leave a graph. */
#ifndef SY_LOADER_SEQUENCE_ENDS_H
#define SY_LOADER_SEQUENCE_ENDS_H

#include "loader/graph_infer.h"

/* After all nodes: outputs that are sequences become one output for each tensor, NAME[0] and on. EUNSUPPORTED: such a name is taken, or none is left. */
int sy_sequence_outputs(struct sy_infer *in);

#endif
