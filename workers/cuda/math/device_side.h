/* A second stream beside the one that computes, for what ranks exchange: its memory, its marks in the stream that computes, two kernels. Brought by the
 * owner of the table of mathematics: library/math_side.c on CUDA, tests/on_cpu/fake_side.c without.
 *
 * S1: open, take, take_host and close are called by the thread that trains, before the other thread's first call or after its last; mark and what enqueues into
 * the computing stream (gather, scale, clear) by the thread that trains, at any time; the rest by one other thread, which calls enter first.
 * S2: an address of the device is followed by the device only (M2). */
#ifndef SY_WORKERS_CUDA_MATH_DEVICE_SIDE_H
#define SY_WORKERS_CUDA_MATH_DEVICE_SIDE_H

#include <stdbool.h>
#include <stdint.h>

struct sy_math;
struct sy_side;

/* Its kernels run once: none is loaded later, while a kernel that waits for another rank stands in the stream. */
int sy_side_open(struct sy_math *math, unsigned n_marks, struct sy_side **out);
/* Memory that was taken is given back. NULL is fine. */
void sy_side_close(struct sy_side *side);
/* Memory of the device, beside the pool, as long as the side is open. ENOMEM_DEVICE. At most 2. */
int sy_side_take(struct sy_side *side, uint64_t bytes, void **out);
/* Pinned memory of the host, likewise; at most 2. ENOMEM_HOST. */
int sy_side_take_host(struct sy_side *side, uint64_t bytes, void **out);

/* ---- into the stream that computes ---- */
int sy_side_gather(struct sy_side *side, const void *from, void *to, uint64_t bytes);
int sy_side_mark(struct sy_side *side, unsigned mark);
/* to = from * share */
int sy_side_scale(struct sy_side *side, const void *from, float share, uint64_t n, void *to);
int sy_side_clear(struct sy_side *side, void *to, uint64_t bytes);

/* ---- the other thread ---- */
int sy_side_enter(struct sy_side *side);
/* Neither waits. EDEVICE: the device has failed. */
int sy_side_passed(struct sy_side *side, unsigned mark, bool *passed);
int sy_side_idle(struct sy_side *side, bool *idle);
/* CUDA's handle of this stream, for libraries. */
void *sy_side_handle(struct sy_side *side);
/* Into this stream: to[i] = from[i] + from[n + i] + ... of n_parts, in this order. `to` is none of `from`. */
int sy_side_add(struct sy_side *side, int n_parts, const void *from, uint64_t n, void *to);
int sy_side_to_host(struct sy_side *side, const void *from, void *host, uint64_t bytes);
int sy_side_to_device(struct sy_side *side, const void *host, void *to, uint64_t bytes);

#endif
