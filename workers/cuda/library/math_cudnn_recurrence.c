/* Recurrent layers by cuDNN: one call for all directions and times, its weights gathered in front into a space of its own order. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/library/math_internal.h"

/* A made-up address of the weight space while offsets are queried: only differences count. */
#define SPACE_BASE ((uintptr_t)1 << 20)

/* ---- descriptions ------------------------------------------------------------------------------------- */

static cudnnRNNMode_t mode_of(const struct sy_math_recurrence *r)
{
    return r->op == SY_OP_LSTM  ? CUDNN_LSTM
           : r->op == SY_OP_GRU ? CUDNN_GRU
           : r->relu            ? CUDNN_RNN_RELU
                                : CUDNN_RNN_TANH;
}

/* A single layer has no dropout. cuDNN's default math would use TF32. */
static int describe_layer(struct sy_math *math, struct sy_math_library_plan *plan)
{
    const struct sy_math_recurrence *r = &plan->recurrence;
    SY_CUDNN(math, cudnnCreateDropoutDescriptor(&plan->dropout));
    SY_CUDNN(math, cudnnSetDropoutDescriptor(plan->dropout, math->cudnn, 0, NULL, 0, 0));
    SY_CUDNN(math, cudnnCreateRNNDescriptor(&plan->rnn));
    SY_CUDNN(math, cudnnSetRNNDescriptor_v8(
                       plan->rnn, CUDNN_RNN_ALGO_STANDARD, mode_of(r),
                       r->has_bias ? CUDNN_RNN_DOUBLE_BIAS : CUDNN_RNN_NO_BIAS,
                       r->directions > 1 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL,
                       CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
                       math->tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH, (int32_t)r->input,
                       (int32_t)r->hidden, (int32_t)r->hidden, 1, plan->dropout,
                       CUDNN_RNN_PADDED_IO_ENABLED));
    return SY_OK;
}

/* All sequences are of one length, which cuDNN takes from here: since 8.9.1 it asks for no copy of them on the device. */
static int describe_rows(struct sy_math *math, const struct sy_math_recurrence *r, int64_t width,
                         cudnnRNNDataDescriptor_t *out)
{
    float padding = 0;
    int *lengths = malloc((size_t)r->batch * sizeof *lengths);
    SY_TRY_ALLOC(lengths, "no memory for %lld lengths", (long long)r->batch);
    for (int64_t i = 0; i < r->batch; i++)
        lengths[i] = (int)r->steps;
    cudnnStatus_t answer = cudnnCreateRNNDataDescriptor(out);
    if (answer == CUDNN_STATUS_SUCCESS)
        answer = cudnnSetRNNDataDescriptor(*out, CUDNN_DATA_FLOAT,
                                           CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, (int)r->steps,
                                           (int)r->batch, (int)width, lengths, &padding);
    free(lengths);
    return sy_math_cudnn_check(math, answer, "cudnnSetRNNDataDescriptor");
}

static int describe_state(struct sy_math *math, struct sy_math_library_plan *plan)
{
    const struct sy_math_recurrence *r = &plan->recurrence;
    const int dims[] = {(int)r->directions, (int)r->batch, (int)r->hidden},
              strides[] = {(int)(r->batch * r->hidden), (int)r->hidden, 1};
    SY_CUDNN(math, cudnnCreateTensorDescriptor(&plan->state));
    SY_CUDNN(math, cudnnSetTensorNdDescriptor(plan->state, CUDNN_DATA_FLOAT, 3, dims, strides));
    return SY_OK;
}

/* ---- the weight space --------------------------------------------------------------------------------- */

/* An address in the space as an element of it; -1: not one of n elements within. */
static int64_t place_of(const struct sy_math_library_plan *plan, const void *address, int64_t n)
{
    uintptr_t at = (uintptr_t)address - SPACE_BASE;
    bool inside = (uintptr_t)address >= SPACE_BASE && at % sizeof(float) == 0 &&
                  at <= plan->weight_bytes &&
                  (uint64_t)n * sizeof(float) <= plan->weight_bytes - at;
    return inside ? (int64_t)(at / sizeof(float)) : -1;
}

/* As ONNX has it: a row for each unit. */
static int check_matrix(struct sy_math *math, cudnnTensorDescriptor_t matrix, int64_t rows,
                        int64_t columns)
{
    cudnnDataType_t type;
    int rank, dims[3], strides[3];
    SY_CUDNN(math, cudnnGetTensorNdDescriptor(matrix, 3, &type, &rank, dims, strides));
    if (rank != 3 || type != CUDNN_DATA_FLOAT || dims[1] != rows || dims[2] != columns ||
        (columns > 1 && strides[2] != 1) || (rows > 1 && strides[1] != columns))
        return sy_error_set(SY_EUNSUPPORTED, "cuDNN wants weights in another layout");
    return SY_OK;
}

static int find_place(struct sy_math *math, struct sy_math_library_plan *plan, int direction,
                      int gate, const cudnnTensorDescriptor_t *descriptors,
                      struct sy_library_places *out)
{
    const struct sy_math_recurrence *r = &plan->recurrence;
    int64_t columns = gate < r->gates ? r->input : r->hidden;
    void *matrix = NULL, *bias = NULL;
    /* one layer, so directions are the pseudo-layers */
    SY_CUDNN(math, cudnnGetRNNWeightParams(math->cudnn, plan->rnn, direction, plan->weight_bytes,
                                           (const void *)SPACE_BASE, gate, descriptors[0], &matrix,
                                           descriptors[1], &bias));
    SY_TRY(check_matrix(math, descriptors[0], r->hidden, columns));
    out->matrix[direction][gate] = place_of(plan, matrix, r->hidden * columns);
    out->bias[direction][gate] = r->has_bias ? place_of(plan, bias, r->hidden) : -1;
    if (out->matrix[direction][gate] < 0 || (r->has_bias && out->bias[direction][gate] < 0))
        return sy_error_set(SY_EUNSUPPORTED, "cuDNN has no place for the weights of gate %d", gate);
    return SY_OK;
}

static int find_places(struct sy_math *math, struct sy_math_library_plan *plan,
                       struct sy_library_places *out)
{
    cudnnTensorDescriptor_t descriptors[2] = {NULL, NULL};
    int n = (int)(2 * plan->recurrence.gates), status = SY_OK;
    for (int i = 0; i < 2 && status == SY_OK; i++)
        status = sy_math_cudnn_check(math, cudnnCreateTensorDescriptor(&descriptors[i]),
                                     "cudnnCreateTensorDescriptor");
    for (int i = 0; i < n * (int)plan->recurrence.directions && status == SY_OK; i++)
        status = find_place(math, plan, i / n, i % n, descriptors, out);
    for (int i = 0; i < 2; i++)
        if (descriptors[i])
            cudnnDestroyTensorDescriptor(descriptors[i]);
    return status;
}

/* ---- plans -------------------------------------------------------------------------------------------- */

/* The reserve is training's. */
static int find_room(struct sy_math *math, struct sy_math_library_plan *plan)
{
    size_t reserve;
    SY_CUDNN(math, cudnnGetRNNWeightSpaceSize(math->cudnn, plan->rnn, &plan->weight_bytes));
    SY_CUDNN(math, cudnnGetRNNTempSpaceSizes(math->cudnn, plan->rnn, CUDNN_FWD_MODE_INFERENCE,
                                             plan->x_rows, &plan->work_bytes, &reserve));
    sy_library_recurrence_room(&plan->recurrence, plan->weight_bytes, plan->work_bytes,
                               &plan->room);
    return plan->room.bytes <= SY_MATH_SCRATCH_BYTES
               ? SY_OK
               : sy_error_set(SY_EUNSUPPORTED, "cuDNN wants %llu bytes of scratch, there are %llu",
                              (unsigned long long)plan->room.bytes,
                              (unsigned long long)SY_MATH_SCRATCH_BYTES);
}

int sy_math_recurrence_describe(struct sy_math *math, struct sy_math_library_plan *plan)
{
    struct sy_library_places places;
    const struct sy_math_recurrence *r = &plan->recurrence;
    if (r->steps * r->batch * r->directions * SY_MAX(r->hidden, r->input) > INT32_MAX)
        return sy_error_set(SY_EUNSUPPORTED, "more elements than cuDNN counts");
    SY_TRY(describe_layer(math, plan));
    SY_TRY(describe_rows(math, r, r->input, &plan->x_rows));
    SY_TRY(describe_rows(math, r, r->directions * r->hidden, &plan->y_rows));
    SY_TRY(describe_state(math, plan));
    SY_TRY(find_room(math, plan));
    SY_TRY(find_places(math, plan, &places));
    sy_library_recurrence_parts(r, &places, &plan->parts);
    return SY_OK;
}

void sy_math_recurrence_finish(struct sy_math_library_plan *plan)
{
    if (plan->x_rows)
        cudnnDestroyRNNDataDescriptor(plan->x_rows);
    if (plan->y_rows)
        cudnnDestroyRNNDataDescriptor(plan->y_rows);
    if (plan->state)
        cudnnDestroyTensorDescriptor(plan->state);
    if (plan->rnn)
        cudnnDestroyRNNDescriptor(plan->rnn);
    if (plan->dropout)
        cudnnDestroyDropoutDescriptor(plan->dropout);
}

int sy_math_recurrence_run(struct sy_math *math, struct sy_math_library_plan *plan, void *const *at,
                           void *scratch)
{
    unsigned char *room = scratch;
    const struct sy_library_room *r = &plan->room;
    void *weights = room + r->weights, *y = r->keeps_y ? room + r->y : at[SY_RECURRENCE_Y];
    bool has_c = plan->recurrence.op == SY_OP_LSTM;
    SY_TRY(sy_library_recurrence_begin(math, &plan->parts, r, at, scratch));
    SY_CUDNN(math, cudnnRNNForward(math->cudnn, plan->rnn, CUDNN_FWD_MODE_INFERENCE, NULL,
                                   plan->x_rows, at[SY_RECURRENCE_X], plan->y_rows, y, plan->state,
                                   at[SY_RECURRENCE_H0], at[SY_RECURRENCE_YH], plan->state,
                                   has_c ? at[SY_RECURRENCE_C0] : NULL,
                                   has_c ? at[SY_RECURRENCE_YC] : NULL, plan->weight_bytes, weights,
                                   plan->work_bytes, room + r->work, 0, NULL));
    return r->keeps_y && at[SY_RECURRENCE_Y]
               ? sy_library_recurrence_turn(math, &plan->recurrence, y, at[SY_RECURRENCE_Y])
               : SY_OK;
}
