/* The method infer: writes a request's tensors to the slab, runs it, answers from the slab. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_infer_internal.h"
#include "runtime/sched/admission.h"

static void release_pieces(struct sy_slab *slab, uint64_t *offsets, int *n)
{
    for (int i = 0; i < *n; i++)
        sy_slab_release(slab, offsets[i]);
    *n = 0;
}

void sy_rpc_infer_free(struct sy_rpc_server *server, struct sy_rpc_infer *infer)
{
    struct sy_slab *slab;

    if (!infer)
        return;
    slab = server->handlers->slab(server->core);
    release_pieces(slab, infer->inputs, &infer->n_inputs);
    release_pieces(slab, infer->outputs, &infer->n_outputs);
    free(infer);
}

void sy_rpc_infer_cancel_all(struct sy_rpc_connection *connection)
{
    struct sy_rpc_server *server = connection->server;
    uint64_t ids[256];
    int n = 0;

    /* The core may call back from inside, which unlinks: so the ids are taken first. */
    for (struct sy_rpc_infer *infer = connection->infers; infer && n < 256; infer = infer->next)
        ids[n++] = infer->id;
    for (int i = 0; i < n; i++)
        server->handlers->infer_cancel(server->core, ids[i]);
}

/* ---- the slab ------------------------------------------------------------------------------------------------ */

/* Of one output, with this request's sizes. */
static int output_shape(const struct sy_rpc_infer *infer, int output, struct sy_shape *shape)
{
    return sy_graph_bind_shape(infer->graph, infer->graph->outputs[output], &infer->sizes, shape);
}

static int output_room(const struct sy_rpc_infer *infer, int output, uint64_t *bytes)
{
    int tensor = infer->graph->outputs[output];
    struct sy_shape shape;

    SY_TRY(output_shape(infer, output, &shape));
    *bytes = sy_graph_shaped_room(infer->graph, tensor, &shape, infer->batch);
    if (*bytes == UINT64_MAX)
        return sy_error_set(SY_EARG, "output \"%s\" would have more bytes than can be counted",
                            infer->graph->tensors[tensor].name);
    return SY_OK;
}

static int take_outputs(struct sy_rpc_infer *infer, struct sy_slab *slab)
{
    for (int i = 0; i < infer->graph->n_outputs; i++) {
        uint64_t bytes;

        SY_TRY(output_room(infer, i, &bytes));
        SY_TRY(sy_slab_alloc(slab, SY_MAX(bytes, 1), &infer->outputs[i]));
        infer->n_outputs++;
    }
    return SY_OK;
}

/* All that the request takes of the slab; more than its size is not counted to the end. */
static int slab_bytes_wanted(const struct sy_rpc_infer *infer, uint64_t size,
                             const struct sy_rpc_infer_inputs *inputs, uint64_t *out)
{
    uint64_t wants = 0, bytes;

    for (int i = 0; i < infer->graph->n_inputs; i++)
        wants += inputs->data[i]->via.bin.size;
    for (int i = 0; i < infer->graph->n_outputs && wants <= size; i++) {
        SY_TRY(output_room(infer, i, &bytes));
        wants += SY_MIN(bytes, size);
    }
    *out = wants;
    return SY_OK;
}

/* Patient requests leave a part of the slab to urgent ones, as of the queue (runtime/sched/admission.h, Q7). */
static int check_kept_room(const struct sy_rpc_infer *infer, uint64_t size, uint64_t used,
                           uint64_t wants)
{
    uint64_t kept = sy_admission_kept(size, infer->options.class_);

    if (used + wants + kept <= size)
        return SY_OK;
    return sy_error_set(SY_EBUSY,
                        "no room for %llu bytes in the tensor slab: %llu of %llu in use, and %llu "
                        "are kept for classes before %d; try again later or make the slab larger "
                        "(--slab-bytes)",
                        (unsigned long long)wants, (unsigned long long)used,
                        (unsigned long long)size, (unsigned long long)kept, infer->options.class_);
}

static int take_tensors(struct sy_rpc_infer *infer, struct sy_slab *slab,
                        const struct sy_rpc_infer_inputs *inputs)
{
    for (int i = 0; i < infer->graph->n_inputs; i++) {
        const msgpack_object *data = inputs->data[i];
        uint64_t bytes = data->via.bin.size;

        SY_TRY(sy_slab_alloc(slab, SY_MAX(bytes, 1), &infer->inputs[i]));
        infer->n_inputs++;
        if (bytes > 0)
            memcpy(sy_slab_pointer(slab, infer->inputs[i]), data->via.bin.ptr, bytes);
    }
    return take_outputs(infer, slab);
}

/* Who is alone may have all of the slab, and is told what it lacks for ever; beside others there is room later: EBUSY. */
static int fill_slab(struct sy_rpc_infer *infer, struct sy_slab *slab,
                     const struct sy_rpc_infer_inputs *inputs)
{
    uint64_t size = sy_slab_size(slab), used = sy_slab_used_bytes(slab), wants;
    char why[512];

    SY_TRY(slab_bytes_wanted(infer, size, inputs, &wants));
    if (used == 0 || wants > size)
        return take_tensors(infer, slab, inputs);
    SY_TRY(check_kept_room(infer, size, used, wants));
    int status = take_tensors(infer, slab, inputs);
    if (status != SY_ENOMEM_HOST)
        return status;
    snprintf(why, sizeof why, "%s", sy_error_text());
    return sy_error_set(SY_EBUSY, "%s", why);
}

/* ---- results that are larger than their room ---------------------------------------------------------------- */

static struct sy_rpc_room *room_of(struct sy_rpc_server *server, uint64_t content)
{
    for (int i = 0; i < SY_RPC_ROOMS; i++)
        if (server->rooms[i].content == content)
            return &server->rooms[i];
    return NULL;
}

/* Requests of a model that needed more room begin with it: else each would run twice. Another content of the same name does not. */
static void remember_room(struct sy_rpc_infer *infer)
{
    struct sy_rpc_server *server = infer->connection->server;
    struct sy_rpc_room *room = room_of(server, infer->content);

    if (!room) {
        room = &server->rooms[server->next_room++ % SY_RPC_ROOMS];
        room->content = infer->content;
    }
    room->times = infer->sizes.of[sy_graph_room_size(infer->graph)];
}

static void recall_room(struct sy_rpc_infer *infer)
{
    const struct sy_rpc_room *room = room_of(infer->connection->server, infer->content);
    int size = sy_graph_room_size(infer->graph);

    if (room && size >= 0)
        infer->sizes.of[size] = SY_MAX(infer->sizes.of[size], room->times);
}

/* Sizes with room for what the run has; *more: it needs more than there is. ENOMEM_HOST where its room does not grow. */
static int grow_room(struct sy_rpc_infer *infer, struct sy_slab *slab, bool *more)
{
    struct sy_sizes sizes = infer->sizes;

    *more = false;
    for (int i = 0; i < infer->graph->n_outputs; i++) {
        int tensor = infer->graph->outputs[i];
        struct sy_shape room, shape;
        uint64_t needs;

        SY_TRY(output_shape(infer, i, &room));
        if (sy_graph_shaped_output(infer->graph, tensor, &room, infer->batch,
                                   sy_slab_pointer(slab, infer->outputs[i]), &shape,
                                   &needs) != SY_ENOMEM_HOST)
            continue;
        uint64_t has = (uint64_t)sy_shape_elements(&room, infer->batch) *
                       sy_dtype_bytes(infer->graph->tensors[tensor].dtype);
        struct sy_sizes grown = infer->sizes;
        if (!sy_graph_grow_room(infer->graph, has, needs, &grown))
            return SY_ENOMEM_HOST; /* the text says how much */
        int size = sy_graph_room_size(infer->graph);
        sizes.of[size] = SY_MAX(sizes.of[size], grown.of[size]);
        *more = true;
    }
    infer->sizes = sizes;
    return SY_OK;
}

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

static int pack_output(struct sy_rpc_reply *reply, msgpack_packer *packer, struct sy_slab *slab,
                       int output)
{
    const struct sy_rpc_infer *infer = reply->infer;
    const struct sy_tensor *tensor = &infer->graph->tensors[infer->graph->outputs[output]];
    void *data = sy_slab_pointer(slab, infer->outputs[output]);
    struct sy_shape room, shape;
    uint64_t bytes;

    SY_TRY(output_shape(infer, output, &room));
    SY_TRY(sy_graph_shaped_output(infer->graph, infer->graph->outputs[output], &room, infer->batch,
                                  data, &shape, &bytes));

    msgpack_pack_map(packer, 4);
    pack_text(packer, "name");
    pack_text(packer, tensor->name);
    pack_text(packer, "dtype");
    pack_text(packer, sy_dtype_wire_name(tensor->dtype));
    pack_text(packer, "shape");
    msgpack_pack_array(packer, (size_t)shape.rank);
    for (int i = 0; i < shape.rank; i++)
        msgpack_pack_int64(packer, shape.dims[i].fixed);
    pack_text(packer, "data");
    msgpack_pack_bin(packer, bytes);
    reply->cut[reply->n_tensors] = reply->head.size;
    reply->tensor[reply->n_tensors] = data;
    reply->tensor_bytes[reply->n_tensors++] = bytes;
    return SY_OK;
}

static sy_ns between(sy_ns from, sy_ns to)
{
    return from && to > from ? to - from : 0;
}

static void pack_timing(msgpack_packer *packer, const struct sy_request_report *r)
{
    sy_ns moved = SY_MAX(r->copy_end_ns, r->storage_end_ns);

    msgpack_pack_map(packer, 16);
    pack_number(packer, "queue_ns", between(r->arrived_ns, r->started_ns));
    pack_number(packer, "preempt_wait_ns", r->preempt_wait_ns);
    pack_number(packer, "swap_ns", r->swapped ? between(r->started_ns, moved) : 0);
    pack_number(packer, "first_layer_ns", between(r->started_ns, r->first_layer_ns));
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

static void answer_outputs(struct sy_rpc_infer *infer, const struct sy_request_report *report)
{
    struct sy_rpc_server *server = infer->connection->server;
    struct sy_slab *slab = server->handlers->slab(server->core);
    struct sy_rpc_reply *reply = sy_rpc_reply_create();
    msgpack_packer packer;

    if (!reply) {
        sy_rpc_answer_error(infer->connection, infer->answers, infer->message_id, SY_ENOMEM_HOST,
                            sy_error_text());
        sy_rpc_infer_free(server, infer);
        return;
    }
    reply->infer = infer;
    msgpack_packer_init(&packer, &reply->head, msgpack_sbuffer_write);
    msgpack_pack_array(&packer, 4);
    msgpack_pack_int(&packer, 1);
    msgpack_pack_uint64(&packer, infer->message_id);
    msgpack_pack_nil(&packer);
    msgpack_pack_map(&packer, 3);
    pack_text(&packer, "model");
    pack_text(&packer, infer->model);
    pack_text(&packer, "timing");
    pack_timing(&packer, report);
    pack_text(&packer, "outputs");
    msgpack_pack_array(&packer, (size_t)infer->graph->n_outputs);
    for (int i = 0; i < infer->graph->n_outputs; i++)
        if (pack_output(reply, &packer, slab, i) < 0) {
            sy_rpc_answer_error(infer->connection, infer->answers, infer->message_id, SY_ECORRUPT,
                                sy_error_text());
            sy_rpc_reply_free(server, reply);
            return;
        }
    release_pieces(slab, infer->inputs,
                   &infer->n_inputs); /* the run is over: only the outputs are still needed */
    sy_rpc_reply_send(infer->connection, reply);
}

static void unlink_infer(struct sy_rpc_infer *infer)
{
    if (infer->previous)
        infer->previous->next = infer->next;
    else
        infer->connection->infers = infer->next;
    if (infer->next)
        infer->next->previous = infer->previous;
}

static void infer_done(void *ctx, int status, const char *error,
                       const struct sy_request_report *report);

static int submit(struct sy_rpc_infer *infer)
{
    struct sy_rpc_connection *connection = infer->connection;
    struct sy_rpc_server *server = connection->server;
    int status =
        server->handlers->infer(server->core, infer->model, infer->batch, infer->inputs,
                                infer->outputs, &infer->options, infer_done, infer, &infer->id);

    if (status < 0)
        return status;
    infer->next = connection->infers;
    if (infer->next)
        infer->next->previous = infer;
    connection->infers = infer;
    connection->refs++;
    return SY_OK;
}

/* The same request with more room for its results, if this run's do not fit; what is left of its deadline is its deadline. */
static int run_again(struct sy_rpc_infer *infer, const struct sy_request_report *report,
                     bool *again)
{
    struct sy_rpc_server *server = infer->connection->server;
    struct sy_slab *slab = server->handlers->slab(server->core);
    const struct sy_package *package;
    sy_ns took = between(report->arrived_ns, report->finished_ns);
    bool more;

    SY_TRY(grow_room(infer, slab, &more));
    if (!more)
        return SY_OK;
    SY_TRY(server->handlers->model_find(server->core, infer->model, &package));
    if (package->graph != infer->graph)
        return sy_error_set(SY_EBUSY, "model %s was replaced while it ran; ask again",
                            infer->model);
    release_pieces(slab, infer->outputs, &infer->n_outputs);
    SY_TRY(take_outputs(infer, slab));
    remember_room(infer);
    if (infer->options.deadline_ns > 0)
        infer->options.deadline_ns =
            infer->options.deadline_ns > took ? infer->options.deadline_ns - took : 1;
    SY_TRY(submit(infer));
    *again = true;
    return SY_OK;
}

static void infer_done(void *ctx, int status, const char *error,
                       const struct sy_request_report *report)
{
    struct sy_rpc_infer *infer = ctx;
    struct sy_rpc_connection *connection = infer->connection;

    bool again = false;

    unlink_infer(infer);
    if (status == SY_OK && connection->fd >= 0 && infer->answers) {
        status = run_again(infer, report, &again);
        error = sy_error_text();
    }
    if (again) {
        /* it answers when it is done */
    } else if (status == SY_OK && connection->fd >= 0 && infer->answers) {
        answer_outputs(infer, report);
    } else {
        if (status < 0)
            sy_rpc_answer_error(connection, infer->answers, infer->message_id, status, error);
        else
            connection->n_outstanding--;
        sy_rpc_infer_free(connection->server, infer);
    }
    sy_rpc_connection_resume(connection);
    sy_rpc_connection_release(connection);
}

/* ---- the call ------------------------------------------------------------------------------------------------- */

static int prepare(struct sy_rpc_infer *infer, const msgpack_object *params)
{
    struct sy_rpc_infer_inputs inputs = {.n = 0};
    struct sy_rpc_server *server = infer->connection->server;
    const struct sy_package *package;

    SY_TRY(sy_rpc_infer_check_keys(params));
    SY_TRY(sy_rpc_infer_read_text(params, "model", infer->model, sizeof(infer->model)));
    SY_TRY(server->handlers->model_find(server->core, infer->model, &package));
    infer->graph = package->graph;
    infer->content = package->content_hash;
    if (infer->graph->n_inputs > SY_RPC_MAX_TENSORS || infer->graph->n_outputs > SY_RPC_MAX_TENSORS)
        return sy_error_set(SY_EUNSUPPORTED, "the model has more than %d inputs or outputs",
                            SY_RPC_MAX_TENSORS);
    SY_TRY(sy_rpc_infer_check_inputs(infer, params, &inputs));
    recall_room(infer);
    SY_TRY(sy_rpc_infer_read_options(infer, params));
    return fill_slab(infer, server->handlers->slab(server->core), &inputs);
}

int sy_rpc_infer(const struct sy_rpc_request *request)
{
    const msgpack_object *params = request->params;
    struct sy_rpc_infer *infer;
    int status;

    if (params->via.array.size != 1 || params->via.array.ptr[0].type != MSGPACK_OBJECT_MAP)
        return sy_error_set(SY_EARG, "parameters of infer are an array that holds one map");
    infer = calloc(1, sizeof(*infer));
    if (!infer)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request");
    infer->connection = request->connection;
    infer->answers = request->answers;
    infer->message_id = request->id;
    status = prepare(infer, &params->via.array.ptr[0]);
    if (status == SY_OK)
        status = submit(infer);
    if (status < 0)
        sy_rpc_infer_free(request->connection->server, infer);
    return status;
}
