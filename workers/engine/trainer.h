/* Training of one network: a list of small steps over memory that somebody else owns.
 *
 * One iteration is n_gradient_steps steps (forward, loss, backward, layer by layer) and then n_update_steps steps
 * (optimizer, parameter by parameter; running statistics). The gradient phase changes nothing in the persistent part but gradients;
 * so it can be thrown away at any point and done again with the same bits. Between two steps the caller may stop for any time.
 * An engine fills in this table (workers/host: sy_host_trainer). One thread. */
#ifndef SY_WORKERS_ENGINE_TRAINER_H
#define SY_WORKERS_ENGINE_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "workers/engine/exchange.h"

enum sy_loss_kind { SY_LOSS_SOFTMAX_CROSS_ENTROPY, SY_LOSS_MSE, SY_LOSS_BCE /* of logits */ };
enum sy_optimizer_kind { SY_OPTIMIZER_SGD, SY_OPTIMIZER_ADAM, SY_OPTIMIZER_ADAMW };
enum sy_schedule_kind {
    SY_SCHEDULE_CONSTANT,
    SY_SCHEDULE_STEP,   /* times factor, each every_steps */
    SY_SCHEDULE_COSINE, /* to final_rate at `steps`, the warm-up included */
    SY_SCHEDULE_LINEAR
};
enum sy_train_precision {
    SY_TRAIN_F32,
    SY_TRAIN_BF16 /* products in bfloat16, weights kept in f32 */
};

struct sy_schedule {
    enum sy_schedule_kind kind;
    uint64_t warmup_steps, every_steps, steps;
    double factor, final_rate;
};

struct sy_train_options {
    enum sy_loss_kind loss;
    enum sy_optimizer_kind optimizer;
    double learning_rate, momentum,
        weight_decay; /* momentum sgd; weight_decay all, adamw apart from the gradient */
    double beta1, beta2, epsilon; /* adam, adamw */
    bool is_nesterov;
    bool spares_vectors; /* weight_decay is for tensors of two dimensions and more */
    /* 0: the gradient is not clipped; else its norm over all parameters is at most this */
    double clip_norm;
    uint64_t accumulate; /* gradient phases in one iteration, whose mean is taken; 0 is 1 */
    struct sy_schedule schedule;
    enum sy_train_precision precision;
    /* activations are made again for backward, so that the ephemeral part is smaller */
    bool recomputes;
    /* patterns (fnmatch) of parameters that stay; ends with NULL, or NULL. Borrowed */
    char **frozen;
    int64_t batch;
    uint64_t seed; /* of dropout */
};

/* A named tensor of the state, in plain row-major float32 for snapshots and tests. */
struct sy_state_tensor {
    const char *name; /* "conv1.weight", "conv1.weight.momentum" ... borrowed from the trainer */
    struct sy_shape shape; /* fixed dims only */
    uint64_t bytes;
};

/* A part that ranks average when they train together: a gradient, or a statistic of the batch. */
struct sy_shared_part {
    float *values; /* since bind */
    uint64_t n;
    bool is_gradient; /* else a statistic of the batch */
    int ready_step;   /* last step of the gradient phase that touches it before shared_by_step */
};

struct sy_trainer;

#define SY_TRAIN_HEADER_BYTES 4096u /* in front of the persistent part; the caller's */

struct sy_trainer_ops {
    const char *name;
    /* (optional: sy_graph_infer) Makes a graph that was just read into what create wants. */
    int (*prepare)(struct sy_graph *graph);
    /* (optional: nothing) What it has of the nodes that sy_graph_fuse_training makes, which then comes behind prepare. */
    bool (*fuses)(enum sy_op op, int64_t size);
    /* `graph`: read and prepared, not optimized, constants with data; borrowed until destroy. EUNSUPPORTED names the node that has no backward. */
    int (*create)(const struct sy_graph *graph, const struct sy_train_options *options,
                  struct sy_trainer **out);
    void (*destroy)(struct sy_trainer *trainer);
    uint64_t (*persistent_bytes)(
        const struct sy_trainer *trainer); /* weights, gradients, optimizer state, statistics */
    uint64_t (*ephemeral_bytes)(
        const struct sy_trainer
            *trainer); /* activations, scratch, batch; nothing survives an iteration */
    /* Both 4096-aligned. Does not touch what is there (a resumed run finds its state). */
    void (*bind)(struct sy_trainer *trainer, void *persistent, void *ephemeral);
    int (*init_state)(
        struct sy_trainer *trainer); /* weights from the graph, optimizer state zero */
    int (*n_gradient_steps)(const struct sy_trainer *trainer);
    int (*n_update_steps)(const struct sy_trainer *trainer);
    /* Where the batch goes, inside the ephemeral part. The graph's input number `input`, [batch, ...] in its element type: float32, int64
     * and int32 for indices (embeddings), bool. Labels as the loss has them: cross entropy int32, a class for each row of the output [batch, ...,
     * classes], below zero where none counts; others float32, as many as outputs. */
    void *(*batch_input)(struct sy_trainer *trainer, int input);
    void *(*batch_labels)(struct sy_trainer *trainer);
    /* (optional, both or none: one place) An engine that copies the batch to a device by itself has several places for it in the host's memory: another thread
     * fills those that are not used. batch_input and batch_labels are of the place used last, 0 in the beginning; that stays as it is until the gradient
     * phase, or the last forward step, has ended. */
    int (*n_batch_places)(const struct sy_trainer *trainer);
    void (*use_batch_place)(struct sy_trainer *trainer, int place);
    /* (optional: nothing is random, accumulate is 1) Before the first step of a gradient phase: which batch it is, counted from 0 since
     * the job began. Random numbers follow from it and the seed alone; number % accumulate is its place in the iteration, and an iteration
     * begins again with place 0. */
    void (*begin_batch)(struct sy_trainer *trainer, uint64_t number);
    int (*run_gradient_step)(struct sy_trainer *trainer, int step);
    /* For which node a gradient step works, and whether behind the loss; whose parameter an update step changes. Borrowed. (optional: an
     * engine that leaves them out is not explained) */
    const char *(*gradient_step_name)(const struct sy_trainer *trainer, int step,
                                      bool *is_backward);
    const char *(*update_step_name)(const struct sy_trainer *trainer, int step);
    /* `iteration` counts from 1 (Adam's bias correction). */
    int (*run_update_step)(struct sy_trainer *trainer, int step, uint64_t iteration);
    double (*loss)(
        const struct sy_trainer *trainer); /* mean over the batch; valid after the gradient phase */
    /* Forward only, on the batch that was put in place, with running statistics: how many labels of the first `rows` samples the argmax
     * of their row of outputs is; splits into n_forward_steps steps so that it can be preempted as well. */
    int (*n_forward_steps)(const struct sy_trainer *trainer);
    int (*run_forward_step)(struct sy_trainer *trainer, int step);
    int64_t (*count_correct)(const struct sy_trainer *trainer, int64_t rows);
    /* State by name, plain layout, for snapshots: n tensors; get and set convert from and to the engine's layout. */
    int (*n_state_tensors)(const struct sy_trainer *trainer);
    void (*state_tensor)(const struct sy_trainer *trainer, int index, struct sy_state_tensor *out);
    int (*get_state)(struct sy_trainer *trainer, int index, void *to);
    int (*set_state)(struct sy_trainer *trainer, int index, const void *from);

    /* (optional, all four or none: then memory is the host's, and a step is done when it returns) An engine that computes on a device
     * by itself: what it is bound to are the device's addresses, steps only enqueue, and a bounded part of them is in flight.
     * write_header copies to the header's start behind all that is enqueued; at most 64 bytes, taken at once. */
    int (*write_header)(struct sy_trainer *trainer, const void *from, uint64_t bytes);
    int (*read_header)(struct sy_trainer *trainer, void *to, uint64_t bytes);
    /* Waits for what is in flight: before the device is given to others, or memory is moved. EDEVICE: it failed. */
    int (*settle)(struct sy_trainer *trainer);
    /* Until the next bind, get_state reads this copy of the persistent part, which lies in the host's memory. Borrowed. */
    void (*read_copy)(struct sy_trainer *trainer, const void *copy);

    /* (optional, all three or none: it trains with one rank only) What ranks share, in the iteration's last gradient phase: each part between its ready_step
     * and shared_by_step, which is the first that reads one. Another thread may write to a part in between, while steps run. */
    int (*n_shared_parts)(const struct sy_trainer *trainer);
    void (*shared_part)(const struct sy_trainer *trainer, int index, struct sy_shared_part *out);
    int (*shared_by_step)(const struct sy_trainer *trainer);
    /* (with these, of an engine that computes on a device: their values are the device's addresses; else NULL) How they are exchanged. */
    const struct sy_device_exchange_ops *exchange;
};

extern const struct sy_trainer_ops sy_host_trainer;

#endif
