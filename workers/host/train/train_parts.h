/* Flat loops over memory, cut into one stretch a thread. */
#ifndef SY_WORKERS_HOST_TRAIN_TRAIN_PARTS_H
#define SY_WORKERS_HOST_TRAIN_TRAIN_PARTS_H

#include <omp.h>
#include <stdint.h>

#include "runtime/base/assert.h"

/* Under this many elements (256 KiB) starting a second thread costs more than it saves. */
#define PARALLEL_MIN 65536

/* Runs `call` for elements [from, from + count), one stretch a thread. */
#define IN_PARTS(n_elements, call)                                                        \
    {                                                                                     \
        const uint64_t all = (n_elements);                                                \
        _Pragma("omp parallel if (all >= PARALLEL_MIN)")                                  \
        {                                                                                 \
            uint64_t parts = (uint64_t)omp_get_num_threads(),                             \
                     part = (uint64_t)omp_get_thread_num();                               \
            uint64_t width = SY_ALIGN_UP((all + parts - 1) / parts, 16);                  \
            uint64_t from = SY_MIN(part * width, all), count = SY_MIN(width, all - from); \
            call;                                                                         \
        }                                                                                 \
    }

#endif
