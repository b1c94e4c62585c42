/* A graph as a program with parameters of its own: bodies of If and Loop, and nodes that are run one by one. */
#ifndef SY_WORKERS_HOST_PROGRAM_BODY_H
#define SY_WORKERS_HOST_PROGRAM_BODY_H

#include "loader/graph/engine.h"

struct sy_body {
    const struct sy_graph *graph; /* borrowed */
    struct sy_layer *layers;
    unsigned char **params; /* per layer; perhaps shared with other bodies */
    uint64_t *hashes;       /* per layer: of what is packed in them, see sy_body_init_like */
    struct sy_program *program;
    const void **inputs; /* the caller fills these in before a run */
    void **outputs;
};

/* Packs the graph's constants and makes its program. After a failure too it is to be finished. */
int sy_body_init(struct sy_body *body, const struct sy_graph *graph, int64_t batch);
/* The same; of `like`, layers whose constants and layouts are the same give their packed constants, which both bodies have from then on. A constant whose
 * data is borrowed is known by its name, all others by their data. NULL: none. */
int sy_body_init_like(struct sy_body *body, const struct sy_graph *graph, int64_t batch,
                      struct sy_body *like);
void sy_body_finish(struct sy_body *body); /* one of zeros is fine */
/* Bytes of packed constants in the process, shared ones counted once. */
uint64_t sy_body_packed_bytes(void);
/* workspace: of sy_program_workspace_bytes(body->program). */
int sy_body_run(struct sy_body *body, void *workspace);

#endif
