/* Runs one case. What an engine holds is given back; graphs and arrays are the process's, which ends soon. */
#include "tests/onnx_data/onnx_case.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/graph/engine.h"
#include "loader/graph/graph_bind.h"
#include "loader/graph/list_ends.h"
#include "loader/graph/string_tensor.h"
#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"

enum { MAX_TENSORS = SY_MAX_ENDS, MAX_TAKEN = 4096 };

/* The host engine, unless the binary is linked with a rig_choose_engine. */
static struct rig_engine rig = {.ops = &sy_host_engine};

/* What the case has taken, and its programs. */
static void *taken[MAX_TAKEN];
static struct sy_program *programs[MAX_TAKEN];
static int n_taken, n_programs;

static void *take(uint64_t bytes)
{
    uint64_t pages = bytes / SY_LAYER_ALIGN + 1;
    if (n_taken == MAX_TAKEN)
        return NULL;
    void *memory = rig.take ? rig.take(pages * SY_LAYER_ALIGN)
                            : aligned_alloc(SY_LAYER_ALIGN, pages * SY_LAYER_ALIGN);
    taken[n_taken] = memory;
    n_taken += memory != NULL;
    return memory;
}

/* Before the graph that they were made of goes. */
static void drop_programs(void)
{
    if (rig.synchronize)
        (void)rig.synchronize();
    while (n_programs > 0)
        rig.ops->program_destroy(programs[--n_programs]);
}

static void give_all_back(void)
{
    drop_programs();
    while (n_taken > 0) {
        void *memory = taken[--n_taken];
        if (rig.drop)
            rig.drop(memory);
        else
            free(memory);
    }
}

static void choose_engine(void)
{
    static bool chosen;
    if (rig_choose_engine && !chosen)
        rig_choose_engine(&rig);
    chosen = true;
}

static void *view(void *memory)
{
    return rig.device_view ? rig.device_view(memory) : memory;
}

struct loaded {
    struct sy_graph *open, *graph; /* as imported; with the sizes of a data set */
    struct sy_layer *layers;
    unsigned char **params; /* as the engine sees them */
    int64_t batch;          /* of the data set */
};

static int use_one_core(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &set))
            return rig.ops->set_threads(&core, 1);
    return SY_ENODEVICE;
}

static int pack(struct loaded *model, int l)
{
    struct sy_layer *layer = &model->layers[l];
    layer->node = l;
    SY_TRY(rig.ops->layout_layer(model->graph, layer));
    unsigned char *params = take(layer->bytes);
    if (!params)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for layer %d", l);
    model->params[l] = view(params);
    return rig.ops->pack_layer(model->graph, layer, params);
}

static int load(const char *folder, struct loaded *model)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    struct sy_sizes sizes;
    SY_TRY(sy_onnx_read(path, &model->open));
    SY_TRY(sy_graph_infer(model->open));
    SY_TRY(sy_graph_optimize(model->open));
    choose_engine();
    if (rig.ops->fuses)
        SY_TRY(sy_graph_fuse(model->open, rig.ops->fuses));
    SY_TRY(use_one_core());
    sy_graph_usual_sizes(model->open, &sizes);
    SY_TRY(sy_graph_bind(model->open, &sizes, &model->graph));
    size_t n = (size_t)model->graph->n_nodes + 1;
    model->layers = calloc(n, sizeof *model->layers);
    model->params = calloc(n, sizeof *model->params);
    if (!model->layers || !model->params)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %zu layers", n);
    for (int l = 0; l < model->graph->n_nodes; l++)
        SY_TRY(pack(model, l));
    return SY_OK;
}

/* ---- one data set ------------------------------------------------------------------------------- */

/* Inputs or outputs of a graph. */
struct ends {
    const struct sy_graph *graph;
    const int *tensors;
    int n;
};

static bool is_part(const struct ends *ends, int i, int of, const char *end)
{
    char name[1200];
    if (i >= ends->n)
        return false;
    snprintf(name, sizeof name, "%s%s", ends->graph->tensors[ends->tensors[of]].name, end);
    return strcmp(ends->graph->tensors[ends->tensors[i]].name, name) == 0;
}

/* One file: a tensor, the tensors of a sequence that import knows, or the parts of another. */
static int read_end(const struct ends *ends, int at, const char *path, struct onnx_array *arrays,
                    char *text, size_t text_bytes)
{
    if (!is_part(ends, at + 1, at, SY_LIST_SHAPES))
        return onnx_array_read(path, &arrays[at], MAX_TENSORS - at, text, text_bytes);
    struct onnx_array parts[SY_LIST_PARTS];
    const struct sy_tensor *all = &ends->graph->tensors[ends->tensors[at]],
                           *shapes = &ends->graph->tensors[ends->tensors[at + 1]];
    bool is_input = sy_graph_is_input(ends->graph, ends->tensors[at]);
    int rank =
        is_input && sy_dim_is_number(shapes->shape.dims[1]) ? (int)shapes->shape.dims[1].fixed : 0;
    if (onnx_parts_read(path, all->dtype, rank, parts, text, text_bytes) < 0)
        return -1;
    int n = is_part(ends, at + 2, at, SY_LIST_HAS) ? 3 : 2;
    memcpy(&arrays[at], parts, (size_t)n * sizeof *parts);
    return n;
}

static int read_arrays(const char *set, const char *kind, const struct ends *ends,
                       struct onnx_array *arrays, char *text, size_t text_bytes)
{
    int n = 0;
    for (int file = 0; file < MAX_TENSORS && n + SY_LIST_PARTS < MAX_TENSORS; file++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s_%d.pb", set, kind, file);
        if (access(path, R_OK) != 0)
            break;
        int more = read_end(ends, n, path, arrays, text, text_bytes);
        if (more < 0)
            return -1;
        n += more;
    }
    return n;
}

/* N, from the first input whose shape has it. */
static int64_t find_batch(const struct sy_graph *graph, const struct onnx_array *inputs)
{
    for (int i = 0; i < graph->n_inputs; i++) {
        const struct sy_shape *shape = &graph->tensors[graph->inputs[i]].shape;
        if (shape->rank > 0 && shape->dims[0].per_batch == 1)
            return inputs[i].shape.dims[0].fixed;
    }
    return 1;
}

/* The graph with the sizes that the data set has; layers stay as they were laid out. */
static int bind_sizes(struct loaded *model, const struct onnx_array *inputs, int n)
{
    struct sy_given_input given[MAX_TENSORS];
    int64_t dims[MAX_TENSORS][SY_MAX_RANK], batch;
    struct sy_sizes sizes;
    for (int i = 0; i < n; i++) {
        for (int d = 0; d < inputs[i].shape.rank; d++)
            dims[i][d] = inputs[i].shape.dims[d].fixed;
        given[i] = (struct sy_given_input){i, inputs[i].shape.rank, dims[i]};
    }
    SY_TRY(sy_graph_solve(model->open, n, given, &batch, &sizes));
    drop_programs();
    sy_graph_free(model->graph);
    model->graph = NULL;
    model->batch = batch;
    return sy_graph_bind(model->open, &sizes, &model->graph);
}

static bool fits(const struct sy_tensor *tensor, const struct onnx_array *array, int64_t batch,
                 char *text, size_t text_bytes)
{
    char a[160], b[160];
    bool same = tensor->dtype == array->dtype && tensor->shape.rank == array->shape.rank;
    for (int i = 0; same && i < array->shape.rank; i++)
        same = sy_dim_at(tensor->shape.dims[i], batch) == array->shape.dims[i].fixed;
    if (!same)
        snprintf(text, text_bytes, "'%.60s' is %s %s, the data is %s %s", tensor->name,
                 sy_dtype_wire_name(tensor->dtype), sy_shape_text(&tensor->shape, a, sizeof a),
                 sy_dtype_wire_name(array->dtype), sy_shape_text(&array->shape, b, sizeof b));
    return same;
}

/* ONNX 1.12 stored bfloat16 as uint16. */
static void take_bfloats(const struct sy_graph *graph, const int *tensors, int n_tensors,
                         struct onnx_array *arrays, int n)
{
    for (int i = 0; i < n && i < n_tensors; i++)
        if (arrays[i].dtype == SY_DTYPE_U16 && graph->tensors[tensors[i]].dtype == SY_DTYPE_BF16)
            arrays[i].dtype = SY_DTYPE_BF16;
}

struct data_set {
    int n_inputs, n_outputs;
    struct onnx_array inputs[MAX_TENSORS], outputs[MAX_TENSORS];
    void *results[MAX_TENSORS];
    int64_t batch;
};

static bool check_set(const struct sy_graph *graph, struct data_set *d, char *text,
                      size_t text_bytes)
{
    if (d->n_inputs != graph->n_inputs || d->n_outputs != graph->n_outputs) {
        snprintf(text, text_bytes, "%d inputs and %d outputs, the data has %d and %d",
                 graph->n_inputs, graph->n_outputs, d->n_inputs, d->n_outputs);
        return false;
    }
    for (int i = 0; i < d->n_inputs; i++)
        if (!fits(&graph->tensors[graph->inputs[i]], &d->inputs[i], d->batch, text, text_bytes))
            return false;
    for (int i = 0; i < d->n_outputs; i++)
        if (!sy_graph_is_dynamic(graph, graph->outputs[i]) &&
            !fits(&graph->tensors[graph->outputs[i]], &d->outputs[i], d->batch, text, text_bytes))
            return false;
    return true;
}

/* An output whose dimensions the run says. */
static bool fits_result(const struct sy_graph *graph, int i, const struct data_set *d, char *text,
                        size_t text_bytes)
{
    struct sy_tensor ran = graph->tensors[graph->outputs[i]];
    uint64_t bytes;
    if (sy_graph_output_shape(graph, graph->outputs[i], d->batch, d->results[i], &ran.shape,
                              &bytes) < 0) {
        snprintf(text, text_bytes, "%s", sy_error_text());
        return false;
    }
    return fits(&ran, &d->outputs[i], d->batch, text, text_bytes);
}

static int compute(const struct loaded *model, struct data_set *d)
{
    struct sy_program *program;
    const void *inputs[MAX_TENSORS];
    int n = model->graph->n_nodes;
    if (n_programs == MAX_TAKEN)
        return sy_error_set(SY_EBUSY, "too many data sets");
    SY_TRY(rig.ops->program_create(model->graph, model->layers, n, d->batch, &program));
    programs[n_programs++] = program;
    size_t bytes = rig.ops->program_workspace_bytes(program);
    void *workspace = take(bytes);
    if (!workspace)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a workspace of %zu bytes", bytes);
    memset(workspace, 0xff, bytes);
    for (int i = 0; i < d->n_inputs; i++)
        inputs[i] = d->inputs[i].data;
    for (int i = 0; i < d->n_outputs; i++) {
        uint64_t room = sy_graph_tensor_room(model->graph, model->graph->outputs[i], d->batch);
        d->results[i] = take(room);
        if (!d->results[i])
            return sy_error_set(SY_ENOMEM_HOST, "no memory for an output");
        memset(d->results[i], 0xff, room);
    }
    struct sy_binding binding = {model->params, view(workspace), inputs, d->results};
    SY_TRY(rig.ops->program_run(program, &binding, 0, n));
    if (rig.synchronize)
        SY_TRY(rig.synchronize());
    return rig.ops->program_finish ? rig.ops->program_finish(program) : SY_OK;
}

static enum onnx_verdict run_set(struct loaded *model, const char *set, double slack, char *text,
                                 size_t text_bytes)
{
    static struct data_set d;
    char why[512];
    memset(&d, 0, sizeof d);
    const struct sy_graph *open = model->open;
    struct ends in = {open, open->inputs, open->n_inputs},
                out = {open, open->outputs, open->n_outputs};
    d.n_inputs = read_arrays(set, "input", &in, d.inputs, text, text_bytes);
    d.n_outputs =
        d.n_inputs < 0 ? -1 : read_arrays(set, "output", &out, d.outputs, text, text_bytes);
    if (d.n_outputs < 0)
        return ONNX_FAILED;
    if (model->open->n_symbols > 0 && d.n_inputs <= model->open->n_inputs &&
        bind_sizes(model, d.inputs, d.n_inputs) < 0) {
        snprintf(text, text_bytes, "%s", sy_error_text());
        return ONNX_FAILED;
    }
    d.batch = model->open->n_symbols > 0 ? model->batch : find_batch(model->graph, d.inputs);
    take_bfloats(model->graph, model->graph->inputs, model->graph->n_inputs, d.inputs, d.n_inputs);
    take_bfloats(model->graph, model->graph->outputs, model->graph->n_outputs, d.outputs,
                 d.n_outputs);
    for (int i = 0; i < d.n_inputs && i < model->graph->n_inputs; i++) {
        const struct sy_tensor *input = &model->graph->tensors[model->graph->inputs[i]];
        if (fits(input, &d.inputs[i], d.batch, why, sizeof why))
            continue;
        snprintf(text, text_bytes,
                 "model.onnx: an input of the test is not what its model declares");
        return ONNX_REFUSED; /* as a request with it would be */
    }
    if (!check_set(model->graph, &d, text, text_bytes))
        return ONNX_FAILED;
    if (d.batch < 1) {
        snprintf(text, text_bytes, "model.onnx: a batch of no rows");
        return ONNX_REFUSED;
    }
    if (compute(model, &d) < 0) {
        snprintf(text, text_bytes, "run: %s", sy_error_text());
        return ONNX_FAILED;
    }
    for (int i = 0; i < d.n_outputs; i++) {
        if (!fits_result(model->graph, i, &d, text, text_bytes))
            return ONNX_FAILED;
        const struct sy_graph *g = model->graph;
        uint64_t begin = d.outputs[i].dtype == SY_DTYPE_STRING
                             ? sy_graph_string_offset(g, g->outputs[i],
                                                      &g->tensors[g->outputs[i]].shape, d.batch)
                             : 0;
        if (onnx_array_matches(&d.outputs[i], (const char *)d.results[i] + begin, slack, why,
                               sizeof why))
            continue;
        snprintf(text, text_bytes, "output %d: %s", i, why);
        return ONNX_FAILED;
    }
    return ONNX_PASSED;
}

static enum onnx_verdict run_case(const char *folder, double slack, char *text, size_t text_bytes)
{
    struct loaded model = {0};
    int status = load(folder, &model), n = 0;
    if (status < 0) {
        snprintf(text, text_bytes, "%s", sy_error_text());
        return status == SY_EUNSUPPORTED ? ONNX_REFUSED : ONNX_FAILED;
    }
    for (;; n++) {
        char set[4096];
        snprintf(set, sizeof set, "%s/test_data_set_%d", folder, n);
        if (access(set, R_OK) != 0)
            break;
        enum onnx_verdict verdict = run_set(&model, set, slack, text, text_bytes);
        if (verdict != ONNX_PASSED)
            return verdict;
    }
    snprintf(text, text_bytes, "no test_data_set_0");
    return n > 0 ? ONNX_PASSED : ONNX_FAILED;
}

enum onnx_verdict onnx_case_run(const char *folder, double slack, char *text, size_t text_bytes)
{
    enum onnx_verdict verdict = run_case(folder, slack, text, text_bytes);
    give_all_back();
    return verdict;
}
