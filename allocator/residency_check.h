/* The residency's invariant walker: R1..R3, and that every block of a model is in use in the pool, has
 * its size and one owner. For tests and sy_assert_expensive: linear in the pool's extents. */
#ifndef SY_ALLOCATOR_RESIDENCY_CHECK_H
#define SY_ALLOCATOR_RESIDENCY_CHECK_H

#include <stdbool.h>

struct sy_residency;

bool sy_residency_is_valid(const struct sy_residency *r);

#endif
