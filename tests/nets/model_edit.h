/* Changes of an ONNX model that leave it a well-formed file and make it another model, mostly a wrong one: attributes, dimensions,
 * wiring, operators, element types, at any depth of bodies. */
#ifndef SY_TESTS_NETS_MODEL_EDIT_H
#define SY_TESTS_NETS_MODEL_EDIT_H

#include <stddef.h>
#include <stdint.h>

#include "onnx.pb-c.h"

/* Where choices come from. */
struct edit_choices {
    uint64_t (*draw)(void *ctx);
    void *ctx;
};

/* One change; the model stays protobuf-c's to free. What was done, for a failing test's output, is in `text`. */
void model_edit(Onnx__ModelProto *model, const struct edit_choices *choices, char *text,
                size_t text_bytes);

#endif
