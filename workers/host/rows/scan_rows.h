/* Running sums of arrays that lie [outer, n, inner]. Each by one thread in one order. */
#ifndef SY_WORKERS_HOST_ROWS_SCAN_ROWS_H
#define SY_WORKERS_HOST_ROWS_SCAN_ROWS_H

#include <stdbool.h>
#include <stdint.h>

struct sy_scan {
    int64_t outer, n, inner;
    bool backward;  /* from the last */
    bool exclusive; /* without the element itself */
};

/* In double, each sum rounded once. */
void sy_scan_floats(const struct sy_scan *s, const float *in, float *out);
/* Wrapping around. */
void sy_scan_int32s(const struct sy_scan *s, const int32_t *in, int32_t *out);
void sy_scan_int64s(const struct sy_scan *s, const int64_t *in, int64_t *out);

#endif
