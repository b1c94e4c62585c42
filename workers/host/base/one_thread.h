/* Parallel regions of one thread without a team.
 *
 * For `#pragma omp parallel if (n > limit)` below the limit GCC's libgomp makes a team of one: it allocates, and ends the region with a futex call,
 * some 200 ns together, where the step itself takes 50. The linker hands our calls of GOMP_parallel to a function here (--wrap, Makefile), which
 * calls a region of one thread as a plain function. Outside of regions OpenMP answers with thread 0 of 1, and barriers, critical sections and
 * shared loops are defined for that, so the region does the same. Inside of another region thread numbers are that one's: there the library
 * is called. oneDNN, a library of its own, calls libgomp as before; for one thread it makes no region.
 *
 * Nothing to call: this header says why the file is there. */
#ifndef SY_WORKERS_HOST_BASE_ONE_THREAD_H
#define SY_WORKERS_HOST_BASE_ONE_THREAD_H

#endif
