/* The answer of an inference request: JSON, with the tensors in it or behind it. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/classify.h"
#include "runtime/front/http/http_infer_internal.h"
#include "runtime/front/request/front_strings.h"

uint64_t sy_http_infer_answer_bytes(const struct sy_http_infer *infer)
{
    uint64_t bytes = 0;

    for (int i = 0; i < infer->n_outputs; i++) {
        const struct sy_http_infer_output *output = &infer->outputs[i];
        bool is_text = !output->binary || output->classes > 0 || infer->coding != SY_HTTP_PLAIN;
        struct sy_front_tensor tensor;

        if (output->region && !output->place.is_copied)
            continue; /* the worker wrote it there */
        if (sy_front_infer_output(infer->request, output->index, &tensor) < 0)
            continue;
        if (output->place.is_copied)
            bytes += tensor.bytes / 16;
        else if (is_text)
            bytes += 2 * tensor.bytes;
    }
    return bytes;
}

/* ---- parts of the JSON ---- */

static void add_key(struct sy_text *text, const char *key)
{
    sy_text_add_json_string(text, key);
    sy_text_add(text, ":", 1);
}

static void add_head(struct sy_text *text, const char *name, const char *dtype, int rank,
                     const int64_t *dims)
{
    sy_text_add_string(text, "{\"name\":");
    sy_text_add_json_string(text, name);
    sy_text_add_string(text, ",\"datatype\":\"");
    sy_text_add_string(text, dtype);
    sy_text_add_string(text, "\",\"shape\":[");
    for (int d = 0; d < rank; d++) {
        if (d > 0)
            sy_text_add(text, ",", 1);
        sy_text_add_int(text, dims[d]);
    }
    sy_text_add(text, "]", 1);
}

static void add_binary_size(struct sy_text *text, uint64_t bytes)
{
    sy_text_add_string(text, ",\"parameters\":{\"binary_data_size\":");
    sy_text_add_int(text, (long long)bytes);
    sy_text_add_string(text, "}}");
}

static void add_segment(struct sy_http_infer *infer, const void *data, uint64_t bytes)
{
    infer->tensors[infer->n_tensors++] = (struct sy_http_segment){data, bytes};
}

/* ---- classes ---- */

static int pack_classes(struct sy_http_infer *infer, struct sy_http_infer_output *output,
                        const struct sy_classes *classes)
{
    uint64_t bytes = sy_classes_packed_bytes(classes);

    output->packed = malloc((size_t)bytes + 1);
    SY_TRY_ALLOC(output->packed, "no memory for classes");
    sy_classes_pack(classes, output->packed);
    add_binary_size(&infer->answer, bytes);
    add_segment(infer, output->packed, bytes);
    return SY_OK;
}

static void print_classes(struct sy_text *text, const struct sy_classes *classes)
{
    sy_text_add_string(text, ",\"data\":[");
    for (int64_t i = 0; i < classes->rows * classes->k; i++) {
        if (i > 0)
            sy_text_add(text, ",", 1);
        sy_text_add_json_string(text, classes->texts[i]);
    }
    sy_text_add_string(text, "]}");
}

static int add_classes(struct sy_http_infer *infer, struct sy_http_infer_output *output,
                       const struct sy_front_tensor *tensor)
{
    struct sy_classes classes;
    int status = SY_OK;

    SY_TRY(sy_classify_output(infer->request, output->index, tensor, output->classes, &classes));
    const int64_t dims[2] = {classes.rows, classes.k};
    add_head(&infer->answer, tensor->name, "BYTES", 1 + classes.has_rows, dims + !classes.has_rows);
    if (output->binary)
        status = pack_classes(infer, output, &classes);
    else
        print_classes(&infer->answer, &classes);
    free(classes.texts);
    return status;
}

/* ---- all ---- */

static int add_output(struct sy_http_infer *infer, struct sy_http_infer_output *output)
{
    struct sy_text *text = &infer->answer;
    struct sy_front_tensor tensor;
    uint64_t n;

    SY_TRY(sy_front_infer_output(infer->request, output->index, &tensor));
    if (output->classes > 0)
        return add_classes(infer, output, &tensor);
    add_head(text, tensor.name, sy_dtype_wire_name(tensor.dtype), tensor.rank, tensor.dims);
    if (output->place.is_copied)
        SY_TRY(sy_infer_region_write(&output->place, &tensor));
    if (output->region) {
        /* No parameters, as Triton: stock clients take an output that has some for one with binary data. */
        sy_text_add(text, "}", 1);
    } else if (output->binary) {
        add_binary_size(text, tensor.bytes);
        add_segment(infer, tensor.data, tensor.bytes);
    } else if (tensor.dtype == SY_DTYPE_STRING) {
        sy_text_add_string(text, ",\"data\":");
        SY_TRY(sy_strings_to_json(text, &tensor));
        sy_text_add(text, "}", 1);
    } else {
        n = tensor.bytes / sy_dtype_bytes(tensor.dtype);
        sy_text_add_string(text, ",\"data\":");
        SY_TRY(sy_tensor_to_json(text, tensor.name, tensor.dtype, tensor.data, n));
        sy_text_add(text, "}", 1);
    }
    return SY_OK;
}

#define LEAST_COMPRESSED 1024 /* bytes of an answer; less would not get shorter on the wire */

/* The whole answer becomes one compressed text. */
static int compress_answer(struct sy_http_infer *infer)
{
    struct sy_http_segment all[SY_MAX_ENDS + 1] = {{infer->answer.at, infer->answer.used}};
    uint64_t bytes = infer->answer.used, packed_bytes;
    unsigned char *packed;

    for (int i = 0; i < infer->n_tensors; i++) {
        all[i + 1] = infer->tensors[i];
        bytes += infer->tensors[i].bytes;
    }
    if (bytes < LEAST_COMPRESSED) {
        infer->coding = SY_HTTP_PLAIN;
        return SY_OK;
    }
    SY_TRY(sy_http_compress(infer->coding, all, infer->n_tensors + 1, &packed, &packed_bytes));
    sy_text_finish(&infer->answer);
    infer->answer = (struct sy_text){(char *)packed, packed_bytes, packed_bytes, false};
    return SY_OK;
}

int sy_http_infer_build(struct sy_http_infer *infer)
{
    const struct sy_core_model_ref *model = sy_front_infer_model(infer->request);
    struct sy_text *text = &infer->answer;

    sy_text_add(text, "{", 1);
    if (infer->id) {
        add_key(text, "id");
        sy_text_add_json_string(text, infer->id);
        sy_text_add(text, ",", 1);
    }
    add_key(text, "model_name");
    sy_text_add_json_string(text, model->name);
    sy_text_add_string(text, ",\"model_version\":\"");
    sy_text_add_int(text, model->version);
    sy_text_add_string(text, "\",\"outputs\":[");
    for (int i = 0; i < infer->n_outputs; i++) {
        if (i > 0)
            sy_text_add(text, ",", 1);
        SY_TRY(add_output(infer, &infer->outputs[i]));
    }
    sy_text_add_string(text, "]}");
    for (int i = 0; i < infer->n_tensors; i++)
        infer->cuts[i] = text->used;
    infer->json_bytes = text->used;
    if (text->failed)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
    return infer->coding == SY_HTTP_PLAIN ? SY_OK : compress_answer(infer);
}
