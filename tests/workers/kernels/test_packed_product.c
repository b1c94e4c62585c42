/* Products with packed columns: all numbers of rows and columns around the blocks, in both widths of vectors, against the sum that defines them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/rigs/engine_rig.h"
#include "workers/host/products/packed_product_internal.h"

enum { MOST_ROWS = 19, MOST_COLUMNS = SY_PACKED_COLUMNS, DEPTH = 7, SPARE = 5 };
enum { ROW = MOST_COLUMNS + SPARE };

static uint64_t seed;

static void fill(float *to, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = (float)rig_int(&seed, -50, 50) / 8; /* sums are exact */
}

static void check(sy_packed_panel *panel, bool adds, int m, int n)
{
    static float a[MOST_ROWS * DEPTH], b[DEPTH * MOST_COLUMNS], packed[DEPTH * SY_PACKED_COLUMNS],
        before[MOST_ROWS * ROW], c[MOST_ROWS * ROW];
    fill(a, MOST_ROWS * DEPTH);
    fill(b, DEPTH * n);
    fill(before, MOST_ROWS * ROW);
    for (int i = 0; i < MOST_ROWS * ROW; i++)
        c[i] = before[i];
    sy_packed_make(n, DEPTH, b, n, 1, packed);
    panel(adds, m, n, DEPTH, a, DEPTH, packed, c, ROW);
    for (int r = 0; r < MOST_ROWS; r++)
        for (int j = 0; j < ROW; j++) {
            bool inside = r < m && j < n;
            float want = inside && !adds ? 0 : before[r * ROW + j];
            for (int k = 0; inside && k < DEPTH; k++)
                want += a[r * DEPTH + k] * b[k * n + j];
            if (c[r * ROW + j] != want)
                fail_msg("%d rows of %d columns: row %d, column %d is %g, not %g", m, n, r, j,
                         (double)c[r * ROW + j], (double)want);
        }
}

static void check_all(sy_packed_panel *panel)
{
    for (int m = 1; m <= MOST_ROWS; m++)
        for (int n = 1; n <= MOST_COLUMNS; n++)
            check(panel, (m + n) % 3 == 0, m, n);
}

static void test_vectors_of_8(void **state)
{
    (void)state;
    check_all(sy_packed_panel_8);
}

static void test_vectors_of_16(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx512f"))
        skip();
    check_all(sy_packed_panel_16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_8),
        cmocka_unit_test(test_vectors_of_16),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
