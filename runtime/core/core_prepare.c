/* How long a request waits for its program: for a new batch size or new sizes a worker makes one first. Learned per model from the workers' reports, beginning
 * with the model's load. Programs are made while other requests compute. */
#include <math.h>

#include "runtime/base/assert.h"
#include "runtime/core/core_internal.h"

#define UNIT_NS SY_NS_PER_S /* reference time for ratios */

static struct sy_duration preparing(const struct sy_core *core, const struct sy_core_request *r)
{
    struct sy_duration none = {0, 0};
    if (sy_sched_is_ready(core->sched, r->model, r->batch, r->sizes ? r->sizes->id : 0) ||
        sy_predictor_n_seen(core->preparing, r->model, false) == 0)
        return none;
    struct sy_duration whole = sy_predictor_correct(core->preparing, r->model, 0, UNIT_NS);
    whole.expected_ns -=
        SY_MIN(whole.expected_ns,
               sy_sched_busy_ns(core->sched, sy_sched_model_slice(core->sched, r->model)));
    return whole;
}

struct sy_duration sy_core_whole_duration(const struct sy_core *core,
                                          const struct sy_core_request *wants)
{
    struct sy_duration run = sy_core_duration(core, wants->model, wants->guess);
    struct sy_duration first = preparing(core, wants);
    run.expected_ns += first.expected_ns;
    run.margin_ns = (sy_ns)hypot((double)run.margin_ns, (double)first.margin_ns);
    return run;
}

int sy_core_explain_preparing(const struct sy_core *core, const struct sy_core_request *wants,
                              int status)
{
    struct sy_duration first = preparing(core, wants);
    if (first.expected_ns == 0)
        return status;
    return sy_error_prefix(status, "%.3f ms to prepare for a batch or sizes that are new",
                           (double)first.expected_ns / 1e6);
}

void sy_core_learn_preparing(struct sy_core *core, int model, sy_ns took_ns)
{
    if (took_ns > 0)
        sy_predictor_observe_compute(core->preparing, model, UNIT_NS, took_ns);
}
