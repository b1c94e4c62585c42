/* Graphs of ONNX files, as an import reads them. */
#ifndef SY_TESTS_NETS_ONNX_IMPORT_H
#define SY_TESTS_NETS_ONNX_IMPORT_H

#include "loader/graph/graph.h"

/* Read and inferred. Each fails the test with the reason of a refusal; the caller frees the graph. */
struct sy_graph *onnx_inferred(const char *path);
/* Read, inferred and optimised. */
struct sy_graph *onnx_optimized(const char *path);
/* The same, but the status of a refusal is returned, and then there is no graph to free. */
int onnx_try_inferred(const char *path, struct sy_graph **out);
int onnx_try_optimized(const char *path, struct sy_graph **out);
/* The reader refuses the file with this status, and its error holds `text`. */
void onnx_expect_refusal(const char *path, int status, const char *text);

#endif
