#include "workers/host/dynamic/dynamic_stretch_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

/* Parameters up to this size may be fused into others (biases, scales of norms) and are copied into the programs that read them. */
enum { MOST_SMALL_PARAM = 64 << 10 };

/* ---- which nodes --------------------------------------------------------------------------------- */

static bool stands_alone(enum sy_op op)
{
    return op == SY_OP_IF || op == SY_OP_LOOP || op == SY_OP_SEQUENCE_MAP ||
           sy_at_is_of_lists(op) || sy_at_node_counts(op);
}

/* Values of Shape and Size, and those computed from them and constants alone. */
static void find_sized(const struct sy_graph *graph, bool *sized)
{
    for (int t = 0; t < graph->n_tensors; t++)
        sized[t] = graph->tensors[t].data != NULL;
    for (int n = 0; n < graph->n_nodes; n++) {
        const struct sy_node *node = &graph->nodes[n];
        bool all = node->op == SY_OP_SHAPE || node->op == SY_OP_SIZE || !stands_alone(node->op);
        for (int i = 0; all && i < node->n_inputs; i++)
            all = node->op == SY_OP_SHAPE || node->op == SY_OP_SIZE || node->inputs[i] < 0 ||
                  sized[node->inputs[i]];
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i] >= 0)
                sized[node->outputs[i]] = all;
    }
}

int sy_at_find_alone(const struct sy_graph *graph, bool *alone)
{
    bool *sized;
    SY_TRY(sy_graph_alloc((size_t)graph->n_tensors + 1, sizeof *sized, &sized));
    find_sized(graph, sized);
    for (int n = 0; n < graph->n_nodes; n++) {
        const struct sy_node *node = &graph->nodes[n];
        int condition = node->op == SY_OP_IF ? sy_node_input(node, 0) : -1;
        alone[n] = stands_alone(node->op) && !(condition >= 0 && sized[condition]);
    }
    free(sized);
    return SY_OK;
}

static bool has_inputs(const struct sy_at_frame *f, const struct sy_node *node, const bool *makes)
{
    bool has = true;
    for (int i = 0; has && i < node->n_inputs; i++) {
        int t = node->inputs[i];
        const struct sy_at_value *v = t < 0 ? NULL : f->values[t];
        has = t < 0 || makes[t] || (v && !v->is_list && v->a.dtype != SY_DTYPE_STRING);
    }
    return has;
}

static void add_inputs(const struct sy_at_frame *f, const struct sy_node *node, bool *known,
                       struct sy_stretch_nodes *out)
{
    for (int i = 0; i < node->n_inputs; i++) {
        int t = node->inputs[i];
        if (t < 0 || known[t] || !f->values[t])
            continue;
        known[t] = true;
        out->inputs[out->n_inputs++] = t;
    }
}

int sy_stretch_find_nodes(const struct sy_at_frame *f, struct sy_stretch_nodes *out)
{
    size_t n_tensors = (size_t)f->graph->n_tensors + 1;
    bool *makes = calloc(n_tensors, sizeof *makes), *known = calloc(n_tensors, sizeof *known);
    *out = (struct sy_stretch_nodes){0};
    out->nodes = calloc((size_t)f->graph->n_nodes + 1, sizeof *out->nodes);
    out->inputs = calloc(n_tensors, sizeof *out->inputs);
    bool fine = makes && known && out->nodes && out->inputs;
    for (int n = 0; fine && n < f->graph->n_nodes; n++) {
        const struct sy_node *node = &f->graph->nodes[n];
        if (f->done[n] || !f->is_read[n] || f->alone[n] || !has_inputs(f, node, makes))
            continue;
        out->nodes[out->n++] = n;
        add_inputs(f, node, known, out);
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i] >= 0)
                makes[node->outputs[i]] = true;
    }
    free(makes);
    free(known);
    return fine ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for %d nodes", f->graph->n_nodes);
}

void sy_stretch_nodes_finish(struct sy_stretch_nodes *nodes)
{
    free(nodes->nodes);
    free(nodes->inputs);
}

/* ---- the graph ----------------------------------------------------------------------------------- */

struct builder {
    const struct sy_at_frame *f;
    struct sy_graph *graph;
    int *map;    /* per tensor of the frame: its tensor in the new graph, or -1 */
    bool *packs; /* per tensor: a parameter that becomes a constant */
    int *given;
};

/* Whether input i is weights that the node packs, or a node of its branches. */
static bool packs_input(const struct sy_node *node, int i, const struct sy_at_value *v)
{
    static const char *const names[] = {"else_branch", "then_branch"};
    bool packs = sy_at_node_packs(node, i, v);
    int formal = (int)sy_node_int(node, "formal", 1);
    for (int k = 0; node->op == SY_OP_IF && i >= formal && k < 2; k++) {
        const struct sy_attr *attr = sy_node_attr(node, names[k]);
        const struct sy_graph *body = attr ? attr->graph : NULL;
        for (int n = 0; body && n < body->n_nodes && !packs; n++)
            for (int in = 0; in < body->nodes[n].n_inputs && !packs; in++)
                packs = body->nodes[n].inputs[in] == body->inputs[i - formal] &&
                        packs_input(&body->nodes[n], in, v);
    }
    return packs;
}

/* Finds the weights of products, as far as packed ones have room, and small parameters. */
static void find_packed(struct builder *b, const int *nodes, int n, bool weights)
{
    for (int k = 0; k < n; k++) {
        const struct sy_node *node = &b->f->graph->nodes[nodes[k]];
        for (int i = 0; i < node->n_inputs; i++) {
            int t = node->inputs[i];
            const struct sy_at_value *v = t < 0 ? NULL : b->f->values[t];
            if (!v || v->param == 0 || v->a.dtype != SY_DTYPE_F32 || v->a.n == 0)
                continue;
            b->packs[t] = b->packs[t] || sy_at_value_size(v) <= MOST_SMALL_PARAM ||
                          (weights && packs_input(node, i, v));
        }
    }
}

/* A parameter's name identifies its packed form (body.h). */
static int add_param(struct builder *b, const struct sy_at_value *v, int *out)
{
    struct sy_shape shape = sy_at_shape_of(&v->a);
    char name[48];
    snprintf(name, sizeof name, "weights %d", v->param);
    SY_TRY(sy_graph_add_tensor(b->graph, name, v->a.dtype, &shape, out));
    struct sy_tensor *t = &b->graph->tensors[*out];
    t->is_borrowed = true;
    t->data = v->a.data;
    t->data_bytes = sy_at_value_size(v);
    return SY_OK;
}

static int add_input(struct builder *b, int tensor)
{
    const struct sy_at_value *v = b->f->values[tensor];
    struct sy_shape shape = sy_at_shape_of(&v->a);
    int *to = &b->map[tensor];
    if (*to >= 0)
        return SY_OK;
    if (v->is_constant)
        return sy_at_add_constant(b->graph, &v->a, sy_at_value_size(v), to);
    if (b->packs[tensor])
        return add_param(b, v, to);
    SY_TRY(
        sy_graph_add_tensor(b->graph, b->f->graph->tensors[tensor].name, v->a.dtype, &shape, to));
    b->given[b->graph->n_inputs] = tensor;
    b->graph->inputs[b->graph->n_inputs++] = *to;
    return SY_OK;
}

static int add_node(struct builder *b, const struct sy_node *node)
{
    const struct sy_graph *from = b->f->graph;
    struct sy_node *to;
    SY_TRY(sy_graph_add_node(b->graph, node->op, node->opset, node->name, 0, NULL, 0, NULL, &to));
    sy_node_finish(to);
    SY_TRY(sy_node_clone(node, to));
    for (int i = 0; i < to->n_inputs; i++) {
        int t = node->inputs[i];
        to->inputs[i] = -1;
        if (t < 0)
            continue;
        if (b->map[t] < 0)
            SY_TRY(add_input(b, t));
        to->inputs[i] = b->map[t];
    }
    for (int i = 0; i < to->n_outputs; i++) {
        int t = node->outputs[i];
        if (t < 0)
            continue;
        SY_TRY(
            sy_graph_add_tensor(b->graph, from->tensors[t].name, SY_DTYPE_NONE, NULL, &b->map[t]));
        to->outputs[i] = b->map[t];
    }
    return sy_at_add_attributes(b->graph, from, to);
}

static void builder_finish(struct builder *b)
{
    sy_graph_free(b->graph);
    free(b->map);
    free(b->packs);
    free(b->given);
}

static int build(struct builder *b, const struct sy_at_frame *f, const int *nodes, int n,
                 bool weights)
{
    size_t n_tensors = (size_t)f->graph->n_tensors + 1;
    *b = (struct builder){.f = f};
    b->map = malloc(n_tensors * sizeof *b->map);
    b->packs = calloc(n_tensors, sizeof *b->packs);
    b->given = calloc(n_tensors, sizeof *b->given);
    SY_TRY_ALLOC(b->map && b->packs && b->given, "no memory for a stretch of %d nodes", n);
    memset(b->map, 0xff, n_tensors * sizeof *b->map);
    SY_TRY(sy_graph_create("stretch", &b->graph));
    SY_TRY(sy_graph_alloc(n_tensors, sizeof *b->graph->inputs, &b->graph->inputs));
    SY_TRY(sy_graph_alloc(n_tensors, sizeof *b->graph->outputs, &b->graph->outputs));
    find_packed(b, nodes, n, weights);
    for (int k = 0; k < n; k++)
        SY_TRY(add_node(b, &f->graph->nodes[nodes[k]]));
    return SY_OK;
}

/* ---- what can run now ---------------------------------------------------------------------------- */

static bool moves_nothing(enum sy_op op)
{
    return op == SY_OP_RESHAPE || op == SY_OP_FLATTEN || op == SY_OP_SQUEEZE ||
           op == SY_OP_UNSQUEEZE || op == SY_OP_IDENTITY || op == SY_OP_SHAPE;
}

/* Whether the tensor's size is known and above 0, and it holds no strings: those are in the enclosing program's heap. */
static bool is_known(const struct builder *b, int tensor, const bool *waits)
{
    int t = tensor < 0 ? -1 : b->map[tensor];
    const struct sy_tensor *made = t < 0 ? NULL : &b->graph->tensors[t];
    return !made ||
           (!waits[t] && made->dtype != SY_DTYPE_STRING && sy_shape_elements(&made->shape, 1) > 0);
}

static bool is_ready(const struct builder *b, const struct sy_node *node, bool *waits)
{
    bool ready = true;
    for (int i = 0; ready && i < node->n_inputs; i++)
        ready = is_known(b, node->inputs[i], waits);
    for (int i = 0; ready && i < node->n_outputs; i++)
        ready = is_known(b, node->outputs[i], waits);
    for (int i = 0; !ready && i < node->n_outputs; i++)
        if (node->outputs[i] >= 0)
            waits[b->map[node->outputs[i]]] = true;
    return ready;
}

/* Nodes that are executed alone and wait for nothing else: a body that does not depend on sizes, in a branch that was chosen by sizes. */
static void find_waiting(const struct sy_graph *graph, bool *waits)
{
    for (int n = 0; n < graph->n_nodes; n++) {
        const struct sy_node *node = &graph->nodes[n];
        bool wait = stands_alone(node->op);
        for (int i = 0; i < node->n_inputs && !wait; i++)
            wait = node->inputs[i] >= 0 && waits[node->inputs[i]];
        for (int i = 0; i < node->n_outputs && wait; i++)
            if (node->outputs[i] >= 0)
                waits[node->outputs[i]] = true;
    }
}

/* Reduces `nodes` to those that can run with the sizes known; *worth: running them as one program is faster. */
static int choose(const struct sy_at_frame *f, int *nodes, int *n, bool *worth)
{
    struct builder b;
    bool *waits = NULL;
    int left = 0, n_working = 0;
    int status = build(&b, f, nodes, *n, false);
    if (status == SY_OK)
        status = sy_graph_infer_ready(b.graph, &waits);
    if (status == SY_OK)
        find_waiting(b.graph, waits);
    for (int k = 0; status == SY_OK && k < *n; k++) {
        const struct sy_node *node = &f->graph->nodes[nodes[k]];
        if (!is_ready(&b, node, waits))
            continue;
        nodes[left++] = nodes[k];
        n_working += !moves_nothing(node->op);
    }
    *n = left;
    *worth = n_working > 1;
    free(waits);
    builder_finish(&b);
    return status;
}

/* ---- made ready ---------------------------------------------------------------------------------- */

/* Adds the results that are read by nodes outside of the stretch. */
static int add_results(struct builder *b, const int *nodes, int n, int *results)
{
    const struct sy_graph *from = b->f->graph;
    int *uses;
    SY_TRY(sy_graph_alloc((size_t)from->n_tensors, sizeof *uses, &uses));
    memcpy(uses, b->f->uses, (size_t)from->n_tensors * sizeof *uses);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < from->nodes[nodes[k]].n_inputs; i++)
            if (from->nodes[nodes[k]].inputs[i] >= 0)
                uses[from->nodes[nodes[k]].inputs[i]]--;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < from->nodes[nodes[k]].n_outputs; i++) {
            int t = from->nodes[nodes[k]].outputs[i];
            if (t < 0 || uses[t] <= 0)
                continue;
            results[b->graph->n_outputs] = t;
            b->graph->outputs[b->graph->n_outputs++] = b->map[t];
        }
    free(uses);
    return SY_OK;
}

static void give_back(struct sy_graph *graph)
{
    for (int t = 0; t < graph->n_tensors; t++)
        if (graph->tensors[t].is_borrowed)
            graph->tensors[t].data = NULL;
}

static int optimise(struct sy_graph *graph)
{
    bool needs_values;
    SY_TRY(sy_graph_infer_now(graph, &needs_values));
    SY_TRY(sy_graph_optimize(graph));
    return sy_graph_fuse(graph, sy_host_engine.fuses);
}

static uint64_t weight_bytes(const struct sy_at_frame *f, const struct sy_stretch_nodes *from)
{
    uint64_t bytes = 0;
    for (int i = 0; i < from->n_inputs; i++)
        bytes += f->values[from->inputs[i]]->param > 0
                     ? sy_at_value_size(f->values[from->inputs[i]])
                     : 0;
    return bytes;
}

static int make(const struct sy_at_frame *f, const int *nodes, int n, bool weights,
                struct sy_body *like, struct sy_stretch_made *out)
{
    struct builder b;
    int status = build(&b, f, nodes, n, weights);
    if (status == SY_OK)
        status =
            sy_graph_alloc((size_t)f->graph->n_tensors + 1, sizeof *out->results, &out->results);
    if (status == SY_OK)
        status = add_results(&b, nodes, n, out->results);
    if (status == SY_OK)
        status = optimise(b.graph);
    if (status == SY_OK)
        status = sy_body_init_like(&out->body, b.graph, 1, like);
    if (b.graph)
        give_back(b.graph);
    out->graph = b.graph;
    out->given = b.given;
    b.graph = NULL;
    b.given = NULL;
    builder_finish(&b);
    return status;
}

static bool is_out_of_memory(int status)
{
    return status == SY_ENOMEM_HOST;
}

int sy_stretch_make(const struct sy_at_frame *f, const struct sy_stretch_nodes *from,
                    struct sy_stretch_made *like, struct sy_stretch_made *out)
{
    bool worth = false;
    int n = from->n, *nodes;
    /* Depends on the stretch alone: results must not depend on the worker's other models. */
    *out = (struct sy_stretch_made){.packs = like ? like->packs
                                                  : weight_bytes(f, from) <= SY_DYNAMIC_PACKED};
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *nodes, &nodes));
    memcpy(nodes, from->nodes, (size_t)n * sizeof *nodes);
    int status = choose(f, nodes, &n, &worth);
    if (status == SY_OK && worth)
        status = make(f, nodes, n, out->packs, like ? &like->body : NULL, out);
    if (status == SY_OK && worth) {
        out->n = n;
        out->nodes = nodes;
        return SY_OK;
    }
    free(nodes);
    sy_stretch_made_finish(out);
    if (status < 0 && !is_out_of_memory(status)) /* S4 */
        sy_log_debug("dynamic", "event=node_by_node reason=\"%s\"", sy_error_text());
    return is_out_of_memory(status) ? status : SY_OK;
}

void sy_stretch_made_finish(struct sy_stretch_made *made)
{
    sy_body_finish(&made->body);
    sy_graph_free(made->graph);
    free(made->nodes);
    free(made->given);
    free(made->results);
    *made = (struct sy_stretch_made){0};
}
