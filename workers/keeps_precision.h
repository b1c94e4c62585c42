/* Which operators hand numbers on in the type that they came in, so that a narrow value (float16, bfloat16) may pass through them between
 * two products. The same for all engines: a package's precision means one thing. Pure. */
#ifndef SY_WORKERS_KEEPS_PRECISION_H
#define SY_WORKERS_KEEPS_PRECISION_H

#include <stdbool.h>

#include "loader/graph.h"

/* True for curves, pools, movement, and sums and products of two tensors of one shape. */
bool sy_keeps_precision(const struct sy_graph *graph, const struct sy_node *node);
/* Of a product of two computed matrices: large enough that narrow factors are worth it, since each number that is rounded is used for several
 * products. */
bool sy_is_large_product(const struct sy_graph *graph, const struct sy_node *node);

#endif
