#include "loader/package/package_meta.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/msgpack_scan.h"
#include "runtime/base/status.h"
#include "runtime/base/text_copy.h"

#define MAX_LAYERS       100000u
#define MAX_ELEMENTS     (16u * MAX_LAYERS)
#define MAX_LAYOUT_BYTES 65536u
#define MAX_NAME_BYTES   4096u
/* per engine, one line each: long for models with many sizes */
#define MAX_CHOICES_BYTES (16u << 20)

/* meta = [name, packed_for, graph (bin), layers, hashes, profile]
 * layer = [node, offset, bytes, [param...]]   param = [input, offset, bytes, layout (bin)]
 * profile = [n_threads, storage_bytes_per_s, [batch...], [[layer_ns...]...], choices (str), [solo_batches...]]; the last two may be missing */

static void pack_bin(msgpack_packer *p, const void *bytes, size_t n)
{
    msgpack_pack_bin(p, n);
    if (n)
        msgpack_pack_bin_body(p, bytes, n);
}

static void pack_str(msgpack_packer *p, const char *text)
{
    msgpack_pack_str(p, strlen(text));
    msgpack_pack_str_body(p, text, strlen(text));
}

static void pack_layer(msgpack_packer *p, const struct sy_layer *layer)
{
    msgpack_pack_array(p, 4);
    msgpack_pack_uint64(p, (uint64_t)layer->node);
    msgpack_pack_uint64(p, layer->offset_bytes);
    msgpack_pack_uint64(p, layer->bytes);
    msgpack_pack_array(p, (size_t)layer->n_params);
    for (int i = 0; i < layer->n_params; i++) {
        const struct sy_param *param = &layer->params[i];
        msgpack_pack_array(p, 4);
        msgpack_pack_uint64(p, (uint64_t)param->input);
        msgpack_pack_uint64(p, param->offset_bytes);
        msgpack_pack_uint64(p, param->bytes);
        pack_bin(p, param->layout, param->layout_bytes);
    }
}

static void pack_profile(msgpack_packer *p, const struct sy_profile *profile, int n_layers)
{
    const char *choices = profile->choices ? profile->choices : "";
    msgpack_pack_array(p, 6);
    msgpack_pack_uint64(p, (uint64_t)profile->n_threads);
    msgpack_pack_uint64(p, profile->storage_bytes_per_s);
    msgpack_pack_array(p, SY_PROFILE_BATCHES);
    for (int b = 0; b < SY_PROFILE_BATCHES; b++)
        msgpack_pack_uint64(p, (uint64_t)profile->batch[b]);
    msgpack_pack_array(p, SY_PROFILE_BATCHES);
    for (int b = 0; b < SY_PROFILE_BATCHES; b++) {
        int n = profile->layer_ns[b] ? n_layers : 0;
        msgpack_pack_array(p, (size_t)n);
        for (int i = 0; i < n; i++)
            msgpack_pack_uint64(p, profile->layer_ns[b][i]);
    }
    msgpack_pack_str(p, strlen(choices));
    msgpack_pack_str_body(p, choices, strlen(choices));
    msgpack_pack_array(p, profile->solo_batches ? (size_t)n_layers : 0);
    for (int i = 0; profile->solo_batches && i < n_layers; i++)
        msgpack_pack_uint32(p, profile->solo_batches[i]);
}

/* A constant stays in the graph unless all its uses are as a packed parameter. */
static bool *choose_kept(const struct sy_package *package)
{
    const struct sy_graph *graph = package->graph;
    bool *keep = calloc((size_t)graph->n_tensors + 1, sizeof *keep);
    if (!keep)
        return NULL;
    for (int l = 0; l < package->n_layers; l++) {
        const struct sy_layer *layer = &package->layers[l];
        const struct sy_node *node = &graph->nodes[layer->node];
        for (int i = 0; i < node->n_inputs; i++) {
            bool packed = false;
            for (int p = 0; p < layer->n_params; p++)
                packed = packed || layer->params[p].input == i;
            if (!packed && node->inputs[i] >= 0)
                keep[node->inputs[i]] = true;
        }
        for (int i = 0; i < node->n_attrs; i++)
            if (node->attrs[i].kind == SY_ATTR_TENSOR && node->attrs[i].tensor >= 0)
                keep[node->attrs[i].tensor] = true;
    }
    for (int i = 0; i < graph->n_outputs; i++)
        keep[graph->outputs[i]] = true;
    return keep;
}

int sy_package_meta_encode(const struct sy_package *package, void **out, size_t *out_bytes)
{
    void *graph = NULL;
    size_t graph_bytes = 0;
    bool *keep = choose_kept(package);
    SY_TRY_ALLOC(keep, "no memory to write package %s", package->name);
    int status = sy_graph_encode(package->graph, keep, &graph, &graph_bytes);
    free(keep);
    SY_TRY(status);

    msgpack_sbuffer buffer;
    msgpack_packer p;
    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&p, &buffer, msgpack_sbuffer_write);
    msgpack_pack_array(&p, 6);
    pack_str(&p, package->name);
    pack_str(&p, package->packed_for);
    pack_bin(&p, graph, graph_bytes);
    free(graph);
    msgpack_pack_array(&p, (size_t)package->n_layers);
    for (int i = 0; i < package->n_layers; i++)
        pack_layer(&p, &package->layers[i]);
    msgpack_pack_array(&p, (size_t)package->n_layers);
    for (int i = 0; i < package->n_layers; i++)
        msgpack_pack_uint64(&p, package->layer_hash[i]);
    pack_profile(&p, &package->profile, package->n_layers);
    *out_bytes = buffer.size;
    *out = msgpack_sbuffer_release(&buffer);
    return *out ? SY_OK
                : sy_error_set(SY_ENOMEM_HOST, "no memory to write package %s", package->name);
}

/* ---- decode ------------------------------------------------------------------------------------------ */

static int bad(const char *what)
{
    return sy_error_set(SY_ECORRUPT, "meta section: %s", what);
}

static int take_u64(const msgpack_object *o, uint64_t limit, uint64_t *out)
{
    if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER || o->via.u64 > limit)
        return bad("a number is missing or out of range");
    *out = o->via.u64;
    return SY_OK;
}

static int take_array(const msgpack_object *o, uint32_t min, uint32_t max, const char *what)
{
    if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size < min || o->via.array.size > max)
        return bad(what);
    return SY_OK;
}

static int take_str(const msgpack_object *o, uint32_t limit_bytes, char **out)
{
    if (o->type != MSGPACK_OBJECT_STR || o->via.str.size > limit_bytes)
        return bad("a text is missing or too long");
    *out = sy_text_copy(o->via.str.ptr, o->via.str.size);
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a name");
}

static int take_param(const msgpack_object *o, const struct sy_layer *layer, struct sy_param *param)
{
    uint64_t input = 0;
    SY_TRY(take_array(o, 4, 4, "a parameter"));
    const msgpack_object *f = o->via.array.ptr;
    SY_TRY(take_u64(&f[0], 1024, &input));
    SY_TRY(take_u64(&f[1], layer->bytes, &param->offset_bytes));
    SY_TRY(take_u64(&f[2], layer->bytes - param->offset_bytes, &param->bytes));
    if (param->offset_bytes % SY_PARAM_ALIGN)
        return bad("a parameter is not aligned");
    if (f[3].type != MSGPACK_OBJECT_BIN || f[3].via.bin.size > MAX_LAYOUT_BYTES)
        return bad("a parameter's layout");
    param->input = (int)input;
    param->layout_bytes = f[3].via.bin.size;
    param->layout = malloc(param->layout_bytes ? param->layout_bytes : 1);
    SY_TRY_ALLOC(param->layout, "no memory for a layout");
    if (param->layout_bytes > 0) /* the library gives NULL for no bytes */
        memcpy(param->layout, f[3].via.bin.ptr, param->layout_bytes);
    return SY_OK;
}

static int take_layer(const msgpack_object *o, const struct sy_graph *graph, int expected_node,
                      struct sy_layer *layer)
{
    uint64_t node = 0;
    SY_TRY(take_array(o, 4, 4, "a layer"));
    const msgpack_object *f = o->via.array.ptr;
    SY_TRY(take_u64(&f[0], INT32_MAX, &node));
    if ((int)node != expected_node)
        return bad("the layers are not the graph's nodes in order");
    SY_TRY(take_u64(&f[1], 1ull << 50, &layer->offset_bytes));
    SY_TRY(take_u64(&f[2], 1ull << 50, &layer->bytes));
    if (layer->offset_bytes % SY_LAYER_ALIGN || layer->bytes % SY_LAYER_ALIGN)
        return bad("a layer is not aligned");
    uint32_t most = (uint32_t)graph->nodes[expected_node].n_inputs;
    SY_TRY(take_array(&f[3], 0, most, "a layer's parameters"));
    uint32_t n = f[3].via.array.size;
    layer->node = (int)node;
    layer->params = calloc(n ? n : 1, sizeof *layer->params);
    SY_TRY_ALLOC(layer->params, "no memory for %u parameters", n);
    for (uint32_t i = 0; i < n; i++) {
        SY_TRY(take_param(&f[3].via.array.ptr[i], layer, &layer->params[i]));
        layer->n_params++;
        const struct sy_node *at = &graph->nodes[layer->node];
        if (layer->params[i].input >= at->n_inputs || at->inputs[layer->params[i].input] < 0)
            return bad("a parameter of an input that its node has not");
    }
    return SY_OK;
}

static int take_layers(const msgpack_object *layers, const msgpack_object *hashes,
                       struct sy_package *package)
{
    uint64_t end = 0;
    SY_TRY(take_array(layers, 1, MAX_LAYERS, "the layer table"));
    uint32_t n = layers->via.array.size;
    if (n != (uint32_t)package->graph->n_nodes)
        return bad("there is not one layer for each node of the graph");
    SY_TRY(take_array(hashes, n, n, "the layer hashes"));
    package->layers = calloc(n, sizeof *package->layers);
    package->layer_hash = calloc(n, sizeof *package->layer_hash);
    SY_TRY_ALLOC(package->layers && package->layer_hash, "no memory for %u layers", n);
    for (uint32_t i = 0; i < n; i++) {
        struct sy_layer *layer = &package->layers[i];
        package->n_layers++; /* so that close frees what this one took */
        SY_TRY(take_layer(&layers->via.array.ptr[i], package->graph, (int)i, layer));
        SY_TRY(take_u64(&hashes->via.array.ptr[i], UINT64_MAX, &package->layer_hash[i]));
        if (layer->bytes && layer->offset_bytes != end)
            return bad("layers do not lie one after the other");
        end += layer->bytes;
    }
    package->weights_bytes = end;
    return SY_OK;
}

/* Copies the profile's solo bits to the layers, where engines read them. */
static int take_solo(const msgpack_object *o, struct sy_package *package)
{
    uint32_t n_layers = (uint32_t)package->n_layers;
    uint64_t mask = 0;
    SY_TRY(take_array(o, 0, n_layers, "the profile's thread choices"));
    if (o->via.array.size == 0)
        return SY_OK;
    SY_TRY(take_array(o, n_layers, n_layers, "the profile's thread choices"));
    package->profile.solo_batches = calloc(n_layers, sizeof *package->profile.solo_batches);
    SY_TRY_ALLOC(package->profile.solo_batches, "no memory for the profile");
    for (uint32_t i = 0; i < n_layers; i++) {
        SY_TRY(take_u64(&o->via.array.ptr[i], UINT32_MAX, &mask));
        package->profile.solo_batches[i] = package->layers[i].solo_batches = (uint32_t)mask;
    }
    return SY_OK;
}

static int take_profile(const msgpack_object *o, struct sy_package *package)
{
    uint64_t n_threads = 0, batch = 0;
    uint32_t n_layers = (uint32_t)package->n_layers;
    SY_TRY(take_array(o, 4, 6, "the profile"));
    const msgpack_object *f = o->via.array.ptr;
    SY_TRY(take_u64(&f[0], 1u << 20, &n_threads));
    SY_TRY(take_u64(&f[1], UINT64_MAX, &package->profile.storage_bytes_per_s));
    SY_TRY(take_array(&f[2], SY_PROFILE_BATCHES, SY_PROFILE_BATCHES, "the profile's batches"));
    SY_TRY(take_array(&f[3], SY_PROFILE_BATCHES, SY_PROFILE_BATCHES, "the profile's times"));
    package->profile.n_threads = (int)n_threads;
    for (int b = 0; b < SY_PROFILE_BATCHES; b++) {
        const msgpack_object *times = &f[3].via.array.ptr[b];
        SY_TRY(take_u64(&f[2].via.array.ptr[b], 1u << 20, &batch));
        package->profile.batch[b] = (int64_t)batch;
        SY_TRY(take_array(times, 0, n_layers, "the profile's layer times"));
        if (times->via.array.size == 0)
            continue;
        SY_TRY(take_array(times, n_layers, n_layers, "the profile's layer times"));
        uint64_t *ns = package->profile.layer_ns[b] = calloc(n_layers, sizeof *ns);
        SY_TRY_ALLOC(ns, "no memory for the profile");
        for (uint32_t i = 0; i < n_layers; i++)
            SY_TRY(take_u64(&times->via.array.ptr[i], UINT64_MAX / n_layers, &ns[i]));
    }
    if (o->via.array.size > 4)
        SY_TRY(take_str(&f[4], MAX_CHOICES_BYTES, &package->profile.choices));
    return o->via.array.size > 5 ? take_solo(&f[5], package) : SY_OK;
}

static int take_meta(const msgpack_object *o, struct sy_package *package)
{
    SY_TRY(take_array(o, 6, 6, "it is not the array that it should be"));
    const msgpack_object *f = o->via.array.ptr;
    SY_TRY(take_str(&f[0], MAX_NAME_BYTES, &package->name));
    SY_TRY(take_str(&f[1], MAX_NAME_BYTES, &package->packed_for));
    if (f[2].type != MSGPACK_OBJECT_BIN)
        return bad("the graph is missing");
    if (f[2].via.bin.size == 0)
        return bad("the graph is empty");
    SY_TRY(sy_graph_decode(f[2].via.bin.ptr, f[2].via.bin.size, &package->graph));
    SY_TRY(take_layers(&f[3], &f[4], package));
    return take_profile(&f[5], package);
}

int sy_package_meta_decode(const void *bytes, size_t n_bytes, struct sy_package *package)
{
    msgpack_unpacked result;
    struct sy_msgpack_scan scan;
    size_t offset = 0;
    sy_msgpack_scan_init(&scan, n_bytes, MAX_ELEMENTS);
    if (sy_msgpack_scan(&scan, bytes, n_bytes) != 1 || scan.at != n_bytes)
        return bad("it is not one msgpack object");
    msgpack_unpacked_init(&result);
    msgpack_unpack_return got = msgpack_unpack_next(&result, bytes, n_bytes, &offset);
    int status = got == MSGPACK_UNPACK_SUCCESS && offset == n_bytes
                     ? take_meta(&result.data, package)
                     : bad("it is not one msgpack object");
    msgpack_unpacked_destroy(&result);
    return status;
}
