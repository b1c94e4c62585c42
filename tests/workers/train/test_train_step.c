/* One whole training step against PyTorch (tests/data/make_train_step.py made tests/data/train_step/). */
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
#include "workers/engine/trainer.h"

#define FOLDER "tests/data/train_step/"

static const struct sy_trainer_ops *ops = &sy_host_trainer;

static void read_file(const char *name, void *to, size_t bytes)
{
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s", name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s: run from the top of the tree", path);
    assert_int_equal(fread(to, 1, bytes, file), bytes);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}

static void compare_state(struct sy_trainer *t, int index)
{
    struct sy_state_tensor tensor;
    char name[128];
    ops->state_tensor(t, index, &tensor);
    float *got = malloc(tensor.bytes), *wanted = malloc(tensor.bytes);
    assert_int_equal(ops->get_state(t, index, got), SY_OK);
    snprintf(name, sizeof name, "after.%s.f32", tensor.name);
    read_file(name, wanted, tensor.bytes);
    for (size_t i = 0; i < tensor.bytes / sizeof *got; i++)
        if (!(fabsf(got[i] - wanted[i]) <= 1e-6f + 1e-5f * fabsf(wanted[i])))
            fail_msg("%s[%zu] = %.9g, PyTorch has %.9g", tensor.name, i, (double)got[i],
                     (double)wanted[i]);
    free(got);
    free(wanted);
}

static void test_one_step(void **state)
{
    (void)state;
    struct sy_graph *graph;
    struct sy_trainer *t;
    struct sy_train_options options = {.loss = SY_LOSS_SOFTMAX_CROSS_ENTROPY,
                                       .optimizer = SY_OPTIMIZER_SGD,
                                       .learning_rate = 0.1,
                                       .momentum = 0.9,
                                       .weight_decay = 0.01,
                                       .batch = 8};
    float loss;
    assert_int_equal(sy_onnx_read(FOLDER "model.onnx", &graph), SY_OK);
    assert_int_equal(sy_graph_infer(graph), SY_OK);
    assert_int_equal(ops->create(graph, &options, &t), SY_OK);
    void *persistent = aligned_alloc(4096, (ops->persistent_bytes(t) + 4095) / 4096 * 4096);
    void *ephemeral = aligned_alloc(4096, (ops->ephemeral_bytes(t) + 4095) / 4096 * 4096);
    ops->bind(t, persistent, ephemeral);
    assert_int_equal(ops->init_state(t), SY_OK);
    read_file("input.f32", ops->batch_input(t, 0), 8 * 64 * sizeof(float));
    read_file("labels.i32", ops->batch_labels(t), 8 * sizeof(int32_t));
    read_file("loss.f32", &loss, sizeof loss);
    for (int s = 0; s < ops->n_gradient_steps(t); s++)
        assert_int_equal(ops->run_gradient_step(t, s), SY_OK);
    for (int s = 0; s < ops->n_update_steps(t); s++)
        assert_int_equal(ops->run_update_step(t, s, 1), SY_OK);
    assert_true(fabs(ops->loss(t) - (double)loss) < 1e-6);
    assert_int_equal(ops->n_state_tensors(t), 9 + 7);
    for (int i = 0; i < ops->n_state_tensors(t); i++)
        compare_state(t, i);
    ops->destroy(t);
    sy_graph_free(graph);
    free(persistent);
    free(ephemeral);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
