/* Inlining of bodies into the graph around them, for write_out.c: single nodes, with types and shapes since inference is over, and all nodes of a body. */
#ifndef SY_LOADER_FUSE_WRITE_OUT_H
#define SY_LOADER_FUSE_WRITE_OUT_H

#include "loader/graph/graph_internal.h"

extern const struct sy_shape sy_write_scalar;

/* A new constant: a copy of these bytes; one number, without dimensions. */
int sy_write_bytes(struct sy_graph *g, const char *name, enum sy_dtype dtype,
                   const struct sy_shape *shape, const void *from, size_t bytes, int *out);
int sy_write_number(struct sy_graph *g, const char *name, enum sy_dtype dtype, int64_t value,
                    int *out);
/* A new last node that makes `result`; that makes a new tensor. */
int sy_write_into(struct sy_graph *g, const char *name, enum sy_op op, int n, const int *inputs,
                  int result);
int sy_write_op(struct sy_graph *g, const char *name, enum sy_op op, int n, const int *inputs,
                enum sy_dtype dtype, const struct sy_shape *shape, int *out);
/* A scalar: the tensor's single element, without dimensions. */
int sy_write_as_scalar(struct sy_graph *g, const char *name, int tensor, int *out);
/* a where the scalar `pick` is true, else b, of a's shape. */
int sy_write_where(struct sy_graph *g, const char *name, int pick, int a, int b, int *out);

struct sy_body_copy {
    struct sy_graph *graph;
    const struct sy_graph *body;
    const char *name;
    int *map;   /* per tensor of the body; -1: not yet */
    int counts; /* a condition: where it is false, nothing here does; -1: all counts */
};

/* The caller frees c->map. Strings and the body are borrowed. */
int sy_write_open(struct sy_graph *graph, const struct sy_graph *body, const char *name, int counts,
                  struct sy_body_copy *c);
/* The body's nodes once more. given: what its inputs are; results: what its outputs are then. Indices that do not count become 0. */
int sy_write_body(struct sy_body_copy *c, const int *given, int *results);

#endif
