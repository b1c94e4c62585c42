/* A model file through everything that an import does, and one run of the package that comes out, as a worker does it. */
#ifndef SY_TESTS_RIGS_WHOLE_IMPORT_H
#define SY_TESTS_RIGS_WHOLE_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

enum whole_stage {
    WHOLE_READ,
    WHOLE_INFER,
    WHOLE_OPTIMIZE,
    WHOLE_PACKAGE, /* laid out, packed, written, opened again, verified */
    WHOLE_PROGRAM, /* refused here: accepted at import, though it cannot run */
    WHOLE_LARGE,   /* its tensors or its workspace are larger than asked for: not run */
    WHOLE_RUN,
    WHOLE_DONE
};

struct whole_limits {
    int64_t batch;
    int64_t most_elements;   /* of one tensor of the graph */
    uint64_t most_workspace; /* bytes */
};

/* The stage that refused, *status why (the error text says more); WHOLE_DONE, WHOLE_LARGE: SY_OK. `package` is where the package goes; it is
 * removed. Inputs of the run are drawn from `seed`. *stage follows as it goes, so that it tells where a process died. */
void whole_import(const char *model, const char *package, const struct whole_limits *limits,
                  unsigned seed, volatile int *stage, int *status);

const char *whole_stage_name(int stage);

#endif
