/* Tensors as JSON numbers, and the JSON of inference requests without them.
 *
 * A request of 100 MB of JSON is numbers almost whole. So what is parsed as JSON is the rest: the value of each "data" within the objects of a list of the
 * top object is cut out and replaced by its index, and its text becomes a tensor number by number, with nothing allocated.
 *
 * Pure; any thread. */
#ifndef SY_RUNTIME_FRONT_REQUEST_TENSOR_JSON_H
#define SY_RUNTIME_FRONT_REQUEST_TENSOR_JSON_H

#include <jansson.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "runtime/base/text_builder.h"

struct sy_json_cut {
    const char *text; /* in the request's text */
    uint64_t bytes;
};

struct sy_request_json {
    json_t *root; /* "data" is an integer there: an index into cuts */
    struct sy_json_cut *cuts;
    int n_cuts;
};

/* `text` must stay until finish. EARG: no JSON (line and column of what is left when the numbers are cut out), no object, or nested deeper than most_depth;
 * ENOMEM_HOST. */
int sy_request_json_parse(const char *text, uint64_t bytes, int most_depth,
                          struct sy_request_json *out);
void sy_request_json_finish(struct sy_request_json *request); /* zeroed is fine */

/* JSON numbers (true and false for BOOL too), nested in arrays or not, in row-major order: exactly n of them to `to`. EARG names the input, the element and
 * what was wrong: too few, too many, not of this dtype, out of its range; EUNSUPPORTED: a dtype that has no numbers. */
int sy_tensor_from_json(const struct sy_json_cut *data, const char *name, enum sy_dtype dtype,
                        uint64_t n, void *to);
/* The error for data too short for its shape: always EARG; names the kind of the first element if that is not a number. */
int sy_tensor_json_few(const struct sy_json_cut *data, const char *name, enum sy_dtype dtype);
/* "[1.5,2.0]" of n elements. EARG: a value that JSON has no number for (NaN, infinity). */
int sy_tensor_to_json(struct sy_text *text, const char *name, enum sy_dtype dtype, const void *data,
                      uint64_t n);

#endif
