/* The lanes' invariant walker. */
#include "allocator/lanes_internal.h"
#include "allocator/pool_claims.h"

static bool job_is_valid(const struct sy_lanes *l, int slot, struct sy_pool_claims *claims)
{
    const struct job_books *j = &l->jobs[slot];
    uint64_t sum = 0;
    if (j->lane < 0)
        return j->n_pieces == 0 && !j->running && !j->announce;
    for (int i = 0; i < j->n_pieces; i++) {
        sum += j->pieces[i].bytes;
        if (!sy_pool_claim(claims, j->pieces[i].offset, j->pieces[i].bytes))
            return false;
    }
    const struct lane_books *lane = &l->lanes[j->lane];
    return sum == j->is.persistent_bytes && lane->n_jobs > 0 &&
           lane->bytes >= j->is.ephemeral_bytes && /* L1 */
           j->running == (lane->running == slot);  /* L2 */
}

static bool lanes_are_valid(const struct sy_lanes *l, struct sy_pool_claims *claims)
{
    uint64_t sum = 0;
    int n = 0;
    for (int i = 0; i < l->config.max_jobs; i++) {
        const struct lane_books *lane = &l->lanes[i];
        int n_jobs = 0;
        for (int k = 0; lane->n_jobs > 0 && k < l->config.max_jobs; k++)
            n_jobs += l->jobs[k].used && l->jobs[k].lane == i;
        if (n_jobs != lane->n_jobs || (n_jobs == 0 && lane->bytes > 0) ||
            (lane->bytes > 0 && !sy_pool_claim(claims, lane->offset, lane->bytes)))
            return false;
        sum += lane->bytes;
        n += n_jobs > 0;
    }
    return sum == l->ephemeral_bytes && n == l->n_lanes;
}

static bool jobs_are_valid(const struct sy_lanes *l, struct sy_pool_claims *claims)
{
    uint64_t sum = 0;
    int n_waiting = 0, n_running = 0, n_announce = 0;
    for (int i = 0; i < l->config.max_jobs; i++) {
        const struct job_books *j = &l->jobs[i];
        if (!j->used)
            continue;
        if (!job_is_valid(l, i, claims))
            return false;
        sum += j->lane >= 0 ? j->is.persistent_bytes : 0;
        n_waiting += j->lane < 0;
        n_running += j->running;
        n_announce += j->announce;
    }
    return sum == l->persistent_bytes && n_waiting == l->n_waiting && n_running == l->n_running &&
           n_announce == l->n_announce;
}

/* Without memory to look nothing is known to be broken. */
bool sy_lanes_is_valid(const struct sy_lanes *l)
{
    struct sy_pool_claims claims;
    if (!sy_pool_is_valid(l->pool))
        return false;
    if (!sy_pool_claims_init(&claims, l->pool))
        return true;
    bool valid = jobs_are_valid(l, &claims) && lanes_are_valid(l, &claims) &&
                 l->persistent_bytes + l->ephemeral_bytes <= sy_pool_capacity_bytes(l->pool) &&
                 l->counts.copied_bytes == 0;
    sy_pool_claims_finish(&claims);
    return valid;
}
