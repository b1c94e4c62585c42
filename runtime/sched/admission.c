#include "runtime/sched/admission.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/admission_refusal.h"
#include "runtime/sched/class_demand.h"

#define LINE          64
#define MAX_REQUESTS  65534
#define NEAR          4   /* entries that are beside the books */
#define OFF_TO_MARGIN 3.0 /* three times the usual distance: one in a hundred is farther off */

struct entry {
    struct sy_admission_request is;
    bool
        again; /* put back: it goes before all of its class that were not, and those that were put back before */
    sy_ns lost_ns; /* what it had done whenever it gave way */
};

/* What queues may have in common. */
struct rules {
    struct sy_admission_config config;
    double stretch; /* of predicted durations: 1 ÷ requests' share */
};

/* The one that runs; what only matters where requests give way is in struct gave_way. */
struct running {
    uint64_t id;
    sy_ns deadline_ns, margin_ns;
    sy_ns from_ns, until_ns; /* as expected */
};

/* Written only where preempt_ns is not 0. */
struct gave_way {
    sy_ns expected_ns, lost_ns;   /* of the running one */
    sy_ns yields_from_ns;         /* while preempting */
    sy_ns yield_ns, yield_off_ns; /* until a running one stops, and how far off that usually is */
    /* By so much giving way makes the rest longer, and how far off that usually is. */
    sy_ns regain_ns, regain_off_ns;
};

/* The first line is all that events touch where nobody waits, and with few waiting the one of `first`: thousands of queues lie side by
 * side in a simulation. */
struct sy_admission {
    struct running running;
    int running_class;
    uint16_t n_waiting;
    bool busy, preempting;
    sy_ns queued_ns; /* sum of what is expected of the queue */
    struct rules *rules;

    struct gave_way gave_way;
    struct entry *far; /* by slot, from NEAR on */
    struct sy_class_demand demand;
    struct rules own_rules;
    struct entry second[NEAR - 1]; /* slots from 1 on */

    struct entry first __attribute__((aligned(LINE))); /* slot 0: what most queues do with */
    uint16_t queue[]; /* slots: n_waiting of the queue, next first; then those that are free */
} __attribute__((aligned(LINE)));
static_assert(offsetof(struct sy_admission, gave_way) == SY_ADMISSION_HOT_BYTES &&
                  offsetof(struct sy_admission, first) % LINE == 0,
              "an event touches more lines than are asked for ahead");

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

/* Slots are taken from the front, so that short queues do with the books, which thousands of queues then have side by side. */
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

static const struct entry *entry_at(const struct sy_admission *a, int place)
{
    int slot = a->queue[place];
    if (slot == 0)
        return &a->first;
    return slot < NEAR ? &a->second[slot - 1] : &a->far[slot - NEAR];
}

static struct entry *entry_in(struct sy_admission *a, int place)
{
    int slot = a->queue[place];
    if (slot == 0)
        return &a->first;
    return slot < NEAR ? &a->second[slot - 1] : &a->far[slot - NEAR];
}

static const struct sy_admission_request *waiting(const struct sy_admission *a, int place)
{
    return &entry_at(a, place)->is;
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
    if (!memory)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a queue of %d requests",
                            config->max_requests);
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

static sy_ns deadline_of(const struct sy_admission_request *r)
{
    return r->deadline_ns == 0 ? UINT64_MAX : r->deadline_ns;
}

/* Q2, Q3. Who was put back started once: it is first of its class. Below 0: a goes first; 0: as they came. */
static int compare(const struct entry *a, const struct entry *b)
{
    sy_ns x = a->again ? 0 : deadline_of(&a->is), y = b->again ? 0 : deadline_of(&b->is);
    if (a->is.class_ != b->is.class_)
        return a->is.class_ < b->is.class_ ? -1 : 1;
    if (a->again != b->again)
        return a->again ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Of one that comes now. */
static int place_of(const struct sy_admission *a, const struct entry *e)
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

/* Slots that were used in turns would keep all their lines in use. */
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
    sy_ns until = a->running.until_ns;
    return (struct sy_duration){until > now ? until - now : 0, a->running.margin_ns};
}

/* From the start: what starts over needs it. */
static struct sy_duration whole_of_running(const struct sy_admission *a)
{
    return (struct sy_duration){a->gave_way.expected_ns, a->running.margin_ns};
}

/* What the running one still needs, if what was expected means anything: half as long again, and it may take as long once more. */
static sy_ns likely_left(const struct sy_admission *a, sy_ns now)
{
    sy_ns expected = a->running.until_ns - SY_MIN(a->running.from_ns, a->running.until_ns);
    sy_ns spare = SY_MAX(expected / 2, a->running.margin_ns);
    if (now > a->running.until_ns && now - a->running.until_ns > spare)
        return now - a->running.from_ns;
    return left_of_running(a, now).expected_ns;
}

/* Q5. What starts over when it gives way does so while it has more before it than it lost in all: then no more is thrown away than is
 * won, and who is interrupted again and again gets through. After that only where a promise depends on it. */
static bool gives_way(const struct sy_admission *a, const struct sy_admission_request *r, sy_ns now)
{
    if (!a->busy || a->rules->config.preempt_ns == 0 || !r || r->class_ >= a->running_class)
        return false;
    if (!a->rules->config.restarts)
        return true;
    sy_ns left = likely_left(a, now);
    if (left <= a->gave_way.yield_ns)
        return false; /* it ends sooner than it would stop */
    if (a->gave_way.lost_ns + now - SY_MIN(now, a->running.from_ns) <= left)
        return true;
    struct moment waits = {(double)now + (double)left, 0};
    struct moment pushes = {(double)now + (double)a->gave_way.yield_ns, 0};
    return !holds(after(waits, r->duration, a->rules->stretch), r) &&
           holds(after(pushes, r->duration, a->rules->stretch), r);
}

/* Walks the order in which all would run, with `extra` in it, and calls the running one's rest in where it belongs. */
struct walk {
    const struct sy_admission *a;
    sy_ns now;
    sy_ns yields_ns; /* so long it goes on before it gives way */
    bool gave_way;
    bool rest_is_due;           /* the running one's rest was not counted yet */
    struct moment moment, rest; /* rest: when the running one ends, once it was counted */
};

/* Its weights may have to come again. */
static struct sy_duration regain_of(const struct walk *w)
{
    const struct gave_way *g = &w->a->gave_way;
    if (!w->gave_way)
        return (struct sy_duration){0, 0};
    return (struct sy_duration){g->regain_ns, (sy_ns)OFF_TO_MARGIN * g->regain_off_ns};
}

static void count_rest(struct walk *w)
{
    struct sy_duration left = left_of_running(w->a, w->now);
    left.expected_ns -= w->yields_ns;
    if (w->rest_is_due && w->gave_way && w->a->rules->config.restarts)
        w->rest = w->moment = after(w->moment, whole_of_running(w->a), w->a->rules->stretch);
    else if (w->rest_is_due)
        w->rest = w->moment = after(after(w->moment, left, 1), regain_of(w), 1);
    w->rest_is_due = false;
}

/* `first`: who will be first in the queue; NULL: nobody. */
static struct walk begin_walk(const struct sy_admission *a, sy_ns now,
                              const struct sy_admission_request *first)
{
    struct walk w = {
        a, now, 0, a->preempting || gives_way(a, first, now), a->busy, {(double)now, 0}, {0, 0}};
    if (w.gave_way) {
        sy_ns until = (a->preempting ? a->gave_way.yields_from_ns : now) + a->gave_way.yield_ns;
        w.yields_ns = SY_MIN(until > now ? until - now : 0, left_of_running(a, now).expected_ns);
        w.moment.at_ns += (double)w.yields_ns;
        w.moment.square = OFF_TO_MARGIN * OFF_TO_MARGIN * (double)a->gave_way.yield_off_ns *
                          (double)a->gave_way.yield_off_ns;
    } else {
        count_rest(&w);
    }
    return w;
}

static struct moment step(struct walk *w, const struct sy_admission_request *r)
{
    if (w->rest_is_due && r->class_ >= w->a->running_class)
        count_rest(w);
    return w->moment = after(w->moment, r->duration, w->a->rules->stretch);
}

static const struct sy_admission_request *first_of(const struct sy_admission *a)
{
    return a->n_waiting > 0 ? waiting(a, 0) : NULL;
}

/* Where nothing is reserved nothing is noted, and the line is not looked at. */
static sy_ns with_urgent(const struct sy_admission *a, int class_, sy_ns now, double wait_ns)
{
    return a->rules->config.reserves ? sy_class_demand_wait(&a->demand, class_, now, wait_ns)
                                     : (sy_ns)wait_ns;
}

static struct sy_admission_request running_of(const struct sy_admission *a)
{
    return (struct sy_admission_request){.id = a->running.id,
                                         .class_ = a->running_class,
                                         .deadline_ns = a->running.deadline_ns,
                                         .duration = whole_of_running(a)};
}

/* Q1. One whose margin is used up by what came otherwise can be saved yet: it is not delayed on top. */
static bool breaks_promise(const struct sy_admission *a, const struct sy_admission_request *r,
                           const struct sy_admission_request *other, struct moment with,
                           struct moment without)
{
    bool free =
        a->rules->config.may_break_lower && r->deadline_ns == 0 && other->class_ > r->class_;
    bool protected = other->deadline_ns != 0 && !free;
    bool can_be_saved = without.at_ns <= (double)deadline_of(other);
    bool is_delayed = with.at_ns > without.at_ns || with.square > without.square;
    return protected && is_delayed && !holds(with, other) && can_be_saved;
}

/* Q1: of all behind the newcomer, and of the running one, if it would be preempted for it. */
static void look_behind(struct walk *with, struct walk *without, int at,
                        const struct sy_admission_request *r, struct sy_prediction *out)
{
    const struct sy_admission *a = with->a;
    bool delays_running = with->rest_is_due;
    for (int i = at; i < a->n_waiting && !out->breaks; i++) {
        const struct sy_admission_request *other = waiting(a, i);
        struct moment late = step(with, other), before = step(without, other);
        out->breaks = breaks_promise(a, r, other, late, before);
        out->would_break = other->id;
    }
    count_rest(with);
    count_rest(without);
    if (!out->breaks && delays_running) {
        struct sy_admission_request running = running_of(a);
        out->breaks = breaks_promise(a, r, &running, with->rest, without->rest);
        out->would_break = running.id;
    }
}

/* Nobody waits and nobody would give way: most queues of a simulation, most of the time. The sums of the walk, and nothing else. */
static struct sy_prediction predict_next(const struct sy_admission *a,
                                         const struct sy_admission_request *r, sy_ns now)
{
    struct sy_prediction out = {0};
    struct moment m = {(double)now, 0};
    if (a->busy)
        m = after(m, left_of_running(a, now), 1);
    out.queue_ns = with_urgent(a, r->class_, now, m.at_ns - (double)now);
    m = after(m, r->duration, a->rules->stretch);
    out.finish_ns = now + with_urgent(a, r->class_, now, m.at_ns - (double)now);
    out.latest_ns = out.finish_ns + (sy_ns)sqrt(m.square);
    return out;
}

struct sy_prediction sy_admission_predict(const struct sy_admission *a,
                                          const struct sy_admission_request *r, sy_ns now)
{
    if (a->n_waiting == 0 && (!a->busy || a->rules->config.preempt_ns == 0))
        return predict_next(a, r, now);
    struct entry e = {.is = *r};
    struct sy_prediction out = {0};
    int at = place_of(a, &e);
    struct walk without = begin_walk(a, now, first_of(a));
    struct walk with = begin_walk(a, now, at == 0 ? r : first_of(a));
    for (int i = 0; i < at; i++) {
        step(&with, waiting(a, i));
        step(&without, waiting(a, i));
    }
    if (with.rest_is_due && r->class_ >= a->running_class)
        count_rest(&with);
    out.queue_ns = with_urgent(a, r->class_, now, with.moment.at_ns - (double)now);
    struct moment own = step(&with, r);
    out.finish_ns = now + with_urgent(a, r->class_, now, own.at_ns - (double)now);
    out.latest_ns = out.finish_ns + (sy_ns)sqrt(own.square);
    look_behind(&with, &without, at, r, &out);
    return out;
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

/* An eighth of each new one. */
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
        if (a->preempting || !gives_way(a, first_of(a), now))
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
