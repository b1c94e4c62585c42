/* The host engine's programs: one model at one batch size, ready to run. See struct sy_engine_ops. */
#ifndef SY_WORKERS_HOST_PROGRAM_PROGRAM_H
#define SY_WORKERS_HOST_PROGRAM_PROGRAM_H

#include "loader/graph/engine.h"

int sy_program_create(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                      int64_t batch, struct sy_program **out);
/* Whether a program can have this layer: EUNSUPPORTED names node, operator and what is missing. Makes its steps for batch size
 * 1 and drops them. */
int sy_program_try_layer(const struct sy_graph *graph, const struct sy_layer *layer);
void sy_program_destroy(struct sy_program *program); /* NULL is fine */
uint64_t sy_program_workspace_bytes(const struct sy_program *program);
int sy_program_run(struct sy_program *program, const struct sy_binding *binding, int first, int n);

#endif
