/* Small dilated convolutions of 8 bits: oneDNN's loops for AMX that execute CPUID in each call are not taken, whichever layout the package's weights
 * have, and results are those of the graph as it is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/base/cpu_class.h"
#include "workers/host/program/program_internal.h"

enum { CHANNELS = 32, TAPS = 3, N_WEIGHTS = CHANNELS * CHANNELS * TAPS };

static uint64_t seed;

static int scalar(struct sy_graph *g, enum sy_dtype dtype, double value)
{
    const int64_t one[] = {1}, whole[] = {(int64_t)value};
    int t = dtype == SY_DTYPE_F32 ? gb_constant(g, "scale", 1, one, &seed, value, value)
                                  : gb_constant_of(g, dtype, 1, one, whole);
    g->tensors[t].shape.rank = 0;
    return t;
}

/* A signal of `length` as an image of one row: QLinearConv with a window of three, four apart. */
static struct sy_graph *dilated(int64_t length)
{
    static const int64_t window[] = {1, TAPS}, apart[] = {1, 4}, pads[] = {0, 4, 0, 4};
    const int64_t image[] = {1, CHANNELS, 1, length}, weights[] = {CHANNELS, CHANNELS, 1, TAPS};
    int64_t values[N_WEIGHTS];
    for (int i = 0; i < N_WEIGHTS; i++)
        values[i] = rig_int(&seed, -127, 127);
    struct sy_graph *g = gb_new("a small dilated convolution");
    int x = gb_input_of(g, SY_DTYPE_U8, 4, image);
    const int inputs[] = {x,
                          scalar(g, SY_DTYPE_F32, 0.02),
                          scalar(g, SY_DTYPE_U8, 0),
                          gb_constant_of(g, SY_DTYPE_I8, 4, weights, values),
                          scalar(g, SY_DTYPE_F32, 0.01),
                          scalar(g, SY_DTYPE_I8, 0),
                          scalar(g, SY_DTYPE_F32, 2),
                          scalar(g, SY_DTYPE_U8, 100)};
    int y = gb_node(g, SY_OP_QLINEAR_CONV, 8, inputs, 4, image);
    gb_type(g, y, SY_DTYPE_U8);
    gb_ints(g, "kernel_shape", 2, window);
    gb_ints(g, "dilations", 2, apart);
    gb_ints(g, "pads", 4, pads);
    gb_output(g, y);
    return g;
}

static bool has_slow_step(const struct sy_program *p, int *convolutions)
{
    bool slow = false;
    for (int i = 0; i < p->n_steps; i++) {
        const_dnnl_primitive_desc_t pd;
        const char *name = "";
        if (!p->steps[i].primitive ||
            dnnl_primitive_get_primitive_desc(p->steps[i].primitive, &pd) != dnnl_success)
            continue;
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
        *convolutions += strstr(name, "avx512_core") != NULL;
        slow = slow || (strncmp(name, "jit", 3) == 0 && strstr(name, "amx"));
    }
    return slow;
}

/* Runs `rig` at batch 1. in: taken where it is empty. */
static struct sy_program *run(struct engine_rig *rig, struct rig_tensors *in,
                              struct rig_tensors *out)
{
    struct sy_program *p = rig_program(rig, 1);
    if (!in->data) {
        rig_take(rig, rig->graph->inputs, 1, 1, 0, in);
        for (uint64_t k = 0; k < in->bytes[0]; k++)
            ((uint8_t *)in->data[0])[k] = (uint8_t)rig_int(&seed, 0, 255);
    }
    rig_take(rig, rig->graph->outputs, 1, 1, 0, out);
    assert_int_equal(rig_run(rig, p, in, out, 0xff, NULL), SY_OK);
    return p;
}

static void check(int64_t length)
{
    struct sy_graph *g = dilated(length);
    struct engine_rig written, fused;
    struct rig_tensors in = {0}, want, got;
    int convolutions = 0;
    assert_int_equal(rig_open(&written, g, false), SY_OK);
    rig_engine.ops->program_destroy(run(&written, &in, &want));
    assert_int_equal(rig_open(&fused, g, true), SY_OK);
    struct sy_program *p = run(&fused, &in, &got);
    assert_false(has_slow_step(p, &convolutions));
    assert_int_equal(convolutions, 1);
    for (uint64_t k = 0; k < want.bytes[0]; k++)
        assert_true(abs(((uint8_t *)want.data[0])[k] - ((uint8_t *)got.data[0])[k]) <= 1);
    rig_engine.ops->program_destroy(p);
    rig_drop(&in);
    rig_drop(&want);
    rig_drop(&got);
    rig_close(&written);
    rig_close(&fused);
    sy_graph_free(g);
}

/* At 400 the weights are packed for eight images, which are many products, and are moved for one. */
static void test_no_cpuid(void **state)
{
    (void)state;
    if (!sy_dnnl_has_int8_tiles())
        skip(); /* a CPU without AMX */
    check(64);
    check(400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_cpuid)};
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
