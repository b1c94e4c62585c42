/* A training job of convolutions on a GPU, in memory of the device that held other bytes, beside the same job on the host: the losses of
 * each step agree, also where the job is held between two steps. Skipped without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "tests/rigs/server_fixture.h"
#include "workers/engine/engines.h"
#include "workers/train/train_run.h"

#define STEPS    100
#define RELATIVE 0.02 /* sums in another order, a hundred steps long */

static const char *spec_text;

struct place {
    struct sy_device *device;
    struct sy_stream *compute, *copy;
    struct sy_pool_memory *pool;
    void *persistent, *ephemeral;
};

static struct sy_train_run *open_run(const char *model, const struct sy_trainer_ops *trainer)
{
    char text[2048];
    struct sy_train_run *run;
    snprintf(text, sizeof text,
             "{\"name\":\"job\",\"model\":\"%s\",\"loss\":\"softmax_cross_entropy\","
             "\"optimizer\":{\"kind\":\"sgd\",\"learning_rate\":0.02,\"momentum\":0.9},"
             "\"data\":{\"kind\":\"synthetic\",\"samples\":4096},\"batch\":64,"
             "\"epochs\":100,\"max_steps\":%d,\"seed\":1}",
             model, STEPS);
    if (sy_train_run_create(text, trainer, NULL, &run) < 0)
        fail_msg("%s", sy_error_text());
    return run;
}

static void take_device_memory(struct place *p, uint64_t persistent, uint64_t ephemeral)
{
    uint64_t bytes = persistent + ephemeral;
    void *other = malloc(bytes);
    assert_non_null(other);
    memset(other, 0xff, bytes);
    assert_int_equal(sy_pool_create(p->device, bytes, &p->pool), SY_OK);
    assert_int_equal(sy_copy_h2d(p->copy, sy_pool_address(p->pool, 0), other, bytes), SY_OK);
    assert_int_equal(sy_stream_synchronize(p->copy), SY_OK);
    free(other);
    p->persistent = (void *)(uintptr_t)sy_pool_address(p->pool, 0).value;
    p->ephemeral = (char *)p->persistent + persistent;
}

static void take_host_memory(struct place *p, uint64_t persistent, uint64_t ephemeral)
{
    p->persistent = mmap(NULL, persistent + ephemeral, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p->persistent != MAP_FAILED);
    p->ephemeral = (char *)p->persistent + persistent;
}

/* The loss after each step. The job is held behind each 97th advance, wherever that is. */
static void train(const char *model, const struct sy_trainer_ops *trainer, struct place *p,
                  double *losses)
{
    struct sy_train_needs needs;
    enum sy_train_state state = SY_TRAIN_RUNNING;
    struct sy_control_page *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sy_train_run *run = open_run(model, trainer);
    assert_true(page != MAP_FAILED);
    sy_train_run_needs(run, &needs);
    if (p->device)
        take_device_memory(p, needs.persistent_bytes, needs.ephemeral_bytes);
    else
        take_host_memory(p, needs.persistent_bytes, needs.ephemeral_bytes);
    assert_int_equal(sy_train_run_start(run, p->persistent, p->ephemeral, 0, page), SY_OK);
    for (int i = 1; state == SY_TRAIN_RUNNING; i++) {
        uint64_t before = sy_train_run_step(run);
        if (sy_train_run_advance(run, &state) < 0)
            fail_msg("step %llu: %s", (unsigned long long)before + 1, sy_error_text());
        if (sy_train_run_step(run) > before)
            losses[before] = sy_train_run_loss(run);
        if (i % 97 == 0)
            assert_int_equal(sy_train_run_settle(run), SY_OK);
    }
    sy_train_run_destroy(run);
    munmap(page, 4096);
}

static void test_a_job_of_convolutions_trains_as_on_the_host(void **state)
{
    (void)state;
    static double host[STEPS], gpu[STEPS];
    const struct sy_trainer_ops *trainer;
    const struct sy_engine_ops *engine;
    struct sy_device_spec spec;
    struct place on_host = {0}, on_gpu = {0};
    char model[700], command[2048];
    snprintf(model, sizeof model, "%s/mnist_cnn/1/model.onnx", fixture_program("gpu-models"));
    snprintf(command, sizeof command, "'%s' --out '%s' mnist_cnn >/dev/null",
             fixture_program("make-models"), fixture_program("gpu-models"));
    assert_int_equal(system(command), 0);
    assert_int_equal(sy_device_spec_parse(spec_text, &spec), SY_OK);
    assert_int_equal(sy_trainer_for_device(spec.kind, &trainer), SY_OK);
    assert_int_equal(sy_engine_for_device(spec.kind, &engine), SY_OK);
    assert_int_equal(sy_device_open(&spec, &on_gpu.device), SY_OK);
    assert_int_equal(sy_stream_create(on_gpu.device, SY_STREAM_COMPUTE, &on_gpu.compute), SY_OK);
    assert_int_equal(sy_stream_create(on_gpu.device, SY_STREAM_COPY_H2D, &on_gpu.copy), SY_OK);
    if (engine->attach)
        assert_int_equal(engine->attach(on_gpu.device, on_gpu.compute), SY_OK);
    train(model, trainer, &on_gpu, gpu);
    assert_int_equal(sy_device_spec_parse("host", &spec), SY_OK);
    assert_int_equal(sy_trainer_for_device(spec.kind, &trainer), SY_OK);
    train(model, trainer, &on_host, host);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(gpu[i] - host[i]) <= RELATIVE * fabs(host[i])))
            fail_msg("step %d: loss %g, the host's %g", i + 1, gpu[i], host[i]);
    if (engine->detach)
        engine->detach();
    sy_pool_destroy(on_gpu.pool);
    sy_stream_destroy(on_gpu.copy);
    sy_stream_destroy(on_gpu.compute);
    sy_device_close(on_gpu.device);
}

static bool device_is_here(void)
{
    struct sy_device_spec spec;
    struct sy_device *device;
    if (sy_device_spec_parse(spec_text, &spec) < 0 || sy_device_open(&spec, &device) < 0)
        return false;
    sy_device_close(device);
    return true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_of_convolutions_trains_as_on_the_host),
    };
    spec_text = getenv("SY_TEST_DEVICE");
    if (!spec_text || !device_is_here()) {
        printf("skip: no GPU: %s\n",
               spec_text ? sy_error_text() : "make gpu-check sets SY_TEST_DEVICE");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
