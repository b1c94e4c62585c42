/* Tensors that requests see in another shape than the model does (a configuration's `reshape`): the same elements, in the same order. Pure.
 *
 * A pattern is dimensions, -1 where they are open; both patterns have the same number of open ones, which stand for each other in order. */
#ifndef SY_RUNTIME_FRONT_REQUEST_FRONT_RESHAPE_H
#define SY_RUNTIME_FRONT_REQUEST_FRONT_RESHAPE_H

#include "runtime/core/core.h"

/* The configured reshape of an input or output; NULL: as in the model. */
const struct sy_core_reshape *sy_front_reshape_of(const struct sy_core_model_ref *model,
                                                  bool is_output, int index);
/* A request's dims become the model's, in place; dims: room for SY_MAX_RANK. EARG: they are not as the requests' pattern says. */
int sy_front_reshape_input(const struct sy_core_reshape *reshape, const char *name, int *rank,
                           int64_t *dims);
/* The model's become a request's; those that do not fit the model's pattern stay. */
void sy_front_reshape_output(const struct sy_core_reshape *reshape, int *rank, int64_t *dims);

#endif
