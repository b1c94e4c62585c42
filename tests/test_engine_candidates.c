/* What a library may compute in the place of an engine's own kernels, while the engine measures which is the faster: pools, in all the ways
 * that a library has, and in some that it has not. On a GPU, SY_CUDA_PREFER_CUDNN=1 takes cuDNN wherever its results agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine_rig.h"

#ifdef SY_SANITIZED
#define N_POOLS 24
#else
#define N_POOLS 96
#endif

static uint64_t seed;

static void tune(bool on)
{
    if (rig_engine.ops->tune)
        rig_engine.ops->tune(on);
}

/* ---- pools -------------------------------------------------------------------------------------------- */

struct pool {
    enum sy_op op;
    int spatial;
    int64_t channels, in[3], out[3], kernel[3], strides[3], pads[6];
    bool ceil_mode, count_padding;
};

/* The last window of a ceil_mode begins inside the input or the padding in front (ONNX, MaxPool). */
static int64_t outputs(const struct pool *p, int d)
{
    int64_t room = p->in[d] + p->pads[d] + p->pads[p->spatial + d] - p->kernel[d],
            s = p->strides[d];
    int64_t n = (room + (p->ceil_mode ? s - 1 : 0)) / s + 1;
    return (n - 1) * s >= p->in[d] + p->pads[d] ? n - 1 : n;
}

static struct pool random_pool(int i)
{
    struct pool p = {.op = i & 1 ? SY_OP_AVERAGE_POOL : SY_OP_MAX_POOL,
                     .spatial = i % 8 < 2   ? 1
                                : i % 8 < 4 ? 3
                                            : 2,
                     .channels = rig_int(&seed, 1, 20),
                     .ceil_mode = i % 5 == 4};
    p.count_padding = p.op == SY_OP_AVERAGE_POOL && !p.ceil_mode && i % 4 == 1;
    for (int d = 0; d < p.spatial; d++) {
        p.kernel[d] = rig_int(&seed, 1, 4);
        p.in[d] = rig_int(&seed, p.kernel[d], p.spatial == 3 ? 6 : 11);
        p.strides[d] = rig_int(&seed, 1, 3);
        p.pads[d] = rig_int(&seed, 0, p.kernel[d] - 1);
        p.pads[p.spatial + d] = i % 6 == 5 ? rig_int(&seed, 0, p.kernel[d] - 1) : p.pads[d];
        p.out[d] = outputs(&p, d);
    }
    return p;
}

static int dims_of(const struct pool *p, const int64_t *sizes, int64_t *out)
{
    out[0] = 1;
    out[1] = p->channels;
    memcpy(out + 2, sizes, (size_t)p->spatial * sizeof *sizes);
    return 2 + p->spatial;
}

/* Behind a convolution of one element, whose result is channels last, or at the input. */
static struct sy_graph *pool_graph(const struct pool *p, bool behind_conv)
{
    const int64_t ones[] = {1, 1, 1}, weights[] = {p->channels, p->channels, 1, 1, 1};
    int64_t dims[5];
    struct sy_graph *g = gb_new("pool");
    int n = dims_of(p, p->in, dims), x = gb_input(g, n, dims);
    if (behind_conv) {
        int w = gb_constant(g, "w", n, weights, &seed, -1, 1);
        x = gb_node(g, SY_OP_CONV, INPUTS(x, w), n, dims);
        gb_ints(g, "kernel_shape", p->spatial, ones);
    }
    int y = gb_node(g, p->op, 1, &x, dims_of(p, p->out, dims), dims);
    if (p->op == SY_OP_MAX_POOL || p->op == SY_OP_AVERAGE_POOL) {
        gb_ints(g, "kernel_shape", p->spatial, p->kernel);
        gb_ints(g, "strides", p->spatial, p->strides);
        gb_ints(g, "pads", 2 * p->spatial, p->pads);
        gb_int(g, "ceil_mode", p->ceil_mode);
    }
    if (p->op == SY_OP_AVERAGE_POOL)
        gb_int(g, "count_include_pad", p->count_padding);
    gb_output(g, y);
    return g;
}

static void test_random_pools(void **state)
{
    (void)state;
    for (int i = 0; i < N_POOLS; i++) {
        struct pool p = random_pool(i);
        struct engine_case c = {.graph = pool_graph(&p, i % 3 > 0)};
        rig_check(&c, &seed);
    }
}

static void test_global_pools(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct pool p = {.op = i & 1 ? SY_OP_GLOBAL_AVERAGE_POOL : SY_OP_GLOBAL_MAX_POOL,
                         .spatial = 1 + i % 3,
                         .channels = rig_int(&seed, 1, 33),
                         .out = {1, 1, 1}};
        for (int d = 0; d < p.spatial; d++)
            p.in[d] = rig_int(&seed, 1, 7);
        struct engine_case c = {.graph = pool_graph(&p, i >= 6)};
        rig_check(&c, &seed);
    }
}

/* How often the library was taken, as the engine's text has it: way 1 of each line. */
static int print_choices(void **state)
{
    char *text = NULL;
    int n = 0, taken = 0;
    (void)state;
    if (!rig_engine.ops->choices || rig_engine.ops->choices(&text) < 0 || !text)
        return 0;
    for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        int way = -1;
        n += sscanf(line + 1, "%*x %d", &way) == 1;
        taken += way == 1;
    }
    printf("choices: %d, of them the library's: %d\n", n, taken);
    free(text);
    tune(false);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_pools),
        cmocka_unit_test(test_global_pools),
    };
    seed = rig_start();
    tune(true);
    return cmocka_run_group_tests(tests, NULL, print_choices);
}
