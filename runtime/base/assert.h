/* Three levels of assertion, all for our own bugs, never for outside input:
 * assert                always on (NDEBUG is never defined)
 * sy_assert_internal    on in test and sanitizer builds: cheap invariants on hot paths
 * sy_assert_expensive   on in test builds: whole-structure walkers */
#ifndef SY_BASE_ASSERT_H
#define SY_BASE_ASSERT_H

#include <assert.h>

#ifdef SY_DEBUG
#define sy_assert_internal(x)  assert(x)
#define sy_assert_expensive(x) assert(x)
#else
#define sy_assert_internal(x)  ((void)0)
#define sy_assert_expensive(x) ((void)0)
#endif

#define SY_ARRAY_LEN(a)   (sizeof(a) / sizeof((a)[0]))
#define SY_MIN(a, b)      ((a) < (b) ? (a) : (b))
#define SY_MAX(a, b)      ((a) > (b) ? (a) : (b))
#define SY_ALIGN_UP(x, a) (((x) + (a)-1) / (a) * (a))

#endif
