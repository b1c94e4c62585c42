/* A graph as a program with parameters of its own: bodies of If and Loop, and nodes that are run one by one. */
#ifndef SY_WORKERS_HOST_BODY_H
#define SY_WORKERS_HOST_BODY_H

#include "loader/engine.h"

struct sy_body {
    const struct sy_graph *graph; /* borrowed */
    struct sy_layer *layers;
    unsigned char **params;
    struct sy_program *program;
    const void **inputs; /* the caller fills these in before a run */
    void **outputs;
};

/* Packs the graph's constants and makes its program. After a failure too it is to be finished. */
int sy_body_init(struct sy_body *body, const struct sy_graph *graph, int64_t batch);
/* The same, of a graph with the same nodes and constants as `like`'s, whose packed constants it takes where their layouts are the same. NULL: none. */
int sy_body_init_like(struct sy_body *body, const struct sy_graph *graph, int64_t batch,
                      struct sy_body *like);
void sy_body_finish(struct sy_body *body); /* one of zeros is fine */
/* workspace: of sy_program_workspace_bytes(body->program). */
int sy_body_run(struct sy_body *body, void *workspace);

#endif
