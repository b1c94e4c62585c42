/* A core that answers from the loop a millisecond later, in a thread of its own, for tests of front ends:
 *
 *   "double"              y = 2 x, 4 numbers a row
 *   "sum"                 y = a + b, 4 numbers a row
 *   "cut"                 as "double", with a size that the run says: as many rows as the first number of x
 *   "held", "wide"        as "double" (wide: 16 KiB a row), held until it is canceled, or fake_core_answer_held
 *   "EPEER", "EDEADLINE"  end with this status */
#ifndef SY_TESTS_FAKES_FAKE_CORE_H
#define SY_TESTS_FAKES_FAKE_CORE_H

#include <stdint.h>

#define FAKE_CORE_MOST_REGIONS 64

struct sy_front;

extern _Atomic int
    fake_core_n_held; /* requests that only canceling ends, or fake_core_answer_held */
extern _Atomic int
    fake_core_n_regions; /* of shared memory; each connection: 4, of 8 MiB in all; all: 20 MiB */

/* Makes the core; the caller puts servers on the front before it runs, and takes them away after it has stopped. */
struct sy_front *fake_core_open(void);
void fake_core_run(void);
/* Calls this (or NULL) in the core's thread, while it runs, when the servers have seen what lay in their sockets. */
void fake_core_call(void (*function)(void *ctx), void *ctx);
/* Inside of fake_core_call: those that are held are answered. */
void fake_core_answer_held(void *unused);
/* The servers' loop turns for a tenth of a second; fails the test if n requests are not held then. */
void fake_core_keeps_held(int n);
void fake_core_stop(void); /* when the last request has ended */
uint64_t fake_core_slab_bytes(void);
/* Fails the test if anything is left of models, regions or tensors. */
void fake_core_close(void);

#endif
