/* Transposes and Reshapes around convolutions: what only names channels-last bytes anew is no step; all others compute as they are defined. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/program/program_internal.h"

static uint64_t seed;

enum { HEIGHT = 5, WIDTH = 6, LENGTH = HEIGHT * WIDTH, CHANNELS = 32 };

/* What else reads the bytes, or stands in the graph's interface. */
enum other { NONE, READ_ROW_MAJOR, IS_OUTPUT, OTHER_SPLIT, FROM_INPUT, OTHERS };

static int permuted(struct sy_graph *g, int x, int rank, const int64_t *dims, const int64_t *perm)
{
    int64_t to[5];
    for (int i = 0; i < rank; i++)
        to[i] = dims[perm[i]];
    int y = gb_node(g, SY_OP_TRANSPOSE, INPUTS(x), rank, to);
    gb_ints(g, "perm", rank, perm);
    return y;
}

static int depthwise(struct sy_graph *g, int x, int64_t h, int64_t w)
{
    const int64_t ones[] = {1, 1, 1, 1}, threes[] = {3, 3};
    int weights = gb_constant(g, "w", DIMS(CHANNELS, 1, 3, 3), &seed, -0.5, 0.5);
    int y = gb_node(g, SY_OP_CONV, INPUTS(x, weights), DIMS(1, CHANNELS, h, w));
    gb_ints(g, "kernel_shape", 2, threes);
    gb_ints(g, "pads", 4, ones);
    gb_int(g, "group", CHANNELS);
    return y;
}

/* Rows of a transformer, as an image through a convolution, as rows again. */
static struct sy_graph *rows_through_conv(enum other other)
{
    static const int64_t swap[] = {0, 2, 1};
    struct sy_graph *g = gb_new("rows through a convolution");
    const int64_t rows[] = {1, LENGTH, CHANNELS}, columns[] = {1, CHANNELS, LENGTH};
    int64_t h = other == OTHER_SPLIT ? WIDTH : HEIGHT, w = LENGTH / h;
    int x = gb_input(g, 3, rows);
    if (other != FROM_INPUT)
        x = gb_node(g, SY_OP_SIGMOID, INPUTS(x), 3, rows);
    x = permuted(g, x, 3, rows, swap);
    if (other == IS_OUTPUT)
        gb_output(g, x);
    int turned = x;
    x = gb_node(g, SY_OP_RESHAPE, INPUTS(x), DIMS(1, CHANNELS, h, w));
    x = depthwise(g, x, h, w);
    x = gb_node(g, SY_OP_RESHAPE, INPUTS(x), 3, columns);
    if (other == READ_ROW_MAJOR)
        x = gb_node(g, SY_OP_ADD, INPUTS(x, gb_node(g, SY_OP_SOFTMAX, INPUTS(turned), 3, columns)),
                    3, columns);
    x = permuted(g, x, 3, columns, swap);
    gb_output(g, gb_node(g, SY_OP_TANH, INPUTS(x), 3, rows));
    return g;
}

/* [N, H, W, C] -> Conv -> [N, H, W, C]. */
static struct sy_graph *image_through_conv(void)
{
    static const int64_t first[] = {0, 3, 1, 2}, last[] = {0, 2, 3, 1};
    struct sy_graph *g = gb_new("an image through a convolution");
    const int64_t image[] = {1, HEIGHT, WIDTH, CHANNELS}, turned[] = {1, CHANNELS, HEIGHT, WIDTH};
    int x = gb_input(g, 4, image);
    x = gb_node(g, SY_OP_SIGMOID, INPUTS(x), 4, image);
    x = permuted(g, x, 4, image, first);
    x = depthwise(g, x, HEIGHT, WIDTH);
    x = permuted(g, x, 4, turned, last);
    gb_output(g, gb_node(g, SY_OP_TANH, INPUTS(x), 4, image));
    return g;
}

static int n_steps(const struct sy_graph *graph)
{
    struct engine_rig rig;
    struct sy_program *p;
    assert_int_equal(rig_open(&rig, graph, true), SY_OK);
    assert_int_equal(sy_host_engine.program_create(rig.graph, rig.layers, rig.n_layers, 2, &p),
                     SY_OK);
    int n = p->n_steps;
    sy_host_engine.program_destroy(p);
    rig_close(&rig);
    return n;
}

static void check(struct sy_graph *g)
{
    struct engine_case c = {.graph = g, .optimize = true};
    rig_check(&c, &seed);
}

static void rows_compute_as_defined(void **state)
{
    (void)state;
    for (int other = 0; other < OTHERS; other++)
        check(rows_through_conv((enum other)other));
    check(image_through_conv());
}

/* Sigmoid, Conv, Tanh, and the copy of an output that is a view; a Transpose or reorder more where row-major is wanted. */
static void views_are_no_steps(void **state)
{
    struct sy_graph *rows = rows_through_conv(NONE), *image = image_through_conv(),
                    *read = rows_through_conv(READ_ROW_MAJOR);
    (void)state;
    if (!sy_dnnl_has_avx512()) /* oneDNN wants blocks of channels elsewhere */
        skip();
    assert_true(n_steps(rows) <= 4);
    assert_true(n_steps(image) <= 4);
    assert_true(n_steps(read) > 4);
    sy_graph_free(rows);
    sy_graph_free(image);
    sy_graph_free(read);
}

/* From row-major images to convolutions and back, by few and many channels, pixels that fill no tile, in one to three dimensions. */
static void test_turns(void **state)
{
    static const int64_t channels[] = {3, 16, 17, 40, 256, 270};
    (void)state;
    for (int i = 0; i < 18; i++) {
        struct sy_graph *g = gb_new("turns");
        int rank = 3 + i / 6;
        int64_t c = channels[i % 6], x[] = {1, c, rig_int(&seed, 1, 70), rig_int(&seed, 1, 5), 2},
                w[] = {c + 1, c, 1, 1, 1}, y[] = {1, c + 1, x[2], x[3], 2};
        int weights = gb_constant(g, "w", rank, w, &seed, -0.1, 0.1);
        int from = gb_node(g, SY_OP_SIGMOID, INPUTS(gb_input(g, rank, x)), rank, x);
        gb_output(g, gb_node(g, SY_OP_CONV, INPUTS(from, weights), rank, y));
        rig_check(&(struct engine_case){.graph = g, .tolerance = 1e-4}, &seed);
    }
}

int main(void)
{
    seed = rig_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(rows_compute_as_defined),
        cmocka_unit_test(views_are_no_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
