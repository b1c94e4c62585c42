/* One line that says how a training job goes: rewritten in place on a terminal, once a second elsewhere. */
#ifndef SY_CLI_TRAIN_PROGRESS_H
#define SY_CLI_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct sy_train_sight {
    uint64_t step, total_steps;
    double loss;
    double accuracy; /* < 0: not measured */
    uint64_t accuracy_step;
    const char *state; /* "training", "paused" ... */
};

/* All zero before the first line. */
struct sy_train_progress {
    uint64_t printed_ns, seen_ns, seen_step;
    double steps_per_s; /* over the last seconds */
    bool has_rate;
};

/* Prints step, loss and rate on stdout: on a terminal on one line, several times a second; else a line a second. The last is always printed. */
void sy_train_progress_show(struct sy_train_progress *progress, const struct sy_train_sight *sight,
                            bool is_last);

#endif
