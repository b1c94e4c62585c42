/* What the files share that make up the table without a GPU. */
#ifndef SY_TESTS_FAKE_MATH_INTERNAL_H
#define SY_TESTS_FAKE_MATH_INTERNAL_H

#include <stddef.h>

#include "tests/on_cpu/fake_math.h"
#include "workers/cuda/math/device_math_library.h"

extern const struct sy_math_library_ops fake_library; /* fake_library.c */

/* Counts a call of the table, which may be the one to fail. */
int fake_math_call(const char *name);
struct cpu_work;
/* A kernel, now. Any thread. */
void fake_math_run(const struct cpu_work *work);
/* Where a device pointer leads; NULL stays NULL. */
void *fake_math_seen(const void *device);
/* Notes call(body) as the call `name` of the table; the bytes of body are copied. */
int fake_math_enqueue(struct sy_math *math, const char *name, void (*call)(const void *body),
                      const void *body, size_t bytes);

#endif
