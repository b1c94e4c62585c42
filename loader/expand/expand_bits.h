/* Numbers of a few bits, as ONNX Runtime's quantised products pack them; read at import by the expanders. */
#ifndef SY_LOADER_EXPAND_EXPAND_BITS_H
#define SY_LOADER_EXPAND_EXPAND_BITS_H

#include "loader/expand/expand.h"

/* The i-th number of `bits` bits (1, 2, 4 or 8) of a row that begins at `from`, lowest bits first. */
int sy_bits_at(const unsigned char *from, int64_t i, int64_t bits);
/* Whether the tensor is float32, float16 or bfloat16. */
bool sy_bits_is_float(const struct sy_tensor *t);
/* Element i of such a constant. */
float sy_bits_float_at(const struct sy_tensor *t, int64_t i);

#endif
