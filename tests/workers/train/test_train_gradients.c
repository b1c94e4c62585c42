/* Every operator that can be trained: its gradient against central differences of the trainer's own loss, which
 * bench/train.py compares with PyTorch's. What a batch can do wrong: test_train_gradients_batch.c. */
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
#include "tests/rigs/engine_rig.h"
#include "tests/rigs/gradient_rig.h"
#include "workers/engine/trainer.h"
#include "workers/host/train/train_recurrent.h"

#define MAX_SEEN 12 /* elements of a parameter that are changed */

/* (loss at + up - loss at - down) / the distance. */
static double difference(struct gradient_rig *r, int state, float *values, int64_t at, float down,
                         float up)
{
    const float before = values[at];
    values[at] = before + up;
    gradient_ops->set_state(r->trainer, state, values);
    double above = gradient_loss(r);
    values[at] = before - down;
    gradient_ops->set_state(r->trainer, state, values);
    double below = gradient_loss(r);
    double width = (double)(before + up) - (double)(before - down);
    values[at] = before;
    gradient_ops->set_state(r->trainer, state, values);
    return (above - below) / width;
}

static bool is_near(double gradient, double wanted, double slack)
{
    return fabs(gradient - wanted) <= slack + 1e-2 * fabs(wanted);
}

/* A corner or a step of the curve that lies between spoils the central difference: the shorter one, or the side that it is not on, says what the
 * slope is here. */
static bool agrees(struct gradient_rig *r, int state, float *values, int64_t at, double gradient)
{
    const float h = 4e-4f;
    return is_near(gradient, difference(r, state, values, at, 4e-3f, 4e-3f), 2e-4) ||
           is_near(gradient, difference(r, state, values, at, h, h), 1e-3) ||
           is_near(gradient, difference(r, state, values, at, h, 0), 1e-3) ||
           is_near(gradient, difference(r, state, values, at, 0, h), 1e-3);
}

static void check_parameter(struct gradient_rig *r, int state)
{
    struct sy_state_tensor tensor, momentum;
    gradient_ops->state_tensor(r->trainer, state, &tensor);
    gradient_ops->state_tensor(r->trainer, state + 1, &momentum);
    float *values = malloc(tensor.bytes), *gradient = malloc(tensor.bytes);
    gradient_ops->get_state(r->trainer, state, values);
    gradient_ops->get_state(r->trainer, state + 1, gradient);
    int64_t n = (int64_t)(tensor.bytes / sizeof *values), stride = (n + MAX_SEEN - 1) / MAX_SEEN;
    for (int64_t i = 0; i < n; i += stride) {
        if (!agrees(r, state, values, i, (double)gradient[i]))
            fail_msg("%s: %s[%d]: gradient %g, difference %g", r->graph->name, tensor.name, (int)i,
                     (double)gradient[i], difference(r, state, values, i, 4e-4f, 4e-4f));
    }
    free(values);
    free(gradient);
}

static void test_gradients(void **unused)
{
    (void)unused;
    for (size_t n = 0; n < (size_t)n_gradient_nets; n++) {
        struct gradient_rig r;
        int n_checked = 0;
        if (!gradient_open(&r, n))
            continue;
        gradient_loss(&r);
        for (int s = 0; s < gradient_ops->n_update_steps(r.trainer); s++)
            gradient_ops->run_update_step(r.trainer, s, 1);
        for (int s = 0; s + 1 < gradient_ops->n_state_tensors(r.trainer); s += 2, n_checked++)
            check_parameter(&r, s);
        assert_true(n_checked > 0);
        gradient_close(&r);
    }
}

/* What was run before, and where the memory is, decides nothing. */
static void test_same_bits(void **unused)
{
    (void)unused;
    for (size_t n = 0; n < (size_t)n_gradient_nets; n++) {
        struct gradient_rig r;
        if (!gradient_open(&r, n))
            continue;
        size_t bytes = gradient_ops->persistent_bytes(r.trainer);
        gradient_loss(&r);
        double before = gradient_ops->loss(r.trainer);
        gradient_settle(&r);
        void *copy = malloc(bytes);
        memcpy(copy, r.persistent, bytes);
        gradient_ops->begin_batch(r.trainer, 6);
        for (int s = 0; s < gradient_ops->n_gradient_steps(r.trainer) / 2; s++)
            gradient_ops->run_gradient_step(r.trainer, s);
        gradient_settle(&r);
        memset(r.ephemeral, 0xff, gradient_ops->ephemeral_bytes(r.trainer));
        assert_true(gradient_loss(&r) == before);
        gradient_settle(&r);
        if (memcmp(copy, r.persistent, bytes))
            fail_msg("%s: other bits in the second run", gradient_nets[n].name);
        free(copy);
        gradient_close(&r);
    }
}

static void test_dropout(void **unused)
{
    (void)unused;
    struct gradient_rig r;
    size_t which = 0;
    while (strcmp(gradient_nets[which].name, "dropout"))
        which++;
    assert_true(gradient_open(&r, which));
    double first = gradient_loss(&r);
    gradient_ops->begin_batch(r.trainer, 6);
    for (int s = 0; s < gradient_ops->n_gradient_steps(r.trainer); s++)
        gradient_ops->run_gradient_step(r.trainer, s);
    assert_true(gradient_ops->loss(r.trainer) != first);
    assert_true(gradient_loss(&r) == first);
    gradient_close(&r);
}

static void read_gradients(struct gradient_rig *r, float *to)
{
    for (int s = 0; s < gradient_ops->n_update_steps(r->trainer); s++)
        gradient_ops->run_update_step(r->trainer, s, 1);
    for (int s = 0; s < gradient_ops->n_state_tensors(r->trainer); s++) {
        struct sy_state_tensor tensor;
        gradient_ops->state_tensor(r->trainer, s, &tensor);
        gradient_ops->get_state(r->trainer, s, to);
        to += tensor.bytes / sizeof *to;
    }
}

/* What a trainer says that it makes one node of is one, but where it must stay apart. */
static void test_attention_is_one(void **unused)
{
    (void)unused;
    for (size_t n = 0; n < (size_t)n_gradient_nets && gradient_ops->fuses; n++) {
        struct gradient_rig r;
        int count = 0;
        if (!strstr(gradient_nets[n].name, "attention"))
            continue;
        gradient_open(&r, n);
        for (int i = 0; i < r.graph->n_nodes; i++)
            count += r.graph->nodes[i].op == SY_OP_ATTENTION;
        if (count != (strncmp(gradient_nets[n].name, "apart", 5) != 0))
            fail_msg("%s: %d nodes of attention", gradient_nets[n].name, count);
        gradient_close(&r);
    }
}

/* Made again: the same bits, and never more memory to speak of. */
static void test_recompute(void **unused)
{
    (void)unused;
    for (size_t n = 0; n < (size_t)n_gradient_nets; n++) {
        struct gradient_rig a, b;
        static float x[ROOM], y[ROOM];
        uint64_t before = gradient_seed;
        if (!gradient_open(&a, n))
            continue;
        gradient_seed = before;
        gradient_recomputes = true;
        gradient_open(&b, n);
        gradient_recomputes = false;
        assert_true(gradient_loss(&a) == gradient_loss(&b));
        read_gradients(&a, x);
        read_gradients(&b, y);
        if (memcmp(x, y, sizeof x))
            fail_msg("%s: other gradients", gradient_nets[n].name);
        gradient_close(&a);
        gradient_close(&b);
    }
}

/* Products in bfloat16: gradients near those of float32, of a network with all that has a bfloat16 form. */
static void test_bf16(void **unused)
{
    (void)unused;
    float *state[2] = {NULL, NULL};
    double losses[2];
    uint64_t before = gradient_seed;
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        struct sy_train_options o = {.loss = SY_LOSS_MSE,
                                     .optimizer = SY_OPTIMIZER_SGD,
                                     .momentum = 0.5,
                                     .batch = BATCH,
                                     .precision = i ? SY_TRAIN_BF16 : SY_TRAIN_F32};
        struct gradient_rig r = {.graph = gb_new("bf16")};
        struct sy_graph *g = r.graph;
        gradient_seed = before;
        int x = gradient_node(g, SY_OP_RESHAPE, IN(gradient_start(g)), LIST(-1, 4, 2, 3));
        int y = gradient_node(g, SY_OP_CONV, IN(x, gradient_weight(g, "c1", LIST(16, 4, 3, 3))),
                              LIST(-1, 16, 2, 3));
        gb_ints(g, "kernel_shape", LIST(3, 3));
        gb_ints(g, "pads", LIST(1, 1, 1, 1));
        y = gradient_node(g, SY_OP_BATCH_NORM,
                          IN(y, gradient_positive(g, "s", LIST(16)),
                             gradient_weight(g, "b", LIST(16)), gradient_weight(g, "m", LIST(16)),
                             gradient_positive(g, "v", LIST(16))),
                          LIST(-1, 16, 2, 3));
        y = gradient_node(g, SY_OP_RELU, IN(y), LIST(-1, 16, 2, 3));
        int z = gradient_node(g, SY_OP_CONV, IN(y, gradient_weight(g, "c2", LIST(16, 16, 1, 1))),
                              LIST(-1, 16, 2, 3));
        gb_ints(g, "kernel_shape", LIST(1, 1));
        y = gradient_node(g, SY_OP_ADD, IN(y, z), LIST(-1, 16, 2, 3));
        y = gradient_node(g, SY_OP_GELU, IN(y), LIST(-1, 16, 2, 3));
        y = gradient_node(g, SY_OP_GLOBAL_AVERAGE_POOL, IN(y), LIST(-1, 16, 1, 1));
        y = gradient_node(g, SY_OP_FLATTEN, IN(y), LIST(-1, 16));
        gb_output(g, gradient_node(g, SY_OP_MATMUL, IN(y, gradient_weight(g, "w", LIST(16, 4))),
                                   LIST(-1, 4)));
        int status = gradient_ops->create(g, &o, &r.trainer);
        if (status == SY_EUNSUPPORTED) {
            print_message("no bfloat16 here: %s\n", sy_error_text());
            sy_graph_free(g);
            free(state[0]);
            skip();
        }
        assert_int_equal(status, SY_OK);
        gradient_bind(&r);
        r.n_wanted = BATCH * 4;
        for (int k = 0; k < BATCH * 24; k++)
            r.input[k] = (float)(k % 13) / 6.0f - 1.0f;
        for (int k = 0; k < BATCH * 4; k++)
            r.wanted[k] = (float)(k % 3);
        losses[i] = gradient_loss(&r);
        state[i] = calloc(ROOM, sizeof(float));
        read_gradients(&r, state[i]);
        n = (int64_t)(gradient_ops->persistent_bytes(r.trainer) / sizeof(float));
        gradient_close(&r);
    }
    double dot = 0, a = 0, b = 0;
    for (int64_t i = 0; i < n && i < ROOM; i++) {
        dot += (double)state[0][i] * (double)state[1][i];
        a += (double)state[0][i] * (double)state[0][i];
        b += (double)state[1][i] * (double)state[1][i];
    }
    assert_true(fabs(losses[0] - losses[1]) < 0.02 * fabs(losses[0]));
    assert_true(losses[0] != losses[1]);
    assert_true(dot / sqrt(a * b) > 0.999);
    free(state[0]);
    free(state[1]);
}

/* Another trainer than the host's computes all networks in bfloat16: their gradients point where those of float32 do. The corners of curves
 * bend some of them a little. Beside a mask's edge a value may round to the other side (one of 72 in a draw of six): that moves the loss of `masked` by
 * up to 6 % (3000 draws in numpy), and all other roundings by 0.2 %. */
static void test_bf16_everywhere(void **unused)
{
    (void)unused;
    static float state[2][ROOM];
    if (gradient_ops == &sy_host_trainer)
        skip();
    for (size_t n = 0; n < (size_t)n_gradient_nets; n++) {
        double losses[2], dot = 0, a = 0, b = 0;
        double slack = gradient_nets[n].make == gradient_net_masked ? 0.15 : 0.05;
        uint64_t before = gradient_seed;
        memset(state, 0, sizeof state);
        for (int i = 0; i < 2; i++) {
            struct gradient_rig r;
            gradient_seed = before;
            gradient_precision = i ? SY_TRAIN_BF16 : SY_TRAIN_F32;
            gradient_recomputes = i == 1;
            assert_true(gradient_open(&r, n));
            losses[i] = gradient_loss(&r);
            read_gradients(&r, state[i]);
            gradient_close(&r);
        }
        gradient_precision = SY_TRAIN_F32;
        gradient_recomputes = false;
        for (int i = 0; i < ROOM; i++) {
            dot += (double)state[0][i] * (double)state[1][i];
            a += (double)state[0][i] * (double)state[0][i];
            b += (double)state[1][i] * (double)state[1][i];
        }
        if (!(fabs(losses[0] - losses[1]) <= slack * fabs(losses[0]) && dot > 0.98 * sqrt(a * b)))
            fail_msg("%s: losses %g and %g, cosine %g", gradient_nets[n].name, losses[0], losses[1],
                     dot / sqrt(a * b));
    }
}

/* Sixteen layers in a row, large beside what a device's library takes for itself: what is kept shrinks to a part. */
static void test_recompute_shrinks(void **unused)
{
    (void)unused;
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        struct sy_train_options o = {.loss = SY_LOSS_MSE,
                                     .optimizer = SY_OPTIMIZER_SGD,
                                     .batch = 8192,
                                     .recomputes = i == 1};
        struct sy_graph *g = gb_new("deep");
        struct sy_trainer *t;
        int x = gb_input(g, LIST(1, 256));
        for (int layer = 0; layer < 16; layer++) {
            char name[16];
            snprintf(name, sizeof name, "w%d", layer);
            x = gradient_node(g, SY_OP_MATMUL, IN(x, gradient_weight(g, name, LIST(256, 256))),
                              LIST(-1, 256));
            x = gradient_node(g, SY_OP_GELU, IN(x), LIST(-1, 256));
        }
        gb_output(g, x);
        assert_int_equal(gradient_ops->create(g, &o, &t), SY_OK);
        bytes[i] = gradient_ops->ephemeral_bytes(t);
        gradient_ops->destroy(t);
        sy_graph_free(g);
    }
    assert_true(bytes[1] < bytes[0] * 2 / 3);
}

/* ---- against the host ------------------------------------------------------------------------------ */

/* From the batch's number alone. Labels of classes: some rows have none. */
static void fill_batch(struct gradient_rig *r, const struct sy_train_options *o, uint64_t batch)
{
    const struct sy_shape *shape = &r->graph->tensors[r->graph->outputs[0]].shape;
    int64_t classes = sy_dim_at(shape->dims[shape->rank - 1], BATCH);
    float *x = gradient_ops->batch_input(r->trainer, 0);
    void *labels = gradient_ops->batch_labels(r->trainer);
    for (int i = 0; i < BATCH * 24; i++)
        x[i] = (float)((int)(batch * 31 + (uint64_t)i * 7) % 23 - 11) / 12.0f;
    if (o->loss != SY_LOSS_SOFTMAX_CROSS_ENTROPY)
        memcpy(labels, r->wanted, (size_t)r->n_wanted * sizeof *r->wanted);
    for (int64_t i = 0; o->loss == SY_LOSS_SOFTMAX_CROSS_ENTROPY && i < r->n_wanted / classes; i++)
        ((int32_t *)labels)[i] = (int32_t)(((int64_t)batch + 3 * i) % (classes + 1)) - 1;
    gradient_ops->begin_batch(r->trainer, batch);
}

/* Three iterations of two phases each: losses, then weights, the optimizer's state, and how many are right in an evaluation. */
static int train_a_little(struct gradient_rig *r, const struct sy_train_options *o, double *losses,
                          float *to)
{
    int n = 1;
    for (uint64_t batch = 0; batch < 6; batch++) {
        fill_batch(r, o, batch);
        for (int s = 0; s < gradient_ops->n_gradient_steps(r->trainer); s++)
            if (gradient_ops->run_gradient_step(r->trainer, s) < 0)
                fail_msg("%s: %s", r->graph->name, sy_error_text());
        losses[batch] = gradient_ops->loss(r->trainer);
        for (int s = 0; batch % 2 && s < gradient_ops->n_update_steps(r->trainer); s++)
            assert_int_equal(gradient_ops->run_update_step(r->trainer, s, batch / 2 + 1), SY_OK);
    }
    fill_batch(r, o, 6);
    for (int s = 0; s < gradient_ops->n_forward_steps(r->trainer); s++)
        assert_int_equal(gradient_ops->run_forward_step(r->trainer, s), SY_OK);
    to[0] = (float)gradient_ops->count_correct(r->trainer, BATCH);
    for (int s = 0; s < gradient_ops->n_state_tensors(r->trainer); s++) {
        struct sy_state_tensor tensor;
        gradient_ops->state_tensor(r->trainer, s, &tensor);
        assert_true(n + (int)(tensor.bytes / sizeof *to) <= ROOM);
        assert_int_equal(gradient_ops->get_state(r->trainer, s, to + n), SY_OK);
        n += (int)(tensor.bytes / sizeof *to);
    }
    return n;
}

/* A step of time a piece against all in one: a pause may come between any two. */
static void check_pieces(size_t which, const struct sy_train_options *o)
{
    static float state[2][ROOM];
    double losses[2][6], whole = sy_tr_recurrent_piece_flops;
    int n[2], n_steps[2];
    uint64_t before = gradient_seed;
    for (int i = 0; i < 2; i++) {
        struct gradient_rig r;
        sy_tr_recurrent_piece_flops = i ? 1.0 : whole;
        gradient_seed = before;
        assert_true(gradient_open_with(&r, which, o));
        n_steps[i] = gradient_ops->n_gradient_steps(r.trainer);
        n[i] = train_a_little(&r, o, losses[i], state[i]);
        gradient_close(&r);
    }
    sy_tr_recurrent_piece_flops = whole;
    assert_int_equal(n[0], n[1]);
    assert_true(n_steps[1] >= n_steps[0] + 6); /* four steps of time, forward and backward */
    for (int i = 0; i < n[0]; i++)
        if (!(fabsf(state[0][i] - state[1][i]) <= 1e-6f + 1e-5f * fabsf(state[0][i])))
            fail_msg("%s: state %d: %g in pieces, %g in one", gradient_nets[which].name, i,
                     (double)state[1][i], (double)state[0][i]);
}

static void test_recurrences_in_pieces(void **unused)
{
    (void)unused;
    const char *const names[] = {"lstm", "lstm_both", "gru_late", "gru_early", "rnn"};
    struct sy_train_options o = {.loss = SY_LOSS_MSE,
                                 .optimizer = SY_OPTIMIZER_SGD,
                                 .learning_rate = 0.05,
                                 .momentum = 0.5,
                                 .accumulate = 2,
                                 .batch = BATCH,
                                 .seed = 7};
    for (size_t n = 0; gradient_ops == &sy_host_trainer && n < (size_t)n_gradient_nets; n++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!strcmp(gradient_nets[n].name, names[k]))
                check_pieces(n, &o);
}

static void compare_with_host(size_t which, const struct sy_train_options *o)
{
    const struct sy_trainer_ops *other = gradient_ops;
    void *(*view)(void *memory) = gradient_view;
    static float state[2][ROOM];
    double losses[2][6];
    int n[2] = {0, 0};
    uint64_t before = gradient_seed;
    for (int i = 0; i < 2; i++) {
        struct gradient_rig r;
        gradient_ops = i ? other : &sy_host_trainer;
        gradient_view = i ? view : NULL;
        gradient_seed = before;
        if (!gradient_open_with(&r, which, o))
            return;
        n[i] = train_a_little(&r, o, losses[i], state[i]);
        gradient_close(&r);
    }
    assert_int_equal(n[0], n[1]);
    for (int b = 0; b < 6; b++)
        if (!(fabs(losses[0][b] - losses[1][b]) <= 1e-5 + 1e-4 * fabs(losses[0][b])))
            fail_msg("%s: batch %d: loss %g, the host's %g", gradient_nets[which].name, b,
                     losses[1][b], losses[0][b]);
    for (int i = 0; i < n[0]; i++)
        if (!(fabsf(state[0][i] - state[1][i]) <= 1e-4f + 1e-3f * fabsf(state[0][i])))
            fail_msg("%s: state %d: %g, the host's %g", gradient_nets[which].name, i,
                     (double)state[1][i], (double)state[0][i]);
}

static void test_as_the_host(void **unused)
{
    (void)unused;
    struct sy_train_options adamw = {.loss = SY_LOSS_MSE,
                                     .optimizer = SY_OPTIMIZER_ADAMW,
                                     .learning_rate = 0.01,
                                     .beta1 = 0.9,
                                     .beta2 = 0.99,
                                     .epsilon = 1e-3,
                                     .weight_decay = 0.1,
                                     .spares_vectors = true,
                                     .clip_norm = 0.3,
                                     .accumulate = 2,
                                     .schedule = {.kind = SY_SCHEDULE_COSINE,
                                                  .warmup_steps = 2,
                                                  .steps = 5,
                                                  .final_rate = 0.001},
                                     .batch = BATCH,
                                     .seed = 11};
    struct sy_train_options sgd = adamw;
    sgd.optimizer = SY_OPTIMIZER_SGD;
    sgd.momentum = 0.9;
    sgd.is_nesterov = true;
    sgd.loss = SY_LOSS_BCE;
    sgd.clip_norm = 100;
    struct sy_train_options classes = sgd;
    classes.loss = SY_LOSS_SOFTMAX_CROSS_ENTROPY;
    classes.clip_norm = classes.momentum = 0;
    classes.is_nesterov = false;
    if (gradient_ops == &sy_host_trainer)
        skip();
    for (size_t n = 0; n < (size_t)n_gradient_nets; n++) {
        compare_with_host(n, &adamw);
        compare_with_host(n, &sgd);
        compare_with_host(n, &classes);
    }
}

int main(void)
{
    gradient_begin();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients),
                                       cmocka_unit_test(test_as_the_host),
                                       cmocka_unit_test(test_recurrences_in_pieces),
                                       cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_attention_is_one),
                                       cmocka_unit_test(test_recompute),
                                       cmocka_unit_test(test_recompute_shrinks),
                                       cmocka_unit_test(test_bf16),
                                       cmocka_unit_test(test_bf16_everywhere),
                                       cmocka_unit_test(test_dropout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
