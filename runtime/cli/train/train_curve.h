/* A training job's loss and accuracy over its steps, gathered, and drawn as a figure. */
#ifndef SY_CLI_TRAIN_CURVE_H
#define SY_CLI_TRAIN_CURVE_H

#include <stdint.h>

#define SY_CURVE_POINTS 2048

struct sy_train_point {
    double step, value;
};

/* All zero is empty. */
struct sy_train_curve {
    struct sy_train_point loss[SY_CURVE_POINTS], accuracy[SY_CURVE_POINTS];
    int n_loss, n_accuracy;
};

/* Steps that are not behind the last one are left out. When there is no room, neighbours become one: the curve gets coarser, never
 * shorter. */
void sy_train_curve_add_loss(struct sy_train_curve *curve, uint64_t step, double loss);
void sy_train_curve_add_accuracy(struct sy_train_curve *curve, uint64_t step, double accuracy);
/* An SVG file, whole or not at all. EARG when there is nothing to draw; EIO names the path. */
int sy_train_curve_write(const struct sy_train_curve *curve, const char *name, const char *path);

#endif
