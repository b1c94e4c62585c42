/* A worker's programs: bounded by count and by bytes, the least recently used goes, those that are kept stay, and what was used last is there. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/package_rig.h"
#include "tests/rigs/seed.h"
#include "workers/process/worker_models.h"

#define KB       1024u
#define LIMIT    (1000u * KB)
#define N_MODELS 3
#define N_STEPS  3000
#define N_LAST   4 /* programs, of at most a sixteenth of the limit each */

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

struct sy_program {
    int64_t batch;
    char memory[];
};

static int n_programs;

/* As many kilobytes as the batch has rows. */
static int create(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                  int64_t batch, struct sy_program **out)
{
    (void)graph, (void)layers, (void)n_layers;
    *out = malloc(sizeof **out + (size_t)batch * KB);
    assert_non_null(*out);
    (*out)->batch = batch;
    n_programs++;
    return SY_OK;
}

static void destroy(struct sy_program *program)
{
    n_programs--;
    free(program);
}

static struct sy_engine_ops engine;

static struct sy_worker_models *open_models(uint64_t limit)
{
    struct sy_worker_models *m;
    uint64_t cut = 0;
    engine = pr_copier;
    engine.program_create = create;
    engine.program_destroy = destroy;
    assert_int_equal(sy_worker_models_create(&engine, limit, &m), SY_OK);
    for (uint64_t id = 0; id < N_MODELS; id++)
        if (sy_worker_models_add(m, id, open(pr_path, O_RDONLY | O_CLOEXEC), pr_path, &cut, 1) < 0)
            fail_msg("%s", sy_error_text());
    return m;
}

/* Whether it had to be made. */
static bool wants(struct sy_worker_models *m, uint64_t model, uint64_t batch, bool keep)
{
    struct sy_worker_program of;
    if (sy_worker_models_program(m, model, batch, NULL, 0, keep, &of) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(of.program->batch, batch);
    return of.took_ns > 0;
}

static void test_bytes_are_bounded_and_the_last_stay(void **state)
{
    (void)state;
    struct sy_worker_models *m = open_models(LIMIT);
    uint64_t last[N_LAST][2] = {{0}};
    for (int step = 0; step < N_STEPS; step++) {
        int n = n_programs;
        uint64_t model = below(N_MODELS), batch = 1 + below(LIMIT / KB / 16);
        bool made = wants(m, model, batch, false);
        assert_true(made || n_programs == n);
        assert_true(sy_worker_models_program_bytes(m) <= LIMIT);
        assert_int_equal(sy_worker_models_n_programs(m), n_programs);
        memmove(last[1], last[0], sizeof last[0] * (N_LAST - 1));
        last[0][0] = model;
        last[0][1] = batch;
        for (int i = N_LAST - 1; i >= 0; i--) /* the oldest first: their order stays */
            assert_true(i > step || !wants(m, last[i][0], last[i][1], false));
    }
    sy_worker_models_destroy(m);
    assert_int_equal(n_programs, 0);
}

/* One that alone is larger than the bound runs all the same, and is the only one then. */
static void test_one_may_be_larger(void **state)
{
    (void)state;
    struct sy_worker_models *m = open_models(2 * KB); /* less than the layers count for at least */
    for (uint64_t batch = 1; batch < 10; batch++) {
        assert_true(wants(m, batch % N_MODELS, batch, false));
        assert_false(wants(m, batch % N_MODELS, batch, false));
        assert_int_equal(n_programs, 1);
    }
    sy_worker_models_destroy(m);
}

static void test_kept_ones_stay(void **state)
{
    (void)state;
    struct sy_worker_models *m = open_models(2 * KB);
    for (uint64_t batch = 1; batch <= SY_MODEL_MAX_KEPT; batch++)
        assert_true(wants(m, 0, batch, true));
    for (uint64_t batch = 100; batch < 200; batch++)
        assert_true(wants(m, batch % N_MODELS, batch, false));
    for (uint64_t batch = 1; batch <= SY_MODEL_MAX_KEPT; batch++)
        assert_false(wants(m, 0, batch, false));
    assert_int_equal(n_programs, SY_MODEL_MAX_KEPT + 1);
    sy_worker_models_drop(m, 0);
    assert_in_range(n_programs, 0, 1);
    sy_worker_models_destroy(m);
}

static void test_count_is_bounded_for_each_model(void **state)
{
    (void)state;
    struct sy_worker_models *m = open_models(UINT64_MAX);
    for (uint64_t model = 0; model < 2; model++)
        for (uint64_t batch = 1; batch <= 3 * SY_MODEL_MAX_PROGRAMS; batch++)
            assert_true(wants(m, model, batch, false));
    assert_int_equal(n_programs, 2 * SY_MODEL_MAX_PROGRAMS);
    for (uint64_t batch = 2 * SY_MODEL_MAX_PROGRAMS + 1; batch <= 3 * SY_MODEL_MAX_PROGRAMS;
         batch++)
        assert_false(wants(m, 0, batch, false));
    sy_worker_models_destroy(m);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_bytes_are_bounded_and_the_last_stay, pr_fresh),
        cmocka_unit_test_setup(test_one_may_be_larger, pr_fresh),
        cmocka_unit_test_setup(test_kept_ones_stay, pr_fresh),
        cmocka_unit_test_setup(test_count_is_bounded_for_each_model, pr_fresh),
    };
    return cmocka_run_group_tests(tests, pr_start, pr_finish);
}
