/* Requests: tensors in the message or in memory that is shared with the server. */
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/base/text_copy.h"
#include "runtime/client/client_block.h"
#include "runtime/client/client_internal.h"

/* A request's bytes on their way: `buffer` holds all but the tensors', which go in at each cut. */
struct request {
    msgpack_sbuffer *buffer;
    int n_cuts;
    size_t cut[SWITCHYARD_MAX_TENSORS];
    struct iovec tensor[SWITCHYARD_MAX_TENSORS];
};

static void pack_number(msgpack_packer *packer, const char *key, uint64_t value)
{
    sy_client_pack_text(packer, key);
    msgpack_pack_uint64(packer, value);
}

/* Three entries of a map. */
static void pack_place(msgpack_packer *packer, const sy_client_region *region, const void *data,
                       size_t bytes)
{
    pack_number(packer, "region", region->id);
    pack_number(packer, "offset", (uint64_t)((const unsigned char *)data - region->data));
    pack_number(packer, "bytes", bytes);
}

static void pack_input(struct request *request, msgpack_packer *packer, const sy_client *client,
                       const sy_client_tensor *input)
{
    const sy_client_region *region = sy_client_region_of(client, input->data, input->bytes);

    msgpack_pack_map(packer, region ? 6 : 4);
    sy_client_pack_text(packer, "name");
    sy_client_pack_text(packer, input->name);
    sy_client_pack_text(packer, "dtype");
    sy_client_pack_text(packer, input->dtype);
    sy_client_pack_text(packer, "shape");
    msgpack_pack_array(packer, (size_t)input->rank);
    for (int i = 0; i < input->rank; i++)
        msgpack_pack_int64(packer, input->shape[i]);
    if (region) {
        pack_place(packer, region, input->data, input->bytes);
        return;
    }
    sy_client_pack_text(packer, "data");
    msgpack_pack_bin(packer, input->bytes);
    request->cut[request->n_cuts] = request->buffer->size;
    request->tensor[request->n_cuts++] = (struct iovec){(void *)input->data, input->bytes};
}

static int check_inputs(const sy_client_tensor *inputs, int n_inputs)
{
    if (n_inputs < 0 || n_inputs > SWITCHYARD_MAX_TENSORS)
        return sy_error_set(SY_EARG, "%d inputs; at most %d are possible", n_inputs,
                            SWITCHYARD_MAX_TENSORS);
    for (int i = 0; i < n_inputs; i++) {
        const sy_client_tensor *x = &inputs[i];
        if (!x->name || !x->dtype)
            return sy_error_set(SY_EARG, "input %d has no %s", i, x->name ? "dtype" : "name");
        if (x->rank < 0 || x->rank > SWITCHYARD_MAX_RANK)
            return sy_error_set(SY_EARG,
                                "input '%.100s' has %d dimensions; at most %d are possible",
                                x->name, x->rank, SWITCHYARD_MAX_RANK);
        if (x->bytes > UINT32_MAX)
            return sy_error_set(SY_EARG, "input '%.100s' has %llu bytes; a message holds %u",
                                x->name, (unsigned long long)x->bytes, UINT32_MAX);
    }
    return SY_OK;
}

static void pack_switch(msgpack_packer *packer, const char *key, int on)
{
    sy_client_pack_text(packer, key);
    on ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
}

/* Three entries of a map. */
static void pack_session(msgpack_packer *packer, const sy_client_options *options)
{
    sy_client_pack_text(packer, "session");
    sy_client_pack_text(packer, options->session);
    pack_switch(packer, "session_start", options->session_start);
    pack_switch(packer, "session_end", options->session_end);
}

static void pack_options(msgpack_packer *packer, const sy_client_options *options)
{
    if (options->urgency_class != SWITCHYARD_MODEL_CLASS) {
        sy_client_pack_text(packer, "class");
        msgpack_pack_int(packer, options->urgency_class);
    }
    if (options->version != 0) {
        sy_client_pack_text(packer, "version");
        msgpack_pack_int64(packer, options->version);
    }
    sy_client_pack_text(packer, "deadline_ms");
    if (options->deadline_ms > 0)
        msgpack_pack_double(packer, options->deadline_ms);
    else
        msgpack_pack_nil(packer);
    if (options->tenant) {
        sy_client_pack_text(packer, "tenant");
        sy_client_pack_text(packer, options->tenant);
    }
    if (options->session)
        pack_session(packer, options);
}

/* Number of entries that pack_options writes. */
static uint32_t n_options(const sy_client_options *options)
{
    if (!options)
        return 0;
    return 1u + (options->urgency_class != SWITCHYARD_MODEL_CLASS) + (options->version != 0) +
           (options->tenant != NULL) + (options->session ? 3u : 0u);
}

static int pack_outputs(msgpack_packer *packer, const sy_client *client,
                        const sy_client_options *options)
{
    sy_client_pack_text(packer, "outputs");
    msgpack_pack_array(packer, (size_t)options->n_places);
    for (int i = 0; i < options->n_places; i++) {
        const sy_client_place *place = &options->places[i];
        const sy_client_region *region = sy_client_region_of(client, place->data, place->bytes);

        if (!place->name || !region)
            return sy_error_set(SY_EARG,
                                "the place of output '%.100s' is not in a region of this client, "
                                "or not at a multiple of %d bytes",
                                place->name ? place->name : "", SWITCHYARD_REGION_ALIGN);
        msgpack_pack_map(packer, 4);
        sy_client_pack_text(packer, "name");
        sy_client_pack_text(packer, place->name);
        pack_place(packer, region, place->data, place->bytes);
    }
    return SY_OK;
}

static int check_places(const sy_client_options *options)
{
    if (options && (options->n_places < 0 || options->n_places > SWITCHYARD_MAX_TENSORS))
        return sy_error_set(SY_EARG, "%d places for outputs; at most %d are possible",
                            options->n_places, SWITCHYARD_MAX_TENSORS);
    return SY_OK;
}

static int pack_infer(struct request *request, sy_client *client, const char *model,
                      const sy_client_tensor *inputs, int n_inputs,
                      const sy_client_options *options)
{
    bool places = options && options->n_places > 0;
    msgpack_packer packer;

    msgpack_packer_init(&packer, request->buffer, msgpack_sbuffer_write);
    sy_client_pack_request(client, &packer, "infer");
    msgpack_pack_array(&packer, 1);
    msgpack_pack_map(&packer, 2u + n_options(options) + places);
    sy_client_pack_text(&packer, "model");
    sy_client_pack_text(&packer, model);
    if (options)
        pack_options(&packer, options);
    if (places)
        SY_TRY(pack_outputs(&packer, client, options));
    sy_client_pack_text(&packer, "inputs");
    msgpack_pack_array(&packer, (size_t)n_inputs);
    for (int i = 0; i < n_inputs; i++)
        pack_input(request, &packer, client, &inputs[i]);
    return SY_OK;
}

/* Tensors stay where they are: the packed bytes are cut at the place of each that is not shared. */
static int infer_ask(sy_client *client, const char *model, const sy_client_tensor *inputs,
                     int n_inputs, const sy_client_options *options, msgpack_sbuffer *buffer,
                     msgpack_unpacked *unpacked, const msgpack_object **result)
{
    struct iovec parts[2 * SWITCHYARD_MAX_TENSORS + 1];
    struct request request;
    size_t from = 0;
    int n = 0;

    request.buffer = buffer;
    request.n_cuts = 0;
    SY_TRY(check_inputs(inputs, n_inputs));
    SY_TRY(check_places(options));
    SY_TRY(pack_infer(&request, client, model, inputs, n_inputs, options));
    for (int i = 0; i < request.n_cuts; i++) {
        parts[n++] = (struct iovec){buffer->data + from, request.cut[i] - from};
        parts[n++] = request.tensor[i];
        from = request.cut[i];
    }
    parts[n++] = (struct iovec){buffer->data + from, buffer->size - from};
    return sy_client_ask(client, parts, n, unpacked, result);
}

/* ---- the answer ---------------------------------------------------------------------------------------------- */

/* The result as the caller sees it, and which of its tensors must be freed. */
struct owned_result {
    sy_client_result result;
    void **copies; /* one an output; NULL: it lies in a region */
};

static uint64_t number(const msgpack_object *map, const char *key)
{
    const msgpack_object *value = sy_client_get(map, key);

    if (value && value->type == MSGPACK_OBJECT_BOOLEAN)
        return value->via.boolean;
    return value && value->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? value->via.u64 : 0;
}

static char *text_of(const msgpack_object *map, const char *key)
{
    const msgpack_object *value = sy_client_get(map, key);

    return value && value->type == MSGPACK_OBJECT_STR && value->via.str.ptr
               ? sy_text_copy(value->via.str.ptr, value->via.str.size)
               : NULL;
}

/* A long output was received where it stays; a short one is copied out of the client's buffer, where it is not aligned. */
static int copy_data(sy_client *client, const msgpack_object *data, sy_client_tensor *out,
                     void **copy)
{
    *copy = sy_client_long_take(client, data, &out->bytes);
    out->data = *copy;
    if (*copy)
        return SY_OK;
    if (!data || data->type != MSGPACK_OBJECT_BIN)
        return sy_error_set(SY_EPROTO, "the server's answer has an output without data");
    out->bytes = data->via.bin.size;
    SY_TRY(sy_client_block_take(out->bytes, copy));
    if (out->bytes > 0)
        memcpy(*copy, data->via.bin.ptr, out->bytes);
    out->data = *copy;
    return SY_OK;
}

/* The data of an output that the client placed in one of its regions. */
static int find_data(const sy_client *client, const msgpack_object *map, sy_client_tensor *out)
{
    uint64_t offset = number(map, "offset"), bytes = number(map, "bytes");
    const sy_client_region *region =
        sy_client_region_find(client, number(map, "region"), offset, bytes);

    if (!region)
        return sy_error_set(SY_EPROTO, "the server's answer has an output in no region of ours");
    out->bytes = bytes;
    out->data = region->data + offset;
    return SY_OK;
}

static int take_output(sy_client *client, const msgpack_object *map, sy_client_tensor *out,
                       void **copy)
{
    const msgpack_object *shape = sy_client_get(map, "shape");

    out->name = text_of(map, "name");
    out->dtype = text_of(map, "dtype");
    if (!out->name || !out->dtype || !shape || shape->type != MSGPACK_OBJECT_ARRAY ||
        shape->via.array.size > SWITCHYARD_MAX_RANK)
        return sy_error_set(SY_EPROTO,
                            "the server's answer has an output without name, dtype or shape");
    out->rank = (int)shape->via.array.size;
    for (int i = 0; i < out->rank; i++)
        out->shape[i] = shape->via.array.ptr[i].via.i64;
    return sy_client_get(map, "region") ? find_data(client, map, out)
                                        : copy_data(client, sy_client_get(map, "data"), out, copy);
}

static void take_timing(const msgpack_object *timing, sy_client_result *result)
{
    result->queue_ns = number(timing, "queue_ns");
    result->preempt_wait_ns = number(timing, "preempt_wait_ns");
    result->swap_ns = number(timing, "swap_ns");
    result->total_ns = number(timing, "total_ns");
    result->first_layer_ns = number(timing, "first_layer_ns");
    result->bound_ns = number(timing, "bound_ns");
    result->predicted_ns = number(timing, "predicted_ns");
    result->served_ns = number(timing, "served_ns");
    result->moved_bytes = number(timing, "moved_bytes");
    result->swapped = (int)number(timing, "swapped");
    result->preempted = (int)number(timing, "preempted");
    result->attempts = (int)number(timing, "attempts");
}

static int create_result(uint32_t n_outputs, struct owned_result **out)
{
    struct owned_result *owned = calloc(1, sizeof *owned);

    if (!owned)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
    owned->result.outputs = calloc(n_outputs + 1u, sizeof *owned->result.outputs);
    owned->copies = calloc(n_outputs + 1u, sizeof *owned->copies);
    if (!owned->result.outputs || !owned->copies) {
        sy_client_result_free(&owned->result);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
    }
    *out = owned;
    return SY_OK;
}

static int take_result(sy_client *client, const msgpack_object *answer, sy_client_result **out)
{
    const msgpack_object *outputs = sy_client_get(answer, "outputs");
    struct owned_result *owned;
    int status = SY_OK;

    if (!outputs || outputs->type != MSGPACK_OBJECT_ARRAY)
        return sy_error_set(SY_EPROTO, "the server's answer has no outputs");
    SY_TRY(create_result(outputs->via.array.size, &owned));
    for (uint32_t i = 0; status == SY_OK && i < outputs->via.array.size; i++) {
        owned->result.n_outputs++;
        status = take_output(client, &outputs->via.array.ptr[i], &owned->result.outputs[i],
                             &owned->copies[i]);
    }
    take_timing(sy_client_get(answer, "timing"), &owned->result);
    if (status < 0)
        sy_client_result_free(&owned->result);
    else
        *out = &owned->result;
    return status;
}

int sy_client_infer(sy_client *client, const char *model, const sy_client_tensor *inputs,
                    int n_inputs, sy_client_result **out)
{
    return sy_client_infer_with(client, model, inputs, n_inputs, NULL, out);
}

int sy_client_infer_with(sy_client *client, const char *model, const sy_client_tensor *inputs,
                         int n_inputs, const sy_client_options *options, sy_client_result **out)
{
    const msgpack_object *answer = NULL;
    msgpack_unpacked unpacked;
    msgpack_sbuffer buffer;
    int status;

    *out = NULL;
    msgpack_sbuffer_init(&buffer);
    msgpack_unpacked_init(&unpacked);
    client->takes_longs = true;
    status = infer_ask(client, model, inputs, n_inputs, options, &buffer, &unpacked, &answer);
    client->takes_longs = false;
    if (status == SY_OK)
        status = take_result(client, answer, out);
    sy_client_long_drop(client);
    msgpack_unpacked_destroy(&unpacked);
    msgpack_sbuffer_destroy(&buffer);
    return sy_client_finish(client, status);
}

void sy_client_result_free(sy_client_result *result)
{
    struct owned_result *owned = (struct owned_result *)result; /* its first member */

    if (!owned)
        return;
    for (int i = 0; i < result->n_outputs; i++) {
        free((void *)result->outputs[i].name);
        free((void *)result->outputs[i].dtype);
        sy_client_block_give(owned->copies[i], result->outputs[i].bytes);
    }
    free(result->outputs);
    free(owned->copies);
    free(owned);
}
