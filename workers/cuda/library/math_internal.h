/* Shared by the files that implement device_math.h on CUDA: with the kernels the only ones that include CUDA's headers. */
#ifndef SY_WORKERS_CUDA_LIBRARY_MATH_INTERNAL_H
#define SY_WORKERS_CUDA_LIBRARY_MATH_INTERNAL_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "workers/cuda/kernels/kernel_ops.h"
#include "workers/cuda/math/choices.h"
#include "workers/cuda/math/conv_columns.h"
#include "workers/cuda/math/device_math_library.h"
#include "workers/cuda/math/library_pool.h"
#include "workers/cuda/math/library_recurrence.h"

/* For one plan; what cuBLASLt is recommended to have on Hopper. Convolutions that want more are not chosen. */
#define SY_MATH_SCRATCH_BYTES (32ull << 20)
/* For gradients of convolutions, whose fast deterministic algorithms want more. */
#define SY_MATH_BACK_SCRATCH_BYTES (128ull << 20)
#define SY_MATH_KEY                SY_CHOICE_WORDS

struct sy_math {
    struct sy_device *device;
    struct sy_stream *compute; /* whose handle is: */
    cudaStream_t stream;
    cudaEvent_t start, stop;
    cudnnHandle_t cudnn;
    cublasLtHandle_t lt;
    bool tf32;                                  /* SY_CUDA_TF32=1 */
    struct sy_math_plan *plans;                 /* one per description, as long as it is open */
    struct sy_math_library_plan *library_plans; /* math_cudnn_library.c */
    struct sy_choices *choices;
    struct sy_choices *warm; /* a set: what has run, by what chooses a kernel */
    bool tune;
    cudaEvent_t marks[SY_MATH_MARKS];
    bool marked[SY_MATH_MARKS]; /* once, at least */
};

enum sy_math_way {
    SY_WAY_FUSED,  /* cudnnConvolutionBiasActivationForward */
    SY_WAY_CUDNN,  /* cudnnConvolutionForward, then a chain */
    SY_WAY_GEMM,   /* a window of one element: a product */
    SY_WAY_DIRECT, /* our own kernel */
    SY_WAY_LT,     /* a product */
    SY_WAY_COLUMNS /* as products of unrolled windows */
};

struct sy_math_plan {
    struct sy_math_plan *next;
    int64_t key[SY_MATH_KEY];
    enum sy_math_way way;
    float best_ms;
    /* convolutions */
    struct sy_math_conv conv;
    cudnnTensorDescriptor_t x, y, bias;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t window;
    cudnnActivationDescriptor_t activation;
    int algo; /* of cuDNN's enum for the direction */
    cudnnMathType_t math_type;
    struct sy_math_plan *gemm; /* in the list too */
    struct sy_conv_columns columns;
    struct sy_math_plan *columns_product,
        *columns_sum; /* in the list too; NULL: not this way. sum: adds to its result */
    /* products */
    struct sy_math_matmul matmul;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t left, right, result;
    cublasLtMatmulAlgo_t lt_algo;
    bool lt_bias, lt_relu; /* done by cuBLASLt; what is not, a chain does */
};

/* ---- math_common.c ---- */

/* CUDA's, cuDNN's, cuBLASLt's answers as a status with the call's name. An error of CUDA that lies behind it is told to the device. */
int sy_math_cuda_check(struct sy_math *math, cudaError_t error, const char *call);
int sy_math_cudnn_check(struct sy_math *math, cudnnStatus_t answer, const char *call);
int sy_math_lt_check(struct sy_math *math, cublasStatus_t answer, const char *call);
/* Pinned memory of the host; `flags` of cudaHostAlloc. ENOMEM_HOST: CUDA has one answer for both kinds of memory. */
int sy_math_pinned_take(struct sy_math *math, uint64_t bytes, unsigned flags, void **out);
/* Clears CUDA's last error, which a library leaves when it tries something, fails and goes on: else the next kernel of our own would seem to have failed. A
 * sticky error is reported again. */
static inline void sy_math_forget_errors(void)
{
    (void)cudaGetLastError();
}
#define SY_CUDA(math, expr)  SY_TRY(sy_math_cuda_check((math), (expr), #expr))
#define SY_CUDNN(math, expr) SY_TRY(sy_math_cudnn_check((math), (expr), #expr))
#define SY_LT(math, expr)    SY_TRY(sy_math_lt_check((math), (expr), #expr))

/* The plan with this key, or NULL; puts a plan into the list, which then owns it. */
struct sy_math_plan *sy_math_find(struct sy_math *math, const int64_t *key);
void sy_math_keep(struct sy_math *math, struct sy_math_plan *plan);

/* The choice measured for the description `key`, whose word `batch_word` is or holds the batch size: for this batch size, else for another; NULL: none. */
const struct sy_choice *sy_math_chosen(struct sy_math *math, const int64_t *key, int batch_word);
/* Remembers it for both. `choice` needs no key. */
int sy_math_choose(struct sy_math *math, const int64_t *key, int batch_word,
                   struct sy_choice *choice);

/* Zeroed device memory for a trial, beside the pool; false: there is none, decide without timing. */
bool sy_math_trial_take(struct sy_math *math, uint64_t bytes, unsigned char **out);
void sy_math_trial_drop(struct sy_math *math, unsigned char *memory);
/* Measures the time of one run(arg) on the device, which is idle before; a first run is not counted. */
int sy_math_time(struct sy_math *math, int (*run)(void *arg), void *arg, float *out_ms);

/* As struct sy_math_ops has them. */
int sy_math_capture_begin(struct sy_math *math);
int sy_math_capture_end(struct sy_math *math, struct sy_math_graph **out);
int sy_math_graph_launch(struct sy_math *math, struct sy_math_graph *graph);
void sy_math_graph_drop(struct sy_math *math, struct sy_math_graph *graph);

/* ---- math_warm.c ---- */
/* All kernels of our own onto the device, as far as the driver can. */
void sy_math_load_kernels(void);
/* COLD: nothing of these words was asked for before, what they choose has not run yet; asked again it is WARM, or FAILED if
 * sy_math_note_failure was told so. */
enum sy_math_warmth { SY_MATH_WARM, SY_MATH_FAILED, SY_MATH_COLD };
enum sy_math_warmth sy_math_warmth(struct sy_math *math, const int64_t *words, size_t n);
void sy_math_note_failure(struct sy_math *math, const int64_t *words, size_t n);
/* Runs a plan once, so that its library's kernels are there; waits. A failure is logged; EDEVICE if the device has failed. */
int sy_math_warm(struct sy_math *math, int (*run)(void *arg), void *arg);

/* ---- math_cudnn.c ---- */
int sy_math_conv_plan(struct sy_math *math, const struct sy_math_conv *conv,
                      struct sy_math_plan **out);
int sy_math_conv_run(struct sy_math *math, struct sy_math_plan *plan, const void *x, const void *w,
                     const void *bias, const void *residual, void *y, void *scratch);
void sy_math_conv_finish(struct sy_math_plan *plan);

static inline uint64_t sy_math_conv_scratch(const struct sy_math_conv *conv)
{
    return conv->direction == SY_MATH_FORWARD && !conv->wide_scratch ? SY_MATH_SCRATCH_BYTES
                                                                     : SY_MATH_BACK_SCRATCH_BYTES;
}

/* ---- math_conv_columns.c ---- */
/* The plan's products, if it can be had this way. An error leaves it without. */
int sy_math_columns_plan(struct sy_math *math, struct sy_math_plan *plan);
int sy_math_columns_run(struct sy_math *math, struct sy_math_plan *plan, const void *a,
                        const void *b, const void *bias, void *y, void *scratch);

/* ---- math_cudnn_algo.c: cuDNN's three directions as one ---- */
struct sy_math_trial { /* memory NULL: nothing can be timed */
    struct sy_math *math;
    struct sy_math_plan *plan;
    unsigned char *x, *w, *bias, *y, *residual, *scratch;
};
/* The fastest deterministic algorithm that fits the scratch, as measured (trial memory) or as cuDNN thinks, and its math type, into
 * the plan. false: cuDNN has none for this. */
bool sy_math_cudnn_find(struct sy_math_trial *trial);
/* Whether the plan's algorithm can do what the plan describes, in the scratch there is. */
bool sy_math_cudnn_fits(struct sy_math *math, struct sy_math_plan *plan);
/* The plan's direction, without bias, residual, activation. */
int sy_math_cudnn_run(struct sy_math *math, struct sy_math_plan *plan, const void *a, const void *b,
                      void *result, void *scratch);

/* ---- math_cudnn_library.c ---- */
extern const struct sy_math_library_ops sy_cudnn_library;
void sy_cudnn_library_finish(struct sy_math *math); /* its plans go */

struct sy_math_library_plan {
    struct sy_math_library_plan *next;
    int64_t key[SY_MATH_KEY];
    bool works; /* what cuDNN refused is remembered, too */
    /* pools */
    struct sy_library_pool pool;
    cudnnTensorDescriptor_t x, y;
    cudnnPoolingDescriptor_t window;
    /* recurrent layers */
    struct sy_math_recurrence recurrence;
    struct sy_library_parts parts;
    struct sy_library_room room;
    cudnnRNNDescriptor_t rnn;
    cudnnDropoutDescriptor_t dropout;
    cudnnRNNDataDescriptor_t x_rows, y_rows;
    cudnnTensorDescriptor_t state;
    size_t weight_bytes, work_bytes;
};

/* ---- math_cudnn_recurrence.c ---- */
/* Fills in the rest of *plan for plan->recurrence. Fails where cuDNN refuses it, or wants more scratch than there is. */
int sy_math_recurrence_describe(struct sy_math *math, struct sy_math_library_plan *plan);
void sy_math_recurrence_finish(struct sy_math_library_plan *plan);
int sy_math_recurrence_run(struct sy_math *math, struct sy_math_library_plan *plan, void *const *at,
                           void *scratch);

/* ---- math_cublas.c ---- */
int sy_math_matmul_plan(struct sy_math *math, const struct sy_math_matmul *matmul,
                        struct sy_math_plan **out);
int sy_math_matmul_run(struct sy_math *math, struct sy_math_plan *plan, const void *a,
                       const void *b, const void *bias, const void *c, void *y, void *scratch);
void sy_math_matmul_finish(struct sy_math_plan *plan);

#endif
