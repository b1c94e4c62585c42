/* What the pool keeps of models, in real servers: tables that stay in the image, heads, link bytes. */
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
#include "tests/rigs/server_fixture.h"

#define SLOW_LINK "emulated,link-gbps=0.02"

static json_t *model_of(json_t *status, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(status, "models"), i,
                       item) if (strcmp(json_string_value(json_object_get(item, "name")), name) ==
                                 0) return item;
    fail_msg("no model %s in the status", name);
    return NULL;
}

static int64_t model_number(struct fixture *f, const char *model, const char *key)
{
    json_t *status = fixture_status(f);
    int64_t value = json_integer_value(json_object_get(model_of(status, model), key));
    json_decref(status);
    return value;
}

static void evict(struct fixture *f, const char *model, bool image_too)
{
    json_decref(
        fixture_call(f, "evict", json_pack("{s:s, s:b}", "model", model, "image", image_too)));
}

/* The sum over models is what was given to the link. */
static void check_link_bytes(struct fixture *f)
{
    json_t *status = fixture_status(f), *item;
    int64_t sum = 0;
    size_t i;
    json_array_foreach(json_object_get(status, "models"), i, item) sum +=
        json_integer_value(json_object_get(item, "link_bytes"));
    assert_int_equal(sum, json_integer_value(
                              json_object_get(json_object_get(status, "counters"), "link_bytes")));
    json_decref(status);
}

static void tables_stay_in_the_image_and_the_bits_are_the_same(void **state)
{
    (void)state;
    struct fixture host, f;
    fixture_init(&host, "table_host");
    /* One thread each: the emulated link takes a core, and how a sum is split among threads shows in its last bits. */
    const char *const on_host[] = {
        "--models", fixture_models(), "--device", "host", "--threads", "1", NULL};
    fixture_start(&host, on_host);
    sy_client_result *reference[3];
    for (int v = 0; v < 3; v++)
        reference[v] = fixture_infer(&host, "bert_tiny", 1, v, NULL);
    assert_int_equal(model_number(&host, "bert_tiny", "pool_bytes"),
                     model_number(&host, "bert_tiny", "weights_bytes"));
    assert_int_equal(fixture_stop(&host), 0);
    fixture_finish(&host);

    fixture_init(&f, "table");
    const char *const args[] = {
        "--models", fixture_models(), "--device", SLOW_LINK, "--threads", "1", NULL};
    fixture_start(&f, args);
    int64_t table = model_number(&f, "bert_tiny", "weights_bytes") -
                    model_number(&f, "bert_tiny", "pool_bytes");
    assert_true(table > 100000); /* its words */
    for (int v = 0; v < 3; v++) {
        evict(&f, "bert_tiny", v > 0);
        int64_t before = model_number(&f, "bert_tiny", "link_bytes");
        sy_client_result *r = fixture_infer(&f, "bert_tiny", 1, v, NULL);
        assert_true(fixture_same(r, reference[v]));
        int64_t crossed = model_number(&f, "bert_tiny", "link_bytes") - before;
        int64_t copied = model_number(&f, "bert_tiny", "pool_bytes");
        assert_true(crossed > copied && crossed < copied + table);
        sy_client_result_free(r);
    }
    /* Wholly resident, only rows cross. */
    int64_t before = model_number(&f, "bert_tiny", "link_bytes");
    sy_client_result *r = fixture_infer(&f, "bert_tiny", 1, 0, NULL);
    assert_true(fixture_same(r, reference[0]));
    sy_client_result_free(r);
    int64_t rows = model_number(&f, "bert_tiny", "link_bytes") - before;
    assert_true(rows > 0 && rows < table);
    check_link_bytes(&f);
    for (int v = 0; v < 3; v++)
        sy_client_result_free(reference[v]);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void status_shows_heads(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "heads");
    const char *const args[] = {"--models", fixture_models(), "--device",
                                "emulated,link-gbps=0.001", NULL};
    fixture_start(&f, args);
    for (int i = 0; i < 3; i++)
        sy_client_result_free(fixture_infer(&f, "mlp", 1, i, NULL));
    json_t *status = fixture_status(&f), *m = model_of(status, "mlp");
    /* On a link this slow a swap is all transfer: only the whole of it would make it free. */
    assert_true(json_integer_value(json_object_get(m, "free_prefix_groups")) >= 1);
    assert_true(json_integer_value(json_object_get(m, "free_prefix_bytes")) > 0);
    assert_true(json_real_value(json_object_get(m, "requests_per_s")) > 0);
    assert_true(json_integer_value(json_object_get(m, "head_groups")) >= 1); /* the pool has room */
    json_decref(status);
    int64_t resident = model_number(&f, "mlp", "predicted_swap_ns");
    evict(&f, "mlp", false);
    assert_true(model_number(&f, "mlp", "predicted_swap_ns") > resident);
    check_link_bytes(&f);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* A job needs room in one piece that idle models' groups stand in: they go, and stream again; requests go on meanwhile. */
static void idle_models_make_room_and_stream_again(void **state)
{
    (void)state;
    static const char *const models[] = {"tiny_cnn", "mlp", "bert_tiny"};
    struct fixture f;
    sy_client_result *reference[3];
    fixture_init(&f, "pieces");
    const char *const args[] = {"--models",     fixture_models(), "--device", "emulated",
                                "--pool-bytes", "15000K",         NULL};
    fixture_start(&f, args);
    for (int m = 0; m < 3; m++)
        reference[m] = fixture_infer(&f, models[m], 1, m, NULL);
    json_t *status = fixture_status(&f);
    int64_t largest =
        json_integer_value(json_object_get(json_object_get(status, "pool"), "largest_free_bytes"));
    json_decref(status);
    uint64_t job = fixture_submit(&f, fixture_make_job(&f, "pieces", 1000000, 1000000));
    for (int round = 0; round < 5; round++)
        for (int m = 0; m < 3; m++) {
            sy_client_result *r = fixture_infer(&f, models[m], 1, m, NULL);
            assert_true(fixture_same(r, reference[m]));
            sy_client_result_free(r);
        }
    assert_true(fixture_wait_step(&f, job, 1) >= 1);
    status = fixture_status(&f);
    const json_t *shown = json_array_get(json_object_get(status, "jobs"), 0);
    int64_t needs = json_integer_value(json_object_get(shown, "persistent_bytes")) +
                    json_integer_value(json_object_get(shown, "ephemeral_bytes"));
    assert_true(needs > largest);
    json_decref(status);
    assert_true(fixture_counter(&f, "evictions") > 0);
    assert_int_equal(fixture_counter(&f, "failed"), 0);
    check_link_bytes(&f);
    for (int m = 0; m < 3; m++)
        sy_client_result_free(reference[m]);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_stay_in_the_image_and_the_bits_are_the_same),
        cmocka_unit_test(status_shows_heads),
        cmocka_unit_test(idle_models_make_room_and_stream_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
