/* Numbers drawn by a node, the same in each run: of the node's seed, or without one of its name, by element. So a request that is interrupted
 * and begins again gives the same bits, alone and in a batch. Philox (workers/train_philox.h), made normal by Box and Muller (1958). */
#include <xxhash.h>

#include "runtime/base/status.h"
#include "workers/host/kernel.h"
#include "workers/train_philox.h"

static uint64_t seed_of(const struct sy_node *node)
{
    const struct sy_attr *seed = sy_node_attr(node, "seed");
    uint64_t bits = 0;
    if (!seed || seed->kind != SY_ATTR_FLOAT)
        return XXH64(node->name, strlen(node->name), 0);
    memcpy(&bits, &seed->f, sizeof seed->f);
    return bits;
}

/* In (0, 1). */
static double uniform(uint64_t seed, uint64_t element)
{
    return ((double)sy_philox_element(seed, 0, 0, element) + 0.5) / 4294967296.0;
}

static int run_normal(const struct sy_call *call)
{
    const struct sy_array *y = &call->out[0];
    uint64_t seed = seed_of(call->node);
    double mean = (double)sy_node_float(call->node, "mean", 0),
           scale = (double)sy_node_float(call->node, "scale", 1);
    bool of_batch = sy_node_int(call->node, "of_batch", 0) != 0;
    int64_t row = of_batch && y->dims[0] > 0 ? y->n / y->dims[0] : y->n;
    for (int64_t i = 0; i < y->n; i++) {
        uint64_t k = 2 * (uint64_t)(i % row);
        double radius = sqrt(-2 * log(uniform(seed, k)));
        sy_put(y, i,
               mean + scale * radius * cos(2 * 3.14159265358979323846 * uniform(seed, k + 1)));
    }
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
