/* Child processes of the swap bench: the training job that is preempted, and the fresh process of stop-and-start.
 * swap_child_rig.c starts and stops them, swap_child.c is what they run. */
#ifndef SY_BENCH_SWAP_CHILD_H
#define SY_BENCH_SWAP_CHILD_H

#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

#include "allocator/shared_memory.h"
#include "loader/graph/graph.h"
#include "runtime/base/clock.h"
#include "runtime/wire/control_page.h"

/* A training job in its own process, paused and resumed like in the runtime: through a control page. */
struct swap_victim {
    const char *program, *model;
    /* set if the device has its own engine: trains there too; NULL: trains on the host's cores */
    const char *device;
    int cores[64], n_cores;
    pid_t pid;
    struct sy_shared_memory memory;
    struct sy_control_page *page;
    sy_ns asked_ns;
};

/* `model`: the ONNX file to train on Fashion-MNIST, or on synthetic images with `device`; NULL: nothing is trained, and preempt waits are 0. */
int swap_victim_create(struct swap_victim *v, const char *program, const char *model,
                       const char *device, const int *cores, int n_cores);
void swap_victim_destroy(struct swap_victim *v);
int swap_victim_spawn(struct swap_victim *v); /* after a kill */
void swap_victim_kill(struct swap_victim *v);
void swap_victim_preempt(struct swap_victim *v);                     /* returns at once */
int swap_victim_wait(struct swap_victim *v, sy_ns *preempt_wait_ns); /* EIO: it ended by itself */
int swap_victim_hold(struct swap_victim *v);                         /* preempt and wait */
void swap_victim_train(struct swap_victim *v,
                       sy_ns for_ns); /* resume, and let it run for this time */

struct swap_child_times {
    sy_ns first_layer_ns, end_ns; /* CLOCK_MONOTONIC */
};

/* Starts a new process of `program` on the cores `allowed` (the caller may be pinned to one of them), which opens the device, reads the package, makes the
 * program, copies everything and computes once. */
int swap_child_restart(const char *program, const char *package, const char *device, int64_t batch,
                       const cpu_set_t *allowed, struct swap_child_times *out);

/* Entry point of the children; argv[1] is "--child-...". Returns the exit status. */
int swap_child_main(int argc, char **argv);

/* Random input for a tensor: floats in [-1, 1), integers 0 or 1. malloc'd. */
int swap_make_input(const struct sy_tensor *tensor, int64_t batch, void **out);

#endif
