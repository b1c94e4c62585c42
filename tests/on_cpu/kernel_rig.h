/* Kernels one by one on the CPU: tensors of exactly the bytes that they need, random numbers with the odd NaN among them, each launch
 * run with its blocks and threads in several orders, whose bits must be equal. */
#ifndef SY_TESTS_KERNEL_RIG_H
#define SY_TESTS_KERNEL_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"

/* What kernels are launched into. */
extern struct CUstream_st *const kernel_stream;

struct kernel_tensor {
    enum sy_dtype type;
    int64_t n;
    void *at;     /* the host's view */
    void *device; /* the kernels' */
};

/* Of n elements, all bytes 0xff; released by kernel_end. F64 for scratch. */
struct kernel_tensor *kernel_tensor(enum sy_dtype type, int64_t n);
/* The same, filled: floats around 0, integers from 0 to 9, bools. */
struct kernel_tensor *kernel_random(enum sy_dtype type, int64_t n);
/* With NaN, infinities, -0 and large numbers among them. */
struct kernel_tensor *kernel_odd(enum sy_dtype type, int64_t n);
/* For a tensor that is not there. */
#define KERNEL_AT(tensor) ((tensor) ? (tensor)->device : NULL)

double kernel_get(const struct kernel_tensor *t, int64_t i);
void kernel_put(struct kernel_tensor *t, int64_t i, double value);

/* launch(arg), which returns CUDA's error number, in all orders; each begins with the tensors as they were at the call. */
void kernel_run(int (*launch)(void *arg), void *arg);
/* Frees all tensors; a cmocka teardown too. */
int kernel_end(void **state);

/* got against a value in double: |got - want| <= type's precision * (scale + |want|), NaN and infinity as such. */
void kernel_compare(const struct kernel_tensor *t, int64_t i, double want, double scale);

/* From low to high, both included. */
int64_t kernel_between(int64_t low, int64_t high);
double kernel_uniform(void); /* -1 to 1 */
enum sy_dtype kernel_float_type(void);

/* Dimensions from 1 to most; some are 1, one may be 0. */
void kernel_dims(int rank, int64_t most, int64_t *dims);
/* Strides of dense dims. */
void kernel_dense(int rank, const int64_t *dims, int64_t *strides);
int64_t kernel_elements(int rank, const int64_t *dims);
/* Offset of the k-th index tuple. */
int64_t kernel_offset(int64_t k, int rank, const int64_t *dims, const int64_t *strides);
/* Dense strides of dims, some of which are repeated (stride 0); returns how many elements lie there. */
int64_t kernel_broadcast(int rank, const int64_t *dims, int64_t *strides);

#endif
