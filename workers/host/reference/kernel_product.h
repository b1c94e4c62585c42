/* Walks over the cells of a product as MatMul defines it: vectors, batches that are broadcast. For kernels. */
#ifndef SY_WORKERS_HOST_REFERENCE_KERNEL_PRODUCT_H
#define SY_WORKERS_HOST_REFERENCE_KERNEL_PRODUCT_H

#include "workers/host/reference/kernel.h"

/* One cell: y[to] is row `row` of a (from a_start on, `depth` long) times column `column` of b (from b_start on, `columns` wide). */
struct sy_product {
    const struct sy_array *a, *b, *y;
    int64_t rows, columns, depth, a_start, b_start, row, column;
};

typedef void sy_product_cell(const struct sy_product *p, int64_t to, void *context);

bool sy_product_fits(const struct sy_array *a, const struct sy_array *b, const struct sy_array *y);
int sy_product_run(const struct sy_array *a, const struct sy_array *b, const struct sy_array *y,
                   sy_product_cell *cell, void *context);

/* An Einsum's labels, the result's first: letters, and numbers above 256 for what an ellipsis stands for; sizes, and operands' strides. */
#define SY_EINSUM_LABELS 24
struct sy_einsum {
    int n, n_out, labels[SY_EINSUM_LABELS];
    int64_t sizes[SY_EINSUM_LABELS], strides[SY_KERNEL_INPUTS][SY_EINSUM_LABELS];
};
/* False: the equation does not fit the arrays, whose data is not looked at. */
bool sy_einsum_read(const struct sy_call *call, struct sy_einsum *f);

#endif
