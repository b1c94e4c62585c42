#include "runtime/sim/sim_ring.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_chance.h"
#include "runtime/sim/sim_memory.h"

#define POINTS     16 /* of each device */
#define MAX_BITMAP 64 /* loads above are walked to: queues that long are an overload, not a rule */

struct point {
    uint64_t at;
    int device;
};

struct sy_sim_ring {
    int n, n_models, *start; /* start: each model's first point */
    int32_t *devices;        /* by point, along the ring */
    uint32_t *places; /* by device, POINTS each, which are a cache line: where its points are */
    uint32_t *load;   /* by device */
    /* [i]: of points with a load of at most i; and which words of that have any */
    uint64_t *bits[MAX_BITMAP], *words[MAX_BITMAP];
    /* [i]: kept up to date from the first query until n changes came without one: most of the time two or three are */
    bool kept[MAX_BITMAP];
    uint64_t n_changes, asked_at[MAX_BITMAP];
};

static bool goes_before(const struct point *a, const struct point *b)
{
    return a->at != b->at ? a->at < b->at : a->device < b->device;
}

/* They are spread evenly: each is put about where it belongs, by its upper half alone, and then moved past the few beside it. `begin` has room
 * for n + 1 zeros. */
static void sort_points(const struct point *points, int n, int *begin, struct point *sorted)
{
    for (int i = 0; i < n; i++)
        begin[((points[i].at >> 32) * (uint64_t)n >> 32) + 1]++;
    for (int i = 0; i < n; i++)
        begin[i + 1] += begin[i];
    for (int i = 0; i < n; i++)
        sorted[begin[(points[i].at >> 32) * (uint64_t)n >> 32]++] = points[i];
    for (int i = 1; i < n; i++) {
        struct point p = sorted[i];
        int at = i;
        for (; at > 0 && goes_before(&p, &sorted[at - 1]); at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = p;
    }
}

static int first_point(const struct point *points, int n, uint64_t at)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (points[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low == n ? 0 : low;
}

static int allocate(struct sy_sim_ring *r, int n_devices)
{
    size_t n = (size_t)r->n, n_words = (n + 63) / 64;
    bool ok = (r->devices = sy_sim_zeroed(n, sizeof *r->devices)) != NULL;
    ok = (r->places = sy_sim_zeroed(n, sizeof *r->places)) && ok;
    ok = (r->load = sy_sim_zeroed((size_t)n_devices, sizeof *r->load)) && ok;
    ok = (r->start = sy_sim_zeroed((size_t)r->n_models, sizeof *r->start)) && ok;
    for (int i = 0; i < MAX_BITMAP; i++) {
        ok = (r->bits[i] = sy_sim_zeroed(n_words, sizeof(uint64_t))) && ok;
        ok = (r->words[i] = sy_sim_zeroed((n_words + 63) / 64, sizeof(uint64_t))) && ok;
    }
    return ok ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a ring of %d points", r->n);
}

/* All of them, along the ring; the caller's to free. NULL: no memory. */
static struct point *make_points(int n, int n_devices)
{
    struct point *points = sy_sim_zeroed((size_t)n, sizeof *points);
    struct point *sorted = sy_sim_zeroed((size_t)n, sizeof *sorted);
    int *begin = sy_sim_zeroed((size_t)n + 1, sizeof *begin);
    if (points && sorted && begin) {
        for (int i = 0; i < n; i++)
            points[i] =
                (struct point){sy_sim_mix((uint64_t)i * 0x9e3779b97f4a7c15ull + 1), i % n_devices};
        sort_points(points, n, begin, sorted);
    } else {
        free(sorted);
        sorted = NULL;
    }
    free(points);
    free(begin);
    return sorted;
}

static int fill(struct sy_sim_ring *r, int n_devices)
{
    struct point *points = make_points(r->n, n_devices);
    if (!points)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a ring of %d points", r->n);
    for (int i = 0; i < r->n; i++) {
        int device = r->devices[i] = points[i].device;
        r->places[(size_t)device * POINTS + r->load[device]++] = (uint32_t)i;
    }
    memset(r->load, 0, (size_t)n_devices * sizeof *r->load);
    for (int m = 0; m < r->n_models; m++)
        r->start[m] =
            first_point(points, r->n, sy_sim_mix(((uint64_t)m + 1) * 0xd6e8feb86659fd93ull));
    free(points);
    return SY_OK;
}

int sy_sim_ring_create(int n_devices, int n_models, struct sy_sim_ring **out)
{
    struct sy_sim_ring *r = calloc(1, sizeof *r);
    *out = r;
    if (!r)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a ring of %d devices", n_devices);
    r->n = n_devices * POINTS;
    r->n_models = n_models;
    int status = allocate(r, n_devices);
    if (status == SY_OK)
        status = fill(r, n_devices);
    if (status == SY_OK)
        return SY_OK;
    sy_sim_ring_destroy(r);
    *out = NULL;
    return status;
}

void sy_sim_ring_destroy(struct sy_sim_ring *r)
{
    if (!r)
        return;
    for (int i = 0; i < MAX_BITMAP; i++) {
        free(r->bits[i]);
        free(r->words[i]);
    }
    free(r->devices);
    free(r->places);
    free(r->load);
    free(r->start);
    free(r);
}

const void *sy_sim_ring_places(const struct sy_sim_ring *r, int device)
{
    return &r->places[(size_t)device * POINTS];
}

void sy_sim_ring_set_load(struct sy_sim_ring *r, int device, uint64_t before, uint64_t after)
{
    uint64_t least = SY_MIN(before, after); /* "at most least" is what became true or false */
    r->load[device] = (uint32_t)after;
    r->n_changes++;
    if (least >= MAX_BITMAP || !r->kept[least])
        return;
    if (r->n_changes - r->asked_at[least] > (uint64_t)r->n) {
        r->kept[least] = false;
        return;
    }
    uint64_t *bits = r->bits[least], *words = r->words[least];
    const uint32_t *places = sy_sim_ring_places(r, device);
    for (int i = 0; i < POINTS; i++) {
        uint32_t word = places[i] / 64;
        uint64_t at = bits[word] ^= 1ull << (places[i] % 64);
        uint64_t one = 1ull << (word % 64);
        words[word / 64] = at ? words[word / 64] | one : words[word / 64] & ~one;
    }
}

/* The first bit that is set in [from, to), or -1. */
static int first_bit(const uint64_t *bits, int from, int to)
{
    for (int word = from / 64; word * 64 < to; word++) {
        uint64_t here = bits[word];
        if (word == from / 64)
            here &= UINT64_MAX << (from % 64);
        if (here) {
            int at = word * 64 + __builtin_ctzll(here);
            return at < to ? at : -1;
        }
    }
    return -1;
}

/* The first point of [from, to) in a bitmap that has an index of its words: looks at the word of `from`, then at the next that is not 0. */
static int first_point_of(const struct sy_sim_ring *r, uint64_t most, int from, int to)
{
    const uint64_t *bits = r->bits[most];
    int at = first_bit(bits, from, SY_MIN(to, (from / 64 + 1) * 64));
    if (at >= 0 || (from / 64 + 1) * 64 >= to)
        return at;
    int word = first_bit(r->words[most], from / 64 + 1, (to + 63) / 64);
    return word < 0 ? -1 : first_bit(bits, word * 64, to);
}

static int walk(const struct sy_sim_ring *r, int start, uint64_t most)
{
    for (int i = 0, at = start; i < r->n; i++, at = at + 1 == r->n ? 0 : at + 1)
        if (r->load[r->devices[at]] <= most)
            return at;
    return start;
}

/* Made anew if it was not kept: work for as many points as there were changes meanwhile, or more. */
static void ask_bitmap(struct sy_sim_ring *r, uint64_t most)
{
    uint64_t *bits = r->bits[most], *words = r->words[most];
    r->asked_at[most] = r->n_changes;
    if (r->kept[most])
        return;
    r->kept[most] = true;
    for (int begin = 0; begin < r->n; begin += 64) {
        uint64_t here = 0;
        for (int i = begin; i < SY_MIN(begin + 64, r->n); i++)
            here |= (uint64_t)(r->load[r->devices[i]] <= most) << (i - begin);
        bits[begin / 64] = here;
        words[begin / 4096] &= ~(1ull << (begin / 64 % 64));
        words[begin / 4096] |= (uint64_t)(here != 0) << (begin / 64 % 64);
    }
}

int sy_sim_ring_find(struct sy_sim_ring *r, int model, double bound)
{
    int start = r->start[model], at;
    uint64_t most = (uint64_t)fmax(ceil(bound) - 1, 0); /* loads are whole numbers */
    if (most >= MAX_BITMAP) {
        at = walk(r, start, most);
    } else {
        ask_bitmap(r, most);
        at = first_point_of(r, most, start, r->n);
        at = at >= 0 ? at : first_point_of(r, most, 0, start);
    }
    return r->devices[at >= 0 ? at : start];
}
