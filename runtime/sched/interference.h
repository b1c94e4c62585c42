/* Slow-down of a task while another one computes at the same time, in the time that it has its cores: measured for pairs that were seen, predicted for
 * others. Pure.
 *
 *   an observed pair             the median of its last 16 observations: single runs are noisy
 *   any other pair               the model that explains the observed pairs best:
 *     NOTHING                    1
 *     MEAN                       the pairs' mean, nearer to 1 the fewer they are
 *     PROFILES                   1 + K x traffic(a) x traffic(b): bytes a nanosecond that each moves through memory alone; K is fitted
 *     TASKS                      1 + sensitivity(a) x pressure(b), numbers of one task (its use of caches, of the link), fitted
 *
 * Models are compared by their mean error over the pairs times n / (n - fitted parameters): one with as many parameters as there are pairs fits them all
 * and predicts nothing. A model that has no numbers of a task predicts 1.
 *
 * The error of a prediction is taken against the median of the 8 observations that follow it.
 * Predictions must not be worse than always predicting 1. The excess error is kept as a debt, one for all first predictions and one for each pair's later
 * ones; it decays by 0.01 a block, and at a debt of 0.2 or more 1 is predicted. So n predictions lose at most 0.2 + 0.01 n and one prediction's error.
 * Decisions (sy_interference_breaks) use an observed pair's median whatever its debt: an observed slow-down breaks a promise. */
#ifndef SY_SCHED_INTERFERENCE_H
#define SY_SCHED_INTERFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#define SY_INTERFERENCE_TASKS  512 /* ids 0 to 511 */
#define SY_INTERFERENCE_RECENT 16
#define SY_INTERFERENCE_BLOCK  8
#define SY_INTERFERENCE_PAIRS  512 /* pairs remembered; the one observed longest ago is replaced */

struct sy_interference_pair {
    int a, b;
    unsigned n; /* observations; 0: unused entry */
    float recent[SY_INTERFERENCE_RECENT];
    double slowdown;  /* of a beside b: the median of the samples */
    double predicted; /* prediction made before the first observation */
    double debt;      /* accumulated error of the later predictions */
    double first_error,
        next_error; /* |predicted - median of a block| / that median: of the first block, predicted before any was measured; running mean over all */
    double block_predicted;       /* before the block */
    double none_first, none_next; /* the same two errors for the constant prediction 1 */
    uint64_t used;
};

enum sy_interference_way {
    SY_PREDICT_NOTHING,
    SY_PREDICT_MEAN,
    SY_PREDICT_PROFILES,
    SY_PREDICT_TASKS,
    SY_PREDICT_WAYS
};

struct sy_interference {
    double sensitivity[SY_INTERFERENCE_TASKS], pressure[SY_INTERFERENCE_TASKS];
    bool seen[2][SY_INTERFERENCE_TASKS];   /* observed as a, as b */
    double traffic[SY_INTERFERENCE_TASKS]; /* bytes per nanosecond, alone; 0: not known */
    double k, mean;                        /* parameters of PROFILES and of MEAN (less 1) */
    enum sy_interference_way way;          /* the model selected now */
    double debt;                           /* accumulated error of first predictions */
    struct sy_interference_pair pairs[SY_INTERFERENCE_PAIRS];
    uint64_t n_observed;
};

void sy_interference_start(struct sy_interference *i);
/* Records that a run of `a` took `slowdown` times its time alone, with `b` computing throughout. Values outside 0.1 to 100 are ignored. */
void sy_interference_observe(struct sy_interference *i, int a, int b, double slowdown);
/* Sets a task's solo profile: its memory traffic when it computes alone. Values of 0 and below are ignored. */
void sy_interference_profile(struct sy_interference *i, int task, double bytes_per_ns);
double sy_interference_median(const float *values, unsigned n);                /* n 1 to 32 */
double sy_interference_predict(const struct sy_interference *i, int a, int b); /* at least 1 */
/* True if `a`, which has a latency bound, must take turns with `b`: beside it, it would take more than `bound` times its time alone. bound 0: never. */
bool sy_interference_breaks(const struct sy_interference *i, int a, int b, double bound);
/* NULL: never observed, or replaced. */
const struct sy_interference_pair *sy_interference_find(const struct sy_interference *i, int a,
                                                        int b);
/* The id is reused for another task: drops its measurements. */
void sy_interference_forget(struct sy_interference *i, int task);

#endif
