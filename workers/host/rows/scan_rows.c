#include "workers/host/rows/scan_rows.h"

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"

#define COLUMNS       256   /* whose sums are carried beside each other, in the first cache */
#define PARALLEL_FROM 16384 /* elements; below it waking the threads costs more than they save */

/* The next row of a block: elements that follow `at`, whose sums are carried on. */
#define SCAN_OF(name, type, total)                                                                 \
    SY_CLONES static void name##_row(bool exclusive, int64_t width, const type *restrict in,       \
                                     total *restrict sums, type *restrict out)                     \
    {                                                                                              \
        for (int64_t k = 0; exclusive && k < width; k++) {                                         \
            out[k] = (type)sums[k];                                                                \
            sums[k] += (total)in[k];                                                               \
        }                                                                                          \
        for (int64_t k = 0; !exclusive && k < width; k++) {                                        \
            sums[k] += (total)in[k];                                                               \
            out[k] = (type)sums[k];                                                                \
        }                                                                                          \
    }                                                                                              \
    static void name##_line(const struct sy_scan *s, const type *in, type *out)                    \
    {                                                                                              \
        total sum = 0, before = 0;                                                                 \
        for (int64_t k = 0, step = s->backward ? -1 : 1, i = s->backward ? s->n - 1 : 0; k < s->n; \
             k++, i += step) {                                                                     \
            before = sum;                                                                          \
            sum += (total)in[i];                                                                   \
            out[i] = (type)(s->exclusive ? before : sum);                                          \
        }                                                                                          \
    }                                                                                              \
    static void name##_columns(const struct sy_scan *s, int64_t width, const type *in, type *out)  \
    {                                                                                              \
        total sums[COLUMNS] = {0};                                                                 \
        for (int64_t k = 0; k < s->n; k++) {                                                       \
            int64_t at = (s->backward ? s->n - 1 - k : k) * s->inner;                              \
            name##_row(s->exclusive, width, in + at, sums, out + at);                              \
        }                                                                                          \
    }                                                                                              \
    void sy_##name(const struct sy_scan *s, const type *in, type *out)                             \
    {                                                                                              \
        int64_t across = (s->inner + COLUMNS - 1) / COLUMNS, blocks = s->outer * across;           \
        bool large = s->n * s->inner * s->outer > PARALLEL_FROM;                                   \
        _Pragma("omp parallel for schedule(static) if (large)") for (int64_t b = 0; b < blocks;    \
                                                                     b++)                          \
        {                                                                                          \
            int64_t column = b % across * COLUMNS, at = b / across * s->n * s->inner + column;     \
            if (s->inner == 1)                                                                     \
                name##_line(s, in + at, out + at);                                                 \
            else                                                                                   \
                name##_columns(s, SY_MIN(s->inner - column, COLUMNS), in + at, out + at);          \
        }                                                                                          \
    }

SCAN_OF(scan_floats, float, double)
SCAN_OF(scan_int32s, int32_t, uint32_t)
SCAN_OF(scan_int64s, int64_t, uint64_t)
