/* The residency's invariant walker, sy_residency_is_valid, is declared with the rest of its functions;
 * it has a file of its own because it is about the books, not about what to do with them. */
#ifndef SY_ALLOCATOR_RESIDENCY_CHECK_H
#define SY_ALLOCATOR_RESIDENCY_CHECK_H

#include "allocator/residency.h"

#endif
