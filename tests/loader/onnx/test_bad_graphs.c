/* Graphs and files that no exporter should have written, as tests/loader/onnx/test_bad_models.c: names, missing parts, bodies, loops, nesting, garbage, external
 * data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/fakes/bad_import.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/rigs/seed.h"
#include "tests/rigs/whole_import.h"

static struct ob graph, node;

#ifdef SY_SANITIZED
/* The sanitizers' library looks this up: an allocation that cannot be is refused, as everywhere. */
__attribute__((visibility("default"), no_sanitize("address"))) const char *__asan_default_options(
    void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=1024";
}
#endif

/* ---- graphs --------------------------------------------------------------------------------------------- */

static void add(const char *op, const char *const *inputs, const char *const *outputs)
{
    ob_node(&node, op, inputs, outputs);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static void input_and_output(const char *input, const char *output)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, input, 1, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, output, 1, DIMS(-1, 4));
}

static void save(int opset)
{
    ob_save(bad_import_path, &graph, opset);
}

static void test_a_bias_of_another_size(void **state)
{
    (void)state;
    static const float numbers[8 * 3 * 9];
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 3, 8, 8));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 8, 6, 6));
    ob_initializer(&graph, "w", 1, DIMS(8, 3, 3, 3), numbers, sizeof numbers);
    ob_initializer(&graph, "b", 1, DIMS(1), numbers, sizeof *numbers);
    add("Conv", NAMES("x", "w", "b"), NAMES("y"));
    save(13);
    bad_import_refused("one number for 8 channels", "bias", "8 channels");
}

static void test_parts_of_another_type(void **state)
{
    (void)state;
    input_and_output("x", "y");
    ob_input(&graph, OB_GRAPH_INPUT, "mask", 9, DIMS(-1, 4));
    ob_node(&node, "Concat", NAMES("x", "mask"), NAMES("y"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    save(13);
    bad_import_refused("floats and truths in a row", "input 1", "element type");
}

static void test_names_that_come_twice(void **state)
{
    (void)state;
    static const float four[4];
    input_and_output("x", "y");
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 5));
    add("Relu", NAMES("x"), NAMES("y"));
    save(13);
    bad_import_refused("an input twice", "'x'", "twice");
    input_and_output("x", "y");
    ob_initializer(&graph, "w", 1, DIMS(4), four, sizeof four);
    ob_initializer(&graph, "w", 1, DIMS(2), four, 8);
    add("Add", NAMES("x", "w"), NAMES("y"));
    save(13);
    bad_import_refused("a constant twice", "'w'", "twice");
    input_and_output("x", "y");
    ob_initializer(&graph, "w", 1, DIMS(4), four, sizeof four);
    add("Relu", NAMES("x"), NAMES("w"));
    add("Add", NAMES("x", "w"), NAMES("y"));
    save(13);
    bad_import_refused("a constant and a result", "'w'", "twice");
    input_and_output(
        "x",
        "y"); /* an output listed twice is two outputs of one name: a client could not tell them apart */
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 4));
    add("Relu", NAMES("x"), NAMES("y"));
    save(13);
    bad_import_refused("an output twice", "'y'", "twice");
}

static void test_missing_parts(void **state)
{
    (void)state;
    static struct ob model, import;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4));
    add("Relu", NAMES("x"), NAMES("y"));
    save(13);
    bad_import_refused("no outputs", "output", bad_import_path);
    input_and_output("x", "y");
    save(13);
    bad_import_refused("no nodes", "'y'", bad_import_path);
    ob_graph(&graph);
    save(13);
    bad_import_refused("nothing", "output", bad_import_path);
    input_and_output("x", "y");
    add("Relu", NAMES("gone"), NAMES("y"));
    save(13);
    bad_import_refused("an input that nothing makes", "'gone'", "'y'");
    input_and_output("x", "y");
    add("", NAMES("x"), NAMES("y"));
    save(13);
    bad_import_refused("no operator", "node 'y'", NULL);
    for (int version = 0; version < 4; version++) {
        static const int64_t versions[] = {0, -1, 1ll << 40, 29};
        input_and_output("x", "y");
        add("Relu", NAMES("x"), NAMES("y"));
        model.n = import.n = 0;
        ob_varint(&import, 2, (uint64_t)versions[version]);
        ob_varint(&model, 1, 7);
        ob_message(&model, 7, &graph);
        ob_message(&model, 8, &import);
        FILE *file = fopen(bad_import_path, "wb");
        assert_int_equal(fwrite(model.bytes, model.n, 1, file), 1);
        fclose(file);
        bad_import_refused("an opset that is none", "opset", bad_import_path);
    }
    model.n = 0;
    ob_varint(&model, 1, 7);
    ob_message(&model, 7, &graph);
    FILE *file = fopen(bad_import_path, "wb");
    assert_int_equal(fwrite(model.bytes, model.n, 1, file), 1);
    fclose(file);
    bad_import_refused("no opset", "opset", bad_import_path);
}

/* Printed, logged and sent to clients: they may not move a terminal's cursor or end a line of the log. */
static void test_strange_names(void **state)
{
    (void)state;
    static char longest[5000];
    memset(longest, 'a', sizeof longest - 1);
    const char *const bad[] = {"a\nready", "\x1b[2Ja", "\x01", "\x7f", "\xff\xfe", "\xc3", longest};
    for (size_t i = 0; i < SY_ARRAY_LEN(bad); i++) {
        input_and_output(bad[i], "y");
        add("Relu", NAMES(bad[i]), NAMES("y"));
        save(13);
        bad_import_refused("a strange input", "input", NULL);
        input_and_output("x", bad[i]);
        add("Relu", NAMES("x"), NAMES(bad[i]));
        save(13);
        bad_import_refused("a strange output", "output", NULL);
        input_and_output("x", "y"); /* inside, they are never shown but in errors */
        add("Relu", NAMES("x"), NAMES(bad[i]));
        add("Tanh", NAMES(bad[i]), NAMES("y"));
        save(13);
        bad_import_runs("a strange name inside");
        input_and_output("x", "y");
        add("Nothing", NAMES("x"), NAMES(bad[i]));
        add(bad[i], NAMES(bad[i]), NAMES("y"));
        save(13);
        bad_import_refused("a strange operator", "not supported", NULL);
    }
    input_and_output("\xc3\xa4 / b:0", "\xe6\x97\xa5");
    add("Relu", NAMES("\xc3\xa4 / b:0"), NAMES("\xe6\x97\xa5"));
    save(13);
    bad_import_runs("names in other scripts");
}

/* ---- bodies ----------------------------------------------------------------------------------------------- */

static struct ob body;

static void begin_body(void)
{
    body.n = 0;
    ob_text(&body, 2, "b");
}

static void body_node(const char *op, const char *const *inputs, const char *const *outputs)
{
    static struct ob inner;
    ob_node(&inner, op, inputs, outputs);
    ob_message(&body, OB_GRAPH_NODE, &inner);
}

static void loop_body(const char *condition)
{
    begin_body();
    ob_input(&body, OB_GRAPH_INPUT, "i", 7, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "go", 9, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "v", 1, DIMS(4));
    body_node("Identity", NAMES(condition), NAMES("on"));
    body_node("Tanh", NAMES("v"), NAMES("next"));
    ob_input(&body, OB_GRAPH_OUTPUT, "on", 9, 0, NULL);
    ob_input(&body, OB_GRAPH_OUTPUT, "next", 1, DIMS(4));
}

static void loop_model(const char *trips, const char *condition)
{
    static const unsigned char yes = 1;
    static const int64_t many = INT64_MAX;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(4));
    ob_input(&graph, OB_GRAPH_INPUT, "some", 7, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(4));
    ob_initializer(&graph, "yes", 9, 0, NULL, &yes, 1);
    ob_initializer(&graph, "many", 7, 0, NULL, &many, 8);
    ob_node(&node, "Loop", NAMES(trips, condition, "x"), NAMES("y"));
    ob_attr_graph(&node, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static void test_loops(void **state)
{
    (void)state;
    static struct ob inner;
    loop_body("go");
    loop_model("", "");
    save(13);
    bad_import_refused("a loop that never ends", "'y'", "never ends");
    loop_model("", "yes");
    save(13);
    bad_import_refused("a loop whose condition stays true", "'y'", "never ends");
    loop_model("many", "yes");
    save(13);
    bad_import_refused("a loop of 2^63 turns", "'y'", "9223372036854775807");
    loop_model("some", "yes");
    save(13);
    bad_import_runs("a loop of some turns");
    /* Loops in a loop, each of a count that only the request knows: bounded together. */
    inner = body;
    begin_body();
    ob_input(&body, OB_GRAPH_INPUT, "j", 7, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "go2", 9, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "v2", 1, DIMS(4));
    body_node("Identity", NAMES("go2"), NAMES("on2"));
    ob_node(&node, "Loop", NAMES("huge", "", "v2"), NAMES("next2"));
    ob_attr_graph(&node, "body", &inner);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_input(&body, OB_GRAPH_OUTPUT, "on2", 9, 0, NULL);
    ob_input(&body, OB_GRAPH_OUTPUT, "next2", 1, DIMS(4));
    loop_model("huge", "yes");
    add("Mul", NAMES("some", "many"), NAMES("most"));
    add("Max", NAMES("most", "many"), NAMES("huge"));
    save(13);
    struct child_end end = bad_import("loops in loops");
    assert_int_equal(end.report.stage, WHOLE_RUN);
    assert_int_equal(end.report.status, SY_EARG);
    assert_non_null(strstr(end.report.text, "iterations"));
}

static void test_bodies(void **state)
{
    (void)state;
    static struct ob inner;
    static const unsigned char yes = 1;
    /* A body that reads what its own node makes. */
    begin_body();
    body_node("Relu", NAMES("y"), NAMES("r"));
    ob_input(&body, OB_GRAPH_OUTPUT, "r", 1, DIMS(-1, 4));
    input_and_output("x", "y");
    ob_input(&graph, OB_GRAPH_INPUT, "c", 9, 0, NULL);
    ob_node(&node, "If", NAMES("c"), NAMES("y"));
    ob_attr_graph(&node, "then_branch", &body);
    ob_attr_graph(&node, "else_branch", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    save(13);
    bad_import_refused("a body that reads its own result", "depends on itself", "'y'");
    /* If in If in If ... */
    begin_body();
    body_node("Relu", NAMES("x"), NAMES("r"));
    ob_input(&body, OB_GRAPH_OUTPUT, "r", 1, DIMS(-1, 4));
    for (int depth = 0; depth < 12; depth++) {
        inner = body;
        begin_body();
        ob_node(&node, "If", NAMES("c"), NAMES("r"));
        ob_attr_graph(&node, "then_branch", &inner);
        if (depth < 2)
            ob_attr_graph(&node, "else_branch", &inner);
        ob_message(&body, OB_GRAPH_NODE, &node);
        ob_input(&body, OB_GRAPH_OUTPUT, "r", 1, DIMS(-1, 4));
        input_and_output("x", "y");
        ob_input(&graph, OB_GRAPH_INPUT, "c", 9, 0, NULL);
        ob_initializer(&graph, "yes", 9, 0, NULL, &yes, 1);
        ob_node(&node, "If", NAMES("c"), NAMES("y"));
        ob_attr_graph(&node, "then_branch", &body);
        ob_attr_graph(&node, "else_branch", &body);
        ob_message(&graph, OB_GRAPH_NODE, &node);
        save(13);
        if (depth >= 3)
            bad_import_refused("bodies in bodies", "nested", NULL);
        else
            bad_import("bodies in bodies");
    }
}

/* ---- files --------------------------------------------------------------------------------------------------- */

/* If in If, ten thousand deep: written from the inside outwards, to the end of a block. */
static void test_deepest_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 10000, ROOM = DEPTH * 24 };
    static unsigned char block[ROOM];
    size_t at = ROOM;
    const unsigned char fields[] = {6 << 3 | 2, 5 << 3 | 2, 1 << 3 | 2}; /* g, attribute, node */
    for (int i = 0; i < 3 * DEPTH + 1; i++) {
        size_t n = ROOM - at;
        unsigned char length[8];
        int used = 0;
        for (; n > 0x7f; n >>= 7)
            length[used++] = (unsigned char)(n | 0x80);
        length[used++] = (unsigned char)n;
        at -= (size_t)used;
        memcpy(block + at, length, (size_t)used);
        block[--at] = i == 3 * DEPTH ? 7 << 3 | 2 : fields[i % 3];
    }
    FILE *file = fopen(bad_import_path, "wb");
    assert_int_equal(fwrite(block + at, ROOM - at, 1, file), 1);
    fclose(file);
    bad_import_refused("ten thousand bodies", "nested deeper", bad_import_path);
}

static void test_garbage(void **state)
{
    (void)state;
    static unsigned char bytes[1 << 20];
    static const unsigned char headers[][8] = {
        {0x3a, 0x80, 0x80, 0x80, 0x32},          /* a graph of 100 MiB */
        {0x08, 7, 0x12, 0x80, 0x80, 0x80, 0x32}, /* a producer's name of as much */
        {0x1f, 0x8b, 8},                         /* gzip */
        {0x0a}};
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)seed_next(&seed);
    for (size_t h = 0; h < SY_ARRAY_LEN(headers); h++) {
        FILE *file = fopen(bad_import_path, "wb");
        assert_non_null(file);
        fwrite(headers[h], 1, sizeof headers[h], file);
        for (int i = 0; i < 100; i++)
            assert_int_equal(fwrite(bytes, sizeof bytes, 1, file), 1);
        fclose(file);
        bad_import_refused("100 MiB of garbage", bad_import_path, NULL);
    }
}

static void external(const char *location, const char *offset, const char *length)
{
    input_and_output("x", "y");
    ob_external(&graph, "w", location, offset, length);
    add("Add", NAMES("x", "w"), NAMES("y"));
    save(13);
    bad_import_refused(location, "'w'", NULL);
}

static void test_external_data(void **state)
{
    (void)state;
    char name[128], link[128];
    snprintf(name, sizeof name, "%s/pipe", bad_import_folder);
    assert_int_equal(mkfifo(name, 0600), 0);
    external("pipe", "0", "16"); /* must not wait for a writer */
    unlink(name);
    snprintf(name, sizeof name, "%s/sub", bad_import_folder);
    assert_int_equal(mkdir(name, 0700), 0);
    external("sub", "0", "16");
    external("sub/../../x", "0", "16");
    external("sub/", "0", "16");
    snprintf(link, sizeof link, "%s/sub/up", bad_import_folder);
    assert_int_equal(symlink("../..", link), 0);
    external("sub/up/x", "0", "16");
    unlink(link);
    rmdir(name);
    external(".", "0", "16");
    external("", "0", "16");
    external("model.onnx", "18446744073709551600", "16");
    external("model.onnx", "9223372036854775800", "16");
    external("model.onnx", "0", "18446744073709551615");
    external("model.onnx", "99999999999999999999999", "16");
    external("model.onnx", "0x10", "16");
    external("/proc/self/environ", "0", "16");
    external("\x1b[2J", "0", "16");
}

int main(void)
{
    sy_log_threshold = SY_LOG_ERROR;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bias_of_another_size),
        cmocka_unit_test(test_parts_of_another_type),
        cmocka_unit_test(test_names_that_come_twice),
        cmocka_unit_test(test_missing_parts),
        cmocka_unit_test(test_strange_names),
        cmocka_unit_test(test_loops),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_deepest_nesting),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_external_data),
    };
    return cmocka_run_group_tests(tests, bad_import_open, bad_import_close);
}
