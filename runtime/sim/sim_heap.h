/* An indexed heap: items 0..n-1, each with a key that can change, the smallest first; among equal keys the smallest item.
 * Everything is O(log n), with four children a node. */
#ifndef SY_SIM_SIM_HEAP_H
#define SY_SIM_SIM_HEAP_H

#include <stdint.h>

struct sy_sim_heap {
    int n;
    uint64_t *keys; /* by item */
    int *items;     /* by place */
    int *places;    /* by item */
};

/* All keys are UINT64_MAX. ENOMEM_HOST. */
int sy_sim_heap_init(struct sy_sim_heap *h, int n);
void sy_sim_heap_finish(struct sy_sim_heap *h);
void sy_sim_heap_set(struct sy_sim_heap *h, int item, uint64_t key);
static inline int sy_sim_heap_first(const struct sy_sim_heap *h)
{
    return h->items[0];
}

#endif
