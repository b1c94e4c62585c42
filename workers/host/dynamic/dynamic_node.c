/* One node of a run: a graph of its own, inferred with the shapes that its inputs have, and with their elements where those decide on sizes. */
#include <stdio.h>
#include <stdlib.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/dynamic/dynamic_help.h"
#include "workers/host/dynamic/dynamic_internal.h"
#include "workers/host/program/body.h"
#include "workers/host/program/program.h"

enum { MOST_DECIDING_BYTES = 1 << 19, MOST_DECIDING_FLOATS = 128 };

/* Key of a node's graph: the shapes and values for which it was made. */
struct key {
    bool is_there, is_constant;
    int param; /* packed with the node: other weights would need another one */
    struct sy_array a;
    void *elements; /* NULL: any */
};

struct sy_at_node {
    struct sy_graph *graph;
    int n_keys;
    struct key *keys;
    struct sy_body body; /* with a helper only its inputs and outputs are used */
    const struct sy_node_helper *helper;
    void *helped;           /* the helper's program */
    const void **constants; /* per output: its elements, if import-time folding knows them */
    bool is_empty;          /* no output has elements: nothing to compute */
    bool is_view;           /* the output is the input in another shape: nothing to compute */
    uint64_t packed_bytes;  /* of packed weights, included in all_packed_bytes */
};

/* Shared by all nodes of the process; programs are made and run by one thread at a time. */
static uint64_t all_packed_bytes;

bool sy_at_node_packs(const struct sy_node *node, int i, const struct sy_at_value *v)
{
    bool packs = node->op == SY_OP_CONV || node->op == SY_OP_CONV_TRANSPOSE ||
                 node->op == SY_OP_GEMM || node->op == SY_OP_MATMUL || node->op == SY_OP_LSTM ||
                 node->op == SY_OP_GRU;
    return packs && i >= 1 && v && v->param > 0 && v->a.dtype == SY_DTYPE_F32 && v->a.n > 0 &&
           v->a.rank <= 5;
}

static uint64_t packed_size(const struct sy_node *node, struct sy_at_value *const *inputs)
{
    uint64_t bytes = 0;
    for (int i = 0; i < node->n_inputs; i++)
        bytes += sy_at_node_packs(node, i, inputs[i]) ? sy_at_value_size(inputs[i]) : 0;
    return bytes;
}

void sy_at_node_free(struct sy_at_node *m)
{
    if (!m)
        return;
    all_packed_bytes -= m->packed_bytes;
    if (m->helper)
        m->helper->destroy(m->helped);
    sy_body_finish(&m->body);
    sy_graph_free(m->graph);
    for (int i = 0; i < m->n_keys; i++)
        free(m->keys[i].elements);
    free(m->keys);
    free(m->constants);
    free(m);
}

/* ---- is it the one? ------------------------------------------------------------------------------ */

static bool is_same(const struct key *key, const struct sy_at_value *v)
{
    if (key->is_there != (v != NULL) || !v)
        return key->is_there == (v != NULL);
    if (key->param > 0)
        return key->param == v->param;
    /* The memory may hold a constant in one iteration of a loop, and a computed value in the next. */
    if (key->is_constant != v->is_constant || (v->is_constant && key->a.data != v->a.data))
        return false;
    return key->a.dtype == v->a.dtype && sy_array_same_dims(&key->a, &v->a) &&
           (!key->elements || memcmp(key->elements, v->a.data, sy_at_value_size(v)) == 0);
}

static bool fits(const struct sy_at_node *made, const struct sy_node *node,
                 struct sy_at_value *const *inputs)
{
    bool same = made != NULL;
    for (int i = 0; same && i < node->n_inputs; i++)
        same = is_same(&made->keys[i], inputs[i]);
    return same;
}

/* Values that shapes may depend on: lists of sizes, limits, scales. */
static bool may_decide(const struct sy_at_value *v)
{
    size_t bytes = sy_at_value_size(v);
    if (v->a.dtype == SY_DTYPE_STRING)
        return false;
    return bytes <= (sy_is_float(v->a.dtype) ? MOST_DECIDING_FLOATS : MOST_DECIDING_BYTES);
}

static int set_keys(struct sy_at_node *m, const struct sy_node *node,
                    struct sy_at_value *const *inputs, bool by_value)
{
    m->keys = calloc((size_t)node->n_inputs + 1, sizeof *m->keys);
    SY_TRY_ALLOC(m->keys, "no memory for a node");
    m->n_keys = node->n_inputs;
    for (int i = 0; i < node->n_inputs; i++) {
        const struct sy_at_value *v = inputs[i];
        struct key *key = &m->keys[i];
        key->is_there = v != NULL;
        if (!v)
            continue;
        key->a = v->a;
        key->is_constant = v->is_constant;
        key->param = m->packed_bytes > 0 && sy_at_node_packs(node, i, v) ? v->param : 0;
        if (v->is_constant || key->param > 0 || !by_value || !may_decide(v))
            continue;
        SY_TRY(sy_graph_alloc(sy_at_value_size(v) + 1, 1, &key->elements));
        memcpy(key->elements, v->a.data, sy_at_value_size(v));
    }
    return SY_OK;
}

/* ---- the graph ----------------------------------------------------------------------------------- */

struct sy_shape sy_at_shape_of(const struct sy_array *a)
{
    struct sy_shape shape = {.rank = a->rank};
    for (int i = 0; i < a->rank; i++)
        shape.dims[i].fixed = a->dims[i];
    return shape;
}

int sy_at_add_constant(struct sy_graph *graph, const struct sy_array *a, size_t bytes, int *out)
{
    struct sy_shape shape = sy_at_shape_of(a);
    void *data;
    SY_TRY(sy_graph_alloc(bytes, 1, &data));
    if (bytes > 0)
        memcpy(data, a->data, bytes);
    return sy_graph_add_constant(graph, "constant", a->dtype, &shape, data, bytes, out);
}

/* Borrows the value's elements until the node is ready. */
static int add_borrowed(struct sy_graph *graph, const struct sy_at_value *v, int *out)
{
    struct sy_shape shape = sy_at_shape_of(&v->a);
    SY_TRY(sy_graph_add_tensor(graph, "weights", v->a.dtype, &shape, out));
    struct sy_tensor *t = &graph->tensors[*out];
    t->is_borrowed = true;
    t->data = v->a.data;
    t->data_bytes = sy_at_value_size(v);
    return SY_OK;
}

static void give_back(struct sy_graph *graph)
{
    for (int t = 0; graph && t < graph->n_tensors; t++)
        if (graph->tensors[t].is_borrowed)
            graph->tensors[t].data = NULL;
}

/* elements: a copy that decides; NULL: the value is an input. */
static int add_input(struct sy_graph *graph, const struct sy_at_value *v, void *elements, int i,
                     int *out)
{
    struct sy_shape shape = sy_at_shape_of(&v->a);
    struct sy_array a = v->a;
    char name[32];
    if (elements)
        a.data = elements;
    if (v->is_constant || elements)
        return sy_at_add_constant(graph, &a, sy_at_value_size(v), out);
    snprintf(name, sizeof name, "input %d", i);
    SY_TRY(sy_graph_add_tensor(graph, name, v->a.dtype, &shape, out));
    graph->inputs[graph->n_inputs++] = *out;
    return SY_OK;
}

int sy_at_add_attributes(struct sy_graph *graph, const struct sy_graph *from, struct sy_node *node)
{
    for (int i = 0; i < node->n_attrs; i++) {
        struct sy_attr *attr = &node->attrs[i];
        if (attr->kind != SY_ATTR_TENSOR)
            continue;
        const struct sy_tensor *t = &from->tensors[attr->tensor];
        void *data;
        SY_TRY(sy_graph_alloc(t->data_bytes, 1, &data));
        if (t->data_bytes > 0)
            memcpy(data, t->data, t->data_bytes);
        SY_TRY(sy_graph_add_constant(graph, t->name, t->dtype, &t->shape, data, t->data_bytes,
                                     &attr->tensor));
    }
    return SY_OK;
}

/* The node with tensors of the new graph. */
static int add_node(struct sy_graph *graph, const struct sy_at_call *call, const struct key *keys,
                    bool packs)
{
    const struct sy_node *node = call->node;
    const struct sy_graph *from = call->graph;
    struct sy_at_value *const *inputs = call->inputs;
    struct sy_node *to;
    SY_TRY(sy_graph_add_node(graph, node->op, node->opset, node->name, 0, NULL, 0, NULL, &to));
    sy_node_finish(to);
    SY_TRY(sy_node_clone(node, to));
    for (int i = 0; i < to->n_inputs; i++) {
        to->inputs[i] = -1;
        if (packs && sy_at_node_packs(node, i, inputs[i]))
            SY_TRY(add_borrowed(graph, inputs[i], &to->inputs[i]));
        else if (inputs[i])
            SY_TRY(add_input(graph, inputs[i], keys ? keys[i].elements : NULL, i, &to->inputs[i]));
    }
    for (int i = 0; i < to->n_outputs; i++) {
        if (to->outputs[i] < 0)
            continue;
        SY_TRY(sy_graph_add_tensor(graph, from->tensors[node->outputs[i]].name, SY_DTYPE_NONE, NULL,
                                   &to->outputs[i]));
        if (sy_at_wants(call, i))
            graph->outputs[graph->n_outputs++] = to->outputs[i];
    }
    return sy_at_add_attributes(graph, from, to);
}

static int make_graph(const struct sy_at_call *call, const struct key *keys, bool packs,
                      struct sy_graph **out)
{
    const struct sy_node *node = call->node;
    SY_TRY(sy_graph_create(node->name, out));
    SY_TRY(sy_graph_alloc((size_t)node->n_inputs, sizeof *(*out)->inputs, &(*out)->inputs));
    SY_TRY(sy_graph_alloc((size_t)node->n_outputs, sizeof *(*out)->outputs, &(*out)->outputs));
    return add_node(*out, call, keys, packs);
}

/* Infers without the inputs' elements first, so that the result can be reused for other values. With them, the graph has the key's copies (S6): a client
 * that changes its shared memory meanwhile must not leave a program for other elements than its key says. */
static int infer_graph(struct sy_at_node *m, const struct sy_at_call *call)
{
    bool needs_values = false;
    SY_TRY(make_graph(call, NULL, m->packed_bytes > 0, &m->graph));
    int status = sy_graph_infer_now(m->graph, &needs_values);
    if (status != SY_EUNSUPPORTED || !needs_values) {
        SY_TRY(status);
        return set_keys(m, call->node, call->inputs, false);
    }
    sy_graph_free(m->graph);
    m->graph = NULL;
    SY_TRY(set_keys(m, call->node, call->inputs, true));
    SY_TRY(make_graph(call, m->keys, m->packed_bytes > 0, &m->graph));
    status = sy_graph_infer_now(m->graph, &needs_values);
    if (status == SY_EUNSUPPORTED || status == SY_ECORRUPT)
        return SY_EARG; /* these values yield no size; the error text has the reason */
    return status;
}

/* ---- made ready ---------------------------------------------------------------------------------- */

static const struct sy_tensor *output_of(const struct sy_at_node *m, int i)
{
    return &m->graph->tensors[m->graph->outputs[i]];
}

/* An output made known by folding is a copy of a constant. */
static const void *known_elements(const struct sy_graph *graph, int tensor)
{
    for (int n = 0; n < graph->n_nodes; n++) {
        const struct sy_node *node = &graph->nodes[n];
        if (node->op == SY_OP_IDENTITY && node->outputs[0] == tensor)
            return graph->tensors[node->inputs[0]].data;
    }
    return NULL;
}

static void drop_constants(struct sy_at_node *m)
{
    free(m->constants);
    m->constants = NULL;
}

/* Whether both pack the same elements. */
static bool has_same_constants(const struct sy_at_node *a, const struct sy_at_node *b)
{
    bool same = a && a->n_keys == b->n_keys;
    for (int i = 0; same && i < a->n_keys; i++) {
        const struct key *p = &a->keys[i], *q = &b->keys[i];
        same = p->is_there == q->is_there && p->param == q->param && !p->elements && !q->elements &&
               p->is_constant == q->is_constant && (!p->is_constant || p->a.data == q->a.data);
    }
    return same;
}

/* Whether the only failure is a missing helper, or its lack of memory: then the node is computed here. */
static bool is_not_helped(int status)
{
    return status == SY_EUNSUPPORTED || status == SY_ENOMEM_HOST || status == SY_ENOMEM_DEVICE;
}

/* EUNSUPPORTED: no helper takes the node. */
static int ask_helper(struct sy_at_node *m, const struct sy_at_node *like)
{
    const struct sy_node_helper *helper = sy_dynamic_helper(m->graph);
    if (!helper)
        return SY_EUNSUPPORTED;
    SY_TRY(sy_graph_alloc((size_t)m->graph->n_inputs, sizeof *m->body.inputs, &m->body.inputs));
    SY_TRY(sy_graph_alloc((size_t)m->graph->n_outputs, sizeof *m->body.outputs, &m->body.outputs));
    SY_TRY(helper->create(m->graph, like ? like->helped : NULL, &m->helped));
    m->helper = helper;
    return SY_OK;
}

/* like: the node's program for other sizes, whose packed weights are taken over; NULL: none. */
static int make_ready(struct sy_at_node *m, struct sy_at_node *like)
{
    bool all_known = true;
    int n = m->graph->n_outputs;
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *m->constants, &m->constants));
    m->is_empty = true;
    for (int i = 0; i < n; i++) {
        m->constants[i] = known_elements(m->graph, m->graph->outputs[i]);
        all_known = all_known && m->constants[i];
        m->is_empty = m->is_empty && sy_shape_elements(&output_of(m, i)->shape, 1) == 0;
    }
    if (!all_known)
        drop_constants(m);
    if (all_known || m->is_empty || m->is_view)
        return SY_OK;
    if (!has_same_constants(like, m))
        like = NULL;
    int status = ask_helper(m, like);
    if (!is_not_helped(status))
        return status;
    sy_body_finish(&m->body);
    return sy_body_init_like(&m->body, m->graph, 1,
                             like && like->body.program ? &like->body : NULL);
}

static bool reshapes(enum sy_op op)
{
    return op == SY_OP_RESHAPE || op == SY_OP_FLATTEN || op == SY_OP_SQUEEZE ||
           op == SY_OP_UNSQUEEZE;
}

static int make(const struct sy_at_call *call, struct sy_at_node **made)
{
    struct sy_at_node *m = calloc(1, sizeof *m);
    SY_TRY_ALLOC(m, "no memory for a node");
    uint64_t packed = packed_size(call->node, call->inputs),
             before = *made ? (*made)->packed_bytes : 0;
    if (packed > 0 && packed <= SY_DYNAMIC_PACKED - (all_packed_bytes - before))
        m->packed_bytes = packed;
    all_packed_bytes += m->packed_bytes;
    m->is_view = reshapes(call->node->op);
    int status = infer_graph(m, call);
    if (status == SY_OK)
        status = make_ready(m, *made);
    give_back(m->graph);
    if (status < 0) {
        sy_at_node_free(m);
        m = NULL;
    }
    sy_at_node_free(*made); /* what it had packed is m's */
    *made = m;
    return status;
}

/* ---- run ----------------------------------------------------------------------------------------- */

static int run_program(struct sy_at_node *m, const struct sy_node *node,
                       struct sy_at_value *const *inputs)
{
    int n = 0;
    for (int i = 0; i < node->n_inputs; i++)
        if (inputs[i] && !inputs[i]->is_constant && !m->keys[i].elements && m->keys[i].param == 0)
            m->body.inputs[n++] = inputs[i]->a.data;
    if (m->helper)
        return m->helper->run(m->helped, m->body.inputs, m->body.outputs);
    uint64_t bytes = SY_ALIGN_UP(sy_program_workspace_bytes(m->body.program) + 1, SY_PARAM_ALIGN);
    void *workspace = bytes <= SY_DYNAMIC_BYTES ? sy_at_alloc(bytes) : NULL;
    SY_TRY_ALLOC(workspace, "node '%.120s': no memory for a workspace of %llu bytes", node->name,
                 (unsigned long long)bytes);
    int status = sy_body_run(&m->body, workspace);
    sy_at_free(workspace, bytes);
    return status;
}

bool sy_at_wants(const struct sy_at_call *call, int output)
{
    int tensor = call->node->outputs[output];
    return tensor >= 0 && call->last_use[tensor] >= 0;
}

/* Memory for output `n` of the graph, with its elements if they are known. */
static int take_output(struct sy_at_state *state, struct sy_at_node *m, int n,
                       struct sy_at_value **out)
{
    const struct sy_tensor *t = output_of(m, n);
    int64_t dims[SY_MAX_RANK];
    for (int d = 0; d < t->shape.rank; d++)
        dims[d] = t->shape.dims[d].fixed;
    SY_TRY(sy_at_value_new(state, t->dtype, t->shape.rank, dims, out));
    if (m->constants && sy_at_value_size(*out) > 0)
        memcpy((*out)->a.data, m->constants[n], sy_at_value_size(*out));
    else if (m->body.outputs)
        m->body.outputs[n] = (*out)->a.data;
    return SY_OK;
}

static int show(const struct sy_at_call *call, const struct sy_at_node *m)
{
    const struct sy_shape *shape = &output_of(m, 0)->shape;
    int64_t dims[SY_MAX_RANK];
    if (sy_shape_elements(shape, 1) != call->inputs[0]->a.n)
        return sy_at_fail(call->node, "%lld elements in a shape of %lld",
                          (long long)call->inputs[0]->a.n, (long long)sy_shape_elements(shape, 1));
    for (int d = 0; d < shape->rank; d++)
        dims[d] = shape->dims[d].fixed;
    return sy_at_value_view(call->inputs[0], shape->rank, dims, &call->outputs[0]);
}

int sy_at_node_run(const struct sy_at_call *call, struct sy_at_node **made)
{
    const struct sy_node *node = call->node;
    int n = 0;
    for (int i = 0; i < node->n_inputs; i++)
        if (call->inputs[i] && call->inputs[i]->is_list)
            return sy_at_fail(node, "input %d is a list", i);
    if (!fits(*made, node, call->inputs))
        SY_TRY(make(call, made));
    if ((*made)->is_view && !(*made)->constants && call->inputs[0] && sy_at_wants(call, 0))
        return show(call, *made);
    for (int i = 0; i < node->n_outputs; i++)
        if (sy_at_wants(call, i))
            SY_TRY(take_output(call->state, *made, n++, &call->outputs[i]));
    return (*made)->constants || (*made)->is_empty ? SY_OK : run_program(*made, node, call->inputs);
}

/* ---- operators that count ------------------------------------------------------------------------ */

bool sy_at_node_counts(enum sy_op op)
{
    return op == SY_OP_NON_ZERO || op == SY_OP_COMPRESS || op == SY_OP_UNIQUE ||
           op == SY_OP_NON_MAX_SUPPRESSION || op == SY_OP_STRING_NORMALIZER ||
           op == SY_OP_STRING_SPLIT || op == SY_OP_MS_TOKENIZER;
}

static int64_t axis_of(const struct sy_node *node, const struct sy_array *x)
{
    int64_t axis = sy_node_int(node, "axis", 0);
    return axis < 0 ? axis + x->rank : axis;
}

static bool counts_parts(enum sy_op op)
{
    return op == SY_OP_STRING_NORMALIZER || op == SY_OP_STRING_SPLIT || op == SY_OP_MS_TOKENIZER;
}

/* Shape of operators on strings: the number of remaining words, or the maximum number of parts; output 1 has the number for each string. */
static void parts_shape(const struct sy_call *call, int i, int64_t n, struct sy_array *out)
{
    const struct sy_array *x = &call->in[0];
    *out = (struct sy_array){.dtype = i == 0 ? SY_DTYPE_STRING : SY_DTYPE_I64, .rank = x->rank};
    memcpy(out->dims, x->dims, sizeof out->dims);
    if (call->node->op == SY_OP_STRING_NORMALIZER)
        out->dims[x->rank - 1] = n;
    else if (i == 0)
        out->dims[out->rank++] = n;
}

/* Shape of output i when the kernel has counted n elements. */
static void counted_shape(const struct sy_call *call, int i, int64_t n, struct sy_array *out)
{
    const struct sy_array *x = &call->in[0];
    enum sy_op op = call->node->op;
    if (counts_parts(op)) {
        parts_shape(call, i, n, out);
        return;
    }
    bool as_input = op == SY_OP_COMPRESS || op == SY_OP_UNIQUE;
    *out = (struct sy_array){
        .dtype = as_input && i == 0 ? x->dtype : SY_DTYPE_I64, .rank = 1, .dims = {n}};
    if (op == SY_OP_NON_ZERO)
        *out = (struct sy_array){.dtype = SY_DTYPE_I64, .rank = 2, .dims = {x->rank, n}};
    if (op == SY_OP_NON_MAX_SUPPRESSION)
        *out = (struct sy_array){.dtype = SY_DTYPE_I64, .rank = 2, .dims = {n, 3}};
    int64_t axis = axis_of(call->node, x), all = x->n;
    if (as_input && i == 0 && sy_node_attr(call->node, "axis") && axis >= 0 && axis < x->rank) {
        out->rank = x->rank;
        memcpy(out->dims, x->dims, sizeof out->dims);
        int64_t others = x->dims[axis] > 0 ? all / x->dims[axis] : 0;
        out->dims[axis] = op == SY_OP_UNIQUE ? n : others > 0 ? n / others : 0;
    }
    if (op == SY_OP_UNIQUE && i == 2) /* one index a slice of the input */
        out->dims[0] = !sy_node_attr(call->node, "axis") ? all
                       : axis >= 0 && axis < x->rank     ? x->dims[axis]
                                                         : 0;
    out->n = sy_array_extent(out, 0, out->rank);
}

static int run_counted(const struct sy_kernel *kernel, struct sy_call *call)
{
    SY_TRY(sy_kernel_check_types(kernel, call));
    if (kernel->check)
        SY_TRY(kernel->check(call));
    if (kernel->scratch) {
        call->scratch = malloc((size_t)kernel->scratch(call) + 1);
        SY_TRY_ALLOC(call->scratch, "node %s: no memory", call->node->name);
    }
    int status = kernel->run(call);
    free(call->scratch);
    call->scratch = NULL;
    return status;
}

/* Checks ranks that are known at run only: parts_shape needs a last dimension, or room for one more. */
static int check_parts(const struct sy_node *node, const struct sy_array *x)
{
    bool fits = node->op == SY_OP_STRING_NORMALIZER
                    ? x->rank == 1 || (x->rank == 2 && x->dims[0] == 1)
                    : x->rank < SY_MAX_RANK;

    return !counts_parts(node->op) || fits ? SY_OK
                                           : sy_at_fail(node, "strings of %d dimensions", x->rank);
}

/* Counts with empty results first, then computes them. */
int sy_at_node_count(struct sy_at_state *state, const struct sy_node *node,
                     struct sy_at_value *const *inputs, struct sy_at_value **outputs)
{
    const struct sy_kernel *kernel = sy_kernel_find(node->op);
    struct sy_call call = {.node = node, .n_in = node->n_inputs, .n_out = node->n_outputs};
    int64_t n = 0;
    if (!kernel || call.n_in < 1 || call.n_in > SY_KERNEL_INPUTS || call.n_out > 4 || !inputs[0])
        return sy_at_fail(node, "%d inputs, %d outputs", call.n_in, call.n_out);
    for (int i = 0; i < call.n_in; i++) {
        if (inputs[i] && inputs[i]->is_list)
            return sy_at_fail(node, "input %d is a list", i);
        if (inputs[i])
            call.in[i] = inputs[i]->a;
    }
    SY_TRY(check_parts(node, &call.in[0]));
    for (int i = 0; i < call.n_out; i++)
        if (node->outputs[i] >= 0)
            counted_shape(&call, i, 0, &call.out[i]);
    call.counted = &n;
    if (call.in[0].n > 0)
        SY_TRY(run_counted(kernel, &call));
    call.counted = NULL;
    for (int i = 0; i < call.n_out; i++) {
        struct sy_array a;
        if (node->outputs[i] < 0)
            continue;
        counted_shape(&call, i, n, &a);
        SY_TRY(sy_at_value_new(state, a.dtype, a.rank, a.dims, &outputs[i]));
        call.out[i] = outputs[i]->a;
    }
    return n > 0 || node->op == SY_OP_STRING_SPLIT ? run_counted(kernel, &call) : SY_OK;
}
