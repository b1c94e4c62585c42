/* Running a program: its steps as captured graphs, one by one where a step touches the host's memory (E1). One device a process, one thread. */
#ifndef SY_WORKERS_CUDA_PROGRAM_CUDA_RUN_H
#define SY_WORKERS_CUDA_PROGRAM_CUDA_RUN_H

#include "workers/cuda/program/cuda_program.h"

/* While a device is attached. SY_CUDA_GRAPHS=0: nothing is captured. After a failure too it is to be closed. */
int sy_cuda_run_open(const struct sy_math_ops *ops, struct sy_math *math);
void sy_cuda_run_close(void);
/* The stream computes on these parts of the device from now on. A graph's kernels stay where they were captured: all are captured anew. */
int sy_cuda_run_confine(struct sy_stream *compute, const int *parts, int n);

/* turn(ctx) is called between two turns of a Loop. NULL: nothing is. */
void sy_cuda_run_on_turn(int (*turn)(void *ctx), void *ctx);
/* A status below 0 ends the run. */
int sy_cuda_between_turns(void);

/* As struct sy_engine_ops has them. */
int sy_cuda_program_run(struct sy_program *program, const struct sy_binding *binding, int first,
                        int n);
int sy_cuda_program_finish(struct sy_program *program);
/* Destroys the program and its graphs. NULL is fine. */
void sy_cuda_program_drop(struct sy_program *program);

struct sy_cuda_run_counts {
    uint64_t eager, captures,
        launches; /* runs of steps that make up a graph, since it was opened */
};
struct sy_cuda_run_counts sy_cuda_run_get_counts(void);

#endif
