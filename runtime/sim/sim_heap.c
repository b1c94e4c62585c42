#include "runtime/sim/sim_heap.h"

#include <stdbool.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_memory.h"

#define CHILDREN 4
#define BEFORE   (CHILDREN - 1) /* so that the first child is at a multiple of four */
#define LINE     64

int sy_sim_heap_init(struct sy_sim_heap *h, int n)
{
    size_t bytes = SY_ALIGN_UP(((size_t)n + BEFORE) * sizeof *h->nodes, LINE);
    char *memory = aligned_alloc(LINE, bytes);
    *h = (struct sy_sim_heap){n, memory ? (struct sy_sim_node *)(void *)memory + BEFORE : NULL,
                              sy_sim_zeroed((size_t)n, sizeof *h->places)};
    if (!memory || !h->places)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d devices", n);
    for (int i = 0; i < n; i++) {
        h->nodes[i] = (struct sy_sim_node){UINT64_MAX, i};
        h->places[i] = i;
    }
    return SY_OK;
}

void sy_sim_heap_finish(struct sy_sim_heap *h)
{
    free(h->nodes ? h->nodes - BEFORE : NULL);
    free(h->places);
    *h = (struct sy_sim_heap){0, NULL, NULL};
}

static bool is_before(struct sy_sim_node a, struct sy_sim_node b)
{
    return a.key != b.key ? a.key < b.key : a.item < b.item;
}

static void put(struct sy_sim_heap *h, int place, struct sy_sim_node node)
{
    h->nodes[place] = node;
    h->places[node.item] = place;
}

static void sink(struct sy_sim_heap *h, int place, struct sy_sim_node node)
{
    for (;;) {
        int best = CHILDREN * place + 1, end = SY_MIN(best + CHILDREN, h->n);
        if (best >= h->n)
            break;
        for (int child = best + 1; child < end; child++)
            if (is_before(h->nodes[child], h->nodes[best]))
                best = child;
        if (!is_before(h->nodes[best], node))
            break;
        put(h, place, h->nodes[best]);
        place = best;
    }
    put(h, place, node);
}

void sy_sim_heap_set(struct sy_sim_heap *h, int item, uint64_t key)
{
    int place = h->places[item];
    struct sy_sim_node node = {key, item};
    if (h->nodes[place].key == key)
        return;
    while (place > 0 && is_before(node, h->nodes[(place - 1) / CHILDREN])) {
        put(h, place, h->nodes[(place - 1) / CHILDREN]);
        place = (place - 1) / CHILDREN;
    }
    sink(h, place, node);
}
