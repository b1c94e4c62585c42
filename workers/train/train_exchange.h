/* Gradients of several ranks become their mean, in buckets, while backward goes on.
 *
 *   gradient step s ends ──> what is ready with it is copied ──> bucket full ──> thread: sum over ranks (ranks.h)
 *                                                                                  └── the step that reads the first of them waits, and takes the mean
 *
 * Which gradients are in which bucket follows from the plan alone, which is the same on all ranks.
 *
 * Staleness S > 0 (Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013, with a delay that is fixed):
 * iteration t takes the mean of iteration t - S, so a rank may be S iterations ahead of a paused one before it waits. All ranks still take the same
 * steps, and the same from run to run. The first S iterations (after each start) have gradients of zero; those of the last S are dropped, as they are where a
 * run is interrupted.
 *
 * Gradients on a device (workers/engine/exchange.h) stay there: copies are enqueued, and the thread's sums begin behind a mark. The host waits, not the
 * device's
 * stream: a rank that waits for others is at rest, its device is another's.
 *
 * Calls are made by the thread that trains, inside the ranks' gate; waits stand outside of it. */
#ifndef SY_WORKERS_TRAIN_TRAIN_EXCHANGE_H
#define SY_WORKERS_TRAIN_TRAIN_EXCHANGE_H

#include <stdbool.h>

#include "workers/engine/trainer.h"
#include "workers/train/ranks.h"

#define SY_EXCHANGE_NUMBERS        2
#define SY_EXCHANGE_STALENESS_MOST 16

struct sy_exchange;

/* ops, trainer and ranks are borrowed until destroy. Memory: (staleness + 1) x all gradients, where they lie. EUNSUPPORTED: the engine does not say where its
 * gradients are, or has not this way; ENOMEM_HOST; on a device all errors of its open (workers/engine/exchange.h). */
int sy_exchange_create(const struct sy_ranks *ranks, int staleness, enum sy_exchange_way way,
                       const struct sy_trainer_ops *ops, struct sy_trainer *trainer,
                       struct sy_exchange **out);
/* Memory of one with these, but for its largest bucket; 0: the engine has no ranks. */
uint64_t sy_exchange_bytes(int staleness, const struct sy_trainer_ops *ops,
                           const struct sy_trainer *trainer);
/* NULL is fine. Ends what was begun with the other ranks first (RK1), unless a sum has failed. */
void sy_exchange_destroy(struct sy_exchange *exchange);
/* The iteration's last gradient phase begins with its step 0. */
void sy_exchange_begin(struct sy_exchange *exchange);
/* Before a gradient step: if it is the first that reads what ranks share, the mean is there. Errors are those of the sum. */
int sy_exchange_before(struct sy_exchange *exchange, int step);
int sy_exchange_after(struct sy_exchange *exchange, int step);
/* Once an iteration. All ranks' sums of these, of the call `staleness` calls ago; *is_there false: of the first calls there are none, on no rank, and the
 * numbers stay. */
int sy_exchange_agree(struct sy_exchange *exchange, double numbers[SY_EXCHANGE_NUMBERS],
                      bool *is_there);

#endif
