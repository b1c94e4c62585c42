/* The answer of an inference request: a ModelInferResponse whose tensors stay where the run wrote them.
 *
 *   | prefix | (field 2 of ModelStreamInferResponse) | names, shapes | tag | tensor | tag | tensor | ...
 *    head ------------------------------------------------------------>  slab     head    slab
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/classify.h"
#include "runtime/front/grpc/grpc_gzip.h"
#include "runtime/front/grpc/grpc_infer_internal.h"

#define FRONT_ROOM    (SY_GRPC_PREFIX + 11) /* prefix, and a tag and length around the response */
#define COMPRESS_FROM 256                   /* bytes */

/* Field numbers of ModelInferResponse and what it holds. */
enum { MODEL_NAME = 1, MODEL_VERSION, ID, PARAMETERS, OUTPUTS, RAW };
enum { OUTPUT_NAME = 1, OUTPUT_DATATYPE, OUTPUT_SHAPE, OUTPUT_PARAMETERS };
enum { PARAM_BOOL = 1, PARAM_INT64, PARAM_STRING };
#define STREAM_RESPONSE 2 /* of ModelStreamInferResponse */

/* Classes are searched at some 1 GB/s, bytes compressed at 60 MB/s, copied at 8 GB/s. */
uint64_t sy_grpc_infer_build_ns(const struct sy_grpc_infer *infer)
{
    uint64_t ns = 0;

    for (int i = 0; i < infer->n_outputs; i++) {
        const struct sy_grpc_infer_output *output = &infer->outputs[i];
        struct sy_front_tensor tensor;

        if (sy_front_infer_output(infer->request, output->index, &tensor) < 0)
            continue;
        if (output->place.is_copied)
            ns += tensor.bytes / 8;
        else if (output->classes > 0)
            ns += tensor.bytes;
        else if (!output->region && infer->encoding != SY_GRPC_IDENTITY)
            ns += 16 * tensor.bytes;
    }
    return ns;
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

/* An entry of a map<string, InferParameter>, with a number or a text. */
static void put_parameter(struct sy_grpc_buffer *to, uint32_t field, const char *key, uint32_t kind,
                          uint64_t number, const char *text)
{
    size_t entry = sy_grpc_put_begin(to, field), value;

    sy_grpc_put_text(to, 1, key);
    value = sy_grpc_put_begin(to, 2);
    if (kind == PARAM_STRING)
        sy_grpc_put_text(to, kind, text);
    else
        sy_grpc_put_number(to, kind, number);
    sy_grpc_put_end(to, value);
    sy_grpc_put_end(to, entry);
}

static void put_output(struct sy_grpc_buffer *to, const struct sy_grpc_infer_output *output,
                       const struct sy_front_tensor *tensor, const char *datatype)
{
    size_t start = sy_grpc_put_begin(to, OUTPUTS), shape;

    sy_grpc_put_text(to, OUTPUT_NAME, tensor->name);
    sy_grpc_put_text(to, OUTPUT_DATATYPE, datatype);
    shape = sy_grpc_put_begin(to, OUTPUT_SHAPE);
    for (int d = 0; d < tensor->rank; d++)
        sy_grpc_put_varint(to, (uint64_t)tensor->dims[d]);
    sy_grpc_put_end(to, shape);
    if (output->region) {
        put_parameter(to, OUTPUT_PARAMETERS, "shared_memory_region", PARAM_STRING, 0,
                      output->region);
        put_parameter(to, OUTPUT_PARAMETERS, "shared_memory_byte_size", PARAM_INT64, tensor->bytes,
                      NULL);
        if (output->place.offset > 0)
            put_parameter(to, OUTPUT_PARAMETERS, "shared_memory_offset", PARAM_INT64,
                          output->place.offset, NULL);
    }
    sy_grpc_put_end(to, start);
}

static int pack_classes(struct sy_grpc_infer_output *output, const struct sy_classes *classes)
{
    uint8_t *at = sy_grpc_buffer_extend(&output->packed, sy_classes_packed_bytes(classes));

    SY_TRY_ALLOC(at, "no memory for classes");
    sy_classes_pack(classes, at);
    return SY_OK;
}

/* Replaces the tensor by its best classes. */
static int classify(struct sy_grpc_infer *infer, struct sy_grpc_infer_output *output,
                    struct sy_front_tensor *tensor)
{
    struct sy_classes classes;

    SY_TRY(sy_classify_output(infer->request, output->index, tensor, output->classes, &classes));
    int status = pack_classes(output, &classes);
    free(classes.texts);
    tensor->rank = 0;
    if (classes.has_rows)
        tensor->dims[tensor->rank++] = classes.rows;
    tensor->dims[tensor->rank++] = classes.k;
    tensor->data = output->packed.data;
    tensor->bytes = output->packed.n;
    return status;
}

static void put_identity(struct sy_grpc_infer *infer, struct sy_grpc_buffer *to)
{
    const struct sy_core_model_ref *model = sy_front_infer_model(infer->request);
    char version[24];

    snprintf(version, sizeof version, "%" PRId64, model->version);
    sy_grpc_buffer_extend(to, FRONT_ROOM);
    sy_grpc_put_text(to, MODEL_NAME, model->name);
    sy_grpc_put_text(to, MODEL_VERSION, version);
    if (*infer->id)
        sy_grpc_put_text(to, ID, infer->id);
    if (infer->is_stream && infer->wants_final)
        put_parameter(to, PARAMETERS, "triton_final_response", PARAM_BOOL, 1, NULL);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

/* Names and shapes go to the head now, tensors are noted as every second segment. */
static int put_outputs(struct sy_grpc_infer *infer, struct sy_grpc_reply *reply)
{
    for (int i = 0; i < infer->n_outputs; i++) {
        struct sy_grpc_infer_output *output = &infer->outputs[i];
        struct sy_front_tensor tensor;
        const char *datatype = "BYTES";

        SY_TRY(sy_front_infer_output(infer->request, output->index, &tensor));
        if (output->classes > 0)
            SY_TRY(classify(infer, output, &tensor));
        else
            datatype = sy_dtype_wire_name(tensor.dtype);
        if (output->place.is_copied)
            SY_TRY(sy_infer_region_write(&output->place, &tensor));
        put_output(&reply->head, output, &tensor, datatype);
        if (!output->region)
            reply->segments[2 * i + 1] = (struct sy_grpc_bytes){tensor.data, tensor.bytes};
    }
    return SY_OK;
}

/* Appends the tags between tensors to the head's buffer. Segments get their lengths first, their pointers when the buffer no longer moves. */
static int put_raws(struct sy_grpc_infer *infer, struct sy_grpc_reply *reply, uint64_t *bytes)
{
    struct sy_grpc_buffer *head = &reply->head;
    size_t begin = 0;

    *bytes = 0;
    for (int i = 0; i < infer->n_outputs; i++) {
        sy_grpc_put_length(head, RAW, reply->segments[2 * i + 1].n);
        *bytes += reply->segments[2 * i + 1].n;
        reply->segments[2 * i].n = head->n - begin;
        begin = head->n;
    }
    if (infer->n_outputs == 0)
        reply->segments[0].n = head->n;
    if (head->is_broken)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for an answer");
    begin = 0;
    for (int i = 0; i < reply->n_segments; i += 2) {
        reply->segments[i].data = head->data + begin;
        begin += reply->segments[i].n;
    }
    return SY_OK;
}

/* Prefix and wrapper end where the response begins, so that nothing has to be moved. */
static int put_front(struct sy_grpc_infer *infer, struct sy_grpc_reply *reply, uint64_t tensors)
{
    uint64_t response = reply->head.n - FRONT_ROOM + tensors;
    size_t wrapper = infer->is_stream ? 1 + sy_grpc_varint_bytes(response) : 0;
    uint8_t *at = reply->head.data + FRONT_ROOM - wrapper;
    size_t skip = FRONT_ROOM - wrapper - SY_GRPC_PREFIX;

    if (response + wrapper > UINT32_MAX)
        return sy_error_set(SY_ETOOBIG, "an answer of %" PRIu64 " bytes; gRPC has 4 GiB", response);
    sy_grpc_write_prefix(at - SY_GRPC_PREFIX, false, response + wrapper);
    if (infer->is_stream) {
        *at++ = STREAM_RESPONSE << 3 | SY_GRPC_BYTES;
        for (uint64_t left = response; at < reply->head.data + FRONT_ROOM; left >>= 7)
            *at++ = (uint8_t)(left >= 0x80 ? left | 0x80 : left);
    }
    reply->segments[0].data += skip;
    reply->segments[0].n -= skip;
    return SY_OK;
}

static int compress(struct sy_grpc_infer *infer, struct sy_grpc_reply *reply)
{
    struct sy_grpc_buffer small = {0};
    uint64_t bytes = 0;

    for (int i = 0; i < reply->n_segments; i++)
        bytes += reply->segments[i].n;
    if (infer->encoding == SY_GRPC_IDENTITY || bytes < COMPRESS_FROM)
        return SY_OK;
    reply->segments[0].data += SY_GRPC_PREFIX;
    reply->segments[0].n -= SY_GRPC_PREFIX;
    sy_grpc_buffer_extend(&small, SY_GRPC_PREFIX);
    int status = sy_grpc_deflate(reply->segments, reply->n_segments, infer->encoding, &small);
    if (status < 0 || small.is_broken) {
        sy_grpc_buffer_free(&small);
        return sy_error_set(SY_ENOMEM_HOST, "no memory to compress an answer");
    }
    sy_grpc_write_prefix(small.data, true, small.n - SY_GRPC_PREFIX);
    sy_grpc_buffer_free(&reply->head);
    reply->head = small;
    reply->segments[0] = (struct sy_grpc_bytes){small.data, small.n};
    reply->n_segments = 1;
    return SY_OK;
}

int sy_grpc_infer_build(struct sy_grpc_infer *infer)
{
    struct sy_grpc_reply *reply = sy_grpc_reply_create(SY_MAX(2 * infer->n_outputs, 1));
    uint64_t tensors;
    int status;

    SY_TRY_ALLOC(reply, "no memory for an answer");
    put_identity(infer, &reply->head);
    SY_TRY_GOTO(put_outputs(infer, reply), fail);
    SY_TRY_GOTO(put_raws(infer, reply, &tensors), fail);
    SY_TRY_GOTO(put_front(infer, reply, tensors), fail);
    SY_TRY_GOTO(compress(infer, reply), fail);
    infer->reply = reply;
    return SY_OK;
fail:
    sy_grpc_reply_unref(reply);
    return status;
}
