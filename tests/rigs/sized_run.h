/* A model from an ONNX file, run as a request runs it: the shapes that are sent decide on its sizes. */
#ifndef SY_TESTS_RIGS_SIZED_RUN_H
#define SY_TESTS_RIGS_SIZED_RUN_H

#include <stdint.h>

#include "loader/graph/graph.h"

struct sized_input {
    const void *data;
    int rank;
    int64_t dims[SY_MAX_RANK];
};

struct sized_output {
    void *data; /* malloc'd; caller frees */
    struct sy_shape shape;
    uint64_t bytes;
};

/* Read, inferred, optimised and fused; fails the test with the reason. Caller frees. */
struct sy_graph *sized_import(const char *path);
/* How many nodes of it are sized at run. */
int sized_at_run(const struct sy_graph *graph);
/* The first output of a request with these inputs, in the graph's order. SY_EARG: the graph does not have such sizes, or the run
 * refuses them. */
int sized_run(const struct sy_graph *graph, int n, const struct sized_input *inputs,
              struct sized_output *out);

#endif
