/* Gradients by what is in the batch: numbers of rows, several inputs, values that are not finite. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/graph_builder.h"
#include "tests/rigs/engine_rig.h"
#include "tests/rigs/gradient_rig.h"
#include "workers/engine/trainer.h"

static int run_phase(struct gradient_rig *r)
{
    int status = SY_OK;
    for (int s = 0; s < gradient_ops->n_gradient_steps(r->trainer) && status == SY_OK; s++)
        status = gradient_ops->run_gradient_step(r->trainer, s);
    return status;
}

/* Rows of a table by numbers that come with the batch: the gradient of one that is read twice, and a number that has no row. */
static void test_embedding(void **unused)
{
    (void)unused;
    struct sy_train_options o = {.loss = SY_LOSS_MSE, .learning_rate = 1.0, .batch = BATCH};
    struct gradient_rig r = {.graph = gb_new("embedding")};
    struct sy_graph *g = r.graph;
    const int64_t rows[BATCH * 2] = {4, 0, 4, 4, -5, 2}, outside[BATCH * 2] = {0, 1, 5, 0, 0, 0};
    float before[10], after[10], wanted[BATCH * 4];
    int x = gb_input(g, LIST(1, 2));
    g->tensors[x].dtype = SY_DTYPE_I64;
    int y = gradient_node(g, SY_OP_GATHER, IN(gradient_weight(g, "table", LIST(5, 2)), x),
                          LIST(-1, 2, 2));
    gb_int(g, "axis", 0);
    gb_output(g, y);
    assert_int_equal(gradient_ops->create(g, &o, &r.trainer), SY_OK);
    gradient_bind(&r);
    assert_int_equal(gradient_ops->get_state(r.trainer, 0, before), SY_OK);
    for (int i = 0; i < BATCH * 4; i++)
        wanted[i] = (float)i;
    memcpy(gradient_ops->batch_input(r.trainer, 0), rows, sizeof rows);
    memcpy(gradient_ops->batch_labels(r.trainer), wanted, sizeof wanted);
    assert_int_equal(run_phase(&r), SY_OK);
    for (int s = 0; s < gradient_ops->n_update_steps(r.trainer); s++)
        assert_int_equal(gradient_ops->run_update_step(r.trainer, s, 1), SY_OK);
    assert_int_equal(gradient_ops->get_state(r.trainer, 0, after), SY_OK);
    for (int i = 0; i < 10; i++) {
        float gradient = 0;
        for (int k = 0; k < BATCH * 2; k++)
            if ((rows[k] + 5) % 5 == i / 2)
                gradient += 2.0f * (before[i] - wanted[2 * k + i % 2]) / (BATCH * 4);
        assert_true(fabsf(before[i] - gradient - after[i]) < 1e-5f);
    }
    memcpy(gradient_ops->batch_input(r.trainer, 0), outside, sizeof outside);
    memcpy(gradient_ops->batch_labels(r.trainer), wanted, sizeof wanted);
    assert_int_equal(run_phase(&r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "index 5"));
    gradient_close(&r);
}

static void test_two_inputs(void **unused)
{
    (void)unused;
    struct sy_train_options o = {.loss = SY_LOSS_MSE, .batch = BATCH};
    struct gradient_rig r = {.graph = gb_new("inputs")};
    struct sy_graph *g = r.graph;
    float a[BATCH * 2], table[4];
    const int64_t b[BATCH] = {1, 0, 1};
    double wanted = 0;
    int x = gb_input(g, LIST(1, 2)), ids = gb_input(g, LIST(1));
    g->tensors[ids].dtype = SY_DTYPE_I64;
    int y = gradient_node(g, SY_OP_GATHER, IN(gradient_weight(g, "table", LIST(2, 2)), ids),
                          LIST(-1, 2));
    gb_int(g, "axis", 0);
    gb_output(g, gradient_node(g, SY_OP_MUL, IN(x, y), LIST(-1, 2)));
    assert_int_equal(gradient_ops->create(g, &o, &r.trainer), SY_OK);
    gradient_bind(&r);
    assert_int_equal(gradient_ops->get_state(r.trainer, 0, table), SY_OK);
    for (int i = 0; i < BATCH * 2; i++) {
        a[i] = (float)i - 2.5f;
        double product = (double)a[i] * (double)table[2 * b[i / 2] + i % 2];
        wanted += product * product / (BATCH * 2);
    }
    memcpy(gradient_ops->batch_input(r.trainer, 0), a, sizeof a);
    memcpy(gradient_ops->batch_input(r.trainer, 1), b, sizeof b);
    memset(gradient_ops->batch_labels(r.trainer), 0, sizeof a);
    assert_int_equal(run_phase(&r), SY_OK);
    assert_true(fabs(gradient_ops->loss(r.trainer) - wanted) < 1e-5 * wanted);
    gradient_close(&r);
}

/* The job must end before such a gradient is in a snapshot: at once, or one iteration later with nothing updated. */
static void test_not_finite(void **unused)
{
    (void)unused;
    struct sy_train_options o = {
        .loss = SY_LOSS_MSE, .learning_rate = 1.0, .momentum = 0.5, .batch = BATCH};
    struct gradient_rig r;
    float state[36];
    int status = SY_OK;
    assert_true(gradient_open_with(&r, 0, &o));
    for (uint64_t i = 0; i < 2 && status == SY_OK; i++) {
        float *x = gradient_ops->batch_input(r.trainer, 0);
        for (int k = 0; k < BATCH * 24; k++)
            x[k] = i == 0 ? (k / 6 % 2 ? -1e25f : 1e25f) : 0.0f; /* one of the two passes relu */
        memcpy(gradient_ops->batch_labels(r.trainer), r.wanted,
               (size_t)r.n_wanted * sizeof *r.wanted);
        gradient_ops->begin_batch(r.trainer, i);
        status = run_phase(&r);
        for (int s = 0; status == SY_OK && s < gradient_ops->n_update_steps(r.trainer); s++)
            assert_int_equal(gradient_ops->run_update_step(r.trainer, s, i + 1), SY_OK);
        if (status == SY_OK)
            assert_int_equal(gradient_ops->get_state(r.trainer, 0, state), SY_EARG);
    }
    assert_int_equal(status, SY_EARG);
    assert_non_null(strstr(sy_error_text(), "gradient"));
    gradient_close(&r);
}

int main(void)
{
    gradient_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_two_inputs),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
