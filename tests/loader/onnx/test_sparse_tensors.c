/* Sparse constants of ONNX files: they are read as dense ones, also in bodies and functions, and bounded in all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"

enum { FLOAT = 1, INT64 = 7, BOOL = 9, MANY = 20 }; /* MANY floats: no small constant */
enum { SPARSE_INITIALIZER = 15, VALUES = 1, INDICES = 2, SIZES = 3 };

static struct ob graph, body, other, node, sparse;

static void sparse_part(int field, const char *name, int type, int rank, const int64_t *dims,
                        const void *raw, size_t bytes)
{
    static struct ob tensor;
    tensor.n = 0;
    for (int i = 0; i < rank; i++)
        ob_varint(&tensor, 1, (uint64_t)dims[i]);
    ob_varint(&tensor, 2, (uint64_t)type);
    ob_text(&tensor, 8, name);
    ob_bytes(&tensor, 9, raw, bytes);
    ob_message(&sparse, field, &tensor);
}

static void add_sizes(struct ob *to, int64_t columns)
{
    ob_varint(&sparse, SIZES, 2);
    ob_varint(&sparse, SIZES, (uint64_t)columns);
    ob_message(to, SPARSE_INITIALIZER, &sparse);
}

/* w [2, columns] of values 1, 2 ... in its first MANY places. */
static void add_many(struct ob *to, int64_t columns)
{
    float values[MANY];
    int64_t places[MANY];
    for (int i = 0; i < MANY; i++) {
        values[i] = (float)(i + 1);
        places[i] = i;
    }
    sparse.n = 0;
    sparse_part(VALUES, "w", FLOAT, DIMS(MANY), values, sizeof values);
    sparse_part(INDICES, "", INT64, DIMS(MANY), places, sizeof places);
    add_sizes(to, columns);
}

/* y = x * w, w [2, columns] of two values at `indices`. */
static void sparse_model(int index_rank, const int64_t *index_dims, const int64_t *indices,
                         size_t index_bytes, int64_t columns)
{
    static const float values[2] = {5, 7};
    sparse.n = 0;
    sparse_part(VALUES, "w", FLOAT, DIMS(2), values, sizeof values);
    sparse_part(INDICES, "", INT64, index_rank, index_dims, indices, index_bytes);
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 2));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, 3));
    add_sizes(&graph, columns);
    ob_add(&graph, "MatMul", NAMES("x", "w"), NAMES("y"));
    ob_save(ob_path, &graph, 13);
}

/* An If into `node`: y = flag ? x * w : x, with w [2, columns] in the branch. */
static void make_if(int64_t columns)
{
    ob_graph(&body);
    add_many(&body, columns);
    ob_add(&body, "MatMul", NAMES("x", "w"), NAMES("t"));
    ob_input(&body, OB_GRAPH_OUTPUT, "t", FLOAT, 0, NULL);
    ob_graph(&other);
    ob_add(&other, "Relu", NAMES("x"), NAMES("e"));
    ob_input(&other, OB_GRAPH_OUTPUT, "e", FLOAT, 0, NULL);
    ob_node(&node, "If", NAMES("flag"), NAMES("y"));
    ob_attr_graph(&node, "then_branch", &body);
    ob_attr_graph(&node, "else_branch", &other);
}

static void begin_graph(void)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 2));
    ob_input(&graph, OB_GRAPH_INPUT, "flag", BOOL, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
}

static int n_constants(const struct sy_graph *g)
{
    int n = 0;
    for (int i = 0; i < g->n_tensors; i++)
        n += g->tensors[i].data != NULL;
    return n;
}

/* The If of `make_if`, whose weights are its last input and the graph's only constant. */
static void expect_if_with_weights(int64_t columns)
{
    struct sy_graph *g;
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_int_equal(g->n_nodes, 1);
    const struct sy_node *branches = &g->nodes[0];
    assert_int_equal(branches->op, SY_OP_IF);
    assert_int_equal(branches->n_inputs, 3); /* flag, x, w */
    assert_int_equal(n_constants(g), 1);
    const struct sy_tensor *w = &g->tensors[branches->inputs[2]];
    assert_int_equal(w->data_bytes, 2 * (size_t)columns * sizeof(float));
    for (int i = 0; i < 2 * columns; i++)
        assert_true(((const float *)w->data)[i] == (float)(i < MANY ? i + 1 : 0));
    sy_graph_free(g);
}

/* ---- tests ------------------------------------------------------------------------------------------ */

static void expect_sparse(const float *want)
{
    struct sy_graph *g;
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    const struct sy_tensor *w = &g->tensors[g->nodes[0].inputs[1]];
    assert_int_equal(w->shape.rank, 2);
    assert_int_equal(w->data_bytes, 6 * sizeof *want);
    assert_memory_equal(w->data, want, 6 * sizeof *want);
    assert_int_equal(n_constants(g), 1);
    sy_graph_free(g);
}

static void test_sparse_initializers_are_dense(void **state)
{
    (void)state;
    static const int64_t linear[2] = {1, 5}, pairs[4] = {0, 2, 1, 0};
    sparse_model(1, (const int64_t[]){2}, linear, sizeof linear, 3);
    expect_sparse((const float[]){0, 5, 0, 0, 0, 7});
    sparse_model(2, (const int64_t[]){2, 2}, pairs, sizeof pairs, 3);
    expect_sparse((const float[]){0, 0, 5, 7, 0, 0});
}

static void test_refuses_sparse_tensors_that_lie(void **state)
{
    (void)state;
    static const int64_t beyond[2] = {1, 6}, few[1] = {1}, pairs[4] = {0, 3, 1, 0};
    sparse_model(1, (const int64_t[]){2}, beyond, sizeof beyond, 3);
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "an index is outside of it");
    sparse_model(2, (const int64_t[]){2, 2}, pairs, sizeof pairs, 3);
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "an index is outside of it");
    sparse_model(1, (const int64_t[]){1}, few, sizeof few, 3);
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "1 elements, 2 of 64 bits are needed");
    sparse_model(1, (const int64_t[]){2}, beyond, sizeof beyond, (int64_t)1 << 40);
    onnx_expect_refusal(ob_path, SY_EUNSUPPORTED, "bytes when it is dense");
}

/* The values alone are nobody's constant, so the node does not take them with it. */
static void test_a_body_takes_the_dense_tensor_only(void **state)
{
    (void)state;
    begin_graph();
    make_if(16);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_save(ob_path, &graph, 13);
    expect_if_with_weights(16);
}

/* Each of the two is below the limit. */
static void test_sparse_tensors_are_bounded_in_all(void **state)
{
    (void)state;
    begin_graph();
    add_many(&graph, 75000000);
    make_if(75000000);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_save(ob_path, &graph, 13);
    onnx_expect_refusal(ob_path, SY_EUNSUPPORTED, "those before it 600000000; at most");
}

/* The If within a function: its weights get the name that their readers get. */
static void test_sparse_tensors_of_functions_are_renamed(void **state)
{
    enum { NAME = 1, INPUT = 4, OUTPUT = 5, NODE = 7, F_DOMAIN = 10, N_DOMAIN = 7, FUNCTION = 25 };
    static struct ob function, tail;
    (void)state;
    function.n = tail.n = 0;
    ob_text(&function, NAME, "choose");
    ob_text(&function, INPUT, "x");
    ob_text(&function, INPUT, "flag");
    ob_text(&function, OUTPUT, "y");
    ob_text(&function, F_DOMAIN, "own");
    make_if(16);
    ob_message(&function, NODE, &node);
    ob_message(&tail, FUNCTION, &function);
    begin_graph();
    ob_node(&node, "choose", NAMES("x", "flag"), NAMES("y"));
    ob_text(&node, N_DOMAIN, "own");
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_save(ob_path, &graph, 13);
    FILE *file = fopen(ob_path, "ab");
    assert_non_null(file);
    assert_int_equal(fwrite(tail.bytes, 1, tail.n, file), tail.n);
    assert_int_equal(fclose(file), 0);
    expect_if_with_weights(16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparse_initializers_are_dense),
        cmocka_unit_test(test_refuses_sparse_tensors_that_lie),
        cmocka_unit_test(test_a_body_takes_the_dense_tensor_only),
        cmocka_unit_test(test_sparse_tensors_are_bounded_in_all),
        cmocka_unit_test(test_sparse_tensors_of_functions_are_renamed),
    };
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}
