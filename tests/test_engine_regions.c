/* Transposed convolutions and regions, against their definitions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/engine_rig.h"

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

static int computed(struct sy_graph *g, int constant)
{
    struct sy_shape shape = g->tensors[constant].shape;
    int64_t dims[SY_MAX_RANK];
    for (int d = 0; d < shape.rank; d++)
        dims[d] = shape.dims[d].fixed;
    int result = gb_node(g, SY_OP_ADD, 2, (int[]){constant, constant}, shape.rank, dims);
    g->tensors[result].shape = shape;
    return result;
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
        inputs[1] = computed(g, inputs[1]);
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

/* Regions inside, across the edge, outside; with samples of their own number; so many samples that none are kept. */
static void check_regions(int64_t channels, int64_t n, int64_t ratio, const char *mode, double size,
                          double scale)
{
    struct sy_graph *g = gb_new(mode);
    int64_t image[4] = {1, channels, 9, 11}, list[2] = {n, 4};
    struct sy_node *node;
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
    node = &g->nodes[g->n_nodes - 1];
    struct sy_attr *attr;
    assert_int_equal(sy_node_attr_slot(node, "coordinate_transformation_mode", &attr), SY_OK);
    attr->kind = SY_ATTR_STRING;
    attr->s = strdup(mode);
    gb_output(g, y);
    rig_check(&(struct engine_case){.graph = g}, &seed);
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
    check_regions(20, 8, 180, "half_pixel", 9, 1);
}

int main(void)
{
    seed = rig_start();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transposed_convolutions),
                                       cmocka_unit_test(test_regions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
