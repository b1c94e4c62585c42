/* Cubic GridSample of volumes: of a volume that is a product of three lines the result is the product of what each line has at the point. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"

enum { IMAGES = 2, POINTS = 40, MOST = 6 };

static uint64_t seed;

/* Keys' kernel with a = -0.75. */
static double weight_at(double distance)
{
    double x = fabs(distance), a = -0.75;
    if (x <= 1)
        return (a + 2) * x * x * x - (a + 3) * x * x + 1;
    return x < 2 ? a * (x * x * x - 5 * x * x + 8 * x - 4) : 0;
}

static double mirrored(double v, double low, double high)
{
    while (high > low && (v < low || v > high))
        v = v < low ? 2 * low - v : 2 * high - v;
    return v;
}

/* PyTorch's rule: the point stays where it is; each of the four places around it is held, mirrored, or 0. And ONNX Runtime's: what is no number, or too
 * large for an integer, is the lower edge. */
static double on_line(const float *line, int64_t n, double v, int padding, bool corners)
{
    double low = corners ? 0 : -0.5, high = (double)n - 1 - low, sum = 0;
    double at = low + (v + 1) / 2 * (high - low);
    at = fabs(at) < 0x1p63 ? at : low;
    for (int64_t k = (int64_t)floor(at) - 1; k <= (int64_t)floor(at) + 2; k++) {
        double place = padding == 2 ? mirrored((double)k, low, high) : (double)k;
        double held = fmin(fmax(place, 0), (double)n - 1);
        if (padding == 0 && held != place)
            continue;
        sum += weight_at(at - (double)k) * (double)line[(int64_t)held];
    }
    return sum;
}

static struct sy_graph *sampler(const int64_t *dims, const char *padding, bool corners)
{
    struct sy_graph *g = gb_new("GridSample");
    int64_t grid_dims[] = {IMAGES, 1, 1, POINTS, 3}, out[] = {IMAGES, 1, 1, 1, POINTS};
    int x = gb_input(g, 5, dims), grid = gb_input(g, 5, grid_dims);
    gb_fixed(g, x);
    gb_fixed(g, grid);
    int y = gb_node(g, SY_OP_GRID_SAMPLE, 2, (const int[]){x, grid}, 5, out);
    gb_fixed(g, y);
    gb_string(g, "mode", "cubic");
    gb_string(g, "padding_mode", padding);
    gb_int(g, "align_corners", corners);
    gb_output(g, y);
    return g;
}

static void fill_volume(const int64_t *dims, float lines[3][MOST], float *to)
{
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < MOST; i++)
            lines[d][i] = (float)gb_uniform(&seed, -1, 1);
    for (int64_t i = 0; i < dims[2] * dims[3] * dims[4]; i++)
        to[i] = lines[0][i / dims[4] / dims[3]] * lines[1][i / dims[4] % dims[3]] *
                lines[2][i % dims[4]];
}

static void check(int padding, bool corners)
{
    static const char *const names[] = {"zeros", "border", "reflection"};
    int64_t dims[] = {IMAGES, 1, rig_int(&seed, 2, MOST), rig_int(&seed, 2, MOST),
                      rig_int(&seed, 2, MOST)};
    static const float special[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f};
    struct sy_graph *g = sampler(dims, names[padding], corners);
    struct engine_rig rig;
    struct rig_tensors in, out;
    float lines[IMAGES][3][MOST];
    int64_t plane = dims[2] * dims[3] * dims[4];
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, 2, 1, 0, &in);
    rig_take(&rig, g->outputs, 1, 1, 0xff, &out);
    float *grid = in.data[1];
    for (int i = 0; i < IMAGES; i++)
        fill_volume(dims, lines[i], (float *)in.data[0] + i * plane);
    for (int i = 0; i < IMAGES * POINTS * 3; i++)
        grid[i] = i % 20 ? (float)gb_uniform(&seed, -1.4, 1.4) : special[i / 20 % 5];
    assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, NULL), SY_OK);
    for (int i = 0; i < IMAGES * POINTS; i++) {
        double want = 1, got = (double)((float *)out.data[0])[i];
        for (int d = 0; d < 3; d++)
            want *= on_line(lines[i / POINTS][d], dims[2 + d], (double)grid[3 * i + 2 - d], padding,
                            corners);
        if (!(fabs(want - got) <= 1e-5))
            fail_msg("%s, corners %d, point %d: %g, not %g", names[padding], corners, i, got, want);
    }
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
}

static void test_cubic(void **state)
{
    (void)state;
    for (int round = 0; round < 24; round++)
        check(round % 3, round / 3 % 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cubic)};
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
