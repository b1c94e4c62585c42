/* The host trainer: gradients against central differences of a naive double-precision network, optimizers against their
 * closed forms, same bits at any address and after any interruption. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/engine.h"
#include "runtime/base/status.h"
#include "tests/nets/graph_builder.h"
#include "tests/nets/naive_net.h"
#include "tests/nets/small_nets.h"
#include "tests/rigs/lists.h"
#include "tests/rigs/seed.h"
#include "workers/engine/trainer.h"

#define BATCH 3
static uint64_t first_seed;
static uint64_t seed;

struct rig {
    struct sy_graph *graph;
    struct sy_trainer *trainer;
    void *persistent, *ephemeral, *persistent_base, *ephemeral_base;
    float *input;
    uint64_t input_elements;
};

/* The host trainer, unless the binary is linked with a rig_choose_trainer (tests/on_cpu/) that puts another here. */
static const struct sy_trainer_ops *ops = &sy_host_trainer;
static void *(*device_view)(void *memory); /* of what is bound; NULL: the pointer itself */
void rig_choose_trainer(const struct sy_trainer_ops **out, void *(**view)(void *memory))
    __attribute__((weak));
void *rig_take_memory(uint64_t bytes)
    __attribute__((weak)); /* that the device sees too, 4096-aligned */
void rig_drop_memory(void *memory) __attribute__((weak));

/* Memory full of NaN: what reads before it writes is found out. */
static void *dirty_memory(uint64_t bytes, uint64_t shift, void **base)
{
    uint64_t whole = (bytes + shift + 8191) / 4096 * 4096;
    char *memory = rig_take_memory ? rig_take_memory(whole) : aligned_alloc(4096, whole);
    assert_non_null(memory);
    memset(memory, 0xff, whole);
    *base = memory;
    return memory + shift;
}

static struct sy_train_options plain_options(enum sy_loss_kind loss)
{
    return (struct sy_train_options){.loss = loss,
                                     .optimizer = SY_OPTIMIZER_SGD,
                                     .learning_rate = 0.1,
                                     .momentum = 0.5,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .epsilon = 1e-8,
                                     .batch = BATCH};
}

static void rig_open(struct rig *r, struct sy_graph *graph, const struct sy_train_options *options,
                     uint64_t shift)
{
    r->graph = graph;
    int status = ops->create(graph, options, &r->trainer);
    if (status < 0)
        fail_msg("create: %s", sy_error_text());
    r->persistent = dirty_memory(ops->persistent_bytes(r->trainer), shift, &r->persistent_base);
    r->ephemeral = dirty_memory(ops->ephemeral_bytes(r->trainer), shift, &r->ephemeral_base);
    ops->bind(r->trainer, device_view ? device_view(r->persistent) : r->persistent,
              device_view ? device_view(r->ephemeral) : r->ephemeral);
    if (ops->init_state(r->trainer) < 0)
        fail_msg("init_state: %s", sy_error_text());
    r->input_elements =
        (uint64_t)sy_shape_elements(&graph->tensors[graph->inputs[0]].shape, options->batch);
}

static void rig_close(struct rig *r)
{
    ops->destroy(r->trainer);
    if (rig_drop_memory) {
        rig_drop_memory(r->persistent_base);
        rig_drop_memory(r->ephemeral_base);
        return;
    }
    free(r->persistent_base);
    free(r->ephemeral_base);
}

static void gradient_phase(struct rig *r, const float *input, const void *labels,
                           size_t label_bytes, int n_steps)
{
    memcpy(ops->batch_input(r->trainer, 0), input, r->input_elements * sizeof *input);
    memcpy(ops->batch_labels(r->trainer), labels, label_bytes);
    for (int s = 0; s < n_steps; s++)
        if (ops->run_gradient_step(r->trainer, s) < 0)
            fail_msg("step %d: %s", s, sy_error_text());
}

static void update_phase(struct rig *r, uint64_t iteration)
{
    for (int s = 0; s < ops->n_update_steps(r->trainer); s++)
        assert_int_equal(ops->run_update_step(r->trainer, s, iteration), SY_OK);
}

static int find_state(struct sy_trainer *t, const char *name, struct sy_state_tensor *out)
{
    for (int i = 0; i < ops->n_state_tensors(t); i++) {
        ops->state_tensor(t, i, out);
        if (!strcmp(out->name, name))
            return i;
    }
    return -1;
}

static float *read_state(struct sy_trainer *t, const char *name, int64_t *n)
{
    struct sy_state_tensor tensor;
    int at = find_state(t, name, &tensor);
    if (at < 0)
        return NULL;
    float *data = malloc(tensor.bytes);
    assert_non_null(data);
    assert_int_equal(ops->get_state(t, at, data), SY_OK);
    *n = (int64_t)(tensor.bytes / sizeof *data);
    return data;
}

/* ---- gradients ---------------------------------------------------------------------------------- */

struct batch {
    float input[BATCH * 128];
    union {
        float wanted[BATCH * 16];
        int32_t classes[BATCH];
    } labels;
};

static void make_batch(struct batch *b, enum sy_loss_kind loss)
{
    for (size_t i = 0; i < sizeof b->input / sizeof *b->input; i++)
        b->input[i] = (float)gb_uniform(&seed, -1.0, 1.0);
    for (int i = 0; i < BATCH * 16 && loss == SY_LOSS_MSE; i++)
        b->labels.wanted[i] = (float)gb_uniform(&seed, -1.0, 1.0);
    for (int i = 0; i < BATCH && loss != SY_LOSS_MSE; i++)
        b->labels.classes[i] = (int32_t)gb_uniform(&seed, 0.0, 5.0);
}

static double difference(struct naive_net *net, const struct batch *b, double *at)
{
    const double h = 1e-5, before = *at;
    *at = before + h;
    double up = naive_loss(net, b->input, &b->labels);
    *at = before - h;
    double down = naive_loss(net, b->input, &b->labels);
    *at = before;
    return (up - down) / (2.0 * h);
}

/* The momentum after one step from zero is the gradient itself. */
static int compare_gradient(struct rig *r, struct naive_net *net, const struct batch *b, int tensor)
{
    char name[64];
    int64_t n;
    snprintf(name, sizeof name, "%s.momentum", r->graph->tensors[tensor].name);
    float *gradient = read_state(r->trainer, name, &n);
    if (!gradient)
        return 0; /* running statistics */
    for (int64_t i = 0; i < n; i++) {
        double wanted = difference(net, b, &net->values[tensor][i]);
        if (!(fabs((double)gradient[i] - wanted) <= 2e-6 + 2e-4 * fabs(wanted)))
            fail_msg("%s %s[%d]: gradient %.8g, central difference %.8g", r->graph->name,
                     r->graph->tensors[tensor].name, (int)i, (double)gradient[i], wanted);
    }
    free(gradient);
    return 1;
}

static void check_gradients(const struct small_net *n)
{
    struct rig r;
    struct batch b;
    struct naive_net naive;
    struct sy_train_options options = plain_options(n->loss);
    int compared = 0;
    rig_open(&r, n->make(&seed), &options, 0);
    make_batch(&b, n->loss);
    gradient_phase(
        &r, b.input, &b.labels,
        n->loss == SY_LOSS_MSE
            ? 4u * (unsigned)sy_shape_elements(&r.graph->tensors[r.graph->outputs[0]].shape, BATCH)
            : 4u * BATCH,
        ops->n_gradient_steps(r.trainer));
    naive_init(&naive, r.graph, BATCH, n->loss);
    double wanted = naive_loss(&naive, b.input, &b.labels);
    assert_true(fabs(ops->loss(r.trainer) - wanted) <= 1e-6 + 1e-6 * fabs(wanted));
    update_phase(&r, 1);
    for (int t = 0; t < r.graph->n_tensors; t++)
        if (r.graph->tensors[t].data)
            compared += compare_gradient(&r, &naive, &b, t);
    assert_true(compared >= 2);
    naive_finish(&naive);
    rig_close(&r);
    sy_graph_free(r.graph);
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t n = 0; n < SMALL_NETS; n++)
        check_gradients(&small_nets[n]);
}

/* ---- running statistics ------------------------------------------------------------------------- */

static void test_running_statistics(void **state)
{
    (void)state;
    struct rig r;
    struct batch b;
    struct naive_net naive;
    struct sy_train_options options = plain_options(SY_LOSS_SOFTMAX_CROSS_ENTROPY);
    int64_t n;
    rig_open(&r, small_net_residual(&seed), &options, 0);
    make_batch(&b, options.loss);
    naive_init(&naive, r.graph, BATCH, options.loss);
    naive_loss(&naive, b.input, &b.labels);
    float *before = read_state(r.trainer, "mean", &n);
    gradient_phase(&r, b.input, &b.labels, 4u * BATCH, ops->n_gradient_steps(r.trainer));
    float *between = read_state(r.trainer, "mean", &n);
    assert_memory_equal(before, between, (size_t)n * sizeof *before);
    update_phase(&r, 1);
    float *mean = read_state(r.trainer, "mean", &n);
    const double *x = naive.values[r.graph->nodes[0].outputs[0]];
    for (int c = 0; c < 3; c++) {
        double sum = 0.0;
        for (int i = 0; i < BATCH * 16; i++)
            sum += x[(i / 16 * 3 + c) * 16 + i % 16];
        double wanted = 0.8 * (double)before[c] + 0.2 * sum / (BATCH * 16.0);
        assert_true(fabs((double)mean[c] - wanted) < 1e-6);
    }
    free(before);
    free(between);
    free(mean);
    naive_finish(&naive);
    rig_close(&r);
    sy_graph_free(r.graph);
}

/* ---- optimizers --------------------------------------------------------------------------------- */

/* y = x w with one weight, x = 1, wanted 0: loss w^2, gradient 2 w. */
static struct sy_graph *net_one_weight(float weight)
{
    struct sy_graph *g = gb_new("one");
    int x = gb_input(g, DIMS(1, 1)), w = gb_constant(g, "w", DIMS(1, 1), &seed, 0.0, 1.0);
    *(float *)g->tensors[w].data = weight;
    gb_output(g, gb_node(g, SY_OP_MATMUL, INPUTS(x, w), DIMS(1, 1)));
    return g;
}

static double closed_form(const struct sy_train_options *o, double w, int n_steps)
{
    double v = 0.0, m = 0.0, s = 0.0;
    for (int t = 1; t <= n_steps; t++) {
        double g = 2.0 * w + o->weight_decay * w;
        v = o->momentum * v + g;
        m = o->beta1 * m + (1.0 - o->beta1) * g;
        s = o->beta2 * s + (1.0 - o->beta2) * g * g;
        if (o->optimizer == SY_OPTIMIZER_SGD)
            w -= o->learning_rate * v;
        else
            w -= o->learning_rate * (m / (1.0 - pow(o->beta1, t))) /
                 (sqrt(s / (1.0 - pow(o->beta2, t))) + o->epsilon);
    }
    return w;
}

static void check_optimizer(struct sy_train_options o)
{
    const float input = 1.0f, wanted = 0.0f;
    struct rig r;
    int64_t n;
    o.batch = 1;
    rig_open(&r, net_one_weight(0.75f), &o, 0);
    for (uint64_t t = 1; t <= 20; t++) {
        gradient_phase(&r, &input, &wanted, sizeof wanted, ops->n_gradient_steps(r.trainer));
        update_phase(&r, t);
    }
    float *w = read_state(r.trainer, "w", &n);
    if (!(fabs((double)w[0] - closed_form(&o, 0.75, 20)) < 2e-6))
        fail_msg("after 20 steps %.9g, closed form %.9g", (double)w[0], closed_form(&o, 0.75, 20));
    free(w);
    rig_close(&r);
    sy_graph_free(r.graph);
}

static void test_optimizers(void **state)
{
    (void)state;
    struct sy_train_options o = plain_options(SY_LOSS_MSE);
    o.learning_rate = 0.05;
    check_optimizer(o);
    o.weight_decay = 0.1;
    check_optimizer(o);
    o.momentum = 0.0;
    check_optimizer(o);
    o.optimizer = SY_OPTIMIZER_ADAM;
    check_optimizer(o);
    o.weight_decay = 0.0;
    check_optimizer(o);
}

/* ---- same bits ---------------------------------------------------------------------------------- */

static void run_steps(struct rig *r, int n_steps, bool is_interrupted, uint64_t batches)
{
    seed = batches;
    for (int i = 1; i <= n_steps; i++) {
        struct batch b;
        make_batch(&b, SY_LOSS_SOFTMAX_CROSS_ENTROPY);
        int all = ops->n_gradient_steps(r->trainer);
        if (is_interrupted) { /* thrown away in the middle; the scratch memory is lost too */
            gradient_phase(r, b.input, &b.labels, 4u * BATCH, i * 7 % all);
            if (ops->settle)
                assert_int_equal(ops->settle(r->trainer), SY_OK);
            memset(r->ephemeral, 0xff, ops->ephemeral_bytes(r->trainer));
        }
        gradient_phase(r, b.input, &b.labels, 4u * BATCH, all);
        update_phase(r, (uint64_t)i);
    }
}

static void compare_states(struct rig *a, struct rig *b)
{
    assert_int_equal(ops->n_state_tensors(a->trainer), ops->n_state_tensors(b->trainer));
    for (int i = 0; i < ops->n_state_tensors(a->trainer); i++) {
        struct sy_state_tensor tensor;
        int64_t n;
        ops->state_tensor(a->trainer, i, &tensor);
        float *x = read_state(a->trainer, tensor.name, &n),
              *y = read_state(b->trainer, tensor.name, &n);
        assert_memory_equal(x, y, tensor.bytes);
        free(x);
        free(y);
    }
}

static void test_same_bits_anywhere(void **state)
{
    (void)state;
    struct rig a, b;
    struct sy_train_options options = plain_options(SY_LOSS_SOFTMAX_CROSS_ENTROPY);
    struct sy_graph *graph = small_net_residual(&seed);
    rig_open(&a, graph, &options, 0);
    rig_open(&b, graph, &options, 4096);
    uint64_t batches = seed;
    run_steps(&a, 12, false, batches);
    run_steps(&b, 12, true, batches);
    compare_states(&a, &b);
    rig_close(&a);
    rig_close(&b);
    sy_graph_free(graph);
}

/* A state taken out and put into another trainer, in other memory, goes on with the same bits. */
static void test_state_round_trip(void **state)
{
    (void)state;
    struct rig a, b;
    struct sy_train_options options = plain_options(SY_LOSS_SOFTMAX_CROSS_ENTROPY);
    options.optimizer = SY_OPTIMIZER_ADAM;
    struct sy_graph *graph = small_net_groups(&seed);
    rig_open(&a, graph, &options, 0);
    rig_open(&b, graph, &options, 0);
    run_steps(&a, 3, false, 5);
    for (int i = 0; i < ops->n_state_tensors(a.trainer); i++) {
        struct sy_state_tensor tensor;
        int64_t n;
        ops->state_tensor(a.trainer, i, &tensor);
        float *x = read_state(a.trainer, tensor.name, &n);
        assert_int_equal(ops->set_state(b.trainer, i, x), SY_OK);
        free(x);
    }
    compare_states(&a, &b);
    run_steps(&a, 3, false, 6);
    run_steps(&b, 3, false, 6);
    compare_states(&a, &b);
    rig_close(&a);
    rig_close(&b);
    sy_graph_free(graph);
}

/* ---- refusals and counting ---------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    struct sy_trainer *trainer = NULL;
    struct sy_train_options options = plain_options(SY_LOSS_MSE);
    struct sy_graph *g = gb_new("refused");
    int x = gb_input(g, DIMS(1, 4)), w = gb_constant(g, "w", DIMS(4, 4), &seed, -1.0, 1.0);
    x = gb_node(g, SY_OP_MATMUL, INPUTS(x, w), DIMS(1, 4));
    gb_output(g, gb_node(g, SY_OP_DET, INPUTS(x), DIMS(1, 4)));
    assert_int_equal(ops->create(g, &options, &trainer), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "node1"));
    assert_non_null(strstr(sy_error_text(), "Det"));
    options.batch = 0;
    assert_int_equal(ops->create(g, &options, &trainer), SY_EARG);
    sy_graph_free(g);
}

static void test_bf16_needs_a_cpu_that_has_it(void **state)
{
    (void)state;
    struct sy_trainer *trainer = NULL;
    struct sy_train_options options = plain_options(SY_LOSS_MSE);
    struct sy_graph *g = small_net_conv_relu(&seed);
    options.precision = SY_TRAIN_BF16;
    if (ops != &sy_host_trainer || __builtin_cpu_supports("avx512bf16")) {
        sy_graph_free(g);
        skip();
    }
    assert_int_equal(ops->create(g, &options, &trainer), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "bf16"));
    sy_graph_free(g);
}

static void test_label_out_of_range(void **state)
{
    (void)state;
    struct rig r;
    struct batch b;
    struct sy_train_options options = plain_options(SY_LOSS_SOFTMAX_CROSS_ENTROPY);
    int status = SY_OK;
    rig_open(&r, small_net_conv_relu(&seed), &options, 0);
    make_batch(&b, options.loss);
    b.labels.classes[1] = 5;
    memcpy(ops->batch_input(r.trainer, 0), b.input, r.input_elements * sizeof *b.input);
    memcpy(ops->batch_labels(r.trainer), &b.labels, 4u * BATCH);
    for (int s = 0; s < ops->n_gradient_steps(r.trainer) && status == SY_OK; s++)
        status = ops->run_gradient_step(r.trainer, s);
    assert_int_equal(status, SY_EARG);
    assert_non_null(strstr(sy_error_text(), "label 5"));
    rig_close(&r);
    sy_graph_free(r.graph);
}

/* Trained on three fixed rows until it knows them; the evaluation must say so. */
static void test_count_correct(void **state)
{
    (void)state;
    struct rig r;
    struct batch b;
    struct sy_train_options options = plain_options(SY_LOSS_SOFTMAX_CROSS_ENTROPY);
    rig_open(&r, small_net_conv_relu(&seed), &options, 0);
    make_batch(&b, options.loss);
    for (uint64_t i = 1; i <= 300; i++) {
        gradient_phase(&r, b.input, &b.labels, 4u * BATCH, ops->n_gradient_steps(r.trainer));
        update_phase(&r, i);
    }
    assert_true(ops->loss(r.trainer) < 0.05);
    memcpy(ops->batch_input(r.trainer, 0), b.input, r.input_elements * sizeof *b.input);
    memcpy(ops->batch_labels(r.trainer), &b.labels, 4u * BATCH);
    for (int s = 0; s < ops->n_forward_steps(r.trainer); s++)
        assert_int_equal(ops->run_forward_step(r.trainer, s), SY_OK);
    assert_int_equal(ops->count_correct(r.trainer, BATCH), BATCH);
    assert_int_equal(ops->count_correct(r.trainer, 2), 2);
    rig_close(&r);
    sy_graph_free(r.graph);
}

static int reseed(void **state)
{
    (void)state;
    seed = first_seed;
    return 0;
}

int main(void)
{
    first_seed = seed_of_run(20240607);
    if (rig_choose_trainer)
        rig_choose_trainer(&ops, &device_view);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_gradients, reseed),
        cmocka_unit_test_setup(test_running_statistics, reseed),
        cmocka_unit_test_setup(test_optimizers, reseed),
        cmocka_unit_test_setup(test_same_bits_anywhere, reseed),
        cmocka_unit_test_setup(test_state_round_trip, reseed),
        cmocka_unit_test_setup(test_refusals, reseed),
        cmocka_unit_test_setup(test_bf16_needs_a_cpu_that_has_it, reseed),
        cmocka_unit_test_setup(test_label_out_of_range, reseed),
        cmocka_unit_test_setup(test_count_correct, reseed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
