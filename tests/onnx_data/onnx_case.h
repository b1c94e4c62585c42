/* One case of ONNX's own test data: a folder with model.onnx and test_data_set_N/{input,output}_M.pb, run as a model is run:
 * read, inferred, optimized, laid out, packed, made into a program, run, and compared. */
#ifndef SY_TESTS_ONNX_CASE_H
#define SY_TESTS_ONNX_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/graph/graph.h"

enum onnx_verdict { ONNX_PASSED, ONNX_REFUSED, ONNX_FAILED };

/* A tensor of a .pb file; data is malloc'd, row-major. */
struct onnx_array {
    enum sy_dtype dtype;
    struct sy_shape shape;
    void *data;
    size_t bytes;
};

/* The file's tensor, or the tensors of its sequence: how many, at most `room`. -1, with the reason in `text`: it holds none that we know. */
int onnx_array_read(const char *path, struct onnx_array *out, int room, char *text,
                    size_t text_bytes);
/* The file's sequence or optional, by its parts (loader/graph/list_ends.h), into out[3]; `rank`: at least so many dimensions are said of each tensor. As
 * above; 3 else. */
int onnx_parts_read(const char *path, enum sy_dtype dtype, int rank, struct onnx_array *out,
                    char *text, size_t text_bytes);
/* Floats: |got - want| <= 1e-5 + 1e-3 |want| + slack * max |want|, NaN for NaN; others: equal bytes. */
bool onnx_array_matches(const struct onnx_array *want, const void *got, double slack, char *text,
                        size_t text_bytes);
/* Whether all inputs and outputs of the model are float32, int64, int32 or bool tensors of ONNX's own operators. */
bool onnx_model_is_plain(const char *folder);

/* Runs all data sets of the case in this process; `text` is the reason unless it passed. slack: of whole models, whose cancelling sums
 * round at the size of their terms. */
enum onnx_verdict onnx_case_run(const char *folder, double slack, char *text, size_t text_bytes);

#endif
