/* Products with constant matrices by blocked_product.h instead of oneDNN: how they are packed, and their steps. */
#ifndef SY_WORKERS_HOST_OPERATORS_OP_BLOCKED_H
#define SY_WORKERS_HOST_OPERATORS_OP_BLOCKED_H

#include "workers/host/program/program_internal.h"

/* Whether this CPU is one for them: AVX2, but not AVX-512. */
bool sy_blocked_is_gain(void);
/* At import: the layout of a packed [k, n] (one row of elements), and from a matrix that lies there to a packed one in its place. */
void sy_blocked_md(int64_t k, int64_t n, dnnl_memory_desc_t *md);
int sy_blocked_prepare(const struct sy_node *node, int64_t k, int64_t n, float *matrix);
/* Whether parameter `input` of the layer being built was packed so. */
bool sy_blocked_is_packed(const struct sy_program *p, int input);

/* y [m, n] = x w + bias row + sum_scale y, all row-major (x_transposed: x lies as [k, m]); values of the program, bias -1: none. */
struct sy_blocked_step {
    int64_t m, k, n;
    bool x_transposed;
    float sum_scale;
    int x, bias, y;
};
/* The step, with parameter `input` as w; float32 or stored in bf16. */
int sy_program_add_blocked(struct sy_program *p, int input, const struct sy_blocked_step *s);
/* Parameter `input` as a row-major matrix of float32 [k, n], made in each run: for products of so many rows that this costs less than oneDNN is faster. */
int sy_program_add_unpacked(struct sy_program *p, int input, int64_t k, int64_t n, int *out);
/* The node's fused activation over a value of float32, as its bytes lie: of activations that keep 0, or without padding. */
int sy_program_add_activation(struct sy_program *p, int value);
/* Whether the node's activation of a product of this type is a step of its own. Gelu is: oneDNN's takes up to four times as long as a convolution where numbers
 * get so small that the CPU computes them slowly (516 000 elements 0.33 ms; ours 0.10, whatever they are). */
bool sy_activation_is_own(const struct sy_node *node, dnnl_data_type_t type);

#endif
