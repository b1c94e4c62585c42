/* The CUDA trainer on the fake mathematics, where it is not what the host's tests ask for: what is left behind when a call fails, and weights
 * that are kept in float32 while products are narrow. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/graph_builder.h"
#include "tests/on_cpu/fake_math.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/cuda/train/cuda_trainer.h"

#define BATCH 3
#define LIST(...)                                                        \
    (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (int64_t[]) \
    {                                                                    \
        __VA_ARGS__                                                      \
    }
#define IN(...)                                              \
    (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)), (int[]) \
    {                                                        \
        __VA_ARGS__                                          \
    }

static const struct sy_trainer_ops *const ops = &sy_cuda_trainer;
static uint64_t seed = 20250101;

struct job {
    struct sy_graph *graph;
    struct sy_trainer *trainer;
    void *persistent, *ephemeral;
};

static int weight(struct sy_graph *g, const char *name, int n, const int64_t *dims)
{
    return gb_constant(g, name, n, dims, &seed, -0.5, 0.5);
}

/* A convolution, a transposed one, batch norm, a pool, a recurrence, a product. */
static struct sy_graph *network(void)
{
    struct sy_graph *g = gb_new("network");
    int x = gb_input(g, LIST(1, 2, 4, 4));
    seed = 7;
    int y = gb_node(g, SY_OP_CONV, IN(x, weight(g, "c", LIST(4, 2, 3, 3))), LIST(1, 4, 4, 4));
    gb_ints(g, "kernel_shape", LIST(3, 3));
    gb_ints(g, "pads", LIST(1, 1, 1, 1));
    y = gb_node(g, SY_OP_BATCH_NORM,
                IN(y, weight(g, "s", LIST(4)), weight(g, "b", LIST(4)), weight(g, "m", LIST(4)),
                   gb_constant(g, "v", LIST(4), &seed, 0.5, 1)),
                LIST(1, 4, 4, 4));
    y = gb_node(g, SY_OP_RELU, IN(y), LIST(1, 4, 4, 4));
    y = gb_node(g, SY_OP_MAX_POOL, IN(y), LIST(1, 4, 2, 2));
    gb_ints(g, "kernel_shape", LIST(2, 2));
    gb_ints(g, "strides", LIST(2, 2));
    y = gb_node(g, SY_OP_CONV_TRANSPOSE, IN(y, weight(g, "d", LIST(4, 2, 2, 2))), LIST(1, 2, 4, 4));
    gb_ints(g, "kernel_shape", LIST(2, 2));
    gb_ints(g, "strides", LIST(2, 2));
    y = gb_node(g, SY_OP_RESHAPE, IN(y), LIST(1, 4, 8));
    y = gb_node(g, SY_OP_TRANSPOSE, IN(y), LIST(4, 1, 8));
    g->tensors[y].shape.dims[0] = (struct sy_dim){.fixed = 4};
    g->tensors[y].shape.dims[1] = (struct sy_dim){.per_batch = 1};
    gb_ints(g, "perm", LIST(1, 0, 2));
    int h = gb_node(g, SY_OP_LSTM,
                    IN(y, weight(g, "w", LIST(1, 20, 8)), weight(g, "r", LIST(1, 20, 5))),
                    LIST(4, 1, 1, 5));
    g->tensors[h].shape.dims[0] = (struct sy_dim){.fixed = 4};
    g->tensors[h].shape.dims[2] = (struct sy_dim){.per_batch = 1};
    gb_int(g, "hidden_size", 5);
    y = gb_node(g, SY_OP_TRANSPOSE, IN(h), LIST(1, 4, 1, 5));
    gb_ints(g, "perm", LIST(2, 0, 1, 3));
    y = gb_node(g, SY_OP_RESHAPE, IN(y), LIST(1, 20));
    gb_output(g, gb_node(g, SY_OP_MATMUL, IN(y, weight(g, "p", LIST(20, 4))), LIST(1, 4)));
    return g;
}

static struct sy_train_options options(void)
{
    return (struct sy_train_options){.loss = SY_LOSS_SOFTMAX_CROSS_ENTROPY,
                                     .optimizer = SY_OPTIMIZER_ADAMW,
                                     .learning_rate = 1e-5,
                                     .beta1 = 0.9,
                                     .beta2 = 0.99,
                                     .epsilon = 1e-8,
                                     .clip_norm = 1,
                                     .accumulate = 2,
                                     .precision = SY_TRAIN_BF16,
                                     .recomputes = true,
                                     .batch = BATCH};
}

/* Behind what the trainer has of ephemeral memory: nobody writes there. */
#define FENCE_BYTES (256u << 10)
#define FENCE       0x5c

static unsigned char *fence_of(const struct job *j)
{
    return (unsigned char *)j->ephemeral + ops->ephemeral_bytes(j->trainer);
}

static int open_graph(struct job *j, struct sy_graph *graph, const struct sy_train_options *o)
{
    *j = (struct job){.graph = graph};
    SY_TRY(ops->create(j->graph, o, &j->trainer));
    j->persistent = aligned_alloc(4096, SY_TRAIN_HEADER_BYTES + 4096 +
                                            ops->persistent_bytes(j->trainer) / 4096 * 4096);
    j->ephemeral =
        aligned_alloc(4096, 4096 + FENCE_BYTES + ops->ephemeral_bytes(j->trainer) / 4096 * 4096);
    assert_non_null(j->persistent);
    assert_non_null(j->ephemeral);
    memset(fence_of(j), FENCE, FENCE_BYTES);
    ops->bind(j->trainer, fake_math_device((char *)j->persistent + SY_TRAIN_HEADER_BYTES),
              fake_math_device(j->ephemeral));
    return ops->init_state(j->trainer);
}

static int job_open(struct job *j)
{
    struct sy_train_options o = options();
    return open_graph(j, network(), &o);
}

static void job_close(struct job *j)
{
    for (unsigned i = 0; j->ephemeral && i < FENCE_BYTES; i++)
        if (fence_of(j)[i] != FENCE)
            fail_msg("byte %u behind the ephemeral memory was written", i);
    ops->destroy(j->trainer);
    sy_graph_free(j->graph);
    free(j->persistent);
    free(j->ephemeral);
}

static int phase(struct job *j, uint64_t batch)
{
    float *x = ops->batch_input(j->trainer, 0);
    int32_t *labels = ops->batch_labels(j->trainer);
    for (int i = 0; i < BATCH * 32; i++)
        x[i] = (float)((int)(batch * 31 + (uint64_t)i * 7) % 23 - 11) / 12.0f;
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int32_t)((batch + (uint64_t)i) % 4);
    ops->begin_batch(j->trainer, batch);
    for (int s = 0; s < ops->n_gradient_steps(j->trainer); s++)
        SY_TRY(ops->run_gradient_step(j->trainer, s));
    return SY_OK;
}

static int iterate(struct job *j, double *loss)
{
    uint64_t header = 1;
    for (uint64_t batch = 0; batch < 4; batch++) {
        SY_TRY(phase(j, batch));
        *loss = ops->loss(j->trainer);
        for (int s = 0; batch % 2 && s < ops->n_update_steps(j->trainer); s++)
            SY_TRY(ops->run_update_step(j->trainer, s, batch / 2 + 1));
        SY_TRY(ops->write_header(j->trainer, &header, sizeof header));
    }
    return ops->settle(j->trainer);
}

/* Every call in turn: told with its text, nothing is left, and the next job is as if nothing had been. */
static void test_each_failing_call_leaves_nothing(void **state)
{
    (void)state;
    double first = 0, loss = 0;
    uint64_t n_calls, n_failed = 0;
    struct job j;
    fake_math_fail(0);
    assert_int_equal(job_open(&j), SY_OK);
    assert_int_equal(iterate(&j, &first), SY_OK);
    n_calls = fake_math_get_counts().calls;
    job_close(&j);
    if (n_calls < 300 || !(first > 0))
        fail_msg("%d calls, loss %g", (int)n_calls, first);
    for (uint64_t k = 1; k <= n_calls; k += k < 60 ? 1 : 7) {
        fake_math_fail(k);
        int status = job_open(&j);
        if (status == SY_OK)
            status = iterate(&j, &loss);
        if (status != SY_EDEVICE || !strstr(sy_error_text(), "fake "))
            fail_msg("call %d: status %d: %s", (int)k, status, sy_error_text());
        n_failed++;
        fake_math_fail(0);
        fake_math_lose();
        job_close(&j);
        struct fake_math_counts left = fake_math_get_counts();
        assert_int_equal(left.plans + left.host_blocks + left.graphs, 0);
    }
    assert_true(n_failed > 100);
    assert_int_equal(job_open(&j), SY_OK);
    assert_int_equal(iterate(&j, &loss), SY_OK);
    assert_true(loss == first);
    job_close(&j);
}

static int find_state(const struct sy_trainer *t, const char *name)
{
    struct sy_state_tensor tensor;
    for (int s = 0; s < ops->n_state_tensors(t); s++) {
        ops->state_tensor(t, s, &tensor);
        if (!strcmp(tensor.name, name))
            return s;
    }
    fail_msg("no state '%s'", name);
    return -1;
}

/* Steps far smaller than bfloat16 can tell apart reach the weights, and what was read is what is written back. */
static void test_weights_are_kept_in_float32(void **state)
{
    (void)state;
    float before[72], after[72], again[72];
    int n_moved = 0, n_wide = 0;
    double loss;
    struct job j;
    assert_int_equal(job_open(&j), SY_OK);
    int s = find_state(j.trainer, "c");
    assert_int_equal(ops->get_state(j.trainer, s, before), SY_OK);
    assert_memory_equal(before, j.graph->tensors[j.graph->nodes[0].inputs[1]].data, sizeof before);
    assert_int_equal(iterate(&j, &loss), SY_OK);
    assert_int_equal(ops->get_state(j.trainer, s, after), SY_OK);
    for (int i = 0; i < 72; i++) {
        uint32_t bits;
        memcpy(&bits, &after[i], sizeof bits);
        n_wide += (bits & 0xffff) != 0;
        n_moved += after[i] != before[i] && fabsf(after[i] - before[i]) < 1e-4f;
    }
    if (n_wide < 60 || n_moved < 30)
        fail_msg("%d wide, %d moved; %g to %g", n_wide, n_moved, (double)before[0],
                 (double)after[0]);
    assert_int_equal(ops->set_state(j.trainer, s, before), SY_OK);
    assert_int_equal(ops->get_state(j.trainer, s, again), SY_OK);
    assert_memory_equal(before, again, sizeof before);
    job_close(&j);
}

/* What lasts was taken out to host memory and its place is another's: a snapshot reads the copy, until memory is bound again. */
static void test_state_of_a_copy(void **state)
{
    (void)state;
    struct job j;
    double loss;
    assert_int_equal(job_open(&j), SY_OK);
    assert_int_equal(iterate(&j, &loss), SY_OK);
    uint64_t bytes = ops->persistent_bytes(j.trainer);
    unsigned char *place = (unsigned char *)j.persistent + SY_TRAIN_HEADER_BYTES,
                  *copy = malloc(bytes);
    assert_non_null(copy);
    assert_int_equal(ops->settle(j.trainer), SY_OK);
    memcpy(copy, place, bytes);
    for (int s = 0; s < ops->n_state_tensors(j.trainer); s++) {
        struct sy_state_tensor tensor;
        ops->state_tensor(j.trainer, s, &tensor);
        unsigned char *before = malloc(tensor.bytes), *after = malloc(tensor.bytes);
        assert_int_equal(ops->get_state(j.trainer, s, before), SY_OK);
        memset(place, 0xee, bytes);
        ops->read_copy(j.trainer, copy);
        assert_int_equal(ops->get_state(j.trainer, s, after), SY_OK);
        assert_memory_equal(before, after, tensor.bytes);
        ops->bind(j.trainer, fake_math_device(place), fake_math_device(j.ephemeral));
        assert_int_equal(ops->get_state(j.trainer, s, after), SY_OK);
        assert_int_equal(after[0], 0xee);
        memcpy(place, copy, bytes);
        free(before);
        free(after);
    }
    free(copy);
    job_close(&j);
}

/* The host's trainer has the same tensors under the same names: a job goes on on either device. */
static void test_state_is_the_hosts(void **state)
{
    (void)state;
    struct sy_train_options o = options();
    struct sy_trainer *host;
    struct sy_state_tensor a, b;
    struct job j;
    struct sy_graph *g = network();
    o.precision = SY_TRAIN_F32; /* of the steps, not of the state */
    assert_int_equal(job_open(&j), SY_OK);
    if (sy_host_trainer.create(g, &o, &host) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(ops->n_state_tensors(j.trainer), sy_host_trainer.n_state_tensors(host));
    for (int s = 0; s < ops->n_state_tensors(j.trainer); s++) {
        ops->state_tensor(j.trainer, s, &a);
        for (int i = 0; i < sy_host_trainer.n_state_tensors(host); i++) {
            sy_host_trainer.state_tensor(host, i, &b);
            if (!strcmp(a.name, b.name))
                break;
        }
        assert_string_equal(a.name, b.name);
        assert_true(a.bytes == b.bytes && sy_shape_equal(&a.shape, &b.shape));
    }
    sy_host_trainer.destroy(host);
    sy_graph_free(g);
    job_close(&j);
}

/* How often two iterations wait for the device; *n_steps: their gradient steps. */
static int count_waits(const char *limit_us, int *n_steps)
{
    struct job j;
    double loss;
    setenv("SY_CUDA_INFLIGHT_US", limit_us, 1);
    fake_math_fail(0);
    int before = fake_math_get_counts().waits;
    assert_int_equal(job_open(&j), SY_OK);
    assert_int_equal(iterate(&j, &loss), SY_OK);
    *n_steps = 4 * ops->n_gradient_steps(j.trainer);
    job_close(&j);
    unsetenv("SY_CUDA_INFLIGHT_US");
    return fake_math_get_counts().waits - before;
}

/* H1: where no two steps may be in flight, each waits for the one before; where a second may, none does but for the loss. */
static void test_what_is_in_flight_is_bounded(void **state)
{
    int n_steps;
    (void)state;
    int always = count_waits("1", &n_steps), seldom = count_waits("1000000", &n_steps);
    assert_true(n_steps > 40);
    assert_in_range(always, n_steps - 4, 100 * n_steps);
    assert_in_range(seldom, 0, n_steps / 2);
}

/* A convolution that stays computes forward only, with as much scratch as one that is trained: all of it is the trainer's (the fence). */
static void test_convolutions_that_stay(void **state)
{
    char *frozen[] = {"c", NULL};
    struct sy_train_options o = options();
    struct sy_graph *g = gb_new("stays");
    struct job j;
    double loss;
    (void)state;
    int x = gb_input(g, LIST(1, 2, 4, 4));
    int y = gb_node(g, SY_OP_CONV, IN(x, weight(g, "c", LIST(4, 2, 3, 3))), LIST(1, 4, 4, 4));
    gb_ints(g, "kernel_shape", LIST(3, 3));
    gb_ints(g, "pads", LIST(1, 1, 1, 1));
    y = gb_node(g, SY_OP_RESHAPE, IN(y), LIST(1, 64));
    gb_output(g, gb_node(g, SY_OP_MATMUL, IN(y, weight(g, "p", LIST(64, 4))), LIST(1, 4)));
    o.frozen = frozen;
    assert_int_equal(open_graph(&j, g, &o), SY_OK);
    assert_in_range(ops->ephemeral_bytes(j.trainer), fake_math.back_scratch_bytes, UINT64_MAX);
    assert_int_equal(iterate(&j, &loss), SY_OK);
    assert_true(loss > 0);
    job_close(&j);
}

/* More than the scratch has room for is refused with the number, before anything is enqueued. */
static void test_sums_of_too_many_columns(void **state)
{
    int64_t most = (int64_t)(fake_math.scratch_bytes / (2 * sizeof(double)));
    struct sy_math_columns c = {.kind = SY_COLUMNS_SUM, .rows = 2, .columns = most + 1};
    struct fake_math_counts before = fake_math_get_counts();
    char number[32];
    (void)state;
    assert_int_equal(fake_math.columns(NULL, &c, NULL, NULL, NULL, NULL, NULL), SY_EUNSUPPORTED);
    snprintf(number, sizeof number, "%lld", (long long)c.columns);
    assert_non_null(strstr(sy_error_text(), number));
    assert_int_equal(fake_math_get_counts().calls, before.calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_failing_call_leaves_nothing),
        cmocka_unit_test(test_weights_are_kept_in_float32),
        cmocka_unit_test(test_state_of_a_copy),
        cmocka_unit_test(test_state_is_the_hosts),
        cmocka_unit_test(test_convolutions_that_stay),
        cmocka_unit_test(test_sums_of_too_many_columns),
        cmocka_unit_test(test_what_is_in_flight_is_bounded),
    };
    sy_cuda_engine_use(&fake_math);
    if (sy_cuda_engine.attach(NULL, NULL) < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sy_cuda_engine.detach();
    return failed;
}
