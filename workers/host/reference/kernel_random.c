/* Numbers drawn by a node, the same in each run: of the node's seed, or without one of its name, by element. So a request that is interrupted
 * and begins again gives the same bits, alone and in a batch. Philox (workers/engine/train_philox.h). */
#include <xxhash.h>

#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"

static uint64_t seed_of(const struct sy_node *node)
{
    const struct sy_attr *seed = sy_node_attr(node, "seed");
    uint64_t bits = 0;
    if (!seed || seed->kind != SY_ATTR_FLOAT)
        return XXH64(node->name, strlen(node->name), 0);
    memcpy(&bits, &seed->f, sizeof seed->f);
    return bits;
}

struct sy_draw sy_random_draw(const struct sy_node *node, const int64_t *dims, int64_t n)
{
    bool is_uniform = node->op == SY_OP_RANDOM_UNIFORM_LIKE,
         of_batch = sy_node_int(node, "of_batch", 0) != 0 && dims[0] > 0;
    double shift = (double)sy_node_float(node, is_uniform ? "low" : "mean", 0),
           scale = is_uniform ? (double)sy_node_float(node, "high", 1) - shift
                              : (double)sy_node_float(node, "scale", 1);
    return (struct sy_draw){.seed = seed_of(node),
                            .period = of_batch ? n / dims[0] : n,
                            .shift = shift,
                            .scale = scale,
                            .is_uniform = is_uniform};
}

static int run_random(const struct sy_call *call)
{
    const struct sy_array *y = &call->out[0];
    struct sy_draw draw = sy_random_draw(call->node, y->dims, y->n);
    for (int64_t i = 0; i < y->n; i++)
        sy_put(y, i, sy_draw_element(&draw, i));
    return SY_OK;
}

static int check_same(const struct sy_call *call)
{
    return sy_array_same_dims(&call->in[0], &call->out[0]) && sy_is_float(call->out[0].dtype)
               ? SY_OK
               : sy_kernel_refuse(call, "a result of another shape or type");
}

const struct sy_kernel sy_kernels_random[] = {
    {SY_OP_RANDOM_NORMAL_LIKE, run_random, {SY_ANY_TYPE}, check_same, NULL},
    {SY_OP_RANDOM_UNIFORM_LIKE, run_random, {SY_ANY_TYPE}, check_same, NULL},
    {0}};
