/* Gradients of several ranks become their mean, in buckets, while backward goes on.
 *
 *   gradient step s ends ──> what is ready with it ──> bucket full ──> thread: copy out, sum over ranks (ranks.h), mean back
 *                                                                        └── the step that reads the first of them waits for all
 *
 * Which gradients are in which bucket follows from the plan alone, which is the same on all ranks. */
#ifndef SY_WORKERS_TRAIN_TRAIN_EXCHANGE_H
#define SY_WORKERS_TRAIN_TRAIN_EXCHANGE_H

#include "workers/engine/trainer.h"
#include "workers/train/ranks.h"

struct sy_exchange;

/* ops, trainer and ranks are borrowed until destroy. EUNSUPPORTED: the engine does not say where its gradients are; ENOMEM_HOST. */
int sy_exchange_create(const struct sy_ranks *ranks, const struct sy_trainer_ops *ops,
                       struct sy_trainer *trainer, struct sy_exchange **out);
void sy_exchange_destroy(
    struct sy_exchange *exchange); /* NULL is fine; waits for a bucket under way */
/* The iteration's last gradient phase begins with its step 0. */
void sy_exchange_begin(struct sy_exchange *exchange);
/* Before a gradient step: waits if it reads what ranks share, outside of the ranks' gate, which the caller has entered. Errors are those of the sum. */
int sy_exchange_before(struct sy_exchange *exchange, int step);
void sy_exchange_after(struct sy_exchange *exchange, int step);

#endif
