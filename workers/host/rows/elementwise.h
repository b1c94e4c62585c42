/* Elementwise loops over row-major memory: plain C that the compiler vectorises, split over the engine's threads. Deterministic. */
#ifndef SY_WORKERS_HOST_ROWS_ELEMENTWISE_H
#define SY_WORKERS_HOST_ROWS_ELEMENTWISE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"

struct sy_broadcast {
    int64_t
        op; /* enum sy_op: two inputs (comparisons: to bool); WHERE: three (bool, a, b); IDENTITY: one */
    int64_t n_inputs;
    int64_t dtype; /* enum sy_dtype of the values (of WHERE: of a and b) */
    int64_t rank;
    int64_t dims[SY_MAX_RANK];       /* of the output */
    int64_t strides[3][SY_MAX_RANK]; /* elements; 0: repeated */
};

/* Whether its result is bool. */
bool sy_elementwise_compares(enum sy_op op);
bool sy_elementwise_supports(const struct sy_broadcast *b);
int sy_elementwise_broadcast(const struct sy_broadcast *b, const void *const *inputs, void *output);
/* n floats; ADD, SUB, MUL, MAX, MIN. */
void sy_elementwise_flat(enum sy_op op, int64_t n, const float *a, const float *b, float *out);
/* Each of n floats. */
void sy_elementwise_divide(int64_t n, float by, float *x);
/* To bf16, the nearest, ties to even. In the calling thread. */
void sy_elementwise_narrow(int64_t n, const float *from, uint16_t *to);
/* From bf16. In the calling thread. */
void sy_elementwise_widen(int64_t n, const uint16_t *from, float *to);
/* flat on bf16: computed in float32, each result rounded once. */
void sy_elementwise_flat_narrow(enum sy_op op, int64_t n, const uint16_t *a, const uint16_t *b,
                                uint16_t *out);

#endif
