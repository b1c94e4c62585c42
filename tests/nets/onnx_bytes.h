/* Small ONNX files by hand, byte by byte: protobuf's wire format, written without the code under test's library. */
#ifndef SY_TESTS_NETS_ONNX_BYTES_H
#define SY_TESTS_NETS_ONNX_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "tests/rigs/lists.h"

struct ob { /* a growing message; 64 KiB is plenty */
    size_t n;
    unsigned char bytes[65536];
};

void ob_varint(struct ob *to, int field, uint64_t value);
void ob_bytes(struct ob *to, int field, const void *bytes, size_t n);
void ob_text(struct ob *to, int field, const char *text);
void ob_float(struct ob *to, int field, float value);
void ob_message(struct ob *to, int field, const struct ob *message);

/* An empty GraphProto. */
void ob_graph(struct ob *graph);
#define OB_NAMELESS INT64_MIN
/* Into a GraphProto. Dims: -1 is the symbolic "N", -2 "L2" to -6 "L6"; OB_NAMELESS: open without a name. Lists of names end with NULL. */
void ob_input(struct ob *graph, int field, const char *name, int elem_type, int rank,
              const int64_t *dims);
void ob_initializer(struct ob *graph, const char *name, int elem_type, int rank,
                    const int64_t *dims, const void *raw, size_t raw_bytes);
void ob_int64s(struct ob *graph, const char *name, int n,
               const int64_t *values); /* n 0: one value, no dimension */
/* Floats from -0.5 to 0.5, which `to` holds afterwards. */
void ob_uniform(struct ob *graph, const char *name, float *to, int rank, const int64_t *dims,
                uint64_t *seed);
/* Four floats that lie outside of the model's file. */
void ob_external(struct ob *graph, const char *name, const char *location, const char *offset,
                 const char *length);
/* A NodeProto; attributes may be added to it before it goes into the graph. */
void ob_node(struct ob *node, const char *op, const char *const *inputs,
             const char *const *outputs);
/* A node without attributes, into `graph`. */
void ob_add(struct ob *graph, const char *op, const char *const *inputs,
            const char *const *outputs);
void ob_attr_int(struct ob *node, const char *name, int64_t value);
void ob_attr_float(struct ob *node, const char *name, float value);
void ob_attr_text(struct ob *node, const char *name, const char *value);
void ob_attr_graph(struct ob *node, const char *name, const struct ob *value);
void ob_attr_ints(struct ob *node, const char *name, int n, const int64_t *values);

enum { OB_GRAPH_NODE = 1, OB_GRAPH_INPUT = 11, OB_GRAPH_OUTPUT = 12 };

/* A folder for a test's models, and the usual place of one in it: a cmocka group's setup and teardown. */
extern char ob_folder[], ob_path[];
int ob_open_folder(void **state);
int ob_close_folder(void **state);
/* Writes the model to `path`. */
void ob_save(const char *path, const struct ob *graph, int opset);

#endif
