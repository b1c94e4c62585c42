#include "workers/host/products/int8_matrix.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"
#include "workers/host/base/cpu_class.h"
#include "workers/host/products/int8_panel.h"

enum {
    PIECE_ROWS =
        48, /* rows that a thread multiplies with one panel: both fit its first-level cache */
    TILES_FROM = 3 /* rows: setting up tiles takes as long as two rows with vectors */
};

static int64_t blocks_of(int64_t columns)
{
    return (columns + SY_INT8_COLUMNS - 1) / SY_INT8_COLUMNS;
}

static int64_t numbers_of(int64_t depth, int64_t columns)
{
    return blocks_of(columns) * ((depth + 3) / 4) * 4 * SY_INT8_COLUMNS;
}

int64_t sy_int8_matrix_bytes(int64_t depth, int64_t columns)
{
    return numbers_of(depth, columns) +
           blocks_of(columns) * SY_INT8_COLUMNS * 3 * (int64_t)sizeof(int32_t);
}

struct sy_int8_matrix sy_int8_matrix_view(const void *packed, int64_t depth, int64_t columns)
{
    const char *behind = (const char *)packed + numbers_of(depth, columns);
    int64_t padded = blocks_of(columns) * SY_INT8_COLUMNS;
    const int32_t *sums = (const int32_t *)(const void *)behind;
    return (struct sy_int8_matrix){.depth = depth,
                                   .columns = columns,
                                   .blocks = blocks_of(columns),
                                   .quads = (depth + 3) / 4,
                                   .numbers = packed,
                                   .sums = sums,
                                   .zeros = sums + padded,
                                   .steps = (const float *)(const void *)(sums + 2 * padded)};
}

void sy_int8_matrix_set(void *packed, int64_t depth, int64_t columns, int64_t at,
                        const struct sy_int8_column *column)
{
    int64_t padded = blocks_of(columns) * SY_INT8_COLUMNS, quads = (depth + 3) / 4;
    int8_t *to = (int8_t *)packed + at / SY_INT8_COLUMNS * quads * 4 * SY_INT8_COLUMNS +
                 at % SY_INT8_COLUMNS * 4;
    int32_t *sums = (int32_t *)(void *)((char *)packed + numbers_of(depth, columns)), sum = 0;
    for (int64_t k = 0; k < depth; k++) {
        to[k / 4 * 4 * SY_INT8_COLUMNS + k % 4] = column->numbers[k * column->stride];
        sum += column->numbers[k * column->stride];
    }
    sums[at] = sum;
    sums[padded + at] = column->zero;
    memcpy(&sums[2 * padded + at], &column->step, sizeof column->step);
}

SY_CLONES int32_t sy_int8_sum(int64_t n, const uint8_t *a)
{
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i];
    return sum;
}

int sy_int8_panel_most(void)
{
    return sy_dnnl_has_int8_tiles() ? SY_INT8_TILE_ROWS : SY_INT8_ROWS;
}

void sy_int8_panel(const struct sy_int8_matrix *m, int64_t block, int rows, const uint8_t *a,
                   int64_t stride, int32_t *sums)
{
    const int8_t *w = m->numbers + block * m->quads * 4 * SY_INT8_COLUMNS;
    int columns = (int)SY_MIN(m->columns - block * SY_INT8_COLUMNS, (int64_t)SY_INT8_COLUMNS);
    if (rows >= TILES_FROM && sy_dnnl_has_int8_tiles())
        sy_int8_panel_tiles(m->quads, columns, rows, a, stride, w, sums);
    else if (sy_dnnl_has_int8())
        sy_int8_panel_vnni(m->quads, columns, rows, a, stride, w, sums);
    else if (sy_dnnl_has_avx2())
        sy_int8_panel_avx2(m->quads, columns, rows, a, stride, w, sums);
    else
        sy_int8_panel_plain(m->quads, columns, rows, a, stride, w, sums);
}

/* ---- products of many rows -------------------------------------------------------------------------- */

/* Columns [0, n) of one row of a block. Corrections wrap in 32 bits as the sums do: their sum fits. */
SY_CLONES static void finish_row(int64_t n, const int32_t *sums, int32_t zero, int32_t moved,
                                 float scale, const int32_t *column_sums,
                                 const int32_t *column_zeros, const float *steps, const float *bias,
                                 float *y)
{
    for (int64_t c = 0; c < n; c++) {
        uint32_t sum = (uint32_t)sums[c] - (uint32_t)zero * (uint32_t)column_sums[c] -
                       (uint32_t)column_zeros[c] * (uint32_t)moved;
        y[c] = (float)(int32_t)sum * (scale * steps[c]);
    }
    for (int64_t c = 0; c < n && bias; c++)
        y[c] += bias[c];
}

static void multiply_piece(const struct sy_int8_matrix *m, const struct sy_int8_rows *rows,
                           int64_t block, int64_t first, const float *bias, float *y,
                           int64_t y_stride)
{
    int32_t sums[SY_INT8_TILE_ROWS * SY_INT8_COLUMNS];
    const int64_t most = sy_int8_panel_most();
    int64_t at = block * SY_INT8_COLUMNS, end = SY_MIN(first + PIECE_ROWS, rows->n),
            n = SY_MIN(m->columns - at, (int64_t)SY_INT8_COLUMNS);
    for (int64_t row = first; row < end; row += most) {
        int some = (int)SY_MIN(end - row, most);
        sy_int8_panel(m, block, some, rows->numbers + row * rows->stride, rows->stride, sums);
        for (int i = 0; i < some; i++)
            finish_row(n, sums + i * SY_INT8_COLUMNS, rows->zero,
                       rows->sums[row + i] - (int32_t)m->depth * rows->zero, rows->scale,
                       m->sums + at, m->zeros + at, m->steps + at, bias ? bias + at : NULL,
                       y + (row + i) * y_stride + at);
    }
}

void sy_int8_multiply(const struct sy_int8_matrix *m, const struct sy_int8_rows *rows,
                      const float *bias, float *y, int64_t y_stride)
{
    const int64_t least = 1 << 17; /* products that justify waking the other threads */
    int64_t pieces = (rows->n + PIECE_ROWS - 1) / PIECE_ROWS;
#pragma omp parallel for collapse(2) schedule(static) if (rows->n * m->depth * m->columns > least)
    for (int64_t block = 0; block < m->blocks; block++)
        for (int64_t piece = 0; piece < pieces; piece++)
            multiply_piece(m, rows, block, piece * PIECE_ROWS, bias, y, y_stride);
}
