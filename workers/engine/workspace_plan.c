#include "workers/engine/workspace_plan.h"

#include <stdlib.h>

#include "loader/graph/engine.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static int larger_first(const void *a, const void *b)
{
    const struct sy_interval *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->id - y->id; /* the same plan every time */
}

static int lower_first(const void *a, const void *b)
{
    const struct sy_interval *x = *(struct sy_interval *const *)a,
                             *y = *(struct sy_interval *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Lowest offset where `v` fits beside the `n` neighbours alive with it (sorted by offset). */
static uint64_t lowest_fit(const struct sy_interval *v, struct sy_interval *const *neighbours,
                           int n)
{
    uint64_t at = 0;
    for (int i = 0; i < n; i++) {
        if (neighbours[i]->offset >= at + v->bytes)
            break;
        uint64_t end =
            neighbours[i]->offset + SY_ALIGN_UP(neighbours[i]->bytes, (uint64_t)SY_PARAM_ALIGN);
        at = SY_MAX(at, end);
    }
    return at;
}

int sy_workspace_plan(struct sy_interval *intervals, int n, uint64_t *total_bytes)
{
    struct sy_interval **alive = calloc((size_t)n + 1, sizeof(struct sy_interval *));
    SY_TRY_ALLOC(alive, "no memory to plan %d values", n);
    qsort(intervals, (size_t)n, sizeof *intervals, larger_first);
    *total_bytes = 0;
    for (int i = 0; i < n; i++) {
        int n_alive = 0;
        for (int k = 0; k < i; k++)
            if (intervals[k].first <= intervals[i].last && intervals[i].first <= intervals[k].last)
                alive[n_alive++] = &intervals[k];
        qsort(alive, (size_t)n_alive, sizeof(struct sy_interval *), lower_first);
        intervals[i].offset = lowest_fit(&intervals[i], alive, n_alive);
        uint64_t end =
            SY_ALIGN_UP(intervals[i].offset + intervals[i].bytes, (uint64_t)SY_PARAM_ALIGN);
        *total_bytes = SY_MAX(*total_bytes, end);
    }
    free(alive);
    return SY_OK;
}
