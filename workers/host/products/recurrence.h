/* The recurrent half of LSTM and GRU: what comes from the inputs has been computed for all steps, here each step adds what comes from the
 * state before. Directions run beside each other where their weights stay in the cores' caches, else one after the other; the threads of one
 * direction share its units and meet after each step. */
#ifndef SY_WORKERS_HOST_PRODUCTS_RECURRENCE_H
#define SY_WORKERS_HOST_PRODUCTS_RECURRENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workers/host/products/int8_matrix.h"

/* Hidden units per block of packed weights: as many as the CPU's vectors have floats, 16 with AVX-512 and 8 without. */
enum { SY_RECURRENCE_UNITS = 8, SY_RECURRENCE_MOST_UNITS = 16 };

/* An LSTM whose states meet their weights in 8 bits, as ONNX Runtime's DynamicQuantizeLSTM: before each step the states of `group` sequences
 * become u8 by their common range. Columns: [blocks of 16 units][gates][16]. */
struct sy_recurrence_int8 {
    struct sy_int8_matrix weights[2]; /* of each direction */
    const float *bias;                /* [directions][columns], or NULL */
    int64_t group;
    uint8_t *states; /* room of sy_recurrence_int8_bytes, aligned to 64 */
};

struct sy_recurrence {
    /* 4: LSTM (input, output, forget, cell); 3: GRU (update, reset, hidden), its reset after the product */
    int64_t gates;
    int64_t steps, batch, hidden, directions;
    int units; /* of a block of packed weights: one of the two; the larger one needs AVX-512 */
    bool first_is_reverse; /* the first direction runs from the end; the second always does */
    const float *from_x;   /* [steps][batch][directions][gates][hidden], biases included */
    /* if not NULL: from_x is [steps][batch][directions][columns] without biases; no `weights` */
    const struct sy_recurrence_int8 *int8;
    const void *weights; /* packed, see sy_recurrence_pack; float, or bf16 if narrow */
    /* products of bf16, the state rounded for them, summed in float; needs AVX512_BF16 and the larger blocks */
    bool narrow;
    /* if narrow: room for sy_recurrence_narrow_states of them, aligned to 4 bytes */
    uint16_t *narrow_states;
    const float
        *late_bias;       /* GRU: [directions][hidden], of the hidden gate's state part; or NULL */
    const float *h0, *c0; /* [directions][batch][hidden], or NULL: zero */
    float *y;             /* [steps][directions][batch][hidden] */
    float *last_h;        /* [directions][batch][hidden], or NULL */
    float *cell;          /* LSTM: [directions][batch][hidden], the last one's at the end */
};

/* Elements of packed weights: [directions][blocks of units][hidden][gates][units], zero where there is no unit; for narrow
 * ones [directions][blocks][pairs of hidden][gates][units][2]. */
int64_t sy_recurrence_packed(int64_t directions, int64_t gates, int64_t hidden, int units,
                             bool narrow);
/* Packs ONNX's R, [directions][gates * hidden][hidden], as floats; the caller rounds them. */
void sy_recurrence_pack(int64_t directions, int64_t gates, int64_t hidden, int units, bool narrow,
                        const float *r, float *out);
/* Sequences that share a quantisation range: as ONNX Runtime splits them between that number of threads. */
int64_t sy_recurrence_int8_group(int64_t batch, int64_t hidden, int threads);
/* Bytes for the states in 8 bits, over all threads. */
int64_t sy_recurrence_int8_bytes(int64_t batch, int64_t hidden, int threads);
int64_t sy_recurrence_narrow_states(int64_t directions, int64_t batch, int64_t hidden);
/* Equal arguments yield equal bits, independent of the number of threads. */
void sy_recurrence_run(const struct sy_recurrence *r);

#endif
