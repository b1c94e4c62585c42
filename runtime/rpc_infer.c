/* The method infer: checks a request against the model's graph, writes its tensors to the slab, answers from the slab. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph_bind.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/rpc_internal.h"

#define MOST_DEADLINE_MS 3.6e6

struct sy_rpc_infer {
    struct sy_rpc_infer *next, *previous; /* of its connection while it is at the core */
    struct sy_rpc_connection *connection;
    const struct sy_graph *graph; /* the core keeps a model that has requests */
    char model[SY_CORE_MODEL_NAME];
    uint64_t id, message_id;
    bool answers;
    int64_t batch;
    struct sy_sizes sizes;   /* of the model's open dimensions */
    int n_inputs, n_outputs; /* slab pieces that are held */
    uint64_t inputs[SY_RPC_MAX_TENSORS], outputs[SY_RPC_MAX_TENSORS];
    struct sy_core_infer_options options;
    char tenant[64];
};

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

/* ---- checks ----------------------------------------------------------------------------------------------- */

static int read_text(const msgpack_object *map, const char *key, char *to, size_t bytes)
{
    const msgpack_object *value = sy_rpc_get(map, key);

    if (!value || value->type != MSGPACK_OBJECT_STR || value->via.str.size >= bytes)
        return sy_error_set(SY_EARG, "\"%s\" is missing, no string, or longer than %zu bytes", key,
                            bytes - 1);
    if (value->via.str.size > 0 && memchr(value->via.str.ptr, 0, value->via.str.size))
        return sy_error_set(SY_EARG, "\"%s\" has a zero byte in it", key);
    memcpy(to, value->via.str.ptr ? value->via.str.ptr : "", value->via.str.size);
    to[value->via.str.size] = 0;
    return SY_OK;
}

static int find_input(const struct sy_graph *graph, const char *name, int *out)
{
    char names[300] = "";
    size_t used = 0;

    for (*out = 0; *out < graph->n_inputs; ++*out)
        if (strcmp(graph->tensors[graph->inputs[*out]].name, name) == 0)
            return SY_OK;
    for (int i = 0; i < graph->n_inputs && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                                 graph->tensors[graph->inputs[i]].name);
    return sy_error_set(SY_EARG, "the model has no input \"%s\"; it has %s", name, names);
}

static int check_dtype(const struct sy_tensor *tensor, const msgpack_object *map)
{
    char dtype[16];

    SY_TRY(read_text(map, "dtype", dtype, sizeof(dtype)));
    if (sy_dtype_from_wire_name(dtype) != tensor->dtype)
        return sy_error_set(SY_EARG, "input \"%s\" has dtype %s; the model takes %s", tensor->name,
                            dtype, sy_dtype_wire_name(tensor->dtype));
    return SY_OK;
}

static int read_shape(const struct sy_tensor *tensor, const msgpack_object *map,
                      struct sy_given_input *given, int64_t *dims)
{
    const msgpack_object *shape = sy_rpc_get(map, "shape");
    char expected[128];

    sy_shape_text(&tensor->shape, expected, sizeof(expected));
    if (!shape || shape->type != MSGPACK_OBJECT_ARRAY)
        return sy_error_set(SY_EARG, "input \"%s\": \"shape\" is missing or no array",
                            tensor->name);
    if (shape->via.array.size != (uint32_t)tensor->shape.rank)
        return sy_error_set(SY_EARG, "input \"%s\" has %u dimensions; the model takes %s",
                            tensor->name, shape->via.array.size, expected);
    for (int i = 0; i < tensor->shape.rank; i++) {
        const msgpack_object *dim = &shape->via.array.ptr[i];

        if (dim->type != MSGPACK_OBJECT_POSITIVE_INTEGER || dim->via.u64 > INT64_MAX)
            return sy_error_set(SY_EARG, "input \"%s\": dimension %d is no length", tensor->name,
                                i);
        dims[i] = (int64_t)dim->via.u64;
    }
    given->rank = tensor->shape.rank;
    given->dims = dims;
    return SY_OK;
}

static int check_batch(const struct sy_tensor *tensor, const int64_t *dims)
{
    for (int i = 0; i < tensor->shape.rank; i++)
        if (tensor->shape.dims[i].per_batch == 1 && tensor->shape.dims[i].fixed == 0 &&
            (dims[i] < 1 || dims[i] > SY_RPC_MAX_BATCH))
            return sy_error_set(SY_EARG,
                                "input \"%s\" is a batch of %" PRId64 "; 1 to %d are possible",
                                tensor->name, dims[i], SY_RPC_MAX_BATCH);
    return SY_OK;
}

/* What a request says of its inputs. */
struct inputs {
    const msgpack_object *data[SY_RPC_MAX_TENSORS]; /* by the graph's order */
    struct sy_given_input given[SY_RPC_MAX_TENSORS];
    int64_t dims[SY_RPC_MAX_TENSORS][SY_MAX_RANK];
    int n;
};

/* As many bytes as shape and dtype say; so what is claimed is bounded by what came. */
static int check_data(const struct sy_tensor *tensor, const struct sy_given_input *given,
                      const msgpack_object *data)
{
    uint64_t bytes = sy_dtype_bytes(tensor->dtype);
    bool counts = true;

    for (int i = 0; i < given->rank; i++)
        counts = !__builtin_mul_overflow(bytes, (uint64_t)given->dims[i], &bytes) && counts;
    if (!counts)
        return sy_error_set(SY_EARG, "input \"%s\" has a shape of more bytes than can be counted",
                            tensor->name);
    if (data->via.bin.size != bytes)
        return sy_error_set(SY_EARG,
                            "input \"%s\" has %u bytes of data; its shape and dtype need %" PRIu64,
                            tensor->name, data->via.bin.size, bytes);
    return SY_OK;
}

static int check_input(struct sy_rpc_infer *infer, const msgpack_object *map, struct inputs *inputs)
{
    const msgpack_object *data = sy_rpc_get(map, "data");
    const struct sy_tensor *tensor;
    struct sy_given_input *given;
    char name[256];
    int index;

    SY_TRY(read_text(map, "name", name, sizeof(name)));
    SY_TRY(find_input(infer->graph, name, &index));
    if (inputs->data[index])
        return sy_error_set(SY_EARG, "input \"%s\" is given twice", name);
    tensor = &infer->graph->tensors[infer->graph->inputs[index]];
    SY_TRY(check_dtype(tensor, map));
    if (!data || data->type != MSGPACK_OBJECT_BIN)
        return sy_error_set(SY_EARG, "input \"%s\": \"data\" is missing or no bin", tensor->name);
    given = &inputs->given[inputs->n++];
    given->input = index;
    SY_TRY(read_shape(tensor, map, given, inputs->dims[index]));
    SY_TRY(check_batch(tensor, given->dims));
    inputs->data[index] = data;
    return SY_OK;
}

/* Batch and sizes from all shapes together. */
static int solve_sizes(struct sy_rpc_infer *infer, const struct inputs *inputs)
{
    SY_TRY(sy_graph_solve(infer->graph, inputs->n, inputs->given, &infer->batch, &infer->sizes));
    if (infer->batch < 1 || infer->batch > SY_RPC_MAX_BATCH)
        return sy_error_set(SY_EARG, "the inputs are a batch of %" PRId64 "; 1 to %d are possible",
                            infer->batch, SY_RPC_MAX_BATCH);
    for (int i = 0; i < inputs->n; i++) {
        int input = inputs->given[i].input;

        SY_TRY(check_data(&infer->graph->tensors[infer->graph->inputs[input]], &inputs->given[i],
                          inputs->data[input]));
    }
    return SY_OK;
}

static int check_inputs(struct sy_rpc_infer *infer, const msgpack_object *params,
                        struct inputs *inputs)
{
    const msgpack_object *list = sy_rpc_get(params, "inputs");

    if (!list || list->type != MSGPACK_OBJECT_ARRAY)
        return sy_error_set(SY_EARG, "\"inputs\" is missing or no array");
    for (uint32_t i = 0; i < list->via.array.size; i++)
        SY_TRY(check_input(infer, &list->via.array.ptr[i], inputs));
    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (!inputs->data[i])
            return sy_error_set(SY_EARG, "input \"%s\" is missing; the model \"%s\" has %d inputs",
                                infer->graph->tensors[infer->graph->inputs[i]].name, infer->model,
                                infer->graph->n_inputs);
    return solve_sizes(infer, inputs);
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

static int fill_slab(struct sy_rpc_infer *infer, struct sy_slab *slab, const struct inputs *inputs)
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

/* ---- results that are larger than their room ---------------------------------------------------------------- */

static struct sy_rpc_room *room_of(struct sy_rpc_server *server, const char *model)
{
    for (int i = 0; i < SY_RPC_ROOMS; i++)
        if (strcmp(server->rooms[i].model, model) == 0)
            return &server->rooms[i];
    return NULL;
}

/* Requests of a model that needed more room begin with it: else each would run twice. */
static void remember_room(struct sy_rpc_infer *infer)
{
    struct sy_rpc_server *server = infer->connection->server;
    struct sy_rpc_room *room = room_of(server, infer->model);

    if (!room) {
        room = &server->rooms[server->next_room++ % SY_RPC_ROOMS];
        memcpy(room->model, infer->model, sizeof(room->model));
    }
    room->times = infer->sizes.of[sy_graph_room_size(infer->graph)];
}

static void recall_room(struct sy_rpc_infer *infer)
{
    const struct sy_rpc_room *room = room_of(infer->connection->server, infer->model);
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

static int read_options(struct sy_rpc_infer *infer, const msgpack_object *params)
{
    const msgpack_object *class_ = sy_rpc_get(params, "class"),
                         *deadline = sy_rpc_get(params, "deadline_ms"),
                         *tenant = sy_rpc_get(params, "tenant");
    double ms = 0;

    infer->options = (struct sy_core_infer_options){
        .class_ = SY_CORE_USUAL_CLASS, .sizes = infer->graph->n_symbols > 0 ? &infer->sizes : NULL};
    if (deadline && deadline->type == MSGPACK_OBJECT_NIL)
        deadline = NULL;
    if (class_ && (class_->type != MSGPACK_OBJECT_POSITIVE_INTEGER || class_->via.u64 > INT32_MAX))
        return sy_error_set(SY_EARG, "\"class\": a whole number, 0 for the most urgent");
    if (class_)
        infer->options.class_ = (int)class_->via.u64;
    if (deadline && deadline->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
        ms = (double)deadline->via.u64;
    else if (deadline &&
             (deadline->type == MSGPACK_OBJECT_FLOAT32 || deadline->type == MSGPACK_OBJECT_FLOAT64))
        ms = deadline->via.f64;
    if (deadline && !(ms > 0 && ms <= MOST_DEADLINE_MS))
        return sy_error_set(SY_EARG, "\"deadline_ms\": a number above 0, at most %g",
                            MOST_DEADLINE_MS);
    infer->options.deadline_ns = (sy_ns)(ms * 1e6);
    if (!tenant)
        return SY_OK;
    SY_TRY(read_text(params, "tenant", infer->tenant, sizeof(infer->tenant)));
    infer->options.tenant = infer->tenant;
    return SY_OK;
}

static bool is_word(const msgpack_object *key, const char *word)
{
    return key->type == MSGPACK_OBJECT_STR && key->via.str.size == strlen(word) &&
           memcmp(key->via.str.ptr, word, key->via.str.size) == 0;
}

/* A misspelt deadline must not be no deadline. */
static int check_keys(const msgpack_object *params)
{
    static const char *const known[] = {"model", "inputs", "class", "deadline_ms", "tenant", NULL};

    for (uint32_t i = 0; params->type == MSGPACK_OBJECT_MAP && i < params->via.map.size; i++) {
        const msgpack_object *key = &params->via.map.ptr[i].key;
        bool is_text = key->type == MSGPACK_OBJECT_STR;
        int k = 0;

        while (known[k] && !is_word(key, known[k]))
            k++;
        if (!known[k])
            return sy_error_set(SY_EARG,
                                "infer has no parameter \"%.*s\"; it has model, inputs, class, "
                                "deadline_ms and tenant",
                                is_text ? (int)SY_MIN(key->via.str.size, 60u) : 0,
                                is_text ? key->via.str.ptr : "");
    }
    return SY_OK;
}

static int prepare(struct sy_rpc_infer *infer, const msgpack_object *params)
{
    struct inputs inputs = {.n = 0};
    struct sy_rpc_server *server = infer->connection->server;
    const struct sy_package *package;

    SY_TRY(check_keys(params));
    SY_TRY(read_text(params, "model", infer->model, sizeof(infer->model)));
    SY_TRY(server->handlers->model_find(server->core, infer->model, &package));
    infer->graph = package->graph;
    if (infer->graph->n_inputs > SY_RPC_MAX_TENSORS || infer->graph->n_outputs > SY_RPC_MAX_TENSORS)
        return sy_error_set(SY_EUNSUPPORTED, "the model has more than %d inputs or outputs",
                            SY_RPC_MAX_TENSORS);
    SY_TRY(check_inputs(infer, params, &inputs));
    recall_room(infer);
    SY_TRY(read_options(infer, params));
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
