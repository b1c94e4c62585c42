#include "tests/rigs/whole_import.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/graph/engine.h"
#include "loader/graph/graph.h"
#include "loader/package/package.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static const struct sy_engine_ops *const engine = &sy_host_engine;

const char *whole_stage_name(int stage)
{
    static const char *const names[] = {"read",    "infer",     "optimize", "package",
                                        "program", "too large", "run",      "done"};
    return stage >= 0 && stage < (int)SY_ARRAY_LEN(names) ? names[stage] : "?";
}

static int use_one_core(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &set))
            return engine->set_threads(&core, 1);
    return SY_ENODEVICE;
}

static bool is_large(const struct sy_graph *graph, const struct whole_limits *limits)
{
    for (int t = 0; t < graph->n_tensors; t++) {
        int64_t n = sy_shape_elements(&graph->tensors[t].shape, limits->batch);
        if (n < 0 || n > limits->most_elements)
            return true;
    }
    return false;
}

/* Small numbers, quarters of either sign; seldom larger ones. Of exactly its size, so that a sanitizer sees the first byte too many. */
static void *make_tensor(const struct sy_graph *graph, int tensor, int64_t batch, unsigned *seed)
{
    const struct sy_tensor *t = &graph->tensors[tensor];
    size_t size = sy_dtype_bytes(t->dtype), n = (size_t)sy_shape_elements(&t->shape, batch);
    void *block = NULL;
    if (posix_memalign(&block, SY_PARAM_ALIGN, sy_graph_tensor_room(graph, tensor, batch)) != 0)
        abort();
    unsigned char *data = block;
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

static void **make_tensors(const struct sy_graph *graph, const int *list, int n, int64_t batch,
                           unsigned *seed)
{
    void **tensors = calloc((size_t)n + 1, sizeof *tensors);
    if (!tensors)
        abort();
    for (int i = 0; i < n; i++)
        tensors[i] = make_tensor(graph, list[i], batch, seed);
    return tensors;
}

static void drop_tensors(void **tensors, int n)
{
    for (int i = 0; i < n; i++)
        free(tensors[i]);
    free(tensors);
}

static unsigned char **read_weights(const struct sy_package *package, unsigned char **block)
{
    unsigned char **params = calloc((size_t)package->n_layers + 1, sizeof *params);
    int fd = open(package->path, O_RDONLY | O_CLOEXEC);
    *block = aligned_alloc(SY_LAYER_ALIGN, package->weights_bytes + SY_LAYER_ALIGN);
    if (!params || !*block || fd < 0 ||
        pread(fd, *block, package->weights_bytes, (off_t)package->weights_offset) !=
            (ssize_t)package->weights_bytes)
        abort();
    close(fd);
    for (int l = 0; l < package->n_layers; l++)
        params[l] = *block + package->layers[l].offset_bytes;
    return params;
}

static int run(const struct sy_package *package, struct sy_program *program,
               const struct whole_limits *limits, unsigned seed, volatile int *stage)
{
    const struct sy_graph *g = package->usual;
    uint64_t bytes = engine->program_workspace_bytes(program);
    if (bytes > limits->most_workspace) {
        *stage = WHOLE_LARGE;
        return SY_OK;
    }
    *stage = WHOLE_RUN;
    unsigned char *weights, **params = read_weights(package, &weights);
    void *workspace =
        aligned_alloc(SY_PARAM_ALIGN, SY_ALIGN_UP(bytes + 1, (uint64_t)SY_PARAM_ALIGN));
    if (!workspace)
        abort();
    memset(workspace, 0xff, bytes);
    void **inputs = make_tensors(g, g->inputs, g->n_inputs, limits->batch, &seed);
    void **outputs = make_tensors(g, g->outputs, g->n_outputs, limits->batch, &seed);
    struct sy_binding binding = {params, workspace, (const void *const *)inputs, outputs};
    int status = engine->program_run(program, &binding, 0, package->n_layers);
    if (status == SY_OK)
        *stage = WHOLE_DONE;
    drop_tensors(inputs, g->n_inputs);
    drop_tensors(outputs, g->n_outputs);
    free(workspace);
    free(weights);
    free(params);
    return status;
}

static int run_package(const char *path, const struct whole_limits *limits, unsigned seed,
                       volatile int *stage)
{
    struct sy_package *package;
    struct sy_program *program = NULL;
    SY_TRY(sy_package_open(path, &package));
    int status = sy_package_check_engine(package, engine);
    if (status == SY_OK && is_large(package->usual, limits)) {
        *stage = WHOLE_LARGE;
        sy_package_close(package);
        return SY_OK;
    }
    if (status == SY_OK) {
        *stage = WHOLE_PROGRAM;
        status = engine->program_create(package->usual, package->layers, package->n_layers,
                                        limits->batch, &program);
    }
    if (status == SY_OK) {
        status = run(package, program, limits, seed, stage);
        engine->program_destroy(program);
    }
    sy_package_close(package);
    return status;
}

void whole_import(const char *model, const char *package, const struct whole_limits *limits,
                  unsigned seed, volatile int *stage, int *status)
{
    struct sy_graph *graph = NULL;
    *stage = WHOLE_READ;
    *status = sy_onnx_read(model, &graph);
    if (*status == SY_OK) {
        *stage = WHOLE_INFER;
        *status = sy_graph_infer(graph);
    }
    if (*status == SY_OK) {
        *stage = WHOLE_OPTIMIZE;
        *status = sy_graph_optimize(graph);
    }
    if (*status == SY_OK)
        *status = use_one_core();
    if (*status == SY_OK) {
        *stage = WHOLE_PACKAGE;
        *status = sy_package_write(package, "model", graph, engine, NULL, NULL);
    }
    sy_graph_free(graph);
    if (*status == SY_OK)
        *status = run_package(package, limits, seed, stage);
    unlink(package);
}
