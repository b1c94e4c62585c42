/* The next event of many devices where each has at most one, which does not move: a queue by buckets of time. An item costs the same with ten thousand
 * others as with ten.
 *
 *   near      5 6 6 8            sorted: keys up to the end of bucket `base`
 *   buckets   | . | . . . |      | . . |     in no order, in lines of eight; bits say which buckets have any
 *   far       . . . . .          keys from bucket `end` on, in no order
 *
 * When `near` is used up, the next bucket that has any is sorted into it. A bucket is as wide as some eight items, by the rate at which items were taken. */
#ifndef SY_SIM_SIM_AGENDA_H
#define SY_SIM_SIM_AGENDA_H

#include <stdint.h>

#define SY_SIM_AGENDA_SOON 16

struct sy_sim_agenda {
    uint64_t first_key; /* UINT64_MAX: it is empty */
    int32_t first;      /* whose key it is; -1: it is empty */
    /* The last take began a bucket: so many items of the one after it, in no order. 0: it did not. */
    int n_soon;
    int32_t soon[SY_SIM_AGENDA_SOON];
    struct sy_sim_agenda_entry *near, *far;
    int near_at, n_near, near_room, n_far;
    unsigned shift;     /* a bucket is 2^shift wide */
    uint64_t base, end; /* numbers of buckets: key >> shift */
    struct sy_sim_agenda_bucket *buckets;
    uint64_t *bits;
    int n_in_buckets;
    uint64_t (*lines)[8];
    int32_t *next_line, free_line;
    uint64_t since; /* since that time, n_taken were taken */
    uint64_t n_taken;
};

/* For items 0 .. n_items-1, n_items at most 2^17. ENOMEM_HOST; finish it, too. */
int sy_sim_agenda_init(struct sy_sim_agenda *a, int n_items);
void sy_sim_agenda_finish(struct sy_sim_agenda *a); /* zeroed is fine */
/* The item is not in it. now <= key < 2^62; no key that was taken, and no earlier now, is after now. */
void sy_sim_agenda_add(struct sy_sim_agenda *a, int item, uint64_t key, uint64_t now);
/* The item with the least key, among equals the smallest item, leaves. It is not empty. */
int sy_sim_agenda_take(struct sy_sim_agenda *a);

#endif
