/* Predicted finish times, and requests that would miss their deadlines (admission.h). */
#include <math.h>

#include "runtime/sched/admission_internal.h"

#define OFF_TO_MARGIN 3.0 /* in units of the usual deviation; one in a hundred exceeds it */

/* An expected time, and the square of its margin. */
struct moment {
    double at_ns, square;
};

static struct moment after(struct moment m, struct sy_duration d, double stretch)
{
    double margin = (double)d.margin_ns * stretch;
    return (struct moment){m.at_ns + (double)d.expected_ns * stretch, m.square + margin * margin};
}

/* Compares squares: this is evaluated for every request in the queue, so it avoids the square root. */
static bool holds(struct moment m, const struct sy_admission_request *r)
{
    double spare = (double)deadline_of(r) - m.at_ns;
    return spare >= 0 && spare * spare >= m.square;
}

/* Remaining duration of the running request. One that overruns by more than half its expected duration and more than its margin is assumed to take as long
 * again as so far. */
static sy_ns likely_left(const struct sy_admission *a, sy_ns now)
{
    sy_ns expected = a->running.until_ns - SY_MIN(a->running.from_ns, a->running.until_ns);
    sy_ns spare = SY_MAX(expected / 2, a->running.margin_ns);
    if (now > a->running.until_ns && now - a->running.until_ns > spare)
        return now - a->running.from_ns;
    return left_of_running(a, now).expected_ns;
}

/* Q5. A request that restarts may be preempted while its remaining work exceeds all that its preemptions have discarded; so the discarded work stays below the
 * work gained, and a request that is interrupted repeatedly still finishes. After that it is preempted only to keep a promise. */
bool sy_admission_gives_way(const struct sy_admission *a, const struct sy_admission_request *r,
                            sy_ns now)
{
    if (!a->busy || a->rules->config.preempt_ns == 0 || !r || r->class_ >= a->running_class)
        return false;
    if (!a->rules->config.restarts)
        return true;
    sy_ns left = likely_left(a, now);
    if (left <= a->gave_way.yield_ns)
        return false; /* it finishes before a preemption would take effect */
    if (a->gave_way.lost_ns + now - SY_MIN(now, a->running.from_ns) <= left)
        return true;
    struct moment waits = {(double)now + (double)left, 0};
    struct moment pushes = {(double)now + (double)a->gave_way.yield_ns, 0};
    return !holds(after(waits, r->duration, a->rules->stretch), r) &&
           holds(after(pushes, r->duration, a->rules->stretch), r);
}

/* Simulates the queue in order of execution, with `extra` inserted, and accounts for the rest of the running request where it will resume. */
struct walk {
    const struct sy_admission *a;
    sy_ns now;
    sy_ns yields_ns; /* how long the running request continues before it stops */
    bool gave_way;
    bool rest_is_due;           /* the running request's rest is not accounted for yet */
    struct moment moment, rest; /* rest: finish of the running request, once accounted for */
};

/* Its weights may have been evicted: they are loaded again. */
static struct sy_duration reload_time(const struct walk *w)
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
        w->rest = w->moment = after(after(w->moment, left, 1), reload_time(w), 1);
    w->rest_is_due = false;
}

/* `first`: the request that will be at the head of the queue; NULL: none. */
static struct walk begin_walk(const struct sy_admission *a, sy_ns now,
                              const struct sy_admission_request *first)
{
    struct walk w = {a,       now,
                     0,       a->preempting || sy_admission_gives_way(a, first, now),
                     a->busy, {(double)now, 0},
                     {0, 0}};
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

/* Q6. Without reservation the demand counters, and their cache line, are not touched. */
static sy_ns with_urgent(const struct sy_admission *a, int class_, sy_ns now, double wait_ns)
{
    return a->rules->config.reserves ? sy_class_demand_wait(&a->demand, class_, now, wait_ns)
                                     : (sy_ns)wait_ns;
}

/* Q1. A promise whose margin other arrivals have used up may still be kept, so it is not delayed further. */
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

/* Q1, for all requests behind the newcomer, and for the running one if it would be preempted. */
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

/* No request waits and none would be preempted, the usual case in a simulation: the result of begin_walk suffices. */
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
