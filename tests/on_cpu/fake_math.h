/* The CUDA engine's table of mathematics without a GPU: our kernels themselves, run on the CPU (cpu_launch.h), and what cuBLASLt and
 * CUDA do as loops over host memory. Convolutions are those of our own kernel.
 *
 * What is enqueued is only noted; fake_math_synchronize does it. Device pointers are host pointers with a mark that makes following
 * them a fault: the engine must not. Host pointers have none, and the table's calls insist on either. */
#ifndef SY_TESTS_FAKE_MATH_H
#define SY_TESTS_FAKE_MATH_H

#include <stdbool.h>

#include "workers/cuda/math/device_math.h"

extern const struct sy_math_ops fake_math;

/* The device's view of host memory; NULL stays NULL. */
void *fake_math_device(void *host);
/* Does what was enqueued, in order; SY_OK. */
int fake_math_synchronize(void);

/* Forgets what was enqueued: its process was killed. */
void fake_math_lose(void);

/* What stands for the library of device_math_library.h: by its own loops, which take their descriptions as cuDNN does. */
struct fake_library {
    bool is_tuning;      /* programs that are made measure */
    bool is_slow;        /* measured to be slower than our own kernels */
    bool is_wrong;       /* its results are */
    bool has_no_memory;  /* for trials */
    bool fails_at_first; /* not while it measures */
    bool is_at_rest;     /* what is timed next takes ten times as long, once */
    int plans;           /* now */
    int runs;            /* of its functions, so far */
};
extern struct fake_library fake_library_state;
/* As struct sy_engine_ops has them: what was measured, as text, the caller's. */
int fake_library_choices(struct sy_math *math, char **out);
int fake_library_use_choices(struct sy_math *math, const char *text);
void fake_library_tune(struct sy_math *math, bool on);
/* Forgets what was measured; nothing is left of the state. */
void fake_library_reset(void);

struct fake_math_counts {
    uint64_t calls;                                /* of the table, since the last fake_math_fail */
    int maths, plans, host_blocks, graphs, queued; /* now */
    int marks, waits, synchronizations, most_queued; /* so far; at a wait */
};
struct fake_math_counts fake_math_get_counts(void);
/* The n-th call from now on fails with EDEVICE; 0: none. */
void fake_math_fail(uint64_t n);

#endif
