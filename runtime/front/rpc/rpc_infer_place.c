/* Tensors of a request that lie in its client's shared memory: {region, offset, bytes} in the place of data. All EARG, with what is wrong. */
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_infer_internal.h"

static const struct sy_graph *graph_of(const struct sy_rpc_infer *infer)
{
    return sy_front_infer_model(infer->request)->package->graph;
}

/* "input", or "output", and its name. */
static const char *kind_of(const struct sy_rpc_infer *infer, int place)
{
    return place < graph_of(infer)->n_inputs ? "input" : "output";
}

static const char *name_of(const struct sy_rpc_infer *infer, int place)
{
    const struct sy_graph *graph = graph_of(infer);
    int n_inputs = graph->n_inputs;

    return graph
        ->tensors[place < n_inputs ? graph->inputs[place] : graph->outputs[place - n_inputs]]
        .name;
}

static int read_number(const struct sy_rpc_infer *infer, int place, const msgpack_object *map,
                       const char *key, uint64_t *out)
{
    const msgpack_object *value = sy_rpc_get(map, key);

    if (!value || value->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return sy_error_set(SY_EARG, "%s \"%s\": \"%s\" is missing or no whole number",
                            kind_of(infer, place), name_of(infer, place), key);
    *out = value->via.u64;
    return SY_OK;
}

static int check_range(const struct sy_rpc_infer *infer, int place,
                       const struct sy_rpc_region *region, uint64_t offset, uint64_t bytes)
{
    const char *kind = kind_of(infer, place), *name = name_of(infer, place);

    if (offset % SY_RPC_REGION_ALIGN != 0)
        return sy_error_set(SY_EARG, "%s \"%s\": offset %" PRIu64 " is not a multiple of %d", kind,
                            name, offset, SY_RPC_REGION_ALIGN);
    if (offset >= region->bytes || bytes > region->bytes - offset)
        return sy_error_set(SY_EARG,
                            "%s \"%s\": %" PRIu64 " bytes at offset %" PRIu64
                            " are not in region %" PRIu64 ", which has %" PRIu64,
                            kind, name, bytes, offset, region->id, region->bytes);
    return SY_OK;
}

/* One for each input and output, made with the first that is used. */
static int make_places(struct sy_rpc_infer *infer)
{
    const struct sy_graph *graph = graph_of(infer);

    if (infer->places)
        return SY_OK;
    infer->n_places = graph->n_inputs + graph->n_outputs;
    infer->places = calloc((size_t)infer->n_places, sizeof *infer->places);
    return infer->places ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a request");
}

static int read_place(struct sy_rpc_infer *infer, int place, const msgpack_object *map)
{
    uint64_t id, offset, bytes;
    struct sy_rpc_region *region;

    SY_TRY(make_places(infer));
    SY_TRY(read_number(infer, place, map, "region", &id));
    SY_TRY(read_number(infer, place, map, "offset", &offset));
    SY_TRY(read_number(infer, place, map, "bytes", &bytes));
    region = sy_rpc_region_find(infer->connection, id);
    if (!region)
        return sy_error_set(SY_EARG,
                            "%s \"%s\": this connection has no region %" PRIu64
                            "; region_create makes one",
                            kind_of(infer, place), name_of(infer, place), id);
    if (infer->places[place].region)
        return sy_error_set(SY_EARG, "%s \"%s\" has two places", kind_of(infer, place),
                            name_of(infer, place));
    SY_TRY(check_range(infer, place, region, offset, bytes));
    infer->places[place] = (struct sy_rpc_place){sy_rpc_region_hold(region), offset, bytes};
    return SY_OK;
}

int sy_rpc_infer_place_input(struct sy_rpc_infer *infer, int input, const msgpack_object *map)
{
    const struct sy_rpc_place *place;

    if (sy_rpc_get(map, "data"))
        return sy_error_set(SY_EARG, "input \"%s\" has both \"data\" and \"region\"; send one",
                            name_of(infer, input));
    SY_TRY(read_place(infer, input, map));
    place = &infer->places[input];
    sy_front_infer_place_input(infer->request, input, place->region->id, place->offset,
                               place->bytes);
    return SY_OK;
}

static int place_output(struct sy_rpc_infer *infer, const msgpack_object *map)
{
    const struct sy_rpc_place *place;
    char name[256];
    int output, index;

    SY_TRY(sy_rpc_get_text(map, "name", name, sizeof(name)));
    SY_TRY(sy_front_infer_find_output(infer->request, name, &output));
    index = graph_of(infer)->n_inputs + output;
    SY_TRY(read_place(infer, index, map));
    place = &infer->places[index];
    sy_front_infer_place_output(infer->request, output, place->region->id, place->offset,
                                place->bytes);
    return SY_OK;
}

static bool overlap(const struct sy_rpc_place *a, const struct sy_rpc_place *b)
{
    return a->region && a->region == b->region && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* A run may write an output before it has read the last of an input. At most 256 outputs and 512 places: a scan is enough. */
static int check_overlaps(const struct sy_rpc_infer *infer)
{
    for (int i = graph_of(infer)->n_inputs; i < infer->n_places; i++)
        for (int j = 0; j < i; j++)
            if (overlap(&infer->places[i], &infer->places[j]))
                return sy_error_set(SY_EARG, "output \"%s\" overlaps %s \"%s\" in region %" PRIu64,
                                    name_of(infer, i), kind_of(infer, j), name_of(infer, j),
                                    infer->places[i].region->id);
    return SY_OK;
}

int sy_rpc_infer_place_outputs(struct sy_rpc_infer *infer, const msgpack_object *params)
{
    const msgpack_object *list = sy_rpc_get(params, "outputs");

    if (!list)
        return SY_OK;
    if (list->type != MSGPACK_OBJECT_ARRAY)
        return sy_error_set(SY_EARG, "\"outputs\" is not an array");
    for (uint32_t i = 0; i < list->via.array.size; i++)
        SY_TRY(place_output(infer, &list->via.array.ptr[i]));
    return check_overlaps(infer);
}

const struct sy_rpc_place *sy_rpc_infer_output_place(const struct sy_rpc_infer *infer, int output)
{
    int index = graph_of(infer)->n_inputs + output;

    return infer->places && infer->places[index].region ? &infer->places[index] : NULL;
}

void sy_rpc_infer_free_places(struct sy_rpc_infer *infer)
{
    for (int i = 0; i < infer->n_places && infer->places; i++)
        if (infer->places[i].region)
            sy_rpc_region_release(infer->places[i].region);
    free(infer->places);
}
