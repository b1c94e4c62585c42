#include "workers/engine/schedule.h"

#include <math.h>

#include "runtime/base/assert.h"

double sy_train_rate(const struct sy_train_options *o, uint64_t iteration)
{
    const struct sy_schedule *s = &o->schedule;
    double rate = o->learning_rate;
    if (iteration <= s->warmup_steps)
        return rate * (double)iteration / (double)s->warmup_steps;
    uint64_t at = iteration - 1 - s->warmup_steps; /* since the warm-up, from 0 */
    uint64_t n_changes = at / SY_MAX(s->every_steps, 1);
    if (s->kind == SY_SCHEDULE_STEP)
        return rate * pow(s->factor, (double)n_changes);
    if (s->kind == SY_SCHEDULE_CONSTANT)
        return rate;
    uint64_t all = s->steps > s->warmup_steps ? s->steps - s->warmup_steps : 1;
    double part = at >= all ? 1.0 : (double)at / (double)all;
    if (s->kind == SY_SCHEDULE_LINEAR)
        return rate + (s->final_rate - rate) * part;
    return s->final_rate + (rate - s->final_rate) * 0.5 * (1.0 + cos(M_PI * part));
}
