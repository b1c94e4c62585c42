/* Training jobs of convolutions on a GPU, in memory of the device, beside the same jobs on the host:
 *
 * - one with a small learning rate: its losses are the host's to the end;
 * - one whose learning rate is near the largest that it bears, where a rounding grows to another curve within 15 steps: each step from the
 *   host's state ends in the host's state, tensor by tensor;
 * - that job by itself, three times: what the memory held before, and holds between its steps, change no bit of its losses.
 *
 * Skipped without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "tests/rigs/server_fixture.h"
#include "workers/engine/engines.h"
#include "workers/train/train_run.h"

#define STEPS        60
#define SINGLE_STEPS 30
#define SMALL_RATE   0.001
#define LARGE_RATE   0.02
#define RELATIVE     0.02 /* of losses: sums in another order, sixty steps long */
/* Of a tensor's largest element, after one step: a rounding moves single elements across a Relu or to another maximum of a pool. */
#define STATE_RELATIVE 0.01

static const char *spec_text;
static char model[700];
static struct sy_device *device; /* and what the group opens with it */
static struct sy_stream *compute, *copy;
static const struct sy_engine_ops *engine;
static const struct sy_trainer_ops *device_trainer, *host_trainer;

/* ---- jobs --------------------------------------------------------------------------------------------- */

struct job {
    struct sy_train_run *run;
    const struct sy_trainer_ops *ops;
    struct sy_trainer *trainer; /* the run's */
    struct sy_pool_memory *pool;
    struct sy_control_page *page;
    char *persistent, *ephemeral;
    uint64_t bytes; /* of both parts */
    enum sy_train_state state;
    int n_advances, hold_every; /* 0: never held */
};

/* The trainer of a run is not to be had from outside: it is caught where the run makes it. */
static struct job *opening;

static int create_trainer(const struct sy_graph *graph, const struct sy_train_options *options,
                          struct sy_trainer **out)
{
    int status = opening->ops->create(graph, options, out);
    opening->trainer = status == SY_OK ? *out : NULL;
    return status;
}

static void create_run(struct job *j, double rate, int n_steps)
{
    static struct sy_trainer_ops tables[2]; /* the run keeps its table's address */
    struct sy_trainer_ops *ops = &tables[j->ops == host_trainer];
    char text[2048];
    *ops = *j->ops;
    ops->create = create_trainer;
    opening = j;
    snprintf(text, sizeof text,
             "{\"name\":\"job\",\"model\":\"%s\",\"loss\":\"softmax_cross_entropy\","
             "\"optimizer\":{\"kind\":\"sgd\",\"learning_rate\":%g,\"momentum\":0.9},"
             "\"data\":{\"kind\":\"synthetic\",\"samples\":4096},\"batch\":64,"
             "\"epochs\":100,\"max_steps\":%d,\"seed\":1}",
             model, rate, n_steps);
    if (sy_train_run_create(text, ops, NULL, &j->run) < 0)
        fail_msg("%s", sy_error_text());
}

static void take_device_memory(struct job *j, int fill)
{
    void *other = malloc(j->bytes);
    assert_non_null(other);
    memset(other, fill, j->bytes);
    assert_int_equal(sy_pool_create(device, j->bytes, &j->pool), SY_OK);
    assert_int_equal(sy_copy_h2d(copy, sy_pool_address(j->pool, 0), other, j->bytes), SY_OK);
    assert_int_equal(sy_stream_synchronize(copy), SY_OK);
    free(other);
    j->persistent = (char *)(uintptr_t)sy_pool_address(j->pool, 0).value;
}

static void *map(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    return at;
}

/* fill: the byte that the device's memory holds before; -1: the job is the host's. */
static void open_job(struct job *j, double rate, int n_steps, int fill, int hold_every)
{
    struct sy_train_needs needs;
    *j = (struct job){.ops = fill < 0 ? host_trainer : device_trainer,
                      .page = map(4096),
                      .state = SY_TRAIN_RUNNING,
                      .hold_every = hold_every};
    create_run(j, rate, n_steps);
    sy_train_run_needs(j->run, &needs);
    j->bytes = needs.persistent_bytes + needs.ephemeral_bytes;
    if (fill < 0)
        j->persistent = map(j->bytes);
    else
        take_device_memory(j, fill);
    j->ephemeral = j->persistent + needs.persistent_bytes;
    if (sy_train_run_start(j->run, j->persistent, j->ephemeral, 0, j->page) < 0)
        fail_msg("%s", sy_error_text());
}

static void close_job(struct job *j)
{
    sy_train_run_destroy(j->run);
    if (j->pool)
        sy_pool_destroy(j->pool);
    else
        munmap(j->persistent, j->bytes);
    munmap(j->page, 4096);
}

/* One iteration, wherever it is held; a negative status where the job gives up. */
static int step(struct job *j)
{
    uint64_t before = sy_train_run_step(j->run);
    while (sy_train_run_step(j->run) == before) {
        SY_TRY(sy_train_run_advance(j->run, &j->state));
        if (j->hold_every && ++j->n_advances % j->hold_every == 0)
            SY_TRY(sy_train_run_synchronize(j->run));
    }
    return SY_OK;
}

static void must_step(struct job *j)
{
    uint64_t before = sy_train_run_step(j->run);
    if (step(j) < 0)
        fail_msg("step %llu of %s: %s", (unsigned long long)before + 1, j->ops->name,
                 sy_error_text());
}

/* ---- curves ------------------------------------------------------------------------------------------- */

static void test_a_job_has_the_losses_of_the_hosts(void **state)
{
    (void)state;
    struct job host, other;
    open_job(&host, SMALL_RATE, STEPS, -1, 0);
    open_job(&other, SMALL_RATE, STEPS, 0xff, 97);
    for (int i = 0; i < STEPS; i++) {
        must_step(&host);
        must_step(&other);
        double wanted = sy_train_run_loss(host.run), loss = sy_train_run_loss(other.run);
        if (!(fabs(loss - wanted) <= RELATIVE * fabs(wanted)))
            fail_msg("step %d: loss %g, the host's %g", i + 1, loss, wanted);
    }
    close_job(&other);
    close_job(&host);
}

/* ---- single steps ------------------------------------------------------------------------------------- */

/* Whether the tensor is the host's; says what differs, and gives the job the host's. */
static bool is_the_hosts(struct job *host, struct job *other, int index, int step_number)
{
    struct sy_state_tensor tensor;
    host->ops->state_tensor(host->trainer, index, &tensor);
    float *wanted = malloc(tensor.bytes), *got = malloc(tensor.bytes);
    size_t n = tensor.bytes / sizeof(float), n_off = 0, worst = 0;
    double largest = 0, off = -1;
    assert_true(wanted && got);
    assert_int_equal(host->ops->get_state(host->trainer, index, wanted), SY_OK);
    if (other->ops->get_state(other->trainer, index, got) < 0)
        fail_msg("step %d, tensor %s: %s", step_number, tensor.name, sy_error_text());
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)wanted[i]));
    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)got[i] - (double)wanted[i]);
        if (difference <= STATE_RELATIVE * largest) /* false of NaN */
            continue;
        n_off++;
        worst = isnan(difference) || difference > off ? i : worst;
        off = isnan(difference) ? INFINITY : fmax(off, difference);
    }
    if (n_off)
        print_error("step %d: %s: %zu of %zu elements differ, element %zu is %g, the host's %g, "
                    "its largest %g\n",
                    step_number, tensor.name, n_off, n, worst, (double)got[worst],
                    (double)wanted[worst], largest);
    assert_int_equal(other->ops->set_state(other->trainer, index, wanted), SY_OK);
    free(wanted);
    free(got);
    return n_off == 0;
}

static void test_each_step_changes_the_state_as_on_the_host(void **state)
{
    (void)state;
    struct job host, other;
    open_job(&host, LARGE_RATE, SINGLE_STEPS + 1, -1, 0);
    open_job(&other, LARGE_RATE, SINGLE_STEPS + 1, 0xff, 97);
    int n = host.ops->n_state_tensors(host.trainer);
    assert_int_equal(n, other.ops->n_state_tensors(other.trainer));
    for (int i = 1; i <= SINGLE_STEPS; i++) {
        bool same = true;
        must_step(&host);
        must_step(&other);
        for (int s = 0; s < n; s++)
            same &= is_the_hosts(&host, &other, s, i);
        double wanted = sy_train_run_loss(host.run), loss = sy_train_run_loss(other.run);
        if (!same || !(fabs(loss - wanted) <= RELATIVE * fabs(wanted)))
            fail_msg("step %d from the host's state: loss %g, the host's %g", i, loss, wanted);
    }
    close_job(&other);
    close_job(&host);
}

/* ---- what must not matter ----------------------------------------------------------------------------- */

/* The losses until the job ends or gives up; how many. */
static int train(int fill, int hold_every, double *losses)
{
    struct job j;
    int n = 0;
    open_job(&j, LARGE_RATE, STEPS, fill, hold_every);
    while (n < STEPS && step(&j) == SY_OK)
        losses[n++] = sy_train_run_loss(j.run);
    if (n < STEPS)
        print_message("step %d: %s\n", n + 1, sy_error_text());
    close_job(&j);
    return n;
}

static void compare_curves(const char *what, int n, const double *wanted, int n_got,
                           const double *got)
{
    for (int i = 0; i < SY_MIN(n, n_got); i++)
        if (memcmp(&wanted[i], &got[i], sizeof *got) != 0)
            fail_msg("%s: step %d has loss %.9g, without %.9g", what, i + 1, got[i], wanted[i]);
    if (n != n_got)
        fail_msg("%s: the job gives up in step %d, without in step %d", what, n_got + 1, n + 1);
}

static void test_memory_and_holds_change_no_bit(void **state)
{
    (void)state;
    static double plain[STEPS], again[STEPS], full[STEPS], held[STEPS];
    int n = train(0, 0, plain), n_again = train(0, 0, again);
    int n_full = train(0xff, 0, full), n_held = train(0, 97, held);
    compare_curves("the same again", n, plain, n_again, again);
    compare_curves("memory that held NaN", n, plain, n_full, full);
    compare_curves("holds", n, plain, n_held, held);
}

/* ---- group -------------------------------------------------------------------------------------------- */

static int open_group(void **state)
{
    (void)state;
    struct sy_device_spec spec;
    char command[2048];
    snprintf(model, sizeof model, "%s/mnist_cnn/1/model.onnx", fixture_program("gpu-models"));
    snprintf(command, sizeof command, "'%s' --out '%s' mnist_cnn >/dev/null",
             fixture_program("make-models"), fixture_program("gpu-models"));
    SY_TRY(system(command) == 0 ? SY_OK : SY_EIO);
    SY_TRY(sy_device_spec_parse("host", &spec));
    SY_TRY(sy_trainer_for_device(spec.kind, &host_trainer));
    SY_TRY(sy_device_spec_parse(spec_text, &spec));
    SY_TRY(sy_trainer_for_device(spec.kind, &device_trainer));
    SY_TRY(sy_engine_for_device(spec.kind, &engine));
    SY_TRY(sy_device_open(&spec, &device));
    SY_TRY(sy_stream_create(device, SY_STREAM_COMPUTE, &compute));
    SY_TRY(sy_stream_create(device, SY_STREAM_COPY_H2D, &copy));
    return engine->attach ? engine->attach(device, compute) : SY_OK;
}

static int close_group(void **state)
{
    (void)state;
    if (engine->detach)
        engine->detach();
    sy_stream_destroy(copy);
    sy_stream_destroy(compute);
    sy_device_close(device);
    return 0;
}

static bool device_is_here(void)
{
    struct sy_device_spec spec;
    struct sy_device *probed;
    if (sy_device_spec_parse(spec_text, &spec) < 0 || sy_device_open(&spec, &probed) < 0)
        return false;
    sy_device_close(probed);
    return true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_has_the_losses_of_the_hosts),
        cmocka_unit_test(test_each_step_changes_the_state_as_on_the_host),
        cmocka_unit_test(test_memory_and_holds_change_no_bit),
    };
    spec_text = getenv("SY_TEST_DEVICE");
    if (!spec_text || !device_is_here()) {
        printf("skip: no GPU: %s\n",
               spec_text ? sy_error_text() : "make gpu-check sets SY_TEST_DEVICE");
        return 77;
    }
    return cmocka_run_group_tests(tests, open_group, close_group);
}
