/* A ModelInferRequest becomes a request of the front end: its model, its inputs' places, its options. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/base/text_copy.h"
#include "runtime/client/switchyard.h"
#include "runtime/front/grpc/grpc_infer_internal.h"
#include "runtime/front/request/infer_parameters.h"

#define TENSOR_NAME 512 /* bytes of a name that is looked up */

static const struct sy_graph *graph_of(const struct sy_grpc_infer *infer)
{
    return sy_front_infer_model(infer->request)->package->graph;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static int find_model(struct sy_grpc_infer *infer, const struct sy_grpc_request_view *view)
{
    char model[SY_CORE_MODEL_NAME];
    int64_t version;

    if (!sy_grpc_bytes_copy(view->model, model, sizeof model))
        return sy_error_set(SY_ENOTFOUND, "there is no model '%.*s'",
                            (int)SY_MIN(view->model.n, (size_t)100),
                            (const char *)view->model.data);
    SY_TRY(sy_grpc_read_version(view->version, &version));
    return sy_front_acquire(infer->server->front, model, version, &infer->wait, &infer->request);
}

/* For the answer, also one that is an error. */
static int read_id(struct sy_grpc_infer *infer, struct sy_grpc_bytes id)
{
    free(infer->id); /* from the first attempt, before the model was loaded */
    infer->id = sy_text_copy(id.data, id.n);
    return infer->id ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a request");
}

/* One block: as many inputs as the request has, as many outputs as it can ask for. */
static int take_arrays(struct sy_grpc_infer *infer, const struct sy_grpc_request_view *view)
{
    size_t n_in = (size_t)view->n_inputs;
    size_t n_out = (size_t)(view->n_outputs ? view->n_outputs : graph_of(infer)->n_outputs);

    infer->inputs = calloc(1, n_in * sizeof *infer->inputs + n_out * sizeof *infer->outputs + 1);
    SY_TRY_ALLOC(infer->inputs, "no memory for a request");
    infer->outputs = (struct sy_grpc_infer_output *)(infer->inputs + n_in);
    return SY_OK;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* *name is the caller's to free. */
static int region_name(const struct sy_grpc_region_view *view, char **name)
{
    *name = sy_text_copy(view->name.data, view->name.n);
    return *name ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a request");
}

static int place_input(struct sy_grpc_infer *infer, struct sy_grpc_infer_input *input,
                       const struct sy_grpc_region_view *view)
{
    char *name;

    input->source = SY_GRPC_REGION;
    input->place.offset = view->offset;
    input->place.bytes = view->bytes;
    SY_TRY(region_name(view, &name));
    int status = sy_infer_region_input(infer->server->front, infer->request, input->index, name,
                                       &input->place);
    free(name);
    return status;
}

static int read_source(struct sy_grpc_infer *infer, struct sy_grpc_infer_input *input,
                       const struct sy_grpc_input_view *view, struct sy_grpc_bytes *raws,
                       bool has_raw)
{
    int got;

    if (view->region.name.data && view->has_contents)
        return sy_error_set(SY_EARG, "input \"%s\" has contents and lies in shared memory",
                            input->name);
    if (view->region.name.data)
        return place_input(infer, input, &view->region);
    if (view->has_contents && has_raw)
        return sy_error_set(
            SY_EARG, "input \"%s\" has contents in a request with raw_input_contents", input->name);
    if (view->has_contents || !has_raw) {
        input->source = SY_GRPC_CONTENTS;
        input->from = view->contents;
        return SY_OK;
    }
    input->source = SY_GRPC_RAW;
    if (!raws) /* they are to come */
        return SY_OK;
    got = sy_grpc_request_next_raw(raws, &input->from);
    if (got == SY_GRPC_END)
        return sy_error_set(SY_EARG, "input \"%s\" has no entry in raw_input_contents",
                            input->name);
    return got < 0 ? got : SY_OK;
}

static int read_input(struct sy_grpc_infer *infer, const struct sy_grpc_input_view *view,
                      struct sy_grpc_bytes *raws, bool has_raw)
{
    struct sy_grpc_infer_input *input = &infer->inputs[infer->n_inputs];
    const struct sy_graph *graph = graph_of(infer);
    char name[TENSOR_NAME], datatype[24];

    if (!sy_grpc_bytes_copy(view->name, name, sizeof name))
        return sy_error_set(SY_EARG, "an input's name has %zu bytes, of at most %d, or a zero",
                            view->name.n, TENSOR_NAME - 1);
    if (!sy_grpc_bytes_copy(view->datatype, datatype, sizeof datatype))
        return sy_error_set(SY_EARG, "input \"%.200s\" has an unknown datatype", name);
    SY_TRY(sy_front_infer_add_input(infer->request, name, datatype, view->rank, view->dims,
                                    &input->index));
    input->name = graph->tensors[graph->inputs[input->index]].name;
    input->dtype = sy_front_infer_input_dtype(infer->request, input->index);
    infer->n_inputs++;
    return read_source(infer, input, view, raws, has_raw);
}

static int read_inputs(struct sy_grpc_infer *infer, bool has_raw, bool comes_later)
{
    struct sy_grpc_bytes at = infer->message, raws = infer->message, more;
    struct sy_grpc_input_view view;
    int got;

    while ((got = sy_grpc_request_next_input(&at, &view)) == SY_GRPC_FIELD)
        SY_TRY(read_input(infer, &view, comes_later ? NULL : &raws, has_raw));
    SY_TRY(got);
    if (has_raw && !comes_later && sy_grpc_request_next_raw(&raws, &more) != SY_GRPC_END)
        return sy_error_set(SY_EARG,
                            "raw_input_contents has more entries than inputs that need one");
    return SY_OK;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

static int place_output(struct sy_grpc_infer *infer, struct sy_grpc_infer_output *output,
                        const struct sy_grpc_region_view *view)
{
    if (output->classes > 0)
        return sy_error_set(SY_EUNSUPPORTED, "classes cannot be written to shared memory");
    output->place.offset = view->offset;
    output->place.bytes = view->bytes;
    SY_TRY(region_name(view, &output->region));
    return sy_infer_region_output(infer->server->front, infer->request, output->index,
                                  output->region, &output->place);
}

static int read_output(struct sy_grpc_infer *infer, const struct sy_grpc_output_view *view)
{
    struct sy_grpc_infer_output *output = &infer->outputs[infer->n_outputs];
    char name[TENSOR_NAME];

    if (!sy_grpc_bytes_copy(view->name, name, sizeof name))
        return sy_error_set(SY_EARG, "an output's name has %zu bytes, of at most %d, or a zero",
                            view->name.n, TENSOR_NAME - 1);
    SY_TRY(sy_front_infer_find_output(infer->request, name, &output->index));
    for (int i = 0; i < infer->n_outputs; i++)
        if (infer->outputs[i].index == output->index)
            return sy_error_set(SY_EARG, "output \"%.200s\" is asked for twice", name);
    infer->n_outputs++;
    output->classes = (int64_t)SY_MIN(view->classes, (uint64_t)INT64_MAX);
    return view->region.name.data ? place_output(infer, output, &view->region) : SY_OK;
}

static int read_outputs(struct sy_grpc_infer *infer, int n)
{
    struct sy_grpc_bytes at = infer->message;
    struct sy_grpc_output_view view;
    int got;

    if (n == 0) { /* all */
        for (int i = 0; i < graph_of(infer)->n_outputs; i++)
            if (!sy_front_infer_is_kept(infer->request, i))
                infer->outputs[infer->n_outputs++].index = i;
        return SY_OK;
    }
    while ((got = sy_grpc_request_next_output(&at, &view)) == SY_GRPC_FIELD)
        SY_TRY(read_output(infer, &view));
    return got;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static int read_parameters(struct sy_grpc_infer *infer)
{
    json_t *parameters;

    SY_TRY(sy_grpc_request_parameters(infer->message, &parameters));
    int status = sy_infer_parameters_set(infer->request, parameters);
    json_decref(parameters);
    return status;
}

/* The nearer of the call's deadline (grpc-timeout) and the request's. */
static int set_deadline(struct sy_grpc_infer *infer)
{
    sy_ns own = sy_front_infer_deadline(infer->request), now = sy_clock_now();
    sy_ns at = infer->stream->deadline_ns, left = at > now ? at - now : 1;

    if (at == 0 || (own > 0 && own <= left) || left > (sy_ns)(SWITCHYARD_MAX_DEADLINE_MS * 1e6))
        return SY_OK;
    return sy_front_infer_set_deadline(infer->request, left);
}

static int read_options(struct sy_grpc_infer *infer, const struct sy_grpc_request_view *view)
{
    const struct sy_grpc_stream *stream = infer->stream;

    sy_front_infer_set_trace(infer->request, "grpc", stream->created_ns, stream->traceparent,
                             stream->tracestate);
    const char *tenant;

    SY_TRY(sy_access_tenant(&stream->grant, stream->tenant, &tenant));
    if (*tenant)
        SY_TRY(sy_front_infer_set_tenant(infer->request, tenant));
    if (view->n_parameters > 0)
        SY_TRY(read_parameters(infer));
    return set_deadline(infer);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Checks the bytes that came, or were announced, against shape and datatype. */
static int announce_strings(struct sy_grpc_infer *infer, struct sy_grpc_infer_input *input)
{
    uint64_t n = (uint64_t)sy_front_infer_elements(infer->request, input->index);

    input->bytes = input->source == SY_GRPC_REGION ? input->place.bytes : input->from.n;
    if (input->source == SY_GRPC_CONTENTS)
        input->bytes = sy_grpc_contents_string_bytes(input->from, n);
    return sy_front_infer_announce_strings(infer->request, input->index, input->bytes);
}

static int check_bytes(struct sy_grpc_infer *infer, uint64_t announced)
{
    uint64_t raw_bytes = 0;

    for (int i = 0; i < infer->n_inputs; i++) {
        struct sy_grpc_infer_input *input = &infer->inputs[i];
        if (input->dtype == SY_DTYPE_STRING) {
            SY_TRY(announce_strings(infer, input));
            continue;
        }
        uint64_t has = input->from.n;
        bool good = true;

        input->bytes = sy_front_infer_input_bytes(infer->request, input->index);
        if (input->source == SY_GRPC_REGION) {
            has = input->place.bytes;
            good = has >= input->bytes;
        } else if (input->source == SY_GRPC_CONTENTS) { /* each element has a byte at least */
            good = has >= input->bytes / sy_dtype_bytes(input->dtype);
        } else if (announced == UINT64_MAX) {
            good = has == input->bytes;
        } else {
            good = !__builtin_add_overflow(raw_bytes, input->bytes, &raw_bytes);
        }
        if (!good)
            return sy_error_set(SY_EARG,
                                "input \"%s\" has %" PRIu64
                                " bytes of data; its shape and datatype need %" PRIu64,
                                input->name, has, input->bytes);
    }
    if (announced != UINT64_MAX && raw_bytes > announced)
        return sy_error_set(
            SY_EARG, "raw_input_contents has %" PRIu64 " bytes; shapes and datatypes need %" PRIu64,
            announced, raw_bytes);
    return SY_OK;
}

/* Strings that come behind the head: how many bytes they have is not known before they are there. */
static bool waits_for_strings(const struct sy_grpc_infer *infer)
{
    for (int i = 0; i < infer->n_inputs; i++)
        if (infer->inputs[i].dtype == SY_DTYPE_STRING && infer->inputs[i].source == SY_GRPC_RAW)
            return true;
    return false;
}

static void take_places(struct sy_grpc_infer *infer)
{
    for (int i = 0; i < infer->n_inputs; i++)
        infer->inputs[i].to = sy_front_infer_input_data(infer->request, infer->inputs[i].index);
}

int sy_grpc_infer_read(struct sy_grpc_infer *infer, uint64_t announced)
{
    struct sy_grpc_request_view view;

    SY_TRY(sy_grpc_request_read(infer->message, &view));
    SY_TRY(read_id(infer, view.id));
    int found = find_model(infer, &view);
    if (found != SY_OK)
        return found;
    infer->wants_final = view.wants_final;
    SY_TRY(take_arrays(infer, &view));
    SY_TRY(read_inputs(infer, view.n_raw > 0 || announced != UINT64_MAX, announced != UINT64_MAX));
    SY_TRY(read_options(infer, &view));
    SY_TRY(read_outputs(infer, view.n_outputs));
    SY_TRY(sy_front_infer_solve(infer->request));
    if (announced != UINT64_MAX && waits_for_strings(infer))
        return SY_REPOSITORY_LOADS; /* the message is collected, and read again once it is whole */
    SY_TRY(check_bytes(infer, announced));
    SY_TRY(sy_front_infer_prepare(infer->request));
    take_places(infer);
    return SY_OK;
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

/* Some 8 GB/s are copied, 500 MB/s of numbers read one by one. */
uint64_t sy_grpc_infer_fill_ns(const struct sy_grpc_infer *infer)
{
    uint64_t ns = 0;

    for (int i = 0; i < infer->n_inputs; i++) {
        const struct sy_grpc_infer_input *input = &infer->inputs[i];
        uint64_t copied = input->place.is_copied ? input->bytes : input->from.n;

        ns += input->source == SY_GRPC_CONTENTS ? 2 * input->from.n : copied / 8;
    }
    return ns;
}

int sy_grpc_infer_fill(struct sy_grpc_infer *infer)
{
    for (int i = 0; i < infer->n_inputs; i++) {
        struct sy_grpc_infer_input *input = &infer->inputs[i];

        if (input->from.data && input->source == SY_GRPC_RAW && input->bytes > 0)
            memcpy(input->to, input->from.data, input->bytes);
        if (input->place.is_copied)
            SY_TRY(sy_infer_region_read(&input->place, input->to, input->bytes));
        if (input->source == SY_GRPC_CONTENTS && input->dtype == SY_DTYPE_STRING)
            SY_TRY(sy_grpc_contents_strings(
                input->from, input->name,
                (uint64_t)sy_front_infer_elements(infer->request, input->index), input->to));
        else if (input->source == SY_GRPC_CONTENTS)
            SY_TRY(sy_grpc_contents_read(input->from, input->name, input->dtype,
                                         input->bytes / sy_dtype_bytes(input->dtype), input->to));
    }
    return SY_OK;
}

/* A whole tag and length: the next content begins. */
static int begin_raw(struct sy_grpc_infer *infer, uint64_t tag, uint64_t n)
{
    struct sy_grpc_infer_input *input = NULL;

    if (tag != (SY_GRPC_RAW_INPUT << 3 | SY_GRPC_BYTES))
        return sy_error_set(SY_EARG,
                            "field %" PRIu64 " follows raw_input_contents; in a message of 64 KiB "
                            "or more these come last, as encoders write them",
                            tag >> 3);
    while (infer->next_input < infer->n_inputs && !input) {
        input = &infer->inputs[infer->next_input++];
        input = input->source == SY_GRPC_RAW ? input : NULL;
    }
    if (!input)
        return sy_error_set(SY_EARG,
                            "raw_input_contents has more entries than inputs that need one");
    if (n != input->bytes)
        return sy_error_set(SY_EARG,
                            "input \"%s\" has %" PRIu64
                            " bytes of data; its shape and datatype need %" PRIu64,
                            input->name, n, input->bytes);
    infer->raw_to = input->to;
    infer->raw_left = n;
    return SY_OK;
}

static int take_tag_byte(struct sy_grpc_infer *infer, uint8_t byte)
{
    struct sy_grpc_bytes at = {infer->tag, infer->n_tag + 1};
    uint64_t tag, n;
    int got;

    infer->tag[infer->n_tag++] = byte;
    got = sy_grpc_wire_varint(&at, &tag);
    if (got == SY_GRPC_FIELD)
        got = sy_grpc_wire_varint(&at, &n);
    if (got == SY_GRPC_BAD || infer->n_tag == sizeof infer->tag)
        return sy_error_set(SY_EARG, "the request is not a protobuf message of its type");
    if (got == SY_GRPC_MORE)
        return SY_OK;
    infer->n_tag = 0;
    return begin_raw(infer, tag, n);
}

int sy_grpc_infer_place(struct sy_grpc_infer *infer, struct sy_grpc_bytes bytes)
{
    size_t part = (size_t)SY_MIN(infer->to_skip, (uint64_t)bytes.n);

    infer->to_skip -= part;
    while (part < bytes.n) {
        size_t n = (size_t)SY_MIN(infer->raw_left, (uint64_t)(bytes.n - part));

        if (infer->raw_left == 0) {
            SY_TRY(take_tag_byte(infer, bytes.data[part++]));
            continue;
        }
        memcpy(infer->raw_to, bytes.data + part, n);
        infer->raw_to += n;
        infer->raw_left -= n;
        part += n;
    }
    return SY_OK;
}

int sy_grpc_infer_check_placed(struct sy_grpc_infer *infer)
{
    while (infer->next_input < infer->n_inputs &&
           infer->inputs[infer->next_input].source != SY_GRPC_RAW)
        infer->next_input++;
    if (infer->raw_left > 0 || infer->n_tag > 0)
        return sy_error_set(SY_EARG, "the request ends within raw_input_contents");
    if (infer->next_input < infer->n_inputs)
        return sy_error_set(SY_EARG, "input \"%s\" has no entry in raw_input_contents",
                            infer->inputs[infer->next_input].name);
    return SY_OK;
}
