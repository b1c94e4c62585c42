#include "runtime/sched/admission.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/admission_internal.h"
#include "runtime/sched/admission_refusal.h"

#define MAX_REQUESTS 65534

static int check_config(const struct sy_admission_config *config)
{
    if (config->max_requests >= 1 && config->max_requests <= MAX_REQUESTS)
        return SY_OK;
    return sy_error_set(SY_EARG, "a queue of %d requests: 1 to %d", config->max_requests,
                        MAX_REQUESTS);
}

/* One more slot than max_requests: a preempted request is put back into the queue. */
static size_t slots_of(const struct sy_admission_config *config)
{
    return (size_t)config->max_requests + 1;
}

/* Slots are reused from the front, so that short queues stay within the inline entries: a simulation has thousands of queues side by side. */
size_t sy_admission_order_at(void)
{
    return offsetof(struct sy_admission, first);
}

size_t sy_admission_bytes(const struct sy_admission_config *config)
{
    return SY_ALIGN_UP(offsetof(struct sy_admission, queue) + slots_of(config) * sizeof(uint16_t),
                       LINE);
}

size_t sy_admission_far_bytes(const struct sy_admission_config *config)
{
    size_t n = slots_of(config);
    return SY_ALIGN_UP((n > NEAR ? n - NEAR : 1) * sizeof(struct entry), LINE);
}

static int n_slots(const struct sy_admission *a)
{
    return (int)slots_of(&a->rules->config);
}

int sy_admission_init(const struct sy_admission_config *config, void *memory, void *far,
                      struct sy_admission **out)
{
    struct sy_admission *a = memory;
    *out = NULL;
    SY_TRY(check_config(config));
    *a = (struct sy_admission){.far = far, .own_rules = {*config, 1}};
    a->rules = &a->own_rules;
    a->gave_way.yield_ns = config->preempt_ns;
    for (int i = 0; i < n_slots(a); i++)
        a->queue[i] = (uint16_t)i;
    *out = a;
    return SY_OK;
}

void sy_admission_share_rules(struct sy_admission *a, struct sy_admission *with)
{
    a->rules = with->rules;
}

int sy_admission_create(const struct sy_admission_config *config, struct sy_admission **out)
{
    *out = NULL;
    SY_TRY(check_config(config));
    size_t bytes = sy_admission_bytes(config);
    char *memory = aligned_alloc(LINE, bytes + sy_admission_far_bytes(config));
    SY_TRY_ALLOC(memory, "no memory for a queue of %d requests", config->max_requests);
    return sy_admission_init(config, memory, memory + bytes, out);
}

void sy_admission_destroy(struct sy_admission *a)
{
    free(a);
}

int sy_admission_set_share(struct sy_admission *a, unsigned permille)
{
    if (permille < 1 || permille > 1000)
        return sy_error_set(SY_EARG, "requests' share is %u per mille: 1 to 1000", permille);
    a->rules->stretch = 1000.0 / permille;
    return SY_OK;
}

/* ---- order ---- */

static void insert(struct sy_admission *a, const struct entry *e)
{
    assert(a->n_waiting < n_slots(a));
    int at = place_of(a, e);
    uint16_t slot = a->queue[a->n_waiting];
    *entry_in(a, a->n_waiting) = *e;
    memmove(&a->queue[at + 1], &a->queue[at], (size_t)(a->n_waiting - at) * sizeof a->queue[0]);
    a->queue[at] = slot;
    a->n_waiting++;
    a->queued_ns += e->is.duration.expected_ns;
}

/* Reusing slots in rotation would touch all cache lines of the queue. */
static void put_first_slot_first(struct sy_admission *a)
{
    int i = 0;
    while (a->queue[i] != 0)
        i++;
    a->queue[i] = a->queue[0];
    a->queue[0] = 0;
}

static struct entry take_out(struct sy_admission *a, int at)
{
    uint16_t slot = a->queue[at];
    struct entry e = *entry_at(a, at);
    a->n_waiting--;
    memmove(&a->queue[at], &a->queue[at + 1], (size_t)(a->n_waiting - at) * sizeof a->queue[0]);
    a->queue[a->n_waiting] = slot;
    a->queued_ns -= e.is.duration.expected_ns;
    if (a->n_waiting == 0)
        put_first_slot_first(a);
    return e;
}

static int judge(struct sy_admission *a, const struct sy_admission_request *r, sy_ns now,
                 struct sy_prediction *out)
{
    *out = sy_admission_predict(a, r, now);
    if (a->rules->config.reserves)
        sy_class_demand_note(&a->demand, r->class_,
                             (float)r->duration.expected_ns * (float)a->rules->stretch, now);
    if (out->breaks || (r->deadline_ns != 0 && out->latest_ns > r->deadline_ns))
        return sy_admission_refuse_late(r, out, now);
    return SY_OK;
}

int sy_admission_ask(struct sy_admission *a, const struct sy_admission_request *r, sy_ns now,
                     struct sy_prediction *out)
{
    struct entry e = {.is = *r};
    if (a->n_waiting + (int)sy_admission_kept((uint64_t)a->rules->config.max_requests, r->class_) >=
        a->rules->config.max_requests)
        return sy_admission_refuse_full(a->n_waiting, a->rules->config.max_requests, r->class_);
    SY_TRY(judge(a, r, now, out));
    insert(a, &e);
    return SY_OK;
}

/* Exponential running mean; a new sample weighs an eighth. */
static void note(sy_ns seen, sy_ns *usual, sy_ns *usually_off)
{
    sy_ns off = seen > *usual ? seen - *usual : *usual - seen;
    *usually_off += off / 8 - *usually_off / 8;
    *usual += seen / 8 - *usual / 8;
}

static void put_back(struct sy_admission *a, struct sy_duration duration, sy_ns now, bool loses)
{
    struct entry e = {.is = running_of(a), .again = true, .lost_ns = a->gave_way.lost_ns};
    assert(a->busy);
    if (a->preempting) {
        note(now - SY_MIN(now, a->gave_way.yields_from_ns), &a->gave_way.yield_ns,
             &a->gave_way.yield_off_ns);
        e.lost_ns += loses ? now - SY_MIN(now, a->running.from_ns) : 0;
    }
    e.is.duration = duration;
    a->busy = a->preempting = false;
    insert(a, &e);
}

/* ---- running ---- */

static void start(struct sy_admission *a, const struct entry *e, sy_ns now)
{
    a->running = (struct running){.id = e->is.id, .deadline_ns = e->is.deadline_ns, .from_ns = now};
    a->running_class = e->is.class_;
    if (a->rules->config.preempt_ns > 0) {
        a->gave_way.expected_ns = e->is.duration.expected_ns;
        a->gave_way.lost_ns = e->lost_ns;
    }
    a->busy = true;
    sy_admission_expect(a, e->is.duration, now);
}

int sy_admission_ask_idle(struct sy_admission *a, const struct sy_admission_request *r, sy_ns now,
                          struct sy_prediction *out)
{
    struct entry e = {.is = *r};
    assert(!a->busy && a->n_waiting == 0);
    SY_TRY(judge(a, r, now, out));
    start(a, &e, now);
    return SY_OK;
}

void sy_admission_take_over(struct sy_admission *a, const struct sy_admission_request *r,
                            sy_ns since)
{
    struct entry e = {.is = *r};
    assert(!a->busy && a->n_waiting == 0);
    start(a, &e, since);
}

enum sy_admission_action sy_admission_next(struct sy_admission *a, sy_ns now,
                                           struct sy_admission_request *out)
{
    if (a->n_waiting == 0)
        return SY_ADMISSION_WAIT;
    if (a->busy) {
        if (a->preempting || !sy_admission_gives_way(a, first_of(a), now))
            return SY_ADMISSION_WAIT;
        a->preempting = true;
        a->gave_way.yields_from_ns = now;
        *out = running_of(a);
        return SY_ADMISSION_PREEMPT;
    }
    struct entry e = take_out(a, 0);
    start(a, &e, now);
    *out = e.is;
    return SY_ADMISSION_START;
}

bool sy_admission_peek(const struct sy_admission *a, struct sy_admission_request *out)
{
    if (a->n_waiting == 0)
        return false;
    *out = *waiting(a, 0);
    return true;
}

void sy_admission_expect(struct sy_admission *a, struct sy_duration left, sy_ns now)
{
    a->running.margin_ns = left.margin_ns;
    a->running.until_ns = now + (sy_ns)((double)left.expected_ns * a->rules->stretch);
}

void sy_admission_paused(struct sy_admission *a, sy_ns now)
{
    struct sy_duration left = left_of_running(a, now);
    left.expected_ns = (sy_ns)((double)left.expected_ns / a->rules->stretch);
    put_back(a, left, now, false);
}

void sy_admission_stopped(struct sy_admission *a, struct sy_duration left, sy_ns now)
{
    sy_ns thought = left_of_running(a, now).expected_ns;
    sy_ns needs = (sy_ns)((double)left.expected_ns * a->rules->stretch);
    if (a->preempting)
        note(needs > thought ? needs - thought : 0, &a->gave_way.regain_ns,
             &a->gave_way.regain_off_ns);
    put_back(a, left, now, false);
}

void sy_admission_again(struct sy_admission *a, struct sy_duration duration, sy_ns now)
{
    put_back(a, duration, now, true);
}

void sy_admission_set_restarts(struct sy_admission *a, bool restarts)
{
    a->rules->config.restarts = restarts;
}

void sy_admission_done(struct sy_admission *a)
{
    assert(a->busy);
    a->busy = a->preempting = false;
}

void sy_admission_revise(struct sy_admission *a, uint64_t id, struct sy_duration duration)
{
    for (int i = 0; i < a->n_waiting; i++) {
        struct sy_admission_request *r = &entry_in(a, i)->is;
        if (r->id != id)
            continue;
        a->queued_ns += duration.expected_ns - r->duration.expected_ns;
        r->duration = duration;
        return;
    }
}

bool sy_admission_cancel(struct sy_admission *a, uint64_t id)
{
    for (int i = 0; i < a->n_waiting; i++)
        if (waiting(a, i)->id == id) {
            take_out(a, i);
            return true;
        }
    return false;
}

/* ---- looking ---- */

int sy_admission_n_waiting(const struct sy_admission *a)
{
    return a->n_waiting;
}

bool sy_admission_is_busy(const struct sy_admission *a)
{
    return a->busy;
}

sy_ns sy_admission_drained_ns(const struct sy_admission *a, sy_ns now)
{
    sy_ns running = a->busy ? left_of_running(a, now).expected_ns : 0;
    return now + running + (sy_ns)((double)a->queued_ns * a->rules->stretch);
}

bool sy_admission_is_valid(const struct sy_admission *a)
{
    sy_ns sum = 0;
    for (int i = 0; i < a->n_waiting; i++) {
        const struct entry *e = entry_at(a, i);
        sum += e->is.duration.expected_ns;
        if (i > 0 && compare(entry_at(a, i - 1), e) > 0)
            return false;
    }
    return sum == a->queued_ns && a->n_waiting <= n_slots(a) && (a->busy || !a->preempting);
}
