#include "runtime/sim/sim_tree.h"

#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_memory.h"

#define WIDTH      8 /* entries per cache line */
#define WIDTH_BITS 3
#define MOST_WIDE  64 /* places of the level that says which items come soon */

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
    t->later = sy_sim_zeroed(((size_t)n + WIDTH * 64 - 1) / (WIDTH * 64), sizeof *t->later);
    if (!t->later)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d devices", n);
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
    free(t->later);
    *t = (struct sy_sim_tree){0};
}

struct entry {
    uint64_t key;
    int32_t item;
};

static inline uint64_t less(uint64_t a, uint64_t b)
{
    return b < a ? b : a;
}

/* Where it is, the first of equals. Without a branch: it could not be predicted. */
static inline unsigned place_of(uint64_t key, const uint64_t *k)
{
    unsigned place = 7;
    place = k[6] == key ? 6 : place;
    place = k[5] == key ? 5 : place;
    place = k[4] == key ? 4 : place;
    place = k[3] == key ? 3 : place;
    place = k[2] == key ? 2 : place;
    place = k[1] == key ? 1 : place;
    return k[0] == key ? 0 : place;
}

static inline uint64_t least_of_eight(const uint64_t *k)
{
    return less(less(less(k[0], k[1]), less(k[2], k[3])), less(less(k[4], k[5]), less(k[6], k[7])));
}

/* The least of the eight entries at a level around `at`, and its owner. */
static struct entry least_around(const struct sy_sim_level *level, unsigned at)
{
    unsigned begin = at & ~(WIDTH - 1u);
    uint64_t least = least_of_eight(&level->keys[begin]);
    int place = (int)(begin + place_of(least, &level->keys[begin]));
    return (struct entry){least, level->items ? level->items[place] : place};
}

/* `now` is what the place `at` of level i has become. Only if the least of eight became more are the eight looked at again. */
static int climb(struct sy_sim_tree *t, int i, unsigned at, struct entry now)
{
    int soon = -1;
    for (;; i++, at /= WIDTH) {
        bool top = i == t->n_levels - 1;
        struct sy_sim_level *above = &t->levels[i + 1];
        uint64_t *least = top ? &t->first_key : &above->keys[at / WIDTH];
        int32_t *whose = top ? &t->first : &above->items[at / WIDTH];
        if ((unsigned)*whose >> (WIDTH_BITS * i) != at) {
            if (now.key > *least || (now.key == *least && now.item > *whose))
                return soon;
        } else if (now.key > *least) {
            now = least_around(&t->levels[i], at);
        }
        if (*least == now.key && *whose == now.item)
            return soon;
        if (i + 1 == t->wide && (*whose != now.item || *least == UINT64_MAX))
            soon = now.item;
        *least = now.key;
        *whose = now.item;
        if (top)
            return soon;
    }
}

int sy_sim_tree_set(struct sy_sim_tree *t, int item, uint64_t key)
{
    if (t->levels[0].keys[item] == key)
        return -1;
    t->levels[0].keys[item] = key;
    return climb(t, 0, (unsigned)item, (struct entry){key, item});
}

void sy_sim_tree_set_later(struct sy_sim_tree *t, int item, uint64_t key)
{
    t->levels[0].keys[item] = key;
    t->later[item / (WIDTH * 64)] |= 1ull << (item / WIDTH % 64);
    t->has_later = true;
}

static void settle_eight(struct sy_sim_tree *t, unsigned at)
{
    struct entry now = least_around(&t->levels[0], at);
    if (t->n_levels == 1) {
        t->first_key = now.key;
        t->first = now.item;
        return;
    }
    t->levels[1].keys[at / WIDTH] = now.key;
    t->levels[1].items[at / WIDTH] = now.item;
    climb(t, 1, at / WIDTH, now);
}

void sy_sim_tree_settle(struct sy_sim_tree *t)
{
    int n_words = t->has_later ? (t->levels[0].n + WIDTH * 64 - 1) / (WIDTH * 64) : 0;
    for (int i = 0; i < n_words; i++)
        for (; t->later[i]; t->later[i] &= t->later[i] - 1)
            settle_eight(t, (unsigned)(i * 64 + __builtin_ctzll(t->later[i])) * WIDTH);
    t->has_later = false;
}
