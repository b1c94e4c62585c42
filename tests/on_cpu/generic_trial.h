/* A node by formula (workers/cuda/math/generic.h): its operands in the kernel's memory, the kernel beside the host engine's loops for the same node. */
#ifndef SY_TESTS_ON_CPU_GENERIC_TRIAL_H
#define SY_TESTS_ON_CPU_GENERIC_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/nets/graph_builder.h"
#include "tests/on_cpu/kernel_rig.h"
#include "workers/cuda/math/generic.h"
#include "workers/host/reference/kernel.h"

#define TRIAL_TYPES 8

/* Four floats, four integers. */
extern const enum sy_dtype trial_types[TRIAL_TYPES];

/* A node with its operands: the host's call, and what the kernel is given. */
struct trial {
    struct sy_graph *graph;
    struct sy_call call;
    struct kernel_tensor *in[SY_GENERIC_IN], *out[SY_GENERIC_OUT], *room, *fault;
    struct sy_math_generic each;
    bool copies_first;
};

enum sy_dtype trial_any_type(void);
/* The graph has the one node, for attributes. trial_check and trial_refused end the trial. */
struct trial *trial_start(enum sy_op op);
/* The next input: numbers of which some are equal; integers from -4 to 12, or 0 to 1. Valid as long as the trial. */
struct sy_array *trial_operand(struct trial *t, enum sy_dtype type, int rank, const int64_t *dims);
void trial_absent(struct trial *t);
/* The next input, of int64 or int32: between low and high, both included; these numbers. */
struct sy_array *trial_indices(struct trial *t, int rank, const int64_t *dims, int64_t low,
                               int64_t high);
struct sy_array *trial_numbers(struct trial *t, int64_t n, const int64_t *numbers);
void trial_result(struct trial *t, enum sy_dtype type, int rank, const int64_t *dims);

/* The kernel beside the host's loops. */
void trial_check(struct trial *t);
/* The kernel tells of `index`, as the host's loops refuse the run, and touches nothing that is not its own. */
void trial_refused(struct trial *t, int64_t index);

#endif
