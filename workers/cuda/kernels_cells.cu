/* Recurrent cells: a unit a thread. */
#include "workers/cuda/cell_formulas.h"
#include "workers/cuda/kernel_common.cuh"
#include "workers/cuda/kernels_train_ops.h"

SY_KERNEL_FILE(cells)

/* T: of what is left narrow. */
template <typename T>
__global__ static void cell_kernel(const __grid_constant__ sy_math_cell c,
                                   const __grid_constant__ sy_pointers<SY_CELL_ROLES> pointers,
                                   int64_t n)
{
    bool is_reset = c.op == SY_OP_GRU && c.part == SY_CELL_PART_GATES && !c.resets_late;
    const float *state = (const float *)pointers.at[is_reset ? SY_CELL_EXTRA : SY_CELL_H_NEW];
    T *narrow = (T *)pointers.at[SY_CELL_NARROW];
    SY_EACH (k, n) {
        sy_cell_run(&c, pointers.at, k);
        if (narrow)
            narrow[k] = sy_store<T>::of(state[k]);
    }
}

int sy_kernel_cell(struct CUstream_st *stream, const struct sy_math_cell *c, void *const *at)
{
    sy_pointers<SY_CELL_ROLES> pointers;
    int64_t n = c->batch * c->hidden;
    if (n == 0)
        return 0;
    for (int i = 0; i < SY_CELL_ROLES; i++)
        pointers.at[i] = at[i];
    SY_WITH_FLOAT(c->narrow, T,
                  return sy_launch(cell_kernel<T>, sy_blocks(n), stream, *c, pointers, n));
}
