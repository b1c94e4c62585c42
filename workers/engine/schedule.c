#include "workers/engine/schedule.h"

#include <math.h>

#include "runtime/base/assert.h"
#include "workers/engine/trainer.h"

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

void sy_train_rule(const struct sy_train_options *o, bool decays, uint64_t iteration,
                   struct sy_update_rule *r)
{
    double rate = sy_train_rate(o, iteration), step = (double)iteration;
    double decay = decays ? o->weight_decay : 0.0;
    *r = (struct sy_update_rule){
        .rate = (float)rate, .momentum = (float)o->momentum, .decay = (float)decay, .shrink = 1.0f};
    if (o->optimizer == SY_OPTIMIZER_SGD)
        return;
    r->rate = (float)(rate / (1.0 - pow(o->beta1, step)));
    r->beta1 = (float)o->beta1;
    r->beta2 = (float)o->beta2;
    r->rest1 = (float)(1.0 - o->beta1);
    r->rest2 = (float)(1.0 - o->beta2);
    r->epsilon = (float)o->epsilon;
    r->correct2 = (float)(1.0 / sqrt(1.0 - pow(o->beta2, step)));
    if (o->optimizer == SY_OPTIMIZER_ADAMW) {
        r->shrink = (float)(1.0 - rate * decay);
        r->decay = 0.0f;
    }
}
