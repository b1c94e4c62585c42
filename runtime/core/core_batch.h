/* Coalescing: requests of one model and sizes that arrive close to each other become one run.
 *
 *   a ─┐  gathered while the device is busy: until the batch is full,    ROWS:  one batch of all rows, which are copied together and split again
 *   b ─┼─ the device is idle, or the delay is over                   ──>
 *   c ─┘                                                                  APART: the same program for a, then for b, then for c: the same bits as alone
 *
 * If a run takes less time than handing it to a worker (some 50 us: scheduler, message, two context switches), APART serves three to five
 * times as many requests a second.
 *
 * B1: no request waits for others longer than the delay (ROWS: as configured; APART: SY_BATCH_APART_DELAY_NS), and none while the device has nothing to do.
 * B2: ROWS: only requests of equal sizes (core_internal.h; NULL: the usual), one class and tenant without a deadline are gathered, of models whose inputs
 *     and outputs are rows (the batch is the first dimension of each), each result's row following from each input's alone
 *     (loader/graph/row_independence.h): no answer depends on the other requests of its batch. One with a deadline runs alone, and so does one with a
 *     tensor in a region: rows are copied by the slab.
 * B3: a gathered request gets exactly one answer, canceled or not.
 * B4: APART: only requests of equal batch and sizes, one class and tenant, without a deadline, of a model that lies in the pool whole, whose run is expected
 *     to take at most SY_BATCH_APART_RUN_NS (without a profile: none that was seen took longer, and one was seen); together at most SY_BATCH_APART_SUM_NS, so
 *     that a more urgent request waits no longer than for one usual run.
 * B5: APART: if the run fails, each request is run again alone: no request fails because of another.
 * B6: HELD: a request whose model's package is still being fetched (core_arrival.h) waits here, alone, without occupying the device: until the missing
 *     bytes arrive within the run's time, its deadline is over, or the source fails.
 *
 * Rows of a batch are not always bit for bit what they are alone: libraries choose other kernels for other sizes. So ROWS is off unless a delay is
 * set. Runs in the loop's thread. */
#ifndef SY_RUNTIME_CORE_CORE_BATCH_H
#define SY_RUNTIME_CORE_CORE_BATCH_H

#include "runtime/core/core.h"

struct sy_core_batches;
struct sy_core_sizes;

int sy_core_batches_create(struct sy_core *core, sy_ns max_delay_ns, int64_t max_batch,
                           struct sy_core_batches **out);
/* All requests must have been answered; NULL is fine. */
void sy_core_batches_destroy(struct sy_core_batches *batches);

#define SY_BATCH_APART_DELAY_NS (500 * SY_NS_PER_US)
#define SY_BATCH_APART_RUN_NS   (200 * SY_NS_PER_US)
#define SY_BATCH_APART_SUM_NS   (2 * SY_NS_PER_MS)
#define SY_BATCH_APART_MOST     64 /* maximum requests per run */

enum sy_batch_way { SY_BATCH_ALONE, SY_BATCH_ROWS, SY_BATCH_APART, SY_BATCH_HELD };

/* How a request may be gathered now (B1, B2, B4). */
enum sy_batch_way sy_core_batch_way(const struct sy_core_batches *batches, int model, int64_t batch,
                                    struct sy_core_sizes *sizes,
                                    const struct sy_core_infer_options *options);
/* As sy_core_infer; `way` is not ALONE. EBUSY: too many are gathered; ENOMEM_HOST. */
int sy_core_batch_add(struct sy_core_batches *batches, enum sy_batch_way way, int model,
                      int64_t batch, struct sy_core_sizes *sizes, const uint64_t *inputs,
                      const uint64_t *outputs, const struct sy_core_infer_options *options,
                      sy_core_infer_done done, void *ctx, uint64_t *out_id);
/* False: no such request is gathered or runs in a batch. */
bool sy_core_batch_cancel(struct sy_core_batches *batches, uint64_t id);
/* No more requests will come for `model`, or for any (-1): sends the gathered batches; of held ones only that model's, or all (-1). */
void sy_core_batch_flush(struct sy_core_batches *batches, int model);
/* Sends gathered batches of models in whose slice no request waits or is started. */
void sy_core_batch_flush_idle(struct sy_core_batches *batches);
/* Sends the requests held for the model in the loop's next turn (status SY_OK), or rejects them at once. */
void sy_core_batch_release(struct sy_core_batches *batches, int model, int status, const char *why);
int sy_core_batch_n_gathered(const struct sy_core_batches *batches);
/* Adds to by_model[] the number of gathered requests that have not been sent. */
void sy_core_batch_count_gathered(const struct sy_core_batches *batches, int *by_model);
/* Batches of more than one request. */
uint64_t sy_core_batch_n_sent(const struct sy_core_batches *batches);

#endif
