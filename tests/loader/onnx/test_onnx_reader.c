/* The ONNX reader: what it reads, what it refuses, and that no bytes make it crash. ONNX's own test models (Debian's
 * libonnx-testdata) give the expected output shapes. */
#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/graph/graph.h"
#include "loader/graph/list_ends.h"
#include "onnx.pb-c.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/seed.h"

static struct ob graph, node;

static void save(int opset)
{
    ob_save(ob_path, &graph, opset);
}

static void add(void)
{
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

/* y = x + c, the node before its Constant and out of order. */
static void small_model(void)
{
    static const float c[4] = {1, 2, 3, 4};
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 4));
    ob_node(&node, "Relu", NAMES("sum"), NAMES("y"));
    add();
    ob_node(&node, "Add", NAMES("x", "c"), NAMES("sum"));
    add();
    ob_initializer(&graph, "c", 1, DIMS(4), c, sizeof c);
    save(13);
}

static void test_reads_and_sorts(void **state)
{
    (void)state;
    struct sy_graph *g;
    small_model();
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_int_equal(g->n_nodes, 2);
    assert_int_equal(g->nodes[0].op, SY_OP_ADD);
    assert_int_equal(g->nodes[1].op, SY_OP_RELU);
    assert_int_equal(g->n_inputs, 1);
    const struct sy_tensor *x = &g->tensors[g->inputs[0]], *c = &g->tensors[g->nodes[0].inputs[1]];
    assert_int_equal(x->shape.dims[0].per_batch, 1);
    assert_int_equal(x->shape.dims[1].fixed, 4);
    assert_int_equal(c->data_bytes, 16);
    assert_true(((const float *)c->data)[3] == 4);
    sy_graph_free(g);
}

static void test_refuses_operator(void **state)
{
    (void)state;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 4));
    ob_node(&node, "ImageDecoder", NAMES("x"), NAMES("y"));
    add();
    save(13);
    onnx_expect_refusal(ob_path, SY_EUNSUPPORTED, "node 'y' (ImageDecoder, opset 13)");
    save(29);
    onnx_expect_refusal(ob_path, SY_EUNSUPPORTED, "opset 29");

    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 4));
    ob_node(&node, "Dropout", NAMES("x"), NAMES("y"));
    add();
    save(3);
    onnx_expect_refusal(ob_path, SY_EUNSUPPORTED, "node 'y' (Dropout, opset 3)");
}

static void test_refuses_broken_edges(void **state)
{
    (void)state;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 4));
    ob_node(&node, "Relu", NAMES("a"), NAMES("y"));
    add();
    save(13);
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "nothing makes its input 'a'");
    ob_node(&node, "Relu", NAMES("y"), NAMES("a"));
    add();
    save(13);
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "depends on itself");
    ob_node(&node, "Tanh", NAMES("y"), NAMES("a"));
    add();
    save(13);
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "'a' is made twice");
}

static void test_refuses_wrong_sizes(void **state)
{
    (void)state;
    static const float c[4];
    ob_graph(&graph);
    ob_initializer(&graph, "weights", 1, DIMS(5), c, sizeof c);
    save(13);
    onnx_expect_refusal(ob_path, SY_ECORRUPT,
                        "'weights' has 16 bytes of raw data, its shape needs 20");
    ob_graph(&graph);
    ob_initializer(&graph, "weights", 1, DIMS(INT64_MAX, INT64_MAX), c, sizeof c);
    save(13);
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "'weights'");
    ob_graph(&graph);
    ob_initializer(&graph, "weights", 1, DIMS(-4), c, sizeof c);
    save(13);
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "'weights'");
    ob_graph(&graph);
    ob_initializer(&graph, "weights", 14, DIMS(4), c, sizeof c); /* complex numbers */
    save(13);
    onnx_expect_refusal(ob_path, SY_EUNSUPPORTED, "element type 14");
}

static void test_refuses_deep_nesting(void **state)
{
    (void)state;
    static struct ob inner, attr;
    inner.n = 0;
    for (int i = 0; i < 2000; i++) { /* graph in attribute in node in graph ... */
        attr.n = 0;
        ob_message(&attr, 6, &inner);
        node.n = 0;
        ob_message(&node, 5, &attr);
        inner.n = 0;
        ob_message(&inner, OB_GRAPH_NODE, &node);
    }
    ob_graph(&graph);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    save(13);
    onnx_expect_refusal(ob_path, SY_EUNSUPPORTED, "nested deeper");
}

/* A tensor kept in `file`. */
static void external_model(const char *location, const char *offset, const char *length)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_OUTPUT, "c", 1, DIMS(4));
    ob_external(&graph, "c", location, offset, length);
    save(13);
}

static void test_external_data(void **state)
{
    (void)state;
    static const float data[6] = {9, 1, 2, 3, 4, 9};
    char other[96];
    struct sy_graph *g;
    snprintf(other, sizeof other, "%s/w.bin", ob_folder);
    FILE *file = fopen(other, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, sizeof data, 1, file), 1);
    fclose(file);
    external_model("w.bin", "4", "16");
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_memory_equal(g->tensors[g->outputs[0]].data, data + 1, 16);
    sy_graph_free(g);
    external_model("w.bin", "12", "16");
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "w.bin has 24 bytes");
    external_model("w.bin", "-4", "16");
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "not a number");
    external_model("../w.bin", "4", "16");
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "next to the model");
    external_model("/etc/passwd", "4", "16");
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "next to the model");
    external_model("gone.bin", "4", "16");
    onnx_expect_refusal(ob_path, SY_ENOTFOUND, "gone.bin");

    char link[96];
    snprintf(link, sizeof link, "%s/link.bin", ob_folder);
    assert_int_equal(symlink("/etc/passwd", link), 0);
    external_model("link.bin", "0", "16");
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "a link out of the model's folder");
    unlink(link);
    assert_int_equal(symlink("/etc", link), 0);
    external_model("link.bin/passwd", "0", "16");
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "a link out of the model's folder");
    unlink(link);
    assert_int_equal(symlink("w.bin", link), 0);
    external_model("link.bin", "4", "16");
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    sy_graph_free(g);
    unlink(link);
    unlink(other);
}

static void test_not_a_file(void **state)
{
    (void)state;
    struct sy_graph *g = NULL;
    assert_int_equal(sy_onnx_read("/nonexistent/model.onnx", &g), SY_ENOTFOUND);
    assert_int_equal(sy_onnx_read(ob_folder, &g), SY_EARG);
    FILE *file = fopen(ob_path, "wb");
    fputs("this is no model", file);
    fclose(file);
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "not an ONNX file");
}

/* Sizes that no machine has, in inputs, and declared for a result whose size depends on data. */
static void test_refuses_absurd_sizes(void **state)
{
    (void)state;
    struct sy_graph *g = NULL;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(1ll << 31, 1ll << 31));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1));
    ob_node(&node, "Relu", NAMES("x"), NAMES("y"));
    add();
    save(13);
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_ECORRUPT);
    sy_graph_free(g);
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(4));
    ob_input(&graph, OB_GRAPH_INPUT, "shape", 7, DIMS(2));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(1ll << 31, 1ll << 31));
    ob_node(&node, "Reshape", NAMES("x", "shape"), NAMES("y"));
    add();
    save(13);
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_ECORRUPT);
    sy_graph_free(g);
}

/* 100 MB that are no model: zeros, and fields of two bytes each, which protobuf-c would take 40 bytes each for. */
static void test_refuses_large_garbage(void **state)
{
    (void)state;
    static unsigned char block[1 << 20];
    FILE *file = fopen(ob_path, "wb");
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), 100 << 20), 0);
    fclose(file);
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "not an ONNX file");
    for (size_t i = 0; i < sizeof block; i += 2) {
        block[i] = 8; /* ir_version */
        block[i + 1] = 1;
    }
    file = fopen(ob_path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 100; i++)
        assert_int_equal(fwrite(block, sizeof block, 1, file), 1);
    fclose(file);
    onnx_expect_refusal(ob_path, SY_EUNSUPPORTED, "fields");
}

/* Merging messages that come twice takes time by the square of their number. */
static void test_refuses_merged_messages(void **state)
{
    (void)state;
    static struct ob model;
    small_model();
    model.n = 0;
    ob_message(&model, 7, &graph);
    ob_message(&model, 7, &graph);
    FILE *file = fopen(ob_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(model.bytes, model.n, 1, file), 1);
    fclose(file);
    onnx_expect_refusal(ob_path, SY_ECORRUPT, "not an ONNX file");
}

/* ---- mutation --------------------------------------------------------------------------------- */

/* A graph with shape arithmetic, a convolution and a pattern to fuse: all stages have something to trip over. */
static void rich_model(void)
{
    static const float ones[2 * 1 * 3 * 3], half = 0.5f;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 1, 6, 6));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 72));
    ob_initializer(&graph, "w", 1, DIMS(2, 1, 3, 3), ones, sizeof ones);
    ob_initializer(&graph, "half", 1, 0, NULL, &half, sizeof half);
    ob_int64s(&graph, "zero", 0, (const int64_t[]){0});
    ob_int64s(&graph, "axes", 1, (const int64_t[]){0});
    ob_int64s(&graph, "rest", 1, (const int64_t[]){-1});
    ob_node(&node, "Conv", NAMES("x", "w"), NAMES("c"));
    ob_attr_ints(&node, "pads", DIMS(1, 1, 1, 1));
    add();
    ob_node(&node, "Relu", NAMES("c"), NAMES("r"));
    add();
    ob_node(&node, "Shape", NAMES("r"), NAMES("shape"));
    add();
    ob_node(&node, "Gather", NAMES("shape", "zero"), NAMES("n"));
    ob_attr_int(&node, "axis", 0);
    add();
    ob_node(&node, "Unsqueeze", NAMES("n", "axes"), NAMES("n1"));
    add();
    ob_node(&node, "Concat", NAMES("n1", "rest"), NAMES("target"));
    ob_attr_int(&node, "axis", 0);
    add();
    ob_node(&node, "Reshape", NAMES("r", "target"), NAMES("flat"));
    add();
    ob_node(&node, "Mul", NAMES("flat", "half"), NAMES("y"));
    add();
    save(13);
}

static size_t load(const char *name, unsigned char *bytes, size_t most)
{
    FILE *file = fopen(name, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, most, file);
    fclose(file);
    return n;
}

static void test_mutated_files(void **state)
{
    (void)state;
    static unsigned char original[65536], bytes[65536];
    uint64_t random = seed_of_run(20240613);
    int read = 0, inferred = 0;
    rich_model();
    size_t n = load(ob_path, original, sizeof original);
    for (int round = 0; round < 4000; round++) {
        size_t length = round % 4 == 0 ? seed_next(&random) % n : n;
        memcpy(bytes, original, n);
        for (int i = 0, flips = 1 + (int)(seed_next(&random) % 4); i < flips && length > 0; i++)
            bytes[seed_next(&random) % length] = (unsigned char)seed_next(&random);
        FILE *file = fopen(ob_path, "wb");
        assert_int_equal(fwrite(bytes, 1, length, file), length);
        fclose(file);
        struct sy_graph *g = NULL;
        if (sy_onnx_read(ob_path, &g) < 0)
            continue;
        read++;
        if (sy_graph_infer(g) == SY_OK && ++inferred)
            assert_int_equal(sy_graph_optimize(g), SY_OK);
        sy_graph_free(g);
    }
    print_message("%d of 4000 still read, %d inferred\n", read, inferred);
}

/* ---- ONNX's own models ------------------------------------------------------------------------ */

static const char testdata[] = "/usr/share/libonnx-testdata/data";

static Onnx__TensorProto *load_tensor(const char *name)
{
    static unsigned char bytes[1 << 20];
    size_t n = load(name, bytes, sizeof bytes);
    return onnx__tensor_proto__unpack(NULL, n, bytes);
}

/* The shapes of output 0 agree, N taken as the stored file's. */
static void compare_output(const char *model, const struct sy_graph *g,
                           const Onnx__TensorProto *want)
{
    const struct sy_tensor *got = &g->tensors[g->outputs[0]];
    if (sy_graph_is_dynamic(g, g->outputs[0])) {
        assert_int_equal(got->dtype, want->data_type);
        return;
    }
    bool equal = got->shape.rank == (int)want->n_dims && (int)got->dtype == want->data_type;
    for (int i = 0; equal && i < got->shape.rank; i++)
        equal = sy_dim_at(got->shape.dims[i], want->dims[0]) == want->dims[i];
    char text[160];
    if (!equal)
        fail_msg("%s: got %s %s", model, sy_dtype_wire_name(got->dtype),
                 sy_shape_text(&got->shape, text, sizeof text));
}

/* 1: read and compared; 0: refused as unsupported, which must say so properly. */
static int check_model(const char *suite, const char *name)
{
    char file[512];
    struct sy_graph *g;
    snprintf(file, sizeof file, "%s/%s/%s/model.onnx", testdata, suite, name);
    int status = sy_onnx_read(file, &g);
    if (status == SY_OK) {
        status = sy_graph_infer(g);
        if (status == SY_OK)
            status = sy_graph_optimize(g);
        if (status < 0)
            sy_graph_free(g);
    }
    if (status == SY_EUNSUPPORTED)
        return 0;
    if (status < 0)
        fail_msg("%s: %s: %s", name, sy_status_name(status), sy_error_text());
    snprintf(file, sizeof file, "%s/%s/%s/test_data_set_0/output_0.pb", testdata, suite, name);
    const char *second = g->n_outputs > 1 ? g->tensors[g->outputs[1]].name : "";
    bool is_list = strstr(second, SY_LIST_SHAPES) != NULL; /* the file is no tensor */
    Onnx__TensorProto *want = access(file, R_OK) == 0 && !is_list ? load_tensor(file) : NULL;
    if (want)
        compare_output(name, g, want);
    if (want)
        onnx__tensor_proto__free_unpacked(want, NULL);
    sy_graph_free(g);
    return want || is_list;
}

static void check_suite(const char *suite, int least)
{
    char name[PATH_MAX];
    int n = 0, passed = 0;
    snprintf(name, sizeof name, "%s/%s", testdata, suite);
    DIR *dir = opendir(name);
    if (!dir) {
        print_message("skipped: %s is not installed (package libonnx-testdata)\n", name);
        skip();
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        /* bfloat16 results are stored as uint16 there */
        if (entry->d_name[0] == '.' || strstr(entry->d_name, "BFLOAT16"))
            continue;
        n++;
        passed += check_model(suite, entry->d_name);
    }
    closedir(dir);
    print_message("%s: %d of %d models read, shapes equal; the rest refused as unsupported\n",
                  suite, passed, n);
    assert_true(passed >= least);
}

static void test_pytorch_converted(void **state)
{
    (void)state;
    check_suite("pytorch-converted", 70);
}

static void test_pytorch_operators(void **state)
{
    (void)state;
    check_suite("pytorch-operator", 24);
}

static void test_onnx_nodes(void **state)
{
    (void)state;
    check_suite("node", 220);
}

/* Symbolic dimensions by name and by place; one that is not there is an error. */
static void test_sized_dimensions(void **state)
{
    (void)state;
    struct sy_graph *g = NULL;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, -1, 3));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, -1, 3));
    ob_node(&node, "Relu", NAMES("x"), NAMES("y"));
    add();
    save(13);
    assert_int_equal(sy_onnx_read_sized(ob_path, &(struct sy_onnx_dim){"x.1", 7}, 1, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_OK);
    const struct sy_shape *y = &g->tensors[g->outputs[0]].shape;
    assert_true(y->dims[0].per_batch == 1 && y->dims[1].fixed == 7 && y->dims[1].per_batch == 0);
    sy_graph_free(g);
    assert_int_equal(sy_onnx_read_sized(ob_path, &(struct sy_onnx_dim){"N", 5}, 1, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_OK);
    y = &g->tensors[g->outputs[0]].shape;
    assert_true(y->dims[0].fixed == 5 && y->dims[1].fixed == 5 && y->dims[0].per_batch == 0);
    sy_graph_free(g);
    assert_int_equal(sy_onnx_read_sized(ob_path, &(struct sy_onnx_dim){"x.2", 5}, 1, &g), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "'x.2'"));
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_OK); /* both are named N */
    y = &g->tensors[g->outputs[0]].shape;
    assert_true(y->dims[0].per_batch == 1 && y->dims[1].per_batch == 1 && g->n_symbols == 0);
    sy_graph_free(g);
}

/* A package has layers: an input that is an output is copied. */
static void test_a_graph_without_nodes_is_a_copy(void **state)
{
    (void)state;
    struct sy_graph *g;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 2));
    ob_input(&graph, OB_GRAPH_OUTPUT, "x", 1, DIMS(-1, 2));
    save(13);
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_int_equal(g->n_nodes, 1);
    assert_int_equal(g->nodes[0].op, SY_OP_IDENTITY);
    assert_int_equal(g->nodes[0].inputs[0], g->inputs[0]);
    assert_int_equal(g->nodes[0].outputs[0], g->outputs[0]);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_and_sorts),
        cmocka_unit_test(test_refuses_operator),
        cmocka_unit_test(test_refuses_broken_edges),
        cmocka_unit_test(test_refuses_wrong_sizes),
        cmocka_unit_test(test_refuses_deep_nesting),
        cmocka_unit_test(test_external_data),
        cmocka_unit_test(test_sized_dimensions),
        cmocka_unit_test(test_refuses_absurd_sizes),
        cmocka_unit_test(test_refuses_large_garbage),
        cmocka_unit_test(test_refuses_merged_messages),
        cmocka_unit_test(test_a_graph_without_nodes_is_a_copy),
        cmocka_unit_test(test_not_a_file),
        cmocka_unit_test(test_mutated_files),
        cmocka_unit_test(test_pytorch_converted),
        cmocka_unit_test(test_pytorch_operators),
        cmocka_unit_test(test_onnx_nodes),
    };
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}
