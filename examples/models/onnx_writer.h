/* Builds an ONNX graph node by node and streams it to a file. For the example models only.
 *
 * Names are strings owned by the writer, valid until onnx_writer_close. One thread. Running out of memory ends the
 * program: these are tools, not the library. Weights depend on the tensor's name and nothing else, so a file is the
 * same bytes on every machine. */
#ifndef EXAMPLES_ONNX_WRITER_H
#define EXAMPLES_ONNX_WRITER_H

#include <stdint.h>

#include "onnx.pb-c.h"

#define ONNX_BATCH (-1) /* as a dimension: the symbolic "N" */

struct onnx_writer;

/* A new graph of opset 13. */
struct onnx_writer *onnx_writer_open(const char *graph_name);
void onnx_writer_close(struct onnx_writer *w);

/* printf into a name of the writer. */
const char *onnx_name(struct onnx_writer *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A graph input; returns its name. */
const char *onnx_input(struct onnx_writer *w, const char *name, int elem_type, int rank,
                       const int64_t *dims);
/* Makes `tensor` (from onnx_node) a graph output under the name `name`. */
void onnx_output(struct onnx_writer *w, const char *tensor, const char *name, int elem_type,
                 int rank, const int64_t *dims);

/* Constants. `random`: roughly normal with this mean and standard deviation, seeded by name. */
const char *onnx_random(struct onnx_writer *w, const char *name, int rank, const int64_t *dims,
                        double mean, double deviation);
const char *onnx_scalar(struct onnx_writer *w, const char *name, float value);
/* int64; rank 0 (one value) or 1. */
const char *onnx_int64s(struct onnx_writer *w, const char *name, int rank, int n,
                        const int64_t *values);

/* A node with one output, inputs up to a NULL; returns the output's name. `scope` goes into its names. */
const char *onnx_node(struct onnx_writer *w, const char *op, const char *scope, ...)
    __attribute__((sentinel));
/* One more input, one more attribute, of the node made last. */
void onnx_add_input(struct onnx_writer *w, const char *tensor);
void onnx_int(struct onnx_writer *w, const char *attribute, int64_t value);
void onnx_string(struct onnx_writer *w, const char *attribute, const char *value);
void onnx_float(struct onnx_writer *w, const char *attribute, float value);
void onnx_ints(struct onnx_writer *w, const char *attribute, int n, const int64_t *values);

#define ONNX_LEN(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define ONNX_DIMS(...)                                            \
    ONNX_LEN(((const int64_t[]){__VA_ARGS__})), (const int64_t[]) \
    {                                                             \
        __VA_ARGS__                                               \
    }

/* Writes the model to `path` by way of a temporary name. 0, or -1 with errno set. */
int onnx_writer_save(struct onnx_writer *w, const char *path);

#endif
