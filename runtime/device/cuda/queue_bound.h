/* How much a stream holds. Pure.
 *
 * The driver's own queue is bounded too (about 1024 entries), but a full one blocks the caller. So entries are counted here,
 * and a stream says EBUSY before the driver's is full. What has left is known from marks: an event behind every 32nd entry.
 *
 *   e e e ... e M  e e e ... e M  e e       32 entries, mark, 32 entries, mark, 2 entries
 *   ^ passed: the oldest mark is signalled, 32 are gone */
#ifndef SY_DEVICE_CUDA_QUEUE_BOUND_H
#define SY_DEVICE_CUDA_QUEUE_BOUND_H

#include <stdbool.h>

/* Half of what the driver takes, since an entry may cost it two (a host function does). */
#define SY_QUEUE_ENTRIES 512u
#define SY_QUEUE_MARK_AT 32u
#define SY_QUEUE_MARKS   (SY_QUEUE_ENTRIES / SY_QUEUE_MARK_AT)

struct sy_queue_bound {
    unsigned n;                     /* entries that may still be there */
    unsigned since_mark;            /* of them, behind the last mark */
    unsigned oldest, n_marks;       /* ring of marks not yet passed */
    unsigned sizes[SY_QUEUE_MARKS]; /* entries that each mark stands for */
};

/* Is there room for so many entries (at most SY_QUEUE_ENTRIES)? If not: look whether mark `oldest` is signalled, say so with pass, ask again. */
bool sy_queue_bound_has_room(const struct sy_queue_bound *bound, unsigned n);
/* An entry was queued; needs room. The mark (0 .. SY_QUEUE_MARKS - 1) to record behind it, or -1. */
int sy_queue_bound_add(struct sy_queue_bound *bound);
/* The mark that add asked for could not be recorded: its entries count with the next. */
void sy_queue_bound_unmark(struct sy_queue_bound *bound);
/* The oldest mark, or -1 when there is none. */
int sy_queue_bound_oldest(const struct sy_queue_bound *bound);
/* Marks the event as signalled. */
void sy_queue_bound_pass(struct sy_queue_bound *bound);
/* The stream was synchronized: it holds nothing. */
void sy_queue_bound_clear(struct sy_queue_bound *bound);

#endif
