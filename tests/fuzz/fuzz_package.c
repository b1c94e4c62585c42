/* Packages: header, meta section, graph. Hashes would stop nearly every mutation at the door, so the first byte of an
 * input says which of them are made right again, or that the rest is a bare meta section or graph.
 *
 * input = [mode] file | [mode] meta | [mode] graph */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "loader/package/package.h"
#include "loader/package/package_header.h"
#include "loader/package/package_meta.h"
#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"
#include "tests/nets/graph_builder.h"

enum mode { MODE_FILE, MODE_HEADER_HASH, MODE_ALL_HASHES, MODE_META, MODE_GRAPH, N_MODES };

/* What was decoded encodes, and decodes to the same bytes. */
static void check_meta(const struct sy_package *package)
{
    void *first = NULL, *second = NULL;
    size_t n = 0, m = 0;
    struct sy_package *again = calloc(1, sizeof *again);
    FUZZ_CHECK(again);
    again->fd = -1;
    FUZZ_CHECK(sy_package_meta_encode(package, &first, &n) == SY_OK);
    FUZZ_CHECK(sy_package_meta_decode(first, n, again) == SY_OK);
    FUZZ_CHECK(sy_package_meta_encode(again, &second, &m) == SY_OK);
    FUZZ_CHECK(n == m && memcmp(first, second, n) == 0);
    sy_package_close(again);
    free(first);
    free(second);
}

static void check_layers(const struct sy_package *package)
{
    uint64_t end = 0, total = 0;
    for (int i = 0; i < package->n_layers; i++) {
        const struct sy_layer *layer = &package->layers[i];
        FUZZ_CHECK(layer->node == i && i < package->graph->n_nodes);
        FUZZ_CHECK(layer->bytes == 0 || layer->offset_bytes == end);
        end += layer->bytes;
        for (int p = 0; p < layer->n_params; p++)
            FUZZ_CHECK(layer->params[p].offset_bytes + layer->params[p].bytes <= layer->bytes);
        total += sy_package_layer_ns(package, i, 1) & 1;
        total += sy_package_layer_ns(package, i, 1024) & 1;
    }
    FUZZ_CHECK(end == package->weights_bytes && total <= 2u * (unsigned)package->n_layers);
}

static void open_file(const uint8_t *data, size_t size)
{
    struct sy_package *package = NULL;
    if (sy_package_open(fuzz_file(data, size), &package) < 0) {
        FUZZ_CHECK(!package);
        return;
    }
    FUZZ_CHECK(package->weights_offset + package->weights_bytes == size);
    check_layers(package);
    check_meta(package);
    sy_package_verify(package, 0, package->n_layers, data + package->weights_offset);
    sy_package_close(package);
}

static void open_repaired(const uint8_t *data, size_t size, bool meta_too)
{
    struct sy_package_header h;
    uint8_t *copy = malloc(size);
    FUZZ_CHECK(copy);
    memcpy(copy, data, size);
    memcpy(&h, copy, sizeof h);
    if (meta_too && h.meta_bytes <= size - sizeof h)
        h.meta_hash = XXH3_64bits(copy + sizeof h, h.meta_bytes);
    h.header_hash = sy_package_header_hash(&h);
    memcpy(copy, &h, sizeof h);
    open_file(copy, size);
    free(copy);
}

static void open_meta(const uint8_t *data, size_t size)
{
    struct sy_package *package = calloc(1, sizeof *package);
    FUZZ_CHECK(package);
    package->fd = -1;
    if (sy_package_meta_decode(data, size, package) == SY_OK) {
        check_layers(package);
        check_meta(package);
    }
    sy_package_close(package);
}

static void open_graph(const uint8_t *data, size_t size)
{
    struct sy_graph *graph = NULL;
    if (sy_graph_decode(data, size, &graph) < 0) {
        FUZZ_CHECK(!graph);
        return;
    }
    void *bytes = NULL;
    size_t n = 0;
    FUZZ_CHECK(sy_graph_encode(graph, NULL, &bytes, &n) == SY_OK);
    free(bytes);
    sy_graph_free(graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    enum mode mode = (enum mode)(data[0] % N_MODES);
    data++, size--;
    if (mode == MODE_META)
        open_meta(data, size);
    else if (mode == MODE_GRAPH)
        open_graph(data, size);
    else if (mode == MODE_FILE || size < sizeof(struct sy_package_header))
        open_file(data, size);
    else
        open_repaired(data, size, mode == MODE_ALL_HASHES);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------------------------ */

static int describe(char *buffer, size_t bytes)
{
    buffer[0] = 'f', buffer[bytes > 1] = 0;
    return SY_OK;
}

static int layout(const struct sy_graph *g, struct sy_layer *layer)
{
    const struct sy_node *node = &g->nodes[layer->node];
    layer->params = calloc((size_t)node->n_inputs, sizeof *layer->params);
    for (int i = 0; i < node->n_inputs; i++)
        if (g->tensors[node->inputs[i]].data && i == 1) { /* a third input stays in the graph */
            layer->params[layer->n_params++] = (struct sy_param){i, 0, 64, 4, strdup("lay")};
            layer->bytes = 64;
        }
    return SY_OK;
}

static int pack(const struct sy_graph *g, const struct sy_layer *layer, void *to)
{
    (void)g;
    memset(to, 'w', layer->bytes);
    return SY_OK;
}

static struct sy_graph *small_graph(void)
{
    uint64_t seed = 5;
    struct sy_graph *g = gb_new("g");
    int x = gb_input(g, 4, (const int64_t[]){1, 1, 4, 4});
    int w = gb_constant(g, "w", 4, (const int64_t[]){1, 1, 3, 3}, &seed, -1, 1);
    int b = gb_constant(g, "b", 1, (const int64_t[]){1}, &seed, -1, 1);
    int c = gb_node(g, SY_OP_CONV, 3, (int[]){x, w, b}, 4, (const int64_t[]){1, 1, 2, 2});
    gb_ints(g, "kernel_shape", 2, (const int64_t[]){3, 3});
    gb_float(g, "alpha", 0.5f);
    gb_int(g, "group", 1);
    gb_output(g, gb_node(g, SY_OP_RELU, 1, &c, 4, (const int64_t[]){1, 1, 2, 2}));
    return g;
}

/* The whole file as written, once with a profile. */
static size_t make_package(uint8_t *to, size_t room, bool with_profile)
{
    static const struct sy_engine_ops engine = {
        .name = "fuzz", .describe = describe, .layout_layer = layout, .pack_layer = pack};
    uint64_t ns[2] = {1000, 2000};
    const struct sy_profile profile = {
        .n_threads = 2, .storage_bytes_per_s = 1, .batch = {1, 8}, .layer_ns = {ns, ns}};
    char path[] = "/tmp/sy-fuzz-XXXXXX";
    struct sy_graph *graph = small_graph();
    if (with_profile) /* and nothing where there may be nothing */
        graph->name[0] = graph->nodes[1].name[0] = graph->tensors[0].name[0] = 0;
    int fd = mkstemp(path);
    FUZZ_CHECK(fd >= 0);
    close(fd);
    FUZZ_CHECK(sy_package_write(path, with_profile ? "" : "g", graph, &engine, NULL, NULL) ==
               SY_OK);
    FUZZ_CHECK(!with_profile || sy_package_set_profile(path, &profile) == SY_OK);
    sy_graph_free(graph);
    FILE *file = fopen(path, "rb");
    FUZZ_CHECK(file);
    size_t n = fread(to, 1, room, file);
    fclose(file);
    unlink(path);
    return n;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    if (i >= 2 * N_MODES)
        return 0;
    enum mode mode = (enum mode)(i % N_MODES);
    struct sy_package_header h;
    size_t n = make_package(to + 1, room - 1, i >= N_MODES);
    memcpy(&h, to + 1, sizeof h);
    to[0] = (uint8_t)mode;
    if (mode == MODE_META) {
        memmove(to + 1, to + 1 + sizeof h, h.meta_bytes);
        return 1 + h.meta_bytes;
    }
    if (mode == MODE_GRAPH) {
        void *bytes = NULL;
        struct sy_graph *graph = small_graph();
        bool keep[8] = {0, 1, 1, 1, 1, 1, 1, 1};
        FUZZ_CHECK(graph->n_tensors <= 8);
        FUZZ_CHECK(sy_graph_encode(graph, keep, &bytes, &n) == SY_OK);
        sy_graph_free(graph);
        n = fuzz_give(bytes, n, to + 1, room - 1);
        free(bytes);
    }
    return 1 + n;
}
