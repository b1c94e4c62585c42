/* The host engine's programs: one model at one batch size, ready to run. See struct sy_engine_ops. */
#ifndef SY_WORKERS_HOST_PROGRAM_PROGRAM_H
#define SY_WORKERS_HOST_PROGRAM_PROGRAM_H

#include "loader/graph/engine.h"

int sy_program_create(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                      int64_t batch, struct sy_program **out);
/* What a body's graph captures as an input: a plain parameter of a layer around it, the same in all runs. */
struct sy_captured_param {
    const struct sy_layer *layer; /* NULL: something else */
    uint64_t offset;              /* in the layer's parameters */
};

/* The program of a body. captured: one for each input of the graph, read during this call only. Weights among them are moved into another layout once
 * (kept_weights.h). */
int sy_program_create_inside(const struct sy_graph *graph, const struct sy_layer *layers,
                             int n_layers, int64_t batch, const struct sy_captured_param *captured,
                             struct sy_program **out);
/* Whether a program can have this layer: EUNSUPPORTED names node, operator and what is missing. Makes its steps for batch size
 * 1 and drops them. */
int sy_program_try_layer(const struct sy_graph *graph, const struct sy_layer *layer);
void sy_program_destroy(struct sy_program *program); /* NULL is fine */
uint64_t sy_program_workspace_bytes(const struct sy_program *program);
int sy_program_run(struct sy_program *program, const struct sy_binding *binding, int first, int n);

#endif
