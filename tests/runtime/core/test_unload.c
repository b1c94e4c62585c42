/* Models go and come back while their heads are on their way into the pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/server_fixture.h"

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

/* ---- whose they are ------------------------------------------------------------------------------------ */

static int load_for(struct fixture *f, const char *name, const char *as, const char *tenant)
{
    char params[900], *answer = NULL;
    snprintf(params, sizeof params,
             "{\"path\": \"%s/%s/1/model.sypkg\", \"name\": \"%s\", \"tenant\": \"%s\"}",
             fixture_models(), name, as, tenant);
    int status = sy_client_call(f->client, "model_load", params, &answer);
    free(answer);
    return status;
}

static void limit(struct fixture *f, const char *tenant, json_int_t bytes)
{
    json_decref(fixture_call(f, "tenant",
                             json_pack("{s:s, s:I}", "tenant", tenant, "memory_bytes", bytes)));
}

static json_int_t used_by(struct fixture *f, const char *tenant)
{
    json_int_t used = -1;
    size_t i;
    json_t *entry, *status = fixture_status(f);
    json_array_foreach(json_object_get(json_object_get(status, "rules"), "tenants"), i, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "tenant")), tenant) == 0)
            used = json_integer_value(json_object_get(entry, "memory_used_bytes"));
    }
    json_decref(status);
    return used;
}

static bool is_of(struct fixture *f, const char *name, const char *tenant)
{
    bool same = false;
    size_t i;
    json_t *model, *list = fixture_call(f, "models", json_object());
    json_array_foreach(list, i, model)
    {
        const char *whose = json_string_value(json_object_get(model, "tenant"));
        if (strcmp(json_string_value(json_object_get(model, "name")), name) == 0)
            same = tenant ? whose && strcmp(whose, tenant) == 0 : whose == NULL;
    }
    json_decref(list);
    return same;
}

static void a_tenants_models_count_for_its_quota(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "tenants");
    const char *const args[] = {"--models",
                                fixture_models(),
                                "--device",
                                "emulated,link-gbps=2",
                                "--pool-bytes",
                                "64M",
                                "--image-bytes",
                                "64M",
                                NULL};
    fixture_start(&f, args);
    assert_true(is_of(&f, "mlp", NULL));
    limit(&f, "blue", 1000); /* less than any */
    assert_int_equal(load_for(&f, "mlp", "blue_1", "blue"), SY_ENOMEM_DEVICE);
    assert_non_null(strstr(sy_client_error(f.client), "quota"));
    assert_non_null(strstr(sy_client_error(f.client), "blue"));
    /* Its weights (how many bytes depends on the CPU's vectors) are in the host image and in the pool: both are said, and no other tenant's number. */
    const char *said = strstr(sy_client_error(f.client), ", with ");
    unsigned long long pool = 0, image = 0;
    char needs[96];
    assert_non_null(said);
    assert_int_equal(
        sscanf(said, ", with %llu bytes in the pool and %llu in the host", &pool, &image), 2);
    assert_true(pool >= 4096 && pool == image);
    snprintf(needs, sizeof needs, "needs %llu bytes, but 0 of the tenant's", pool + image);
    assert_non_null(strstr(sy_client_error(f.client), needs));
    assert_int_equal(used_by(&f, "blue"), 0);
    limit(&f, "blue", 0);
    assert_int_equal(load_for(&f, "mlp", "blue_1", "blue"), SY_OK);
    json_int_t one = used_by(&f, "blue");
    assert_true(one > 0);
    assert_true(is_of(&f, "blue_1", "blue"));
    limit(&f, "blue", one + one / 2); /* not two of them */
    assert_int_equal(load_for(&f, "mlp", "blue_2", "blue"), SY_EBUSY);
    assert_int_equal(load_for(&f, "mlp", "red_1", "red"), SY_OK); /* nobody else notices */
    assert_true(used_by(&f, "red") == one && used_by(&f, "blue") == one);
    json_decref(fixture_call(&f, "model_unload", json_pack("{s:s}", "model", "blue_1")));
    for (int i = 0; i < 1000 && used_by(&f, "blue") > 0; i++)
        sy_client_result_free(fixture_infer(&f, "tiny_cnn", 1, 0, NULL));
    assert_int_equal(used_by(&f, "blue"), 0);
    assert_int_equal(load_for(&f, "mlp", "blue_2", "blue"), SY_OK);
    assert_int_equal(load_for(&f, "no_such", "blue_3", "blue"), SY_ENOTFOUND);
    assert_int_equal(used_by(&f, "blue"), one);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_leave_while_their_heads_come),
                                       cmocka_unit_test(a_tenants_models_count_for_its_quota)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
