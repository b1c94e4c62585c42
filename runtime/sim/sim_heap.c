#include "runtime/sim/sim_heap.h"

#include <stdbool.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_memory.h"

#define CHILDREN 4

int sy_sim_heap_init(struct sy_sim_heap *h, int n)
{
    *h = (struct sy_sim_heap){n, sy_sim_zeroed((size_t)n, sizeof *h->keys),
                              sy_sim_zeroed((size_t)n, sizeof *h->items),
                              sy_sim_zeroed((size_t)n, sizeof *h->places)};
    if (!h->keys || !h->items || !h->places)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d devices", n);
    for (int i = 0; i < n; i++) {
        h->keys[i] = UINT64_MAX;
        h->items[i] = h->places[i] = i;
    }
    return SY_OK;
}

void sy_sim_heap_finish(struct sy_sim_heap *h)
{
    free(h->keys);
    free(h->items);
    free(h->places);
    *h = (struct sy_sim_heap){0, NULL, NULL, NULL};
}

static bool is_before(const struct sy_sim_heap *h, int a, int b)
{
    return h->keys[a] != h->keys[b] ? h->keys[a] < h->keys[b] : a < b;
}

static void put(struct sy_sim_heap *h, int place, int item)
{
    h->items[place] = item;
    h->places[item] = place;
}

static void sink(struct sy_sim_heap *h, int place, int item)
{
    for (;;) {
        int best = CHILDREN * place + 1, end = SY_MIN(best + CHILDREN, h->n);
        if (best >= h->n)
            break;
        for (int child = best + 1; child < end; child++)
            if (is_before(h, h->items[child], h->items[best]))
                best = child;
        if (!is_before(h, h->items[best], item))
            break;
        put(h, place, h->items[best]);
        place = best;
    }
    put(h, place, item);
}

void sy_sim_heap_set(struct sy_sim_heap *h, int item, uint64_t key)
{
    int place = h->places[item];
    if (h->keys[item] == key)
        return;
    h->keys[item] = key;
    while (place > 0 && is_before(h, item, h->items[(place - 1) / CHILDREN])) {
        put(h, place, h->items[(place - 1) / CHILDREN]);
        place = (place - 1) / CHILDREN;
    }
    sink(h, place, item);
}
