/* Admission control and order of requests on one device. Pure: time is an argument.
 *
 *   ask ──> refused at once, with the prediction
 *     └──> queue: by class, in a class by deadline, then by arrival ──(next)──> runs ──> done
 *                                                    └──────── paused <── preempt ┘
 *
 * Predicted finish = remaining time of the running request + requests in front of it in the queue + its own swap and compute. Each of these is an
 * expected duration and a margin up to a high quantile; margins of independent runs add up as squares do. A request is taken if its
 * finish, with the margin, is before its deadline.
 *
 * Q1: admitting a request breaks no deadline that was promised before: each still holds with its margin, or is not delayed by the new request, or
 *     is expected to be missed anyway. A request that has lost its margin because others took longer is not delayed further.
 * Q2: a lower class number is more urgent. A request never waits for one of a less urgent class, except for the one that is running: until it ends,
 *     or for at most preempt_ns if that is not 0.
 * Q3: within a class, the earliest deadline is first; requests without a deadline are last.
 * Q5: with `restarts`, a running request is preempted while its remaining time exceeds what all its preemptions, this one included, have cost it;
 *     after that only if the more urgent request would miss its deadline otherwise.
 * Q6: with `reserves`, a prediction reserves the device time that more urgent classes are likely to ask for during the wait, by their demand in the
 *     last half minute; nothing if with a probability of one in ten or more none of their requests arrives.
 * Q4: of requests that arrive together, a set in one class is admitted whole if some order meets all its deadlines.
 * Q7: the last eighth of the queue's places is reserved by class, so that less urgent requests cannot fill it: from 72 places on, each class before 9
 *     has places that no less urgent class can take. */
#ifndef SY_SCHED_ADMISSION_H
#define SY_SCHED_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/sched/predictor.h"

/* A request or job ends after this many deaths of workers that were executing it, without a completed iteration in between. */
#define SY_SCHED_MOST_DEATHS 3

struct sy_admission;

struct sy_admission_config {
    /* a running request yields to a more urgent class within this time (an estimate until observed); 0: never preempt */
    sy_ns preempt_ns;
    int max_requests; /* waiting, 1..65534 */
    /* a request without a deadline may break promises made to less urgent classes (Q1) */
    bool may_break_lower;
    /* a preempted request restarts from its beginning: call sy_admission_again, not _paused (Q5) */
    bool restarts;
    bool reserves; /* Q6: reserve time for more urgent requests to come */
};

struct sy_admission_request {
    uint64_t id;                 /* chosen by the caller */
    int class_;                  /* 0 is the most urgent */
    sy_ns deadline_ns;           /* absolute; 0: none */
    struct sy_duration duration; /* swap and compute, predicted and corrected */
};

struct sy_prediction {
    sy_ns queue_ns;       /* expected wait before it starts */
    sy_ns finish_ns;      /* expected finish, absolute */
    sy_ns latest_ns;      /* expected finish plus margin: compared with the deadline */
    uint64_t would_break; /* the id of a request whose promise it would break; valid if `breaks` */
    bool breaks;
};

/* EARG, ENOMEM_HOST. */
int sy_admission_create(const struct sy_admission_config *config, struct sy_admission **out);
void sy_admission_destroy(struct sy_admission *a); /* NULL is fine */
/* Variant for many queues side by side, in memory of the caller: `memory` has sy_admission_bytes, `far` sy_admission_far_bytes, both aligned to 64. The caller
 * frees both; do not call sy_admission_destroy. EARG. */
size_t sy_admission_bytes(const struct sy_admission_config *config);
size_t sy_admission_far_bytes(const struct sy_admission_config *config);
int sy_admission_init(const struct sy_admission_config *config, void *memory, void *far,
                      struct sy_admission **out);
/* `a` uses the configuration and share of `with` from now on; a change to either applies to both. `with` must outlive `a`. */
void sy_admission_share_rules(struct sy_admission *a, struct sy_admission *with);
/* Cache footprint: events touch only the first SY_ADMISSION_HOT_BYTES of `memory`, plus 64 bytes at sy_admission_order_at when a few requests wait, and
 * nothing of `far`. Holds with shared rules and without preemption. */
#define SY_ADMISSION_HOT_BYTES 64
size_t sy_admission_order_at(void);
/* Sets the share of device time that requests get (1..1000; training gets the rest); predicted durations grow accordingly. EARG. */
int sy_admission_set_share(struct sy_admission *a, unsigned permille);

/* Predicts a request that would arrive now. Linear in the queue's length. */
struct sy_prediction sy_admission_predict(const struct sy_admission *a,
                                          const struct sy_admission_request *r, sy_ns now);
/* Q7: how many of `places` queue places (or bytes for tensors) are reserved, and so closed to this class. */
uint64_t sy_admission_kept(uint64_t places, int class_);
/* Admits the request, or returns EDEADLINE with the prediction in *out and in the error text, or EBUSY: the queue is full for its class. `out` may not be
 * NULL. */
int sy_admission_ask(struct sy_admission *a, const struct sy_admission_request *r, sy_ns now,
                     struct sy_prediction *out);
/* As sy_admission_ask, for an idle queue: the request starts at once. */
int sy_admission_ask_idle(struct sy_admission *a, const struct sy_admission_request *r, sy_ns now,
                          struct sy_prediction *out);
/* Records afterwards that an idle queue has executed this request since then. For callers that keep most queues untouched. */
void sy_admission_take_over(struct sy_admission *a, const struct sy_admission_request *r,
                            sy_ns since);
enum sy_admission_action {
    SY_ADMISSION_WAIT,  /* nothing to do */
    SY_ADMISSION_START, /* start *out */
    SY_ADMISSION_PREEMPT, /* *out is running and should stop between layers; report it with sy_admission_paused */
};
enum sy_admission_action sy_admission_next(struct sy_admission *a, sy_ns now,
                                           struct sy_admission_request *out);
/* The request that would start next, without starting it; used for prefetching. False: none. */
bool sy_admission_peek(const struct sy_admission *a, struct sy_admission_request *out);
/* Corrects the expected remaining duration of the running request. */
void sy_admission_expect(struct sy_admission *a, struct sy_duration left, sy_ns now);
/* The running request has stopped; it goes to the front of its class with its remaining duration. */
void sy_admission_paused(struct sy_admission *a, sy_ns now);
/* As sy_admission_paused, with a known remaining duration. The extra cost of this preemption corrects the prediction for the next one. */
void sy_admission_stopped(struct sy_admission *a, struct sy_duration left, sy_ns now);
/* The running request was stopped, or its worker died; it goes to the front of its class and will take `duration` in full. */
void sy_admission_again(struct sy_admission *a, struct sy_duration duration, sy_ns now);
/* Whether the running request would restart from its beginning if preempted now (as `restarts` in the configuration). */
void sy_admission_set_restarts(struct sy_admission *a, bool restarts);
void sy_admission_done(struct sy_admission *a);
/* A better estimate of a waiting request's run time. A request that does not wait is left unchanged. */
void sy_admission_revise(struct sy_admission *a, uint64_t id, struct sy_duration duration);
/* Removes a waiting request. False: it does not wait. */
bool sy_admission_cancel(struct sy_admission *a, uint64_t id);

int sy_admission_n_waiting(const struct sy_admission *a); /* admitted, not started */
bool sy_admission_is_busy(const struct sy_admission *a);  /* a request is running */
/* The expected time at which all admitted requests are finished. */
sy_ns sy_admission_drained_ns(const struct sy_admission *a, sy_ns now);
bool sy_admission_is_valid(const struct sy_admission *a); /* the invariant walker: order, sums */

#endif
