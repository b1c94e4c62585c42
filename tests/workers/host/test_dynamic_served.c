/* A model whose outputs are as large as the data say, in a real server: imported by the program, asked over the socket, again and again. */
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

#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/rigs/server_fixture.h"

#define NAMES(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

enum { FLOAT = 1, INT64 = 7, COLUMNS = 5, MOST_BATCH = 6, REQUESTS = 100, TABLES = 80 };

static struct ob graph, node;

static void add(const char *op, const char *const *inputs, const char *const *outputs)
{
    ob_node(&node, op, inputs, outputs);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

/* Adds zeros to "twice", from as many tables as a large model has parameters. */
static void add_tables(void)
{
    ob_int64s(&graph, "one", 0, (const int64_t[]){1});
    add("Gather", NAMES("at", "one"), NAMES("column"));
    for (int i = 0; i < TABLES; i++) {
        char shape[32], table[32], row[32], before[32], after[32];
        snprintf(shape, sizeof shape, "shape %d", i);
        snprintf(table, sizeof table, "table %d", i);
        snprintf(row, sizeof row, "row %d", i);
        snprintf(before, sizeof before, "sum %d", i);
        snprintf(after, sizeof after, i == TABLES - 1 ? "twice" : "sum %d", i + 1);
        ob_int64s(&graph, shape, 1, (const int64_t[]){300 + i});
        add("ConstantOfShape", NAMES(shape), NAMES(table));
        add("Gather", NAMES(table, "column"), NAMES(row));
        add("Add", NAMES(before, row), NAMES(after));
    }
}

/* Rows and columns where x > 0, and those elements twice. */
static void save_model(const char *path)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, COLUMNS));
    ob_initializer(&graph, "zero", FLOAT, 0, NULL, &(float){0}, 4);
    ob_initializer(&graph, "two", FLOAT, 0, NULL, &(float){2}, 4);
    add("Greater", NAMES("x", "zero"), NAMES("is"));
    add("NonZero", NAMES("is"), NAMES("at"));
    ob_node(&node, "Transpose", NAMES("at"), NAMES("rows"));
    ob_attr_ints(&node, "perm", 2, (const int64_t[]){1, 0});
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add("GatherND", NAMES("x", "rows"), NAMES("found"));
    add("Mul", NAMES("found", "two"), NAMES("sum 0"));
    add_tables();
    ob_input(&graph, OB_GRAPH_OUTPUT, "at", INT64, DIMS(2, -1));
    ob_input(&graph, OB_GRAPH_OUTPUT, "twice", FLOAT, DIMS(-1));
    ob_save(path, &graph, 13);
}

/* 2.5 in a shape that comes with the request. */
static void save_spread(const char *path)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "sizes", INT64, DIMS(2));
    ob_initializer(&graph, "x", FLOAT, 0, NULL, &(float){2.5f}, 4);
    add("Expand", NAMES("x", "sizes"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, -1));
    ob_save(path, &graph, 13);
}

/* The same, and three times more of it: a room that "y" has grown to would be four times that, more than the slab. */
static void save_spread_wider(const char *path)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "sizes", INT64, DIMS(2));
    ob_initializer(&graph, "x", FLOAT, 0, NULL, &(float){2.5f}, 4);
    static const char *const names[] = {"y", "y1", "y2", "y3"};
    for (int i = 0; i < 4; i++) {
        ob_node(&node, "Expand", NAMES("x", "sizes"), (const char *const[]){names[i], NULL});
        ob_message(&graph, OB_GRAPH_NODE, &node);
    }
    for (int i = 0; i < 4; i++)
        ob_input(&graph, OB_GRAPH_OUTPUT, names[i], FLOAT, DIMS(-1, -1));
    ob_save(path, &graph, 13);
}

/* "x" in a shape that comes with the request. */
static void save_shaped(const char *path)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1));
    ob_input(&graph, OB_GRAPH_INPUT, "sizes", INT64, DIMS(2));
    add("Reshape", NAMES("x", "sizes"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(OB_NAMELESS, OB_NAMELESS));
    ob_save(path, &graph, 13);
}

/* 0, step, 2 step ... below 12; the step comes with the request. */
static void save_counted(const char *path)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "step", INT64, 0, NULL);
    ob_int64s(&graph, "first", 0, (const int64_t[]){0});
    ob_int64s(&graph, "limit", 0, (const int64_t[]){12});
    add("Range", NAMES("first", "limit", "step"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", INT64, DIMS(OB_NAMELESS));
    ob_save(path, &graph, 13);
}

static void import(const char *folder, const char *name, void (*save)(const char *path))
{
    char path[300], command[1000];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/%s/1", folder, name);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/%s/1/model.onnx", folder, name);
    save(path);
    snprintf(command, sizeof command, "'%s' import '%s' --name %s --threads 1 >/dev/null",
             fixture_program("switchyard"), path, name);
    assert_int_equal(system(command), 0);
}

/* Every third element of turn k is positive, from k on; in some turns none is. */
static void fill(float *x, int64_t n, int k)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (i + k) % 3 == 0 && k % 10 != 9 ? (float)(i + 1) : -1;
}

static void check(const sy_client_result *r, const float *x, int64_t batch)
{
    assert_int_equal(r->n_outputs, 2);
    const sy_client_tensor *at = &r->outputs[0], *twice = &r->outputs[1];
    int64_t n = 0, found = at->shape[1];
    assert_true(at->rank == 2 && at->shape[0] == 2 && twice->rank == 1);
    assert_int_equal(twice->shape[0], found);
    assert_int_equal(at->bytes, 2 * sizeof(int64_t) * (size_t)found);
    assert_int_equal(twice->bytes, sizeof(float) * (size_t)found);
    for (int64_t i = 0; i < batch * COLUMNS; i++) {
        if (x[i] <= 0)
            continue;
        int64_t row, column;
        float value;
        assert_true(n < found);
        memcpy(&row, (const char *)at->data + 8 * n, 8);
        memcpy(&column, (const char *)at->data + 8 * (found + n), 8);
        memcpy(&value, (const char *)twice->data + 4 * n, 4);
        assert_int_equal(row * COLUMNS + column, i);
        assert_true(value == 2 * x[i]);
        n++;
    }
    assert_int_equal(n, found);
}

static void ask(struct fixture *f, int64_t batch, int k)
{
    float x[MOST_BATCH * COLUMNS];
    sy_client_result *result = NULL;
    const sy_client_tensor input = {.name = "x",
                                    .dtype = "FP32",
                                    .rank = 2,
                                    .shape = {batch, COLUMNS},
                                    .data = x,
                                    .bytes = (size_t)(batch * COLUMNS) * sizeof *x};
    fill(x, batch * COLUMNS, k);
    if (sy_client_infer(f->client, "found", &input, 1, &result) < 0)
        fail_msg("batch %lld: %s", (long long)batch, sy_client_error(f->client));
    check(result, x, batch);
    sy_client_result_free(result);
}

static void served_again_and_again_on(const char *device)
{
    struct fixture f;
    fixture_init(&f, "dynamic");
    import(f.folder, "found", save_model);
    const char *const args[] = {"--models", f.folder, "--device", device, NULL};
    fixture_start(&f, args);
    for (int k = 0; k < REQUESTS; k++) {
        ask(&f, 1 + k % MOST_BATCH, k);
        if (k % 25 == 24)
            json_decref(fixture_call(&f, "evict",
                                     json_pack("{s:s, s:b}", "model", "found", "image", k == 49)));
    }
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void served_again_and_again_on_host(void **state)
{
    (void)state;
    served_again_and_again_on("host");
}

static void served_again_and_again_on_emulated(void **state)
{
    (void)state;
    served_again_and_again_on("emulated");
}

/* A result of rows x 1024; NULL: refused, and the error says `why`. */
static void ask_spread(struct fixture *f, int64_t rows, const char *why)
{
    const int64_t sizes[] = {rows, 1024};
    sy_client_result *result = NULL;
    const sy_client_tensor input = {.name = "sizes",
                                    .dtype = "INT64",
                                    .rank = 1,
                                    .shape = {2},
                                    .data = sizes,
                                    .bytes = sizeof sizes};
    int status = sy_client_infer(f->client, "spread", &input, 1, &result);
    if (why) {
        assert_true(status < 0);
        if (!strstr(sy_client_error(f->client), why))
            fail_msg("'%s' is not in '%s'", why, sy_client_error(f->client));
        return;
    }
    if (status < 0)
        fail_msg("%lld rows: %s", (long long)rows, sy_client_error(f->client));
    const sy_client_tensor *y = &result->outputs[0];
    assert_true(y->rank == 2 && y->shape[0] == rows && y->shape[1] == 1024);
    assert_int_equal(y->bytes, (size_t)rows * 4096);
    for (size_t i = 0; i < y->bytes / 4; i += 511) {
        float value;
        memcpy(&value, (const char *)y->data + 4 * i, 4);
        assert_true(value == 2.5f);
    }
    sy_client_result_free(result);
}

/* Results beyond the room that they begin with; beyond the slab they are refused, and the server goes on. */
static void rooms_grow(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "dynamic_room");
    import(f.folder, "spread", save_spread);
    const char *const args[] = {"--models",     f.folder, "--device", "host",
                                "--slab-bytes", "64Mi",   NULL};
    fixture_start(&f, args);
    static const int64_t rows[] = {3, 1500, 1, 3000, 5000, 2, 1500};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ask_spread(&f, rows[i], NULL);
    ask_spread(&f, 40000, "slab");
    ask_spread(&f, 4000, NULL);
    /* Another content of that name has no need of the room. */
    char other[300];
    snprintf(other, sizeof other, "%s/other", f.folder);
    assert_int_equal(mkdir(other, 0755), 0);
    import(other, "spread", save_spread_wider);
    json_decref(fixture_call(&f, "model_unload", json_pack("{s:s}", "model", "spread")));
    strncat(other, "/spread/1/model.sypkg", sizeof other - strlen(other) - 1);
    json_decref(
        fixture_call(&f, "model_load", json_pack("{s:s, s:s}", "path", other, "name", "spread")));
    ask_spread(&f, 3, NULL);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* Twelve numbers as rows x columns; refused as the request's fault where they are not twelve. */
static void ask_shaped(struct fixture *f, int64_t rows, int64_t columns)
{
    static const float x[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const int64_t sizes[] = {rows, columns};
    sy_client_result *result = NULL;
    const sy_client_tensor inputs[] = {
        {.name = "x", .dtype = "FP32", .rank = 1, .shape = {12}, .data = x, .bytes = sizeof x},
        {.name = "sizes",
         .dtype = "INT64",
         .rank = 1,
         .shape = {2},
         .data = sizes,
         .bytes = sizeof sizes}};
    int status = sy_client_infer(f->client, "shaped", inputs, 2, &result);
    if (rows * columns != 12) {
        assert_int_equal(status, SY_EARG);
        assert_non_null(strstr(sy_client_error(f->client), "cannot reshape [12]"));
        return;
    }
    if (status < 0)
        fail_msg("shaped: %s", sy_client_error(f->client));
    const sy_client_tensor *y = &result->outputs[0];
    assert_true(y->rank == 2 && y->shape[0] == rows && y->shape[1] == columns);
    assert_int_equal(y->bytes, sizeof x);
    assert_memory_equal(y->data, x, sizeof x);
    sy_client_result_free(result);
}

/* A step of 0 is the request's fault. */
static void ask_counted(struct fixture *f, int64_t by)
{
    sy_client_result *result = NULL;
    const sy_client_tensor input = {
        .name = "step", .dtype = "INT64", .rank = 0, .data = &by, .bytes = sizeof by};
    int status = sy_client_infer(f->client, "counted", &input, 1, &result);
    if (by == 0) {
        assert_int_equal(status, SY_EARG);
        assert_non_null(strstr(sy_client_error(f->client), "model counted: node 'y'"));
        assert_non_null(strstr(sy_client_error(f->client), "step 0"));
        return;
    }
    if (status < 0)
        fail_msg("counted: %s", sy_client_error(f->client));
    const sy_client_tensor *y = &result->outputs[0];
    assert_true(y->rank == 1 && y->shape[0] == 12 / by);
    for (int64_t i = 0; i < 12 / by; i++) {
        int64_t value;
        memcpy(&value, (const char *)y->data + 8 * i, 8);
        assert_int_equal(value, i * by);
    }
    sy_client_result_free(result);
}

/* Models that zeros, which import measures with, give no size to: they are imported, and serve the requests that do. */
static void sizes_that_zeros_do_not_give(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "dynamic_zeros");
    import(f.folder, "shaped", save_shaped);
    import(f.folder, "counted", save_counted);
    const char *const args[] = {"--models", f.folder, "--device", "host", NULL};
    fixture_start(&f, args);
    static const int64_t shapes[][2] = {{3, 4}, {0, 5}, {1, 12}, {5, 5}, {12, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        ask_shaped(&f, shapes[i][0], shapes[i][1]);
    static const int64_t steps[] = {3, 0, 1, 4};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        ask_counted(&f, steps[i]);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(served_again_and_again_on_host),
        cmocka_unit_test(served_again_and_again_on_emulated),
        cmocka_unit_test(rooms_grow),
        cmocka_unit_test(sizes_that_zeros_do_not_give),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
