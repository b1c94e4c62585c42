/* Casts between the numbers' types, in loops of one type, split over the engine's threads. */
#ifndef SY_WORKERS_HOST_ROWS_CAST_ROWS_H
#define SY_WORKERS_HOST_ROWS_CAST_ROWS_H

#include <stdint.h>

#include "loader/graph/graph.h"

/* Between F32, BOOL and all integers but U64, between F32 and F64 or F16, between F64 and I64, I32 or BOOL, from U8 to F64;
 * EUNSUPPORTED for others (also with n = 0, to ask). */
int sy_elementwise_cast(enum sy_dtype from, enum sy_dtype to, int64_t n, const void *in, void *out);

#endif
