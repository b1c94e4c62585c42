/* Numbers drawn by a node, the same in each run: of the node's seed, or without one of its name, by element. So a request that is interrupted
 * and begins again gives the same bits, alone and in a batch. Philox (workers/train_philox.h). */
#include <xxhash.h>

#include "runtime/base/status.h"
#include "workers/host/kernel.h"
#include "workers/train_philox.h"

uint64_t sy_random_seed(const struct sy_node *node)
{
    const struct sy_attr *seed = sy_node_attr(node, "seed");
    uint64_t bits = 0;
    if (!seed || seed->kind != SY_ATTR_FLOAT)
        return XXH64(node->name, strlen(node->name), 0);
    memcpy(&bits, &seed->f, sizeof seed->f);
    return bits;
}

int64_t sy_random_period(const struct sy_node *node, const int64_t *dims, int64_t n)
{
    return sy_node_int(node, "of_batch", 0) != 0 && dims[0] > 0 ? n / dims[0] : n;
}

static int run_normal(const struct sy_call *call)
{
    const struct sy_array *y = &call->out[0];
    uint64_t seed = sy_random_seed(call->node);
    double mean = (double)sy_node_float(call->node, "mean", 0),
           scale = (double)sy_node_float(call->node, "scale", 1);
    int64_t period = sy_random_period(call->node, y->dims, y->n);
    for (int64_t i = 0; i < y->n; i++)
        sy_put(y, i, mean + scale * sy_philox_normal(seed, (uint64_t)(i % period)));
    return SY_OK;
}

static int check_same(const struct sy_call *call)
{
    return sy_array_same_dims(&call->in[0], &call->out[0]) && sy_is_float(call->out[0].dtype)
               ? SY_OK
               : sy_kernel_refuse(call, "a result of another shape or type");
}

const struct sy_kernel sy_kernels_random[] = {
    {SY_OP_RANDOM_NORMAL_LIKE, run_normal, {SY_ANY_TYPE}, check_same, NULL}, {0}};
