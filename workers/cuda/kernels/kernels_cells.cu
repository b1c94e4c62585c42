/* Recurrent cells: a unit a thread. And their weights on the way to a library that wants them in another order. */
#include "workers/cuda/kernels/cell_formulas.h"
#include "workers/cuda/kernels/kernel_common.cuh"
#include "workers/cuda/kernels/kernels_library.h"
#include "workers/cuda/kernels/kernels_train_ops.h"

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
    SY_GENERIC (k, n) {
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

__global__ static void parts_kernel(const __grid_constant__ sy_library_parts parts,
                                    const __grid_constant__ sy_pointers<SY_RECURRENCE_ROLES> from,
                                    float *to)
{
    for (int64_t k = 0; k < parts.n; k++) {
        const sy_library_part &part = parts.list[k];
        const float *at = (const float *)from.at[part.role] + part.from;
        SY_GENERIC (i, part.n)
            to[part.to + i] = at[i];
    }
}

int sy_kernel_parts(struct CUstream_st *stream, const struct sy_library_parts *parts,
                    void *const *at, void *to)
{
    sy_pointers<SY_RECURRENCE_ROLES> from;
    int64_t most = 0;
    for (int i = 0; i < SY_RECURRENCE_ROLES; i++)
        from.at[i] = at[i];
    for (int64_t k = 0; k < parts->n; k++)
        most = parts->list[k].n > most ? parts->list[k].n : most;
    if (most == 0)
        return 0;
    return sy_launch(parts_kernel, sy_blocks(most), stream, *parts, from, (float *)to);
}
