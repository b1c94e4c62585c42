/* Rules shared by all engines' trainers: where the network ends, names of its state in snapshots, which answers are right. Thread-safe; stateless. */
#ifndef SY_WORKERS_ENGINE_TRAIN_RULES_H
#define SY_WORKERS_ENGINE_TRAIN_RULES_H

#include "loader/graph/graph.h"
#include "workers/engine/trainer.h"

/* The steps of node `node`, forward and backward; `gradient`, a value of the trainer, is its first output's. */
struct sy_gradient_steps {
    int (*forward)(struct sy_trainer *trainer, int node);
    int (*backward)(struct sy_trainer *trainer, int node, int gradient);
};

/* The entry of the operator's family in a trainer's table. NULL: this trainer has no gradient for it. */
const struct sy_gradient_steps *sy_gradient_steps_of(const struct sy_gradient_steps *families,
                                                     enum sy_op op);

/* The tensor that the loss is of. Softmax at the end of a network trained with cross entropy, or Sigmoid with bce, is part of the
 * loss: it is left out. *n_nodes: the nodes in front of the loss. */
int sy_train_logits(const struct sy_graph *graph, enum sy_loss_kind loss, int *n_nodes);

/* Whether the node is an Add of two results of one shape in float32: in whatever layout the first has. Everything else is broadcasting. */
bool sy_train_adds_results(const struct sy_graph *graph, const struct sy_node *node);

/* A tensor of the state: parameter `param` itself (slot -1), or what the optimizer keeps of it (slots 0 and 1). */
struct sy_state_slot {
    char *name; /* in snapshots; owned */
    int param, slot;
};

/* Appends the states of parameter `param`, itself and its slots. ENOMEM_HOST. */
int sy_train_add_states(struct sy_state_slot **states, int *n, int param, const char *name,
                        enum sy_optimizer_kind optimizer, int n_slots);

/* How many of `rows` rows of n outputs say what was wanted. Cross entropy: `wanted` is an int32 class a row. Else floats, n a row, the
 * largest of which is the class; with one output and bce the sign of x says the label. */
int64_t sy_train_count_right(enum sy_loss_kind loss, const float *x, const void *wanted,
                             int64_t rows, int64_t n);

/* EARG: `what` is not finite, and what may help. `rate` is the job's learning rate. */
int sy_train_fail_not_finite(const char *what, double value, double rate);

#endif
