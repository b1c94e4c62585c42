#include "runtime/sim/sim_tree.h"

#include <stdbool.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_memory.h"

#define WIDTH     8  /* of a cache line */
#define MOST_WIDE 64 /* places of the level that says who comes soon */

static int open_level(struct sy_sim_level *level, int n, bool has_items)
{
    size_t places = SY_ALIGN_UP((size_t)n, WIDTH);
    level->n = n;
    level->keys = sy_sim_zeroed(places, sizeof *level->keys);
    level->items = has_items ? sy_sim_zeroed(places, sizeof *level->items) : NULL;
    if (!level->keys || (has_items && !level->items))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d devices", n);
    for (size_t i = 0; i < places; i++)
        level->keys[i] = UINT64_MAX;
    return SY_OK;
}

int sy_sim_tree_init(struct sy_sim_tree *t, int n)
{
    *t = (struct sy_sim_tree){.first_key = UINT64_MAX};
    for (int width = 1; n > 0; width *= WIDTH) {
        struct sy_sim_level *level = &t->levels[t->n_levels++];
        SY_TRY(open_level(level, n, t->n_levels > 1));
        for (int i = 0; level->items && i < n; i++)
            level->items[i] = i * width;
        if (n > MOST_WIDE)
            t->wide = t->n_levels;
        n = n > WIDTH ? (n + WIDTH - 1) / WIDTH : 0;
    }
    return SY_OK;
}

void sy_sim_tree_finish(struct sy_sim_tree *t)
{
    for (int i = 0; i < t->n_levels; i++) {
        free(t->levels[i].keys);
        free(t->levels[i].items);
    }
    *t = (struct sy_sim_tree){0};
}

struct least {
    uint64_t key, place;
};

/* The first of equals. By masks, since gcc makes a jump of anything else, and which one it is nobody can guess. */
static inline struct least less(struct least a, struct least b)
{
    uint64_t second = -(uint64_t)(b.key < a.key);
    return (struct least){(a.key & ~second) | (b.key & second),
                          (a.place & ~second) | (b.place & second)};
}

static inline struct least least_of_eight(const uint64_t *k)
{
    struct least a = less((struct least){k[0], 0}, (struct least){k[1], 1});
    struct least b = less((struct least){k[2], 2}, (struct least){k[3], 3});
    struct least c = less((struct least){k[4], 4}, (struct least){k[5], 5});
    struct least d = less((struct least){k[6], 6}, (struct least){k[7], 7});
    return less(less(a, b), less(c, d));
}

int sy_sim_tree_set(struct sy_sim_tree *t, int item, uint64_t key)
{
    unsigned at = (unsigned)item;
    int soon = -1;
    if (t->levels[0].keys[item] == key)
        return -1;
    t->levels[0].keys[item] = key;
    for (int i = 0;; i++) {
        struct sy_sim_level *level = &t->levels[i];
        unsigned begin = at & ~(WIDTH - 1u);
        struct least least = least_of_eight(&level->keys[begin]);
        int least_item = (int)(begin + least.place);
        if (level->items)
            least_item = level->items[least_item];
        if (i == t->n_levels - 1) {
            t->first = least_item;
            t->first_key = least.key;
            return soon;
        }
        struct sy_sim_level *above = &t->levels[i + 1];
        at = begin / WIDTH;
        if (above->keys[at] == least.key && above->items[at] == least_item)
            return soon;
        if (i + 1 == t->wide && (above->items[at] != least_item || above->keys[at] == UINT64_MAX))
            soon = least_item;
        above->keys[at] = least.key;
        above->items[at] = least_item;
    }
}
