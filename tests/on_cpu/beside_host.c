#include "tests/on_cpu/beside_host.h"

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
#include "tests/on_cpu/fake_math.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/train/train_internal.h"

const struct rig_engine beside_host = {.ops = &sy_host_engine};
const struct rig_engine beside_cuda = {
    .ops = &sy_cuda_engine, .device_view = fake_math_device, .synchronize = fake_math_synchronize};

bool beside_host_has(enum sy_op op)
{
    return sy_host_op_find(op) != NULL;
}

enum beside_training beside_host_trains(enum sy_op op)
{
    const struct sy_gradient_steps *has = sy_tr_gradient_of(op);
    return !has                                 ? BESIDE_NOT_TRAINED
           : has->backward == sy_tr_no_backward ? BESIDE_ENDS_GRADIENTS
                                                : BESIDE_TRAINED;
}

void beside_attach(void)
{
    sy_cuda_engine_use(&fake_math);
    assert_int_equal(sy_cuda_engine.attach(NULL, NULL), SY_OK);
}

void beside_results(const struct rig_engine *engine, const struct sy_graph *g,
                    const struct rig_tensors *in, struct rig_tensors *out)
{
    struct engine_rig rig;
    rig_engine = *engine;
    if (rig_open(&rig, g, true) < 0)
        fail_msg("%s: %s", g->name, sy_error_text());
    struct sy_program *p = rig_program(&rig, 3);
    rig_take(&rig, rig.graph->outputs, rig.graph->n_outputs, 3, 0, out);
    assert_int_equal(rig_run(&rig, p, in, out, 0xff, NULL), SY_OK);
    engine->ops->program_destroy(p);
    rig_close(&rig);
}

double beside_distance(const struct rig_tensors *a, const struct rig_tensors *b)
{
    double off = 0, all = 0;
    assert_int_equal(a->bytes[0], b->bytes[0]);
    for (uint64_t i = 0; i < a->bytes[0] / sizeof(float); i++) {
        double x = (double)((float *)a->data[0])[i], y = (double)((float *)b->data[0])[i];
        off += (x - y) * (x - y);
        all += x * x;
    }
    return sqrt(off / all);
}
