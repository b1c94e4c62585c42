/* Recurrences of fewer sequences than threads: products that the threads share give the bits of those that one thread makes. */
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/graph_builder.h"
#include "workers/engine/trainer.h"
#include "workers/host/train/train_recurrent.h"

enum { STEPS = 5, INPUT = 3, THREADS = 5, ROOM = 1 << 20 };

static const struct sy_trainer_ops *ops = &sy_host_trainer;

struct cell_case {
    enum sy_op op;
    int64_t gates, hidden, batch;
    bool resets_late;
};

/* The batch is dimension `at`; the others are as given. */
static int shaped(struct sy_graph *g, int tensor, int at)
{
    struct sy_shape *shape = &g->tensors[tensor].shape;
    for (int d = 0; d < shape->rank; d++)
        if (shape->dims[d].per_batch)
            shape->dims[d] = (struct sy_dim){shape->dims[d].per_batch, 0};
    shape->dims[at] = (struct sy_dim){0, 1};
    return tensor;
}

/* [batch, STEPS, INPUT] -> [STEPS, batch, INPUT] -> Y [STEPS, 1, batch, hidden] -> [batch, STEPS, 1, hidden] */
static struct sy_graph *build(const struct cell_case *c)
{
    uint64_t seed = 7;
    int64_t n = c->hidden, rows = c->gates * n;
    struct sy_graph *g = gb_new("cell");
    int x = gb_input(g, 3, (const int64_t[]){1, STEPS, INPUT});
    x = gb_node(g, SY_OP_TRANSPOSE, 1, &x, 3, (const int64_t[]){STEPS, 1, INPUT});
    gb_ints(g, "perm", 3, (const int64_t[]){1, 0, 2});
    shaped(g, x, 1);
    int w = gb_constant(g, "w", 3, (const int64_t[]){1, rows, INPUT}, &seed, -0.5, 0.5);
    int r = gb_constant(g, "r", 3, (const int64_t[]){1, rows, n}, &seed, -0.2, 0.2);
    int b = gb_constant(g, "b", 2, (const int64_t[]){1, 2 * rows}, &seed, -0.5, 0.5);
    int y = gb_node(g, c->op, 4, (const int[]){x, w, r, b}, 4, (const int64_t[]){STEPS, 1, 1, n});
    gb_int(g, "hidden_size", n);
    gb_int(g, "linear_before_reset", c->resets_late);
    shaped(g, y, 2);
    y = gb_node(g, SY_OP_TRANSPOSE, 1, &y, 4, (const int64_t[]){1, STEPS, 1, n});
    gb_ints(g, "perm", 4, (const int64_t[]){2, 0, 1, 3});
    gb_output(g, y);
    return g;
}

/* Two steps of training: weights and momenta, after the losses. How many floats. */
static int train(const struct cell_case *c, float *to)
{
    struct sy_trainer *t;
    int n = 0;
    struct sy_train_options options = {.loss = SY_LOSS_MSE,
                                       .optimizer = SY_OPTIMIZER_SGD,
                                       .learning_rate = 0.1,
                                       .momentum = 0.9,
                                       .batch = c->batch};
    struct sy_graph *g = build(c);
    if (ops->create(g, &options, &t) < 0)
        fail_msg("%s", sy_error_text());
    void *persistent = aligned_alloc(4096, (ops->persistent_bytes(t) + 4095) / 4096 * 4096);
    void *ephemeral = aligned_alloc(4096, (ops->ephemeral_bytes(t) + 4095) / 4096 * 4096);
    ops->bind(t, persistent, ephemeral);
    assert_int_equal(ops->init_state(t), SY_OK);
    for (uint64_t step = 0; step < 2; step++) {
        uint64_t seed = 11 + step;
        float *x = ops->batch_input(t, 0), *wanted = ops->batch_labels(t);
        for (int64_t i = 0; i < c->batch * STEPS * INPUT; i++)
            x[i] = (float)gb_uniform(&seed, -1, 1);
        for (int64_t i = 0; i < c->batch * STEPS * c->hidden; i++)
            wanted[i] = (float)gb_uniform(&seed, -1, 1);
        if (ops->begin_batch)
            ops->begin_batch(t, step);
        for (int s = 0; s < ops->n_gradient_steps(t); s++)
            assert_int_equal(ops->run_gradient_step(t, s), SY_OK);
        to[n++] = (float)ops->loss(t);
        for (int s = 0; s < ops->n_update_steps(t); s++)
            assert_int_equal(ops->run_update_step(t, s, step + 1), SY_OK);
    }
    for (int i = 0; i < ops->n_state_tensors(t); i++) {
        struct sy_state_tensor tensor;
        ops->state_tensor(t, i, &tensor);
        assert_true(n + (int)(tensor.bytes / sizeof *to) <= ROOM);
        assert_int_equal(ops->get_state(t, i, to + n), SY_OK);
        n += (int)(tensor.bytes / sizeof *to);
    }
    ops->destroy(t);
    sy_graph_free(g);
    free(persistent);
    free(ephemeral);
    return n;
}

static void test_same_bits(void **state)
{
    (void)state;
    static float split[ROOM], whole[ROOM];
    static const struct cell_case cases[] = {
        {SY_OP_LSTM, 4, 70, 1, false}, {SY_OP_LSTM, 4, 64, 2, false}, {SY_OP_LSTM, 4, 5, 1, false},
        {SY_OP_GRU, 3, 70, 1, false},  {SY_OP_GRU, 3, 70, 2, true},   {SY_OP_RNN, 1, 200, 1, false},
        {SY_OP_LSTM, 4, 70, 3, false} /* too many sequences: not split */};
    int64_t usual = sy_tr_recurrent_split_floats;
    int threads = omp_get_max_threads();
    omp_set_num_threads(THREADS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sy_tr_recurrent_split_floats = 1;
        int n = train(&cases[i], split);
        sy_tr_recurrent_split_floats = INT64_MAX;
        assert_int_equal(train(&cases[i], whole), n);
        assert_true(split[0] > 0.0f && split[0] != split[1]);
        assert_memory_equal(split, whole, (size_t)n * sizeof *split);
    }
    sy_tr_recurrent_split_floats = usual;
    omp_set_num_threads(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
