/* Extents tile the pool and are linked in address order. Used ones are found by their offset in a hash table (for give), free
 * ones by (bytes, offset) in a treap (for best fit).
 *
 *   address order   [used]-[free]-[used]-[used]-[free]
 *   used table      offset to slot     free treap   by bytes, then offset
 *
 * Extents are slots of one array, named by index, so that copying a pool is two memcpys. Slot 0 is
 * "none". Depth of a treap is about 2 log2 n: 30 for 30,000 extents; a full pool has few free extents. */
#include "allocator/pool.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define NONE        0u
#define FIRST_SLOTS 64u

struct extent {
    uint64_t offset;
    uint64_t bytes;
    uint32_t prev, next;  /* address order; of a spare slot, next spare */
    uint32_t left, right; /* treap */
    uint32_t priority;
    bool used;
};

struct sy_pool {
    struct extent *extents;
    uint32_t n_slots;      /* allocated, slot 0 included */
    uint32_t n_used_slots; /* handed out at least once, slot 0 included */
    uint32_t spare;        /* list of slots given back */
    uint32_t first;        /* lowest extent */
    uint32_t
        *used_table; /* slots by hash of offset, linear probing, at most half full; NONE: empty */
    uint32_t table_mask;
    uint32_t free_root;
    uint32_t random;
    unsigned n_blocks;
    uint64_t capacity_bytes;
    uint64_t free_bytes;
};

/* ---- treap ------------------------------------------------------------------------------------ */

static bool is_before(const struct extent *e, uint64_t bytes, uint64_t offset)
{
    return e->bytes != bytes ? e->bytes < bytes : e->offset < offset;
}

/* lo gets what is before (bytes, offset), hi the rest. */
static void tree_split(struct extent *all, uint32_t root, uint64_t bytes, uint64_t offset,
                       uint32_t *lo, uint32_t *hi)
{
    if (root == NONE) {
        *lo = *hi = NONE;
    } else if (is_before(&all[root], bytes, offset)) {
        *lo = root;
        tree_split(all, all[root].right, bytes, offset, &all[root].right, hi);
    } else {
        *hi = root;
        tree_split(all, all[root].left, bytes, offset, lo, &all[root].left);
    }
}

static uint32_t tree_merge(struct extent *all, uint32_t lo, uint32_t hi)
{
    if (lo == NONE || hi == NONE)
        return lo == NONE ? hi : lo;
    if (all[lo].priority > all[hi].priority) {
        all[lo].right = tree_merge(all, all[lo].right, hi);
        return lo;
    }
    all[hi].left = tree_merge(all, lo, all[hi].left);
    return hi;
}

static void tree_insert(struct sy_pool *pool, uint32_t node)
{
    struct extent *all = pool->extents;
    uint32_t lo, hi;
    all[node].left = all[node].right = NONE;
    tree_split(all, pool->free_root, all[node].bytes, all[node].offset, &lo, &hi);
    pool->free_root = tree_merge(all, tree_merge(all, lo, node), hi);
}

static void tree_erase(struct sy_pool *pool, uint32_t node)
{
    struct extent *all = pool->extents;
    uint32_t *link = &pool->free_root;
    while (*link != node) {
        sy_assert_internal(*link != NONE);
        bool go_right = is_before(&all[*link], all[node].bytes, all[node].offset);
        link = go_right ? &all[*link].right : &all[*link].left;
    }
    *link = tree_merge(all, all[node].left, all[node].right);
}

/* The first extent of `root` that is not before (bytes, offset), or NONE. */
static uint32_t tree_ceiling(const struct extent *all, uint32_t root, uint64_t bytes,
                             uint64_t offset)
{
    uint32_t best = NONE;
    while (root != NONE) {
        bool before = is_before(&all[root], bytes, offset);
        best = before ? best : root;
        root = before ? all[root].right : all[root].left;
    }
    return best;
}

/* The last extent of `root` that is before (bytes, offset), or NONE. */
static uint32_t tree_floor(const struct extent *all, uint32_t root, uint64_t bytes, uint64_t offset)
{
    uint32_t best = NONE;
    while (root != NONE) {
        bool before = is_before(&all[root], bytes, offset);
        best = before ? root : best;
        root = before ? all[root].right : all[root].left;
    }
    return best;
}

/* ---- used extents by offset ------------------------------------------------------------------- */

static uint32_t table_home(const struct sy_pool *pool, uint64_t offset)
{
    return (uint32_t)((offset / SY_POOL_ALIGN * 0x9e3779b97f4a7c15ull) >> 32) & pool->table_mask;
}

/* Table slot of the extent at `offset`, or the empty slot for it. */
static uint32_t table_find(const struct sy_pool *pool, uint64_t offset)
{
    uint32_t i = table_home(pool, offset);
    while (pool->used_table[i] != NONE && pool->extents[pool->used_table[i]].offset != offset)
        i = (i + 1) & pool->table_mask;
    return i;
}

static void table_insert(struct sy_pool *pool, uint32_t node)
{
    pool->used_table[table_find(pool, pool->extents[node].offset)] = node;
}

/* Empties place `hole`; what probing would no longer reach behind it moves up. */
static void table_erase(struct sy_pool *pool, uint32_t hole)
{
    uint32_t mask = pool->table_mask;
    for (uint32_t i = (hole + 1) & mask; pool->used_table[i] != NONE; i = (i + 1) & mask) {
        uint32_t home = table_home(pool, pool->extents[pool->used_table[i]].offset);
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        pool->used_table[hole] = pool->used_table[i];
        hole = i;
    }
    pool->used_table[hole] = NONE;
}

static int table_resize(struct sy_pool *pool, uint32_t n)
{
    uint32_t *table = calloc(n, sizeof *table);
    SY_TRY_ALLOC(table, "no memory for the books of %u pool extents", n / 2);
    free(pool->used_table);
    pool->used_table = table;
    pool->table_mask = n - 1;
    for (uint32_t i = pool->first; i != NONE; i = pool->extents[i].next)
        if (pool->extents[i].used)
            table_insert(pool, i);
    return SY_OK;
}

/* ---- slots ------------------------------------------------------------------------------------ */

static int reserve_slots(struct sy_pool *pool, uint32_t n)
{
    uint32_t n_table = 2 * FIRST_SLOTS;
    if (n <= pool->n_slots)
        return SY_OK;
    n = SY_MAX(n, pool->n_slots * 2);
    while (n_table < 2 * n)
        n_table *= 2;
    struct extent *grown = realloc(pool->extents, n * sizeof *grown);
    SY_TRY_ALLOC(grown, "no memory for the books of %u pool extents", n);
    pool->extents = grown;
    SY_TRY(table_resize(pool, n_table));
    pool->n_slots = n;
    return SY_OK;
}

static uint32_t take_slot(struct sy_pool *pool)
{
    uint32_t slot = pool->spare;
    if (slot != NONE) {
        pool->spare = pool->extents[slot].next;
        return slot;
    }
    assert(pool->n_used_slots < pool->n_slots);
    return pool->n_used_slots++;
}

static void give_slot(struct sy_pool *pool, uint32_t slot)
{
    pool->extents[slot].next = pool->spare;
    pool->spare = slot;
}

/* Makes sure that the next two take_slot succeed: what one take needs at most. */
static int reserve_for_take(struct sy_pool *pool)
{
    return reserve_slots(pool, pool->n_used_slots + 2);
}

static uint32_t next_priority(struct sy_pool *pool)
{
    pool->random ^= pool->random << 13;
    pool->random ^= pool->random >> 17;
    pool->random ^= pool->random << 5;
    return pool->random;
}

/* Cuts the extent `node` (in no treap now) after `bytes`; returns the rest, linked behind it, free. */
static uint32_t cut(struct sy_pool *pool, uint32_t node, uint64_t bytes)
{
    uint32_t rest = take_slot(pool);
    struct extent *all = pool->extents;
    all[rest] = (struct extent){.offset = all[node].offset + bytes,
                                .bytes = all[node].bytes - bytes,
                                .prev = node,
                                .next = all[node].next,
                                .priority = next_priority(pool)};
    if (all[node].next != NONE)
        all[all[node].next].prev = rest;
    all[node].next = rest;
    all[node].bytes = bytes;
    return rest;
}

/* Takes [offset, offset + bytes) out of the free extent `node`; slots were reserved. */
static void carve(struct sy_pool *pool, uint32_t node, uint64_t offset, uint64_t bytes)
{
    tree_erase(pool, node);
    uint64_t before = offset - pool->extents[node].offset;
    if (before > 0) {
        uint32_t rest = cut(pool, node, before);
        tree_insert(pool, node);
        node = rest;
    }
    if (pool->extents[node].bytes > bytes)
        tree_insert(pool, cut(pool, node, bytes));
    pool->extents[node].used = true;
    table_insert(pool, node);
    pool->n_blocks++;
    pool->free_bytes -= bytes;
}

/* ---- the public part -------------------------------------------------------------------------- */

int sy_pool_new(uint64_t n_bytes, struct sy_pool **out)
{
    int status;
    struct sy_pool *pool = calloc(1, sizeof *pool);
    SY_TRY_ALLOC(pool, "no memory for a pool's books");
    SY_TRY_GOTO(reserve_slots(pool, FIRST_SLOTS), free_pool);
    pool->capacity_bytes = pool->free_bytes = n_bytes / SY_POOL_ALIGN * SY_POOL_ALIGN;
    pool->random = 2463534242u;
    pool->n_used_slots = 1;
    if (pool->capacity_bytes > 0) {
        pool->first = take_slot(pool);
        pool->extents[pool->first] =
            (struct extent){.bytes = pool->capacity_bytes, .priority = next_priority(pool)};
        tree_insert(pool, pool->first);
    }
    *out = pool;
    return SY_OK;

free_pool:
    free(pool->extents);
    free(pool);
    return status;
}

void sy_pool_free(struct sy_pool *pool)
{
    if (!pool)
        return;
    free(pool->extents);
    free(pool->used_table);
    free(pool);
}

/* The smallest hole that fits; among equal ones the lowest, or the highest if `from_top`. */
static uint32_t best_fit(const struct sy_pool *pool, uint64_t bytes, bool from_top)
{
    uint32_t node = tree_ceiling(pool->extents, pool->free_root, bytes, 0);
    if (node != NONE && from_top)
        node = tree_floor(pool->extents, pool->free_root, pool->extents[node].bytes, UINT64_MAX);
    return node;
}

int sy_pool_take(struct sy_pool *pool, uint64_t bytes, bool from_top, uint64_t *out_offset)
{
    if (bytes == 0)
        return sy_error_set(SY_EARG, "a pool block of 0 bytes");
    uint64_t wish = bytes;
    bytes = bytes > pool->capacity_bytes ? UINT64_MAX : SY_ALIGN_UP(bytes, SY_POOL_ALIGN);
    SY_TRY(reserve_for_take(pool));
    uint32_t node = best_fit(pool, bytes, from_top);
    if (node == NONE)
        return sy_error_set(SY_ENOMEM_DEVICE,
                            "no hole of %llu bytes in the pool of %llu: %llu free, largest hole "
                            "%llu; make the pool larger (--pool-bytes)",
                            (unsigned long long)wish, (unsigned long long)pool->capacity_bytes,
                            (unsigned long long)pool->free_bytes,
                            (unsigned long long)sy_pool_largest_free_bytes(pool));
    const struct extent *hole = &pool->extents[node];
    uint64_t offset = hole->offset + (from_top ? hole->bytes - bytes : 0);
    carve(pool, node, offset, bytes);
    *out_offset = offset;
    return SY_OK;
}

int sy_pool_take_at(struct sy_pool *pool, uint64_t offset, uint64_t bytes)
{
    if (bytes == 0 || offset % SY_POOL_ALIGN || bytes % SY_POOL_ALIGN ||
        bytes > pool->capacity_bytes || offset > pool->capacity_bytes - bytes)
        return sy_error_set(SY_EARG, "no pool block can be at %llu + %llu bytes",
                            (unsigned long long)offset, (unsigned long long)bytes);
    SY_TRY(reserve_for_take(pool));
    uint32_t node = pool->first;
    while (pool->extents[node].offset + pool->extents[node].bytes <= offset)
        node = pool->extents[node].next;
    const struct extent *hole = &pool->extents[node];
    if (hole->used || hole->offset + hole->bytes < offset + bytes)
        return sy_error_set(SY_ENOMEM_DEVICE, "pool bytes %llu + %llu are in use",
                            (unsigned long long)offset, (unsigned long long)bytes);
    carve(pool, node, offset, bytes);
    return SY_OK;
}

/* Joins `node` with its next neighbour; both are free and in no treap. */
static void absorb_next(struct sy_pool *pool, uint32_t node)
{
    struct extent *all = pool->extents;
    uint32_t gone = all[node].next;
    all[node].bytes += all[gone].bytes;
    all[node].next = all[gone].next;
    if (all[node].next != NONE)
        all[all[node].next].prev = node;
    give_slot(pool, gone);
}

void sy_pool_give(struct sy_pool *pool, uint64_t offset)
{
    uint32_t place = table_find(pool, offset), node = pool->used_table[place];
    assert(node != NONE);
    struct extent *all = pool->extents;
    table_erase(pool, place);
    all[node].used = false;
    pool->n_blocks--;
    pool->free_bytes += all[node].bytes;
    uint32_t next = all[node].next, prev = all[node].prev;
    if (next != NONE && !all[next].used) {
        tree_erase(pool, next);
        absorb_next(pool, node);
    }
    if (prev != NONE && !all[prev].used) {
        tree_erase(pool, prev);
        absorb_next(pool, prev);
        node = prev;
    }
    tree_insert(pool, node);
}

int sy_pool_copy(struct sy_pool *to, const struct sy_pool *from)
{
    SY_TRY(reserve_slots(to, from->n_used_slots));
    if (to->table_mask != from->table_mask)
        SY_TRY(table_resize(to, from->table_mask + 1));
    struct sy_pool books = *to;
    memcpy(books.extents, from->extents, from->n_used_slots * sizeof *books.extents);
    memcpy(books.used_table, from->used_table, (from->table_mask + 1u) * sizeof *books.used_table);
    *to = *from;
    to->extents = books.extents;
    to->n_slots = SY_MIN(books.n_slots, (from->table_mask + 1) / 2);
    to->used_table = books.used_table;
    return SY_OK;
}

void sy_pool_swap(struct sy_pool *a, struct sy_pool *b)
{
    struct sy_pool t = *a;
    *a = *b;
    *b = t;
}

uint64_t sy_pool_capacity_bytes(const struct sy_pool *pool)
{
    return pool->capacity_bytes;
}

uint64_t sy_pool_free_bytes(const struct sy_pool *pool)
{
    return pool->free_bytes;
}

uint64_t sy_pool_largest_free_bytes(const struct sy_pool *pool)
{
    uint32_t node = tree_floor(pool->extents, pool->free_root, UINT64_MAX, UINT64_MAX);
    return node == NONE ? 0 : pool->extents[node].bytes;
}

unsigned sy_pool_n_blocks(const struct sy_pool *pool)
{
    return pool->n_blocks;
}

void sy_pool_walk(const struct sy_pool *pool,
                  void (*visit)(void *ctx, uint64_t offset, uint64_t bytes, bool used), void *ctx)
{
    for (uint32_t i = pool->first; i != NONE; i = pool->extents[i].next)
        visit(ctx, pool->extents[i].offset, pool->extents[i].bytes, pool->extents[i].used);
}

/* ---- the walker ------------------------------------------------------------------------------- */

/* Counts the free treap's extents, or returns UINT64_MAX if one is out of order or used. */
static uint64_t count_tree(const struct extent *all, uint32_t root)
{
    if (root == NONE)
        return 0;
    const struct extent *e = &all[root];
    bool ok = !e->used;
    if (e->left != NONE)
        ok = ok && is_before(&all[e->left], e->bytes, e->offset) &&
             all[e->left].priority <= e->priority;
    if (e->right != NONE)
        ok = ok && is_before(e, all[e->right].bytes, all[e->right].offset) &&
             all[e->right].priority <= e->priority;
    uint64_t left = count_tree(all, e->left), right = count_tree(all, e->right);
    return ok && left != UINT64_MAX && right != UINT64_MAX ? left + right + 1 : UINT64_MAX;
}

static uint64_t count_table(const struct sy_pool *pool)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i <= pool->table_mask; i++)
        n += pool->used_table[i] != NONE;
    return n;
}

bool sy_pool_is_valid(const struct sy_pool *pool)
{
    const struct extent *all = pool->extents;
    uint64_t at = 0, free_bytes = 0, n_free = 0, n_used = 0;
    uint32_t prev = NONE;
    for (uint32_t i = pool->first; i != NONE; prev = i, i = all[i].next) {
        const struct extent *e = &all[i];
        if (e->offset != at || e->bytes == 0 || e->bytes % SY_POOL_ALIGN || e->prev != prev)
            return false;
        if (!e->used && prev != NONE && !all[prev].used)
            return false;
        if (e->used && pool->used_table[table_find(pool, e->offset)] != i)
            return false;
        at += e->bytes;
        free_bytes += e->used ? 0 : e->bytes;
        n_used += e->used;
        n_free += !e->used;
    }
    return at == pool->capacity_bytes && free_bytes == pool->free_bytes &&
           n_used == pool->n_blocks && count_table(pool) == n_used &&
           count_tree(all, pool->free_root) == n_free;
}
