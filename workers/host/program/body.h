/* A graph as a program with its own parameters: bodies of If and Loop, and nodes that are executed one by one. */
#ifndef SY_WORKERS_HOST_PROGRAM_BODY_H
#define SY_WORKERS_HOST_PROGRAM_BODY_H

#include "loader/graph/engine.h"
#include "workers/host/program/program.h"

struct sy_body {
    const struct sy_graph *graph; /* borrowed */
    struct sy_layer *layers;
    unsigned char **params; /* per layer; may be shared with other bodies */
    uint64_t *hashes;       /* per layer: hash of the packed constants, see sy_body_init_like */
    struct sy_program *program;
    const void **inputs; /* the caller fills these in before a run */
    void **outputs;
};

/* Packs the graph's constants and makes its program. Call sy_body_finish after a failure too. */
int sy_body_init(struct sy_body *body, const struct sy_graph *graph, int64_t batch);
/* As sy_body_init, of a graph that captures parameters: one for each of its inputs (program.h). */
int sy_body_init_inside(struct sy_body *body, const struct sy_graph *graph, int64_t batch,
                        const struct sy_captured_param *captured);
/* As sy_body_init, sharing packed constants of `like` in layers whose constants and layouts are equal. A constant with borrowed data is identified by its
 * name, all others by their data. NULL: share nothing. */
int sy_body_init_like(struct sy_body *body, const struct sy_graph *graph, int64_t batch,
                      struct sy_body *like);
void sy_body_finish(struct sy_body *body); /* a zeroed body is fine */
/* Bytes of packed constants in the process, shared ones counted once. */
uint64_t sy_body_packed_bytes(void);
/* workspace: of sy_program_workspace_bytes(body->program). */
int sy_body_run(struct sy_body *body, void *workspace);

#endif
