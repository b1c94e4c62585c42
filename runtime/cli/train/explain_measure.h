/* One measurement of a job in a process of its own. */
#ifndef SY_CLI_EXPLAIN_MEASURE_H
#define SY_CLI_EXPLAIN_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/cli/train/local_job.h"

#define SY_EXPLAIN_LAYERS 1024
#define SY_EXPLAIN_PARTS  5 /* enum sy_train_part */

/* Settings that differ from the default. */
struct sy_explain_variant {
    char name[64];
    int n_threads; /* 0: all */
    enum sy_huge_pages huge;
    int numa_node;            /* -1: any */
    const char *precision;    /* NULL: as the job says */
    const char *instructions; /* oneDNN's DNNL_MAX_CPU_ISA, NULL: all */
    const char *layout;       /* SY_TRAIN_LAYOUT, NULL: as oneDNN likes it */
};

struct sy_explain_layer {
    char name[96];
    double ms[SY_EXPLAIN_PARTS]; /* a step */
};

/* Lies in memory that both processes share. */
struct sy_explain_result {
    int status;
    char error[512];
    int n_threads, n_steps;
    double step_ms;                   /* median */
    double part_ms[SY_EXPLAIN_PARTS]; /* a step, mean */
    int n_layers;
    struct sy_explain_layer layers
        [SY_EXPLAIN_LAYERS]; /* in the order of their first step; the last takes what is left */
    uint64_t persistent_bytes, ephemeral_bytes;
};

/* Forks, runs warm-up and n_steps steps (fewer if they take long), and waits. result: shared memory (mmap). A child that dies is an error
 * in the result. */
void sy_explain_measure(const char *text, const struct sy_explain_variant *variant, int n_steps,
                        struct sy_explain_result *result);

#endif
