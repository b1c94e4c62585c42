/* Models go and come back while their heads are on their way into the pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/server_fixture.h"

static const char *const names[] = {"tiny_cnn", "mlp", "bert_tiny"};
#define N_NAMES (sizeof names / sizeof *names)

static void load(struct fixture *f, const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s/1/model.sypkg", fixture_models(), name);
    json_decref(fixture_call(f, "model_load", json_pack("{s:s}", "path", path)));
}

/* A link so slow that the head of one of them is always on its way. */
static void models_leave_while_their_heads_come(void **state)
{
    (void)state;
    struct fixture f;
    sy_client_result *before[N_NAMES];
    fixture_init(&f, "unload");
    const char *const args[] = {"--models",
                                fixture_models(),
                                "--device",
                                "emulated,link-gbps=0.002",
                                "--pool-bytes",
                                "64M",
                                "--image-bytes",
                                "64M",
                                NULL};
    fixture_start(&f, args);
    for (size_t i = 0; i < N_NAMES; i++)
        before[i] = fixture_infer(&f, names[i], 1, 0, NULL);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < N_NAMES; i++)
            json_decref(fixture_call(
                &f, "evict", json_pack("{s:s, s:b}", "model", names[i], "image", round > 0)));
        for (size_t i = 0; i < N_NAMES; i++) /* asked for, so its head is wanted again */
            sy_client_result_free(fixture_infer(&f, names[i], 1, 0, NULL));
        for (size_t i = 0; i < N_NAMES; i++)
            json_decref(fixture_call(&f, "model_unload", json_pack("{s:s}", "model", names[i])));
        for (size_t i = 0; i < N_NAMES; i++)
            load(&f, names[i]);
        /* At once: their heads begin to come. */
        for (size_t i = 0; i < N_NAMES; i++)
            json_decref(fixture_call(&f, "model_unload", json_pack("{s:s}", "model", names[i])));
        for (size_t i = 0; i < N_NAMES; i++)
            load(&f, names[i]);
    }
    for (size_t i = 0; i < N_NAMES; i++) {
        sy_client_result *after = fixture_infer(&f, names[i], 1, 0, NULL);
        assert_true(fixture_same(before[i], after));
        sy_client_result_free(after);
        sy_client_result_free(before[i]);
    }
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_leave_while_their_heads_come)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
