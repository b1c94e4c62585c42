#include "workers/host/rows/attention.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/base/dnnl_compat.h"
#include "workers/host/base/exp_below_zero.h"
#include "workers/host/rows/elementwise.h"

#define SCORES_BYTES (256 << 10) /* of a block: a quarter of the second cache */
#define MOST_ROWS    128
#define FEWEST_ROWS  16
#define STEP         64 /* columns by which causal blocks grow, and the most rows they have */

/* ---- rows of scores ---------------------------------------------------------------------------- */

SY_CLONES static float row_max(const float *x, int64_t n)
{
    float top = -INFINITY;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

/* x becomes e^(x - top); their sum. */
SY_CLONES static float row_exp(float *x, float top, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float e = sy_exp_below_zero(x[i] - top);
        x[i] = e;
        sum += e;
    }
    return sum;
}

SY_CLONES static void row_times(float *x, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

SY_CLONES static void row_add(float *x, const float *mask, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] += mask[i];
}

SY_CLONES static void row_fill(float *x, const uint8_t *mask, uint8_t where, float fill, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (mask[i] != 0) == where ? fill : x[i];
}

/* No exponent is the greatest: one step more, and none reaches the sign. */
SY_CLONES static bool row_is_finite(const float *x, int64_t n)
{
    uint32_t over = 0;
#pragma omp simd reduction(| : over)
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        over |= (bits & 0x7f800000u) + 0x00800000u;
    }
    return over >> 31 == 0;
}

/* Whether all numbers of a row of bf16 are finite. */
SY_CLONES static bool narrow_row_is_finite(const uint16_t *x, int64_t n)
{
    uint32_t over = 0;
#pragma omp simd reduction(| : over)
    for (int64_t i = 0; i < n; i++)
        over |= (x[i] & 0x7f80u) + 0x80u;
    return over >> 15 == 0;
}

/* A mask with a column stride: 0 repeats one value along the row. */
static void row_mask_strided(const struct sy_attention *a, int m, const void *mask, float *x,
                             int64_t n)
{
    int64_t step = a->masks[m].column;
    for (int64_t i = 0; i < n; i++) {
        if (a->kinds[m] == SY_MASK_ADD)
            x[i] += ((const float *)mask)[i * step];
        else if ((((const uint8_t *)mask)[i * step] != 0) == (a->kinds[m] == SY_MASK_DROP))
            x[i] = a->fills[m];
    }
}

/* `at`: element of the row's begin. */
static void row_mask(const struct sy_attention *a, int m, const void *mask, int64_t at, float *x,
                     int64_t n)
{
    bool add = a->kinds[m] == SY_MASK_ADD;
    const void *row =
        add ? (const void *)((const float *)mask + at) : (const void *)((const uint8_t *)mask + at);
    if (a->masks[m].column != 1)
        row_mask_strided(a, m, row, x, n);
    else if (add)
        row_add(x, row, n);
    else
        row_fill(x, row, a->kinds[m] == SY_MASK_DROP, a->fills[m], n);
}

/* ---- a block ----------------------------------------------------------------------------------- */

static int64_t count_heads(const struct sy_attention *a)
{
    int64_t heads = 1;
    for (int d = 0; d < a->head_rank; d++)
        heads *= a->head_dims[d];
    return heads;
}

/* Whether a causal mask, the only mask, makes what lies behind a row's own columns -infinity: that is 0 behind the softmax, whatever q and k are. */
static bool has_own_columns(const struct sy_attention *a)
{
    return a->n_masks == 1 && a->causal[0] > 0 && a->kinds[0] != SY_MASK_ADD &&
           a->fills[0] == -INFINITY;
}

/* As many rows as fit the cache, but some for each thread. Of causal rows a power of 2 that follows from the columns alone: the math library adds
 * up in another order where a matrix has another number of rows. */
static int64_t block_rows(const struct sy_attention *a)
{
    int64_t fit = SCORES_BYTES / (int64_t)sizeof(float) / SY_MAX(a->columns, 1), size = STEP;
    while (size > FEWEST_ROWS && size > fit)
        size /= 2;
    if (has_own_columns(a))
        return size;
    int64_t heads = SY_MAX(count_heads(a), 1), cuts = (2 * a->n_threads + heads - 1) / heads;
    fit = SY_MIN(SY_MIN(fit, MOST_ROWS), (a->rows + cuts - 1) / cuts);
    return SY_MAX(SY_MIN(SY_MAX(fit, FEWEST_ROWS), a->rows), 1);
}

/* How many rows the first block is short of: with that, all rows of a block need as many columns. */
static int64_t short_rows(const struct sy_attention *a)
{
    return has_own_columns(a) ? (a->causal[0] - 1) % block_rows(a) : 0;
}

/* Scratch of a thread: scores, float32 copies of bf16 operands. */
static int64_t floats_of_thread(const struct sy_attention *a)
{
    int64_t rows = block_rows(a), n = rows * a->columns;
    n += a->q.narrow ? rows * a->depth : 0;
    n += a->k.narrow ? a->depth * a->columns : 0;
    n += a->v.narrow ? a->columns * a->width : 0;
    n += a->y.narrow ? rows * a->width : 0;
    return (n + 15) / 16 * 16;
}

int64_t sy_attention_scratch(const struct sy_attention *a)
{
    return a->n_threads * floats_of_thread(a) * (int64_t)sizeof(float);
}

static int64_t head_offset(const struct sy_attention *a, const struct sy_attention_view *v,
                           int64_t head)
{
    int64_t offset = 0;
    for (int d = a->head_rank - 1; d >= 0; d--) {
        offset += head % a->head_dims[d] * v->heads[d];
        head /= a->head_dims[d];
    }
    return offset;
}

/* A matrix as the math library takes it: row-major, or transposed. */
struct matrix {
    const float *data;
    char transposed;
    int64_t stride;
};

/* rows x columns from element `at`; bf16 is made wide into *room, which moves on. */
static struct matrix take_matrix(const struct sy_attention_view *v, const void *data, int64_t at,
                                 int64_t rows, int64_t columns, float **room)
{
    bool transposed = v->column != 1 && columns > 1;
    int64_t lines = transposed ? columns : rows, length = transposed ? rows : columns,
            stride = transposed ? v->column : v->row;
    struct matrix m = {(const float *)data + at, transposed ? 'T' : 'N',
                       lines > 1 ? stride : length};
    if (!v->narrow)
        return m;
    for (int64_t i = 0; i < lines; i++)
        sy_elementwise_widen(length, (const uint16_t *)data + at + i * stride, *room + i * length);
    m.data = *room;
    m.stride = length;
    *room += lines * length;
    return m;
}

static void narrow_block(const struct sy_attention *a, int64_t rows, const float *from,
                         uint16_t *to)
{
    for (int64_t i = 0; i < rows; i++)
        sy_elementwise_narrow(a->width, from + i * a->width, to + i * a->y.row);
}

/* Whether rows x columns from element `at` are finite. */
static bool are_finite(const struct sy_attention_view *v, const void *data, int64_t at,
                       int64_t rows, int64_t columns)
{
    bool transposed = v->column != 1 && columns > 1, finite = true;
    int64_t lines = transposed ? columns : rows, length = transposed ? rows : columns,
            stride = transposed ? v->column : v->row;
    for (int64_t i = 0; i < lines && finite; i++, at += stride)
        finite = v->narrow ? narrow_row_is_finite((const uint16_t *)data + at, length)
                           : row_is_finite((const float *)data + at, length);
    return finite;
}

/* How many columns the block of rows from `first` on multiplies: the rows' own, up to a whole STEP. What is behind is 0 times v, so nothing, if v is
 * finite. Of all rows of a block, they are as many. */
static int64_t needed_columns(const struct sy_attention *a, const struct sy_attention_data *data,
                              int64_t head, int64_t first)
{
    int64_t end = has_own_columns(a) ? (first + a->causal[0] - 1) / STEP * STEP + STEP : a->columns;
    if (end >= a->columns)
        return a->columns;
    int64_t at = head_offset(a, &a->v, head) + end * a->v.row;
    return are_finite(&a->v, data->v, at, a->columns - end, a->width) ? end : a->columns;
}

/* Scores of rows from `first` on become e^(score - the row's largest); factors: what makes their sum 1. */
static void soften(const struct sy_attention *a, const struct sy_attention_data *data, int64_t head,
                   int64_t first, int64_t rows, int64_t columns, float *scores, float *factors)
{
    const bool causal = has_own_columns(a);
    int64_t at[SY_ATTENTION_MASKS];
    for (int m = 0; m < a->n_masks; m++)
        at[m] = head_offset(a, &a->masks[m], head) + first * a->masks[m].row;
    for (int64_t i = 0; i < rows; i++, scores += columns) {
        int64_t own = causal ? SY_MIN(columns, first + i + a->causal[0]) : columns;
        for (int m = 0; m < a->n_masks && !causal; m++)
            row_mask(a, m, data->masks[m], at[m] + i * a->masks[m].row, scores, columns);
        float sum = row_exp(scores, row_max(scores, own), own);
        bool dead = a->zero_nan && isnan(sum);
        factors[i] = dead ? 0 : 1 / sum;
        own = dead ? 0 : own;
        memset(scores + own, 0, (size_t)(columns - own) * sizeof *scores);
    }
}

static dnnl_status_t one_block(const struct sy_attention *a, const struct sy_attention_data *data,
                               int64_t head, int64_t first, int64_t rows, float *scores)
{
    float *room = scores + block_rows(a) * a->columns, factors[MOST_ROWS];
    int64_t to = head_offset(a, &a->y, head) + first * a->y.row,
            columns = needed_columns(a, data, head, first);
    struct matrix q = take_matrix(&a->q, data->q, head_offset(a, &a->q, head) + first * a->q.row,
                                  rows, a->depth, &room);
    struct matrix k =
        take_matrix(&a->k, data->k, head_offset(a, &a->k, head), a->depth, columns, &room);
    struct matrix v =
        take_matrix(&a->v, data->v, head_offset(a, &a->v, head), columns, a->width, &room);
    float *y = a->y.narrow ? room : (float *)data->y + to;
    int64_t y_stride = a->y.narrow || rows == 1 ? a->width : a->y.row;
    dnnl_status_t status = dnnl_sgemm(q.transposed, k.transposed, rows, columns, a->depth, a->scale,
                                      q.data, q.stride, k.data, k.stride, 0, scores, columns);
    if (status != dnnl_success)
        return status;
    soften(a, data, head, first, rows, columns, scores, factors);
    status = dnnl_sgemm('N', v.transposed, rows, a->width, columns, 1, scores, columns, v.data,
                        v.stride, 0, y, y_stride);
    for (int64_t i = 0; i < rows && status == dnnl_success; i++)
        row_times(y + i * y_stride, factors[i], a->width);
    if (a->y.narrow && status == dnnl_success)
        narrow_block(a, rows, y, (uint16_t *)data->y + to);
    return status;
}

int sy_attention_run(const struct sy_attention *a, const struct sy_attention_data *data)
{
    int64_t size = block_rows(a), lacks = short_rows(a),
            blocks = (lacks + a->rows + size - 1) / size, n = count_heads(a) * blocks;
    int failed = 0;
#pragma omp parallel for schedule(dynamic) reduction(|         \
                                                     : failed) \
    num_threads(a->n_threads) if (n > 1 || has_own_columns(a))
    for (int64_t i = 0; i < n; i++) {
        int64_t first = SY_MAX(i % blocks * size - lacks, 0),
                end = SY_MIN((i % blocks + 1) * size - lacks, a->rows);
        float *own = data->scratch + omp_get_thread_num() * floats_of_thread(a);
        failed |= one_block(a, data, i / blocks, first, end - first, own) != dnnl_success;
    }
    return failed ? sy_error_set(SY_ENOMEM_HOST, "no memory for a product of matrices") : SY_OK;
}
