/* Checks an infer call: parameter names, and inputs against the model's graph. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/client/switchyard.h"
#include "runtime/front/request/session_table.h"
#include "runtime/front/rpc/rpc_infer_internal.h"

static int read_shape(const msgpack_object *map, const char *name, int64_t dims[SY_MAX_RANK],
                      int *rank)
{
    const msgpack_object *shape = sy_rpc_get(map, "shape");

    if (!shape || shape->type != MSGPACK_OBJECT_ARRAY)
        return sy_error_set(SY_EARG, "input \"%s\": \"shape\" is missing or not an array", name);
    if (shape->via.array.size > SY_MAX_RANK)
        return sy_error_set(SY_EARG, "input \"%s\" has %u dimensions; at most %d are possible",
                            name, shape->via.array.size, SY_MAX_RANK);
    *rank = (int)shape->via.array.size;
    for (int i = 0; i < *rank; i++) {
        const msgpack_object *dim = &shape->via.array.ptr[i];

        if (dim->type != MSGPACK_OBJECT_POSITIVE_INTEGER || dim->via.u64 > INT64_MAX)
            return sy_error_set(SY_EARG, "input \"%s\": dimension %d is not a length", name, i);
        dims[i] = (int64_t)dim->via.u64;
    }
    return SY_OK;
}

/* An input's bytes in the message: in its buffer, or in the slab already. Both NULL: it is placed, or not sent. */
struct sent {
    const msgpack_object *data;
    struct sy_rpc_long *in_slab;
};

static uint64_t sent_bytes(const struct sent *sent)
{
    return sent->in_slab ? sent->in_slab->bytes : sent->data->via.bin.size;
}

/* As many bytes as shape and dtype say; so what is claimed is bounded by what came, or is there. */
static int check_data(const struct sy_rpc_infer *infer, int input, const struct sent *sent)
{
    const struct sy_graph *graph = sy_front_infer_model(infer->request)->package->graph;
    const char *name = graph->tensors[graph->inputs[input]].name;
    uint64_t needs = sy_front_infer_input_bytes(infer->request, input);
    bool is_placed = !sent->data && !sent->in_slab;
    uint64_t bytes = is_placed ? infer->places[input].bytes : sent_bytes(sent);

    if (sy_front_infer_has_strings(infer->request, input))
        return sy_front_infer_announce_strings(infer->request, input, bytes);
    if (bytes == needs)
        return SY_OK;
    return sy_error_set(
        SY_EARG, "input \"%s\" has %" PRIu64 " bytes of data; its shape and dtype need %" PRIu64,
        name, bytes, needs);
}

static int add_input(struct sy_rpc_infer *infer, const msgpack_object *map, struct sent *by_input)
{
    const msgpack_object *data = sy_rpc_get(map, "data");
    char name[256], dtype[16];
    int64_t dims[SY_MAX_RANK];
    int input, rank;

    SY_TRY(sy_rpc_get_text(map, "name", name, sizeof(name)));
    SY_TRY(sy_rpc_get_text(map, "dtype", dtype, sizeof(dtype)));
    SY_TRY(read_shape(map, name, dims, &rank));
    SY_TRY(sy_front_infer_add_input(infer->request, name, dtype, rank, dims, &input));
    if (sy_rpc_get(map, "region") && sy_front_infer_has_strings(infer->request, input))
        return sy_error_set(SY_EUNSUPPORTED,
                            "input \"%s\": strings cannot lie in shared memory; send them as data",
                            name);
    if (sy_rpc_get(map, "region"))
        return sy_rpc_infer_place_input(infer, input, map);
    by_input[input].in_slab = sy_rpc_long_find(infer->connection, data);
    if (!by_input[input].in_slab && (!data || data->type != MSGPACK_OBJECT_BIN))
        return sy_error_set(SY_EARG, "input \"%s\": \"data\" is missing or no bin", name);
    by_input[input].data = data;
    return SY_OK;
}

/* Long tensors were received into the slab and stay there; strings need a head in front, so they are copied. If two inputs name one long tensor, the second has no data. */
static int adopt_inputs(struct sy_front_infer *request, struct sent *by_input, int n_inputs)
{
    for (int i = 0; i < n_inputs; i++) {
        struct sy_rpc_long *one = by_input[i].in_slab;

        if (!one || sy_front_infer_has_strings(request, i))
            continue;
        if (!one->held)
            return sy_error_set(SY_EARG, "two inputs share their data");
        one->held = false;
        sy_front_infer_adopt_input(request, i, one->offset);
        by_input[i] = (struct sent){NULL, NULL};
    }
    return SY_OK;
}

static void write_inputs(struct sy_rpc_infer *infer, const struct sent *by_input, int n_inputs)
{
    for (int i = 0; i < n_inputs; i++) {
        const struct sent *sent = &by_input[i];

        if (sent->data && sent_bytes(sent) > 0)
            memcpy(sy_front_infer_input_data(infer->request, i),
                   sent->in_slab ? sy_rpc_long_data(infer->connection, sent->in_slab)
                                 : sent->data->via.bin.ptr,
                   sent_bytes(sent));
    }
}

int sy_rpc_infer_read_tensors(struct sy_rpc_infer *infer, const msgpack_object *params)
{
    const msgpack_object *list = sy_rpc_get(params, "inputs");
    struct sent by_input[SY_RPC_MAX_TENSORS] = {{NULL, NULL}};
    int n_inputs = sy_front_infer_model(infer->request)->package->graph->n_inputs;

    if (!list || list->type != MSGPACK_OBJECT_ARRAY)
        return sy_error_set(SY_EARG, "\"inputs\" is missing or not an array");
    for (uint32_t i = 0; i < list->via.array.size; i++)
        SY_TRY(add_input(infer, &list->via.array.ptr[i], by_input));
    SY_TRY(sy_front_infer_solve(infer->request));
    for (int i = 0; i < n_inputs; i++)
        if (sy_front_infer_is_sent(infer->request, i))
            SY_TRY(check_data(infer, i, &by_input[i]));
    SY_TRY(sy_rpc_infer_place_outputs(infer, params));
    SY_TRY(adopt_inputs(infer->request, by_input, n_inputs));
    SY_TRY(sy_front_infer_prepare(infer->request));
    write_inputs(infer, by_input, n_inputs);
    return SY_OK;
}

int sy_rpc_infer_read_version(const msgpack_object *params, int64_t *out)
{
    const msgpack_object *version = sy_rpc_get(params, "version");

    *out = 0;
    if (!version)
        return SY_OK;
    if (version->type != MSGPACK_OBJECT_POSITIVE_INTEGER || version->via.u64 < 1 ||
        version->via.u64 > INT64_MAX)
        return sy_error_set(SY_EARG, "\"version\": a whole number above 0");
    *out = (int64_t)version->via.u64;
    return SY_OK;
}

static int read_deadline(struct sy_front_infer *request, const msgpack_object *deadline)
{
    double ms = 0;

    if (!deadline || deadline->type == MSGPACK_OBJECT_NIL)
        return SY_OK;
    if (deadline->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
        ms = (double)deadline->via.u64;
    else if (deadline->type == MSGPACK_OBJECT_FLOAT32 || deadline->type == MSGPACK_OBJECT_FLOAT64)
        ms = deadline->via.f64;
    if (!(ms > 0 && ms <= SWITCHYARD_MAX_DEADLINE_MS))
        return sy_error_set(SY_EARG, "\"deadline_ms\": a number above 0, at most %g",
                            SWITCHYARD_MAX_DEADLINE_MS);
    return sy_front_infer_set_deadline(request, (sy_ns)(ms * 1e6));
}

static int read_switch(const msgpack_object *params, const char *key, bool *out)
{
    const msgpack_object *value = sy_rpc_get(params, key);

    *out = value && value->type == MSGPACK_OBJECT_BOOLEAN && value->via.boolean;
    return !value || value->type == MSGPACK_OBJECT_BOOLEAN
               ? SY_OK
               : sy_error_set(SY_EARG, "\"%s\" is true or false", key);
}

static int read_session(struct sy_front_infer *request, const msgpack_object *params)
{
    char id[SY_SESSION_ID] = "";
    bool starts, ends;

    if (sy_rpc_get(params, "session"))
        SY_TRY(sy_rpc_get_text(params, "session", id, sizeof(id)));
    SY_TRY(read_switch(params, "session_start", &starts));
    SY_TRY(read_switch(params, "session_end", &ends));
    sy_front_infer_set_session_ends(request, starts, ends);
    return sy_front_infer_set_session(request, id);
}

int sy_rpc_infer_read_options(struct sy_front_infer *request, const struct sy_grant *grant,
                              const msgpack_object *params)
{
    const msgpack_object *class_ = sy_rpc_get(params, "class");
    char tenant[SY_CORE_TENANT_NAME] = "";
    const char *whose;

    if (class_ && (class_->type != MSGPACK_OBJECT_POSITIVE_INTEGER || class_->via.u64 > INT32_MAX))
        return sy_error_set(SY_EARG, "\"class\": a whole number, 0 for the most urgent");
    if (class_)
        SY_TRY(sy_front_infer_set_class(request, (int64_t)class_->via.u64));
    SY_TRY(read_deadline(request, sy_rpc_get(params, "deadline_ms")));
    SY_TRY(read_session(request, params));
    if (sy_rpc_get(params, "tenant"))
        SY_TRY(sy_rpc_get_text(params, "tenant", tenant, sizeof(tenant)));
    SY_TRY(sy_access_tenant(grant, tenant, &whose));
    return *whose ? sy_front_infer_set_tenant(request, whose) : SY_OK;
}

static bool is_word(const msgpack_object *key, const char *word)
{
    return key->type == MSGPACK_OBJECT_STR && key->via.str.size == strlen(word) &&
           memcmp(key->via.str.ptr, word, key->via.str.size) == 0;
}

int sy_rpc_infer_check_keys(const msgpack_object *params)
{
    static const char *const known[] = {"model",         "version",     "inputs", "outputs",
                                        "class",         "deadline_ms", "tenant", "session",
                                        "session_start", "session_end", NULL};

    for (uint32_t i = 0; params->type == MSGPACK_OBJECT_MAP && i < params->via.map.size; i++) {
        const msgpack_object *key = &params->via.map.ptr[i].key;
        bool is_text = key->type == MSGPACK_OBJECT_STR;
        int k = 0;

        while (known[k] && !is_word(key, known[k]))
            k++;
        if (!known[k])
            return sy_error_set(SY_EARG,
                                "infer has no parameter \"%.*s\"; it has model, version, inputs, "
                                "outputs, class, deadline_ms, tenant, session, session_start and "
                                "session_end",
                                is_text ? (int)SY_MIN(key->via.str.size, 60u) : 0,
                                is_text ? key->via.str.ptr : "");
    }
    return SY_OK;
}
