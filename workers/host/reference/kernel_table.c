/* Which kernel computes which operator. */
#include "runtime/base/assert.h"
#include "workers/host/reference/kernel.h"

static const struct sy_kernel *const tables[] = {
    sy_kernels_unary,     sy_kernels_binary, sy_kernels_reduce,  sy_kernels_index,
    sy_kernels_move,      sy_kernels_window, sy_kernels_norm,    sy_kernels_resize,
    sy_kernels_recurrent, sy_kernels_loss,   sy_kernels_detect,  sy_kernels_quantize,
    sy_kernels_matrix,    sy_kernels_signal, sy_kernels_regions, sy_kernels_random,
    sy_kernels_labels,    sy_kernels_text,   sy_kernels_trees,   sy_kernels_hash};

const struct sy_kernel *sy_kernel_find(enum sy_op op)
{
    for (size_t t = 0; t < SY_ARRAY_LEN(tables); t++)
        for (const struct sy_kernel *k = tables[t]; k->run; k++)
            if (k->op == op)
                return k;
    return NULL;
}
