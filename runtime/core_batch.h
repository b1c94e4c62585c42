/* Requests for one model and sizes that come close to each other, as one run.
 *
 *   a ─┐  gathered while the device is busy: until they are max_batch rows,
 *   b ─┼─ the device has nothing else, or max_delay is over              ──> one request ──> rows back to a, b, c
 *   c ─┘
 *
 * B1: no request waits for others longer than max_delay, and none while the device has nothing to do.
 * B2: only requests of equal sizes (core_internal.h; NULL: the usual), one class and tenant without a deadline are gathered, of models whose inputs and outputs are rows (the batch is
 *     the first dimension of each), each result's row following from each input's alone (loader/row_apart.h): nobody's answer depends on who else asked. One with a deadline is on its own.
 * B3: a gathered request gets exactly one answer, canceled or not.
 *
 * Rows of a batch are not always bit for bit what they are alone: libraries choose other kernels for other sizes. Off unless max_delay is
 * set. Runs in the loop's thread. */
#ifndef SY_CORE_BATCH_H
#define SY_CORE_BATCH_H

#include "runtime/core.h"

struct sy_core_batches;
struct sy_core_sizes;

int sy_core_batches_create(struct sy_core *core, sy_ns max_delay_ns, int64_t max_batch,
                           struct sy_core_batches **out);
void sy_core_batches_destroy(struct sy_core_batches *batches); /* all were answered; NULL is fine */

/* Whether this one may be gathered now (B1, B2). */
bool sy_core_batch_wants(const struct sy_core_batches *batches, int model, int64_t batch,
                         const struct sy_core_sizes *sizes,
                         const struct sy_core_infer_options *options);
/* As sy_core_infer. EBUSY: too many are gathered; ENOMEM_HOST. */
int sy_core_batch_add(struct sy_core_batches *batches, int model, int64_t batch,
                      struct sy_core_sizes *sizes, const uint64_t *inputs, const uint64_t *outputs,
                      const struct sy_core_infer_options *options, sy_core_infer_done done,
                      void *ctx, uint64_t *out_id);
/* False: no such request is gathered or runs in a batch. */
bool sy_core_batch_cancel(struct sy_core_batches *batches, uint64_t id);
/* The device has nothing to do, or no more will come: sends what is gathered. */
void sy_core_batch_flush(struct sy_core_batches *batches);
int sy_core_batch_n_gathered(const struct sy_core_batches *batches);
/* Adds, by model, how many are gathered and not sent yet. */
void sy_core_batch_count_gathered(const struct sy_core_batches *batches, int *by_model);
/* A request that ends so is a batch's run: its members are answered each. */
bool sy_core_batch_is_run(sy_core_infer_done done);
uint64_t sy_core_batch_n_sent(
    const struct sy_core_batches *batches); /* batches of more than one request */

#endif
