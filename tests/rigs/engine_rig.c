#include "tests/rigs/engine_rig.h"

#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_bind.h"
#include "loader/graph/graph_internal.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "tests/nets/naive_ops.h"
#include "tests/rigs/seed.h"

#define GUARD_BYTES 256
#define GUARD       0x6b

struct rig_engine rig_engine = {.ops = &sy_host_engine};
static int n_passed_over;
static const int64_t batches[] = {1, 2, 3, 5};

struct sy_graph *rig_sized(struct sy_graph *graph)
{
    struct sy_graph *bound, *copy;
    struct sy_sizes sizes;
    if (graph->n_symbols == 0)
        return graph;
    sy_graph_usual_sizes(graph, &sizes);
    if (sy_graph_bind(graph, &sizes, &bound) < 0 || sy_graph_clone(bound, &copy) < 0)
        fail_msg("%s", sy_error_text());
    sy_graph_free(bound);
    sy_graph_free(graph);
    return copy;
}

uint64_t rig_start(void)
{
    cpu_set_t set;
    int cores[2], n = 0;
#ifdef __SANITIZE_THREAD__
    const int wanted = 1;
#else
    const int wanted = 2;
#endif
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int core = 0; core < CPU_SETSIZE && n < wanted; core++)
        if (CPU_ISSET(core, &set))
            cores[n++] = core;
    if (rig_choose_engine)
        rig_choose_engine(&rig_engine);
    rig_engine.ops->set_threads(cores, n);
    printf("%d threads\n", n);
    return seed_of_run(1);
}

/* ---- graphs ------------------------------------------------------------------------------------- */

int64_t rig_int(uint64_t *seed, int64_t low, int64_t high)
{
    int64_t value = low + (int64_t)floor(gb_uniform(seed, 0, 1) * (double)(high - low + 1));
    return value > high ? high : value;
}

int rig_dims(uint64_t *seed, int low_rank, int high_rank, int64_t *dims)
{
    int rank = (int)rig_int(seed, low_rank, high_rank);
    dims[0] = 1;
    for (int i = 1; i < rank; i++)
        dims[i] = rig_int(seed, 1, rank > 4 ? 4 : 9);
    return rank;
}

void gb_type(struct sy_graph *g, int tensor, enum sy_dtype dtype)
{
    g->tensors[tensor].dtype = dtype;
}

int gb_input_of(struct sy_graph *g, enum sy_dtype dtype, int n, const int64_t *dims)
{
    int t = gb_input(g, n, dims);
    gb_type(g, t, dtype);
    return t;
}

void gb_fixed(struct sy_graph *g, int tensor)
{
    struct sy_dim *first = &g->tensors[tensor].shape.dims[0];
    *first = (struct sy_dim){first->fixed + first->per_batch, 0};
}

int gb_constant_of(struct sy_graph *g, enum sy_dtype dtype, int n, const int64_t *dims,
                   const int64_t *values)
{
    uint64_t unused = 0;
    int t = gb_constant(g, NULL, n, dims, &unused, 0, 0);
    struct sy_tensor *tensor = &g->tensors[t];
    int64_t elements = sy_shape_elements(&tensor->shape, 1);
    gb_type(g, t, dtype);
    tensor->data_bytes = (size_t)elements * sy_dtype_bytes(dtype);
    tensor->data = realloc(tensor->data, tensor->data_bytes);
    assert_non_null(tensor->data);
    for (int64_t i = 0; i < elements; i++) {
        if (dtype == SY_DTYPE_I64)
            ((int64_t *)tensor->data)[i] = values[i];
        else if (dtype == SY_DTYPE_I32)
            ((int32_t *)tensor->data)[i] = (int32_t)values[i];
        else
            ((uint8_t *)tensor->data)[i] = (uint8_t)values[i];
    }
    return t;
}

void gb_round_weights(struct sy_graph *g)
{
    for (int t = 0; t < g->n_tensors; t++) {
        float *floats = g->tensors[t].data;
        if (!floats || g->tensors[t].dtype != SY_DTYPE_F32 || g->tensors[t].shape.rank < 2)
            continue;
        for (size_t i = 0; i < g->tensors[t].data_bytes / sizeof *floats; i++)
            floats[i] = sy_bf16_to_float(sy_float_to_bf16(floats[i]));
    }
}

bool rig_only_stores_bf16(void)
{
    char cpu[256];
    if (rig_engine.ops != &sy_host_engine)
        return false;
    assert_int_equal(sy_host_engine.describe(cpu, sizeof cpu), SY_OK);
    return !strstr(cpu, "bf16") && !strstr(cpu, "amx");
}

void gb_string(struct sy_graph *g, const char *name, const char *value)
{
    gb_int(g, name, 0);
    struct sy_node *node = &g->nodes[g->n_nodes - 1];
    struct sy_attr *attr = &node->attrs[node->n_attrs - 1];
    attr->kind = SY_ATTR_STRING;
    attr->s = strdup(value);
    assert_non_null(attr->s);
}

/* Through the codec, as the package stores it. */
static struct sy_graph *copy_graph(const struct sy_graph *graph)
{
    void *image;
    size_t bytes;
    struct sy_graph *copy;
    bool *all = malloc((size_t)graph->n_tensors);
    assert_non_null(all);
    memset(all, true, (size_t)graph->n_tensors);
    if (sy_graph_encode(graph, all, &image, &bytes) < 0)
        fail_msg("%s: %s", graph->name, sy_error_text());
    if (sy_graph_decode(image, bytes, &copy) < 0)
        fail_msg("%s: %s", graph->name, sy_error_text());
    free(image);
    free(all);
    return copy;
}

/* ---- packing ------------------------------------------------------------------------------------ */

/* With `byte` inside, and a guard behind that shows writes past the end. */
static void *take_bytes(uint64_t bytes, int byte)
{
    uint64_t total = (bytes + GUARD_BYTES + 4095) / 4096 * 4096;
    unsigned char *memory = rig_engine.take ? rig_engine.take(total) : aligned_alloc(4096, total);
    assert_non_null(memory);
    memset(memory, byte, bytes);
    memset(memory + bytes, GUARD, total - bytes);
    return memory;
}

static void drop_bytes(void *memory)
{
    if (rig_engine.drop)
        rig_engine.drop(memory);
    else
        free(memory);
}

static bool is_guarded(const void *memory, uint64_t bytes)
{
    const unsigned char *at = (const unsigned char *)memory + bytes;
    for (int i = 0; i < GUARD_BYTES; i++)
        if (at[i] != GUARD)
            return false;
    return true;
}

static int pack(struct engine_rig *rig, int i)
{
    struct sy_layer *layer = &rig->layers[i];
    layer->node = i;
    rig->n_layers = i + 1;
    SY_TRY(rig_engine.ops->layout_layer(rig->graph, layer));
    layer->solo_batches = i % 2 ? 2 : 0; /* batches 2 and 3: every other layer in one thread */
    assert_int_equal(layer->bytes % SY_LAYER_ALIGN, 0);
    rig->params[i] = take_bytes(layer->bytes, 0xff);
    SY_TRY(rig_engine.ops->pack_layer(rig->graph, layer, rig->params[i]));
    assert_true(is_guarded(rig->params[i], layer->bytes));
    rig->packed[i] = take_bytes(layer->bytes, 0);
    memcpy(rig->packed[i], rig->params[i], layer->bytes);
    rig->absent[i] = take_bytes(layer->bytes, 0xff);
    return SY_OK;
}

int rig_open(struct engine_rig *rig, const struct sy_graph *graph, bool optimize)
{
    *rig = (struct engine_rig){.graph = copy_graph(graph)};
    if (optimize && sy_graph_optimize(rig->graph) < 0)
        fail_msg("%s: optimize: %s", graph->name, sy_error_text());
    if (optimize && rig_engine.ops->fuses && sy_graph_fuse(rig->graph, rig_engine.ops->fuses) < 0)
        fail_msg("%s: fuse: %s", graph->name, sy_error_text());
    size_t n = (size_t)rig->graph->n_nodes + 1;
    rig->layers = calloc(n, sizeof *rig->layers);
    rig->params = calloc(n, sizeof *rig->params);
    rig->packed = calloc(n, sizeof *rig->packed);
    rig->absent = calloc(n, sizeof *rig->absent);
    assert_true(rig->layers && rig->params && rig->packed && rig->absent);
    for (int i = 0; i < rig->graph->n_nodes; i++)
        SY_TRY(pack(rig, i));
    /* From now on parameters are in the package only. */
    for (int i = 0; i < rig->n_layers; i++)
        for (int k = 0; k < rig->layers[i].n_params; k++) {
            int input = rig->layers[i].params[k].input;
            struct sy_tensor *t = &rig->graph->tensors[rig->graph->nodes[i].inputs[input]];
            free(t->data);
            t->data = NULL;
            t->data_bytes = 0;
        }
    return SY_OK;
}

void rig_close(struct engine_rig *rig)
{
    for (int i = 0; i < rig->n_layers; i++) {
        for (int k = 0; k < rig->layers[i].n_params; k++)
            free(rig->layers[i].params[k].layout);
        free(rig->layers[i].params);
        drop_bytes(rig->params[i]);
        drop_bytes(rig->packed[i]);
        drop_bytes(rig->absent[i]);
    }
    free(rig->layers);
    free(rig->params);
    free(rig->packed);
    free(rig->absent);
    sy_graph_free(rig->graph);
}

struct sy_program *rig_program(const struct engine_rig *rig, int64_t batch)
{
    struct sy_program *program;
    if (rig_engine.ops->program_create(rig->graph, rig->layers, rig->n_layers, batch, &program) < 0)
        fail_msg("%s at batch %lld: %s", rig->graph->name, (long long)batch, sy_error_text());
    return program;
}

/* ---- running ------------------------------------------------------------------------------------ */

void rig_take(const struct engine_rig *rig, const int *tensors, int n, int64_t batch, int byte,
              struct rig_tensors *out)
{
    out->n = n;
    out->data = calloc((size_t)n + 1, sizeof *out->data);
    out->bytes = calloc((size_t)n + 1, sizeof *out->bytes);
    assert_true(out->data && out->bytes);
    for (int i = 0; i < n; i++) {
        out->bytes[i] = sy_graph_tensor_room(rig->graph, tensors[i], batch);
        out->data[i] = take_bytes(out->bytes[i], byte);
    }
}

void rig_drop(struct rig_tensors *t)
{
    for (int i = 0; i < t->n; i++)
        drop_bytes(t->data[i]);
    free(t->data);
    free(t->bytes);
}

void rig_fill(const struct engine_rig *rig, const struct engine_case *c, struct rig_tensors *inputs,
              uint64_t *seed)
{
    bool usual = c->low == 0 && c->high == 0;
    for (int i = 0; i < inputs->n; i++) {
        enum sy_dtype dtype = rig->graph->tensors[rig->graph->inputs[i]].dtype;
        int64_t n = (int64_t)(inputs->bytes[i] / sy_dtype_bytes(dtype));
        for (int64_t k = 0; k < n; k++) {
            int64_t integer = rig_int(seed, c->int_low, c->int_high);
            if (dtype == SY_DTYPE_F32)
                ((float *)inputs->data[i])[k] =
                    (float)gb_uniform(seed, usual ? -1 : c->low, usual ? 1 : c->high);
            else if (dtype == SY_DTYPE_I64)
                ((int64_t *)inputs->data[i])[k] = integer;
            else if (dtype == SY_DTYPE_I32)
                ((int32_t *)inputs->data[i])[k] = (int32_t)integer;
            else
                ((uint8_t *)inputs->data[i])[k] = (uint8_t)rig_int(seed, 0, 1);
        }
    }
}

static void *device_view(void *memory)
{
    return rig_engine.device_view ? rig_engine.device_view(memory) : memory;
}

/* What was enqueued is done, also after a failure; then the device is asked what it saw. */
static int finish_run(struct sy_program *program, int status)
{
    int done = rig_engine.synchronize ? rig_engine.synchronize() : SY_OK;
    if (status == SY_OK)
        status = done;
    if (status == SY_OK && rig_engine.ops->program_finish)
        status = rig_engine.ops->program_finish(program);
    return status;
}

int rig_run(const struct engine_rig *rig, struct sy_program *program,
            const struct rig_tensors *inputs, const struct rig_tensors *outputs, int byte,
            uint64_t *split)
{
    uint64_t bytes = rig_engine.ops->program_workspace_bytes(program);
    void *workspace = take_bytes(bytes, byte);
    unsigned char **there = calloc((size_t)rig->n_layers + 1, sizeof *there);
    struct sy_binding binding = {there, device_view(workspace), (const void *const *)inputs->data,
                                 outputs->data};
    int status = SY_OK;
    assert_non_null(there);
    for (int at = 0, n; status == SY_OK && at < rig->n_layers; at += n) {
        n = split ? (int)rig_int(split, 0, 3) : rig->n_layers;
        n = n > rig->n_layers - at ? rig->n_layers - at : n;
        for (int i = 0; i < rig->n_layers; i++)
            there[i] = device_view(i >= at && i < at + n ? rig->params[i] : rig->absent[i]);
        status = rig_engine.ops->program_run(program, &binding, at, n);
    }
    status = finish_run(program, status);
    if (!is_guarded(workspace, bytes))
        fail_msg("%s: wrote past its workspace of %llu bytes", rig->graph->name,
                 (unsigned long long)bytes);
    drop_bytes(workspace);
    free(there);
    return status;
}

/* ---- checks ------------------------------------------------------------------------------------- */

static void must_run(const struct engine_rig *rig, struct sy_program *program,
                     const struct rig_tensors *inputs, const struct rig_tensors *outputs, int byte,
                     uint64_t *split)
{
    if (rig_run(rig, program, inputs, outputs, byte, split) < 0)
        fail_msg("%s: run: %s", rig->graph->name, sy_error_text());
}

static void same_bits(const struct engine_rig *rig, const struct rig_tensors *a,
                      const struct rig_tensors *b, int64_t batch, const char *what)
{
    for (int i = 0; i < a->n; i++) {
        if (!is_guarded(a->data[i], a->bytes[i]) || !is_guarded(b->data[i], b->bytes[i]))
            fail_msg("%s at batch %lld: wrote past tensor %d", rig->graph->name, (long long)batch,
                     i);
        if (memcmp(a->data[i], b->data[i], a->bytes[i]) != 0)
            fail_msg("%s at batch %lld: tensor %d has other bits: %s", rig->graph->name,
                     (long long)batch, i, what);
    }
}

static void params_untouched(const struct engine_rig *rig)
{
    for (int i = 0; i < rig->n_layers; i++)
        assert_memory_equal(rig->params[i], rig->packed[i], rig->layers[i].bytes);
}

static void right_results(const struct engine_case *c, const struct rig_tensors *inputs,
                          const struct rig_tensors *outputs, int64_t batch)
{
    struct naive_graph naive;
    double tolerance = c->tolerance > 0 ? c->tolerance : 2e-5;
    naive_graph_init(&naive, c->graph, batch);
    for (int i = 0; i < inputs->n; i++)
        naive_graph_set(&naive, c->graph->inputs[i], inputs->data[i]);
    naive_graph_run(&naive);
    for (int i = 0; i < outputs->n; i++) {
        int tensor = c->graph->outputs[i];
        for (int64_t k = 0; k < naive_graph_elements(&naive, tensor); k++) {
            double want = naive.values[tensor][k],
                   got = naive_load(c->graph->tensors[tensor].dtype, outputs->data[i], k);
            bool same = got == want || (isnan(got) && isnan(want)); /* infinities too */
            if (!same && !(fabs(got - want) <= tolerance * (1 + fabs(want))))
                fail_msg("%s at batch %lld: output %d[%lld] is %.9g, not %.9g", c->graph->name,
                         (long long)batch, i, (long long)k, got, want);
        }
    }
    naive_graph_finish(&naive);
}

static void check_batch(const struct engine_rig *rig, const struct engine_case *c, int64_t batch,
                        uint64_t *seed)
{
    struct sy_program *program = rig_program(rig, batch), *second = rig_program(rig, batch);
    const struct sy_graph *g = rig->graph;
    struct rig_tensors inputs, before, first, split, again;
    rig_take(rig, g->inputs, g->n_inputs, batch, 0, &inputs);
    rig_take(rig, g->inputs, g->n_inputs, batch, 0, &before);
    rig_fill(rig, c, &inputs, seed);
    for (int i = 0; i < inputs.n; i++)
        memcpy(before.data[i], inputs.data[i], inputs.bytes[i]);
    rig_take(rig, g->outputs, g->n_outputs, batch, 0xff, &first);
    rig_take(rig, g->outputs, g->n_outputs, batch, 0x00, &split);
    rig_take(rig, g->outputs, g->n_outputs, batch, 0x3f, &again);
    must_run(rig, program, &inputs, &first, 0xff, NULL); /* NaN as a float */
    must_run(rig, second, &inputs, &split, 0x45, seed);  /* 3157.3 */
    must_run(rig, program, &inputs, &again, 0x00, NULL);
    same_bits(rig, &first, &split, batch, "split into calls, other memory before");
    same_bits(rig, &first, &again, batch, "run a second time");
    same_bits(rig, &inputs, &before, batch, "an input");
    params_untouched(rig);
    right_results(c, &inputs, &first, batch);
    struct rig_tensors *all[] = {&inputs, &before, &first, &split, &again};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        rig_drop(all[i]);
    rig_engine.ops->program_destroy(program);
    rig_engine.ops->program_destroy(second);
}

/* An engine that does not have this yet said so by name; the host engine has everything. */
static bool passes_over(const struct engine_case *c, int status)
{
    const char *text = sy_error_text();
    if (!rig_engine.lacks_operators || status != SY_EUNSUPPORTED)
        fail_msg("%s: %s", c->graph->name, text);
    if (!strstr(text, "node ") || !strstr(text, "(opset "))
        fail_msg("%s: \"%s\" does not name node, operator and opset", c->graph->name, text);
    printf("passed over %d: %s: %s\n", ++n_passed_over, c->graph->name, text);
    return true;
}

void rig_check(const struct engine_case *c, uint64_t *seed)
{
    struct engine_rig rig;
    int status = rig_open(&rig, c->graph, c->optimize);
    bool passed_over = status < 0 && passes_over(c, status);
    for (size_t i = 0; !passed_over && i < sizeof batches / sizeof *batches; i++)
        check_batch(&rig, c, batches[i], seed);
    rig_close(&rig);
    sy_graph_free(c->graph);
}

int rig_count(const struct sy_graph *graph, enum sy_op op)
{
    struct engine_rig rig;
    int n = 0;
    assert_int_equal(rig_open(&rig, graph, true), SY_OK);
    for (int i = 0; i < rig.graph->n_nodes; i++)
        n += rig.graph->nodes[i].op == op;
    rig_close(&rig);
    return n;
}

uint64_t rig_packed_bytes(struct sy_graph *graph)
{
    struct engine_rig rig;
    uint64_t bytes = 0;
    assert_int_equal(rig_open(&rig, graph, true), SY_OK);
    for (int i = 0; i < rig.n_layers; i++)
        for (int k = 0; k < rig.layers[i].n_params; k++)
            bytes += rig.layers[i].params[k].bytes;
    rig_close(&rig);
    sy_graph_free(graph);
    return bytes;
}

void rig_refused(struct sy_graph *graph, bool optimize, int node, const char *word)
{
    struct engine_rig rig;
    const struct sy_node *bad = &graph->nodes[node];
    int status = rig_open(&rig, graph, optimize);
    if (status != SY_EUNSUPPORTED)
        fail_msg("%s: status %d instead of EUNSUPPORTED", graph->name, status);
    const char *text = sy_error_text();
    bool named = rig_engine.lacks_operators || strstr(text, word);
    if (!strstr(text, bad->name) || !strstr(text, sy_op_name(bad->op)) || !named)
        fail_msg("%s: \"%s\" does not name %s, %s and \"%s\"", graph->name, text, bad->name,
                 sy_op_name(bad->op), word);
    rig_close(&rig);
    sy_graph_free(graph);
}
