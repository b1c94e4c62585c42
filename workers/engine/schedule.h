/* The learning rate and an update's numbers as functions of the iteration, and nothing else: a resumed run needs no state for them. */
#ifndef SY_WORKERS_ENGINE_SCHEDULE_H
#define SY_WORKERS_ENGINE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct sy_train_options;

/* With d = scale g + decay w: SGD: w -= rate d | momentum: v = momentum v + d, w -= rate v | Nesterov: v as before, w -= rate (d + momentum v) |
 * Adam: m = beta1 m + rest1 d, v = beta2 v + rest2 d^2, w = shrink w - rate m / (sqrt(v) correct2 + epsilon). */
struct sy_update_rule {
    float rate, momentum, decay;
    float beta1, beta2, rest1, rest2, epsilon, correct2; /* rest: 1 - beta, rounded once */
    float shrink; /* AdamW: weights are multiplied with it first */
};

/* `iteration` counts from 1. During the warm-up it grows in a line to the schedule's first rate. */
double sy_train_rate(const struct sy_train_options *options, uint64_t iteration);
/* Of the options' optimizer; decays: the parameter has weight decay. */
void sy_train_rule(const struct sy_train_options *options, bool decays, uint64_t iteration,
                   struct sy_update_rule *rule);

#endif
