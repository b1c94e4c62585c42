/* The lanes' invariant walker. */
#include "allocator/lanes_internal.h"

#include <stdlib.h>

#include "runtime/base/assert.h"

/* The pool's used blocks in address order, each with whether a job or a lane said that it is its own. */
struct block {
    uint64_t offset, bytes;
    bool owned;
};

struct block_list {
    struct block *blocks;
    size_t n;
};

static void add_block(void *ctx, uint64_t offset, uint64_t bytes, bool used)
{
    struct block_list *list = ctx;
    if (used)
        list->blocks[list->n++] = (struct block){offset, bytes, false};
}

static int compare_block(const void *key, const void *element)
{
    uint64_t offset = *(const uint64_t *)key, at = ((const struct block *)element)->offset;
    return (offset > at) - (offset < at);
}

static bool claim(struct block_list *list, uint64_t offset, uint64_t bytes)
{
    struct block *b = bsearch(&offset, list->blocks, list->n, sizeof *list->blocks, compare_block);
    if (!b || b->owned || b->bytes != bytes)
        return false;
    b->owned = true;
    return true;
}

static bool job_is_valid(const struct sy_lanes *l, int slot, struct block_list *list)
{
    const struct job_books *j = &l->jobs[slot];
    uint64_t sum = 0;
    if (j->lane < 0)
        return j->n_pieces == 0 && !j->running && !j->announce;
    for (int i = 0; i < j->n_pieces; i++) {
        sum += j->pieces[i].bytes;
        if (!claim(list, j->pieces[i].offset, j->pieces[i].bytes))
            return false;
    }
    const struct lane_books *lane = &l->lanes[j->lane];
    return sum == j->is.persistent_bytes && lane->n_jobs > 0 &&
           lane->bytes >= j->is.ephemeral_bytes && /* L1 */
           j->running == (lane->running == slot);  /* L2 */
}

static bool lanes_are_valid(const struct sy_lanes *l, struct block_list *list)
{
    uint64_t sum = 0;
    int n = 0;
    for (int i = 0; i < l->config.max_jobs; i++) {
        const struct lane_books *lane = &l->lanes[i];
        int n_jobs = 0;
        for (int k = 0; lane->n_jobs > 0 && k < l->config.max_jobs; k++)
            n_jobs += l->jobs[k].used && l->jobs[k].lane == i;
        if (n_jobs != lane->n_jobs || (n_jobs == 0 && lane->bytes > 0) ||
            (lane->bytes > 0 && !claim(list, lane->offset, lane->bytes)))
            return false;
        sum += lane->bytes;
        n += n_jobs > 0;
    }
    return sum == l->ephemeral_bytes && n == l->n_lanes;
}

static bool jobs_are_valid(const struct sy_lanes *l, struct block_list *list)
{
    uint64_t sum = 0;
    int n_waiting = 0, n_running = 0, n_announce = 0;
    for (int i = 0; i < l->config.max_jobs; i++) {
        const struct job_books *j = &l->jobs[i];
        if (!j->used)
            continue;
        if (!job_is_valid(l, i, list))
            return false;
        sum += j->lane >= 0 ? j->is.persistent_bytes : 0;
        n_waiting += j->lane < 0;
        n_running += j->running;
        n_announce += j->announce;
    }
    return sum == l->persistent_bytes && n_waiting == l->n_waiting && n_running == l->n_running &&
           n_announce == l->n_announce;
}

bool sy_lanes_is_valid(const struct sy_lanes *l)
{
    struct block_list list = {calloc((size_t)sy_pool_n_blocks(l->pool) + 1, sizeof *list.blocks),
                              0};
    bool valid = list.blocks && sy_pool_is_valid(l->pool);
    if (valid) {
        sy_pool_walk(l->pool, add_block, &list);
        valid = jobs_are_valid(l, &list) && lanes_are_valid(l, &list) &&
                l->persistent_bytes + l->ephemeral_bytes <= sy_pool_capacity_bytes(l->pool) &&
                l->counts.copied_bytes == 0;
    }
    free(list.blocks);
    return valid;
}
