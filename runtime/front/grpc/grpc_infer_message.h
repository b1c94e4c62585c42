/* A ModelInferRequest read where it lies: nothing is allocated but for its parameters, tensors stay in the message's bytes.
 *
 *   | model_name, version, id, parameters, inputs, outputs (fields 1 to 6) | raw_input_contents (7) | raw_input_contents | ...
 *   '---------------------------- head ----------------------------------'
 *
 * Encoders write fields by number, so the head is there before the first tensor: a large message need not be whole to be read.
 *
 * Pure. What is read points into the message. EARG says what is wrong with it. */
#ifndef SY_FRONT_GRPC_INFER_MESSAGE_H
#define SY_FRONT_GRPC_INFER_MESSAGE_H

#include <jansson.h>

#include "loader/graph/graph.h"
#include "runtime/front/grpc/grpc_wire.h"

#define SY_GRPC_RAW_INPUT 7 /* the field's number */

/* A tensor's place in shared memory. */
struct sy_grpc_region_view {
    struct sy_grpc_bytes name; /* data NULL: it does not */
    uint64_t offset, bytes;
};

struct sy_grpc_request_view {
    struct sy_grpc_bytes model, version, id;
    bool wants_final; /* the parameter triton_enable_empty_final_response */
    int n_parameters, n_inputs, n_outputs, n_raw;
};

struct sy_grpc_input_view {
    struct sy_grpc_bytes name, datatype;
    int rank;
    int64_t dims[SY_MAX_RANK];
    bool has_contents;
    struct sy_grpc_bytes contents; /* an InferTensorContents */
    struct sy_grpc_region_view region;
};

struct sy_grpc_output_view {
    struct sy_grpc_bytes name;
    uint64_t classes; /* 0: the tensor itself */
    struct sy_grpc_region_view region;
};

int sy_grpc_request_read(struct sy_grpc_bytes message, struct sy_grpc_request_view *out);
/* The next input, output or raw content from `at` on, which starts as the message: FIELD and moves `at`, or END; negative: EARG. */
int sy_grpc_request_next_input(struct sy_grpc_bytes *at, struct sy_grpc_input_view *out);
int sy_grpc_request_next_output(struct sy_grpc_bytes *at, struct sy_grpc_output_view *out);
int sy_grpc_request_next_raw(struct sy_grpc_bytes *at, struct sy_grpc_bytes *out);

/* The request's parameters, {name: value}; the caller's. */
int sy_grpc_request_parameters(struct sy_grpc_bytes message, json_t **out);

/* Whether the head ends within these first bytes of a message, at *at: there begins the first raw_input_contents. *at is where to look from,
 * 0 at first, and moves on over whole fields. */
bool sy_grpc_request_head(struct sy_grpc_bytes begun, size_t *at);

/* Elements of an InferTensorContents to `to`, row-major: exactly n of dtype. EARG names the input: too few or too many, of another type's field, out
 * of the range of dtype; EUNSUPPORTED: a dtype that has no field (FP16, BF16). */
int sy_grpc_contents_read(struct sy_grpc_bytes contents, const char *input, enum sy_dtype dtype,
                          uint64_t n, void *to);
/* Bytes that n strings of an InferTensorContents can take at most, as BYTES are laid out. */
uint64_t sy_grpc_contents_string_bytes(struct sy_grpc_bytes contents, uint64_t n);
/* Exactly n of them to `to`, the text of a block (loader/graph/string_tensor.h), whose head is written, too. EARG as above. */
int sy_grpc_contents_strings(struct sy_grpc_bytes contents, const char *input, uint64_t n,
                             void *to);

#endif
