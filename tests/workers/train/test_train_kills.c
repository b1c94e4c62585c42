/* Jobs of every kind of state on a real server: one that is preempted again and again and whose workers are killed ends with the bits of one
 * that was left alone. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/engine.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/rigs/server_fixture.h"

#define ENDLESS        1000000
#define SNAPSHOT_EVERY 7
#ifdef SY_SANITIZED
#define MIN_STEPS       10
#define MIN_PREEMPTIONS 5
#define N_KILLS         2
#else
#define MIN_STEPS       20
#define MIN_PREEMPTIONS 10
#define N_KILLS         4
#endif

enum { FLOAT = 1, INT64 = 7 };

/* ---- jobs ------------------------------------------------------------------------------------------------ */

/* A model of make-models. */
static const char *made_model(const char *name)
{
    static char path[700];
    char command[2048];
    snprintf(command, sizeof command, "'%s' --out '%s' %s >/dev/null",
             fixture_program("make-models"), fixture_program("job-models"), name);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/%s/1/model.onnx", fixture_program("job-models"), name);
    return path;
}

static void put_node(struct ob *graph, const char *op, const char *const *inputs,
                     const char *output, const char *attribute, int64_t value)
{
    struct ob node;
    node.n = 0;
    ob_node(&node, op, inputs, (const char *[]){output, NULL});
    if (attribute)
        ob_attr_int(&node, attribute, value);
    ob_message(graph, OB_GRAPH_NODE, &node);
}

#define FROM(...) ((const char *[]){__VA_ARGS__, NULL})

static void put_weights(struct ob *graph, const char *name, int64_t rows, int64_t columns)
{
    static float values[4096];
    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = (float)((i * 7919 + rows) % 401 - 200) / 1000.0f;
    ob_initializer(graph, name, FLOAT, columns > 1 ? 2 : 1, (const int64_t[]){rows, columns},
                   values, (size_t)(rows * columns) * sizeof *values);
}

/* Two layers with dropout behind each: 16 numbers, 4 classes. */
static const char *dropout_model(struct fixture *f)
{
    static char path[200];
    static struct ob graph;
    const float ratio = 0.3f;
    graph.n = 0;
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, 2, (const int64_t[]){-1, 16});
    put_weights(&graph, "w1", 16, 64);
    put_weights(&graph, "b1", 64, 1);
    put_weights(&graph, "w2", 64, 64);
    put_weights(&graph, "b2", 64, 1);
    put_weights(&graph, "w3", 64, 4);
    put_weights(&graph, "b3", 4, 1);
    ob_initializer(&graph, "ratio", FLOAT, 0, NULL, &ratio, sizeof ratio);
    put_node(&graph, "Gemm", FROM("x", "w1", "b1"), "y1", NULL, 0);
    put_node(&graph, "Relu", FROM("y1"), "r1", NULL, 0);
    put_node(&graph, "Dropout", FROM("r1", "ratio"), "d1", "seed", 3);
    put_node(&graph, "Gemm", FROM("d1", "w2", "b2"), "y2", NULL, 0);
    put_node(&graph, "Relu", FROM("y2"), "r2", NULL, 0);
    put_node(&graph, "Dropout", FROM("r2", "ratio"), "d2", "seed", 3);
    put_node(&graph, "Gemm", FROM("d2", "w3", "b3"), "logits", NULL, 0);
    ob_input(&graph, OB_GRAPH_OUTPUT, "logits", FLOAT, 2, (const int64_t[]){-1, 4});
    snprintf(path, sizeof path, "%s/dropout.onnx", f->folder);
    ob_save(path, &graph, 13);
    return path;
}

/* The fixture's job, with `changes` (JSON in single quotes) in its place where they have the same key. */
static uint64_t submit(struct fixture *f, const char *name, const char *model, const char *changes,
                       uint64_t steps)
{
    const char *path = fixture_make_job(f, name, (int)steps, SNAPSHOT_EVERY);
    char text[1024];
    snprintf(text, sizeof text, "%s", changes);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *job = json_load_file(path, 0, NULL), *more = json_loads(text, 0, NULL);
    assert_true(job && more);
    json_object_update(job, more);
    if (model)
        json_object_set_new(job, "model", json_string(model));
    assert_int_equal(json_dump_file(job, path, 0), 0);
    json_decref(job);
    json_decref(more);
    return fixture_submit(f, path);
}

/* ---- what happens to them ---------------------------------------------------------------------------------- */

static void disturb_with_requests(struct fixture *f, uint64_t job)
{
    for (int i = 0; i < 10000 && (fixture_counter(f, "preemptions") < MIN_PREEMPTIONS ||
                                  fixture_wait_step(f, job, 0) < MIN_STEPS);
         i++)
        for (int k = 0; k < 5; k++)
            sy_client_result_free(fixture_infer(f, "mlp", 1, k % 3, NULL));
    assert_true(fixture_counter(f, "preemptions") >= MIN_PREEMPTIONS);
}

/* Requests come in between, so that a worker dies in all states of a job. */
static void disturb_with_kills(struct fixture *f, uint64_t job)
{
    uint64_t step = fixture_wait_step(f, job, 1);
    for (int i = 0; i < N_KILLS; i++) {
        assert_int_equal(kill(fixture_wait_for_worker_in(f, "training"), SIGKILL), 0);
        sy_client_result_free(fixture_infer(f, "mlp", 1, 0, NULL));
        fixture_wait_step(f, job, step += SNAPSHOT_EVERY + 1);
    }
}

static void check_same(const struct fixture *f, uint64_t step)
{
    size_t bytes, other_bytes;
    void *alone = fixture_read_snapshot(f, "alone", step, &bytes);
    void *other = fixture_read_snapshot(f, "disturbed", step, &other_bytes);
    assert_int_equal(bytes, other_bytes);
    assert_memory_equal(alone, other, bytes);
    free(alone);
    free(other);
}

static void same_bits_through_all(struct fixture *f, const char *model, const char *changes)
{
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "400M", NULL};
    fixture_start(f, args);
    uint64_t job = submit(f, "disturbed", model, changes, ENDLESS);
    disturb_with_requests(f, job);
    disturb_with_kills(f, job);
    uint64_t steps = fixture_end_job(f, job);
    fixture_wait_ended(f, submit(f, "alone", model, changes, steps));
    check_same(f, steps);
    assert_int_equal(fixture_stop(f), 0);
    fixture_finish(f);
}

static void test_accumulation(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "accumulation");
    same_bits_through_all(&f, NULL, "{'accumulate': 3, 'clip_norm': 0.5, 'batch': 8}");
}

static void test_bf16(void **state)
{
    (void)state;
    struct fixture f;
    if (!__builtin_cpu_supports("avx512bf16"))
        skip();
    fixture_init(&f, "bf16");
    same_bits_through_all(&f, NULL,
                          "{'precision': 'bf16', 'optimizer': {'kind': 'adamw', 'learning_rate': "
                          "0.001, 'weight_decay': 0.01}}");
}

/* Three inputs too, one of them a mask. */
static void test_recompute(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "recompute");
    same_bits_through_all(
        &f, made_model("bert_tiny_sequence"),
        "{'recompute': true, 'batch': 4, 'data': {'kind': 'synthetic', 'samples': 50, "
        "'vocabulary': "
        "1000, 'inputs': {'input_ids': 'random', 'attention_mask': 'mask', 'token_type_ids': 0}}}");
}

static void test_dropout(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "dropout");
    same_bits_through_all(&f, dropout_model(&f),
                          "{'batch': 256, 'accumulate': 8, 'data': {'kind': 'synthetic', "
                          "'samples': 1000}, 'schedule': {'kind': 'cosine', 'warmup_steps': 5, "
                          "'steps': 50}}");
}

/* Long enough for its recurrences to run in several pieces. */
static void test_lstm(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "lstm");
    same_bits_through_all(&f, made_model("text_bilstm"),
                          "{'batch': 64, 'data': {'kind': 'synthetic', 'samples': 300, "
                          "'vocabulary': 256}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accumulation), cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_recompute),    cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_lstm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
