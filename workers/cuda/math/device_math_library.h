/* What a library (cuDNN) may compute in the place of kernels of our own, beside device_math.h: pools and recurrent layers. Which of the two is taken is measured
 * when a model is imported, by the engine (cuda_candidates.h), and kept among the choices; without a choice it is our own.
 *
 * M1 to M4 hold here too. */
#ifndef SY_WORKERS_CUDA_MATH_DEVICE_MATH_LIBRARY_H
#define SY_WORKERS_CUDA_MATH_DEVICE_MATH_LIBRARY_H

#include "workers/cuda/math/device_math.h"

/* An LSTM, a GRU that resets behind the product, an RNN, with the usual curves; all of float32, in ONNX's layouts with time in front. */
struct sy_math_recurrence {
    enum sy_op op;
    bool relu; /* an RNN's curve; else tanh */
    bool has_bias, has_y;
    int64_t steps, batch, input, hidden, gates, directions;
};

enum sy_recurrence_role {
    SY_RECURRENCE_X,
    SY_RECURRENCE_W,
    SY_RECURRENCE_R,
    SY_RECURRENCE_BIAS,
    SY_RECURRENCE_H0,
    SY_RECURRENCE_C0,
    SY_RECURRENCE_Y,
    SY_RECURRENCE_YH,
    SY_RECURRENCE_YC,
    SY_RECURRENCE_ROLES
};

struct sy_math_library_plan; /* what the library would do for one description */

struct sy_math_library_ops {
    /* *out NULL and SY_OK: the library does not have this, or refused it (in the log). Depends on the description and the library alone. */
    int (*pool_plan)(struct sy_math *math, const struct sy_math_pool *pool,
                     struct sy_math_library_plan **out);
    /* Also none where it wants more than the table's scratch_bytes for weights in its own order and what else it needs. */
    int (*recurrence_plan)(struct sy_math *math, const struct sy_math_recurrence *recurrence,
                           struct sy_math_library_plan **out);
    void (*plan_drop)(struct sy_math *math, struct sy_math_library_plan *plan); /* NULL is fine */

    /* Whether programs that are made measure. */
    bool (*is_tuning)(const struct sy_math *math);
    /* Whether the library was measured to be the faster one, for this batch size or else another. Not measured: it was not. */
    bool (*is_chosen)(struct sy_math *math, const struct sy_math_library_plan *plan);
    int (*choose)(struct sy_math *math, const struct sy_math_library_plan *plan, bool library);
    /* Whether nothing like the plan was asked about before: its kernels are to be run once, before a swap does. */
    bool (*is_cold)(struct sy_math *math, const struct sy_math_library_plan *plan);

    /* The plan's first run failed: no plan like it is chosen from now on. */
    void (*note_failure)(struct sy_math *math, const struct sy_math_library_plan *plan);

    /* Zeroed memory of the device beside the pool; *out NULL: there is none. */
    int (*memory_take)(struct sy_math *math, uint64_t bytes, void **out);
    void (*memory_drop)(struct sy_math *math, void *memory); /* waits; NULL is fine */
    /* What that which `run` enqueues takes as a graph, recorded anew and launched several times; waits. *out_ms below 0 and SY_OK: it failed,
     * or could not be recorded; why is the error text. */
    int (*time)(struct sy_math *math, int (*run)(void *ctx), void *ctx, float *out_ms);

    /* ---- enqueue (M1) ---- */
    int (*pool)(struct sy_math *math, struct sy_math_library_plan *plan, const void *x, void *y);
    /* at: by role; NULL: absent, or not wanted. */
    int (*recurrence)(struct sy_math *math, struct sy_math_library_plan *plan, void *const *at,
                      void *scratch);
};

#endif
