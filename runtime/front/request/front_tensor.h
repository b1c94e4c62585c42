/* A client's description of a tensor, checked against the graph. Pure. */
#ifndef SY_RUNTIME_FRONT_REQUEST_FRONT_TENSOR_H
#define SY_RUNTIME_FRONT_REQUEST_FRONT_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "loader/graph/graph.h"

/* The names of n of the graph's tensors, as many as fit: "x, mask". */
void sy_front_tensor_names(const struct sy_graph *graph, const int *tensors, int n, char *to,
                           size_t bytes);
/* Among n of the graph's tensors; -1: none has this name. */
int sy_front_tensor_find(const struct sy_graph *graph, const int *tensors, int n, const char *name);
/* EARG: another rank than the input has, or a negative dimension. */
int sy_front_tensor_check_dims(const struct sy_tensor *tensor, int rank, const int64_t *dims);
/* As many bytes as shape and dtype say. EARG: more than can be counted. */
int sy_front_tensor_bytes(const struct sy_tensor *tensor, int rank, const int64_t *dims,
                          uint64_t *out);

#endif
