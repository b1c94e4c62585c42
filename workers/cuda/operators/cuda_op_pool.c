/* Pooling, in the layout that the input has. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/math/device_math_library.h"
#include "workers/cuda/program/cuda_program.h"

static int64_t attr_at(const struct sy_node *node, const char *name, int i, int64_t otherwise)
{
    const struct sy_attr *a = sy_node_attr(node, name);
    return a && i < a->n ? a->ints[i] : otherwise;
}

static bool is_global(const struct sy_node *node)
{
    return node->op == SY_OP_GLOBAL_AVERAGE_POOL || node->op == SY_OP_GLOBAL_MAX_POOL;
}

/* Padding in front by auto_pad or pads; what comes behind follows from the output's size. */
static int read_window(const struct sy_node *node, int spatial, int i, struct sy_math_pool *s)
{
    const struct sy_attr *auto_pad = sy_node_attr(node, "auto_pad");
    bool lower = auto_pad && strcmp(auto_pad->s, "SAME_LOWER") == 0;
    bool upper = auto_pad && strcmp(auto_pad->s, "SAME_UPPER") == 0;
    s->kernel[i] = is_global(node) ? s->in[i] : attr_at(node, "kernel_shape", i, 1);
    s->strides[i] = is_global(node) ? 1 : attr_at(node, "strides", i, 1);
    s->dilations[i] = is_global(node) ? 1 : attr_at(node, "dilations", i, 1);
    if (s->kernel[i] < 1 || s->strides[i] < 1 || s->dilations[i] < 1)
        return sy_unsupported(node, "a window of no size");
    int64_t extent = (s->kernel[i] - 1) * s->dilations[i] + 1;
    int64_t total = (s->out[i] - 1) * s->strides[i] + extent - s->in[i];
    s->pads[i] = is_global(node) ? 0 : attr_at(node, "pads", i, 0);
    if (lower || upper)
        s->pads[i] = total <= 0 ? 0 : upper ? total / 2 : total - total / 2;
    int64_t written = is_global(node) ? 0 : attr_at(node, "pads", spatial + i, 0);
    bool extra = !lower && !upper && total - s->pads[i] > written;
    if (extra && s->count_padding)
        return sy_unsupported(node, "ceil_mode together with count_include_pad");
    return SY_OK;
}

static int run_pool(struct sy_program *p, const struct sy_cuda_step *step)
{
    const void *x = sy_cuda_pointer(p, step->args[0]);
    void *y = sy_cuda_pointer(p, step->args[1]);
    return step->by_library ? p->ops->library->pool(p->math, step->by_library, x, y)
                            : p->ops->pool(p->math, &step->pool, x, y);
}

static int build_pool(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_math_pool s = {.in = {1, 1, 1},
                             .out = {1, 1, 1},
                             .kernel = {1, 1, 1},
                             .strides = {1, 1, 1},
                             .dilations = {1, 1, 1}};
    struct sy_cuda_step *step;
    int values[2];
    if (node->n_outputs > 1 && node->outputs[1] >= 0)
        return sy_unsupported(node, "the indices output");
    SY_TRY(sy_cuda_input(p, 0, &values[0]));
    if (sy_cuda_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || p->values[values[0]].rank < 3 ||
        p->values[values[0]].rank > 5)
        return sy_unsupported(node, "only float32 with 1 to 3 spatial dimensions");
    s.type = p->values[values[0]].dtype;
    SY_TRY(sy_cuda_output_as(p, 0, s.type, p->values[values[0]].channels_last, &values[1]));
    const struct sy_cuda_value *x = &p->values[values[0]], *y = &p->values[values[1]];
    s.max = node->op == SY_OP_MAX_POOL || node->op == SY_OP_GLOBAL_MAX_POOL;
    s.count_padding = node->op == SY_OP_AVERAGE_POOL && sy_node_int(node, "count_include_pad", 0);
    s.batch = x->dims[0];
    s.channels = x->dims[1];
    sy_cuda_strides(x, s.in_strides);
    sy_cuda_strides(y, s.out_strides);
    for (int i = 0; i < x->rank - 2; i++) {
        s.in[i] = x->dims[2 + i];
        s.out[i] = y->dims[2 + i];
        SY_TRY(read_window(node, x->rank - 2, i, &s));
    }
    SY_TRY(sy_cuda_add_step(p, run_pool, values, 2, &step));
    step->pool = s;
    step->candidate = SY_CUDA_POOL;
    step->n_compared = 1;
    return SY_OK;
}

const struct sy_cuda_op sy_cuda_ops_pool[] = {
    {.build = build_pool,
     SY_OPS(SY_OP_MAX_POOL, SY_OP_AVERAGE_POOL, SY_OP_GLOBAL_AVERAGE_POOL, SY_OP_GLOBAL_MAX_POOL)},
    {0}};
