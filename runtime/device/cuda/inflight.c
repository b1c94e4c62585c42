#include "runtime/device/cuda/inflight.h"

#include "runtime/base/assert.h"

#define PARTS        4 /* of the limit, one event each: fewer would wait in jumps, more cost records */
#define MAX_RATIO    8.0  /* F3 */
#define NEW_WEIGHT   0.25 /* of a measurement in the ratio */
#define MIN_LAYER_NS 1000 /* a launch alone takes this long */

void sy_inflight_init(struct sy_inflight *f, uint64_t limit_ns)
{
    *f = (struct sy_inflight){.limit_ns = limit_ns ? limit_ns : SY_INFLIGHT_LIMIT_NS, .ratio = 1};
}

static uint64_t estimate(const struct sy_inflight *f, uint64_t layer_ns)
{
    if (layer_ns == 0)
        return SY_MAX(f->limit_ns / PARTS, 1u);
    return (uint64_t)((double)SY_MAX(layer_ns, (uint64_t)MIN_LAYER_NS) * f->ratio);
}

uint64_t sy_inflight_ns(const struct sy_inflight *f)
{
    return f->open_ns + f->closed_ns;
}

static unsigned next_slot(const struct sy_inflight *f)
{
    return (f->oldest + f->n_events) % SY_INFLIGHT_EVENTS;
}

enum sy_inflight_answer sy_inflight_next(const struct sy_inflight *f, bool preempted,
                                         unsigned *out_slot)
{
    uint64_t in_flight = sy_inflight_ns(f);
    if (in_flight == 0)
        return preempted ? SY_INFLIGHT_STOP : SY_INFLIGHT_LAUNCH;
    if (!preempted && in_flight < f->limit_ns) /* F1 */
        return SY_INFLIGHT_LAUNCH;
    if (f->n_events == 0 || (preempted && f->open_ns > 0 && f->n_events < SY_INFLIGHT_EVENTS)) {
        *out_slot = next_slot(f);
        return SY_INFLIGHT_RECORD;
    }
    *out_slot = f->oldest;
    return SY_INFLIGHT_WAIT;
}

bool sy_inflight_launched(struct sy_inflight *f, uint64_t layer_ns, unsigned *out_slot)
{
    f->open_ns += SY_MAX(estimate(f, layer_ns), 1u);
    *out_slot = next_slot(f);
    return f->open_ns >= f->limit_ns / PARTS && f->n_events < SY_INFLIGHT_EVENTS;
}

void sy_inflight_recorded(struct sy_inflight *f, unsigned slot)
{
    assert(f->n_events < SY_INFLIGHT_EVENTS && slot == next_slot(f));
    f->estimates[slot] = f->open_ns;
    f->closed_ns += f->open_ns;
    f->open_ns = 0;
    f->n_events++;
}

void sy_inflight_passed(struct sy_inflight *f, unsigned slot, uint64_t measured_ns)
{
    assert(f->n_events > 0 && slot == f->oldest);
    uint64_t expected = f->estimates[slot];
    f->closed_ns -= expected;
    f->oldest = (f->oldest + 1) % SY_INFLIGHT_EVENTS;
    f->n_events--;
    if (measured_ns == 0 || expected == 0)
        return;
    double seen = f->ratio * (double)measured_ns / (double)expected;
    f->ratio += NEW_WEIGHT * (seen - f->ratio);
    f->ratio = SY_MIN(SY_MAX(f->ratio, 1 / MAX_RATIO), MAX_RATIO);
}
