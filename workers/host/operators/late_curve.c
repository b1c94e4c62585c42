#include "workers/host/operators/late_curve.h"

#include "runtime/base/status.h"
#include "workers/host/rows/curve_rows.h"

enum { LEAST_ELEMENTS = 32 << 10 };

bool sy_fused_curve_read(const struct sy_node *node, struct sy_curve *curve)
{
    static const enum sy_op ops[] = {[SY_ACT_RELU] = SY_OP_RELU,
                                     [SY_ACT_GELU_ERF] = SY_OP_GELU,
                                     [SY_ACT_TANH] = SY_OP_TANH,
                                     [SY_ACT_SIGMOID] = SY_OP_SIGMOID,
                                     [SY_ACT_CLIP] = SY_OP_CLIP,
                                     [SY_ACT_SWISH] = SY_OP_SWISH,
                                     [SY_ACT_HARD_SWISH] = SY_OP_HARD_SWISH};
    if (node->activation == SY_ACT_NONE)
        return false;
    *curve =
        (struct sy_curve){.op = ops[node->activation], .a = node->act_alpha, .b = node->act_beta};
    return true;
}

bool sy_late_curve_is_gain(const struct sy_node *node, int64_t elements, struct sy_curve *curve)
{
    return node->activation == SY_ACT_SWISH && elements >= LEAST_ELEMENTS && sy_dnnl_has_avx512() &&
           sy_fused_curve_read(node, curve);
}

static int run_late_curve(struct sy_program *p, struct sy_step *step)
{
    const struct sy_curve curve = {
        .op = (enum sy_op)step->numbers[0], .a = step->floats[0], .b = step->floats[1]};
    float *x = sy_program_pointer(p, step->args[0].value);
    sy_curve_rows(&curve, step->numbers[1], x, x);
    return SY_OK;
}

int sy_late_curve_add(struct sy_program *p, int value, const struct sy_curve *curve)
{
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_late_curve, (int[]){value}, 1, &step));
    SY_TRY(sy_step_set_floats(step, (float[]){curve->a, curve->b}, 2));
    return sy_step_set_numbers(
        step, (int64_t[]){curve->op, (int64_t)(p->values[value].bytes / sizeof(float))}, 2);
}
