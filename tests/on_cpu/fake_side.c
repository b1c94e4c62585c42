#include "tests/on_cpu/fake_side.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "tests/on_cpu/cpu_launch.h"
#include "tests/on_cpu/fake_math_internal.h"
#include "workers/cuda/kernels/kernel_ops.h"
#include "workers/cuda/kernels/kernels_ranks.h"
#include "workers/cuda/math/device_side.h"

#define MOST_BLOCKS 2

struct sy_side {
    struct CUstream_st stream; /* the first, so that a kernel's stream leads here */
    struct sy_math *math;
    atomic_bool *marks;
    unsigned n_marks;
    void *blocks[2 * MOST_BLOCKS];
    int n_blocks;
};

static atomic_int n_calls, fail_at, n_open;

void fake_side_fail(int n)
{
    atomic_store(&n_calls, 0);
    atomic_store(&fail_at, n);
}

int fake_side_calls(void)
{
    return atomic_load(&n_calls);
}

int fake_side_n_open(void)
{
    return atomic_load(&n_open);
}

static int call(const char *name)
{
    return atomic_fetch_add(&n_calls, 1) + 1 == atomic_load(&fail_at)
               ? sy_error_set(SY_EDEVICE, "fake side %s fails", name)
               : SY_OK;
}

static int take_kernel(struct CUstream_st *stream, const struct cpu_work *work)
{
    (void)stream;
    fake_math_run(work);
    return 0;
}

int sy_side_open(struct sy_math *math, unsigned n_marks, struct sy_side **out)
{
    SY_TRY(call("open"));
    struct sy_side *side = calloc(1, sizeof *side);
    assert(side);
    *side = (struct sy_side){.stream.take = take_kernel,
                             .math = math,
                             .marks = calloc(n_marks, sizeof *side->marks),
                             .n_marks = n_marks};
    assert(side->marks);
    atomic_fetch_add(&n_open, 1);
    *out = side;
    return SY_OK;
}

void sy_side_close(struct sy_side *side)
{
    if (!side)
        return;
    atomic_fetch_sub(&n_open, 1);
    fake_math_synchronize(); /* what is in the stream that computes may use the memory */
    for (int i = 0; i < side->n_blocks; i++)
        free(side->blocks[i]);
    free(side->marks);
    free(side);
}

static void *take_block(struct sy_side *side, uint64_t bytes)
{
    assert(side->n_blocks < 2 * MOST_BLOCKS);
    void *block = malloc(bytes);
    assert(block);
    memset(block, 0xff, bytes);
    return side->blocks[side->n_blocks++] = block;
}

int sy_side_take(struct sy_side *side, uint64_t bytes, void **out)
{
    SY_TRY(call("take"));
    *out = fake_math_device(take_block(side, bytes));
    return SY_OK;
}

int sy_side_take_host(struct sy_side *side, uint64_t bytes, void **out)
{
    SY_TRY(call("take_host"));
    *out = take_block(side, bytes);
    return SY_OK;
}

/* ---- into the stream that computes ---- */

int sy_side_gather(struct sy_side *side, const void *from, void *to, uint64_t bytes)
{
    SY_TRY(call("gather"));
    return fake_math.copy(side->math, from, to, bytes);
}

/* The device is fast: the mark is passed at once. */
int sy_side_mark(struct sy_side *side, unsigned mark)
{
    assert(mark < side->n_marks && !atomic_load(&side->marks[mark]));
    SY_TRY(call("mark"));
    fake_math_synchronize();
    atomic_store(&side->marks[mark], true);
    return SY_OK;
}

int sy_side_scale(struct sy_side *side, const void *from, float share, uint64_t n, void *to)
{
    SY_TRY(call("scale"));
    return sy_math_kernel_check(
        side->math, sy_kernel_scale(sy_math_kernel_stream(side->math), (int64_t)n, share, from, to),
        "mean");
}

int sy_side_clear(struct sy_side *side, void *to, uint64_t bytes)
{
    SY_TRY(call("clear"));
    return fake_math.zero(side->math, to, bytes);
}

/* ---- the other thread ---- */

int sy_side_enter(struct sy_side *side)
{
    (void)side;
    return call("enter");
}

int sy_side_passed(struct sy_side *side, unsigned mark, bool *passed)
{
    assert(mark < side->n_marks);
    SY_TRY(call("passed"));
    *passed = atomic_exchange(&side->marks[mark], false);
    return SY_OK;
}

int sy_side_idle(struct sy_side *side, bool *idle)
{
    (void)side;
    *idle = true;
    return call("idle");
}

void *sy_side_handle(struct sy_side *side)
{
    return side;
}

int sy_side_add(struct sy_side *side, int n_parts, const void *from, uint64_t n, void *to)
{
    SY_TRY(call("add"));
    return sy_math_kernel_check(
        side->math, sy_kernel_add_ranks(&side->stream, n_parts, (int64_t)n, from, to), "sum");
}

int sy_side_to_host(struct sy_side *side, const void *from, void *host, uint64_t bytes)
{
    (void)side;
    memcpy(host, fake_math_seen(from), bytes);
    return call("to_host");
}

int sy_side_to_device(struct sy_side *side, const void *host, void *to, uint64_t bytes)
{
    (void)side;
    memcpy(fake_math_seen(to), host, bytes);
    return call("to_device");
}
