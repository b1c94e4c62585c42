/* One call of a host kernel that moves elements, and where each element of the result comes from by definition. */
#ifndef SY_TESTS_NETS_KERNEL_CASE_H
#define SY_TESTS_NETS_KERNEL_CASE_H

#include <stddef.h>
#include <stdint.h>

#include "workers/host/reference/kernel.h"

enum { KERNEL_RANK = 4, KERNEL_ROUNDS = 120, KERNEL_MOST = 1 << 19, KERNEL_BEHIND = 64 };

/* from[i] is the element of the input that the result's element i is; -1: the padding, -2: zero. */
struct kernel_case {
    struct sy_attr attrs[4];
    struct sy_node node;
    struct sy_call call;
    int64_t numbers[2 * KERNEL_RANK], *from;
};
extern struct kernel_case kernel_case;
extern unsigned char kernel_data[KERNEL_MOST * 8], kernel_result[KERNEL_MOST * 8 + KERNEL_BEHIND];

/* Fills the data; once, before the cases. */
void kernel_case_fill(void);
struct sy_array array_of(enum sy_dtype dtype, int rank, const int64_t *dims, void *at);
/* A new case of random dimensions, one of four types, input and result alike; every fourth round is large enough for the threads. */
void kernel_case_start(uint64_t *seed, enum sy_op op, int round);
/* The result has these dimensions. */
void kernel_case_resize(const int64_t *dims);
void kernel_case_attr(struct sy_attr attr);
/* Runs it: the status, every element, and that nothing behind the result is written. */
void kernel_case_run(int status, const void *padding);
/* Offset of an index tuple in an array. */
int64_t kernel_offset_in(const struct sy_array *x, const int64_t *at);

#endif
