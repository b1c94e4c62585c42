/* The first item: items 0..n-1, each with a key that can change, the smallest first; among equal keys the smallest item.
 *
 *   level 2                     3 7             each place: the least of eight of the level below, and whose it is
 *   level 1          5 3 9 8 4 6 3 3   7 ...
 *   level 0    5 6 . . . . . . | 3 8 ...        keys by item; eight are a cache line
 *
 * A change goes up from its item, as far as another is the least of its eight; the eight are compared only where their least became more.
 * Where to look is known from the item alone and each step is the same few instructions whatever the keys are: a heap of 10 000 waits for
 * seven guesses in a row, each as often wrong as right. */
#ifndef SY_SIM_SIM_TREE_H
#define SY_SIM_SIM_TREE_H

#include <stdbool.h>
#include <stdint.h>

#define SY_SIM_TREE_LEVELS 8

struct sy_sim_level {
    int n;
    uint64_t *keys; /* of eight times as many places as the level above has */
    int32_t *items; /* whose they are; NULL at level 0 */
};

struct sy_sim_tree {
    int n_levels, wide; /* wide: the level with some tens of places */
    struct sy_sim_level levels[SY_SIM_TREE_LEVELS];
    uint64_t *later; /* bits of eights of level 0 that changed, and nothing above them yet */
    bool has_later;
    uint64_t first_key;
    int32_t first;
};

/* All keys are UINT64_MAX. 1 <= n <= 8^8. ENOMEM_HOST. */
int sy_sim_tree_init(struct sy_sim_tree *t, int n);
void sy_sim_tree_finish(struct sy_sim_tree *t); /* zeroed is fine */
/* Gives an item that now is among the few tens of which one is next, and was not, or had no time; -1: none. Below 65 all are. */
int sy_sim_tree_set(struct sy_sim_tree *t, int item, uint64_t key);
/* Sets a key where the first item is asked for less often than keys change: the tree is valid again after sy_sim_tree_settle. */
void sy_sim_tree_set_later(struct sy_sim_tree *t, int item, uint64_t key);
void sy_sim_tree_settle(struct sy_sim_tree *t);
static inline int sy_sim_tree_first(const struct sy_sim_tree *t)
{
    return t->first;
}
static inline uint64_t sy_sim_tree_first_key(const struct sy_sim_tree *t)
{
    return t->first_key;
}

#endif
