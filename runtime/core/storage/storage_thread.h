/* The runtime's reader: one thread that brings groups from storage to their place, so that the loop never waits.
 *
 *   loop ──job──> [queue, bounded] ──> thread: read, verify, arrival word = HERE, wake ──> done list, eventfd ──> loop
 *
 * Y1: each of a job's arrival words becomes HERE or FAILED before its done call, so that no worker waits for ever.
 * Y2: nothing is written to a job's places after its done call.
 * Y4: urgent jobs first; one that is not reads chunk by chunk by the link's rule (runtime/wire/link_turn.h), since where there is no link
 *     storage is what swaps share.
 * Y5: of a package that still arrives only what is there is read; a job that waits for more keeps no other from its turn. It ends when the
 *     source fails (EIO, with the source's words).
 * Y3: a group that overwrites an earlier one (after_group) is read once the worker's run_progress has passed that one. */
#ifndef SY_RUNTIME_CORE_STORAGE_THREAD_H
#define SY_RUNTIME_CORE_STORAGE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/package/package.h"
#include "runtime/base/clock.h"
#include "runtime/wire/control_page.h"

#define SY_STORAGE_MAX_JOBS 16

struct event_base;
struct sy_pool_memory;
struct sy_storage_thread;

struct sy_storage_group {
    int group, first_layer, n_layers;
    int32_t after_group; /* -1: at once */
    uint64_t file_offset, bytes;
    void *to;
    uint64_t pool_offset;      /* of `to`, if the job has a pool */
    _Atomic uint32_t *arrival; /* COMING when the job is added */
    bool is_kept; /* its bytes may lie at `to` already: read only if they do not verify */
};

struct sy_storage_job {
    uint64_t run;
    _Atomic bool urgent;                /* else it gives way after each chunk: Y4 */
    int model, first_group, n_span;     /* as in the scheduler's READ; for the caller */
    const struct sy_package *package;   /* borrowed until done */
    const struct sy_control_page *page; /* of the worker that runs it: Y3 */
    struct sy_pool_memory *pool; /* what is read into, borrowed until done; NULL: other memory */
    int n_groups;
    struct sy_storage_group *groups; /* malloc'd; owned by the job */
    /* filled in by the thread */
    int status;
    char error[256];
    uint64_t bytes, kept_bytes; /* read; there already */
    sy_ns start_ns, end_ns;
    /* private */
    _Atomic bool cancel;
    int n_looked_at, n_to_read; /* the groups to read come first, from then on */
    int at_group;               /* the first that is not read to its end */
    uint64_t at_bytes;          /* of it, read */
    sy_ns waits_since_ns;
    struct sy_storage_job *next;
};

/* done is called in the loop's thread, in the order in which jobs end; the thread frees the job after it. */
int sy_storage_thread_create(struct event_base *base,
                             void (*done)(void *ctx, const struct sy_storage_job *job), void *ctx,
                             struct sy_storage_thread **out);
/* Cancels all jobs and waits for the thread; no done calls. NULL is fine. */
void sy_storage_thread_destroy(struct sy_storage_thread *t);
/* Takes the malloc'd job over. EBUSY (it stays the caller's): SY_STORAGE_MAX_JOBS are waiting. */
int sy_storage_thread_add(struct sy_storage_thread *t, struct sy_storage_job *job);
/* The run's remaining reads are urgent from now on. */
void sy_storage_thread_promote(struct sy_storage_thread *t, uint64_t run);
/* The run's jobs end as soon as they can; their done call is still made. */
void sy_storage_thread_cancel(struct sy_storage_thread *t, uint64_t run);
/* Some package's arrival (loader/package/arrival.h) moved: jobs that wait for it look again. */
void sy_storage_thread_arrived(struct sy_storage_thread *t);
void sy_storage_job_free(struct sy_storage_job *job);

#endif
