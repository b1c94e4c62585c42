/* Ensembles of trees (kernel_trees.c) against a walk of one row through one tree after the other, for all aggregates, with NaN, float and double, and any
 * number of rows; a row's bits are the same alone and among others. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/rigs/seed.h"
#include "workers/host/reference/kernel.h"

enum { TREES = 21, DEPTH = 7, NODES = TREES << (DEPTH + 1), FEATURES = 9, TARGETS = 3, ROWS = 300 };

static struct {
    int32_t nodes[NODES][4], trees[TREES][2], leaves[NODES * (1 + 2 * TARGETS)];
    int n_nodes, n_leaves;
    bool single;
    float narrow[ROWS][FEATURES];
    double wide[ROWS][FEATURES];
    float scores[ROWS * TARGETS], alone[TARGETS];
} m;

static void put_leaf(uint64_t *seed, int at)
{
    float value = (float)seed_below(seed, 100);
    m.nodes[at][0] = m.n_leaves;
    if (m.single)
        memcpy(&m.nodes[at][0], &value, sizeof value);
    m.nodes[at][1] = 1;
    m.nodes[at][2] = m.nodes[at][3] = at;
    if (m.single)
        return;
    int n = (int)seed_below(seed, TARGETS + 1);
    m.leaves[m.n_leaves++] = n;
    for (int i = 0; i < n; i++) {
        value = (float)seed_below(seed, 100);
        m.leaves[m.n_leaves++] = (int32_t)seed_below(seed, TARGETS);
        memcpy(&m.leaves[m.n_leaves++], &value, sizeof value);
    }
}

static int put_tree(uint64_t *seed, int depth, int *deepest)
{
    int at = m.n_nodes++;
    *deepest = depth > *deepest ? depth : *deepest;
    if (depth == DEPTH || seed_below(seed, 5) == 0) {
        put_leaf(seed, at);
        return at;
    }
    float threshold = (float)seed_below(seed, 9) - 4;
    memcpy(&m.nodes[at][0], &threshold, sizeof threshold);
    m.nodes[at][1] = (int32_t)(2 * seed_below(seed, FEATURES) + seed_below(seed, 2));
    m.nodes[at][2] = put_tree(seed, depth + 1, deepest);
    m.nodes[at][3] = put_tree(seed, depth + 1, deepest);
    return at;
}

static void make(uint64_t *seed, bool single, bool nan)
{
    m.n_nodes = m.n_leaves = 0;
    m.single = single;
    for (int t = 0; t < TREES; t++) {
        int deepest = 0;
        m.trees[t][0] = put_tree(seed, 0, &deepest);
        m.trees[t][1] = deepest;
    }
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < FEATURES; i++) {
            bool is_nan = nan && seed_below(seed, 6) == 0;
            m.narrow[row][i] = is_nan ? NAN : (float)seed_below(seed, 17) / 2 - 4;
            m.wide[row][i] = (double)m.narrow[row][i];
        }
}

static float one_of(const char *how, float a, bool first, float b)
{
    if (strcmp(how, "MIN") == 0)
        return first || b < a ? b : a;
    if (strcmp(how, "MAX") == 0)
        return first || b > a ? b : a;
    return a + b;
}

static void score(const char *how, int row, float *to)
{
    bool has[TARGETS] = {false};
    memset(to, 0, TARGETS * sizeof *to);
    for (int t = 0; t < TREES; t++) {
        const int32_t *n = m.nodes[m.trees[t][0]];
        while (n != m.nodes[n[2]]) {
            float threshold, x = m.narrow[row][n[1] / 2];
            memcpy(&threshold, n, sizeof threshold);
            n = m.nodes[isnan(x) ? n[n[1] & 1 ? 2 : 3] : n[x <= threshold ? 2 : 3]];
        }
        const int32_t alone_leaf[] = {1, 0, n[0]}, *leaf = m.single ? alone_leaf : &m.leaves[n[0]];
        for (int i = 0; i < leaf[0]; i++) {
            float value;
            int target = leaf[1 + 2 * i];
            memcpy(&value, &leaf[2 + 2 * i], sizeof value);
            to[target] = one_of(how, to[target], !has[target], value);
            has[target] = true;
        }
    }
    for (int i = 0; i < TARGETS && strcmp(how, "AVERAGE") == 0; i++)
        to[i] /= TREES;
}

static struct sy_array array(enum sy_dtype dtype, int64_t n, const void *data)
{
    return (struct sy_array){dtype, 1, {n}, n, (void *)(uintptr_t)data};
}

static void run(const char *how, enum sy_dtype dtype, int first, int rows, float *out)
{
    int targets = m.single ? 1 : TARGETS;
    struct sy_attr attrs[] = {
        {.name = "targets", .kind = SY_ATTR_INT, .i = targets},
        {.name = "features", .kind = SY_ATTR_INT, .i = FEATURES},
        {.name = "single", .kind = SY_ATTR_INT, .i = m.single},
        {.name = "aggregate", .kind = SY_ATTR_STRING, .s = (char *)(uintptr_t)how},
    };
    struct sy_node node = {.op = SY_OP_TREES, .name = "trees", .attrs = attrs, .n_attrs = 4};
    const void *x = dtype == SY_DTYPE_F32 ? (void *)m.narrow[first] : (void *)m.wide[first];
    struct sy_call call = {.node = &node, .n_in = 5, .n_out = 1};
    call.in[0] = (struct sy_array){
        dtype, 2, {rows, FEATURES}, (int64_t)rows * FEATURES, (void *)(uintptr_t)x};
    call.in[1] = array(SY_DTYPE_I32, 4 * (int64_t)m.n_nodes, m.nodes);
    call.in[2] = array(SY_DTYPE_I32, 2 * TREES, m.trees);
    call.in[3] = array(SY_DTYPE_I32, m.n_leaves, m.leaves);
    call.in[4] = array(SY_DTYPE_F64, 0, NULL);
    call.out[0] = (struct sy_array){SY_DTYPE_F32, 2, {rows, targets}, (int64_t)rows * targets, out};
    const struct sy_kernel *k = sy_kernels_trees;
    while (k->op != SY_OP_TREES)
        k++;
    assert_int_equal(k->check(&call), 0);
    assert_int_equal(k->run(&call), 0);
}

static void check(const char *how, enum sy_dtype dtype, int rows)
{
    int targets = m.single ? 1 : TARGETS;
    float want[TARGETS];
    run(how, dtype, 0, rows, m.scores);
    for (int row = 0; row < rows; row++) {
        score(how, row, want);
        run(how, dtype, row, 1, m.alone);
        assert_memory_equal(m.alone, m.scores + row * targets, (size_t)targets * sizeof *m.alone);
        for (int i = 0; i < targets; i++)
            if (m.alone[i] != want[i])
                fail_msg("%s, row %d of %d, target %d: %g, not %g", how, row, rows, i,
                         (double)m.alone[i], (double)want[i]);
    }
}

static void ensembles_are_their_trees(void **state)
{
    static const char *const hows[] = {"SUM", "AVERAGE", "MIN", "MAX"};
    static const int rows[] = {1, 2, 7, 8, 9, 63, 64, 65, ROWS};
    uint64_t seed = seed_of_run(1);
    (void)state;
    for (int k = 0; k < 16; k++) {
        make(&seed, k & 1, k & 2);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            check(hows[k / 4], seed_below(&seed, 2) ? SY_DTYPE_F32 : SY_DTYPE_F64, rows[r]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ensembles_are_their_trees)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
