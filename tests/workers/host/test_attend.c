/* ONNX's Attention, of random forms: against its definition in double, taken apart and fused, with lengths that are open and that are numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_bind.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

enum { FLOAT = 1, INT64 = 7, BOOL = 9, ROUNDS = 60, BATCH = 2 };
enum { Q, K, V, MASK, PAST_K, PAST_V, VALID, INPUTS_MOST };
enum mask_kind { NO_MASK, BOOLS, NUMBERS };

struct form {
    int64_t heads, groups, size, value_size, queries, keys, past, left, right;
    bool rows, causal, valid, open;
    enum mask_kind mask;
    float cap, scale; /* scale 0: left out */
    int64_t dims[INPUTS_MOST][4];
    int rank[INPUTS_MOST]; /* 0: the input is left out */
    float *data[INPUTS_MOST];
};

static struct ob graph, node;
static uint64_t seed;

static int64_t number(int64_t low, int64_t high)
{
    return rig_int(&seed, low, high);
}

static void set_dims(struct form *f, int i, int rank, const int64_t *dims)
{
    f->rank[i] = rank;
    memcpy(f->dims[i], dims, (size_t)rank * sizeof *dims);
}

static void operand_dims(struct form *f, int i, int64_t length, int64_t heads, int64_t size)
{
    if (f->rows)
        set_dims(f, i, DIMS(BATCH, length, heads * size));
    else
        set_dims(f, i, DIMS(BATCH, heads, length, size));
}

static void choose(struct form *f, int round)
{
    *f = (struct form){.groups = number(1, 2),
                       .size = 2 * number(1, 5),
                       .value_size = number(1, 6),
                       .queries = number(1, 5),
                       .keys = number(1, 6),
                       .left = round % 5 == 1 ? number(0, 3) : -1,
                       .right = round % 5 == 2 ? number(0, 2) : -1,
                       .rows = round % 2,
                       .causal = round % 3 == 0,
                       .valid = round % 7 == 3,
                       .open = round % 4 == 1,
                       .mask = (enum mask_kind)(round % 11 % 3),
                       .cap = round % 6 == 5 ? 1.5f : 0,
                       .scale = round % 4 == 2 ? 0.3f : 0};
    f->heads = f->groups * number(1, 3);
    f->past = f->valid || round % 3 != 1 ? 0 : number(1, 4);
    operand_dims(f, Q, f->queries, f->heads, f->size);
    operand_dims(f, K, f->keys, f->groups, f->size);
    operand_dims(f, V, f->keys, f->groups, f->value_size);
    if (f->past > 0) {
        set_dims(f, PAST_K, DIMS(BATCH, f->groups, f->past, f->size));
        set_dims(f, PAST_V, DIMS(BATCH, f->groups, f->past, f->value_size));
    }
    if (f->mask != NO_MASK) /* now and then with fewer columns than keys */
        set_dims(f, MASK, DIMS(f->queries, f->past + f->keys - (!f->open && f->keys > 2)));
    if (f->valid)
        set_dims(f, VALID, DIMS(BATCH));
}

static int64_t elements(const struct form *f, int i)
{
    int64_t n = f->rank[i] > 0;
    for (int d = 0; d < f->rank[i]; d++)
        n *= f->dims[i][d];
    return n;
}

/* As floats, also what the graph takes as int64 or bool. */
static void fill(struct form *f)
{
    for (int i = 0; i < INPUTS_MOST; i++) {
        f->data[i] = calloc((size_t)elements(f, i) + 1, sizeof(float));
        for (int64_t k = 0; k < elements(f, i); k++)
            f->data[i][k] = i == VALID                       ? (float)number(1, f->keys)
                            : i == MASK && f->mask == BOOLS  ? (float)number(0, 1)
                            : i == MASK && number(0, 3) == 0 ? -INFINITY
                                                             : (float)gb_uniform(&seed, -1, 1);
    }
}

/* ---- the definition ----------------------------------------------------------------------------- */

/* Element `at` of head `head` (of keys or values), row `row` counted from the past on. */
static double element(const struct form *f, int i, int64_t b, int64_t head, int64_t row, int64_t at)
{
    int64_t past = i == Q ? 0 : f->past, heads = i == Q ? f->heads : f->groups,
            size = i == V ? f->value_size : f->size;
    if (row < past)
        return (double)
            f->data[i == K ? PAST_K : PAST_V][((b * heads + head) * past + row) * size + at];
    int64_t length = i == Q ? f->queries : f->keys;
    row -= past;
    return (double)f->data[i][f->rows ? (b * length + row) * heads * size + head * size + at
                                      : ((b * heads + head) * length + row) * size + at];
}

/* What is added to the score of query i and key j; -INFINITY: it does not count. */
static double bias(const struct form *f, int64_t b, int64_t i, int64_t j)
{
    double valid = f->valid ? (double)f->data[VALID][b] : (double)(f->past + f->keys);
    int64_t place = i + (f->valid ? (int64_t)valid - f->queries : f->past);
    if ((double)j >= valid || (f->causal && j > place) || (f->left >= 0 && j < place - f->left) ||
        (f->right >= 0 && j > place + f->right))
        return -INFINITY;
    if (f->mask == NO_MASK)
        return 0;
    int64_t columns = f->dims[MASK][1];
    if (j >= columns)
        return -INFINITY;
    double m = (double)f->data[MASK][i * columns + j];
    return f->mask == NUMBERS ? m : m > 0 ? 0 : -INFINITY;
}

static double attended(const struct form *f, int64_t b, int64_t head, int64_t i, int64_t at)
{
    double scale = f->scale > 0 ? (double)f->scale : 1 / sqrt((double)f->size), sum = 0, all = 0;
    for (int64_t j = 0, group = head / (f->heads / f->groups); j < f->past + f->keys; j++) {
        double score = 0, add = bias(f, b, i, j);
        for (int64_t k = 0; k < f->size; k++)
            score += element(f, Q, b, head, i, k) * element(f, K, b, group, j, k) * scale;
        if (f->cap > 0)
            score = (double)f->cap * tanh(score / (double)f->cap);
        double weight =
            isinf(add) ? 0 : exp(score + add); /* small enough not to need the largest */
        sum += weight * element(f, V, b, group, j, at);
        all += weight;
    }
    return all > 0 ? sum / all : 0;
}

/* ---- the graph ---------------------------------------------------------------------------------- */

static const char *const names[] = {"q", "k", "v", "mask", "pk", "pv", "valid"};

static void declare(const struct form *f, int i)
{
    int64_t dims[4];
    int type = i == VALID ? INT64 : i == MASK && f->mask == BOOLS ? BOOL : FLOAT;
    memcpy(dims, f->dims[i], sizeof dims);
    if (i != MASK)
        dims[0] = -1;
    if (f->open && i < MASK) /* L2 queries, L3 keys */
        dims[f->rows ? 1 : 2] = i == Q ? -2 : -3;
    ob_input(&graph, OB_GRAPH_INPUT, names[i], type, f->rank[i], dims);
}

static struct sy_graph *import(const struct form *f, bool fuse)
{
    const char *inputs[INPUTS_MOST + 1] = {0};
    struct sy_graph *g;
    ob_graph(&graph);
    for (int i = 0; i < INPUTS_MOST; i++) {
        inputs[i] = f->rank[i] > 0 ? names[i] : "";
        if (f->rank[i] > 0)
            declare(f, i);
    }
    ob_node(&node, "Attention", inputs, NAMES("y"));
    ob_attr_int(&node, "is_causal", f->causal);
    if (f->rows)
        ob_attr_int(&node, "q_num_heads", f->heads);
    if (f->rows)
        ob_attr_int(&node, "kv_num_heads", f->groups);
    if (f->scale > 0)
        ob_attr_float(&node, "scale", f->scale);
    ob_attr_float(&node, "softcap", f->cap);
    ob_attr_int(&node, "left_window_size", f->left);
    ob_attr_int(&node, "right_window_size", f->right);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(ob_path, &graph, 25);
    g = onnx_optimized(ob_path);
    if (fuse && rig_engine.ops->fuses && sy_graph_fuse(g, rig_engine.ops->fuses) < 0)
        fail_msg("%s", sy_error_text());
    return g;
}

static struct sy_graph *bind(const struct form *f, const struct sy_graph *open)
{
    struct sy_given_input given[INPUTS_MOST];
    struct sy_sizes sizes;
    struct sy_graph *bound;
    int64_t batch;
    int n = 0;
    for (int i = 0; i < INPUTS_MOST; i++)
        if (f->rank[i] > 0) {
            given[n] = (struct sy_given_input){n, f->rank[i], f->dims[i]};
            n++;
        }
    if (sy_graph_solve(open, n, given, &batch, &sizes) < 0 ||
        sy_graph_bind(open, &sizes, &bound) < 0)
        fail_msg("%s", sy_error_text());
    return bound;
}

static void put_inputs(const struct form *f, const struct sy_graph *g, struct rig_tensors *in)
{
    for (int i = 0, n = 0; i < INPUTS_MOST; i++) {
        if (f->rank[i] == 0)
            continue;
        enum sy_dtype dtype = g->tensors[g->inputs[n]].dtype;
        void *to = in->data[n++];
        for (int64_t k = 0; k < elements(f, i); k++)
            if (dtype == SY_DTYPE_I64)
                ((int64_t *)to)[k] = (int64_t)f->data[i][k];
            else if (dtype == SY_DTYPE_BOOL)
                ((unsigned char *)to)[k] = f->data[i][k] > 0;
            else
                ((float *)to)[k] = f->data[i][k];
    }
}

static void assert_attended(const struct form *f, const float *y)
{
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t head = 0; head < f->heads; head++)
            for (int64_t i = 0; i < f->queries; i++)
                for (int64_t at = 0; at < f->value_size; at++) {
                    int64_t place = f->rows ? ((b * f->queries + i) * f->heads + head)
                                            : ((b * f->heads + head) * f->queries + i);
                    double want = attended(f, b, head, i, at),
                           got = (double)y[place * f->value_size + at];
                    if (!(fabs(got - want) < 1e-4))
                        fail_msg("b %d head %d query %d: %g, not %g", (int)b, (int)head, (int)i,
                                 got, want);
                }
}

static void check(const struct form *f, bool fuse)
{
    struct engine_rig rig;
    struct rig_tensors in, out;
    struct sy_graph *open = import(f, fuse), *g = bind(f, open);
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, BATCH);
    rig_take(&rig, g->inputs, g->n_inputs, BATCH, 0, &in);
    rig_take(&rig, g->outputs, g->n_outputs, BATCH, 0xff, &out);
    put_inputs(f, g, &in);
    if (rig_run(&rig, program, &in, &out, 0xff, &seed) < 0)
        fail_msg("%s", sy_error_text());
    assert_attended(f, out.data[0]);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
    sy_graph_free(open);
}

static void test_forms(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct form f;
        choose(&f, round);
        fill(&f);
        check(&f, false);
        check(&f, true);
        for (int i = 0; i < INPUTS_MOST; i++)
            free(f.data[i]);
    }
}

/* Masks and shared heads are still one node of attention afterwards. */
static void test_it_is_fused(void **state)
{
    (void)state;
    struct form f = {.heads = 4,
                     .groups = 2,
                     .size = 8,
                     .value_size = 8,
                     .queries = 5,
                     .keys = 5,
                     .left = -1,
                     .right = -1,
                     .rows = true,
                     .causal = true,
                     .mask = BOOLS};
    int n = 0;
    operand_dims(&f, Q, f.queries, f.heads, f.size);
    operand_dims(&f, K, f.keys, f.groups, f.size);
    operand_dims(&f, V, f.keys, f.groups, f.value_size);
    set_dims(&f, MASK, DIMS(f.queries, f.keys));
    struct sy_graph *g = import(&f, true);
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == SY_OP_ATTENTION;
    assert_int_equal(n, 1);
    for (int i = 0; i < g->n_nodes; i++)
        assert_true(g->nodes[i].op != SY_OP_SOFTMAX && g->nodes[i].op != SY_OP_MATMUL);
    sy_graph_free(g);
}

static void test_refuses_what_does_not_fit(void **state)
{
    (void)state;
    struct sy_graph *g;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "q", FLOAT, DIMS(-1, 3, 10));
    ob_node(&node, "Attention", NAMES("q", "q", "q"), NAMES("y"));
    ob_attr_int(&node, "q_num_heads", 4);
    ob_attr_int(&node, "kv_num_heads", 4);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(ob_path, &graph, 23);
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_ECORRUPT);
    assert_non_null(strstr(sy_error_text(), "(Attention, opset 23): 4 heads for 10 numbers"));
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_it_is_fused),
        cmocka_unit_test(test_refuses_what_does_not_fit),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}
