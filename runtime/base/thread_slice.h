/* How long the calling thread computes at a time where others want its core (Linux 6.12, sched_setattr(2)). A thread with a shorter slice than the others'
 * takes the core when it wakes; with the same it waits for theirs to end, 3 ms and more. */
#ifndef SY_RUNTIME_BASE_THREAD_SLICE_H
#define SY_RUNTIME_BASE_THREAD_SLICE_H

#include "runtime/base/clock.h"

/* From 100 us to 100 ms; the kernel clamps it. Threads and processes that it makes from then on have the usual slice. EUNSUPPORTED: its policy is not the usual
 * one, or it is favoured (a nice value below 0, which its children would lose), or the kernel does not take it; then nothing changed. A kernel before 6.12
 * ignores the slice. */
int sy_thread_slice_set(sy_ns slice);
/* The scheduler's time slice; 0: the kernel does not report it. */
sy_ns sy_thread_slice(void);

#endif
