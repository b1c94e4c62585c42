#include "runtime/sched/admission.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MAX_REQUESTS 65534

struct entry {
    struct sy_admission_request is;
    uint64_t turn; /* of its arrival; those put back have turns below all others */
};

struct sy_admission {
    struct sy_admission_config config;
    struct entry *entries; /* by slot */
    uint16_t *queue;       /* slots: n_waiting of the queue, next first; then those that are free */
    int n_slots, n_waiting;
    uint64_t n_asked, n_put_back;
    double stretch;  /* of predicted durations: 1 ÷ requests' share */
    sy_ns queued_ns; /* sum of what is expected of the queue */
    bool busy, preempting;
    struct entry running;
    sy_ns running_until_ns; /* as expected */
    sy_ns yields_until_ns;  /* while preempting */
};

static int check_config(const struct sy_admission_config *config)
{
    if (config->max_requests >= 1 && config->max_requests <= MAX_REQUESTS)
        return SY_OK;
    return sy_error_set(SY_EARG, "a queue of %d requests: 1 to %d", config->max_requests,
                        MAX_REQUESTS);
}

/* One place is kept for the running one, if it is put back. */
static size_t slots_of(const struct sy_admission_config *config)
{
    return (size_t)config->max_requests + 1;
}

/* One block, what is used most in front. */
static size_t entries_at(const struct sy_admission_config *config)
{
    return SY_ALIGN_UP(sizeof(struct sy_admission) + slots_of(config) * sizeof(uint16_t),
                       sizeof(uint64_t));
}

size_t sy_admission_bytes(const struct sy_admission_config *config)
{
    return SY_ALIGN_UP(entries_at(config) + slots_of(config) * sizeof(struct entry), 64);
}

int sy_admission_init(const struct sy_admission_config *config, void *memory,
                      struct sy_admission **out)
{
    struct sy_admission *a = memory;
    *out = NULL;
    SY_TRY(check_config(config));
    *a = (struct sy_admission){.config = *config, .stretch = 1};
    a->n_slots = (int)slots_of(config);
    a->queue = (uint16_t *)(a + 1);
    a->entries = (struct entry *)((char *)a + entries_at(config));
    for (int i = 0; i < a->n_slots; i++)
        a->queue[i] = (uint16_t)i;
    *out = a;
    return SY_OK;
}

int sy_admission_create(const struct sy_admission_config *config, struct sy_admission **out)
{
    *out = NULL;
    SY_TRY(check_config(config));
    void *memory = aligned_alloc(64, sy_admission_bytes(config));
    if (!memory)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a queue of %d requests",
                            config->max_requests);
    return sy_admission_init(config, memory, out);
}

void sy_admission_destroy(struct sy_admission *a)
{
    free(a);
}

int sy_admission_set_share(struct sy_admission *a, unsigned permille)
{
    if (permille < 1 || permille > 1000)
        return sy_error_set(SY_EARG, "requests' share is %u per mille: 1 to 1000", permille);
    a->stretch = 1000.0 / permille;
    return SY_OK;
}

/* ---- order ---- */

static sy_ns deadline_of(const struct sy_admission_request *r)
{
    return r->deadline_ns == 0 ? UINT64_MAX : r->deadline_ns;
}

/* Q2, Q3. Who was put back started once: it is first of its class. */
static bool goes_before(const struct entry *a, const struct entry *b, uint64_t first_turn)
{
    bool again[2] = {a->turn < first_turn, b->turn < first_turn};
    if (a->is.class_ != b->is.class_)
        return a->is.class_ < b->is.class_;
    if (again[0] != again[1])
        return again[0];
    if (!again[0] && deadline_of(&a->is) != deadline_of(&b->is))
        return deadline_of(&a->is) < deadline_of(&b->is);
    return a->turn < b->turn;
}

#define FIRST_TURN (1ull << 63) /* turns below are of those put back, the latest lowest */

static int place_of(const struct sy_admission *a, const struct entry *e)
{
    int low = 0, high = a->n_waiting;
    while (low < high) {
        int middle = (low + high) / 2;
        if (goes_before(e, &a->entries[a->queue[middle]], FIRST_TURN))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void insert(struct sy_admission *a, const struct entry *e)
{
    assert(a->n_waiting < a->n_slots);
    int at = place_of(a, e);
    uint16_t slot = a->queue[a->n_waiting];
    memmove(&a->queue[at + 1], &a->queue[at], (size_t)(a->n_waiting - at) * sizeof a->queue[0]);
    a->queue[at] = slot;
    a->entries[slot] = *e;
    a->n_waiting++;
    a->queued_ns += e->is.duration.expected_ns;
}

static struct entry take_out(struct sy_admission *a, int at)
{
    uint16_t slot = a->queue[at];
    a->n_waiting--;
    memmove(&a->queue[at], &a->queue[at + 1], (size_t)(a->n_waiting - at) * sizeof a->queue[0]);
    a->queue[a->n_waiting] = slot;
    a->queued_ns -= a->entries[slot].is.duration.expected_ns;
    return a->entries[slot];
}

/* ---- prediction ---- */

/* A point in time, as expected, and the square of the margin that it needs. */
struct moment {
    double at_ns, square;
};

static struct moment after(struct moment m, struct sy_duration d, double stretch)
{
    double margin = (double)d.margin_ns * stretch;
    return (struct moment){m.at_ns + (double)d.expected_ns * stretch, m.square + margin * margin};
}

/* Without a square root: this is asked of everyone in the queue. */
static bool holds(struct moment m, const struct sy_admission_request *r)
{
    double spare = (double)deadline_of(r) - m.at_ns;
    return spare >= 0 && spare * spare >= m.square;
}

static struct sy_duration left_of_running(const struct sy_admission *a, sy_ns now)
{
    sy_ns until = a->running_until_ns;
    return (struct sy_duration){until > now ? until - now : 0, a->running.is.duration.margin_ns};
}

/* Walks the order in which all would run, with `extra` in it, and calls the running one's rest in where it belongs. */
struct walk {
    const struct sy_admission *a;
    sy_ns now;
    sy_ns yields_ns;            /* so long it goes on before it gives way */
    bool rest_is_due;           /* the running one's rest was not counted yet */
    struct moment moment, rest; /* rest: when the running one ends, once it was counted */
};

static void count_rest(struct walk *w)
{
    if (w->rest_is_due) {
        struct sy_duration left = left_of_running(w->a, w->now);
        left.expected_ns -= w->yields_ns;
        w->rest = w->moment = after(w->moment, left, 1);
    }
    w->rest_is_due = false;
}

/* `most_urgent`: the class that will be first in the queue. */
static struct walk begin_walk(const struct sy_admission *a, sy_ns now, int most_urgent)
{
    struct walk w = {a, now, 0, a->busy, {(double)now, 0}, {0, 0}};
    if (a->busy && a->config.preempt_ns > 0 && most_urgent < a->running.is.class_) {
        sy_ns until = a->preempting ? a->yields_until_ns : now + a->config.preempt_ns;
        w.yields_ns = SY_MIN(until > now ? until - now : 0, left_of_running(a, now).expected_ns);
        w.moment.at_ns += (double)w.yields_ns;
    } else {
        count_rest(&w);
    }
    return w;
}

static struct moment step(struct walk *w, const struct sy_admission_request *r)
{
    if (w->rest_is_due && r->class_ >= w->a->running.is.class_)
        count_rest(w);
    return w->moment = after(w->moment, r->duration, w->a->stretch);
}

static int first_class(const struct sy_admission *a, int otherwise)
{
    return a->n_waiting > 0 ? a->entries[a->queue[0]].is.class_ : otherwise;
}

static bool breaks_promise(const struct sy_admission *a, const struct sy_admission_request *r,
                           const struct sy_admission_request *other, struct moment with,
                           struct moment without)
{
    bool protected =
        other->deadline_ns != 0 && !(a->config.may_break_lower && other->class_ > r->class_);
    return protected && !holds(with, other) && holds(without, other);
}

/* Q1: whoever held without the newcomer holds with it; so does the running one, if it would be preempted for it. */
static void look_behind(struct walk *with, struct walk *without, int at,
                        const struct sy_admission_request *r, struct sy_prediction *out)
{
    const struct sy_admission *a = with->a;
    bool delays_running = with->rest_is_due;
    for (int i = at; i < a->n_waiting && !out->breaks; i++) {
        const struct sy_admission_request *other = &a->entries[a->queue[i]].is;
        struct moment late = step(with, other), before = step(without, other);
        out->breaks = breaks_promise(a, r, other, late, before);
        out->would_break = other->id;
    }
    count_rest(with);
    count_rest(without);
    if (!out->breaks && delays_running) {
        out->breaks = breaks_promise(a, r, &a->running.is, with->rest, without->rest);
        out->would_break = a->running.is.id;
    }
}

struct sy_prediction sy_admission_predict(const struct sy_admission *a,
                                          const struct sy_admission_request *r, sy_ns now)
{
    struct entry e = {*r, FIRST_TURN + a->n_asked};
    struct sy_prediction out = {0};
    int at = place_of(a, &e), first = first_class(a, INT32_MAX);
    struct walk without = begin_walk(a, now, first);
    struct walk with = begin_walk(a, now, SY_MIN(first, r->class_));
    for (int i = 0; i < at; i++) {
        step(&with, &a->entries[a->queue[i]].is);
        step(&without, &a->entries[a->queue[i]].is);
    }
    if (with.rest_is_due && r->class_ >= a->running.is.class_)
        count_rest(&with);
    out.queue_ns = (sy_ns)with.moment.at_ns - now;
    struct moment own = step(&with, r);
    out.finish_ns = (sy_ns)own.at_ns;
    out.latest_ns = (sy_ns)(own.at_ns + sqrt(own.square));
    look_behind(&with, &without, at, r, &out);
    return out;
}

static int refuse(const struct sy_admission_request *r, const struct sy_prediction *p, sy_ns now)
{
    if (p->breaks)
        return sy_error_set(
            SY_EDEADLINE,
            "request %llu would be done in %.3f ms (%.3f ms in the queue), but would make request "
            "%llu, which was taken before, miss its deadline; send it later or to another server",
            (unsigned long long)r->id, (double)(p->finish_ns - now) / 1e6,
            (double)p->queue_ns / 1e6, (unsigned long long)p->would_break);
    return sy_error_set(SY_EDEADLINE,
                        "request %llu would be done in %.3f ms (%.3f ms in the queue, with margin "
                        "%.3f ms), but its deadline is in %.3f ms; allow more time or send it to "
                        "another server",
                        (unsigned long long)r->id, (double)(p->finish_ns - now) / 1e6,
                        (double)p->queue_ns / 1e6, (double)(p->latest_ns - now) / 1e6,
                        ((double)r->deadline_ns - (double)now) / 1e6);
}

int sy_admission_ask(struct sy_admission *a, const struct sy_admission_request *r, sy_ns now,
                     struct sy_prediction *out)
{
    struct entry e = {*r, FIRST_TURN + a->n_asked};
    if (a->n_waiting >= a->config.max_requests)
        return sy_error_set(SY_EBUSY, "%d requests wait already; try again later", a->n_waiting);
    *out = sy_admission_predict(a, r, now);
    if (out->breaks || (r->deadline_ns != 0 && out->latest_ns > r->deadline_ns))
        return refuse(r, out, now);
    insert(a, &e);
    a->n_asked++;
    return SY_OK;
}

static void put_back(struct sy_admission *a, struct sy_duration duration)
{
    struct entry e = a->running;
    assert(a->busy);
    e.turn = FIRST_TURN - 1 - a->n_put_back++;
    e.is.duration = duration;
    a->busy = a->preempting = false;
    insert(a, &e);
}

/* ---- running ---- */

enum sy_admission_action sy_admission_next(struct sy_admission *a, sy_ns now,
                                           struct sy_admission_request *out)
{
    if (a->n_waiting == 0)
        return SY_ADMISSION_WAIT;
    if (a->busy) {
        if (a->preempting || a->config.preempt_ns == 0 ||
            first_class(a, INT32_MAX) >= a->running.is.class_)
            return SY_ADMISSION_WAIT;
        a->preempting = true;
        a->yields_until_ns = now + a->config.preempt_ns;
        *out = a->running.is;
        return SY_ADMISSION_PREEMPT;
    }
    a->running = take_out(a, 0);
    a->busy = true;
    *out = a->running.is;
    sy_admission_expect(a, a->running.is.duration, now);
    return SY_ADMISSION_START;
}

bool sy_admission_peek(const struct sy_admission *a, struct sy_admission_request *out)
{
    if (a->n_waiting == 0)
        return false;
    *out = a->entries[a->queue[0]].is;
    return true;
}

void sy_admission_expect(struct sy_admission *a, struct sy_duration left, sy_ns now)
{
    a->running.is.duration.margin_ns = left.margin_ns;
    a->running_until_ns = now + (sy_ns)((double)left.expected_ns * a->stretch);
}

void sy_admission_paused(struct sy_admission *a, sy_ns now)
{
    struct sy_duration left = left_of_running(a, now);
    left.expected_ns = (sy_ns)((double)left.expected_ns / a->stretch);
    put_back(a, left);
}

void sy_admission_again(struct sy_admission *a, struct sy_duration duration)
{
    put_back(a, duration);
}

void sy_admission_done(struct sy_admission *a)
{
    assert(a->busy);
    a->busy = a->preempting = false;
}

bool sy_admission_cancel(struct sy_admission *a, uint64_t id)
{
    for (int i = 0; i < a->n_waiting; i++)
        if (a->entries[a->queue[i]].is.id == id) {
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
    return now + running + (sy_ns)((double)a->queued_ns * a->stretch);
}

bool sy_admission_is_valid(const struct sy_admission *a)
{
    sy_ns sum = 0;
    for (int i = 0; i < a->n_waiting; i++) {
        const struct entry *e = &a->entries[a->queue[i]];
        sum += e->is.duration.expected_ns;
        if (i > 0 && goes_before(e, &a->entries[a->queue[i - 1]], FIRST_TURN))
            return false;
    }
    return sum == a->queued_ns && a->n_waiting <= a->n_slots && (a->busy || !a->preempting);
}
