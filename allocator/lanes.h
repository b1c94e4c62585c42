/* Lanes (Salus): which training jobs share ephemeral memory, and at which offsets. Pure: offsets and values only.
 *
 * A job has a persistent part P, which keeps its offset from admission to the end, and an ephemeral peak E, which it needs
 * only while one of its iterations runs. Jobs of one lane take turns at iteration boundaries, when the lane is empty; lanes
 * run beside each other.
 *
 *   0                                                                       pool
 *   | P0 | P1 |  P2  | models ...        free            | lane 2 | lane 1 |  lane 0  |
 *     persistent parts grow up -->                       <-- lanes grow down
 *
 *   join ──> waiting ──(sy_lanes_next)──> admitted ── begin ──> running ── end ──> admitted ── leave
 *
 * L1: sum of P + sum over lanes of the lane's bytes <= capacity, whenever a job is admitted; a lane has at least
 *     the largest E of its jobs. So an admitted job never fails for memory.
 * L2: at most one iteration runs in a lane.
 * L3: a lane's bounds move only while nothing runs in it. No byte is ever copied.
 * L4: persistent parts never move.
 * L5: a job waits only if no choice of lane admits it; with `regroup`, only if not even all jobs in one lane would, and when
 *     all lanes are empty at once there are as many lanes as the sums allow.
 * L6: no job is overtaken more than `max_overtakes` times by jobs behind it in the queue.
 *
 * After each call that may change something (join, end, leave, set_capacity, retry), call sy_lanes_next until it
 * gives false. */
#ifndef SY_ALLOCATOR_LANES_H
#define SY_ALLOCATOR_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/pool.h"
#include "allocator/quota.h"

struct sy_lanes;

#define SY_LANES_MAX_PIECES 8

struct sy_lanes_config {
    uint64_t capacity_bytes; /* bytes of the pool available to all jobs together */
    int max_jobs;            /* waiting and admitted, 1..4096 */
    int max_overtakes;       /* L6 */
    /* put jobs together into fewer lanes rather than let one wait, and apart again when there is room */
    bool regroup;
};

struct sy_lane_job {
    uint64_t id; /* the caller's, each in use once */
    int tenant;
    uint64_t persistent_bytes, ephemeral_bytes; /* rounded up to SY_POOL_ALIGN; either may be 0 */
    /* the queue's order: smallest first, then by arrival. All equal: first come, first served */
    uint64_t rank;
    int max_pieces; /* in how many blocks the persistent part may lie, 1..SY_LANES_MAX_PIECES */
    /* it was admitted before and was preempted: it waits, and is not rejected for its sizes or its quota */
    bool again;
};

struct sy_lane_piece {
    uint64_t offset, bytes;
};

/* What changed for one job: it was admitted, or moved to another lane. */
struct sy_lanes_change {
    uint64_t job;
    int lane;
    bool admitted;
};

struct sy_lanes_counts {
    uint64_t n_admitted, n_new, n_joined, n_grown; /* by the step that found the lane */
    uint64_t n_regrouped;                          /* times that all lanes were put together anew */
    uint64_t n_moves, n_barriers; /* of a lane's bounds; waits until all lanes were empty */
    uint64_t copied_bytes;        /* live bytes that a move had to carry along: 0 (L3) */
};

/* `pool` and `quotas` (may be NULL) are borrowed and outlive the lanes; the pool is shared with models. One thread, together
 * with all other use of the pool. EARG, ENOMEM_HOST. */
int sy_lanes_new(struct sy_pool *pool, struct sy_quotas *quotas,
                 const struct sy_lanes_config *config, struct sy_lanes **out);
/* Gives all blocks back. NULL is fine. */
void sy_lanes_free(struct sy_lanes *l);

/* Puts a job into the queue. ENOMEM_DEVICE: it can never fit, with the sizes; EBUSY: the queue or the tenant's quota is
 * full; EARG. On failure nothing changed. */
int sy_lanes_join(struct sy_lanes *l, const struct sy_lane_job *job);
/* Ended, canceled, or its worker or client is gone, in whatever state: all it had is given back at once, the lane
 * shrinks or closes. ENOTFOUND. */
int sy_lanes_leave(struct sy_lanes *l, uint64_t job);
/* One iteration begins: *ephemeral_offset is valid until its end (0 with E = 0). EBUSY: another job of the lane runs, or all lanes
 * drain (a job is admitted at this boundary): ask again after the next change. ENOTFOUND: not admitted. */
int sy_lanes_begin(struct sy_lanes *l, uint64_t job, uint64_t *ephemeral_offset);
/* The iteration is over and its ephemeral memory empty. EARG: it does not run. */
int sy_lanes_end(struct sy_lanes *l, uint64_t job);
/* The queue's order again, as when its remaining time is known better. ENOTFOUND: not waiting. */
int sy_lanes_set_rank(struct sy_lanes *l, uint64_t job, uint64_t rank);
/* Less than what is in use takes nothing away; no job is admitted. */
void sy_lanes_set_capacity(struct sy_lanes *l, uint64_t capacity_bytes);
/* Bytes that jobs may get at another time, if more than now: only a job that needs more than this is rejected for good. Until
 * the next sy_lanes_set_capacity. */
void sy_lanes_set_most(struct sy_lanes *l, uint64_t most_bytes);

/* Lets jobs in, shifts and regroups lanes where they are empty; true and one job's news, or false. */
bool sy_lanes_next(struct sy_lanes *l, struct sy_lanes_change *out);
/* The sums admit a waiting job, now or once the lanes are empty. */
bool sy_lanes_could_admit(const struct sy_lanes *l);
/* Bytes that a waiting job needs in one piece and that the pool has not, though the sums allow it: others' blocks are in
 * the way. Make room (sy_residency_make_room), then sy_lanes_retry. 0: none. */
uint64_t sy_lanes_wanted_bytes(const struct sy_lanes *l);
void sy_lanes_retry(struct sy_lanes *l);

/* Puts all lanes beside each other at the pool's top, so that what is free is in one piece but for what lies between persistent parts.
 * False: some lane is not empty, or others' blocks are in the way; nothing changed then. */
bool sy_lanes_compact(struct sy_lanes *l);

/* ---- looking ---- */
/* The lane of an admitted job, -1 for any other. Lanes are small integers, used again after they close. */
int sy_lanes_lane_of(const struct sy_lanes *l, uint64_t job);
/* Extents of an admitted job's persistent part; returns their number, up to SY_LANES_MAX_PIECES. */
int sy_lanes_pieces(const struct sy_lanes *l, uint64_t job, struct sy_lane_piece *out);
/* False: no such lane. */
bool sy_lanes_bounds(const struct sy_lanes *l, int lane, uint64_t *offset, uint64_t *bytes,
                     int *n_jobs);
int sy_lanes_n_lanes(const struct sy_lanes *l);
int sy_lanes_n_waiting(const struct sy_lanes *l);
bool sy_lanes_draining(const struct sy_lanes *l); /* all lanes wait to be empty */
uint64_t sy_lanes_persistent_bytes(const struct sy_lanes *l);
uint64_t sy_lanes_ephemeral_bytes(const struct sy_lanes *l); /* sum of the lanes */
struct sy_lanes_counts sy_lanes_counts(const struct sy_lanes *l);
/* The invariant walker: L1..L3, each block in use in the pool, sums and quotas. Linear in jobs and extents. */
bool sy_lanes_is_valid(const struct sy_lanes *l);

#endif
