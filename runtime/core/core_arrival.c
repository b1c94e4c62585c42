#include "runtime/core/core_arrival.h"

#include <stdio.h>

#include "runtime/base/log.h"
#include "runtime/core/core_batch.h"
#include "runtime/core/core_internal.h"

#define SLACK_NS (2 * SY_NS_PER_MS) /* margin for what the prediction does not cover */

/* Expected time until the rest has arrived, at the mean rate since the first look; UINT64_MAX: nothing has arrived since. */
static sy_ns rest_ns(const struct sy_core_model *m, const struct sy_package_arrival *arrival,
                     sy_ns now)
{
    uint64_t whole = m->package->weights_offset + m->package->weights_bytes;
    uint64_t bytes = sy_arrival_bytes(arrival);
    if (bytes >= whole)
        return 0;
    if (bytes <= m->arrival.first_bytes || now <= m->arrival.first_ns)
        return UINT64_MAX;
    double rate = (double)(bytes - m->arrival.first_bytes) / (double)(now - m->arrival.first_ns);
    double rest = (double)(whole - bytes) / rate;
    return rest < 1e18 ? (sy_ns)rest : UINT64_MAX;
}

static bool is_due(const struct sy_core *core, int model, const struct sy_package_arrival *arrival)
{
    const struct sy_core_request wants = {.model = model, .batch = 1, .n_parts = 1};
    sy_ns rest = rest_ns(&core->models[model], arrival, sy_clock_now());
    return rest <= sy_core_predict(core, &wants).ns + SLACK_NS;
}

static void fail_model(struct sy_core *core, int model, const char *why)
{
    struct sy_core_model *m = &core->models[model];
    if (m->status == SY_OK) {
        m->status = SY_EIO;
        snprintf(m->error, sizeof m->error, "%s", why);
        sy_log_error("core", "event=arrival_failed model=%s why=\"%s\"", m->name, m->error);
    }
    if (m->state == SY_MODEL_READY)
        m->state = SY_MODEL_UNAVAILABLE;
    sy_core_batch_release(core->batches, model, m->status, m->error);
}

static void follow_arrival(struct sy_core *core, int model)
{
    struct sy_core_model *m = &core->models[model];
    const struct sy_package_arrival *arrival = m->used && m->package ? m->package->arrival : NULL;
    if (!arrival || m->arrival.over)
        return;
    enum sy_arrival_state state = sy_arrival_state(arrival);
    if (m->arrival.first_ns == 0) {
        m->arrival.first_ns = sy_clock_now();
        m->arrival.first_bytes = sy_arrival_bytes(arrival);
    }
    m->arrival.over = state != SY_ARRIVAL_IS_COMING;
    if (state == SY_ARRIVAL_IS_FAILED) {
        fail_model(core, model, arrival->why);
        return;
    }
    if (m->state ==
        SY_MODEL_UNAVAILABLE) /* a restarted worker could not load it: no worker can run its requests, so they end */
        sy_core_batch_release(core->batches, model, m->status, m->error);
    if (m->state != SY_MODEL_READY || m->arrival.due ||
        (state == SY_ARRIVAL_IS_COMING && !is_due(core, model, arrival)))
        return;
    m->arrival.due = true;
    sy_core_batch_release(core->batches, model, SY_OK, NULL);
}

void sy_core_arrived(struct sy_core *core)
{
    sy_core_tick(core);
    sy_storage_thread_arrived(core->storage);
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        follow_arrival(core, i);
    sy_core_pump_soon(core);
}
