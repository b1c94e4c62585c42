#include "workers/host/movement.h"

#include <string.h>

#define PARALLEL_FROM 16384

/* Inlined where `size` is a constant. */
static inline void move_each(const char *from, int64_t a, char *to, int64_t b, int64_t n,
                             int64_t size)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * b * size, from + i * a * size, (size_t)size);
}

static void move_row(const struct sy_strided_move *m, const char *from, char *to)
{
    int64_t last = m->rank - 1, n = m->rank ? m->dims[last] : 1, size = m->element_bytes;
    int64_t a = m->rank ? m->from_strides[last] : 1, b = m->rank ? m->to_strides[last] : 1;
    if (a == 1 && b == 1)
        memcpy(to, from, (size_t)(n * size));
    else if (size == 1)
        move_each(from, a, to, b, n, 1);
    else if (size == 2)
        move_each(from, a, to, b, n, 2);
    else if (size == 4)
        move_each(from, a, to, b, n, 4);
    else
        move_each(from, a, to, b, n, 8);
}

static void fill_floats(float *to, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = value;
}

void sy_move(const struct sy_strided_move *m, const void *from, void *to)
{
    int64_t rows = 1, n = m->rank ? m->dims[m->rank - 1] : 1;
    for (int64_t d = 0; d + 1 < m->rank; d++)
        rows *= m->dims[d];
    if (m->fill_elements)
        fill_floats(to, m->fill_elements, (float)m->fill);
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_FROM)
    for (int64_t row = 0; row < rows; row++) {
        int64_t left = row, a = m->from_offset, b = m->to_offset;
        for (int64_t d = m->rank - 2; d >= 0; d--) {
            a += left % m->dims[d] * m->from_strides[d];
            b += left % m->dims[d] * m->to_strides[d];
            left /= m->dims[d];
        }
        move_row(m, (const char *)from + a * m->element_bytes, (char *)to + b * m->element_bytes);
    }
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
