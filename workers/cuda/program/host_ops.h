/* Operators that this engine lacks, computed by the host engine inside a program: inputs and parameters come back to the host, results go
 * over to the device, and the stream is waited for in between. For what is rare in a model; import packs them only if it is allowed. */
#ifndef SY_WORKERS_CUDA_PROGRAM_HOST_OPS_H
#define SY_WORKERS_CUDA_PROGRAM_HOST_OPS_H

#include "workers/cuda/program/cuda_program.h"

/* The engine that computes them, static, borrowed; NULL: none. Its threads are set when it is first needed. */
void sy_cuda_host_engine_use(const struct sy_engine_ops *host);
bool sy_cuda_host_engine_is_there(void);
void sy_cuda_host_set_threads(const int *cores, int n);
void sy_cuda_host_on_turn(int (*turn)(void *ctx), void *ctx);
void sy_cuda_host_use_helper(
    const struct sy_node_helper *helper); /* the host engine's; NULL: none */

/* Import: as struct sy_engine_ops, by the host engine; the layer's parameters are marked as its. EUNSUPPORTED: it lacks the operator too. */
int sy_cuda_host_layout_layer(const struct sy_graph *graph, struct sy_layer *layer);
int sy_cuda_host_pack_layer(const struct sy_graph *graph, const struct sy_layer *layer, void *to);
bool sy_cuda_host_is_layer(const struct sy_layer *layer); /* has parameters that are marked so */

/* Nodes with data-dependent shapes or loops: the host engine computes them without --allow-host-ops. */
bool sy_cuda_host_always(const struct sy_node *node);
/* Logs that the host computes the node, and what of it, and why this engine does not. */
void sy_cuda_host_say(const struct sy_graph *graph, int node, const char *why);

/* Adds the step for the layer being built. */
int sy_cuda_host_build(struct sy_program *program);

#endif
