/* Networks of a few layers for the trainer's tests, each small enough for central differences of every weight. */
#ifndef SY_TESTS_NETS_SMALL_NETS_H
#define SY_TESTS_NETS_SMALL_NETS_H

#include <stdint.h>

#include "loader/graph/graph.h"
#include "workers/engine/trainer.h"

enum { SMALL_NETS = 5 };

/* `make` draws the weights; the graph is the caller's. */
struct small_net {
    struct sy_graph *(*make)(uint64_t *seed);
    enum sy_loss_kind loss;
};

extern const struct small_net small_nets[SMALL_NETS];

/* Two convolutions with strides and padding. */
struct sy_graph *small_net_conv_relu(uint64_t *seed);
/* A convolution in groups with dilations, an average pool. */
struct sy_graph *small_net_groups(uint64_t *seed);
/* Both branches of a residual sum, batch normalization, and a tensor that three nodes read. */
struct sy_graph *small_net_residual(uint64_t *seed);

#endif
