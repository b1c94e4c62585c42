/* An indexed heap: items 0..n-1, each with a key that can change, the smallest first; among equal keys the smallest item.
 * Everything is O(log n), with four children a node, which lie in one cache line:
 *
 *   node   . . . 0 | 1 2 3 4 | 5 6 7 8 | ...      16 bytes each, key and item */
#ifndef SY_SIM_SIM_HEAP_H
#define SY_SIM_SIM_HEAP_H

#include <stdint.h>

struct sy_sim_node {
    uint64_t key;
    int64_t item;
};

struct sy_sim_heap {
    int n;
    struct sy_sim_node *nodes; /* by place; three unused ones before */
    int *places;               /* by item */
};

/* All keys are UINT64_MAX. ENOMEM_HOST. */
int sy_sim_heap_init(struct sy_sim_heap *h, int n);
void sy_sim_heap_finish(struct sy_sim_heap *h);
void sy_sim_heap_set(struct sy_sim_heap *h, int item, uint64_t key);
static inline int sy_sim_heap_first(const struct sy_sim_heap *h)
{
    return (int)h->nodes[0].item;
}
static inline uint64_t sy_sim_heap_first_key(const struct sy_sim_heap *h)
{
    return h->nodes[0].key;
}

#endif
