/* When a device has its next event. */
#include "runtime/base/assert.h"
#include "runtime/sim/sim_internal.h"

/* For the next device: its waiting requests arrived long ago, and start when it ends. */
static void expect_waiting(const struct sim *s, int device)
{
    struct sy_admission_request next;
    if (s->n_devices >= SY_SIM_MANY && s->loads[device] > 1 &&
        sy_admission_peek(sy_sim_queue(s, device), &next))
        sy_sim_expect(&s->in->requests[next.id]);
}

/* The least loaded device gets a request soon: prefetch it. The residency router hardly ever asks for it. */
static void note_drained(struct sim *s, int device, sy_ns down)
{
    sy_ns drained = SY_MAX(sy_admission_drained_ns(sy_sim_queue(s, device), s->now), down);
    struct kind *kind = &s->kinds[s->kind_of ? s->kind_of[device] : 0];
    if (s->config->router == SY_SIM_RESIDENCY) {
        sy_sim_tree_set_later(&kind->load, device - kind->first, drained);
        return;
    }
    int soon = sy_sim_tree_set(&kind->load, device - kind->first, drained);
    if (soon >= 0 && soon + kind->first != device)
        sy_sim_expect_device(s, soon + kind->first, 0);
}

/* Other events than the end of what is served need jobs or faults. */
static sy_ns other_event(const struct sim *s, const struct device *d, sy_ns due, sy_ns down)
{
    due = SY_MIN(due, sy_sim_next_iteration_end(s, d));
    if (d->has_newcomers)
        due = s->now;
    if (sy_sim_has_jobs(s, d)) {
        due = down > s->now ? SY_MIN(due, down) : due;
        due = !d->serving && d->again_ns > s->now ? SY_MIN(due, d->again_ns) : due;
    }
    return due;
}

static void set_due(struct sim *s, int device, sy_ns down)
{
    struct device *d = &s->devices[device];
    sy_ns due = NEVER, held = SY_MAX(down, sy_sim_requests_from(s, d));
    if (d->serving)
        due = SY_MIN(d->serve_until_ns, sy_sim_yield_at(s, d));
    else if (s->loads[device] > 0 && held > s->now)
        due = held;
    int soon = sy_sim_tree_set(&s->due, device, other_event(s, d, due, down));
    if (soon >= 0 && soon != device)
        sy_sim_expect_device(s, soon, 1);
    expect_waiting(s, sy_sim_tree_first(&s->due));
}

static void note_in_agenda(struct sim *s, int device)
{
    struct device *d = &s->devices[device];
    if (!d->serving || d->listed)
        return;
    d->listed = true;
    sy_sim_agenda_add(&s->agenda, device, d->serve_until_ns, s->now);
}

int sy_sim_take_due(struct sim *s)
{
    if (!s->has_agenda)
        return sy_sim_tree_first(&s->due);
    int device = sy_sim_agenda_take(&s->agenda);
    s->devices[device].listed = false;
    for (int i = 0; i < s->agenda.n_soon; i++)
        sy_sim_expect_device(s, s->agenda.soon[i], 1);
    if (s->agenda.first >= 0)
        expect_waiting(s, s->agenda.first);
    return device;
}

void sy_sim_reschedule(struct sim *s, int device)
{
    sy_ns down = sy_sim_down_until(s, &s->devices[device]);
    if (s->has_agenda)
        note_in_agenda(s, device);
    else
        set_due(s, device, down);
    if (s->n_devices > 1 && s->config->router >= SY_SIM_LEAST)
        note_drained(s, device, down);
}
