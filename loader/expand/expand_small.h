/* What expanders of quantisation need of small types (loader/graph/small_types.h). */
#ifndef SY_LOADER_EXPAND_EXPAND_SMALL_H
#define SY_LOADER_EXPAND_EXPAND_SMALL_H

#include "loader/expand/expand.h"

/* The small type that the node's result has in the file; 0: none. */
int64_t sy_small_result_type(const struct sy_expand *e);
/* x, floats, as numbers of the small type, still in x's type; the node's attributes `saturate` and `round_mode` count. */
int sy_small_from_float(struct sy_expand *e, int x, int64_t type);
/* Declares y, numbers of the small type that lie in `dtype`, to be the node's result, which remembers the type. */
int sy_small_give(struct sy_expand *e, int y, enum sy_dtype dtype, int64_t type);

#endif
