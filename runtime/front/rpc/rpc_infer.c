/* The method infer: writes a request's tensors to the slab, runs it, answers from the slab; what lies in the client's memory stays there. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_infer_internal.h"

/* ---- the answer ---------------------------------------------------------------------------------------------- */

static void pack_text(msgpack_packer *packer, const char *text)
{
    size_t n = strlen(text);

    msgpack_pack_str(packer, n);
    msgpack_pack_str_body(packer, text, n);
}

static void pack_number(msgpack_packer *packer, const char *key, uint64_t value)
{
    pack_text(packer, key);
    msgpack_pack_uint64(packer, value);
}

static int pack_output(struct sy_rpc_reply *reply, msgpack_packer *packer, int output)
{
    struct sy_front_tensor tensor;

    const struct sy_rpc_place *place = sy_rpc_infer_output_place(reply->infer, output);

    SY_TRY(sy_front_infer_output(reply->infer->request, output, &tensor));
    msgpack_pack_map(packer, place ? 6 : 4);
    pack_text(packer, "name");
    pack_text(packer, tensor.name);
    pack_text(packer, "dtype");
    pack_text(packer, sy_dtype_wire_name(tensor.dtype));
    pack_text(packer, "shape");
    msgpack_pack_array(packer, (size_t)tensor.rank);
    for (int i = 0; i < tensor.rank; i++)
        msgpack_pack_int64(packer, tensor.dims[i]);
    if (place) {
        pack_number(packer, "region", place->region->id);
        pack_number(packer, "offset", place->offset);
        pack_number(packer, "bytes", tensor.bytes);
        return SY_OK;
    }
    pack_text(packer, "data");
    msgpack_pack_bin(packer, tensor.bytes);
    reply->cut[reply->n_tensors] = reply->head.size;
    reply->tensor[reply->n_tensors] = tensor.data;
    reply->tensor_bytes[reply->n_tensors++] = tensor.bytes;
    return SY_OK;
}

static sy_ns between(sy_ns from, sy_ns to)
{
    return from && to > from ? to - from : 0;
}

static void pack_timing(msgpack_packer *packer, const struct sy_request_report *r)
{
    static const struct sy_request_report none; /* the report for an empty batch */

    r = r ? r : &none;
    sy_ns layers = between(r->first_layer_ns, r->computed_ns);
    sy_ns moved = SY_MAX(r->copy_end_ns, r->storage_end_ns);

    msgpack_pack_map(packer, 17);
    pack_number(packer, "queue_ns", between(r->arrived_ns, r->started_ns));
    pack_number(packer, "preempt_wait_ns", r->preempt_wait_ns);
    pack_number(packer, "swap_ns", r->swapped ? between(r->started_ns, moved) : 0);
    pack_number(packer, "first_layer_ns", between(r->started_ns, r->first_layer_ns));
    pack_number(packer, "compute_ns", layers - SY_MIN(r->compute_wait_ns, layers));
    pack_number(packer, "run_ns", between(r->started_ns, r->finished_ns));
    pack_number(packer, "served_ns", r->served_ns);
    pack_number(packer, "total_ns", between(r->arrived_ns, r->finished_ns));
    pack_number(packer, "compute_wait_ns", r->compute_wait_ns);
    pack_number(packer, "bound_ns", r->bound_ns);
    pack_number(packer, "predicted_ns", r->predicted_ns);
    pack_number(packer, "moved_bytes", r->moved_bytes);
    pack_number(packer, "storage_bytes", r->storage_bytes);
    pack_text(packer, "swapped");
    r->swapped ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
    pack_text(packer, "preempted");
    r->preempted ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
    pack_number(packer, "attempts", (uint64_t)SY_MAX(r->attempts, 0));
    pack_number(packer, "worker", (uint64_t)SY_MAX(r->worker, 0));
}

static void answer_outputs(struct sy_rpc_infer *infer)
{
    struct sy_rpc_reply *reply = sy_rpc_reply_create();
    int n_outputs = sy_front_infer_n_outputs(infer->request), n_kept = 0;
    msgpack_packer packer;

    if (!reply) {
        sy_rpc_answer_error(infer->connection, infer->answers, infer->message_id, SY_ENOMEM_HOST,
                            sy_error_text());
        sy_rpc_infer_free(infer);
        return;
    }
    reply->infer = infer;
    msgpack_packer_init(&packer, reply, sy_rpc_reply_write);
    msgpack_pack_array(&packer, 4);
    msgpack_pack_int(&packer, 1);
    msgpack_pack_uint64(&packer, infer->message_id);
    msgpack_pack_nil(&packer);
    msgpack_pack_map(&packer, 3);
    pack_text(&packer, "model");
    pack_text(&packer, sy_front_infer_model(infer->request)->name);
    pack_text(&packer, "timing");
    pack_timing(&packer, sy_front_infer_report(infer->request));
    pack_text(&packer, "outputs");
    for (int i = 0; i < n_outputs; i++)
        n_kept += sy_front_infer_is_kept(infer->request, i);
    msgpack_pack_array(&packer, (size_t)(n_outputs - n_kept));
    for (int i = 0; i < n_outputs; i++)
        if (!sy_front_infer_is_kept(infer->request, i) && pack_output(reply, &packer, i) < 0) {
            sy_rpc_answer_error(infer->connection, infer->answers, infer->message_id, SY_ECORRUPT,
                                sy_error_text());
            sy_rpc_reply_free(reply);
            return;
        }
    sy_rpc_reply_send(infer->connection, reply);
}

static void infer_done(void *ctx, int status, const char *error)
{
    struct sy_rpc_infer *infer = ctx;
    struct sy_rpc_connection *connection = infer->connection;

    sy_rpc_infer_unlink(infer);
    if (status == SY_OK && connection->fd >= 0 && infer->answers) {
        answer_outputs(infer);
    } else {
        if (status < 0)
            sy_rpc_answer_error(connection, infer->answers, infer->message_id, status, error);
        else
            connection->n_outstanding--;
        sy_rpc_infer_free(infer);
    }
    sy_rpc_connection_resume(connection);
    sy_rpc_connection_release(connection);
}

/* ---- the call ------------------------------------------------------------------------------------------------- */

static int prepare(struct sy_rpc_infer *infer, const msgpack_object *params)
{
    char model[SY_CORE_MODEL_NAME];
    int64_t version;

    SY_TRY(sy_rpc_infer_check_keys(params));
    SY_TRY(sy_rpc_get_text(params, "model", model, sizeof(model)));
    SY_TRY(sy_rpc_infer_read_version(params, &version));
    int found = sy_front_acquire(infer->connection->server->front, model, version,
                                 &infer->connection->wait, &infer->request);
    if (found != SY_OK)
        return found;
    SY_TRY(sy_rpc_infer_read_options(infer->request, &infer->connection->grant, params));
    return sy_rpc_infer_read_tensors(infer, params);
}

int sy_rpc_infer(const struct sy_rpc_request *request)
{
    const msgpack_object *params = request->params;
    struct sy_rpc_infer *infer;
    int status;

    if (params->via.array.size != 1 || params->via.array.ptr[0].type != MSGPACK_OBJECT_MAP)
        return sy_error_set(SY_EARG, "parameters of infer are an array that holds one map");
    infer = calloc(1, sizeof(*infer));
    SY_TRY_ALLOC(infer, "no memory for a request");
    infer->connection = request->connection;
    infer->answers = request->answers;
    infer->message_id = request->id;
    status = prepare(infer, &params->via.array.ptr[0]);
    if (status == SY_OK)
        status = sy_front_infer_start(infer->request, infer_done, infer);
    if (status == SY_OK)
        sy_rpc_infer_link(infer);
    else
        sy_rpc_infer_free(infer);
    return status;
}
