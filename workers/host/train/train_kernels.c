/* The trainer's own loops: sums, loss, optimizers. Elementwise work is cut into one part a thread, which does not
 * change bits; sums over rows keep one order. */
#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/train_rules.h"
#include "workers/host/base/clones.h"
#include "workers/host/train/train_internal.h"
#include "workers/host/train/train_parts.h"

SY_CLONES static void sum_part(float *to, const float *a, const float *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = a[i] + b[i];
}

void sy_tr_kernel_sum(float *to, const float *a, const float *b, uint64_t n)
{
    IN_PARTS(n, sum_part(to + from, a + from, b + from, count))
}

static inline float widen(uint16_t bits)
{
    union {
        uint32_t i;
        float f;
    } x = {.i = (uint32_t)bits << 16};
    return x.f;
}

/* Rounds to nearest even; NaN stays NaN. */
static inline uint16_t narrow(float value)
{
    union {
        float f;
        uint32_t i;
    } x = {.f = value};
    uint32_t rounded = (x.i + 0x7fff + (x.i >> 16 & 1)) >> 16;
    return (uint16_t)(value != value ? x.i >> 16 | 0x40 : rounded);
}

SY_CLONES static void sum_bf16_part(uint16_t *to, const uint16_t *a, const uint16_t *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = narrow(widen(a[i]) + widen(b[i]));
}

void sy_tr_kernel_sum_bf16(uint16_t *to, const uint16_t *a, const uint16_t *b, uint64_t n)
{
    IN_PARTS(n, sum_bf16_part(to + from, a + from, b + from, count))
}

/* ---- loss --------------------------------------------------------------------------------------- */

/* One row: its loss, and (softmax - onehot) / batch. In double: a row is short, and exp must not overflow. */
static double cross_entropy_row(float *diff, const float *x, int64_t n, int32_t label, double scale)
{
    double top = x[0], sum = 0.0;
    for (int64_t i = 1; i < n; i++)
        top = SY_MAX(top, (double)x[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    for (int64_t i = 0; i < n; i++)
        diff[i] = (float)((exp((double)x[i] - top) / sum - (i == label ? 1.0 : 0.0)) * scale);
    return log(sum) + top - (double)x[label];
}

static int64_t count_labels(const struct sy_trainer *t, const int32_t *labels)
{
    int64_t n = 0;
    for (int64_t r = 0; r < t->n_positions; r++)
        n += labels[r] >= 0;
    return n;
}

/* The mean over positions that have a label (one at least). */
static int cross_entropy(struct sy_trainer *t, float *diff, const float *x, const int32_t *labels)
{
    int64_t rows = t->n_positions, n = t->n_outputs, counted = SY_MAX(count_labels(t, labels), 1);
    double sum = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        if (labels[r] >= n)
            return sy_error_set(SY_EARG,
                                "label %d of row %lld: the model has %lld classes, 0 to %lld",
                                labels[r], (long long)r, (long long)n, (long long)n - 1);
        if (labels[r] < 0)
            memset(diff + r * n, 0, (size_t)n * sizeof *diff);
        else
            sum += cross_entropy_row(diff + r * n, x + r * n, n, labels[r], 1.0 / (double)counted);
    }
    t->loss = sum / (double)counted;
    return SY_OK;
}

static int mean_square(struct sy_trainer *t, float *diff, const float *x, const float *wanted)
{
    int64_t n = t->n_positions * t->n_outputs;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - (double)wanted[i];
        sum += d * d;
        diff[i] = (float)(2.0 * d / (double)n);
    }
    t->loss = sum / (double)n;
    return SY_OK;
}

/* log(1 + exp(-|x|)) + max(x, 0) - x * wanted, which does not overflow. */
static int binary_cross_entropy(struct sy_trainer *t, float *diff, const float *x,
                                const float *wanted)
{
    int64_t n = t->n_positions * t->n_outputs;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i], small = exp(-fabs(v));
        sum += log1p(small) + (v > 0.0 ? v : 0.0) - v * (double)wanted[i];
        double p = v > 0.0 ? 1.0 / (1.0 + small) : small / (1.0 + small);
        diff[i] = (float)((p - (double)wanted[i]) / (double)n);
    }
    t->loss = sum / (double)n;
    return SY_OK;
}

int sy_tr_kernel_loss(struct sy_trainer *t, const struct sy_tr_step *step)
{
    float *diff = t->values[step->value[0]].data;
    const float *x = t->values[step->value[1]].data;
    const void *labels = t->values[step->value[2]].data;
    if (t->options.loss == SY_LOSS_MSE)
        return mean_square(t, diff, x, labels);
    if (t->options.loss == SY_LOSS_BCE)
        return binary_cross_entropy(t, diff, x, labels);
    return cross_entropy(t, diff, x, labels);
}

int64_t sy_tr_kernel_correct(const struct sy_trainer *t, int64_t rows)
{
    int64_t each = t->n_positions / t->options.batch;
    return sy_train_count_right(t->options.loss, t->values[t->logits].data,
                                t->values[t->labels].data, rows * each, t->n_outputs);
}
