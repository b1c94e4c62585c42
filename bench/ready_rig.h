/* A package in this process, ready to run: weights in memory, a program, tensors. For benches of the host engine. */
#ifndef SY_BENCH_READY_RIG_H
#define SY_BENCH_READY_RIG_H

#include "loader/package/package.h"

struct ready_rig {
    struct sy_package *package;
    struct sy_program *program;
    unsigned char *image,
        *weights; /* image: as read; weights: where the program reads them; the same bytes */
    unsigned char **layer_params;
    void *workspace, **inputs, **outputs;
    struct sy_binding binding;
};

/* Opens and reads the package, makes the program for `batch`. Inputs are zero: no kernel's time depends on them. Close it after an error too. */
int ready_rig_open(struct ready_rig *rig, const char *path, int64_t batch);
void ready_rig_close(struct ready_rig *rig);

#endif
