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
#include "tests/onnx_bytes.h"
#include "tests/server_fixture.h"

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

static void import(const char *folder)
{
    char path[300], command[1000];
    snprintf(path, sizeof path, "%s/found", folder);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/found/1", folder);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/found/1/model.onnx", folder);
    save_model(path);
    snprintf(command, sizeof command, "'%s' import '%s' --name found --threads 1 >/dev/null",
             fixture_program("switchyard"), path);
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
    fixture_init(&f, "at_run");
    import(f.folder);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(served_again_and_again_on_host),
        cmocka_unit_test(served_again_and_again_on_emulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
