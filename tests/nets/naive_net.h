/* A naive forward pass in double precision, to differentiate numerically: the trainer's yardstick. */
#ifndef SY_TESTS_NETS_NAIVE_NET_H
#define SY_TESTS_NETS_NAIVE_NET_H

#include "loader/graph/graph.h"
#include "workers/engine/trainer.h"

struct naive_net {
    const struct sy_graph *graph;
    int64_t batch;
    enum sy_loss_kind loss;
    double **values; /* per tensor; constants are copied in, so that they can be changed */
};

void naive_init(struct naive_net *net, const struct sy_graph *graph, int64_t batch,
                enum sy_loss_kind loss);
void naive_finish(struct naive_net *net);
/* Mean loss of the batch; labels int32 or float by the kind of loss. Batch normalization with the batch's statistics. */
double naive_loss(struct naive_net *net, const float *input, const void *labels);
int64_t naive_elements(const struct naive_net *net, int tensor);

#endif
