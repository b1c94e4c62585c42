#include "workers/host/rows/softmax_rows.h"

#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"
#include "workers/host/base/exp_below_zero.h"
#include "workers/host/rows/softmax_rows_16.h"

#define COLUMNS 256 /* computed beside each other: their sums stay in the first cache */
#define ROWS    64  /* that are summed as floats; their sums as doubles */

SY_CLONES static void top_columns(const float *x, int64_t n, int64_t step, int64_t width,
                                  float *top)
{
    for (int64_t k = 0; k < width; k++)
        top[k] = x[k];
    for (int64_t i = 1; i < n; i++)
        for (int64_t k = 0; k < width; k++)
            top[k] = x[i * step + k] > top[k] ? x[i * step + k] : top[k];
}

/* To each of the sums e^(x - top) of n rows, which `out` gets unless it is NULL. */
SY_CLONES static void exp_columns(const float *x, int64_t n, int64_t step, int64_t width,
                                  const float *top, float *out, double *sums)
{
    float some[COLUMNS] = {0}, e[COLUMNS];
    for (int64_t i = 0; i < n; i++) {
        const float *row = x + i * step;
        float *to = out ? out + i * step : e;
#pragma omp simd
        for (int64_t k = 0; k < width; k++) {
            to[k] = sy_exp_below_zero(row[k] - top[k]);
            some[k] += to[k];
        }
    }
    for (int64_t k = 0; k < width; k++)
        sums[k] += (double)some[k];
}

SY_CLONES static void scale_columns(float *x, int64_t n, int64_t step, int64_t width,
                                    const float *rate)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < width; k++)
            x[i * step + k] *= rate[k];
}

SY_CLONES static void shift_columns(const float *x, int64_t n, int64_t step, int64_t width,
                                    const float *top, const float *shift, float *out)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < width; k++)
            out[i * step + k] = x[i * step + k] - top[k] - shift[k];
}

static void softmax_block(bool logarithm, const struct sy_reduce_shape *s, int64_t width,
                          const float *x, float *out)
{
    float top[COLUMNS], rate[COLUMNS];
    double sums[COLUMNS] = {0};
    int64_t step = s->inner;
    top_columns(x, s->reduced, step, width, top);
    for (int64_t i = 0; i < s->reduced; i += ROWS)
        exp_columns(x + i * step, SY_MIN(s->reduced - i, ROWS), step, width, top,
                    logarithm ? NULL : out + i * step, sums);
    for (int64_t k = 0; k < width; k++)
        rate[k] = logarithm ? logf((float)sums[k]) : (float)(1 / sums[k]);
    if (logarithm)
        shift_columns(x, s->reduced, step, width, top, rate, out);
    else
        scale_columns(out, s->reduced, step, width, rate);
}

/* ---- lines that lie together ----------------------------------------------------------------------------- */

#define STRETCH 4096 /* floats that are summed as floats; their sums as doubles */
#define LINES   16   /* that a thread takes at once */

SY_VECTORISED float top_of(const float *x, int64_t n)
{
    float top = x[0];
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

/* The sum of e^(x - top), which `out` gets if the logarithm is not wanted. */
SY_VECTORISED double exp_line(bool logarithm, const float *x, int64_t n, float top, float *out)
{
    double sum = 0;
    for (int64_t from = 0; from < n; from += STRETCH) {
        int64_t end = SY_MIN(from + STRETCH, n);
        float some = 0;
        if (logarithm) {
#pragma omp simd reduction(+ : some)
            for (int64_t i = from; i < end; i++)
                some += sy_exp_below_zero(x[i] - top);
        } else {
#pragma omp simd reduction(+ : some)
            for (int64_t i = from; i < end; i++) {
                float e = sy_exp_below_zero(x[i] - top);
                out[i] = e;
                some += e;
            }
        }
        sum += (double)some;
    }
    return sum;
}

SY_CLONES static void softmax_lines(bool logarithm, int64_t lines, int64_t n, const float *x,
                                    float *out)
{
    for (int64_t line = 0; line < lines; line++, x += n, out += n) {
        float top = top_of(x, n);
        double sum = exp_line(logarithm, x, n, top, out);
        float shift = logarithm ? logf((float)sum) : 0, rate = (float)(1 / sum);
        if (logarithm) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++)
                out[i] = x[i] - top - shift;
        } else {
#pragma omp simd
            for (int64_t i = 0; i < n; i++)
                out[i] *= rate;
        }
    }
}

/* ---- short lines ------------------------------------------------------------------------------------------ */

/* Numbers of a line: so few are computed beside those of other lines. With vectors of 16: up to 12. */
#define SHORT    16
#define SHORT_16 12

/* LINES lines beside each other, number after number; fewer are filled up with the last one. */
SY_VECTORISED void turn_in(int64_t lines, int64_t n, const float *x, float (*t)[LINES])
{
    for (int64_t line = 0; line < LINES; line++) {
        const float *from = x + SY_MIN(line, lines - 1) * n;
        for (int64_t i = 0; i < n; i++)
            t[i][line] = from[i];
    }
}

SY_VECTORISED void turn_out(int64_t lines, int64_t n, float (*t)[LINES], float *out)
{
    for (int64_t line = 0; line < lines; line++, out += n)
        for (int64_t i = 0; i < n; i++)
            out[i] = t[i][line];
}

/* As softmax_lines, for up to LINES lines of up to SHORT numbers: a line's bits are those that it has in any other place (which
 * NaN it is aside). */
SY_CLONES static void softmax_short(bool logarithm, int64_t lines, int64_t n, const float *x,
                                    float *out)
{
    float t[SHORT][LINES], top[LINES], sum[LINES] = {0}, rate[LINES];
    turn_in(lines, n, x, t);
    memcpy(top, t[0], sizeof top);
    for (int64_t i = 1; i < n; i++)
        for (int line = 0; line < LINES; line++)
            top[line] = t[i][line] > top[line] ? t[i][line] : top[line];
    for (int64_t i = 0; i < n; i++)
#pragma omp simd
        for (int line = 0; line < LINES; line++) {
            float e = sy_exp_below_zero(t[i][line] - top[line]);
            sum[line] += e;
            t[i][line] = logarithm ? t[i][line] - top[line] : e;
        }
    for (int line = 0; line < LINES; line++)
        rate[line] = logarithm ? logf(sum[line]) : (float)(1 / (double)sum[line]);
    for (int64_t i = 0; i < n; i++)
        for (int line = 0; line < LINES; line++)
            t[i][line] = logarithm ? t[i][line] - rate[line] : t[i][line] * rate[line];
    turn_out(lines, n, t, out);
}

#define PARALLEL_FROM 16384 /* elements; below it waking the threads costs more than they save */

typedef void lines_fn(bool logarithm, int64_t lines, int64_t n, const float *x, float *out);

static lines_fn *lines_of(int64_t n)
{
    if (n > SHORT_16 && __builtin_cpu_supports("avx512f"))
        return sy_softmax_lines_16;
    return n <= SHORT ? softmax_short : softmax_lines;
}

void sy_softmax_rows(bool logarithm, const struct sy_reduce_shape *s, const float *in, float *out)
{
    bool large = s->outer * s->reduced * s->inner > PARALLEL_FROM;
    int64_t across = (s->inner + COLUMNS - 1) / COLUMNS;
    if (s->inner == 1) {
        lines_fn *some_lines = lines_of(s->reduced);
#pragma omp parallel for schedule(static) if (large)
        for (int64_t k = 0; k < s->outer; k += LINES)
            some_lines(logarithm, SY_MIN(s->outer - k, LINES), s->reduced, in + k * s->reduced,
                       out + k * s->reduced);
        return;
    }
#pragma omp parallel for schedule(static) if (large)
    for (int64_t k = 0; k < s->outer * across; k++) {
        int64_t column = k % across * COLUMNS, at = k / across * s->reduced * s->inner + column;
        softmax_block(logarithm, s, SY_MIN(s->inner - column, COLUMNS), in + at, out + at);
    }
}

/* ---- norms ----------------------------------------------------------------------------------------------- */

SY_CLONES static void norm_columns(bool first, const float *x, int64_t n, int64_t step,
                                   int64_t width, double *restrict sums)
{
    for (int64_t i = 0; i < n; i++, x += step) {
        for (int64_t k = 0; first && k < width; k++)
            sums[k] += fabs((double)x[k]);
        for (int64_t k = 0; !first && k < width; k++)
            sums[k] += (double)x[k] * (double)x[k];
    }
}

SY_CLONES static void divide_columns(const float *x, int64_t n, int64_t step, int64_t width,
                                     const double *restrict rates, float *out)
{
    for (int64_t i = 0; i < n; i++)
#pragma omp simd
        for (int64_t k = 0; k < width; k++)
            out[i * step + k] = (float)((double)x[i * step + k] * rates[k]);
}

static double norm_rate(bool first, double sum)
{
    return sum == 0 ? 0 : 1 / (first ? sum : sqrt(sum));
}

SY_CLONES static void norm_line(bool first, const float *x, int64_t n, float *out)
{
    double sum = 0;
    if (first) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++)
            sum += fabs((double)x[i]);
    } else {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++)
            sum += (double)x[i] * (double)x[i];
    }
    double rate = norm_rate(first, sum);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)((double)x[i] * rate);
}

void sy_lp_norm_rows(int64_t p, const struct sy_reduce_shape *s, const float *in, float *out)
{
    int64_t across = (s->inner + COLUMNS - 1) / COLUMNS;
    bool large = s->outer * s->reduced * s->inner > PARALLEL_FROM;
#pragma omp parallel for schedule(static) if (large)
    for (int64_t k = 0; k < s->outer * across; k++) {
        int64_t column = k % across * COLUMNS, width = SY_MIN(s->inner - column, COLUMNS),
                at = k / across * s->reduced * s->inner + column;
        double rates[COLUMNS] = {0};
        if (s->inner == 1) {
            norm_line(p == 1, in + at, s->reduced, out + at);
            continue;
        }
        norm_columns(p == 1, in + at, s->reduced, s->inner, width, rates);
        for (int64_t i = 0; i < width; i++)
            rates[i] = norm_rate(p == 1, rates[i]);
        divide_columns(in + at, s->reduced, s->inner, width, rates, out + at);
    }
}
