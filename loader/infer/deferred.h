/* Nodes whose outputs have data-dependent shapes, and all nodes that read them: gathered into the body of one node AtRun at the graph's end, as they
 * were read. An engine infers and runs them one by one, with the shapes of the run (workers/host/dynamic/dynamic.h).
 *
 *   NonZero, NonMaxSuppression, Reshape to a computed shape ... ──> AtRun ──> outputs, no larger than `shape`
 *
 * Its attributes: body, formal 0 (all inputs of the body are captured). */
#ifndef SY_LOADER_INFER_DEFERRED_H
#define SY_LOADER_INFER_DEFERRED_H

#include "loader/shape/graph_infer.h"

/* Room to begin with for an output of which no bound can be told, and for one that could be larger than the second (at batch 1): times
 * the size `switchyard.room`, which is usually 1 and grows when a run says that it needs more (sy_graph_grow_room). */
#define SY_DYNAMIC_ROOM      (4 << 20)
#define SY_DYNAMIC_MOST_ROOM (64 << 20)

/* Moves the nodes that were deferred (in->is_dynamic) into one AtRun node, with the outputs' types and the most that they can hold. Nothing was deferred:
 * nothing happens. EUNSUPPORTED: an output of unknown type. */
int sy_dynamic_gather(struct sy_infer *in);
/* After inference: outputs without a bound get their size, if the graph may have one more. */
int sy_dynamic_open_rooms(struct sy_graph *graph);

#endif
