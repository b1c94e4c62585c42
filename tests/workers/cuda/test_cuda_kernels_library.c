/* Kernels of our own around what a library computes, against their definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/on_cpu/kernel_rig.h"
#include "workers/cuda/kernels/kernels_library.h"

struct parts_case {
    struct sy_library_parts parts;
    struct kernel_tensor *roles[SY_RECURRENCE_ROLES], *space;
};

static int launch_parts(void *arg)
{
    const struct parts_case *c = arg;
    void *at[SY_RECURRENCE_ROLES];
    for (int i = 0; i < SY_RECURRENCE_ROLES; i++)
        at[i] = KERNEL_AT(c->roles[i]);
    return sy_kernel_parts(kernel_stream, &c->parts, at, c->space->device);
}

/* Each part where it is wanted, of odd lengths, with gaps that stay as they were; up to as many as there can be. */
static void test_parts(void **state)
{
    static const int64_t roles[] = {SY_RECURRENCE_W, SY_RECURRENCE_R, SY_RECURRENCE_BIAS};
    for (int64_t n = 0; n <= SY_LIBRARY_PARTS; n += 8) {
        struct parts_case c = {.parts = {.n = n}};
        int64_t sizes[SY_RECURRENCE_ROLES] = {0}, end = 3;
        for (int64_t i = 0; i < n; i++) {
            struct sy_library_part *p = &c.parts.list[i];
            *p = (struct sy_library_part){.from = sizes[roles[i % 3]],
                                          .to = end,
                                          .n = kernel_between(1, 700),
                                          .role = roles[i % 3]};
            sizes[p->role] += p->n;
            end += p->n + 5;
        }
        for (int i = 0; i < 3; i++)
            c.roles[roles[i]] = kernel_odd(SY_DTYPE_F32, sizes[roles[i]]);
        c.space = kernel_tensor(SY_DTYPE_I32, end);
        kernel_run(launch_parts, &c);
        int64_t at = 0;
        for (int64_t i = 0; i < n; i++) {
            const struct sy_library_part *p = &c.parts.list[i];
            const int32_t *from = c.roles[p->role]->at, *to = c.space->at;
            for (; at < p->to; at++)
                assert_int_equal(to[at], -1);
            assert_memory_equal(to + at, from + p->from, (size_t)p->n * sizeof *to);
            at += p->n;
        }
        kernel_end(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_parts, kernel_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
