/* Regions whose places are rounded to pixels: MaxRoiPool beside whole numbers, a crop whose positions are halves beside ONNX Runtime. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"

enum { ROWS = 9, COLUMNS = 11, CHANNELS = 2, REGIONS = 40, TALL = 3, WIDE = 4 };

static uint64_t seed;

/* Takes the graph. Runs it on `x` (and `more`, if it has another input) and hands over its result. */
static int run(struct sy_graph *g, const float *x, const float *more, float *y)
{
    struct engine_rig rig;
    struct rig_tensors in, out;
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, g->n_inputs, 1, 0, &in);
    rig_take(&rig, g->outputs, 1, 1, 0xff, &out);
    memcpy(in.data[0], x, in.bytes[0]);
    if (more)
        memcpy(in.data[1], more, in.bytes[1]);
    int status = rig_run(&rig, program, &in, &out, 0xff, NULL);
    memcpy(y, out.data[0], out.bytes[0]);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
    return status;
}

static struct sy_graph *pool(float scale)
{
    struct sy_graph *g = gb_new("MaxRoiPool");
    int64_t image[] = {1, CHANNELS, ROWS, COLUMNS}, list[] = {REGIONS, 5},
            dims[] = {REGIONS, CHANNELS, TALL, WIDE};
    int x = gb_input(g, 4, image), regions = gb_input(g, 2, list);
    gb_fixed(g, x);
    gb_fixed(g, regions);
    int y = gb_node(g, SY_OP_MAX_ROI_POOL, INPUTS(x, regions), 4, dims);
    gb_fixed(g, y);
    gb_ints(g, "pooled_shape", 2, (int64_t[]){TALL, WIDE});
    gb_float(g, "spatial_scale", scale);
    gb_output(g, y);
    return g;
}

static int64_t within(int64_t v, int64_t extent)
{
    return v < 0 ? 0 : v > extent ? extent : v;
}

/* Bin i of n over the pixels [first, last], in whole numbers: the place behind its last pixel, 0 if it has none in the image. */
static int64_t end_of(int64_t i, int64_t n, int64_t first, int64_t last, int64_t extent)
{
    int64_t size = last - first + 1 < 1 ? 1 : last - first + 1;
    int64_t from = within(first + i * size / n, extent),
            end = within(first + ((i + 1) * size + n - 1) / n, extent);
    return from < end ? end : 0;
}

/* Pixels grow to the right and downwards, so a bin's largest is its last one. Regions at even places, halved by the scale; some are
 * outside, or end before they begin. */
static void test_max_roi_pool(void **state)
{
    (void)state;
    float x[CHANNELS * ROWS * COLUMNS], regions[REGIONS * 5], y[REGIONS * CHANNELS * TALL * WIDE];
    for (int i = 0; i < CHANNELS * ROWS * COLUMNS; i++)
        x[i] = (float)i - 50;
    for (int i = 0; i < REGIONS * 5; i++)
        regions[i] = i % 5 == 0 ? 0 : (float)(2 * rig_int(&seed, -3, 13));
    assert_int_equal(run(pool(0.5f), x, regions, y), SY_OK);
    for (int64_t i = 0; i < REGIONS * CHANNELS * TALL * WIDE; i++) {
        const float *r = regions + i / (CHANNELS * TALL * WIDE) * 5;
        int64_t c = i / (TALL * WIDE) % CHANNELS,
                bottom = end_of(i / WIDE % TALL, TALL, (int64_t)r[2] / 2, (int64_t)r[4] / 2, ROWS),
                right = end_of(i % WIDE, WIDE, (int64_t)r[1] / 2, (int64_t)r[3] / 2, COLUMNS);
        float want = bottom && right ? x[(c * ROWS + bottom - 1) * COLUMNS + right - 1] : 0;
        if (y[i] != want)
            fail_msg("element %d is %g, not %g", (int)i, (double)y[i], (double)want);
    }
    for (int i = 0; i < CHANNELS * ROWS * COLUMNS; i++)
        x[i] = NAN;
    float before[SY_ARRAY_LEN(y)];
    memcpy(before, y, sizeof y);
    assert_int_equal(run(pool(0.5f), x, regions, y), SY_OK);
    for (size_t i = 0; i < SY_ARRAY_LEN(y);
         i++) /* a bin without pixels is 0, of none but NaN it is that */
        assert_true(isnan(y[i]) || (y[i] == 0 && before[i] == 0));
    regions[5] = 1;
    assert_int_equal(run(pool(1), x, regions, y), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "MaxRoiPool"));
}

/* From 0.3 to 0.9 of six pixels, to nine: 1.5 + i 3/8, which float32 alone takes for halves. */
static void test_crop(void **state)
{
    (void)state;
    static const float want[] = {1, 2, 2, 3, 3, 3, 4, 4, 4};
    float x[6], y[9];
    for (int i = 0; i < 6; i++)
        x[i] = (float)i;
    struct sy_graph *g = gb_new("crop");
    int64_t row[] = {1, 1, 1, 6}, dims[] = {1, 1, 1, 9}, eight[] = {8};
    int in = gb_input(g, 4, row), region = gb_constant(g, "region", 1, eight, &seed, 0, 1);
    gb_fixed(g, in);
    memcpy(g->tensors[region].data, (const float[]){0, 0, 0, 0.3f, 1, 1, 1, 0.9f}, 32);
    int out = gb_node(g, SY_OP_RESIZE, INPUTS(in, region), 4, dims);
    gb_fixed(g, out);
    gb_string(g, "mode", "nearest");
    gb_string(g, "coordinate_transformation_mode", "tf_crop_and_resize");
    gb_output(g, out);
    assert_int_equal(run(g, x, NULL, y), SY_OK);
    assert_memory_equal(y, want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_max_roi_pool),
                                       cmocka_unit_test(test_crop)};
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
