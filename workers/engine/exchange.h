/* What ranks share where it lies on a device: the engine's part of an exchange. Buckets, staleness and waits are workers/train/train_exchange.h's.
 *
 *   parts ──gather──> [slot | slot | ...] ──mark──┐  the stream that computes; only enqueued
 *                      staging, on the device     └──> sum: once the mark has passed, over all ranks, in their order; the exchange's thread
 *   parts <──take──── [slot | slot | ...] <─────────── done when sum returns: no kernel waits for another rank's
 */
#ifndef SY_WORKERS_ENGINE_EXCHANGE_H
#define SY_WORKERS_ENGINE_EXCHANGE_H

#include <stdint.h>

struct sy_shared_part;
struct sy_device_exchange;

/* How ranks' gradients travel. */
enum sy_exchange_way {
    SY_EXCHANGE_NCCL, /* from GPU to GPU; host memory's by MPI */
    SY_EXCHANGE_HOST  /* by MPI, from a GPU through host memory */
};

/* Between the ranks' host memories; rules RK1 and RK3 of workers/train/ranks.h. */
struct sy_rank_wire {
    int rank, n;
    int (*sum)(float *values, float *scratch, uint64_t n); /* in the order of ranks */
    int (*sum_doubles)(double *values, int n);             /* n <= 16 */
    int (*share)(void *bytes, uint64_t n);                 /* rank 0's to all */
};

struct sy_device_exchange_want {
    struct sy_rank_wire wire;
    enum sy_exchange_way way;
    uint64_t n_floats;    /* of staging */
    uint64_t most_floats; /* of one sum */
    unsigned n_marks;     /* that may be under way */
};

struct sy_device_exchange_ops {
    uint64_t bucket_floats; /* so many are worth a sum of their own */
    /* On the device that the engine is attached to. Ranks open together; where one cannot, all fail and say why. EUNSUPPORTED: the way is not to be had
     * here; ENOMEM_DEVICE, ENOMEM_HOST, EPEER, EDEVICE. */
    int (*open)(const struct sy_device_exchange_want *want, struct sy_device_exchange **out);
    void (*close)(struct sy_device_exchange *exchange); /* NULL is fine; no sum is under way */

    /* ---- by the thread that trains; enqueue ---- */
    /* The part to float `at` of staging. */
    int (*gather)(struct sy_device_exchange *exchange, const struct sy_shared_part *part,
                  uint64_t at);
    /* All that was gathered so far, as `mark`, which is free again once its sum has returned. */
    int (*mark)(struct sy_device_exchange *exchange, unsigned mark);
    /* The part becomes staging times `share`. The sum of its floats has returned. */
    int (*take)(struct sy_device_exchange *exchange, const struct sy_shared_part *part, uint64_t at,
                float share);
    int (*clear)(struct sy_device_exchange *exchange, const struct sy_shared_part *part);

    /* ---- by the exchange's thread ---- */
    /* Floats [at, at + n) of staging become their sums over ranks. Sleeps. EPEER: another rank is gone or has failed, EDEVICE: this one's device. */
    int (*sum)(struct sy_device_exchange *exchange, unsigned mark, uint64_t at, uint64_t n);
};

#endif
