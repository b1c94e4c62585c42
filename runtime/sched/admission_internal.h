/* The state of a queue: admission.c changes it, admission_predict.c reads it. */
#ifndef SY_SCHED_ADMISSION_INTERNAL_H
#define SY_SCHED_ADMISSION_INTERNAL_H

#include <stddef.h>

#include "runtime/base/assert.h"
#include "runtime/sched/admission.h"
#include "runtime/sched/class_demand.h"

#define LINE 64
#define NEAR 4 /* entries stored inline, next to the counters */

struct entry {
    struct sy_admission_request is;
    /* was preempted: sorts before requests of its class that were not, and before those preempted earlier */
    bool again;
    sy_ns lost_ns; /* work discarded by all its preemptions */
};

/* Shared by several queues. */
struct rules {
    struct sy_admission_config config;
    double stretch; /* factor on predicted durations: 1 / requests' share */
};

/* The running request; fields that only preemption needs are in struct gave_way. */
struct running {
    uint64_t id;
    sy_ns deadline_ns, margin_ns;
    sy_ns from_ns, until_ns; /* expected */
};

/* Written only where preempt_ns is not 0. */
struct gave_way {
    sy_ns expected_ns, lost_ns; /* of the running request */
    sy_ns yields_from_ns;       /* while preempting: when the preemption was requested */
    sy_ns yield_ns,
        yield_off_ns; /* time until a preempted request stops, and its usual deviation */
    /* By how much a preemption lengthens the remaining duration, and its usual deviation. */
    sy_ns regain_ns, regain_off_ns;
};

/* The first cache line is all that events touch while the queue is empty, and the line of `first` while it is short: thousands of queues lie side by
 * side in a simulation. */
struct sy_admission {
    struct running running;
    int running_class;
    uint16_t n_waiting;
    bool busy, preempting;
    sy_ns queued_ns; /* sum of the expected durations in the queue */
    struct rules *rules;

    struct gave_way gave_way;
    struct entry *far; /* entries of slots NEAR and above */
    struct sy_class_demand demand;
    struct rules own_rules;
    struct entry second[NEAR - 1]; /* entries of slots 1 to NEAR - 1 */

    struct entry first __attribute__((aligned(LINE))); /* slot 0: enough for most queues */
    /* slot numbers: the n_waiting entries in order of execution, then the free ones */
    uint16_t queue[];
} __attribute__((aligned(LINE)));
static_assert(offsetof(struct sy_admission, gave_way) == SY_ADMISSION_HOT_BYTES &&
                  offsetof(struct sy_admission, first) % LINE == 0,
              "an event touches more lines than are asked for ahead");

static inline const struct entry *entry_at(const struct sy_admission *a, int place)
{
    int slot = a->queue[place];
    if (slot == 0)
        return &a->first;
    return slot < NEAR ? &a->second[slot - 1] : &a->far[slot - NEAR];
}

static inline struct entry *entry_in(struct sy_admission *a, int place)
{
    int slot = a->queue[place];
    if (slot == 0)
        return &a->first;
    return slot < NEAR ? &a->second[slot - 1] : &a->far[slot - NEAR];
}

static inline const struct sy_admission_request *waiting(const struct sy_admission *a, int place)
{
    return &entry_at(a, place)->is;
}

static inline sy_ns deadline_of(const struct sy_admission_request *r)
{
    return r->deadline_ns == 0 ? UINT64_MAX : r->deadline_ns;
}

/* Q2, Q3. A preempted request is first in its class. Negative: a goes first; 0: in order of arrival. */
static inline int compare(const struct entry *a, const struct entry *b)
{
    sy_ns x = a->again ? 0 : deadline_of(&a->is), y = b->again ? 0 : deadline_of(&b->is);
    if (a->is.class_ != b->is.class_)
        return a->is.class_ < b->is.class_ ? -1 : 1;
    if (a->again != b->again)
        return a->again ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Position of a request that arrives now. */
static inline int place_of(const struct sy_admission *a, const struct entry *e)
{
    int low = 0, high = a->n_waiting;
    while (low < high) {
        int middle = (low + high) / 2;
        if (compare(e, entry_at(a, middle)) < e->again)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static inline struct sy_duration left_of_running(const struct sy_admission *a, sy_ns now)
{
    sy_ns until = a->running.until_ns;
    return (struct sy_duration){until > now ? until - now : 0, a->running.margin_ns};
}

/* Duration from the beginning, for requests that restart. */
static inline struct sy_duration whole_of_running(const struct sy_admission *a)
{
    return (struct sy_duration){a->gave_way.expected_ns, a->running.margin_ns};
}

static inline const struct sy_admission_request *first_of(const struct sy_admission *a)
{
    return a->n_waiting > 0 ? waiting(a, 0) : NULL;
}

static inline struct sy_admission_request running_of(const struct sy_admission *a)
{
    return (struct sy_admission_request){.id = a->running.id,
                                         .class_ = a->running_class,
                                         .deadline_ns = a->running.deadline_ns,
                                         .duration = whole_of_running(a)};
}

/* Q5: whether the running request is preempted for `r` now (NULL: no candidate). */
bool sy_admission_gives_way(const struct sy_admission *a, const struct sy_admission_request *r,
                            sy_ns now);

#endif
