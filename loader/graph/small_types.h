/* Element types of a file that the graph has no type for: whole numbers of 4 and 2 bits, floats of 8 bits and less. Their numbers lie in a wider type, the
 * carrier, which also clients send and get: INT8 and UINT8, or FP32. Pure; thread-safe. */
#ifndef SY_LOADER_GRAPH_SMALL_TYPES_H
#define SY_LOADER_GRAPH_SMALL_TYPES_H

#include "loader/graph/graph.h"

/* As ONNX numbers its element types. */
enum sy_small_type {
    SY_SMALL_E4M3FN = 17,
    SY_SMALL_E4M3FNUZ,
    SY_SMALL_E5M2,
    SY_SMALL_E5M2FNUZ,
    SY_SMALL_UINT4,
    SY_SMALL_INT4,
    SY_SMALL_E2M1,
    SY_SMALL_E8M0,
    SY_SMALL_UINT2,
    SY_SMALL_INT2,
};

/* How a float becomes a power of two (E8M0); other types round to the nearest, ties to even. */
enum sy_small_mode { SY_SMALL_UP, SY_SMALL_DOWN, SY_SMALL_NEAREST };

/* The type that carries its numbers; SY_DTYPE_NONE: it is no small type. */
enum sy_dtype sy_small_carrier(int64_t type);
/* Bits of one number in a file, where the lower ones come first. */
int sy_small_bits(int64_t type);
/* The number that these bits mean. */
double sy_small_value(int64_t type, unsigned bits);
/* The number of the type that x is cast to. Of floats beyond the largest: that one if `saturate`, else infinity or NaN; of whole numbers the lowest bits are
 * kept. */
double sy_small_round(int64_t type, double x, bool saturate, enum sy_small_mode mode);
/* The least and the largest number of a type of whole numbers. */
void sy_small_range(int64_t type, double *least, double *most);

#endif
