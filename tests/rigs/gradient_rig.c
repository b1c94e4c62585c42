#include "tests/rigs/gradient_rig.h"

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
#include "tests/rigs/seed.h"

const struct sy_trainer_ops *gradient_ops = &sy_host_trainer;
void *(*gradient_view)(void *memory);
void rig_choose_trainer(const struct sy_trainer_ops **out, void *(**view)(void *memory))
    __attribute__((weak));
void *rig_take_memory(uint64_t bytes)
    __attribute__((weak)); /* that the device sees too, 4096-aligned */
void rig_drop_memory(void *memory) __attribute__((weak));
uint64_t gradient_seed;
bool gradient_recomputes;
enum sy_train_precision gradient_precision;

void gradient_begin(void)
{
    gradient_seed = seed_of_run(20240607);
    if (rig_choose_trainer)
        rig_choose_trainer(&gradient_ops, &gradient_view);
}

void gradient_bind(struct gradient_rig *r)
{
    size_t p = (gradient_ops->persistent_bytes(r->trainer) + 4095) / 4096 * 4096,
           e = (gradient_ops->ephemeral_bytes(r->trainer) + 4095) / 4096 * 4096;
    r->persistent = rig_take_memory ? rig_take_memory(p) : aligned_alloc(4096, p);
    r->ephemeral = rig_take_memory ? rig_take_memory(e) : aligned_alloc(4096, e);
    assert_non_null(r->persistent);
    assert_non_null(r->ephemeral);
    memset(r->persistent, 0xff, p);
    memset(r->ephemeral, 0xff, e);
    gradient_ops->bind(r->trainer, gradient_view ? gradient_view(r->persistent) : r->persistent,
                       gradient_view ? gradient_view(r->ephemeral) : r->ephemeral);
    assert_int_equal(gradient_ops->init_state(r->trainer), SY_OK);
}

bool gradient_open_with(struct gradient_rig *r, size_t which, const struct sy_train_options *o)
{
    r->graph = gb_new(gradient_nets[which].name);
    gb_output(r->graph, gradient_nets[which].make(r->graph));
    if (gradient_ops->fuses)
        assert_int_equal(sy_graph_fuse_training(r->graph, gradient_ops->fuses), SY_OK);
    int status = gradient_ops->create(r->graph, o, &r->trainer);
    if (status < 0)
        fail_msg("%s: %s", gradient_nets[which].name, sy_error_text());
    gradient_bind(r);
    r->n_wanted = sy_shape_elements(&r->graph->tensors[r->graph->outputs[0]].shape, BATCH);
    assert_true(r->n_wanted <= ROOM);
    for (int i = 0; i < BATCH * 24; i++)
        r->input[i] = (float)gb_uniform(&gradient_seed, -1, 1);
    for (int64_t i = 0; i < r->n_wanted; i++)
        r->wanted[i] = (float)gb_uniform(&gradient_seed, -1, 1);
    return true;
}

bool gradient_open(struct gradient_rig *r, size_t which)
{
    struct sy_train_options o = {.loss = SY_LOSS_MSE,
                                 .optimizer = SY_OPTIMIZER_SGD,
                                 .learning_rate = 0.0,
                                 .momentum = 0.5,
                                 .batch = BATCH,
                                 .seed = 7,
                                 .precision = gradient_precision,
                                 .recomputes = gradient_recomputes};
    return gradient_open_with(r, which, &o);
}

static void drop_memory(void *memory, bool is_device)
{
    if (is_device)
        rig_drop_memory(memory);
    else
        free(memory);
}

void gradient_close(struct gradient_rig *r)
{
    bool is_device = rig_drop_memory != NULL;
    gradient_ops->destroy(r->trainer);
    sy_graph_free(r->graph);
    drop_memory(r->persistent, is_device);
    drop_memory(r->ephemeral, is_device);
}

double gradient_loss(struct gradient_rig *r)
{
    memcpy(gradient_ops->batch_input(r->trainer, 0), r->input, sizeof r->input);
    memcpy(gradient_ops->batch_labels(r->trainer), r->wanted,
           (size_t)r->n_wanted * sizeof *r->wanted);
    gradient_ops->begin_batch(r->trainer, 5);
    for (int s = 0; s < gradient_ops->n_gradient_steps(r->trainer); s++)
        if (gradient_ops->run_gradient_step(r->trainer, s) < 0)
            fail_msg("%s: %s", r->graph->name, sy_error_text());
    return gradient_ops->loss(r->trainer);
}

void gradient_settle(struct gradient_rig *r)
{
    if (gradient_ops->settle)
        assert_int_equal(gradient_ops->settle(r->trainer), SY_OK);
}
