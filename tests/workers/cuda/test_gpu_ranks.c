/* Ranks on a GPU, in memory of the device: one by NCCL, one and two through host memory on the same GPU. Each run gives the same bits twice; one rank those of
 * a job without ranks, by either way; two ranks the losses of one, but for the order of sums. Skipped without a GPU; what needs NCCL, without that too. */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/cli/train/local_job.h"
#include "tests/rigs/rank_rig.h"
#include "tests/rigs/server_fixture.h"

#define STEPS    20
#define RELATIVE 1e-3

static const char *device;
static char model[700];

static struct shared {
    double losses[RANK_RIG_MOST][STEPS], ms_a_step;
    int status[RANK_RIG_MOST];
    char errors[RANK_RIG_MOST][512];
} * shared;

struct order {
    const char *way;
    bool is_alone; /* a job without ranks */
};

static int train(struct sy_local_job *job, int rank)
{
    enum sy_train_state state = SY_TRAIN_RUNNING;
    sy_ns begin = sy_clock_now();
    while (state == SY_TRAIN_RUNNING) {
        uint64_t step = sy_train_run_step(job->run);
        SY_TRY(sy_train_run_advance(job->run, &state));
        if (sy_train_run_step(job->run) > step)
            shared->losses[rank][step] = sy_train_run_loss(job->run);
    }
    shared->ms_a_step = (double)(sy_clock_now() - begin) / 1e6 / STEPS;
    return SY_OK;
}

static int run_rank(const struct sy_ranks *ranks, void *ctx)
{
    const struct order *order = ctx;
    struct sy_local_job job = {0};
    char text[2048];
    sy_log_threshold = SY_LOG_ERROR;
    snprintf(text, sizeof text,
             "{\"name\":\"ranks\",\"model\":\"%s\",\"optimizer\":{\"kind\":\"sgd\","
             "\"learning_rate\":0.001,\"momentum\":0.9},\"data\":{\"kind\":\"synthetic\","
             "\"samples\":1024},\"batch\":64,\"epochs\":100,\"max_steps\":%d,\"seed\":1,"
             "\"exchange\":\"%s\"}",
             model, STEPS, order->way);
    int status =
        sy_local_job_open(text, SY_HUGE_AS_IS, device, order->is_alone ? NULL : ranks, &job);
    if (status == SY_OK)
        status = train(&job, ranks->rank);
    shared->status[ranks->rank] = status;
    snprintf(shared->errors[ranks->rank], sizeof shared->errors[0], "%s",
             status < 0 ? sy_error_text() : "");
    sy_local_job_finish(&job);
    return status < 0;
}

/* The first rank's losses. */
static void run_all(int n, const struct order *order, double losses[STEPS])
{
    struct rank_rig rig;
    memset(shared, 0, sizeof *shared);
    rank_rig_start(&rig, n, run_rank, (void *)(uintptr_t)order);
    for (int r = 0; r < n; r++) {
        int got = rank_rig_wait(&rig, r);
        if (got != 0)
            fail_msg("rank %d of %d, %s: ended with %d: %s", r, n, order->way, got,
                     shared->errors[r]);
        assert_memory_equal(shared->losses[r], shared->losses[0], sizeof shared->losses[0]);
    }
    memcpy(losses, shared->losses[0], sizeof shared->losses[0]);
    printf("%d rank%s, %s: %.2f ms a step, loss %g to %g\n", n, n > 1 ? "s" : "",
           order->is_alone ? "alone" : order->way, shared->ms_a_step, losses[0], losses[STEPS - 1]);
}

static void check_alike(const double *a, const double *b)
{
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(a[i] - b[i]) <= RELATIVE * (1 + fabs(b[i]))))
            fail_msg("step %d: a loss of %g, and %g", i + 1, a[i], b[i]);
}

static void test_ranks_through_host_memory(void **state)
{
    double alone[STEPS], one[STEPS], two[STEPS], again[STEPS];
    (void)state;
    run_all(1, &(struct order){"host", true}, alone);
    run_all(1, &(struct order){"host", false}, one);
    assert_memory_equal(one, alone, sizeof alone);
    run_all(2, &(struct order){"host", false}, two);
    run_all(2, &(struct order){"host", false}, again);
    assert_memory_equal(two, again, sizeof two);
    check_alike(two, alone);
    assert_true(alone[STEPS - 1] < alone[0]);
}

static bool has_nccl(void)
{
    const char *named = getenv("SY_NCCL_LIBRARY");
    void *library = dlopen(named ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library)
        dlclose(library);
    return library != NULL;
}

static void test_a_rank_by_nccl(void **state)
{
    double alone[STEPS], one[STEPS];
    (void)state;
    if (!has_nccl()) {
        printf("skip: no NCCL: SY_NCCL_LIBRARY names its file\n");
        skip();
    }
    run_all(1, &(struct order){"host", true}, alone);
    run_all(1, &(struct order){"nccl", false}, one);
    assert_memory_equal(one, alone, sizeof alone);
}

/* NCCL wants a GPU for each; both ranks say so, and none hangs. */
static void test_two_ranks_on_one_gpu_are_refused(void **state)
{
    struct rank_rig rig;
    const struct order order = {"nccl", false};
    (void)state;
    if (!has_nccl())
        skip();
    memset(shared, 0, sizeof *shared);
    rank_rig_start(&rig, 2, run_rank, (void *)(uintptr_t)&order);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(rank_rig_wait(&rig, r), 1);
        if (!strstr(shared->errors[r], "a GPU for each rank"))
            fail_msg("rank %d: %s", r, shared->errors[r]);
        printf("rank %d: %s\n", r, shared->errors[r]);
    }
}

static int set_up(void **state)
{
    char command[2048];
    (void)state;
    snprintf(model, sizeof model, "%s/mnist_cnn/1/model.onnx", fixture_program("gpu-models"));
    snprintf(command, sizeof command, "'%s' --out '%s' mnist_cnn >/dev/null",
             fixture_program("make-models"), fixture_program("gpu-models"));
    if (system(command) != 0)
        return -1;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_through_host_memory),
        cmocka_unit_test(test_a_rank_by_nccl),
        cmocka_unit_test(test_two_ranks_on_one_gpu_are_refused),
    };
    device = getenv("SY_TEST_DEVICE");
    if (!device) {
        printf("skip: no GPU: make gpu-check sets SY_TEST_DEVICE\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, set_up, NULL);
}
