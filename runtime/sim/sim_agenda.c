#include "runtime/sim/sim_agenda.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_memory.h"

#define N_BUCKETS   1024u
#define N_WORDS     (N_BUCKETS / 64)
#define LINE        8u  /* items */
#define WANTED      8u  /* items a bucket */
#define FEW         32u /* sorted by counting who is less: no guess is wrong */
#define MOST_NEAR   256 /* more: the buckets are too wide, or begin too late */
#define ITEM_BITS   17
#define MOST_SHIFT  (63 - ITEM_BITS)
#define FIRST_SHIFT 16 /* 66 us; the first items taken correct it */

struct sy_sim_agenda_entry {
    uint64_t key;
    int32_t item;
};

/* Items are packed: the key's lower `shift` bits, then the item. */
struct sy_sim_agenda_bucket {
    int32_t line; /* the last one, of n % LINE items; -1: none */
    uint32_t n;
};

int sy_sim_agenda_init(struct sy_sim_agenda *a, int n_items)
{
    size_t n = (size_t)n_items, n_lines = n / LINE + N_BUCKETS;
    assert(n_items >= 1 && n_items <= 1 << ITEM_BITS);
    *a = (struct sy_sim_agenda){.first_key = UINT64_MAX,
                                .first = -1,
                                .shift = FIRST_SHIFT,
                                .end = N_BUCKETS,
                                .near_room = 2 * n_items};
    a->near = sy_sim_zeroed(2 * n, sizeof *a->near);
    a->far = sy_sim_zeroed(n, sizeof *a->far);
    a->buckets = sy_sim_zeroed(N_BUCKETS, sizeof *a->buckets);
    a->bits = sy_sim_zeroed(N_WORDS, sizeof *a->bits);
    a->lines = sy_sim_zeroed(n_lines, sizeof *a->lines);
    a->next_line = sy_sim_zeroed(n_lines, sizeof *a->next_line);
    if (!a->near || !a->far || !a->buckets || !a->bits || !a->lines || !a->next_line)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the events of %d devices", n_items);
    for (size_t i = 0; i < N_BUCKETS; i++)
        a->buckets[i].line = -1;
    for (size_t i = 0; i < n_lines; i++)
        a->next_line[i] = (int32_t)i - 1;
    a->free_line = (int32_t)n_lines - 1;
    return SY_OK;
}

void sy_sim_agenda_finish(struct sy_sim_agenda *a)
{
    free(a->near);
    free(a->far);
    free(a->buckets);
    free(a->bits);
    free(a->lines);
    free(a->next_line);
    *a = (struct sy_sim_agenda){0};
}

/* ---- buckets ---- */

static void put_in_bucket(struct sy_sim_agenda *a, int32_t item, uint64_t key)
{
    uint64_t at = (key >> a->shift) % N_BUCKETS;
    struct sy_sim_agenda_bucket *b = &a->buckets[at];
    if (b->n % LINE == 0) {
        int32_t line = a->free_line;
        a->free_line = a->next_line[line];
        a->next_line[line] = b->line;
        b->line = line;
    }
    uint64_t low = key & ((1ull << a->shift) - 1);
    a->lines[b->line][b->n++ % LINE] = low << ITEM_BITS | (uint64_t)item;
    a->bits[at / 64] |= 1ull << (at % 64);
    a->n_in_buckets++;
}

/* Behind `near`. */
static void put(struct sy_sim_agenda *a, int32_t item, uint64_t key)
{
    if (key >> a->shift < a->end)
        put_in_bucket(a, item, key);
    else
        a->far[a->n_far++] = (struct sy_sim_agenda_entry){key, item};
}

/* The first bucket after that one that has any; one has. */
static uint64_t next_bucket(const struct sy_sim_agenda *a, uint64_t after)
{
    uint64_t from = (after + 1) % N_BUCKETS, word = from / 64;
    uint64_t here = a->bits[word] & UINT64_MAX << (from % 64);
    while (!here)
        here = a->bits[word = (word + 1) % N_WORDS];
    uint64_t at = word * 64 + (uint64_t)__builtin_ctzll(here);
    return after + 1 + (at - from) % N_BUCKETS;
}

static struct sy_sim_agenda_entry unpack(const struct sy_sim_agenda *a, uint64_t bucket,
                                         uint64_t packed)
{
    return (struct sy_sim_agenda_entry){bucket << a->shift | packed >> ITEM_BITS,
                                        (int32_t)(packed & ((1u << ITEM_BITS) - 1))};
}

/* The bucket is empty then. Its items, still packed, go to `out`. */
static uint32_t empty_bucket(struct sy_sim_agenda *a, uint64_t bucket, uint64_t *out)
{
    uint64_t at = bucket % N_BUCKETS;
    struct sy_sim_agenda_bucket *b = &a->buckets[at];
    uint32_t n = 0, in_line = (b->n - 1) % LINE + 1;
    for (int32_t line = b->line, next; line >= 0; line = next, in_line = LINE) {
        for (uint32_t i = 0; i < in_line; i++)
            out[n++] = a->lines[line][i];
        next = a->next_line[line];
        a->next_line[line] = a->free_line;
        a->free_line = line;
    }
    a->bits[at / 64] &= ~(1ull << (at % 64));
    a->n_in_buckets -= (int)n;
    *b = (struct sy_sim_agenda_bucket){-1, 0};
    return n;
}

/* ---- near ---- */

static bool goes_before(const struct sy_sim_agenda_entry *x, const struct sy_sim_agenda_entry *y)
{
    return x->key != y->key ? x->key < y->key : x->item < y->item;
}

static int compare(const void *x, const void *y)
{
    return goes_before(x, y) ? -1 : 1;
}

static void insert_near(struct sy_sim_agenda *a, int32_t item, uint64_t key)
{
    if (a->n_near == a->near_room) {
        a->n_near -= a->near_at;
        memmove(a->near, a->near + a->near_at, (size_t)a->n_near * sizeof *a->near);
        a->near_at = 0;
    }
    struct sy_sim_agenda_entry e = {key, item};
    int at = a->n_near++;
    for (; at > a->near_at && goes_before(&e, &a->near[at - 1]); at--)
        a->near[at] = a->near[at - 1];
    a->near[at] = e;
}

static void sort_few(struct sy_sim_agenda *a, uint64_t *packed, uint32_t n)
{
    for (uint32_t i = n; i % 4 > 0; i++)
        packed[i] = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t less = 0;
        for (uint32_t j = 0; j < n; j += 4)
            less += (uint32_t)(packed[j] < packed[i]) + (packed[j + 1] < packed[i]) +
                    (packed[j + 2] < packed[i]) + (packed[j + 3] < packed[i]);
        a->near[less] = unpack(a, a->base, packed[i]);
    }
}

/* `near` is used up; it is that bucket from now on. */
static void begin_bucket(struct sy_sim_agenda *a, uint64_t bucket)
{
    uint64_t few[FEW], *packed = few;
    uint32_t n = a->buckets[bucket % N_BUCKETS].n;
    if (n > FEW) /* behind the places that they are unpacked to */
        packed = (uint64_t *)(void *)(a->near + n);
    a->base = bucket;
    a->near_at = 0;
    a->n_near = (int)empty_bucket(a, bucket, packed);
    if (n <= FEW) {
        sort_few(a, packed, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        a->near[i] = unpack(a, bucket, packed[i]);
    qsort(a->near, n, sizeof *a->near, compare);
}

static void tell_soon(struct sy_sim_agenda *a)
{
    if (a->n_in_buckets == 0)
        return;
    const struct sy_sim_agenda_bucket *b = &a->buckets[next_bucket(a, a->base) % N_BUCKETS];
    uint32_t in_line = (b->n - 1) % LINE + 1, n = 0;
    for (int32_t line = b->line; line >= 0 && n + in_line <= SY_SIM_AGENDA_SOON;
         line = a->next_line[line], in_line = LINE)
        for (uint32_t i = 0; i < in_line; i++)
            a->soon[n++] = (int32_t)(a->lines[line][i] & ((1u << ITEM_BITS) - 1));
    a->n_soon = (int)n;
}

/* ---- where buckets begin, and how wide they are ---- */

/* The buckets from there on; of what is far, what belongs to them goes there. */
static void move_window(struct sy_sim_agenda *a, uint64_t base)
{
    int n = a->n_far;
    a->end = base + N_BUCKETS;
    a->n_far = 0;
    for (int i = 0; i < n; i++)
        put(a, a->far[i].item, a->far[i].key);
}

/* All of it anew. */
static void rebuild(struct sy_sim_agenda *a, uint64_t base, unsigned shift)
{
    for (; a->near_at < a->n_near; a->near_at++)
        a->far[a->n_far++] = a->near[a->near_at];
    for (uint64_t b = a->end - N_BUCKETS; a->n_in_buckets > 0; b++) {
        uint64_t *packed = (uint64_t *)(void *)a->near;
        uint32_t n = empty_bucket(a, b, packed);
        for (uint32_t i = 0; i < n; i++)
            a->far[a->n_far++] = unpack(a, b, packed[i]);
    }
    a->shift = shift;
    a->base = base;
    a->near_at = a->n_near = 0;
    int n = a->n_far, n_left = 0;
    for (int i = 0; i < n; i++)
        if (a->far[i].key >> shift <= base)
            a->near[a->n_near++] = a->far[i];
        else
            a->far[n_left++] = a->far[i];
    a->n_far = n_left;
    qsort(a->near, (size_t)a->n_near, sizeof *a->near, compare);
    move_window(a, base);
}

static unsigned fitting_shift(uint64_t ns, uint64_t n)
{
    unsigned shift = 0;
    for (uint64_t width = SY_MIN(ns / n, 1ull << MOST_SHIFT) * WANTED;
         width > 1 && shift < MOST_SHIFT; width /= 2)
        shift++;
    return shift;
}

/* Whether everything was put in order anew: then `near` may be empty still. */
static bool refit(struct sy_sim_agenda *a, uint64_t next)
{
    uint64_t begins = next << a->shift;
    unsigned fits =
        a->n_taken > 0 ? fitting_shift(begins - SY_MIN(begins, a->since), a->n_taken) : a->shift;
    a->since = begins;
    a->n_taken = 0;
    if (fits + 1 < a->shift || fits > a->shift + 1) {
        rebuild(a, begins >> fits, fits);
        return true;
    }
    move_window(a, next);
    return false;
}

static uint64_t first_of_far(const struct sy_sim_agenda *a)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < a->n_far; i++)
        least = SY_MIN(least, a->far[i].key);
    return least >> a->shift;
}

/* `near` is used up. */
static void go_on(struct sy_sim_agenda *a)
{
    while (a->near_at == a->n_near && a->n_in_buckets + a->n_far > 0) {
        uint64_t next = a->n_in_buckets > 0 ? next_bucket(a, a->base) : first_of_far(a);
        if (next + N_BUCKETS / 2 >= a->end && refit(a, next))
            continue;
        begin_bucket(a, next);
    }
    tell_soon(a);
}

static void note_first(struct sy_sim_agenda *a)
{
    bool is_empty = a->near_at == a->n_near;
    a->first_key = is_empty ? UINT64_MAX : a->near[a->near_at].key;
    a->first = is_empty ? -1 : a->near[a->near_at].item;
}

/* Many are near: narrower buckets, or those that begin now. */
static void spread(struct sy_sim_agenda *a, uint64_t now)
{
    uint64_t n = (uint64_t)(a->n_near - a->near_at);
    unsigned fits = fitting_shift(a->near[a->n_near - 1].key - a->near[a->near_at].key, n);
    bool wide = fits + 1 < a->shift;
    if (wide || now >> a->shift < a->base)
        rebuild(a, now >> (wide ? fits : a->shift), wide ? fits : a->shift);
}

void sy_sim_agenda_add(struct sy_sim_agenda *a, int item, uint64_t key, uint64_t now)
{
    if (key >> a->shift > a->base && a->first_key != UINT64_MAX) {
        put(a, item, key);
        return;
    }
    if (a->n_near - a->near_at >= MOST_NEAR)
        spread(a, now);
    if (a->first_key == UINT64_MAX)
        rebuild(a, key >> a->shift, a->shift);
    if (key >> a->shift > a->base)
        put(a, item, key);
    else
        insert_near(a, item, key);
    if (a->near_at == a->n_near)
        go_on(a);
    note_first(a);
}

int sy_sim_agenda_take(struct sy_sim_agenda *a)
{
    int item = a->near[a->near_at++].item;
    a->n_soon = 0;
    a->n_taken++;
    if (a->near_at == a->n_near)
        go_on(a);
    note_first(a);
    return item;
}
