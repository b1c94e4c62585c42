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

#define SY_PREDICTOR_WINDOW \
    64 /* observations kept a model: old ones go, so it follows a machine that changes */

struct sy_duration {
    sy_ns expected_ns; /* the median */
    sy_ns margin_ns;   /* from there to the high quantile; at least 0 */
};

/* Models are 0..n_models-1. `high` is the quantile that a promise is built on, 0.5..1. EARG, ENOMEM_HOST. */
int sy_predictor_create(int n_models, double high, struct sy_predictor **out);
void sy_predictor_destroy(struct sy_predictor *p); /* NULL is fine */

/* The profile's duration (0: nothing to learn from) and the observed one. */
void sy_predictor_observe_swap(struct sy_predictor *p, int model, sy_ns predicted_ns,
                               sy_ns observed_ns);
void sy_predictor_observe_compute(struct sy_predictor *p, int model, sy_ns predicted_ns,
                                  sy_ns observed_ns);
/* Predicts a run with this swap and compute time by profile. `p` NULL: as given, no margin. */
struct sy_duration sy_predictor_correct(const struct sy_predictor *p, int model, sy_ns swap_ns,
                                        sy_ns compute_ns);
/* Observations of swaps (else: of computation) that are kept. */
int sy_predictor_n_seen(const struct sy_predictor *p, int model, bool swaps);
/* A promise was refused by what was learned of the model alone: its oldest observations (of swaps, of computation) are forgotten. While a model is
 * refused nothing new is learned of it, so that one run that stood for minutes would refuse all others for good. */
void sy_predictor_doubt(struct sy_predictor *p, int model, bool swaps);
/* The model was loaded anew or is another: what was learned is forgotten. */
void sy_predictor_forget(struct sy_predictor *p, int model);

#endif
