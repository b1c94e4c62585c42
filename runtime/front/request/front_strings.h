/* Strings of requests: in the slab they lie as the Open Inference Protocol has them (loader/graph/string_tensor.h), so that binary data is received
 * where it stays, and sent from there.
 *
 * Other forms are converted to it: JSON's strings here, gRPC's bytes_contents in grpc/grpc_infer_contents.h. */
#ifndef SY_RUNTIME_FRONT_REQUEST_FRONT_STRINGS_H
#define SY_RUNTIME_FRONT_REQUEST_FRONT_STRINGS_H

#include "loader/graph/string_tensor.h"
#include "runtime/base/text_builder.h"
#include "runtime/front/request/front_infer.h"
#include "runtime/front/request/tensor_json.h"

#define SY_FRONT_STRING_BYTES (64ll << 20) /* of a request's strings, unless configured (front.h) */

/* Bytes that n strings in this "data" can take at most. */
uint64_t sy_strings_json_bytes(const struct sy_json_cut *data, uint64_t n);
/* JSON strings, nested in arrays or not, in row-major order: exactly n, to `to`, which has that many bytes; how many bytes they are is noted in
 * front of it. EARG names the input and the element. Any thread. */
int sy_strings_from_json(const struct sy_json_cut *data, const char *name, uint64_t n, void *to);
/* An output's strings as a JSON array. EARG: one is no UTF-8. ECORRUPT: one is not whole. Any thread. */
int sy_strings_to_json(struct sy_text *text, const struct sy_front_tensor *tensor);

#endif
