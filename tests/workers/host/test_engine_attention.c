/* Attention, as exporters write it, becomes one node, and that is right: forms, masks, sizes; each against the definition of what is written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"
#include "workers/engine/attention_node.h"

static uint64_t seed;

static void check_in(struct sy_graph *g, int nodes, enum sy_precision precision, double tolerance)
{
    struct engine_case c = {.graph = g, .optimize = true, .int_high = 1, .tolerance = tolerance};
    g->precision = precision;
    if (rig_count(g, SY_OP_ATTENTION) != nodes)
        fail_msg("%s: %d nodes of attention", g->name, rig_count(g, SY_OP_ATTENTION));
    rig_check(&c, &seed);
}

static void check_one(struct sy_graph *g, double tolerance)
{
    check_in(g, 1, SY_PRECISION_F32, tolerance);
}

static int scalar(struct sy_graph *g, double value)
{
    return gb_constant(g, "number", DIMS(1), &seed, value, value);
}

struct form {
    int64_t heads, rows, columns, depth, width;
    int keys;  /* 0: one transpose; 1: two; 2: none, the input lies as keys are wanted */
    int scale; /* 0: none; 1: behind the product; 2: on q, before its transpose; 3: on both */
    int masks; /* bits: see mask() */
    bool zero_nan, back;
};

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
        k = gb_transpose(g, k, lies, (int64_t[]){0, 2, 3, 1}, 4);
    if (f->keys == 1) {
        k = gb_transpose(g, k, lies, (int64_t[]){0, 2, 1, 3}, 4);
        k = gb_transpose(g, k, (int64_t[]){1, f->heads, f->columns, f->depth},
                         (int64_t[]){0, 1, 3, 2}, 4);
    }
    return f->scale == 3 ? times(g, k, 0.7, 4, ready) : k;
}

static int queries(struct sy_graph *g, const struct form *f)
{
    const int64_t lies[] = {1, f->rows, f->heads, f->depth};
    int q = gb_input(g, 4, lies);
    if (f->scale == 2)
        q = times(g, q, 0.25, 4, lies);
    q = gb_transpose(g, q, lies, (int64_t[]){0, 2, 1, 3}, 4);
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
    int v = gb_transpose(g, gb_input(g, 4, values), values, (int64_t[]){0, 2, 1, 3}, 4);
    const int64_t made[] = {1, f->heads, f->rows, f->width};
    y = gb_node(g, SY_OP_MATMUL, INPUTS(y, v), 4, made);
    if (f->back)
        y = gb_transpose(g, y, made, (int64_t[]){0, 2, 1, 3}, 4);
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
        check_one(attention_graph(&f), 5e-5);
    }
}

/* Several blocks of rows, of which the last is shorter; of those with a triangle some tiles are empty. */
static void test_attention_blocks(void **state)
{
    (void)state;
    static const int64_t columns[] = {390, 33, 150, 130};
    static const int masks[] = {1, 64, 64, 16 | 1};
    for (int i = 0; i < 4; i++) {
        struct form f = {2, 150, columns[i], 8, 9, 0, 1, masks[i], i > 0, true};
        check_one(attention_graph(&f), 5e-5);
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
    check_one(g, 0);
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
        assert_int_equal(rig_count(g, SY_OP_ATTENTION), 0);
        struct engine_case c = {.graph = g, .optimize = true};
        rig_check(&c, &seed);
    }
}

/* Heads of the sizes that models have, and one that an engine may not have as one node. */
static void test_attention_sizes(void **state)
{
    static const int64_t sizes[] = {64, 80, 128, 256, 257};
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct form f = {2, 40, 70, sizes[i], sizes[i], i % 3, 1, i % 2, false, true};
        check_in(attention_graph(&f), rig_engine.ops->fuses(SY_OP_ATTENTION, sizes[i]),
                 SY_PRECISION_F32, 1e-4);
    }
}

/* Factors are rounded, sums are not; masks that keep nothing are zeros all the same. */
static void test_attention_narrow(void **state)
{
    static const enum sy_precision precisions[] = {SY_PRECISION_BF16, SY_PRECISION_F16};
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct form f = {2, i < 6 ? 20 : 7,     70,        24,  40, i % 3,
                         1, i % 4 < 2 ? 1 : 64, i % 4 > 1, true};
        if (rig_engine.ops->check_precision &&
            rig_engine.ops->check_precision(precisions[i % 2]) == 0)
            check_in(attention_graph(&f), 1, precisions[i % 2], i % 2 ? 0.003 : 0.02);
    }
}

/* ---- heads that share keys and values ----------------------------------------------------------- */

struct grouped {
    int64_t groups, each, rows, columns, size;
    bool
        dense_queries; /* [batch, heads, rows, size] as they come, as behind a rotation; else transposed */
    int mask; /* 0: none; 1: per column; 2: a triangle for all heads; 3: per head and row */
    int64_t
        k_each; /* k's repetitions; another number than `each` where its heads differ from v's */
};

/* [batch, heads / each, columns, size], each head repeated, as exporters write it. */
static int repeated(struct sy_graph *g, const struct grouped *f, int64_t heads, int64_t each)
{
    int64_t few = heads / each, dims[] = {1, f->columns, few, f->size};
    int x = gb_transpose(g, gb_input(g, 4, dims), dims, (int64_t[]){0, 2, 1, 3}, 4);
    if (each == 1)
        return x;
    x = gb_node(g, SY_OP_UNSQUEEZE, INPUTS(x), DIMS(1, few, 1, f->columns, f->size));
    gb_ints(g, "axes", DIMS(2));
    x = gb_node(g, SY_OP_EXPAND, INPUTS(x), DIMS(1, few, each, f->columns, f->size));
    return gb_node(g, SY_OP_RESHAPE, INPUTS(x), DIMS(1, heads, f->columns, f->size));
}

static struct sy_graph *grouped_graph(const struct grouped *f)
{
    char name[120];
    snprintf(name, sizeof name, "%lld groups of %lld heads %lldx%lldx%lld form %d %d %lld",
             (long long)f->groups, (long long)f->each, (long long)f->rows, (long long)f->columns,
             (long long)f->size, f->dense_queries, f->mask, (long long)f->k_each);
    struct sy_graph *g = gb_new(name);
    int64_t heads = f->groups * f->each;
    const int64_t scores[] = {1, heads, f->rows, f->columns}, made[] = {1, heads, f->rows, f->size},
                  lies[] = {1, f->rows, heads, f->size}, keys[] = {1, heads, f->columns, f->size};
    int q = f->dense_queries
                ? gb_input(g, 4, made)
                : gb_transpose(g, gb_input(g, 4, lies), lies, (int64_t[]){0, 2, 1, 3}, 4);
    int k = gb_transpose(g, repeated(g, f, heads, f->k_each), keys, (int64_t[]){0, 1, 3, 2}, 4);
    int y = gb_node(g, SY_OP_MATMUL, INPUTS(q, k), 4, scores);
    y = times(g, y, 0.3, 4, scores);
    const struct form shape = {.rows = f->rows, .columns = f->columns};
    int masks[] = {-1, 0, 0, 0};
    if (f->mask == 1)
        masks[1] = gb_input(g, DIMS(1, 1, 1, f->columns));
    if (f->mask == 3)
        masks[3] = gb_input(g, DIMS(1, heads, f->rows, 1));
    if (f->mask == 2)
        y = gb_node(g, SY_OP_WHERE, INPUTS(triangle(g, &shape, true), y, scalar(g, -1e4)), 4,
                    scores);
    else if (f->mask > 0)
        y = gb_node(g, SY_OP_ADD, INPUTS(y, masks[f->mask]), 4, scores);
    y = gb_node(g, SY_OP_SOFTMAX, INPUTS(y), 4, scores);
    gb_int(g, "axis", 3);
    y = gb_node(g, SY_OP_MATMUL, INPUTS(y, repeated(g, f, heads, f->each)), 4, made);
    gb_output(g, gb_transpose(g, y, made, (int64_t[]){0, 2, 1, 3}, 4));
    return g;
}

/* Nothing is repeated in memory; where k and v do not share alike, it is, and right. */
static void test_attention_of_groups(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct grouped f = {.groups = rig_int(&seed, 1, 3),
                            .each = rig_int(&seed, 2, 4),
                            .rows = i % 3 ? 1 : rig_int(&seed, 2, 20),
                            .columns = rig_int(&seed, 1, 80),
                            /* of one number: the Transposes are Reshapes, no attention is seen */
                            .size = rig_int(&seed, 2, 40),
                            .dense_queries = i / 4 % 2,
                            .mask = i % 4};
        f.k_each = i % 8 == 7 ? 1 : f.each;
        struct sy_graph *g = grouped_graph(&f);
        if (rig_count(g, SY_OP_EXPAND) != (f.k_each == f.each ? 0 : 1))
            fail_msg("%s: %d expansions are left", g->name, rig_count(g, SY_OP_EXPAND));
        check_one(g, 5e-5);
    }
}

/* ---- causal masks ------------------------------------------------------------------------------ */

struct causal {
    int64_t rows, columns, ahead; /* a row keeps the columns before its number + ahead */
    int kind;                     /* 0: added; 1: bools that keep; 2: that drop */
    int rank;                     /* of the mask */
    double gone;
    int64_t odd; /* an element that is otherwise; -1: none is */
};

static int causal_mask(struct sy_graph *g, const struct causal *f)
{
    static int64_t bools[200 * 400];
    const int64_t dims[] = {1, 1, f->rows, f->columns};
    for (int64_t i = 0; i < f->rows * f->columns; i++)
        bools[i] =
            ((i % f->columns < i / f->columns + f->ahead) != (i == f->odd)) == (f->kind != 2);
    if (f->kind > 0)
        return gb_constant_of(g, SY_DTYPE_BOOL, f->rank, dims + 4 - f->rank, bools);
    int t = gb_constant(g, "triangle", f->rank, dims + 4 - f->rank, &seed, 0, 0);
    for (int64_t i = 0; i < f->rows * f->columns; i++)
        ((float *)g->tensors[t].data)[i] = bools[i] ? 0 : (float)f->gone;
    return t;
}

static struct sy_graph *causal_graph(const struct causal *f)
{
    char name[120];
    snprintf(name, sizeof name, "causal %lldx%lld ahead %lld kind %d rank %d gone %g odd %lld",
             (long long)f->rows, (long long)f->columns, (long long)f->ahead, f->kind, f->rank,
             f->gone, (long long)f->odd);
    struct sy_graph *g = gb_new(name);
    const int64_t scores[] = {1, 3, f->rows, f->columns}, made[] = {1, 3, f->rows, 9};
    int q = gb_input(g, DIMS(1, 3, f->rows, 8)), k = gb_input(g, DIMS(1, 3, 8, f->columns)),
        v = gb_input(g, DIMS(1, 3, f->columns, 9)), mask = causal_mask(g, f);
    int y = gb_node(g, SY_OP_MATMUL, INPUTS(q, k), 4, scores);
    if (f->kind == 0)
        y = gb_node(g, SY_OP_ADD, INPUTS(y, mask), 4, scores);
    else if (f->kind == 1)
        y = gb_node(g, SY_OP_WHERE, INPUTS(mask, y, scalar(g, f->gone)), 4, scores);
    else
        y = gb_node(g, SY_OP_WHERE, INPUTS(mask, scalar(g, f->gone), y), 4, scores);
    y = gb_node(g, SY_OP_SOFTMAX, INPUTS(y), 4, scores);
    gb_int(g, "axis", 3);
    gb_output(g, gb_node(g, SY_OP_MATMUL, INPUTS(y, v), 4, made));
    return g;
}

/* What the node of attention says of its mask, in what the engine runs. */
static int64_t seen_as_causal(const struct sy_graph *g)
{
    struct engine_rig rig;
    int64_t n = 0;
    assert_int_equal(rig_open(&rig, g, true), 0);
    for (int i = 0; i < rig.graph->n_nodes; i++) {
        const struct sy_attr *causal = sy_node_attr(&rig.graph->nodes[i], "mask_causal");
        n += causal && causal->n == 1 ? causal->ints[0] : 0;
    }
    rig_close(&rig);
    return n;
}

/* A triangle is seen, however it is written; what only looks like one is not. Right are both, also where tiles are not full and where there are
 * more keys than queries. */
static void test_causal_masks(void **state)
{
    static const double gone[] = {-INFINITY, -3.4028234663852886e38, -1e9, -1e4};
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct causal f = {.rows = i % 4 ? rig_int(&seed, 2, 150) : 64,
                           .ahead = i % 3 ? 1 : rig_int(&seed, 1, 70),
                           .kind = i / 2 % 3,
                           .rank = 2 + 2 * (i % 2),
                           .gone = gone[i / 6],
                           .odd = -1};
        f.columns = f.rows + f.ahead - 1;
        f.odd = i % 5 == 4 ? rig_int(&seed, 1, f.rows * f.columns - 1) : -1;
        struct sy_graph *g = causal_graph(&f);
        if (seen_as_causal(g) != (f.odd < 0 ? f.ahead : 0))
            fail_msg("%s: seen as %lld", g->name, (long long)seen_as_causal(g));
        check_one(g, 5e-5);
    }
}

/* Layers that share a mask, which one keeps by and another drops by: each has its own answer. */
static void test_shared_masks(void **state)
{
    static const int64_t scores[] = {1, 3, 5, 5};
    static const int order[] = {1, 1, 2, 2, 1};
    const struct causal f = {.rows = 5, .columns = 5, .ahead = 1, .kind = 1, .rank = 2, .odd = -1};
    struct sy_graph *g = gb_new("layers with one mask");
    struct engine_rig rig;
    int x = gb_input(g, DIMS(1, 3, 5, 5)), q = gb_input(g, DIMS(1, 3, 5, 5)),
        mask = causal_mask(g, &f), n = 0;
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(order); i++) {
        int y = gb_node(g, SY_OP_MATMUL, INPUTS(q, x), 4, scores), gone = scalar(g, -1e4);
        y = order[i] == 1 ? gb_node(g, SY_OP_WHERE, INPUTS(mask, y, gone), 4, scores)
                          : gb_node(g, SY_OP_WHERE, INPUTS(mask, gone, y), 4, scores);
        y = gb_node(g, SY_OP_SOFTMAX, INPUTS(y), 4, scores);
        gb_int(g, "axis", 3);
        x = gb_node(g, SY_OP_MATMUL, INPUTS(y, x), 4, scores);
    }
    gb_output(g, x);
    assert_int_equal(rig_open(&rig, g, true), 0);
    for (int i = 0; i < rig.graph->n_nodes; i++) {
        if (rig.graph->nodes[i].op != SY_OP_ATTENTION)
            continue;
        const struct sy_attr *causal = sy_node_attr(&rig.graph->nodes[i], "mask_causal");
        assert_int_equal(causal ? causal->ints[0] : 0, order[n++] == 1);
    }
    rig_close(&rig);
    check_in(g, SY_ARRAY_LEN(order), SY_PRECISION_F32, 5e-5);
}

/* A number that the mask cannot have would have engines read beyond it, or leave out what it keeps. */
static void test_impossible_causal_masks(void **state)
{
    static const struct {
        int64_t rows, columns, causal;
        int status;
    } cases[] = {{4, 6, 3, SY_OK},       {4, 6, 6, SY_OK},
                 {4, 6, 7, SY_ECORRUPT}, {4, 6, -1, SY_ECORRUPT},
                 {1, 6, 3, SY_ECORRUPT}, {1, 6, 0, SY_OK},
                 {4, 1, 1, SY_ECORRUPT}, {4, 6, INT64_MAX, SY_ECORRUPT}};
    static const int64_t axes[] = {0, 1, 2};
    int64_t bools[4 * 6] = {0};
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        struct sy_graph *g = gb_new("impossible");
        struct sy_attention a;
        struct sy_attr *fills;
        const int64_t kind = SY_MASK_KEEP, size[] = {cases[i].rows, cases[i].columns};
        int mask = gb_constant_of(g, SY_DTYPE_BOOL, 2, size, bools);
        int q = gb_input(g, DIMS(3, 4, 8)), k = gb_input(g, DIMS(3, 8, 6)),
            v = gb_input(g, DIMS(3, 6, 5));
        gb_output(g, gb_node(g, SY_OP_ATTENTION, INPUTS(q, k, v, mask), DIMS(3, 4, 5)));
        gb_ints(g, "q_perm", 3, axes);
        gb_ints(g, "k_perm", 3, axes);
        gb_ints(g, "v_perm", 3, axes);
        gb_ints(g, "y_perm", 3, axes);
        gb_ints(g, "mask_kinds", 1, &kind);
        gb_ints(g, "mask_causal", 1, &cases[i].causal);
        struct sy_node *node = &g->nodes[g->n_nodes - 1];
        assert_int_equal(sy_node_attr_slot(node, "mask_fills", &fills), SY_OK);
        fills->kind = SY_ATTR_FLOATS;
        assert_int_equal(sy_graph_alloc(1, sizeof *fills->floats, &fills->floats), SY_OK);
        fills->floats[0] = -INFINITY;
        fills->n = 1;
        assert_int_equal(sy_attention_read(g, node, 1, &a), cases[i].status);
        sy_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_forms),
        cmocka_unit_test(test_attention_blocks),
        cmocka_unit_test(test_attention_of_parameter),
        cmocka_unit_test(test_no_attention),
        cmocka_unit_test(test_attention_sizes),
        cmocka_unit_test(test_attention_narrow),
        cmocka_unit_test(test_attention_of_groups),
        cmocka_unit_test(test_causal_masks),
        cmocka_unit_test(test_shared_masks),
        cmocka_unit_test(test_impossible_causal_masks),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
