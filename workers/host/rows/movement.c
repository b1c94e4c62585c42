#include "workers/host/rows/movement.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"

enum {
    PARALLEL_FROM = 16384,
    TILE = 64 /* a side */,
    BLOCK = 4,
    BLOCK_ELEMENTS = 2048,
    MOST_ROWS = 64
};

/* Inlined where `size` is a constant. */
static inline void move_each(const char *from, int64_t a, char *to, int64_t b, int64_t n,
                             int64_t size)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * b * size, from + i * a * size, (size_t)size);
}

/* Numbers of four bytes, whatever they are: one, and as many as a block is wide. */
typedef uint32_t word __attribute__((may_alias));
typedef uint32_t words __attribute__((vector_size(16), aligned(4), may_alias));

SY_CLONES static void every_other(const word *restrict from, word *restrict to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = from[2 * i];
}

/* `n` elements of a row. */
static void move_row(const struct sy_strided_move *m, int64_t n, const char *from, char *to)
{
    int64_t last = m->rank - 1, size = m->element_bytes;
    int64_t a = m->rank ? m->from_strides[last] : 1, b = m->rank ? m->to_strides[last] : 1;
    if (a == 1 && b == 1)
        memcpy(to, from, (size_t)(n * size));
    else if (size == 1)
        move_each(from, a, to, b, n, 1);
    else if (size == 2)
        move_each(from, a, to, b, n, 2);
    else if (size == 4 && a == 2 && b == 1)
        every_other((const word *)from, (word *)to, n);
    else if (size == 4)
        move_each(from, a, to, b, n, 4);
    else
        move_each(from, a, to, b, n, 8);
}

/* ---- tiles: what is next to each other in one of the two is far apart in the other ------------------------- */

/* Dimension `source` is the one whose elements follow each other in `from`, the last one's do in `to`. */
struct tiling {
    int64_t source, n_from, n_to;   /* tiles along it, and along the last dimension */
    int64_t from_stride, to_stride; /* of the last dimension in `from`, of `source` in `to` */
    int64_t from_extent, to_extent; /* elements along `source`, along the last dimension */
};

/* Four rows of four become columns. */
static inline void turn_block(const word *from, int64_t a, word *to, int64_t b)
{
    words r0 = *(const words *)from, r1 = *(const words *)(from + a),
          r2 = *(const words *)(from + 2 * a), r3 = *(const words *)(from + 3 * a);
    words low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5),
          low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5),
          high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7),
          high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    *(words *)to = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    *(words *)(to + b) = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    *(words *)(to + 2 * b) = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    *(words *)(to + 3 * b) = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

/* The tile's rest, from row `i` and column `k` on: element by element. Inlined where `size` is a constant. */
static inline void turn_each(const struct tiling *t, const char *from, char *to, int64_t i,
                             int64_t rows, int64_t k, int64_t columns, int64_t size)
{
    for (; i < rows; i++)
        move_each(from + (i * t->from_stride + k) * size, 1, to + (k * t->to_stride + i) * size,
                  t->to_stride, columns - k, size);
}

/* rows: along the last dimension; columns: along `source`. The side whose steps are longer is walked in the outer loop. */
static void turn_words(const struct tiling *t, const word *from, word *to, int64_t rows,
                       int64_t columns)
{
    int64_t whole_rows = rows - rows % BLOCK, whole_columns = columns - columns % BLOCK;
    if (t->from_stride > t->to_stride)
        for (int64_t i = 0; i < whole_rows; i += BLOCK)
            for (int64_t k = 0; k < whole_columns; k += BLOCK)
                turn_block(from + i * t->from_stride + k, t->from_stride, to + k * t->to_stride + i,
                           t->to_stride);
    else
        for (int64_t k = 0; k < whole_columns; k += BLOCK)
            for (int64_t i = 0; i < whole_rows; i += BLOCK)
                turn_block(from + i * t->from_stride + k, t->from_stride, to + k * t->to_stride + i,
                           t->to_stride);
    turn_each(t, (const char *)from, (char *)to, 0, whole_rows, whole_columns, columns, 4);
    turn_each(t, (const char *)from, (char *)to, whole_rows, rows, 0, columns, 4);
}

static void turn_tile(const struct sy_strided_move *m, const struct tiling *t, const char *from,
                      char *to, int64_t rows, int64_t columns)
{
    if (m->element_bytes == 4)
        turn_words(t, (const word *)from, (word *)to, rows, columns);
    else if (m->element_bytes == 1)
        turn_each(t, from, to, 0, rows, 0, columns, 1);
    else if (m->element_bytes == 2)
        turn_each(t, from, to, 0, rows, 0, columns, 2);
    else
        turn_each(t, from, to, 0, rows, 0, columns, 8);
}

/* False: rows do. */
static bool find_tiling(const struct sy_strided_move *m, struct tiling *t)
{
    int64_t last = m->rank - 1, d = last - 1;
    if (m->rank < 2 || m->to_strides[last] != 1 || m->from_strides[last] == 1)
        return false;
    while (d >= 0 && (m->from_strides[d] != 1 || m->dims[d] == 1))
        d--;
    if (d < 0)
        return false;
    *t = (struct tiling){.source = d,
                         .n_from = (m->dims[d] + TILE - 1) / TILE,
                         .n_to = (m->dims[last] + TILE - 1) / TILE,
                         .from_stride = m->from_strides[last],
                         .to_stride = m->to_strides[d],
                         .from_extent = m->dims[d],
                         .to_extent = m->dims[last]};
    return true;
}

static void move_tiles(const struct sy_strided_move *m, const struct tiling *t, const char *from,
                       char *to)
{
    int64_t tiles = t->n_from * t->n_to, each = m->element_bytes;
    for (int64_t d = 0; d + 1 < m->rank; d++)
        tiles *= d == t->source ? 1 : m->dims[d];
#pragma omp parallel for schedule(static) if (tiles * TILE * TILE > PARALLEL_FROM)
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t left = tile / t->n_to, i = tile % t->n_to * TILE, k = left % t->n_from * TILE;
        int64_t a = m->from_offset + i * t->from_stride + k,
                b = m->to_offset + k * t->to_stride + i;
        left /= t->n_from;
        for (int64_t d = m->rank - 2; d >= 0; d--) {
            if (d == t->source)
                continue;
            a += left % m->dims[d] * m->from_strides[d];
            b += left % m->dims[d] * m->to_strides[d];
            left /= m->dims[d];
        }
        turn_tile(m, t, from + a * each, to + b * each, SY_MIN(TILE, t->to_extent - i),
                  SY_MIN(TILE, t->from_extent - k));
    }
}

/* ---- any move ---------------------------------------------------------------------------------------------- */

/* The same move with as few dimensions as possible: two that are contiguous on both sides become one. */
static struct sy_strided_move join_dimensions(const struct sy_strided_move *m)
{
    struct sy_strided_move j = *m;
    j.rank = 0;
    for (int64_t d = 0; d < m->rank; d++) {
        int64_t end = j.rank - 1;
        if (m->dims[d] == 1)
            continue;
        bool goes_on = end >= 0 && j.from_strides[end] == m->from_strides[d] * m->dims[d] &&
                       j.to_strides[end] == m->to_strides[d] * m->dims[d];
        if (!goes_on) {
            end = j.rank++;
            j.dims[end] = 1;
        }
        j.dims[end] *= m->dims[d];
        j.from_strides[end] = m->from_strides[d];
        j.to_strides[end] = m->to_strides[d];
    }
    return j;
}

static void fill_floats(float *to, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = value;
}

/* A row's indices but the last, and its offsets on both sides. */
struct row_place {
    int64_t at[SY_MAX_RANK], from, to;
};

static struct row_place find_row(const struct sy_strided_move *m, int64_t row)
{
    struct row_place p = {.from = m->from_offset, .to = m->to_offset};
    for (int64_t d = m->rank - 2; d >= 0; d--) {
        p.at[d] = row % m->dims[d];
        p.from += p.at[d] * m->from_strides[d];
        p.to += p.at[d] * m->to_strides[d];
        row /= m->dims[d];
    }
    return p;
}

/* Its divisions cost more than the copy of a short row: the next row is found without. */
static void next_row(const struct sy_strided_move *m, struct row_place *p)
{
    for (int64_t d = m->rank - 2; d >= 0; d--) {
        p->from += m->from_strides[d];
        p->to += m->to_strides[d];
        if (++p->at[d] < m->dims[d])
            return;
        p->at[d] = 0;
        p->from -= m->from_strides[d] * m->dims[d];
        p->to -= m->to_strides[d] * m->dims[d];
    }
}

/* Short rows in blocks, long rows in pieces: there may be fewer rows than threads. */
static void move_rows(const struct sy_strided_move *m, const char *from, char *to)
{
    int64_t rows = 1, last = m->rank - 1, n = m->rank ? m->dims[last] : 1,
            pieces = (n + PARALLEL_FROM - 1) / PARALLEL_FROM,
            block = SY_MAX(SY_MIN(BLOCK_ELEMENTS / SY_MAX(n, 1), MOST_ROWS), 1);
    for (int64_t d = 0; d < last; d++)
        rows *= m->dims[d];
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_FROM)
    for (int64_t i = 0; i < rows * pieces; i += block) {
        int64_t at = i % pieces * PARALLEL_FROM, size = SY_MIN(n - at, PARALLEL_FROM),
                end = SY_MIN(i + block, rows * pieces);
        int64_t a = m->rank ? at * m->from_strides[last] : 0,
                b = m->rank ? at * m->to_strides[last] : 0;
        struct row_place p = find_row(m, i / pieces);
        for (int64_t row = i; row < end; row++, next_row(m, &p))
            move_row(m, size, from + (p.from + a) * m->element_bytes,
                     to + (p.to + b) * m->element_bytes);
    }
}

void sy_move(const struct sy_strided_move *move, const void *from, void *to)
{
    struct sy_strided_move m = join_dimensions(move);
    struct tiling tiling;
    if (m.fill_elements)
        fill_floats(to, m.fill_elements, (float)m.fill);
    if (find_tiling(&m, &tiling))
        move_tiles(&m, &tiling, from, to);
    else
        move_rows(&m, from, to);
}

bool sy_move_gather(const struct sy_gather *g, int64_t *bad_index)
{
    for (int64_t k = 0; k < g->n_indices; k++) {
        int64_t index =
            g->wide ? ((const int64_t *)g->indices)[k] : ((const int32_t *)g->indices)[k];
        if (index < -g->extent || index >= g->extent) {
            *bad_index = index;
            return false;
        }
        index += index < 0 ? g->extent : 0;
        for (int64_t o = 0; o < g->outer; o++)
            memcpy(g->to + (o * g->n_indices + k) * g->inner_bytes,
                   g->from + (o * g->extent + index) * g->inner_bytes, (size_t)g->inner_bytes);
    }
    return true;
}
