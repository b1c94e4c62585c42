/* Threads for what takes longer than a millisecond: parsing and writing large JSON, (de)compression. The loop hands work over and gets it back.
 *
 * O1: work sees only what was handed over: nothing of the core, the slab's books or a connection.
 * O2: at most `most_waiting` pieces wait; more are refused with EBUSY. */
#ifndef SY_RUNTIME_FRONT_REQUEST_OFFLOAD_H
#define SY_RUNTIME_FRONT_REQUEST_OFFLOAD_H

#include <stdbool.h>
#include <stddef.h>

struct event_base;
struct sy_offload;

int sy_offload_create(struct event_base *base, int n_threads, int most_waiting,
                      struct sy_offload **out);
/* Waits for what runs; what waits is not run, but its `done` is called. What a `done` hands over then is refused with EBUSY. */
void sy_offload_destroy(struct sy_offload *offload); /* NULL is fine */
/* True once sy_offload_destroy has begun: work that takes long looks at it and ends. */
const _Atomic bool *sy_offload_stops(const struct sy_offload *offload);
/* `work` runs on a thread (of lower priority than the loop's), then `done` on the loop. EBUSY, ENOMEM_HOST: neither is called. */
int sy_offload_run(struct sy_offload *offload, void (*work)(void *ctx), void (*done)(void *ctx),
                   void *ctx);
/* Neither works nor has handed anything over that `done` was not called for. */
bool sy_offload_is_idle(struct sy_offload *offload);
/* Frees a malloc'd block; on a thread where giving its pages back would hold the loop. offload, block: NULL is fine. */
void sy_offload_free(struct sy_offload *offload, void *block, size_t bytes);

#endif
