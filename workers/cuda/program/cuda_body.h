/* If and Loop: a body is a program of its own, made with the outer one and run by a step of it, which waits for the device where it must know
 * what came out.
 *
 *   place, a value of the outer workspace:  | one body's constants | its workspace | the other's ... | what a Loop carries, its conditions |
 *
 * Constants of bodies do not travel with a group (E3): they are copied into the place in each run, from memory that the device reads. A body's
 * graphs are recorded as other programs' are: all addresses that it sees stay the same from turn to turn. */
#ifndef SY_WORKERS_CUDA_PROGRAM_CUDA_BODY_H
#define SY_WORKERS_CUDA_PROGRAM_CUDA_BODY_H

#include "workers/cuda/program/cuda_program.h"

struct sy_cuda_body {
    const struct sy_graph *graph; /* borrowed; NULL: there is none */
    struct sy_layer *layers;
    bool *captured;
    struct sy_program *program; /* NULL on trial */
    bool is_by_itself;          /* inputs and outputs are the host's */
    unsigned char *packed;      /* all constants, as on the device */
    uint64_t packed_bytes;
    uint64_t params_at, workspace_at; /* in the place */
    unsigned char **params;           /* per layer, on the device */
    const void **inputs;              /* the caller fills these in before a run */
    void **outputs;
};

/* Makes the body's program; on trial (outer->math is NULL) only finds out whether it could be. Inputs from `formal` on are read where they lie.
 * *place_bytes grows by what it needs. After a failure too it is to be finished. EUNSUPPORTED names a node of the body. */
int sy_cuda_body_init(struct sy_program *outer, const struct sy_graph *graph, int formal,
                      uint64_t *place_bytes, struct sy_cuda_body *body);
/* A graph from and to memory of the host, for batch size 1. like: with the same constants, robbed of what is packed if it is packed alike; NULL: none. */
int sy_cuda_body_init_by_itself(struct sy_program *outer, const struct sy_graph *graph,
                                struct sy_cuda_body *like, uint64_t *place_bytes,
                                struct sy_cuda_body *body);
void sy_cuda_body_finish(const struct sy_program *outer, struct sy_cuda_body *body);
/* Enqueues the copy of its constants; place: aligned as sy_cuda_reserve does. */
int sy_cuda_body_bring(struct sy_program *outer, struct sy_cuda_body *body, unsigned char *place);
/* Enqueues one run of it. */
int sy_cuda_body_run(struct sy_cuda_body *body, unsigned char *place);
/* After the stream was synchronised: EARG names the node whose index or size was outside its bounds. */
int sy_cuda_body_check_bounds(struct sy_cuda_body *body);

#define SY_CUDA_PLACE_ALIGN 256u /* what cuDNN and cuBLASLt like */
/* Room for `bytes` more; returns where. */
uint64_t sy_cuda_reserve(uint64_t *total, uint64_t bytes);

#endif
