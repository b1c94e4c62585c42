/* Transposed convolutions and regions, against their definitions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/reference/kernel.h"

static uint64_t seed;

struct spread {
    int spatial;
    int64_t in, out, group; /* channels */
    int64_t size[3], kernel[3], strides[3], dilations[3], pads[6], rest[3];
    bool bias, computed;
};

/* What is left of the result once the pads are cut off: at least one. */
static bool result_of(const struct spread *s, int64_t *to)
{
    bool fits = true;
    for (int d = 0; d < s->spatial; d++) {
        to[d] = (s->size[d] - 1) * s->strides[d] + (s->kernel[d] - 1) * s->dilations[d] + 1 +
                s->rest[d] - s->pads[d] - s->pads[s->spatial + d];
        fits = fits && to[d] > 0;
    }
    return fits;
}

static void check_spread(const struct spread *s)
{
    static char name[320];
    int64_t dims[5] = {1, s->in}, to[5] = {1, s->out}, weights[5] = {s->in, s->out / s->group};
    int n = 2 + s->spatial;
    int used = snprintf(name, sizeof name, "deconv %lld->%lld groups %lld%s%s", (long long)s->in,
                        (long long)s->out, (long long)s->group, s->bias ? " bias" : "",
                        s->computed ? " computed" : "");
    for (int d = 0; d < s->spatial; d++)
        used += snprintf(name + used, sizeof name - (size_t)used,
                         ", %lld by %lld stride %lld dilation %lld pads %lld %lld rest %lld",
                         (long long)s->size[d], (long long)s->kernel[d], (long long)s->strides[d],
                         (long long)s->dilations[d], (long long)s->pads[d],
                         (long long)s->pads[s->spatial + d], (long long)s->rest[d]);
    assert_true(result_of(s, to + 2));
    for (int d = 0; d < s->spatial; d++) {
        dims[2 + d] = s->size[d];
        weights[2 + d] = s->kernel[d];
    }
    struct sy_graph *g = gb_new(name);
    int inputs[3] = {gb_input(g, n, dims), gb_constant(g, "w", n, weights, &seed, -0.5, 0.5), -1};
    if (s->computed)
        inputs[1] = gb_doubled(g, inputs[1]);
    if (s->bias)
        inputs[2] = gb_constant(g, "b", 1, &s->out, &seed, -0.5, 0.5);
    gb_output(g, gb_node(g, SY_OP_CONV_TRANSPOSE, s->bias ? 3 : 2, inputs, n, to));
    gb_int(g, "group", s->group);
    gb_ints(g, "strides", s->spatial, s->strides);
    gb_ints(g, "dilations", s->spatial, s->dilations);
    gb_ints(g, "pads", 2 * s->spatial, s->pads);
    rig_check(&(struct engine_case){.graph = g}, &seed);
}

static struct spread random_spread(int spatial)
{
    struct spread s;
    int64_t to[3];
    do {
        s = (struct spread){.spatial = spatial, .group = 1};
        for (int d = 0; d < spatial; d++) {
            s.size[d] = rig_int(&seed, 1, spatial == 3 ? 4 : 8);
            s.kernel[d] = rig_int(&seed, 1, spatial == 3 ? 3 : 4);
            s.strides[d] = rig_int(&seed, 1, 3);
            s.dilations[d] = rig_int(&seed, 1, 2);
            s.pads[d] = rig_int(&seed, 0, 2);
            s.pads[spatial + d] = rig_int(&seed, 0, 2);
            s.rest[d] = rig_int(&seed, 0, SY_MAX(s.strides[d], s.dilations[d]) - 1);
        }
    } while (!result_of(&s, to));
    return s;
}

/* One to three dimensions, groups, dilation, uneven padding, output_padding, weights that are computed. */
static void test_transposed_convolutions(void **state)
{
    (void)state;
    static const int64_t counts[][3] = {/* groups, channels in and out of each */
                                        {1, 3, 5},  {1, 16, 16}, {1, 17, 1}, {1, 8, 8},
                                        {2, 4, 6},  {3, 16, 16}, {8, 1, 1},  {4, 1, 2},
                                        {1, 32, 7}, {5, 2, 1}};
    for (int i = 0; i < 60; i++) {
        struct spread s = random_spread(1 + i % 3);
        const int64_t *count = counts[i % 10];
        s.group = count[0];
        s.in = count[0] * count[1];
        s.out = count[0] * count[2];
        s.bias = i & 1;
        s.computed = i % 7 == 3;
        check_spread(&s);
    }
}

/* Images so wide that a piece is some of a row's pixels; a window so long that no columns are made (op_columns.c). */
static void test_wide_transposed_convolutions(void **state)
{
    (void)state;
    static const struct spread cases[] = {
        {2, 2, 64, 1, {2, 260}, {8, 2}, {2, 1}, {1, 1}, {0}, {0}, true, false},
        {2, 3, 64, 1, {2, 180}, {8, 3}, {2, 2}, {1, 1}, {2, 5, 3, 4}, {1, 1}, false, false},
        {2, 1, 128, 1, {1, 4200}, {2, 2}, {3, 3}, {1, 1}, {0, 1, 0, 1}, {0}, true, false},
        {1, 2, 8, 1, {5}, {600}, {2}, {1}, {3, 0}, {1}, true, false},
    };
    /* other engines have no columns, and on the CPU a GPU's kernel takes minutes for these */
    if (strcmp(rig_engine.ops->name, "host") != 0)
        skip();
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++)
        check_spread(&cases[i]);
}

static void test_pads_wider_than_the_window(void **state)
{
    (void)state;
    check_spread(&(const struct spread){
        2, 5, 7, 1, {6, 9}, {3, 2}, {2, 3}, {1, 1}, {4, 5, 3, 6}, {0}, true, false});
}

/* Regions inside, across the edge, outside; with samples of their own number; so many samples that none are kept. */
static void check_pooled(int64_t channels, int64_t n, int64_t ratio, const char *mode, double size,
                         double scale, const char *pooled)
{
    struct sy_graph *g = gb_new(mode);
    int64_t image[4] = {1, channels, 9, 11}, list[2] = {n, 4};
    int x = gb_input(g, 4, image), places = gb_constant(g, "places", 2, list, &seed, -3, 6);
    float *corners = g->tensors[places].data;
    for (int64_t i = 0; i < n; i++)
        for (int k = 2; k < 4; k++)
            corners[i * 4 + k] = corners[i * 4 + k - 2] + (float)gb_uniform(&seed, 0.1, size);
    int64_t *images = calloc((size_t)n, sizeof *images);
    int which;
    struct sy_shape shape = {.rank = 1, .dims = {{n, 0}}},
                    out = {4, {{n, 0}, {channels, 0}, {3, 0}, {2, 0}}};
    assert_int_equal(sy_graph_add_constant(g, "images", SY_DTYPE_I64, &shape, images,
                                           (size_t)n * sizeof *images, &which),
                     SY_OK);
    int y =
        gb_node(g, SY_OP_ROI_ALIGN, INPUTS(x, places, which), 4, (int64_t[]){1, channels, 3, 2});
    g->tensors[y].shape = out;
    gb_int(g, "sampling_ratio", ratio);
    gb_float(g, "spatial_scale", (float)scale);
    gb_string(g, "coordinate_transformation_mode", mode);
    gb_string(g, "mode", pooled);
    gb_output(g, y);
    rig_check(&(struct engine_case){.graph = g}, &seed);
}

static void check_regions(int64_t channels, int64_t n, int64_t ratio, const char *mode, double size,
                          double scale)
{
    check_pooled(channels, n, ratio, mode, size, scale, "avg");
}

static void test_regions(void **state)
{
    (void)state;
    check_regions(5, 7, 2, "half_pixel", 8, 1);
    check_regions(5, 7, 2, "output_half_pixel", 8, 0.5);
    check_regions(5, 5, 0, "half_pixel", 12, 0.75);
    check_regions(5, 5, 0, "output_half_pixel", 12, 1);
    check_regions(5, 1, 180, "half_pixel", 9, 1);
    check_regions(5, 700, 1, "output_half_pixel", 5, 1); /* in parallel */
    check_regions(16, 7, 2, "half_pixel", 8, 1);         /* channels side by side */
    check_regions(37, 9, 0, "output_half_pixel", 12, 1);
    check_regions(300, 5, 3, "half_pixel", 8, 0.5);
    check_regions(17, 2, 180, "half_pixel", 9, 1);
    check_pooled(5, 7, 2, "half_pixel", 8, 1, "max");
    check_pooled(20, 40, 0, "output_half_pixel", 12, 0.5, "max");
    check_pooled(5, 1, 180, "half_pixel", 9, 1, "max");
}

/* Coordinates that no pixel is near to. */
static void spoil(struct sy_graph *g, int grid, int64_t n, int64_t first)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f};
    float *to = g->tensors[grid].data;
    for (int64_t i = first; i < n; i += 20)
        to[i] = special[(i - first) / 20 % (int64_t)SY_ARRAY_LEN(special)];
}

/* One or two images; points inside and far outside, more of them than are taken at once. */
static void test_grid_sample(void **state)
{
    (void)state;
    static const char *const modes[] = {"bilinear", "nearest", "bicubic"}, *const paddings[] = {
                                                                               "zeros", "border",
                                                                               "reflection"};
    for (int i = 0; i < 72; i++) {
        int rank = 4 + i % 2;
        int64_t image[5] = {1 + i / 36, rig_int(&seed, 1, 5), rig_int(&seed, 1, 6),
                            rig_int(&seed, 1, 7), rig_int(&seed, 1, 4)},
                points[5] = {image[0], rig_int(&seed, 1, 20), rig_int(&seed, 1, 20), rank - 2},
                dims[5] = {image[0], image[1], points[1], points[2]};
        if (rank == 5) {
            points[3] = dims[4] = rig_int(&seed, 1, 3);
            points[4] = 3;
        }
        struct sy_graph *g = gb_new("GridSample");
        int x = gb_input(g, rank, image),
            grid = gb_constant(g, "grid", rank, points, &seed, -2.5, 2.5);
        spoil(g, grid, points[0] * points[1] * points[2] * points[3] * (rank == 5 ? 3 : 1),
              rig_int(&seed, 0, 19));
        gb_fixed(g, x);
        int y = gb_node(g, SY_OP_GRID_SAMPLE, INPUTS(x, grid), rank, dims);
        gb_fixed(g, y);
        gb_string(g, "mode", modes[i / 2 % 3]);
        gb_string(g, "padding_mode", paddings[i / 6 % 3]);
        gb_int(g, "align_corners", i / 18 % 2);
        gb_output(g, y);
        rig_check(&(struct engine_case){.graph = g}, &seed);
    }
}

static void set_text(struct sy_graph *g, const char *name, const char *text)
{
    struct sy_attr *attr;
    assert_int_equal(sy_node_attr_slot(&g->nodes[g->n_nodes - 1], name, &attr), SY_OK);
    attr->kind = SY_ATTR_STRING;
    attr->s = strdup(text);
}

static int add_resize(struct sy_graph *g, int x, int scales, const char *mode, const char *place,
                      const int64_t *dims)
{
    int y = gb_node(g, SY_OP_RESIZE, INPUTS(x, -1, scales), 4, dims);
    set_text(g, "mode", mode);
    set_text(g, "coordinate_transformation_mode", place);
    return y;
}

/* conv -> resize, and conv -> a view that is row-major -> resize: the same, sums but for their order. */
static void check_resize(const char *mode, const char *place, const int64_t *dims, int64_t channels,
                         int64_t from)
{
    struct sy_graph *g = gb_new("resize");
    const int64_t in[] = {1, 32, 6, 5}, mid[] = {1, from, 6, 5}, w[] = {from, 32, 1, 1};
    int64_t out[] = {1, channels, dims[0], dims[1]};
    float factors[] = {1, (float)channels / (float)from, (float)dims[0] / 6, (float)dims[1] / 5};
    struct sy_shape shape = {1, {{4, 0}}}, four = {1, {{4, 0}}};
    int64_t same[] = {0, from, 6, 5};
    float *copy = malloc(sizeof factors);
    int64_t *sizes = malloc(sizeof same);
    int scales, view;
    assert_true(copy && sizes);
    memcpy(copy, factors, sizeof factors);
    memcpy(sizes, same, sizeof same);
    assert_int_equal(
        sy_graph_add_constant(g, "scales", SY_DTYPE_F32, &shape, copy, sizeof factors, &scales),
        SY_OK);
    assert_int_equal(
        sy_graph_add_constant(g, "sizes", SY_DTYPE_I64, &four, sizes, sizeof same, &view), SY_OK);
    int x = gb_input(g, 4, in), weights = gb_constant(g, "w", 4, w, &seed, -1, 1);
    int y = gb_node(g, SY_OP_CONV, INPUTS(x, weights), 4, mid);
    int plain = gb_node(g, SY_OP_RESHAPE, INPUTS(y, view), 4, mid);
    gb_output(g, add_resize(g, y, scales, mode, place, out));
    gb_output(g, add_resize(g, plain, scales, mode, place, out));

    struct engine_rig rig;
    struct engine_case c = {.graph = g};
    struct rig_tensors inputs, outputs;
    assert_int_equal(rig_open(&rig, g, false), SY_OK);
    struct sy_program *program = rig_program(&rig, 2);
    rig_take(&rig, g->inputs, g->n_inputs, 2, 0, &inputs);
    rig_take(&rig, g->outputs, g->n_outputs, 2, 0xff, &outputs);
    rig_fill(&rig, &c, &inputs, &seed);
    assert_int_equal(rig_run(&rig, program, &inputs, &outputs, 0xff, NULL), SY_OK);
    assert_int_equal(outputs.bytes[0], outputs.bytes[1]);
    if (strcmp(mode, "nearest") == 0)
        assert_memory_equal(outputs.data[0], outputs.data[1], outputs.bytes[0]);
    for (size_t i = 0; i < outputs.bytes[0] / sizeof(float); i++)
        assert_float_equal(((float *)outputs.data[0])[i], ((float *)outputs.data[1])[i], 1e-5);
    rig_drop(&inputs);
    rig_drop(&outputs);
    rig_engine.ops->program_destroy(program);
    rig_close(&rig);
    sy_graph_free(g);
}

static void test_resize_channels_last(void **state)
{
    (void)state;
    check_resize("nearest", "asymmetric", (int64_t[]){12, 10}, 32, 32);
    check_resize("nearest", "half_pixel", (int64_t[]){9, 4}, 32, 32);
    check_resize("linear", "half_pixel", (int64_t[]){13, 10}, 32, 32);
    check_resize("linear", "align_corners", (int64_t[]){3, 60}, 32, 32);
    check_resize("cubic", "pytorch_half_pixel", (int64_t[]){12, 12}, 32, 32);
    check_resize("linear", "half_pixel", (int64_t[]){12, 10}, 48, 32); /* channels, too */
    check_resize("nearest", "half_pixel", (int64_t[]){6, 5}, 16, 32);
    check_resize("linear", "half_pixel", (int64_t[]){24, 20}, 21, 21);
    check_resize("linear", "align_corners", (int64_t[]){4, 13}, 13, 13);
    check_resize("nearest", "asymmetric", (int64_t[]){12, 7}, 5, 5);
}

/* The corners that align are the result's own, also where its size was rounded: PyTorch's interpolate(x, scale_factor=(0.8, 1.7), mode="bilinear",
 * align_corners=True) of i * i % 7. */
static void test_resize_rounded_corners(void **state)
{
    static const float expected[] = {0.0000f, 0.5714f, 1.4286f, 3.1429f, 3.4286f, 2.2857f,
                                     2.0000f, 2.0000f, 3.0000f, 2.1429f, 1.5714f, 1.8571f,
                                     1.7143f, 1.1429f, 1.4286f, 2.0000f, 1.0000f, 2.7143f,
                                     3.7143f, 2.5714f, 2.0000f, 2.0000f, 2.8571f, 4.0000f};
    const int64_t in[] = {1, 1, 4, 5}, out[] = {1, 1, 3, 8};
    const float factors[] = {1, 1, 0.8f, 1.7f};
    struct sy_graph *g = gb_new("corners");
    struct sy_shape four = {1, {{4, 0}}};
    float *copy = malloc(sizeof factors);
    int scales;
    (void)state;
    assert_non_null(copy);
    memcpy(copy, factors, sizeof factors);
    assert_int_equal(
        sy_graph_add_constant(g, "scales", SY_DTYPE_F32, &four, copy, sizeof factors, &scales),
        SY_OK);
    gb_output(g, add_resize(g, gb_input(g, 4, in), scales, "linear", "align_corners", out));

    struct engine_rig rig;
    struct rig_tensors inputs, outputs;
    assert_int_equal(rig_open(&rig, g, false), SY_OK);
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, 1, 1, 0, &inputs);
    rig_take(&rig, g->outputs, 1, 1, 0xff, &outputs);
    for (int i = 0; i < 20; i++)
        ((float *)inputs.data[0])[i] = (float)(i * i % 7);
    assert_int_equal(rig_run(&rig, program, &inputs, &outputs, 0xff, NULL), SY_OK);
    for (size_t i = 0; i < SY_ARRAY_LEN(expected); i++)
        assert_float_equal(((float *)outputs.data[0])[i], expected[i], 1e-4);
    rig_drop(&inputs);
    rig_drop(&outputs);
    rig_engine.ops->program_destroy(program);
    rig_close(&rig);
    sy_graph_free(g);
}

/* ---- rows scattered --------------------------------------------------------------------------------------- */

enum { SIZE = 9, ROWS = 40, COLUMNS = 3000 };

static struct sy_array array_of(enum sy_dtype dtype, int64_t rows, void *data)
{
    return (struct sy_array){
        .dtype = dtype, .rank = 2, .dims = {rows, COLUMNS}, .n = rows * COLUMNS, .data = data};
}

/* Some rows have one index, some one each: what comes last stays, whichever thread has its column. */
static void test_scattered_columns(void **state)
{
    static float x[SIZE * COLUMNS], y[SIZE * COLUMNS], want[SIZE * COLUMNS],
        updates[ROWS * COLUMNS];
    static int64_t indices[ROWS * COLUMNS];
    struct sy_graph *g = gb_new("scatter");
    const int64_t dims[] = {SIZE, COLUMNS};
    int in = gb_input(g, 2, dims);
    (void)state;
    gb_node(g, SY_OP_SCATTER_ELEMENTS, INPUTS(in, in, in), 2, dims);
    struct sy_call call = {.node = &g->nodes[g->n_nodes - 1], .n_in = 3, .n_out = 1};
    call.in[0] = array_of(SY_DTYPE_F32, SIZE, x);
    call.in[1] = array_of(SY_DTYPE_I64, ROWS, indices);
    call.in[2] = array_of(SY_DTYPE_F32, ROWS, updates);
    call.out[0] = array_of(SY_DTYPE_F32, SIZE, y);
    for (int64_t i = 0; i < SIZE * COLUMNS; i++)
        x[i] = want[i] = (float)i;
    for (int64_t r = 0; r < ROWS; r++) {
        int64_t row = rig_int(&seed, -SIZE, SIZE - 1);
        for (int64_t c = 0; c < COLUMNS; c++) {
            int64_t index = r % 3 ? row : rig_int(&seed, -SIZE, SIZE - 1);
            indices[r * COLUMNS + c] = index;
            updates[r * COLUMNS + c] = -(float)(r * COLUMNS + c);
            want[(index + (index < 0 ? SIZE : 0)) * COLUMNS + c] = updates[r * COLUMNS + c];
        }
    }
    assert_int_equal(sy_kernel_find(SY_OP_SCATTER_ELEMENTS)->run(&call), SY_OK);
    assert_memory_equal(y, want, sizeof y);
    indices[ROWS * COLUMNS - 1] = SIZE;
    assert_int_equal(sy_kernel_find(SY_OP_SCATTER_ELEMENTS)->run(&call), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "index 9"));
    sy_graph_free(g);
}

int main(void)
{
    seed = rig_start();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transposed_convolutions),
                                       cmocka_unit_test(test_wide_transposed_convolutions),
                                       cmocka_unit_test(test_pads_wider_than_the_window),
                                       cmocka_unit_test(test_regions),
                                       cmocka_unit_test(test_resize_channels_last),
                                       cmocka_unit_test(test_resize_rounded_corners),
                                       cmocka_unit_test(test_grid_sample),
                                       cmocka_unit_test(test_scattered_columns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
