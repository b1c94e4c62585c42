/* Training's guaranteed share of the time, whatever the load of requests.
 *
 * A credit: while some job may compute (a hard share may forbid it), it grows by `permille` of the time that passes, and shrinks by the time in which
 * training computes. While no job may compute, it grows at most to 0. While it is positive, requests that have not started wait until training is one
 * time slice ahead: so training never lacks more than one request's duration. The credit is bounded: paying seconds at once would stall requests.
 *
 * Predictions of requests assume the part of the share that training can use: nothing while no job is ready, at most its tenants' hard shares. When that
 * part grows, the credit grows by it once the requests that were promised with less have ended, at most half a second later; when it shrinks, predictions
 * follow after a second. So jobs that pause and resume often neither lose their share nor break promises. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

#define SLICE_NS   (50 * (int64_t)SY_NS_PER_MS)
#define MOST_OWED  (500 * (int64_t)SY_NS_PER_MS)
#define MOST_GRACE (500 * SY_NS_PER_MS)
#define LINGERS    SY_NS_PER_S

void sy_sched_share_pass(const struct sy_sched *s, struct slice *c, sy_ns from, sy_ns to)
{
    struct train_share *share = &c->share;
    from = SY_MAX(from, share->from_ns);
    int64_t passed = to > from ? (int64_t)(to - from) : 0;
    share->credit_ns += passed / 1000 * (int64_t)share->permille;
    if (share->permille == 0 || !sy_sched_training_is_ready(s, c)) {
        share->credit_ns = SY_MIN(share->credit_ns, 0);
        share->first = false;
        return;
    }
    if (sy_sched_trains_in(s, c))
        share->credit_ns -= passed;
    share->credit_ns = SY_MIN(SY_MAX(share->credit_ns, -SLICE_NS), MOST_OWED);
    if (share->credit_ns > 0)
        share->first = true;
    else if (share->credit_ns <= -SLICE_NS)
        share->first = false;
}

sy_ns sy_sched_share_wake_at(const struct sy_sched *s, const struct slice *c)
{
    /* The share is paid back faster than it accrues, so this is in time; at most a time slice at once, since training may not compute throughout. */
    if (!c->share.first)
        return 0;
    return s->now +
           (sy_ns)SY_MIN(SY_MAX(c->share.credit_ns + SLICE_NS, (int64_t)SY_NS_PER_MS), SLICE_NS);
}

void sy_sched_share_predict(struct slice *c, unsigned permille)
{
    c->share.predicted = permille;
    (void)sy_admission_set_share(c->admission, permille < 1000 ? 1000 - permille : 1);
}

static void update_prediction(const struct sy_sched *s, struct slice *c)
{
    struct train_share *share = &c->share;
    if (share->permille == 0)
        return;
    unsigned usable = SY_MIN(share->permille, sy_policy_usable_permille(c->policy));
    if (usable >= share->predicted)
        share->used_at_ns = s->now;
    if (usable > share->predicted) {
        share->from_ns = SY_MIN(sy_admission_drained_ns(c->admission, s->now), s->now + MOST_GRACE);
        sy_sched_share_predict(c, usable);
    } else if (usable < share->predicted && s->now - share->used_at_ns >= LINGERS) {
        sy_sched_share_predict(c, usable);
    }
}

void sy_sched_share_follow(struct sy_sched *s)
{
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        update_prediction(s, c);
}
