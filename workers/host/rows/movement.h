/* Moves of elements between row-major tensors: strided copies and gathers, split over the engine's threads. */
#ifndef SY_WORKERS_HOST_ROWS_MOVEMENT_H
#define SY_WORKERS_HOST_ROWS_MOVEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"

/* For every index of `dims`: to[to_offset + i * to_strides] = from[from_offset + i * from_strides]. In elements. */
struct sy_strided_move {
    int64_t element_bytes, rank;
    int64_t dims[SY_MAX_RANK];
    int64_t from_offset, to_offset;
    int64_t from_strides[SY_MAX_RANK], to_strides[SY_MAX_RANK];
    int64_t fill_elements; /* first set so many floats of `to` to `fill`; 0: none */
    double fill;
};

void sy_move(const struct sy_strided_move *move, const void *from, void *to);

struct sy_gather {
    int64_t outer, extent, n_indices, inner_bytes;
    int64_t wide; /* indices are int64, else int32 */
    const char *from;
    const void *indices;
    char *to;
};

/* false: *bad_index is outside [-extent, extent); what was written then is undefined. */
bool sy_move_gather(const struct sy_gather *g, int64_t *bad_index);

#endif
