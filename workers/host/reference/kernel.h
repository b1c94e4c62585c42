/* Kernels: plain loops over row-major arrays, for operators that are rare or whose types oneDNN does not know. One thread, computed in
 * double or int64 whatever the element type, rounded once. They read their attributes from the node and their operands when they run.
 *
 *   build   kernel.c checks types, asks the kernel's `check` (shapes are known, data is not), reserves its scratch memory
 *   run     call->in[i].data, call->out[i].data, call->scratch are there; EARG, naming the node, when data asks for the impossible */
#ifndef SY_WORKERS_HOST_REFERENCE_KERNEL_H
#define SY_WORKERS_HOST_REFERENCE_KERNEL_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "loader/graph/graph.h"
#include "runtime/base/half.h"
#include "workers/engine/train_philox.h"

#define SY_KERNEL_INPUTS  32
#define SY_KERNEL_OUTPUTS 8
#define SY_KERNEL_TYPES   4

struct sy_array {
    enum sy_dtype dtype; /* NONE: left out */
    int rank;
    int64_t dims[SY_MAX_RANK];
    int64_t n; /* elements */
    void *data;
};

struct sy_call {
    const struct sy_node *node;
    int n_in, n_out;
    struct sy_array in[SY_KERNEL_INPUTS], out[SY_KERNEL_OUTPUTS];
    bool channels_last; /* input 0 and output 0 are [batch, ..., channels]: axis 1 comes last */
    void *scratch;
    void *state; /* result of sy_kernel_state, for kernels that have one */
    /* (optional) where a kernel whose result's size depends on data says that size; what does not fit is not written */
    int64_t *counted;
};

/* Element types as bits. */
#define SY_BIT(name) (1u << SY_DTYPE_##name)
#define SY_ANY_FLOAT (SY_BIT(F32) | SY_BIT(F64) | SY_BIT(F16) | SY_BIT(BF16))
#define SY_ANY_INT                                                                      \
    (SY_BIT(I64) | SY_BIT(I32) | SY_BIT(I16) | SY_BIT(I8) | SY_BIT(U64) | SY_BIT(U32) | \
     SY_BIT(U16) | SY_BIT(U8))
#define SY_ANY_NUMBER (SY_ANY_FLOAT | SY_ANY_INT)
#define SY_ANY_TYPE   (SY_ANY_NUMBER | SY_BIT(BOOL))
#define SY_ANY_MOVED  (SY_ANY_TYPE | SY_BIT(STRING)) /* of kernels that only move elements */
#define SY_ANY_INDEX  (SY_BIT(I64) | SY_BIT(I32))
#define SY_AS_FIRST   (1u << 31) /* the type of input 0 */
#define SY_NO_OUTPUT  (1u << 30) /* among the first: output 0 may be left out */
#define SY_LAST_TOO   (1u << 29) /* among the first: knows call->channels_last */

typedef int sy_kernel_fn(const struct sy_call *call);

struct sy_kernel {
    enum sy_op op;
    sy_kernel_fn *run;
    uint32_t types[SY_KERNEL_TYPES]; /* of each input; 0, and behind the last: as the one before */
    sy_kernel_fn *check;             /* (optional) */
    int64_t (*scratch)(const struct sy_call *call); /* (optional) bytes */
};

/* State that a kernel makes with the program; all runs read it. */
struct sy_kernel_state {
    enum sy_op op;
    int (*prepare)(const struct sy_call *call, void **state); /* after `check`; no data is there */
    void (*drop)(void *state);
};
extern const struct sy_kernel_state sy_kernel_states[]; /* ends with prepare NULL */

/* Each ends with run NULL. */
extern const struct sy_kernel sy_kernels_unary[], sy_kernels_binary[], sy_kernels_reduce[],
    sy_kernels_index[], sy_kernels_move[], sy_kernels_window[], sy_kernels_norm[],
    sy_kernels_resize[], sy_kernels_recurrent[], sy_kernels_loss[], sy_kernels_detect[],
    sy_kernels_regions[], sy_kernels_quantize[], sy_kernels_matrix[], sy_kernels_signal[],
    sy_kernels_random[], sy_kernels_labels[], sy_kernels_text[], sy_kernels_trees[],
    sy_kernels_hash[];

/* EUNSUPPORTED names an input whose type the kernel does not take. */
int sy_kernel_check_types(const struct sy_kernel *kernel, const struct sy_call *call);
/* NULL: there is none. */
const struct sy_kernel *sy_kernel_find(enum sy_op op);
/* The draw of a node for its result of n elements, of shape `dims`. */
struct sy_draw sy_random_draw(const struct sy_node *node, const int64_t *dims, int64_t n);
/* The result has n of what its size counts, and room for `room`: EARG unless they are the same, or the caller counts. */
int sy_kernel_count(const struct sy_call *call, int64_t n, int64_t room);
/* EUNSUPPORTED / EARG "node X: Op (opset N): ...". */
int sy_kernel_refuse(const struct sy_call *call, const char *what);
int sy_kernel_fail(const struct sy_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- arrays ---- */

bool sy_array_same_dims(const struct sy_array *a, const struct sy_array *b);
void sy_array_strides(const struct sy_array *a, int64_t *strides);
/* Strides of `a` seen as `out`, 0 where it is repeated (numpy); false if it cannot be. */
bool sy_array_broadcast_strides(const struct sy_array *a, const struct sy_array *out,
                                int64_t *strides);
/* The product of dims [first, end). */
int64_t sy_array_extent(const struct sy_array *a, int first, int end);
/* Row-major index tuple of element i. */
void sy_array_at(const struct sy_array *a, int64_t i, int64_t *at);
/* The offset of element i of `shape` in an array with these strides. */
int64_t sy_array_offset(const struct sy_array *shape, int64_t i, const int64_t *strides);
void sy_array_copy(const struct sy_array *to, int64_t i, const struct sy_array *from, int64_t k);
bool sy_is_float(enum sy_dtype dtype);
/* Cast from or to strings (kernel_casts.c). */
int sy_cast_strings(const struct sy_call *call);

/* The i-th input, or NULL if it is left out. */
static inline const struct sy_array *sy_call_in(const struct sy_call *call, int i)
{
    return i < call->n_in && call->in[i].dtype != SY_DTYPE_NONE ? &call->in[i] : NULL;
}

static inline const struct sy_array *sy_call_out(const struct sy_call *call, int i)
{
    return i < call->n_out && call->out[i].dtype != SY_DTYPE_NONE ? &call->out[i] : NULL;
}

/* A uint64 keeps its 64 bits: sums, differences and products wrap alike; comparisons and divisions check the type. */
static inline int64_t sy_get_int(const struct sy_array *a, int64_t i)
{
    switch (a->dtype) {
    case SY_DTYPE_I64:
        return ((const int64_t *)a->data)[i];
    case SY_DTYPE_U64:
        return (int64_t)((const uint64_t *)a->data)[i];
    case SY_DTYPE_I32:
        return ((const int32_t *)a->data)[i];
    case SY_DTYPE_U32:
        return ((const uint32_t *)a->data)[i];
    case SY_DTYPE_I16:
        return ((const int16_t *)a->data)[i];
    case SY_DTYPE_U16:
        return ((const uint16_t *)a->data)[i];
    case SY_DTYPE_I8:
        return ((const int8_t *)a->data)[i];
    default:
        return ((const uint8_t *)a->data)[i];
    }
}

static inline double sy_get(const struct sy_array *a, int64_t i)
{
    switch (a->dtype) {
    case SY_DTYPE_F32:
        return (double)((const float *)a->data)[i];
    case SY_DTYPE_F64:
        return ((const double *)a->data)[i];
    case SY_DTYPE_F16:
        return (double)sy_half_to_float(((const uint16_t *)a->data)[i]);
    case SY_DTYPE_BF16:
        return (double)sy_bf16_to_float(((const uint16_t *)a->data)[i]);
    case SY_DTYPE_U64:
        return (double)((const uint64_t *)a->data)[i];
    default:
        return (double)sy_get_int(a, i);
    }
}

/* A number in the order of the integers: as get_int, uint64 less 2^63. */
static inline int64_t sy_get_ordered(const struct sy_array *a, int64_t i)
{
    int64_t value = sy_get_int(a, i);
    return a->dtype == SY_DTYPE_U64 ? value ^ INT64_MIN : value;
}

/* Integers wrap around. */
static inline void sy_put_int(const struct sy_array *a, int64_t i, int64_t value)
{
    switch (a->dtype) {
    case SY_DTYPE_I64:
    case SY_DTYPE_U64:
        ((int64_t *)a->data)[i] = value;
        break;
    case SY_DTYPE_I32:
    case SY_DTYPE_U32:
        ((int32_t *)a->data)[i] = (int32_t)value;
        break;
    case SY_DTYPE_I16:
    case SY_DTYPE_U16:
        ((int16_t *)a->data)[i] = (int16_t)value;
        break;
    case SY_DTYPE_BOOL:
        ((uint8_t *)a->data)[i] = value != 0;
        break;
    default:
        ((uint8_t *)a->data)[i] = (uint8_t)value;
        break;
    }
}

static inline int64_t sy_double_to_int(double value)
{
    return value > -9.2e18 && value < 9.2e18 ? (int64_t)value : 0;
}

/* Toward zero for integers; outside int64 and uint64 (where nothing is defined) it is 0. */
static inline void sy_put(const struct sy_array *a, int64_t i, double value)
{
    switch (a->dtype) {
    case SY_DTYPE_F32:
        ((float *)a->data)[i] = (float)value;
        break;
    case SY_DTYPE_F64:
        ((double *)a->data)[i] = value;
        break;
    case SY_DTYPE_F16:
        ((uint16_t *)a->data)[i] = sy_float_to_half((float)value);
        break;
    case SY_DTYPE_BF16:
        ((uint16_t *)a->data)[i] = sy_float_to_bf16((float)value);
        break;
    case SY_DTYPE_BOOL:
        ((uint8_t *)a->data)[i] = value != 0;
        break;
    case SY_DTYPE_U64:
        ((uint64_t *)a->data)[i] = value >= 9.2e18 && value < 1.8446744073709552e19
                                       ? (uint64_t)value
                                       : (uint64_t)sy_double_to_int(value);
        break;
    default:
        sy_put_int(a, i, sy_double_to_int(value));
        break;
    }
}

#endif
