/* What every engine's trainer does alike: where the network ends, how its state is called in snapshots, which answers are right. Any
 * thread; nothing is kept. */
#ifndef SY_WORKERS_ENGINE_TRAIN_RULES_H
#define SY_WORKERS_ENGINE_TRAIN_RULES_H

#include "loader/graph/graph.h"
#include "workers/engine/trainer.h"

/* The tensor that the loss is of. Softmax at the end of a network trained with cross entropy, or Sigmoid with bce, is part of the
 * loss: it is left out. *n_nodes: the nodes in front of the loss. */
int sy_train_logits(const struct sy_graph *graph, enum sy_loss_kind loss, int *n_nodes);

/* A parameter's name in snapshots: slot -1 its own, 0 and 1 what the optimizer keeps of it. The caller frees it; NULL: ENOMEM_HOST. */
char *sy_train_state_name(const char *parameter, enum sy_optimizer_kind optimizer, int slot);

/* How many of `rows` rows of n outputs say what was wanted. Cross entropy: `wanted` is an int32 class a row. Else floats, n a row, the
 * largest of which is the class; with one output and bce the sign of x says the label. */
int64_t sy_train_count_right(enum sy_loss_kind loss, const float *x, const void *wanted,
                             int64_t rows, int64_t n);

/* EARG: `what` is not finite, and what may help. `rate` is the job's learning rate. */
int sy_train_not_finite(const char *what, double value, double rate);

#endif
