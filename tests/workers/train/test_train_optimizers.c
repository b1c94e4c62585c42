/* Optimizers, schedules, clipping and accumulation of the host trainer against their closed forms in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/graph_builder.h"
#include "workers/engine/schedule.h"
#include "workers/engine/train_choice.h"
#include "workers/engine/trainer.h"

#define ROWS  6
#define STEPS 25

static const struct sy_trainer_ops *ops = &sy_host_trainer;

struct rig {
    struct sy_graph *graph;
    struct sy_trainer *trainer;
    void *persistent, *ephemeral;
};

static struct sy_train_options plain(void)
{
    return (struct sy_train_options){.loss = SY_LOSS_MSE,
                                     .learning_rate = 0.05,
                                     .beta1 = 0.9,
                                     .beta2 = 0.99,
                                     .epsilon = 1e-8,
                                     .batch = ROWS};
}

/* y = x w, two weights. */
static void open_rig(struct rig *r, const struct sy_train_options *o)
{
    uint64_t seed = 3;
    const int64_t in[] = {1, 2}, weights[] = {2, 1}, out[] = {1, 1};
    r->graph = gb_new("two");
    int x = gb_input(r->graph, 2, in), w = gb_constant(r->graph, "w", 2, weights, &seed, 0, 1);
    memcpy(r->graph->tensors[w].data, (const float[]){0.75f, -0.5f}, 8);
    gb_output(r->graph, gb_node(r->graph, SY_OP_MATMUL, 2, (const int[]){x, w}, 2, out));
    assert_int_equal(ops->create(r->graph, o, &r->trainer), SY_OK);
    r->persistent = aligned_alloc(4096, (ops->persistent_bytes(r->trainer) + 4095) / 4096 * 4096);
    r->ephemeral = aligned_alloc(4096, (ops->ephemeral_bytes(r->trainer) + 4095) / 4096 * 4096);
    ops->bind(r->trainer, r->persistent, r->ephemeral);
    assert_int_equal(ops->init_state(r->trainer), SY_OK);
}

static void close_rig(struct rig *r)
{
    ops->destroy(r->trainer);
    sy_graph_free(r->graph);
    free(r->persistent);
    free(r->ephemeral);
}

static float x_at(int row, int i)
{
    return (float)((row * 5 + i * 3) % 7) * 0.25f - 0.5f;
}

static float wanted_at(int row)
{
    return (float)(row % 3) * 0.5f;
}

static void phase(struct rig *r, const struct sy_train_options *o, uint64_t number)
{
    float *x = ops->batch_input(r->trainer, 0), *y = ops->batch_labels(r->trainer);
    int rows = (int)o->batch, first = rows < ROWS ? (int)(number * (uint64_t)rows % ROWS) : 0;
    for (int row = 0; row < rows; row++) {
        x[2 * row] = x_at(first + row, 0);
        x[2 * row + 1] = x_at(first + row, 1);
        y[row] = wanted_at(first + row);
    }
    ops->begin_batch(r->trainer, number);
    for (int s = 0; s < ops->n_gradient_steps(r->trainer); s++)
        assert_int_equal(ops->run_gradient_step(r->trainer, s), SY_OK);
}

static void train(struct rig *r, const struct sy_train_options *o, float *w)
{
    uint64_t phases = o->accumulate ? o->accumulate : 1;
    open_rig(r, o);
    for (uint64_t i = 0; i < STEPS; i++) {
        for (uint64_t p = 0; p < phases; p++)
            phase(r, o, i * phases + p);
        for (int s = 0; s < ops->n_update_steps(r->trainer); s++)
            assert_int_equal(ops->run_update_step(r->trainer, s, i + 1), SY_OK);
    }
    assert_int_equal(ops->get_state(r->trainer, 0, w), SY_OK);
    close_rig(r);
}

static void gradient(const double *w, double *g)
{
    g[0] = g[1] = 0.0;
    for (int row = 0; row < ROWS; row++) {
        double d =
            w[0] * (double)x_at(row, 0) + w[1] * (double)x_at(row, 1) - (double)wanted_at(row);
        for (int i = 0; i < 2; i++)
            g[i] += 2.0 * d * (double)x_at(row, i) / ROWS;
    }
}

static void closed_form(const struct sy_train_options *o, double *w)
{
    double m[2] = {0, 0}, v[2] = {0, 0}, g[2];
    w[0] = 0.75;
    w[1] = -0.5;
    for (int t = 1; t <= STEPS; t++) {
        double rate = sy_train_rate(o, (uint64_t)t);
        gradient(w, g);
        double norm = sqrt(g[0] * g[0] + g[1] * g[1]);
        for (int i = 0; i < 2; i++) {
            double d = g[i];
            if (o->clip_norm > 0.0 && norm > o->clip_norm)
                d *= o->clip_norm / (norm + 1e-6);
            if (o->optimizer == SY_OPTIMIZER_ADAMW)
                w[i] *= 1.0 - rate * o->weight_decay;
            else
                d += o->weight_decay * w[i];
            if (o->optimizer == SY_OPTIMIZER_SGD) {
                m[i] = o->momentum * m[i] + d;
                w[i] -= rate * (o->is_nesterov ? d + o->momentum * m[i] : m[i]);
                continue;
            }
            m[i] = o->beta1 * m[i] + (1.0 - o->beta1) * d;
            v[i] = o->beta2 * v[i] + (1.0 - o->beta2) * d * d;
            w[i] -= rate * (m[i] / (1.0 - pow(o->beta1, t))) /
                    (sqrt(v[i] / (1.0 - pow(o->beta2, t))) + o->epsilon);
        }
    }
}

static void check(const struct sy_train_options *o)
{
    struct rig r;
    double wanted[2];
    float w[2];
    train(&r, o, w);
    closed_form(o, wanted);
    for (int i = 0; i < 2; i++)
        if (!(fabs((double)w[i] - wanted[i]) < 5e-6))
            fail_msg("weight %d: %.9g, closed form %.9g", i, (double)w[i], wanted[i]);
}

static void test_optimizers(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++)
        for (int decay = 0; decay < 2; decay++)
            for (int clip = 0; clip < 2; clip++)
                for (int phases = 1; phases <= 3; phases += 2) {
                    struct sy_train_options o = plain();
                    o.optimizer = kind < 2    ? SY_OPTIMIZER_SGD
                                  : kind == 2 ? SY_OPTIMIZER_ADAM
                                              : SY_OPTIMIZER_ADAMW;
                    o.momentum = kind < 2 ? 0.9 : 0.0;
                    o.is_nesterov = kind == 1;
                    o.weight_decay = decay * 0.1;
                    o.clip_norm = clip * 0.2;
                    o.accumulate = (uint64_t)phases;
                    o.batch = ROWS / phases;
                    check(&o);
                }
}

static void test_schedules(void **state)
{
    (void)state;
    struct sy_train_options o = plain();
    o.learning_rate = 0.4;
    assert_true(sy_train_rate(&o, 1) == 0.4 && sy_train_rate(&o, 1000000) == 0.4);
    o.schedule = (struct sy_schedule){
        .kind = SY_SCHEDULE_STEP, .warmup_steps = 4, .every_steps = 10, .factor = 0.5};
    assert_true(fabs(sy_train_rate(&o, 1) - 0.1) < 1e-12);
    assert_true(fabs(sy_train_rate(&o, 4) - 0.4) < 1e-12);
    assert_true(fabs(sy_train_rate(&o, 14) - 0.4) < 1e-12);
    assert_true(fabs(sy_train_rate(&o, 15) - 0.2) < 1e-12);
    assert_true(fabs(sy_train_rate(&o, 25) - 0.1) < 1e-12);
    o.schedule = (struct sy_schedule){
        .kind = SY_SCHEDULE_COSINE, .warmup_steps = 2, .steps = 12, .final_rate = 0.1};
    assert_true(fabs(sy_train_rate(&o, 3) - 0.4) < 1e-12);
    assert_true(fabs(sy_train_rate(&o, 8) - 0.25) < 1e-12);
    assert_true(fabs(sy_train_rate(&o, 13) - 0.1) < 1e-12);
    assert_true(fabs(sy_train_rate(&o, 500) - 0.1) < 1e-12);
    o.schedule.kind = SY_SCHEDULE_LINEAR;
    assert_true(fabs(sy_train_rate(&o, 8) - 0.25) < 1e-12);
    check(&o);
}

static void test_frozen(void **state)
{
    (void)state;
    struct rig r;
    char pattern[] = "other*", all[] = "w";
    char *frozen[] = {pattern, NULL};
    struct sy_train_options o = plain();
    o.frozen = frozen;
    check(&o);
    frozen[0] = all;
    r.graph = NULL;
    const int64_t in[] = {1, 2}, weights[] = {2, 1}, out[] = {1, 1};
    uint64_t seed = 3;
    r.graph = gb_new("frozen");
    int x = gb_input(r.graph, 2, in), w = gb_constant(r.graph, "w", 2, weights, &seed, 0, 1);
    gb_output(r.graph, gb_node(r.graph, SY_OP_MATMUL, 2, (const int[]){x, w}, 2, out));
    assert_int_equal(ops->create(r.graph, &o, &r.trainer), SY_EUNSUPPORTED);
    char misspelled[] = "v*";
    assert_int_equal(sy_train_check_frozen(r.graph, frozen), SY_OK);
    assert_int_equal(sy_train_check_frozen(r.graph, (char *[]){all, misspelled, NULL}), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "no weight fits 'v*'; one is called 'w'"));
    sy_graph_free(r.graph);
}

/* The last phase of an iteration refuses a gradient that is not finite, before anything is updated. */
static void test_not_finite(void **state)
{
    (void)state;
    struct rig r;
    struct sy_train_options o = plain();
    int status = SY_OK;
    open_rig(&r, &o);
    float *x = ops->batch_input(r.trainer, 0), *y = ops->batch_labels(r.trainer);
    for (int i = 0; i < 2 * ROWS; i++)
        x[i] = 1e25f;
    for (int i = 0; i < ROWS; i++)
        y[i] = 0.0f;
    ops->begin_batch(r.trainer, 0);
    for (int s = 0; s < ops->n_gradient_steps(r.trainer) && status == SY_OK; s++)
        status = ops->run_gradient_step(r.trainer, s);
    assert_int_equal(status, SY_EARG);
    assert_non_null(strstr(sy_error_text(), "gradient"));
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizers), cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_frozen), cmocka_unit_test(test_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
