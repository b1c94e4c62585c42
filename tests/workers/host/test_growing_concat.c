/* Batch norm in front of its Relu, and concatenations that grow out of each other (DenseNet): each against its definition, in the layouts that
 * convolutions leave and row-major. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "loader/graph/graph_internal.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/program/program_internal.h"

static uint64_t seed;

enum { SIZE = 6, MOST = 12 };

static int batch_norm(struct sy_graph *g, int x, int n, const int64_t *dims)
{
    const int64_t c = dims[1];
    int inputs[5] = {x, gb_constant(g, "scale", 1, &c, &seed, -1.5, 1.5),
                     gb_constant(g, "shift", 1, &c, &seed, -0.5, 0.5),
                     gb_constant(g, "mean", 1, &c, &seed, -0.5, 0.5),
                     gb_constant(g, "variance", 1, &c, &seed, 0.3, 2)};
    return gb_node(g, SY_OP_BATCH_NORM, 5, inputs, n, dims);
}

static int conv(struct sy_graph *g, int x, int64_t from, int64_t to, int64_t k)
{
    int w = gb_constant(g, "w", DIMS(to, from, k, k), &seed, -0.3, 0.3);
    int y = gb_node(g, SY_OP_CONV, INPUTS(x, w), DIMS(1, to, SIZE, SIZE));
    gb_ints(g, "pads", DIMS(k / 2, k / 2, k / 2, k / 2));
    return y;
}

static int limit(struct sy_graph *g, enum sy_op op, int x, int n, const int64_t *dims)
{
    int y = gb_node(g, op, INPUTS(x), n, dims);
    if (op == SY_OP_CLIP) {
        gb_float(g, "min", -0.2f);
        gb_float(g, "max", 0.4f);
    }
    return y;
}

static void check(struct sy_graph *g)
{
    struct engine_case c = {.graph = g, .optimize = true, .tolerance = 1e-4};
    rig_check(&c, &seed);
}

/* ---- batch norm -------------------------------------------------------------------------------------- */

/* Behind a convolution that somebody else reads, too, so that its weights cannot take the scale. */
static void check_behind_conv(int64_t channels, enum sy_op op, bool read_again)
{
    struct sy_graph *g = gb_new("batch norm behind a shared convolution");
    const int64_t dims[] = {1, channels, SIZE, SIZE};
    int x = conv(g, gb_input(g, DIMS(1, 5, SIZE, SIZE)), 5, channels, 3);
    if (read_again)
        gb_output(g, gb_node(g, SY_OP_SIGMOID, INPUTS(x), 4, dims));
    else
        x = gb_node(g, SY_OP_SIGMOID, INPUTS(x), 4, dims);
    int y = batch_norm(g, x, 4, dims);
    gb_output(g, op == SY_OP_RELU || op == SY_OP_CLIP ? limit(g, op, y, 4, dims) : y);
    assert_int_equal(rig_count(g, SY_OP_CHANNEL_AFFINE), 1);
    assert_int_equal(rig_count(g, SY_OP_RELU) + rig_count(g, SY_OP_CLIP), 0);
    check(g);
}

static void test_behind_convolutions(void **state)
{
    (void)state;
    static const int64_t channels[] = {3, 8, 16, 24, 40};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        check_behind_conv(channels[i], SY_OP_RELU, i % 2);
        check_behind_conv(channels[i], SY_OP_CLIP, i % 2 == 0);
        check_behind_conv(channels[i], SY_OP_CONCAT, true);
    }
}

static void test_all_ranks(void **state)
{
    (void)state;
    static const int64_t dims[] = {1, 7, 5, 4, 3};
    for (int rank = 2; rank <= 5; rank++) {
        struct sy_graph *g = gb_new("batch norm of an input");
        int y = batch_norm(g, gb_input(g, rank, dims), rank, dims);
        gb_output(g, limit(g, SY_OP_RELU, y, rank, dims));
        assert_int_equal(rig_count(g, SY_OP_CHANNEL_AFFINE), 1);
        check(g);
    }
}

/* A Relu that is not alone in reading the norm's result. */
static void test_read_by_two(void **state)
{
    (void)state;
    const int64_t dims[] = {1, 16, SIZE, SIZE};
    struct sy_graph *g = gb_new("batch norm read by two");
    int y = batch_norm(g, gb_input(g, 4, dims), 4, dims);
    gb_output(g, gb_node(g, SY_OP_ADD, INPUTS(y, limit(g, SY_OP_RELU, y, 4, dims)), 4, dims));
    assert_int_equal(rig_count(g, SY_OP_RELU), 1);
    check(g);
}

/* ---- growing concatenations --------------------------------------------------------------------------- */

enum form { NESTED, FLAT };
enum reader { BY_NORM, BY_CONV, BY_POOL, BY_OUTPUT, N_READERS };

static int concat(struct sy_graph *g, int n, const int *parts, int64_t channels)
{
    int y = gb_node(g, SY_OP_CONCAT, n, parts, DIMS(1, channels, SIZE, SIZE));
    gb_int(g, "axis", 1);
    return y;
}

/* What reads a concatenation and gives `growth` channels more. */
static int grow(struct sy_graph *g, int x, int64_t channels, int64_t growth, enum reader reader)
{
    const int64_t dims[] = {1, channels, SIZE, SIZE};
    if (reader == BY_NORM)
        x = limit(g, SY_OP_RELU, batch_norm(g, x, 4, dims), 4, dims);
    if (reader == BY_OUTPUT)
        gb_output(g, x);
    if (reader == BY_POOL) {
        x = gb_node(g, SY_OP_MAX_POOL, INPUTS(x), 4, dims);
        gb_ints(g, "kernel_shape", DIMS(3, 3));
        gb_ints(g, "pads", DIMS(1, 1, 1, 1));
    }
    return conv(g, x, channels, growth, 3);
}

/* layers: concatenations; others read some of them than the norm. */
static struct sy_graph *dense_block(enum form form, int64_t first, int64_t growth, int layers,
                                    bool mixed)
{
    struct sy_graph *g = gb_new(form == NESTED ? "dense block, nested" : "dense block, flat");
    int parts[MOST] = {conv(g, gb_input(g, DIMS(1, 3, SIZE, SIZE)), 3, first, 1)}, n = 1;
    int whole = parts[0];
    int64_t channels = first;
    for (int i = 0; i < layers; i++) {
        enum reader reader = mixed ? (enum reader)rig_int(&seed, 0, N_READERS - 1) : BY_NORM;
        int more = grow(g, whole, channels, growth, reader);
        int pair[2] = {whole, more};
        parts[n++] = more;
        channels += growth;
        whole = form == NESTED ? concat(g, 2, pair, channels) : concat(g, n, parts, channels);
    }
    gb_output(g, grow(g, whole, channels, 4, BY_NORM));
    return g;
}

static void test_dense_blocks(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{16, 8}, {32, 32}, {5, 3}, {24, 12}, {8, 7}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int form = NESTED; form <= FLAT; form++)
            for (int mixed = 0; mixed < 2; mixed++)
                check(dense_block((enum form)form, sizes[i][0], sizes[i][1], 4, mixed));
}

/* The same part twice, parts that are inputs, a group within a group, a root that is an output. */
static void test_odd_parts(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("odd parts");
    int x = gb_input(g, DIMS(1, 8, SIZE, SIZE)), c = conv(g, x, 8, 8, 3);
    int k = conv(g, c, 8, 8, 1);
    int a = concat(g, INPUTS(x, c), 16), b = concat(g, INPUTS(c, a, c), 32),
        d = concat(g, INPUTS(k, x, c), 24), e = concat(g, INPUTS(b, d, a), 72);
    gb_output(g, b);
    gb_output(g, e);
    gb_output(g, gb_node(g, SY_OP_RELU, INPUTS(e), DIMS(1, 72, SIZE, SIZE)));
    gb_output(g, grow(g, d, 24, 4, BY_NORM));
    check(g);
}

/* Each layer copies its new channels, and nothing that was copied before. */
static void test_copies_once(void **state)
{
    (void)state;
    for (int form = NESTED; form <= FLAT; form++) {
        struct sy_graph *g = dense_block((enum form)form, 32, 16, 6, false);
        struct engine_rig rig;
        int copies = 0;
        assert_int_equal(rig_open(&rig, g, true), 0);
        struct sy_program *p = rig_program(&rig, 2);
        for (int l = 0; l < p->n_layers; l++)
            if (rig.graph->nodes[p->layers[l].node].op == SY_OP_CONCAT)
                copies += p->layer_steps[l + 1] - p->layer_steps[l];
        assert_int_equal(copies, 7);
        rig_engine.ops->program_destroy(p);
        rig_close(&rig);
        sy_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behind_convolutions), cmocka_unit_test(test_all_ranks),
        cmocka_unit_test(test_read_by_two),         cmocka_unit_test(test_dense_blocks),
        cmocka_unit_test(test_odd_parts),           cmocka_unit_test(test_copies_once),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
