/* The inner loops of int8_matrix.c, by instructions: sums[row][64] of `rows` rows (1 to SY_INT8_ROWS, by tiles SY_INT8_TILE_ROWS) of u8 times the first
 * `columns` (1 to 64) of a panel of s8, [quads][64][4]. Sums of columns behind them may be written too. */
#ifndef SY_WORKERS_HOST_PRODUCTS_INT8_PANEL_H
#define SY_WORKERS_HOST_PRODUCTS_INT8_PANEL_H

#include <stdint.h>

typedef void sy_int8_panel_rows(int64_t quads, int rows, const uint8_t *a, int64_t stride,
                                const int8_t *w, int32_t *sums);
typedef void sy_int8_panel_run(int64_t quads, int columns, int rows, const uint8_t *a,
                               int64_t stride, const int8_t *w, int32_t *sums);
/* AMX, up to SY_INT8_TILE_ROWS rows; avx512_vnni; AVX2, which adds pairs in 32 bits, so that nothing saturates; any CPU. All give the same sums. */
sy_int8_panel_run sy_int8_panel_tiles, sy_int8_panel_vnni, sy_int8_panel_avx2, sy_int8_panel_plain;

#endif
