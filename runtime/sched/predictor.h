/* Corrects predicted durations by what was observed. Pure.
 *
 * Profiles say how long a model's swap and compute should take; this keeps, for each model, the last observed ÷ predicted ratios of
 * both and gives their quantiles: one slow run in a hundred does not move the median, and a high quantile is what a promise
 * can be built on. Until something was observed, a ratio is 1. */
#ifndef SY_SCHED_PREDICTOR_H
#define SY_SCHED_PREDICTOR_H

#include <stdbool.h>

#include "runtime/base/clock.h"

struct sy_predictor;

/* Observations per model; the oldest is replaced, so predictions follow a machine that changes. */
#define SY_PREDICTOR_WINDOW 64

struct sy_duration {
    sy_ns expected_ns; /* the median */
    sy_ns margin_ns;   /* distance to the high quantile; at least 0 */
};

/* Models are 0..n_models-1. `high` is the quantile that promises are based on, 0.5..1. EARG, ENOMEM_HOST. */
int sy_predictor_create(int n_models, double high, struct sy_predictor **out);
void sy_predictor_destroy(struct sy_predictor *p); /* NULL is fine */

/* Records a profiled duration (0: ignored) and the observed one. */
void sy_predictor_observe_swap(struct sy_predictor *p, int model, sy_ns predicted_ns,
                               sy_ns observed_ns);
void sy_predictor_observe_compute(struct sy_predictor *p, int model, sy_ns predicted_ns,
                                  sy_ns observed_ns);
/* Predicts a run from its profiled swap and compute times. `p` NULL: as profiled, without margin. */
struct sy_duration sy_predictor_correct(const struct sy_predictor *p, int model, sy_ns swap_ns,
                                        sy_ns compute_ns);
/* Number of observations kept, of swaps or (else) of computation. */
int sy_predictor_n_seen(const struct sy_predictor *p, int model, bool swaps);
/* Forgets the oldest observations (of swaps, or of computation) after a rejection that was due to observations alone. A rejected model yields no new
 * observations, so one run that stalled for minutes would otherwise reject all later ones. */
void sy_predictor_forget_oldest(struct sy_predictor *p, int model, bool swaps);
/* The model was reloaded or replaced: forgets its observations. */
void sy_predictor_forget(struct sy_predictor *p, int model);

#endif
