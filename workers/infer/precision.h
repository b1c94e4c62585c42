/* How far a graph's results in its precision are from those in float32, by running both. */
#ifndef SY_WORKERS_INFER_PRECISION_H
#define SY_WORKERS_INFER_PRECISION_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/engine.h"

/* Error sums of one output (float32, float16, bfloat16) over all samples. A struct that is passed again goes on with its sums. */
struct sy_precision_error {
    double max_abs;
    double sum_squares, sum_squares_off; /* of the float32 result, and of the difference */
    int64_t n_rows,
        n_same_top; /* results of rank 2: rows, and those with the same largest element */
};

bool sy_precision_is_compared(enum sy_dtype dtype);
double sy_precision_relative(const struct sy_precision_error *error); /* root mean squares */

/* Runs `graph` (optimized, its constants with data) once in its own precision and once in float32 on these inputs (one a graph input,
 * row-major, at this batch size), and adds what came out to errors[graph->n_outputs]. Parameters are packed layer by layer, so that
 * no more than the largest layer is held twice. For engines that compute in the calling thread. EARG if the inputs ask for the
 * impossible, naming the node. */
int sy_precision_compare(const struct sy_graph *graph, const struct sy_engine_ops *engine,
                         const void *const *inputs, int64_t batch,
                         struct sy_precision_error *errors);

#endif
