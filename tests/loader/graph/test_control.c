/* If and Loop from ONNX files through import and the host engine: results against the same computation here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

enum { WIDTH = 32, FLOAT = 1, INT64 = 7, BOOL = 9 };

static char path[64];
static struct ob graph, body, other, node;
static float weights[WIDTH][WIDTH];
static uint64_t seed;

static void result(struct ob *to, const char *name, int type)
{
    ob_input(to, OB_GRAPH_OUTPUT, name, type, 0, NULL);
}

static void scalar_bool(struct ob *to, const char *name, unsigned char value)
{
    ob_initializer(to, name, BOOL, 0, NULL, &value, 1);
}

static void fill_weights(void)
{
    for (int i = 0; i < WIDTH * WIDTH; i++)
        weights[i / WIDTH][i % WIDTH] = (float)gb_uniform(&seed, -0.2, 0.2);
}

/* y = tanh(x * w) */
static void product(const float *x, float *y)
{
    for (int k = 0; k < WIDTH; k++) {
        double sum = 0;
        for (int i = 0; i < WIDTH; i++)
            sum += (double)x[i] * (double)weights[i][k];
        y[k] = (float)tanh(sum);
    }
}

static struct sy_graph *import(bool optimize)
{
    ob_save(path, &graph, 13);
    return optimize ? onnx_optimized(path) : onnx_inferred(path);
}

/* The engine's outputs; the graph goes through the package's encoding on the way (rig_open copies it). Takes `g`. */
static int run(struct sy_graph *g, int64_t batch, void *const *inputs, struct rig_tensors *out)
{
    struct engine_rig rig;
    struct rig_tensors in;
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, batch);
    rig_take(&rig, g->inputs, g->n_inputs, batch, 0, &in);
    for (int i = 0; i < in.n; i++)
        memcpy(in.data[i], inputs[i], in.bytes[i]);
    rig_take(&rig, g->outputs, g->n_outputs, batch, 0xff, out);
    int status = rig_run(&rig, program, &in, out, 0xff, &seed);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_close(&rig);
    sy_graph_free(g);
    return status;
}

static void random_floats(float *to, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = (float)gb_uniform(&seed, -1, 1);
}

static void assert_close(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        assert_true(fabsf(a[i] - b[i]) < 1e-5f);
}

/* if flag: tanh(x * w) else: x, for both values; w is a parameter of the If. */
static void branches(void)
{
    ob_graph(&body);
    ob_add(&body, "MatMul", NAMES("x", "w"), NAMES("p"));
    ob_add(&body, "Tanh", NAMES("p"), NAMES("t"));
    result(&body, "t", FLOAT);
    ob_graph(&other);
    result(&other, "x", FLOAT);
    ob_node(&node, "If", NAMES("flag"), NAMES("y"));
    ob_attr_graph(&node, "then_branch", &body);
    ob_attr_graph(&node, "else_branch", &other);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_initializer(&graph, "w", FLOAT, DIMS(WIDTH, WIDTH), weights, sizeof weights);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
}

static void test_if(void **state)
{
    (void)state;
    float x[3 * WIDTH], want[3 * WIDTH];
    for (int round = 0; round < 8; round++) {
        unsigned char flag = round & 1;
        bool known = round & 2;
        fill_weights();
        ob_graph(&graph);
        branches();
        if (known)
            scalar_bool(&graph, "flag", flag);
        else
            ob_input(&graph, OB_GRAPH_INPUT, "flag", BOOL, 0, NULL);
        random_floats(x, 3 * WIDTH);
        memcpy(want, x, sizeof want);
        for (int b = 0; flag && b < 3; b++)
            product(&x[b * WIDTH], &want[b * WIDTH]);
        struct sy_graph *g = import(round & 4);
        struct rig_tensors out;
        assert_int_equal(run(g, 3, (void *[]){x, &flag}, &out), SY_OK);
        assert_close(out.data[0], want, 3 * WIDTH);
        rig_drop(&out);
    }
}

/* for i < count while more: h = tanh(h * w) + i; more = i < stop; all h are a result too. */
static void loop(bool with_count, bool with_condition, bool with_scan)
{
    ob_graph(&body);
    ob_input(&body, OB_GRAPH_INPUT, "i", INT64, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "more", BOOL, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "h", FLOAT, 0, NULL);
    ob_add(&body, "MatMul", NAMES("h", "w"), NAMES("p"));
    ob_add(&body, "Tanh", NAMES("p"), NAMES("t"));
    ob_node(&node, "Cast", NAMES("i"), NAMES("f"));
    ob_attr_int(&node, "to", FLOAT);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_add(&body, "Add", NAMES("t", "f"), NAMES("next"));
    if (with_condition)
        ob_add(&body, "Less", NAMES("i", "stop"), NAMES("go"));
    else
        ob_add(&body, "Identity", NAMES("more"), NAMES("go"));
    result(&body, "go", BOOL);
    result(&body, "next", FLOAT);
    if (with_scan)
        result(&body, "t", FLOAT);
    ob_node(&node, "Loop", NAMES(with_count ? "count" : "", "", "x"),
            with_scan ? NAMES("y", "all") : NAMES("y"));
    ob_attr_graph(&node, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    if (with_condition)
        ob_input(&graph, OB_GRAPH_INPUT, "stop", INT64, 0, NULL);
    ob_initializer(&graph, "w", FLOAT, DIMS(WIDTH, WIDTH), weights, sizeof weights);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    if (with_scan)
        ob_input(&graph, OB_GRAPH_OUTPUT, "all", FLOAT, DIMS(-1, -1, WIDTH));
}

static void check_loop(int64_t count, int64_t stop, bool with_scan)
{
    float x[2 * WIDTH], h[2 * WIDTH], t[2 * WIDTH], all[16 * 2 * WIDTH];
    int64_t i = 0;
    struct rig_tensors out;
    fill_weights();
    ob_graph(&graph);
    loop(count >= 0, stop >= 0, with_scan);
    if (count >= 0)
        ob_int64s(&graph, "count", 0, &count);
    random_floats(x, 2 * WIDTH);
    memcpy(h, x, sizeof h);
    for (bool more = true; more && (count < 0 || i < count); i++) {
        for (int b = 0; b < 2; b++)
            product(&h[b * WIDTH], &t[b * WIDTH]);
        memcpy(&all[i * 2 * WIDTH], t, sizeof t);
        for (int k = 0; k < 2 * WIDTH; k++)
            h[k] = t[k] + (float)i;
        more = stop < 0 || i < stop;
    }
    assert_int_equal(run(import(count & 1), 2, (void *[]){x, &stop}, &out), SY_OK);
    assert_close(out.data[0], h, 2 * WIDTH);
    if (with_scan) {
        assert_int_equal(out.bytes[1], (uint64_t)i * sizeof t);
        assert_close(out.data[1], all, (int)i * 2 * WIDTH);
    }
    rig_drop(&out);
}

static void test_loop(void **state)
{
    (void)state;
    for (int64_t count = 0; count < 6; count++)
        check_loop(count, -1, true);
    check_loop(9, 3, false);
    check_loop(2, 7, false);
    check_loop(-1, 5, false);
}

/* A loop that does not end, which only its run can know, is an error of that run. */
static void test_loop_without_end(void **state)
{
    bool go = true;
    (void)state;
    float x[2 * 1] = {0};
    struct rig_tensors out;
    ob_graph(&body);
    ob_input(&body, OB_GRAPH_INPUT, "i", INT64, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "more", BOOL, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "h", FLOAT, 0, NULL);
    result(&body, "more", BOOL);
    result(&body, "h", FLOAT);
    ob_graph(&graph);
    ob_node(&node, "Loop", NAMES("", "go", "x"), NAMES("y"));
    ob_attr_graph(&node, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 1));
    ob_input(&graph, OB_GRAPH_INPUT, "go", BOOL, DIMS(1));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, 1));
    assert_int_equal(run(import(true), 2, (void *[]){x, &go}, &out), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "is not done"));
    rig_drop(&out);
}

static void refused(const char *what)
{
    struct sy_graph *g = NULL;
    ob_save(path, &graph, 13);
    int status = sy_onnx_read(path, &g);
    if (status == SY_OK)
        status = sy_graph_infer(g);
    assert_true(status == SY_EUNSUPPORTED || status == SY_ECORRUPT);
    if (!strstr(sy_error_text(), what))
        fail_msg("'%s' does not contain '%s'", sy_error_text(), what);
    sy_graph_free(g);
}

static void if_of(const struct ob *then_branch, const struct ob *else_branch)
{
    ob_graph(&graph);
    ob_node(&node, "If", NAMES("flag"), NAMES("y"));
    ob_attr_graph(&node, "then_branch", then_branch);
    ob_attr_graph(&node, "else_branch", else_branch);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_INPUT, "flag", BOOL, 0, NULL);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, 4));
}

static void test_refusals(void **state)
{
    (void)state;
    static struct ob deep;
    ob_graph(&body);
    ob_node(&node, "Cast", NAMES("x"), NAMES("t"));
    ob_attr_int(&node, "to", INT64);
    ob_message(&body, OB_GRAPH_NODE, &node);
    result(&body, "t", INT64);
    ob_graph(&other);
    result(&other, "x", FLOAT);
    if_of(&body, &other);
    refused("other types");

    ob_graph(&body);
    ob_add(&body, "ImageDecoder", NAMES("x"), NAMES("t"));
    result(&body, "t", FLOAT);
    if_of(&other, &body);
    refused("node 't' (ImageDecoder, opset 13)");

    ob_graph(&body);
    ob_add(&body, "Relu", NAMES("nowhere"), NAMES("t"));
    result(&body, "t", FLOAT);
    if_of(&body, &other);
    refused("nothing makes its input 'nowhere'");

    ob_graph(&body);
    result(&body, "x", FLOAT);
    for (int depth = 0; depth < 5; depth++) {
        ob_graph(&deep);
        ob_node(&node, "If", NAMES("flag"), NAMES("z"));
        ob_attr_graph(&node, "then_branch", &body);
        ob_attr_graph(&node, "else_branch", &other);
        ob_message(&deep, OB_GRAPH_NODE, &node);
        result(&deep, "z", FLOAT);
        body = deep;
    }
    if_of(&body, &other);
    refused("nested deeper");
}

/* Bodies nested twice, the inner one reading tensors of both around it. */
static void test_nested(void **state)
{
    (void)state;
    static struct ob inner;
    float x[WIDTH], want[WIDTH];
    struct rig_tensors out;
    fill_weights();
    ob_graph(&inner);
    ob_add(&inner, "MatMul", NAMES("h", "w"), NAMES("p"));
    ob_add(&inner, "Tanh", NAMES("p"), NAMES("q"));
    result(&inner, "q", FLOAT);
    ob_graph(&other);
    ob_add(&other, "Add", NAMES("h", "x"), NAMES("s"));
    result(&other, "s", FLOAT);
    ob_graph(&body);
    ob_input(&body, OB_GRAPH_INPUT, "i", INT64, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "more", BOOL, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "h", FLOAT, 0, NULL);
    ob_int64s(&body, "two", 0, (const int64_t[]){2});
    ob_add(&body, "Less", NAMES("i", "two"), NAMES("early"));
    ob_node(&node, "If", NAMES("early"), NAMES("next"));
    ob_attr_graph(&node, "then_branch", &inner);
    ob_attr_graph(&node, "else_branch", &other);
    ob_message(&body, OB_GRAPH_NODE, &node);
    result(&body, "more", BOOL);
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    ob_int64s(&graph, "count", 0, (const int64_t[]){5});
    ob_node(&node, "Loop", NAMES("count", "", "x"), NAMES("y"));
    ob_attr_graph(&node, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    ob_initializer(&graph, "w", FLOAT, DIMS(WIDTH, WIDTH), weights, sizeof weights);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    random_floats(x, WIDTH);
    product(x, want);
    float first[WIDTH];
    memcpy(first, want, sizeof first);
    product(first, want);
    for (int i = 0; i < WIDTH; i++)
        want[i] += 3 * x[i];
    assert_int_equal(run(import(true), 1, (void *[]){x}, &out), SY_OK);
    assert_close(out.data[0], want, WIDTH);
    rig_drop(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_if),       cmocka_unit_test(test_loop),
        cmocka_unit_test(test_nested),   cmocka_unit_test(test_loop_without_end),
        cmocka_unit_test(test_refusals),
    };
    seed = rig_start();
    snprintf(path, sizeof path, "/tmp/sy-control-%d.onnx", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
