/* Models run on the host engine: whatever was accepted at import runs, or fails with a status, for any input values. */
#include <ftw.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/engine.h"
#include "loader/graph/graph.h"
#include "loader/graph/graph_bind.h"
#include "loader/graph/string_tensor.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"

#define BATCH          2
#define MAX_NODES      64
#define MAX_ELEMENTS   (1 << 14) /* of one tensor: larger ones only cost time */
#define MAX_WORKSPACE  (16u << 20)
#define MAX_MODELS     1500
#define MAX_SEED_BYTES 4096

static const struct sy_engine_ops *const engine = &sy_host_engine;

/* ---- one model ----------------------------------------------------------------------------------------- */

struct loaded {
    struct sy_graph *graph,
        *bound; /* `bound`: with a string heap of the least size, if it has strings */
    struct sy_layer *layers;
    unsigned char **params;
    void **inputs, **outputs;
};

static bool is_small_graph(const struct sy_graph *graph)
{
    if (graph->n_nodes > MAX_NODES || graph->n_nodes < 1)
        return false;
    for (int t = 0; t < graph->n_tensors; t++) {
        int64_t n = sy_shape_elements(&graph->tensors[t].shape, BATCH);
        if (n < 0 || n > MAX_ELEMENTS)
            return false;
    }
    return true;
}

static int bind(struct loaded *m)
{
    struct sy_sizes sizes;
    int heap = sy_graph_string_size(m->graph);
    sy_graph_usual_sizes(m->graph, &sizes);
    if (heap >= 0)
        sizes.of[heap] = SY_STRING_LEAST;
    return sy_graph_bind(m->graph, &sizes, &m->bound);
}

static int pack(struct loaded *m)
{
    for (int l = 0; l < m->graph->n_nodes; l++) {
        m->layers[l].node = l;
        SY_TRY(engine->layout_layer(m->graph, &m->layers[l]));
        FUZZ_CHECK(m->layers[l].bytes <= 64u << 20);
        m->params[l] = aligned_alloc(SY_LAYER_ALIGN, m->layers[l].bytes + SY_LAYER_ALIGN);
        FUZZ_CHECK(m->params[l]);
        SY_TRY(engine->pack_layer(m->graph, &m->layers[l], m->params[l]));
    }
    return SY_OK;
}

/* Of exactly its size, so that the sanitizer sees the first byte too many. */
static void *make_room(uint64_t bytes)
{
    void *block = NULL;
    FUZZ_CHECK(posix_memalign(&block, SY_PARAM_ALIGN, bytes) == 0);
    return block;
}

/* Short ones, of letters, blanks and any bytes. */
static void *make_strings(uint64_t room, size_t n, unsigned *seed)
{
    unsigned char *block = make_room(room), *to = block + SY_STRING_HEAD;
    uint32_t left = SY_STRING_LEAST; /* of the room for texts */
    for (size_t i = 0; i < n; i++) {
        uint32_t wanted = (uint32_t)rand_r(seed) % 6, bytes = SY_MIN(wanted, left);
        left -= bytes;
        memcpy(to, &bytes, sizeof bytes);
        to += sizeof bytes;
        for (uint32_t k = 0; k < bytes; k++)
            *to++ = rand_r(seed) % 4 ? (unsigned char)("aBc 1"[rand_r(seed) % 5])
                                     : (unsigned char)rand_r(seed);
    }
    sy_string_block_end(block + SY_STRING_HEAD, (uint64_t)(to - block) - SY_STRING_HEAD);
    return block;
}

/* Whole numbers are small, of both signs. */
static void *make_input(const struct sy_graph *graph, int tensor, unsigned *seed)
{
    const struct sy_tensor *t = &graph->tensors[tensor];
    size_t size = sy_dtype_bytes(t->dtype);
    size_t n = (size_t)sy_shape_elements(&t->shape, BATCH);
    if (t->dtype == SY_DTYPE_STRING)
        return make_strings(sy_graph_tensor_room(graph, tensor, BATCH), n, seed);
    unsigned char *data = make_room(n * size);
    for (size_t i = 0; i < n; i++) {
        int64_t whole = rand_r(seed) % 8 ? rand_r(seed) % 5 : rand_r(seed) % 2001 - 1000;
        float real = (float)whole / 4.0f;
        if (t->dtype == SY_DTYPE_F32)
            memcpy(data + i * size, &real, size);
        else if (t->dtype == SY_DTYPE_BOOL)
            data[i] = whole & 1;
        else
            memcpy(data + i * size, &whole, size);
    }
    return data;
}

static int run(struct loaded *m, unsigned *seed)
{
    struct sy_graph *g = m->bound;
    struct sy_program *program = NULL;
    SY_TRY(engine->program_create(g, m->layers, g->n_nodes, BATCH, &program));
    uint64_t bytes = engine->program_workspace_bytes(program);
    void *workspace =
        bytes <= MAX_WORKSPACE
            ? aligned_alloc(SY_PARAM_ALIGN, (bytes / SY_PARAM_ALIGN + 1) * SY_PARAM_ALIGN)
            : NULL;
    int status = SY_OK;
    if (workspace) {
        for (int i = 0; i < g->n_inputs; i++)
            m->inputs[i] = make_input(g, g->inputs[i], seed);
        for (int i = 0; i < g->n_outputs; i++)
            m->outputs[i] = make_room(sy_graph_tensor_room(g, g->outputs[i], BATCH));
        memset(workspace, 0xff, bytes);
        struct sy_binding binding = {m->params, workspace, (const void *const *)m->inputs,
                                     m->outputs};
        status = engine->program_run(program, &binding, 0, g->n_nodes);
    }
    free(workspace);
    engine->program_destroy(program);
    return status;
}

static void release(struct loaded *m)
{
    for (int l = 0; m->layers && l < m->graph->n_nodes; l++) {
        for (int p = 0; p < m->layers[l].n_params; p++)
            free(m->layers[l].params[p].layout);
        free(m->layers[l].params);
        free(m->params[l]);
    }
    for (int i = 0; m->inputs && i < m->graph->n_inputs; i++)
        free(m->inputs[i]);
    for (int i = 0; m->outputs && i < m->graph->n_outputs; i++)
        free(m->outputs[i]);
    free(m->layers);
    free(m->params);
    free(m->inputs);
    free(m->outputs);
    sy_graph_free(m->bound); /* borrows constants of the other */
    sy_graph_free(m->graph);
}

static void use_one_core(void)
{
    static bool done;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (done || sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    done = true;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &set)) {
            FUZZ_CHECK(engine->set_threads(&core, 1) == SY_OK);
            return;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct loaded m = {0};
    unsigned seed = (unsigned)size;
    use_one_core();
    if (sy_onnx_read(fuzz_file(data, size), &m.graph) < 0)
        return 0;
    if (sy_graph_infer(m.graph) == SY_OK && sy_graph_optimize(m.graph) == SY_OK &&
        is_small_graph(m.graph)) {
        size_t n = (size_t)m.graph->n_nodes;
        m.layers = calloc(n, sizeof *m.layers);
        m.params = calloc(n, sizeof *m.params);
        m.inputs = calloc((size_t)m.graph->n_inputs + 1, sizeof *m.inputs);
        m.outputs = calloc((size_t)m.graph->n_outputs + 1, sizeof *m.outputs);
        FUZZ_CHECK(m.layers && m.params && m.inputs && m.outputs);
        if (bind(&m) == SY_OK && pack(&m) == SY_OK)
            run(&m, &seed);
    }
    release(&m);
    return 0;
}

/* ---- seeds: ONNX's own test models, where they are installed --------------------------------------------- */

static char *models[MAX_MODELS];
static int n_models;

static int note_small(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)where;
    if (kind == FTW_F && strcmp(strrchr(path, '/') + 1, "model.onnx") == 0 &&
        info->st_size < MAX_SEED_BYTES && n_models < MAX_MODELS)
        models[n_models++] = strdup(path);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    if (i == 0) {
        nftw("/usr/share/libonnx-testdata/data", note_small, 8, FTW_PHYS);
        qsort(models, (size_t)n_models, sizeof *models, by_name);
    }
    FILE *file = i < n_models ? fopen(models[i], "rb") : NULL;
    if (!file)
        return 0;
    size_t n = fread(to, 1, room, file);
    fclose(file);
    return n;
}

__attribute__((destructor)) static void forget_models(void)
{
    while (n_models > 0)
        free(models[--n_models]);
}
