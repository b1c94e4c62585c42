/* Constant matrices of 8 bits for our own products: a column's numbers with a sign, what they are counted from, and what a step is worth.
 *
 *   packed: numbers int8 [blocks][quads][64 columns][4 rows] | sums int32 | zeros int32 | steps float, each [blocks * 64]
 *
 * An input number a (u8, from a zero point za) times a column: step * sum (a - za)(w - zero). That is
 * step * (sum a w - za * sum w - zero * (sum a - depth * za)): the loops compute the first sum, int8_correct() the rest. */
#ifndef SY_WORKERS_HOST_PRODUCTS_INT8_MATRIX_H
#define SY_WORKERS_HOST_PRODUCTS_INT8_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

/* Rows that one call of a panel takes at most, and with tiles (AMX); columns of a panel; deepest matrix whose sums fit 32 bits: 255 * 255 * 32768 < 2^31. */
enum { SY_INT8_ROWS = 6, SY_INT8_TILE_ROWS = 16, SY_INT8_COLUMNS = 64, SY_INT8_MOST_DEPTH = 32768 };

struct sy_int8_matrix {
    int64_t depth, columns, blocks, quads;
    const int8_t *numbers;
    const int32_t *sums, *zeros;
    const float *steps;
};

/* One column of the unpacked matrix: `depth` numbers, `stride` apart. */
struct sy_int8_column {
    const int8_t *numbers;
    int64_t stride;
    int32_t zero;
    float step;
};

/* Quantised rows: u8, `stride` apart (a multiple of 4, at least 4 * quads; bytes behind depth are ignored), their sums, and the scale and zero point of all. */
struct sy_int8_rows {
    int64_t n, stride;
    const uint8_t *numbers;
    const int32_t *sums;
    float scale;
    int32_t zero;
};

/* Bytes of one packed matrix, a multiple of 64. */
int64_t sy_int8_matrix_bytes(int64_t depth, int64_t columns);
/* A view; `packed` stays the caller's. */
struct sy_int8_matrix sy_int8_matrix_view(const void *packed, int64_t depth, int64_t columns);
/* Writes column `at`. `packed` must be zeroed first: columns that are not written yield 0. */
void sy_int8_matrix_set(void *packed, int64_t depth, int64_t columns, int64_t at,
                        const struct sy_int8_column *column);

/* Maximum number of rows for sy_int8_panel on this CPU: SY_INT8_ROWS or SY_INT8_TILE_ROWS. */
int sy_int8_panel_most(void);
/* sums[row][64] of block `block` for 1 to sy_int8_panel_most() rows: the plain sums of products. Exact, so equal on all CPUs. In the calling thread. */
void sy_int8_panel(const struct sy_int8_matrix *m, int64_t block, int rows, const uint8_t *a,
                   int64_t stride, int32_t *sums);
/* The sum of n numbers. */
int32_t sy_int8_sum(int64_t n, const uint8_t *a);

/* y[row][y_stride]: rows times the matrix in float32, plus bias[columns] unless NULL. On all threads. */
void sy_int8_multiply(const struct sy_int8_matrix *m, const struct sy_int8_rows *rows,
                      const float *bias, float *y, int64_t y_stride);

#endif
