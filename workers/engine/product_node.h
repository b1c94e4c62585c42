/* Description of a Gemm or MatMul, for all engines. Pure. */
#ifndef SY_WORKERS_ENGINE_PRODUCT_NODE_H
#define SY_WORKERS_ENGINE_PRODUCT_NODE_H

#include <stdbool.h>

#include "loader/graph/graph.h"

/* Whether factor `input` (0 or 1) is transposed before the product. */
bool sy_product_is_transposed(const struct sy_node *node, int input);
/* The node input that is added: a fused bias, or Gemm's C; -1: none. */
int sy_product_bias(const struct sy_node *node);
/* Constant float32 input `input` as an engine keeps it: with its factor in it (alpha, beta); is_matrix: the right side, a matrix, lies
 * [k, n] afterwards, with alpha. `to` has the constant's size. */
void sy_product_pack(const struct sy_graph *graph, const struct sy_node *node, int input,
                     bool is_matrix, float *to);

#endif
