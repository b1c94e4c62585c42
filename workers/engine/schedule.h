/* The learning rate as a function of the iteration, and nothing else: a resumed run needs no state for it. */
#ifndef SY_WORKERS_ENGINE_SCHEDULE_H
#define SY_WORKERS_ENGINE_SCHEDULE_H

#include <stdint.h>

#include "workers/engine/trainer.h"

/* `iteration` counts from 1. During the warm-up it grows in a line to the schedule's first rate. */
double sy_train_rate(const struct sy_train_options *options, uint64_t iteration);

#endif
