#include "tests/nets/kernel_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"

static const enum sy_dtype types[] = {SY_DTYPE_U8, SY_DTYPE_BF16, SY_DTYPE_F32, SY_DTYPE_I64};
static int64_t origins[KERNEL_MOST];
struct kernel_case kernel_case;
unsigned char kernel_data[KERNEL_MOST * 8], kernel_result[KERNEL_MOST * 8 + KERNEL_BEHIND];

void kernel_case_fill(void)
{
    for (size_t i = 0; i < sizeof kernel_data; i++)
        kernel_data[i] = (unsigned char)(i * 2654435761u >> 13);
}

struct sy_array array_of(enum sy_dtype dtype, int rank, const int64_t *dims, void *at)
{
    struct sy_array a = {.dtype = dtype, .rank = rank, .n = 1, .data = at};
    for (int i = 0; i < rank; i++)
        a.n *= a.dims[i] = dims[i];
    return a;
}

void kernel_case_start(uint64_t *seed, enum sy_op op, int round)
{
    int rank = 2 + round % 3;
    int64_t dims[KERNEL_RANK], most = round % 4 ? 5 : rank == 2 ? 170 : rank == 3 ? 30 : 13;
    kernel_case = (struct kernel_case){
        .node = {.op = op, .name = "moved", .attrs = kernel_case.attrs, .n_attrs = 0},
        .from = origins};
    for (int d = 0; d < rank; d++)
        dims[d] = rig_int(seed, round % 4 ? 1 : most - 3, most);
    kernel_case.call = (struct sy_call){.node = &kernel_case.node, .n_in = 1, .n_out = 1};
    kernel_case.call.in[0] = array_of(types[round / 2 % 4], rank, dims, kernel_data);
    kernel_case.call.out[0] = kernel_case.call.in[0];
    kernel_case.call.out[0].data = kernel_result;
}

void kernel_case_resize(const int64_t *dims)
{
    kernel_case.call.out[0] =
        array_of(kernel_case.call.in[0].dtype, kernel_case.call.in[0].rank, dims, kernel_result);
    assert_true(kernel_case.call.out[0].n <= KERNEL_MOST);
}

void kernel_case_attr(struct sy_attr attr)
{
    kernel_case.attrs[kernel_case.node.n_attrs++] = attr;
}

void kernel_case_run(int status, const void *padding)
{
    static const unsigned char zeros[8];
    const struct sy_kernel *kernel = sy_kernel_find(kernel_case.node.op);
    size_t bytes = sy_dtype_bytes(kernel_case.call.in[0].dtype);
    assert_int_equal(kernel->check(&kernel_case.call), SY_OK);
    kernel_case.call.scratch =
        kernel->scratch ? malloc((size_t)kernel->scratch(&kernel_case.call) + 1) : NULL;
    size_t end = (size_t)kernel_case.call.out[0].n * bytes;
    memset(kernel_result, 0xa5, end + KERNEL_BEHIND);
    int got = kernel->run(&kernel_case.call);
    free(kernel_case.call.scratch);
    assert_int_equal(got, status);
    if (status < 0)
        return;
    for (int64_t i = 0; i < kernel_case.call.out[0].n; i++) {
        const void *want = kernel_case.from[i] == -1 ? padding
                           : kernel_case.from[i] == -2
                               ? zeros
                               : kernel_data + (size_t)kernel_case.from[i] * bytes;
        if (memcmp(kernel_result + (size_t)i * bytes, want, bytes))
            fail_msg("%s: element %lld", sy_op_name(kernel_case.node.op), (long long)i);
    }
    for (size_t i = end; i < end + KERNEL_BEHIND; i++)
        assert_int_equal(kernel_result[i], 0xa5);
}

int64_t kernel_offset_in(const struct sy_array *x, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < x->rank; d++)
        offset = offset * x->dims[d] + at[d];
    return offset;
}
