/* Patterns that become one node on the host engine: attention, curves, normalisations; each against the definition of what is written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph_internal.h"
#include "tests/engine_rig.h"

static uint64_t seed;

/* Nodes of `op`, or with that activation, in what the engine runs. */
static int count(const struct sy_graph *g, enum sy_op op, enum sy_activation activation)
{
    struct engine_rig rig;
    int n = 0;
    assert_int_equal(rig_open(&rig, g, true), 0);
    for (int i = 0; i < rig.graph->n_nodes; i++)
        n += activation ? rig.graph->nodes[i].activation == activation
                        : rig.graph->nodes[i].op == op;
    rig_close(&rig);
    return n;
}

static void check_one(struct sy_graph *g, enum sy_op op, double tolerance)
{
    struct engine_case c = {.graph = g, .optimize = true, .int_high = 1, .tolerance = tolerance};
    if (count(g, op, SY_ACT_NONE) != 1)
        fail_msg("%s: %d nodes %s", g->name, count(g, op, SY_ACT_NONE), sy_op_name(op));
    rig_check(&c, &seed);
}

static int scalar(struct sy_graph *g, double value)
{
    return gb_constant(g, "number", DIMS(1), &seed, value, value);
}

/* ---- attention ---------------------------------------------------------------------------------- */

struct form {
    int64_t heads, rows, columns, depth, width;
    int keys;  /* 0: one transpose; 1: two; 2: none, the input lies as keys are wanted */
    int scale; /* 0: none; 1: behind the product; 2: on q, before its transpose; 3: on both */
    int masks; /* bits: see mask() */
    bool zero_nan, back;
};

static int transpose(struct sy_graph *g, int x, const int64_t *dims, const int64_t *perm, int rank)
{
    int64_t to[4];
    for (int i = 0; i < rank; i++)
        to[i] = dims[perm[i]];
    int y = gb_node(g, SY_OP_TRANSPOSE, INPUTS(x), rank, to);
    gb_ints(g, "perm", rank, perm);
    return y;
}

static int times(struct sy_graph *g, int x, double factor, int rank, const int64_t *dims)
{
    bool divide = factor < 0.9 && rig_int(&seed, 0, 1);
    return divide ? gb_node(g, SY_OP_DIV, INPUTS(x, scalar(g, 1 / factor)), rank, dims)
                  : gb_node(g, SY_OP_MUL, INPUTS(scalar(g, factor), x), rank, dims);
}

static int keys(struct sy_graph *g, const struct form *f)
{
    const int64_t lies[] = {1, f->columns, f->heads, f->depth};
    const int64_t ready[] = {1, f->heads, f->depth, f->columns};
    int k = gb_input(g, 4, f->keys == 2 ? ready : lies);
    if (f->keys == 0)
        k = transpose(g, k, lies, (int64_t[]){0, 2, 3, 1}, 4);
    if (f->keys == 1) {
        k = transpose(g, k, lies, (int64_t[]){0, 2, 1, 3}, 4);
        k = transpose(g, k, (int64_t[]){1, f->heads, f->columns, f->depth}, (int64_t[]){0, 1, 3, 2},
                      4);
    }
    return f->scale == 3 ? times(g, k, 0.7, 4, ready) : k;
}

static int queries(struct sy_graph *g, const struct form *f)
{
    const int64_t lies[] = {1, f->rows, f->heads, f->depth};
    int q = gb_input(g, 4, lies);
    if (f->scale == 2)
        q = times(g, q, 0.25, 4, lies);
    q = transpose(g, q, lies, (int64_t[]){0, 2, 1, 3}, 4);
    return f->scale == 3 ? times(g, q, 0.7, 4, (int64_t[]){1, f->heads, f->rows, f->depth}) : q;
}

/* Row i may see columns up to i - 1, so the first row sees none; only if that becomes zeros. */
static int triangle(struct sy_graph *g, const struct form *f, bool seen)
{
    static int64_t values[200 * 400];
    for (int64_t i = 0; i < f->rows * f->columns; i++) {
        int64_t row = i / f->columns, column = i % f->columns;
        bool visible = column < row || (row == 0 && column == 0 && !f->zero_nan);
        values[i] = visible == seen;
    }
    return gb_constant_of(g, SY_DTYPE_BOOL, DIMS(f->rows, f->columns), values);
}

/* 1: per batch and column; 2: constant per row and column; 4: a vector; 8: bools per batch that keep; 16: a triangle that drops; 32: one
 * number per head and row; 64: a triangle that keeps. */
static int mask(struct sy_graph *g, const struct form *f, int y, int bit)
{
    const int64_t dims[] = {1, f->heads, f->rows, f->columns};
    int other;
    switch (bit) {
    case 1:
        other = gb_input(g, DIMS(1, 1, 1, f->columns));
        return gb_node(g, SY_OP_ADD, INPUTS(y, other), 4, dims);
    case 2:
        other = gb_constant(g, "mask", DIMS(f->rows, f->columns), &seed, -2, 2);
        return gb_node(g, SY_OP_ADD, INPUTS(other, y), 4, dims);
    case 4:
        other = gb_constant(g, "mask", DIMS(f->columns), &seed, -2, 2);
        return gb_node(g, SY_OP_ADD, INPUTS(y, other), 4, dims);
    case 8:
        other = gb_input_of(g, SY_DTYPE_BOOL, DIMS(1, 1, 1, f->columns));
        return gb_node(g, SY_OP_WHERE, INPUTS(other, y, scalar(g, -1e4)), 4, dims);
    case 16:
        return gb_node(g, SY_OP_WHERE, INPUTS(triangle(g, f, false), scalar(g, -INFINITY), y), 4,
                       dims);
    case 32:
        other = gb_input(g, DIMS(1, f->heads, f->rows, 1));
        return gb_node(g, SY_OP_ADD, INPUTS(y, other), 4, dims);
    default:
        return gb_node(g, SY_OP_WHERE, INPUTS(triangle(g, f, true), y, scalar(g, -INFINITY)), 4,
                       dims);
    }
}

static struct sy_graph *attention_graph(const struct form *f)
{
    char name[160];
    snprintf(name, sizeof name,
             "attention %lld heads %lldx%lld depth %lld width %lld form %d %d %d %d %d",
             (long long)f->heads, (long long)f->rows, (long long)f->columns, (long long)f->depth,
             (long long)f->width, f->keys, f->scale, f->masks, f->zero_nan, f->back);
    struct sy_graph *g = gb_new(name);
    const int64_t scores[] = {1, f->heads, f->rows, f->columns},
                  values[] = {1, f->columns, f->heads, f->width};
    int q = queries(g, f), k = keys(g, f);
    int y = gb_node(g, SY_OP_MATMUL, INPUTS(q, k), 4, scores);
    if (f->scale == 1)
        y = times(g, y, 0.3, 4, scores);
    for (int bit = 1; bit <= 64; bit *= 2)
        if (f->masks & bit)
            y = mask(g, f, y, bit);
    y = gb_node(g, SY_OP_SOFTMAX, INPUTS(y), 4, scores);
    gb_int(g, "axis", 3);
    if (f->zero_nan) {
        int nan = gb_node(g, SY_OP_IS_NAN, INPUTS(y), 4, scores);
        gb_type(g, nan, SY_DTYPE_BOOL);
        y = gb_node(g, SY_OP_WHERE, INPUTS(nan, scalar(g, 0), y), 4, scores);
    }
    int v = transpose(g, gb_input(g, 4, values), values, (int64_t[]){0, 2, 1, 3}, 4);
    const int64_t made[] = {1, f->heads, f->rows, f->width};
    y = gb_node(g, SY_OP_MATMUL, INPUTS(y, v), 4, made);
    if (f->back)
        y = transpose(g, y, made, (int64_t[]){0, 2, 1, 3}, 4);
    gb_output(g, y);
    return g;
}

static void test_attention_forms(void **state)
{
    (void)state;
    static const int masks[] = {0, 1, 2, 4, 8, 16, 32, 64, 1 | 2, 2 | 8, 1 | 2 | 4 | 32, 16 | 1};
    for (int i = 0; i < 48; i++) {
        struct form f = {.heads = rig_int(&seed, 1, 3),
                         .rows = rig_int(&seed, 1, 20),
                         .columns = rig_int(&seed, 1, 20),
                         .depth = rig_int(&seed, 1, 40),
                         .width = rig_int(&seed, 1, 40),
                         .keys = i % 3,
                         .scale = i % 4,
                         .masks = masks[i % 12],
                         .back = i & 1};
        f.zero_nan = f.masks & (16 | 64) || i % 7 == 0;
        check_one(attention_graph(&f), SY_OP_ATTENTION, 5e-5);
    }
}

/* Several blocks of rows, of which the last is shorter. */
static void test_attention_blocks(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct form f = {2, 150, i ? 33 : 390, 8, 9, 0, 1, i ? 64 : 1, i, true};
        check_one(attention_graph(&f), SY_OP_ATTENTION, 5e-5);
    }
}

/* Three dimensions, as torch.bmm leaves it; queries that are a parameter. */
static void test_attention_of_parameter(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("attention of learned queries");
    int q = gb_constant(g, "q", DIMS(1, 5, 8), &seed, -1, 1), k = gb_input(g, DIMS(1, 8, 7)),
        v = gb_input(g, DIMS(1, 7, 6));
    int y = gb_node(g, SY_OP_MATMUL, INPUTS(q, k), DIMS(1, 5, 7));
    y = gb_node(g, SY_OP_SOFTMAX, INPUTS(y), DIMS(1, 5, 7));
    gb_int(g, "axis", 2);
    gb_output(g, gb_node(g, SY_OP_MATMUL, INPUTS(y, v), DIMS(1, 5, 6)));
    check_one(g, SY_OP_ATTENTION, 0);
}

/* Somebody else reads the scores or the probabilities, or the matrix behind is a constant: nothing is fused, and right. */
static void test_no_attention(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct sy_graph *g = gb_new("not attention");
        int q = gb_input(g, DIMS(1, 5, 8)), k = gb_input(g, DIMS(1, 8, 7));
        int v = i == 2 ? gb_constant(g, "v", DIMS(7, 6), &seed, -1, 1) : gb_input(g, DIMS(1, 7, 6));
        int s = gb_node(g, SY_OP_MATMUL, INPUTS(q, k), DIMS(1, 5, 7));
        int p = gb_node(g, SY_OP_SOFTMAX, INPUTS(s), DIMS(1, 5, 7));
        gb_int(g, "axis", i == 3 ? 1 : 2);
        gb_output(g, gb_node(g, SY_OP_MATMUL, INPUTS(p, v), DIMS(1, 5, 6)));
        if (i < 2)
            gb_output(g, i ? s : p);
        assert_int_equal(count(g, SY_OP_ATTENTION, SY_ACT_NONE), 0);
        struct engine_case c = {.graph = g, .optimize = true};
        rig_check(&c, &seed);
    }
}

/* ---- curves ------------------------------------------------------------------------------------- */

static const int64_t line[] = {1, 37};

static int one(struct sy_graph *g, enum sy_op op, int x)
{
    return gb_node(g, op, INPUTS(x), 2, line);
}

static int two(struct sy_graph *g, enum sy_op op, int a, int b)
{
    return gb_node(g, op, INPUTS(a, b), 2, line);
}

static int sigmoid_of(struct sy_graph *g, int x, bool by_hand)
{
    if (!by_hand)
        return one(g, SY_OP_SIGMOID, x);
    int e = one(g, SY_OP_EXP, one(g, SY_OP_NEG, x));
    return two(g, SY_OP_DIV, scalar(g, 1), two(g, SY_OP_ADD, e, scalar(g, 1)));
}

static int cube(struct sy_graph *g, int x, int form)
{
    return form ? two(g, SY_OP_MUL, x, two(g, SY_OP_MUL, x, x))
                : two(g, SY_OP_POW, x, scalar(g, 3));
}

/* 0.5 x (1 + tanh(...)), in three of its ways. */
static int gelu_tanh(struct sy_graph *g, int x, int form)
{
    int inner;
    if (form == 2) { /* x c (1 + 0.044715 x x) */
        inner = two(g, SY_OP_MUL, two(g, SY_OP_MUL, x, scalar(g, 0.044715)), x);
        inner = two(g, SY_OP_MUL, two(g, SY_OP_MUL, x, scalar(g, 0.7978845608)),
                    two(g, SY_OP_ADD, inner, scalar(g, 1)));
    } else {
        inner = two(g, SY_OP_MUL, cube(g, x, form), scalar(g, 0.044715));
        inner = two(g, SY_OP_MUL, two(g, SY_OP_ADD, x, inner), scalar(g, 0.7978845608));
    }
    int rest = two(g, SY_OP_ADD, one(g, SY_OP_TANH, inner), scalar(g, 1));
    return form == 1 ? two(g, SY_OP_MUL, two(g, SY_OP_MUL, rest, x), scalar(g, 0.5))
                     : two(g, SY_OP_MUL, two(g, SY_OP_MUL, scalar(g, 0.5), x), rest);
}

static int hard_swish(struct sy_graph *g, int x, int form)
{
    if (form == 0) {
        int gate = one(g, SY_OP_HARD_SIGMOID, x);
        gb_float(g, "alpha", 1.0f / 6);
        gb_float(g, "beta", 0.5f);
        return two(g, SY_OP_MUL, x, gate);
    }
    int gate = one(g, SY_OP_CLIP, two(g, SY_OP_ADD, x, scalar(g, 3)));
    gb_float(g, "min", 0);
    gb_float(g, "max", 6);
    return form == 1 ? two(g, SY_OP_DIV, two(g, SY_OP_MUL, x, gate), scalar(g, 6))
                     : two(g, SY_OP_MUL, x, two(g, SY_OP_DIV, gate, scalar(g, 6)));
}

static int swish(struct sy_graph *g, int x, int form)
{
    if (form == 2) {
        int gate = one(g, SY_OP_SIGMOID, two(g, SY_OP_MUL, x, scalar(g, 1.702)));
        return two(g, SY_OP_MUL, gate, x);
    }
    return two(g, SY_OP_MUL, x, sigmoid_of(g, x, form));
}

static void test_curves(void **state)
{
    (void)state;
    static const struct {
        int (*make)(struct sy_graph *g, int x, int form);
        enum sy_op op;
        enum sy_activation activation;
    } curves[] = {{gelu_tanh, SY_OP_GELU, SY_ACT_NONE},
                  {hard_swish, SY_OP_HARD_SWISH, SY_ACT_HARD_SWISH},
                  {swish, SY_OP_SWISH, SY_ACT_SWISH}};
    for (int i = 0; i < 9; i++) {
        struct sy_graph *g = gb_new("curve");
        int x = gb_input(g, 2, line);
        gb_output(g, curves[i % 3].make(g, x, i / 3));
        struct engine_case c = {.graph = g, .optimize = true, .low = -9, .high = 9};
        assert_int_equal(count(g, curves[i % 3].op, SY_ACT_NONE), 1);
        assert_int_equal(count(g, SY_OP_MUL, SY_ACT_NONE), 0);
        rig_check(&c, &seed);
    }
    /* behind a product */
    for (int i = 0; i < 9; i++) {
        struct sy_graph *g = gb_new("curve behind a product");
        int x = gb_input(g, DIMS(1, 24)), w = gb_constant(g, "w", DIMS(24, 37), &seed, -1, 1);
        gb_output(g, curves[i % 3].make(g, two(g, SY_OP_MATMUL, x, w), i / 3));
        if (curves[i % 3].activation)
            assert_int_equal(count(g, SY_OP_MATMUL, curves[i % 3].activation), 1);
        struct engine_case c = {.graph = g, .optimize = true, .tolerance = 5e-5};
        rig_check(&c, &seed);
    }
}

/* Almost: another constant, or somebody reads the gate. */
static void test_no_curves(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sy_graph *g = gb_new("almost a curve");
        int x = gb_input(g, 2, line), gate = one(g, SY_OP_CLIP, two(g, SY_OP_ADD, x, scalar(g, 3)));
        gb_float(g, "min", 0);
        gb_float(g, "max", i == 0 ? 5.99f : 6);
        int y = two(g, SY_OP_DIV, two(g, SY_OP_MUL, x, gate), scalar(g, i == 1 ? 6.01 : 6));
        gb_output(g, y);
        if (i == 2)
            gb_output(g, gate);
        assert_int_equal(count(g, SY_OP_HARD_SWISH, SY_ACT_NONE), 0);
        struct engine_case c = {.graph = g, .optimize = true, .low = -9, .high = 9};
        rig_check(&c, &seed);
    }
}

/* ---- normalisations ----------------------------------------------------------------------------- */

#define ROWS 1, 3, 20
#define ONES 1, 3, 1

static int mean_of(struct sy_graph *g, int x)
{
    int y = gb_node(g, SY_OP_REDUCE_MEAN, INPUTS(x), DIMS(ONES));
    gb_ints(g, "axes", DIMS(2));
    gb_int(g, "keepdims", 1);
    return y;
}

/* 1 / sqrt(x + epsilon) */
static int rate_of(struct sy_graph *g, int x, int form)
{
    int sum = gb_node(g, SY_OP_ADD, INPUTS(x, scalar(g, 1e-3)), DIMS(ONES));
    if (form == 2)
        return gb_node(g, SY_OP_POW, INPUTS(sum, scalar(g, -0.5)), DIMS(ONES));
    int root = gb_node(g, SY_OP_SQRT, INPUTS(sum), DIMS(ONES));
    return form ? gb_node(g, SY_OP_RECIPROCAL, INPUTS(root), DIMS(ONES))
                : gb_node(g, SY_OP_DIV, INPUTS(scalar(g, 1), root), DIMS(ONES));
}

static void test_rms_norm(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        struct sy_graph *g = gb_new("RMS normalisation");
        int x = gb_input(g, DIMS(ROWS)), gamma = gb_constant(g, "gamma", DIMS(20), &seed, 0.5, 2);
        int square = form & 1 ? gb_node(g, SY_OP_MUL, INPUTS(x, x), DIMS(ROWS))
                              : gb_node(g, SY_OP_POW, INPUTS(x, scalar(g, 2)), DIMS(ROWS));
        int mean = mean_of(g, square), y;
        if (form == 3) {
            int sum = gb_node(g, SY_OP_ADD, INPUTS(mean, scalar(g, 1e-3)), DIMS(ONES));
            int root = gb_node(g, SY_OP_SQRT, INPUTS(sum), DIMS(ONES));
            y = gb_node(g, SY_OP_DIV, INPUTS(x, root), DIMS(ROWS));
        } else {
            y = gb_node(g, SY_OP_MUL, INPUTS(x, rate_of(g, mean, form)), DIMS(ROWS));
        }
        gb_output(g, gb_node(g, SY_OP_MUL, INPUTS(gamma, y), DIMS(ROWS)));
        check_one(g, SY_OP_RMS_NORM, 0);
    }
}

/* x r + (beta - mean r), r = gamma / deviation */
static void test_late_layer_norm(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        struct sy_graph *g = gb_new("layer normalisation as Keras writes it");
        int x = gb_input(g, DIMS(ROWS)), gamma = gb_constant(g, "gamma", DIMS(20), &seed, 0.5, 2),
            beta = gb_constant(g, "beta", DIMS(20), &seed, -1, 1), mean = mean_of(g, x);
        int centred = gb_node(g, SY_OP_SUB, INPUTS(x, mean), DIMS(ROWS));
        int variance = mean_of(g, gb_node(g, SY_OP_MUL, INPUTS(centred, centred), DIMS(ROWS)));
        int rate = gb_node(g, SY_OP_MUL, INPUTS(rate_of(g, variance, form), gamma), DIMS(ROWS));
        int offset;
        if (form == 0) {
            offset = gb_node(g, SY_OP_MUL, INPUTS(mean, rate), DIMS(ROWS));
            offset = gb_node(g, SY_OP_SUB, INPUTS(beta, offset), DIMS(ROWS));
        } else {
            offset = gb_node(g, SY_OP_NEG, INPUTS(mean), DIMS(ONES));
            offset = gb_node(g, SY_OP_MUL, INPUTS(offset, rate), DIMS(ROWS));
            offset = gb_node(g, SY_OP_ADD, INPUTS(offset, beta), DIMS(ROWS));
        }
        int scaled = gb_node(g, SY_OP_MUL, INPUTS(x, rate), DIMS(ROWS));
        gb_output(g, gb_node(g, SY_OP_ADD, INPUTS(scaled, offset), DIMS(ROWS)));
        check_one(g, SY_OP_LAYER_NORM, 5e-5);
    }
}

/* ---- transposes --------------------------------------------------------------------------------- */

static void shuffle(int64_t *perm, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = (int)rig_int(&seed, 0, i);
        int64_t kept = perm[i];
        perm[i] = perm[k];
        perm[k] = kept;
    }
}

/* The batch stays first, as gb_node wants it. A chain ends as at most one; one of extents 1, as none. */
static void test_transposes(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct sy_graph *g = gb_new("transposes");
        int64_t dims[4] = {1, i % 3 ? 3 : 1, i % 3 ? 4 : 1, 5}, next[4];
        int x = gb_input(g, 4, dims), n = (int)rig_int(&seed, 1, 4);
        for (int k = 0; k < n; k++) {
            int64_t perm[4] = {0, 1, 2, 3};
            shuffle(perm + 1, 3);
            x = transpose(g, x, dims, perm, 4);
            for (int d = 0; d < 4; d++)
                next[d] = dims[perm[d]];
            memcpy(dims, next, sizeof dims);
        }
        gb_output(g, gb_node(g, SY_OP_RELU, INPUTS(x), 4, dims));
        assert_in_range(count(g, SY_OP_TRANSPOSE, SY_ACT_NONE), 0, i % 3 ? 1 : 0);
        struct engine_case c = {.graph = g, .optimize = true};
        rig_check(&c, &seed);
    }
}

int main(void)
{
    seed = rig_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_forms),
        cmocka_unit_test(test_attention_blocks),
        cmocka_unit_test(test_attention_of_parameter),
        cmocka_unit_test(test_no_attention),
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_no_curves),
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_late_layer_norm),
        cmocka_unit_test(test_transposes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
