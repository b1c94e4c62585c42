/* Swish behind convolutions with large results: a step of its own, in whichever layout the convolution leaves, and in chains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/rigs/engine_rig.h"
#include "workers/host/operators/conv_chain.h"
#include "workers/host/operators/late_curve.h"
#include "workers/host/products/winograd.h"

static uint64_t seed;

static int swish(struct sy_graph *g, int x, const int64_t *dims)
{
    int gate = gb_node(g, SY_OP_SIGMOID, INPUTS(x), 4, dims);
    return gb_node(g, SY_OP_MUL, INPUTS(x, gate), 4, dims);
}

static int conv(struct sy_graph *g, int x, int64_t from, int64_t to, int64_t kernel, int64_t size)
{
    const int64_t half = kernel / 2, pads[] = {half, half, half, half},
                  kernels[] = {kernel, kernel};
    int w = gb_constant(g, "w", DIMS(to, from, kernel, kernel), &seed, -0.2, 0.2);
    x = gb_node(g, SY_OP_CONV, INPUTS(x, w), DIMS(1, to, size, size));
    gb_ints(g, "kernel_shape", 2, kernels);
    gb_ints(g, "pads", 4, pads);
    return x;
}

static void check(struct sy_graph *g)
{
    struct engine_case c = {.graph = g, .optimize = true};
    rig_check(&c, &seed);
}

/* 40 channels fill no whole blocks of 16; 64 of 3x3 are made Winograd's; two in a row, and a sum behind. */
static void large_results(void **state)
{
    static const int64_t cases[][3] = {{24, 40, 1}, {16, 40, 3}, {64, 64, 3}, {8, 24, 5}};
    const struct sy_winograd_limits before = sy_winograd_limits;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t from = cases[i][0], to = cases[i][1], size = 40, dims[] = {1, to, size, size};
        struct sy_graph *g = gb_new("Swish of a large result");
        sy_winograd_limits.always = from == 64;
        int x = gb_input(g, DIMS(1, from, size, size));
        x = swish(g, conv(g, x, from, to, cases[i][2], size), dims);
        x = swish(g, conv(g, x, to, to, 1, size), dims);
        gb_output(g, x);
        check(g);
    }
    sy_winograd_limits = before;
}

static void in_chains(void **state)
{
    const struct sy_chain_limits before = sy_chain_limits;
    const int64_t size = 40, wide[] = {1, 48, size, size}, narrow[] = {1, 24, size, size};
    struct sy_graph *g = gb_new("Swish in a chain");
    (void)state;
    sy_chain_limits = (struct sy_chain_limits){.macs_a_byte = INT32_MAX,
                                               .macs = INT64_MAX,
                                               .weights_bytes = INT64_MAX,
                                               .buffer_bytes = 64 << 10};
    int x = gb_input(g, 4, narrow);
    x = swish(g, conv(g, x, 24, 48, 1, size), wide);
    x = swish(g, conv(g, x, 48, 48, 3, size), wide);
    gb_output(g, conv(g, x, 48, 24, 1, size));
    check(g);
    sy_chain_limits = before;
}

static void only_where_it_gains(void **state)
{
    struct sy_node node = {.activation = SY_ACT_SWISH, .act_alpha = 1};
    struct sy_curve curve;
    (void)state;
    assert_int_equal(sy_late_curve_is_gain(&node, 1 << 20, &curve), sy_dnnl_has_avx512());
    assert_false(sy_late_curve_is_gain(&node, 100, &curve));
    node.activation = SY_ACT_SIGMOID; /* would write into the padding */
    assert_false(sy_late_curve_is_gain(&node, 1 << 20, &curve));
    node.activation = SY_ACT_NONE;
    assert_false(sy_fused_curve_read(&node, &curve));
}

int main(void)
{
    seed = rig_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_results),
        cmocka_unit_test(in_chains),
        cmocka_unit_test(only_where_it_gains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
