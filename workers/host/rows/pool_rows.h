/* Pools of float32 by rows of the result: the window's rows of the input are combined first, then its columns, in loops that vectorise. Each
 * result by one thread in one order. */
#ifndef SY_WORKERS_HOST_ROWS_POOL_ROWS_H
#define SY_WORKERS_HOST_ROWS_POOL_ROWS_H

#include <stdint.h>

#define SY_POOL_DIMS 6 /* spatial */

enum sy_pool_kind { SY_POOL_LARGEST, SY_POOL_AVERAGE, SY_POOL_L1, SY_POOL_L2 };

struct sy_pool_rows {
    enum sy_pool_kind kind;
    int n_dims;
    int64_t planes; /* batch times channels */
    int64_t in[SY_POOL_DIMS], out[SY_POOL_DIMS], kernel[SY_POOL_DIMS], strides[SY_POOL_DIMS],
        dilations[SY_POOL_DIMS], pads[SY_POOL_DIMS];
    /* For an average: the first and, behind them, the last places of each dimension that count: 0 and in, or the padding too. */
    int64_t from[SY_POOL_DIMS], end[SY_POOL_DIMS];
};

/* in [planes, in...], out [planes, out...]. A NaN makes its windows' results NaN. A window that is altogether in the padding has
 * the lowest finite number as its largest, 0 as its average and norm. Norms are summed in double. */
void sy_pool_rows(const struct sy_pool_rows *p, const float *in, float *out);

#endif
