/* Panels of 8 bits by AMX. A panel's quads have the layout of a right-hand tile: 16 rows of 16 columns with four numbers each. */
#include <immintrin.h>

#include "workers/host/products/int8_matrix.h"
#include "workers/host/products/int8_panel.h"

#define TILES __attribute__((target("amx-tile,amx-int8")))

enum { TILE_QUADS = 16, TILE_COLUMNS = 16, ROW_BYTES = 64, PANEL_BYTES = SY_INT8_COLUMNS * 4 };

/* Tiles 0 to 3: sums of 16 columns each; 4 and 5: 64 numbers of each row, and their quads; 6 and 7: the rest of the depth. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static void shape_tiles(int rows, int64_t rest, struct tile_config *c)
{
    *c = (struct tile_config){.palette = 1};
    for (int t = 0; t < 8; t++) {
        c->rows[t] = (uint8_t)rows;
        c->row_bytes[t] = ROW_BYTES;
    }
    c->rows[5] = TILE_QUADS;
    c->rows[6] = (uint8_t)(rest ? rows : 0); /* a tile without rows has no bytes either */
    c->row_bytes[6] = (uint16_t)(rest * 4);
    c->rows[7] = (uint8_t)rest;
    c->row_bytes[7] = rest ? ROW_BYTES : 0;
}

/* Tiles are named by constants. */
#define ADD_COLUMNS(sum, left, right)                            \
    if (columns > sum * TILE_COLUMNS) {                          \
        _tile_loadd(right, from + sum * ROW_BYTES, PANEL_BYTES); \
        _tile_dpbusd(sum, left, right);                          \
    }
#define ADD_DEPTH(left, right)                    \
    {                                             \
        const int8_t *from = w + q * PANEL_BYTES; \
        _tile_loadd(left, a + q * 4, stride);     \
        ADD_COLUMNS(0, left, right)               \
        ADD_COLUMNS(1, left, right)               \
        ADD_COLUMNS(2, left, right)               \
        ADD_COLUMNS(3, left, right)               \
    }
#define PUT(sum) _tile_stored(sum, sums + sum * TILE_COLUMNS, SY_INT8_COLUMNS * sizeof *sums);

TILES void sy_int8_panel_tiles(int64_t quads, int columns, int rows, const uint8_t *a,
                               int64_t stride, const int8_t *w, int32_t *sums)
{
    struct tile_config config;
    int64_t q = 0;
    shape_tiles(rows, quads % TILE_QUADS, &config);
    /* GCC 12 declares only 8 of the 64 bytes as read. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; q + TILE_QUADS <= quads; q += TILE_QUADS)
        ADD_DEPTH(4, 5)
    if (q < quads)
        ADD_DEPTH(6, 7)
    PUT(0) PUT(1) PUT(2) PUT(3) _tile_release();
}
