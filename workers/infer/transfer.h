/* The worker's side of the link: one thread that queues a run's copies, image to pool, back to back.
 *
 *   image word:     HERE      HERE             COMING ...... HERE
 *   feeder thread:  copy g0 | copy g1 | copy ...... waits .. copy g2
 *   copy stream:    [g0]e0[g1]e1 ...                         [g2]e2
 *   compute:        wait e0, layers of g0, wait e1, layers of g1, ...
 *
 * X1: the copy stream belongs to the feeder thread, the compute stream to the worker's main thread.
 * X2: an event is waited for only after it was recorded (a wait on an unrecorded event would pass), so
 *     the compute thread first waits until the feeder has queued the group, which is at once when the image holds it.
 * X3: a group that takes the place of an earlier one (cycling) is queued after that one was launched, behind its event.
 * X4: every wait ends: a failed arrival, a failed copy or sy_transfer_end ends the run with a status.
 * X5: a run that is not urgent copies chunk by chunk, each only when the link's rule lets it (runtime/wire/link_turn.h). While an urgent
 *     run has copies to make, the board says so.
 * X6: a copy is queued while at most 16 MiB are in flight before it. What is queued cannot be withdrawn, and a preempted run keeps
 *     the device until its copies are through.
 *
 * On a unified device nothing is copied: the compute thread waits for the arrival words themselves. */
#ifndef SY_WORKERS_INFER_TRANSFER_H
#define SY_WORKERS_INFER_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/device/device.h"
#include "runtime/wire/control_page.h"
#include "runtime/wire/link_turn.h"

#define SY_RUN_MAX_GROUPS 1024

struct sy_transfer_group {
    uint64_t pool_offset, bytes;
    const void *image; /* discrete device: where the bytes come from */
    _Atomic uint32_t *
        arrival; /* enum sy_arrival: of the image, or of the pool on a unified device; NULL: here */
    bool resident; /* nothing to copy */
    bool direct;   /* nothing to copy: computing reads it in the image, once it is there */
    int32_t
        after_group; /* -1, or the group that must be computed before the bytes may be overwritten */
};

struct sy_transfer;

/* `link_core`: core of the feeder thread and of the emulated link, -1: any. Device and pool are borrowed. */
int sy_transfer_create(struct sy_device *device, struct sy_pool_memory *pool, int link_core,
                       struct sy_transfer **out);
void sy_transfer_destroy(struct sy_transfer *transfer);

/* The board on which workers, each in its slot, show what they have in flight on the link; NULL, the default: nobody else uses the link. Borrowed. */
void sy_transfer_set_board(struct sy_transfer *transfer, struct sy_link_board *board, int slot);
/* A run begins as urgent; another class before the first add. Becoming urgent later takes effect at the next chunk. */
void sy_transfer_set_class(struct sy_transfer *transfer, enum sy_link_class link_class);

/* A run begins with no groups; add appends (EARG over SY_RUN_MAX_GROUPS). Copies start at once. */
void sy_transfer_begin(struct sy_transfer *transfer);
int sy_transfer_add(struct sy_transfer *transfer, const struct sy_transfer_group *groups, int n);
int sy_transfer_n_groups(const struct sy_transfer *transfer);
const struct sy_transfer_group *sy_transfer_group(const struct sy_transfer *transfer, int group);

/* Compute thread: returns when group `group` is in the pool. beat(ctx) is called at least every 100 ms while it waits. EIO when it
 * could not be read, EDEVICE when it could not be copied. */
int sy_transfer_wait(struct sy_transfer *transfer, int group, struct sy_stream *compute,
                     void (*beat)(void *ctx), void *ctx);
/* Compute thread: the work of `group` was launched into `compute`. */
int sy_transfer_computed(struct sy_transfer *transfer, int group, struct sy_stream *compute);
/* When the work of `group` was done and its bytes were there, of a device that computes by itself and is idle now; 0, 0: not known. */
void sy_transfer_computed_span(const struct sy_transfer *transfer, int group, sy_ns *arrived,
                               sy_ns *computed);
/* OK, or why some group cannot come any more. */
int sy_transfer_status(struct sy_transfer *transfer);
/* Leading groups that are in the pool now. */
int sy_transfer_n_arrived(struct sy_transfer *transfer);
/* Ends the run: what is queued finishes, what is not is dropped. */
void sy_transfer_end(struct sy_transfer *transfer);
/* When the copy of `group` began and ended; 0, 0 when there was none (yet). */
void sy_transfer_span(const struct sy_transfer *transfer, int group, sy_ns *start, sy_ns *end);

#endif
