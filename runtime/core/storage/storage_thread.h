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
    uint64_t pool_offset;      /* offset of `to`, if the job has a pool */
    _Atomic uint32_t *arrival; /* COMING when the job is added */
    bool is_kept; /* its bytes may be at `to` already: read only if they do not verify */
};

struct sy_storage_job {
    uint64_t run;
    _Atomic bool urgent;                /* otherwise it yields after each chunk: Y4 */
    int model, first_group, n_span;     /* as in the scheduler's READ; for the caller */
    const struct sy_package *package;   /* borrowed until done */
    const struct sy_control_page *page; /* control page of the worker that runs it: Y3 */
    struct sy_pool_memory *pool; /* memory to read into, borrowed until done; NULL: other memory */
    int n_groups;
    struct sy_storage_group *groups; /* malloc'd; owned by the job */
    /* filled in by the thread */
    int status;
    char error[256];
    uint64_t bytes, kept_bytes; /* bytes read; bytes already in place */
    sy_ns start_ns, end_ns;
    /* private */
    _Atomic bool cancel;
    int n_verified, n_to_read; /* groups[0..n_to_read) are to be read, once all were verified */
    int at_group;              /* the first group that is not read completely */
    uint64_t at_bytes;         /* bytes of that group already read */
    sy_ns waits_since_ns;
    struct sy_storage_job *next;
};

/* done is called in the loop's thread, in the order in which jobs end; the job is freed after it returns. */
int sy_storage_thread_create(struct event_base *base,
                             void (*done)(void *ctx, const struct sy_storage_job *job), void *ctx,
                             struct sy_storage_thread **out);
/* Cancels all jobs and waits for the thread; done is not called. NULL is fine. */
void sy_storage_thread_destroy(struct sy_storage_thread *t);
/* Takes ownership of the malloc'd job. EBUSY (it stays the caller's): SY_STORAGE_MAX_JOBS are waiting. */
int sy_storage_thread_add(struct sy_storage_thread *t, struct sy_storage_job *job);
/* Makes the run's remaining reads urgent. */
void sy_storage_thread_promote(struct sy_storage_thread *t, uint64_t run);
/* Ends the run's jobs as soon as possible; done is still called for each. */
void sy_storage_thread_cancel(struct sy_storage_thread *t, uint64_t run);
/* A package's arrival (loader/package/arrival.h) has progressed: waiting jobs check it again. */
void sy_storage_thread_arrived(struct sy_storage_thread *t);
void sy_storage_job_free(struct sy_storage_job *job);

#endif
