/* What the files of the fake mathematics share. */
#ifndef SY_TESTS_FAKE_MATH_INTERNAL_H
#define SY_TESTS_FAKE_MATH_INTERNAL_H

#include "tests/fake_math.h"
#include "workers/cuda/device_math_train.h"

#define FAKE_MARK               (1ull << 62)
#define FAKE_SCRATCH_BYTES      256
#define FAKE_BACK_SCRATCH_BYTES 512

/* Something enqueued. */
struct note;
typedef void (*note_run)(const struct note *note);

struct note {
    note_run run;
    void *at[7];
    int64_t n;
    float value;
    enum sy_dtype from, to;
    union {
        struct sy_math_conv conv;
        struct sy_math_matmul matmul;
        struct sy_math_pool pool;
        struct sy_math_chain chain;
        struct sy_math_choice choice;
        struct sy_math_move move;
        struct sy_math_gather gather;
        struct sy_math_softmax softmax;
        struct sy_math_layer_norm norm;
        struct sy_math_reduce reduce;
        struct sy_math_columns columns;
        struct sy_math_loss loss;
        struct sy_math_update update;
        struct sy_math_curve curve;
        struct {
            struct sy_math_pair pair;
            int which;
        };
        struct sy_math_rows rows;
        struct sy_math_drop drop;
        struct sy_fold fold;
        struct {
            struct sy_math_cell cell;
            void *roles[SY_CELL_ROLES];
        };
        bool adds;
    };
};

int fake_enqueue(struct sy_math *math, const char *name, const struct note *note);
/* Counts a call, which may be the one to fail. */
int fake_call(const char *name);
/* A device pointer as the host's; NULL stays NULL. */
void *fake_seen(const void *device);
void fake_spoil(void *scratch);
void fake_spoil_back(void *scratch);
/* Element i of numbers that lie as this float type (NONE: float32); stored rounded. */
double fake_float_at(enum sy_dtype type, const void *at, int64_t i);
void fake_store_float(enum sy_dtype type, void *at, int64_t i, double value);

/* tests/fake_math_train_ops.c */
extern const struct sy_math_train_ops fake_math_train;
/* tests/fake_math_train.c */
void fake_run_conv_gradient(const struct note *note);
int fake_columns(struct sy_math *math, const struct sy_math_columns *columns, const void *a,
                 const void *x, const void *moments, void *out, void *scratch);
int fake_norm_gradient(struct sy_math *math, const struct sy_math_columns *columns, const void *dy,
                       const void *x, const void *moments, const void *sums, const void *scale,
                       void *dx);
int fake_pool_gradient(struct sy_math *math, const struct sy_math_pool *pool, const void *x,
                       const void *dy, void *dx);
int fake_loss(struct sy_math *math, const struct sy_math_loss *loss, const void *x,
              const void *wanted, void *diff, void *out, void *scratch);
int fake_update(struct sy_math *math, const struct sy_math_update *update, void *w, const void *g,
                void *m, void *v, const void *norm_square);
double fake_chain_slope(const struct sy_math_chain_step *step, double x, double y);

#endif
