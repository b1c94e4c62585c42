/* BatchNormalization and products with a vector behind Gemm and MatMul go into their weights; what other nodes read stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "loader/graph/graph_internal.h"
#include "tests/rigs/engine_rig.h"

static uint64_t seed;

enum { ROWS = 6, DEPTH = 10, COLUMNS = 24 };

enum form { GEMM, GEMM_TRANSPOSED, MATMUL, MATMUL_BIAS, FORMS };

/* [1, ROWS, DEPTH] or, for Gemm, [ROWS, DEPTH] -> the same with COLUMNS at the end. */
static int product(struct sy_graph *g, enum form form)
{
    bool transposed = form == GEMM_TRANSPOSED;
    int w = gb_constant(g, "w", 2,
                        (int64_t[]){transposed ? COLUMNS : DEPTH, transposed ? DEPTH : COLUMNS},
                        &seed, -1, 1);
    int bias = gb_constant(g, "bias", DIMS(COLUMNS), &seed, -1, 1);
    if (form == GEMM || form == GEMM_TRANSPOSED) {
        int x = gb_input(g, DIMS(ROWS, DEPTH));
        int y = gb_node(g, SY_OP_GEMM, form == GEMM ? 2 : 3, (int[]){x, w, bias}, 2,
                        (int64_t[]){ROWS, COLUMNS});
        gb_int(g, "transB", transposed);
        gb_float(g, "alpha", 0.5f);
        gb_float(g, "beta", 2.0f);
        return y;
    }
    int x = gb_input(g, DIMS(1, ROWS, DEPTH));
    x = gb_node(g, SY_OP_MATMUL, INPUTS(x, w), DIMS(1, ROWS, COLUMNS));
    if (form == MATMUL_BIAS)
        x = gb_node(g, SY_OP_ADD, INPUTS(x, bias), DIMS(1, ROWS, COLUMNS));
    return x;
}

static int norm(struct sy_graph *g, int x)
{
    int in[5] = {x, gb_constant(g, "scale", DIMS(COLUMNS), &seed, 0.5, 2),
                 gb_constant(g, "shift", DIMS(COLUMNS), &seed, -1, 1),
                 gb_constant(g, "mean", DIMS(COLUMNS), &seed, -1, 1),
                 gb_constant(g, "variance", DIMS(COLUMNS), &seed, 0.2, 2)};
    int y = gb_node(g, SY_OP_BATCH_NORM, 5, in, DIMS(ROWS, COLUMNS));
    gb_float(g, "epsilon", 1e-3f);
    return y;
}

static void check(struct sy_graph *g)
{
    struct engine_case c = {.graph = g, .optimize = true, .int_high = 1};
    rig_check(&c, &seed);
}

static void norms_go_into_weights(void **state)
{
    (void)state;
    for (int form = 0; form < FORMS; form++) {
        struct sy_graph *g = gb_new("norm of a product");
        int x = product(g, (enum form)form);
        bool flat = form < MATMUL;
        if (!flat)
            x = gb_node(g, SY_OP_RESHAPE, INPUTS(x), DIMS(ROWS, COLUMNS));
        x = norm(g, x);
        if (!flat)
            x = gb_node(g, SY_OP_RESHAPE, INPUTS(x), DIMS(1, ROWS, COLUMNS));
        x = flat ? gb_node(g, SY_OP_RELU, INPUTS(x), DIMS(ROWS, COLUMNS))
                 : gb_node(g, SY_OP_RELU, INPUTS(x), DIMS(1, ROWS, COLUMNS));
        gb_output(g, x);
        assert_int_equal(rig_count(g, SY_OP_BATCH_NORM), 0);
        assert_int_equal(rig_count(g, SY_OP_RELU), 0); /* nor does the Reshape stand between */
        check(g);
    }
}

static void factors_go_into_weights(void **state)
{
    (void)state;
    for (int form = MATMUL; form < FORMS; form++) {
        struct sy_graph *g = gb_new("columns times a vector");
        int x = product(g, (enum form)form);
        int factor = gb_constant(g, "factor", DIMS(COLUMNS), &seed, -2, 2);
        gb_output(g, gb_node(g, SY_OP_MUL, INPUTS(x, factor), DIMS(1, ROWS, COLUMNS)));
        assert_int_equal(rig_count(g, SY_OP_MUL), 0);
        check(g);
    }
}

/* The product itself is read, or the columns are no longer the last dimension. */
static void others_stay(void **state)
{
    struct sy_graph *g = gb_new("a product that is read twice");
    (void)state;
    int x = product(g, GEMM_TRANSPOSED), y = norm(g, x);
    gb_output(g, gb_node(g, SY_OP_ADD, INPUTS(x, y), DIMS(ROWS, COLUMNS)));
    assert_int_equal(rig_count(g, SY_OP_BATCH_NORM) + rig_count(g, SY_OP_CHANNEL_AFFINE), 1);
    check(g);

    g = gb_new("other columns");
    x = gb_node(g, SY_OP_RESHAPE, INPUTS(product(g, MATMUL)), DIMS(ROWS / 2, 2 * COLUMNS));
    int factor = gb_constant(g, "factor", DIMS(2 * COLUMNS), &seed, -2, 2);
    gb_output(g, gb_node(g, SY_OP_MUL, INPUTS(x, factor), DIMS(ROWS / 2, 2 * COLUMNS)));
    assert_int_equal(rig_count(g, SY_OP_MUL), 1);
    check(g);
}

/* Rows of channels alone: more than a piece of either. */
static void rows_of_channels(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        int64_t rows = rig_int(&seed, 1, 150), n = rig_int(&seed, 1, 1300);
        struct sy_graph *g = gb_new("BatchNormalization of rows");
        int in[5] = {gb_input(g, DIMS(rows, n)), gb_constant(g, "scale", 1, &n, &seed, 0.5, 2),
                     gb_constant(g, "shift", 1, &n, &seed, -1, 1),
                     gb_constant(g, "mean", 1, &n, &seed, -1, 1),
                     gb_constant(g, "variance", 1, &n, &seed, 0.2, 2)};
        gb_output(g, gb_node(g, SY_OP_BATCH_NORM, 5, in, DIMS(rows, n)));
        check(g);
    }
}

int main(void)
{
    seed = rig_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_go_into_weights),
        cmocka_unit_test(factors_go_into_weights),
        cmocka_unit_test(others_stay),
        cmocka_unit_test(rows_of_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
