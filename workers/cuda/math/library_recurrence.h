/* Recurrent layers as cuDNN has them: which they are, in which order it wants their weights, and how they come there from where they lie. No CUDA
 * here. */
#ifndef SY_WORKERS_CUDA_MATH_LIBRARY_RECURRENCE_H
#define SY_WORKERS_CUDA_MATH_LIBRARY_RECURRENCE_H

#include "workers/cuda/math/choices.h"
#include "workers/cuda/math/device_math_library.h"
#include "workers/engine/recurrent_node.h"

#define SY_LIBRARY_GATES 8  /* of a direction: those of the input, then those of the state */
#define SY_LIBRARY_PARTS 32 /* a matrix and a bias of each, of both directions */

/* n floats from element `from` of what has this role (SY_RECURRENCE_W, R, BIAS) to element `to` of the weight space. */
struct sy_library_part {
    int64_t from, to, n;
    int64_t role;
};

struct sy_library_parts {
    int64_t n;
    struct sy_library_part list[SY_LIBRARY_PARTS];
};

/* Where the library wants the matrix and the bias of each gate, by its own numbers, in elements of the weight space; bias -1: none. */
struct sy_library_places {
    int64_t matrix[2][SY_LIBRARY_GATES], bias[2][SY_LIBRARY_GATES];
};

/* What lies one behind the other in the scratch, each aligned to 256 bytes. */
struct sy_library_room {
    uint64_t weights, y, work; /* where each begins */
    uint64_t bytes;
    bool keeps_y; /* the library writes y there */
};

/* false: cuDNN has none such. It has the usual curves, of all directions the same, no clip, coupled gates or peepholes, GRUs that reset behind the
 * product; it is asked for float32, whole sequences, and a direction that begins at the front. */
bool sy_library_recurrence_of(enum sy_op op, const struct sy_recurrent_node *node,
                              struct sy_math_recurrence *out);
/* All of it; word SY_LIBRARY_BATCH_WORD is the batch size. */
void sy_library_recurrence_words(const struct sy_math_recurrence *r, int64_t *words);
/* ONNX's gates (LSTM: i o f c; GRU: z r h) in cuDNN's order (i f c o; r z h). */
void sy_library_recurrence_parts(const struct sy_math_recurrence *r,
                                 const struct sy_library_places *places,
                                 struct sy_library_parts *out);
void sy_library_recurrence_room(const struct sy_math_recurrence *r, uint64_t weight_bytes,
                                uint64_t work_bytes, struct sy_library_room *out);

/* Enqueue: the weights into their space; y as the library wrote it [steps, batch, directions, hidden] to ONNX's [steps, directions, batch, hidden]. */
int sy_library_recurrence_begin(struct sy_math *math, const struct sy_library_parts *parts,
                                const struct sy_library_room *room, void *const *at, void *scratch);
int sy_library_recurrence_turn(struct sy_math *math, const struct sy_math_recurrence *r,
                               const void *kept, void *y);

#endif
