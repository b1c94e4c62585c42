#include "workers/host/base/one_thread.h"

#include <omp.h>
#include <stdbool.h>

void __real_GOMP_parallel(void (*region)(void *), void *data, unsigned n_threads, unsigned flags);
void __wrap_GOMP_parallel(void (*region)(void *), void *data, unsigned n_threads, unsigned flags);

void __wrap_GOMP_parallel(void (*region)(void *), void *data, unsigned n_threads, unsigned flags)
{
    bool is_alone = n_threads == 1 || (n_threads == 0 && omp_get_max_threads() == 1);
    if (is_alone && !omp_in_parallel())
        region(data);
    else
        __real_GOMP_parallel(region, data, n_threads, flags);
}
