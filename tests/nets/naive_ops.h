/* Every operator in double precision, by its definition and nothing clever: the inference engine's yardstick. */
#ifndef SY_TESTS_NETS_NAIVE_OPS_H
#define SY_TESTS_NETS_NAIVE_OPS_H

#include <stdint.h>

#include "loader/graph/graph.h"

struct naive_size {
    int rank;
    int64_t dims[SY_MAX_RANK], elements;
};

struct naive_graph {
    const struct sy_graph *graph; /* not optimized: fused nodes are not known here */
    int64_t batch;
    double **values;          /* per tensor, row-major; integers and bools as numbers */
    struct naive_size *sizes; /* per tensor, at this batch */
};

void naive_graph_init(struct naive_graph *net, const struct sy_graph *graph, int64_t batch);
void naive_graph_finish(struct naive_graph *net);
/* `data` has the tensor's element type. */
void naive_graph_set(struct naive_graph *net, int tensor, const void *data);
void naive_graph_run(struct naive_graph *net);
/* Element `i` of memory with this element type, as a number. */
double naive_load(enum sy_dtype dtype, const void *data, int64_t i);

static inline int64_t naive_graph_elements(const struct naive_graph *net, int tensor)
{
    return net->sizes[tensor].elements;
}

/* ---- between naive_ops.c, naive_windows.c and naive_rows.c ---- */
static inline int naive_rank(const struct naive_graph *net, int tensor)
{
    return net->sizes[tensor].rank;
}

static inline int64_t naive_dim(const struct naive_graph *net, int tensor, int i)
{
    return net->sizes[tensor].dims[i];
}

/* Row-major index tuple of element k, and back. */
static inline void naive_unravel(const struct naive_graph *net, int tensor, int64_t k,
                                 int64_t *index)
{
    for (int d = naive_rank(net, tensor) - 1; d >= 0; d--) {
        index[d] = k % naive_dim(net, tensor, d);
        k /= naive_dim(net, tensor, d);
    }
}

static inline int64_t naive_ravel(const struct naive_graph *net, int tensor, const int64_t *index)
{
    int64_t k = 0;
    for (int d = 0; d < naive_rank(net, tensor); d++)
        k = k * naive_dim(net, tensor, d) + index[d];
    return k;
}

int64_t naive_attr_at(const struct sy_node *node, const char *name, int i, int64_t otherwise);
void naive_conv(struct naive_graph *net, const struct sy_node *node);
void naive_pool(struct naive_graph *net, const struct sy_node *node);
void naive_conv_transpose(struct naive_graph *net, const struct sy_node *node);
void naive_grid_sample(struct naive_graph *net, const struct sy_node *node);
void naive_roi_align(struct naive_graph *net, const struct sy_node *node);
void naive_softmax(struct naive_graph *net, const struct sy_node *node);
void naive_layer_norm(struct naive_graph *net, const struct sy_node *node);
void naive_group_norm(struct naive_graph *net, const struct sy_node *node);
void naive_mean_variance(struct naive_graph *net, const struct sy_node *node);
void naive_batch_norm(struct naive_graph *net, const struct sy_node *node);
void naive_reduce(struct naive_graph *net, const struct sy_node *node);

#endif
