#include "loader/infer/deferred.h"

#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "loader/graph/graph_internal.h"
#include "loader/graph/string_tensor.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- outputs ------------------------------------------------------------------------------------ */

/* The node of the body that makes what it hands out at `place`, behind nodes that keep the elements; NULL: it makes none. */
static const struct sy_node *body_maker(const struct sy_graph *body, int place)
{
    int tensor = body->outputs[place];
    for (int n = body->n_nodes - 1; n >= 0; n--) {
        const struct sy_node *node = &body->nodes[n];
        if (node->n_outputs < 1 || node->outputs[0] != tensor)
            continue;
        if (node->op != SY_OP_CAST && node->op != SY_OP_IDENTITY && node->op != SY_OP_TRANSPOSE)
            return node;
        tensor = node->inputs[0];
    }
    return NULL;
}

bool sy_graph_is_counted(const struct sy_graph *graph, int tensor)
{
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const struct sy_node *node = &graph->nodes[n];
        const struct sy_attr *body = node->op == SY_OP_DYNAMIC ? sy_node_attr(node, "body") : NULL;
        for (int i = 0; body && body->graph && i < node->n_outputs; i++) {
            if (node->outputs[i] != tensor)
                continue;
            const struct sy_node *maker = body_maker(body->graph, i);
            return maker && (maker->op == SY_OP_NON_ZERO || maker->op == SY_OP_NON_MAX_SUPPRESSION);
        }
    }
    return false;
}

static uint64_t room_for_elements(const struct sy_tensor *t, int64_t batch)
{
    return (uint64_t)sy_shape_elements(&t->shape, batch) * sy_dtype_bytes(t->dtype);
}

uint64_t sy_graph_shaped_room(const struct sy_graph *graph, int tensor,
                              const struct sy_shape *shape, int64_t batch)
{
    int64_t n = sy_shape_elements(shape, batch), bytes;
    if (n < 0 ||
        __builtin_mul_overflow(n, (int64_t)sy_dtype_bytes(graph->tensors[tensor].dtype), &bytes))
        return UINT64_MAX;
    if (graph->tensors[tensor].dtype == SY_DTYPE_STRING)
        return sy_graph_string_offset(graph, tensor, shape, batch) +
               sy_string_block_bytes(n, graph->string_bytes);
    if (!sy_graph_is_dynamic(graph, tensor))
        return (uint64_t)bytes;
    return SY_ALIGN_UP((uint64_t)bytes, sizeof(int64_t)) + SY_SIZED_DYNAMIC_BYTES;
}

uint64_t sy_graph_tensor_room(const struct sy_graph *graph, int tensor, int64_t batch)
{
    return sy_graph_shaped_room(graph, tensor, &graph->tensors[tensor].shape, batch);
}

int sy_graph_output_shape(const struct sy_graph *graph, int tensor, int64_t batch, const void *data,
                          struct sy_shape *shape, uint64_t *bytes)
{
    return sy_graph_shaped_output(graph, tensor, &graph->tensors[tensor].shape, batch, data, shape,
                                  bytes);
}

int sy_graph_shaped_output(const struct sy_graph *graph, int tensor, const struct sy_shape *as,
                           int64_t batch, const void *data, struct sy_shape *shape, uint64_t *bytes)
{
    const struct sy_tensor *t = &graph->tensors[tensor];
    uint64_t room = (uint64_t)sy_shape_elements(as, batch) * sy_dtype_bytes(t->dtype);
    int64_t n = (int64_t)sy_dtype_bytes(t->dtype), said[1 + SY_MAX_RANK];
    *bytes = room;
    *shape = (struct sy_shape){.rank = as->rank};
    for (int i = 0; i < as->rank; i++)
        shape->dims[i].fixed = sy_dim_at(as->dims[i], batch);
    if (!sy_graph_is_dynamic(graph, tensor))
        return SY_OK;
    memcpy(said, (const char *)data + SY_ALIGN_UP(room, sizeof(int64_t)), sizeof said);
    if (said[0] == SY_NEEDS_ROOM && said[1] > 0 && (uint64_t)said[1] > room) {
        *bytes = (uint64_t)said[1];
        return sy_error_set(SY_ENOMEM_HOST,
                            "output '%.100s' has %lld bytes in this run, there is room for %llu",
                            t->name, (long long)said[1], (unsigned long long)room);
    }
    if (said[0] < 0 || said[0] > SY_MAX_RANK)
        return sy_error_set(SY_ECORRUPT, "output '%.100s': %lld dimensions", t->name,
                            (long long)said[0]);
    shape->rank = (int)said[0];
    for (int i = 0; i < shape->rank; i++) {
        int64_t dim = said[1 + i];
        shape->dims[i].fixed = dim;
        if (dim < 0 || __builtin_mul_overflow(n, dim, &n) || (uint64_t)n > room)
            return sy_error_set(SY_ECORRUPT, "output '%.100s': dimension %d is %lld", t->name, i,
                                (long long)dim);
    }
    *bytes = (uint64_t)n;
    return SY_OK;
}

/* ---- rooms -------------------------------------------------------------------------------------- */

bool sy_graph_grow_room(const struct sy_graph *graph, uint64_t has, uint64_t needs,
                        struct sy_sizes *sizes)
{
    int room = sy_graph_room_size(graph);
    int64_t *times = room < 0 ? NULL : &sizes->of[room];
    if (!times || *times < 1 || has < 1)
        return false;
    for (uint64_t more = has; more < needs;
         more *= 2) /* few sizes, so that programs are found again */
        if (__builtin_mul_overflow(*times, 2, times) || *times > INT32_MAX || more > UINT64_MAX / 2)
            return false;
    return true;
}

int sy_dynamic_open_rooms(struct sy_graph *graph)
{
    struct sy_dim room;
    for (int n = 0; n < graph->n_nodes; n++) {
        const struct sy_node *node = &graph->nodes[n];
        const struct sy_attr *rooms = sy_node_attr(node, "rooms");
        for (int i = 0; node->op == SY_OP_DYNAMIC && rooms && i < rooms->n; i++) {
            struct sy_dim *dim = &graph->tensors[node->outputs[i]].shape.dims[0];
            if (rooms->ints[i] == 0 ||
                (sy_graph_room_size(graph) < 0 && graph->n_symbols == SY_MAX_SYMBOLS))
                continue;
            SY_TRY(sy_graph_add_symbol(graph, SY_ROOM_SYMBOL, 1, 0, &room));
            graph->symbols[sy_graph_room_size(graph)].usual = 1;
            SY_TRY(sy_dim_mul(*dim, room, dim));
        }
    }
    return SY_OK;
}

/* ---- gathering ---------------------------------------------------------------------------------- */

struct gather {
    struct sy_infer *in;
    struct sy_graph *graph, *body;
    bool *wanted;          /* per tensor of the graph: an output needs it, through deferred nodes */
    int *map;              /* per tensor of the graph: its tensor in the body, or -1 */
    int n_inputs, *inputs; /* captured tensors; room for all tensors */
    int n_outputs, *outputs;
    int64_t *rooms; /* per output: 1 if its shape is a room that may grow */
};

static bool is_deferred(const struct sy_infer *in, const struct sy_node *node)
{
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0 && in->is_dynamic[node->outputs[i]])
            return true;
    return false;
}

static void find_wanted(struct gather *g)
{
    for (int i = 0; i < g->graph->n_outputs; i++)
        g->wanted[g->graph->outputs[i]] = true;
    for (int n = g->graph->n_nodes - 1; n >= 0; n--) {
        const struct sy_node *node = &g->graph->nodes[n];
        bool wanted = false;
        for (int i = 0; i < node->n_outputs; i++)
            wanted = wanted || (node->outputs[i] >= 0 && g->wanted[node->outputs[i]]);
        for (int i = 0; wanted && i < node->n_inputs; i++)
            if (node->inputs[i] >= 0)
                g->wanted[node->inputs[i]] = true;
    }
}

/* Small constants may determine sizes, so they move into the body. Larger ones are parameters. */
static bool is_small(const struct sy_tensor *t)
{
    return t->data && t->data_bytes <= 1024;
}

static int import_constant(struct gather *g, int tensor)
{
    const struct sy_tensor *t = &g->graph->tensors[tensor];
    void *data;
    SY_TRY(sy_graph_alloc(t->data_bytes, 1, &data));
    if (t->data_bytes > 0)
        memcpy(data, t->data, t->data_bytes);
    return sy_graph_add_constant(g->body, t->name, t->dtype, &t->shape, data, t->data_bytes,
                                 &g->map[tensor]);
}

static int import_tensor(struct gather *g, int tensor, bool is_made)
{
    const struct sy_tensor *t = &g->graph->tensors[tensor];
    if (g->map[tensor] >= 0)
        return SY_OK;
    if (!is_made && is_small(t))
        return import_constant(g, tensor);
    SY_TRY(sy_graph_add_tensor(g->body, t->name, t->dtype, &t->shape, &g->map[tensor]));
    if (!is_made)
        g->inputs[g->n_inputs++] = tensor;
    return SY_OK;
}

/* A sequence known at import is rebuilt at run. */
static int import_sequence(struct gather *g, int tensor)
{
    const struct sy_sequence *s = g->in->sequences[tensor];
    enum sy_op op = s->n > 0 ? SY_OP_SEQUENCE_CONSTRUCT : SY_OP_SEQUENCE_EMPTY;
    int *items;
    if (g->map[tensor] >= 0)
        return SY_OK;
    SY_TRY(sy_graph_alloc((size_t)s->n, sizeof *items, &items));
    int status = SY_OK;
    for (int i = 0; i < s->n && status == SY_OK; i++) {
        status = import_tensor(g, s->tensors[i], false);
        items[i] = g->map[s->tensors[i]];
    }
    const char *name = g->graph->tensors[tensor].name;
    if (status == SY_OK)
        status = sy_graph_add_tensor(g->body, name, SY_DTYPE_NONE, NULL, &g->map[tensor]);
    if (status == SY_OK)
        status = sy_graph_add_node(g->body, op, 13, name, s->n, items, 1, &g->map[tensor], NULL);
    free(items);
    return status;
}

static int import_operand(struct gather *g, int *tensor)
{
    if (*tensor < 0)
        return SY_OK;
    SY_TRY(g->in->sequences[*tensor] ? import_sequence(g, *tensor)
                                     : import_tensor(g, *tensor, false));
    *tensor = g->map[*tensor];
    return SY_OK;
}

/* Moves the node into the body unchanged. */
static int move_node(struct gather *g, struct sy_node *node)
{
    struct sy_node *to;
    for (int i = 0; i < node->n_inputs; i++)
        SY_TRY(import_operand(g, &node->inputs[i]));
    for (int i = 0; i < node->n_outputs; i++) {
        if (node->outputs[i] < 0)
            continue;
        SY_TRY(import_tensor(g, node->outputs[i], true));
        node->outputs[i] = g->map[node->outputs[i]];
    }
    for (int i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].kind == SY_ATTR_TENSOR)
            SY_TRY(import_operand(g, &node->attrs[i].tensor));
    SY_TRY(sy_graph_add_node(g->body, node->op, node->opset, node->name, 0, NULL, 0, NULL, &to));
    sy_node_finish(to);
    *to = *node;
    *node = (struct sy_node){.bias_input = -1, .residual_input = -1};
    return SY_OK;
}

static int move_nodes(struct gather *g)
{
    for (int n = 0; n < g->graph->n_nodes; n++) {
        struct sy_node *node = &g->graph->nodes[n];
        bool wanted = false;
        if (!is_deferred(g->in, node))
            continue;
        for (int i = 0; i < node->n_outputs; i++)
            wanted = wanted || (node->outputs[i] >= 0 && g->wanted[node->outputs[i]]);
        if (wanted)
            SY_TRY(move_node(g, node));
        else
            sy_node_finish(node);
    }
    return SY_OK;
}

/* Sorts the nodes of all bodies: files list them in any order, but runs execute them in list order. */
static int sort_bodies(struct sy_graph *graph)
{
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_attrs; i++)
            if (graph->nodes[n].attrs[i].kind == SY_ATTR_GRAPH) {
                SY_TRY(sy_graph_sort(graph->nodes[n].attrs[i].graph));
                SY_TRY(sort_bodies(graph->nodes[n].attrs[i].graph));
            }
    return SY_OK;
}

static int copy_ints(const int *from, int n, int **out)
{
    SY_TRY(sy_graph_alloc((size_t)n, sizeof **out, out));
    if (n > 0)
        memcpy(*out, from, (size_t)n * sizeof **out);
    return SY_OK;
}

static int set_body_ends(struct gather *g)
{
    struct sy_graph *body = g->body;
    for (int i = 0; i < g->graph->n_outputs; i++) {
        int tensor = g->graph->outputs[i];
        bool before = !g->in->is_dynamic[tensor];
        for (int k = 0; k < g->n_outputs; k++)
            before = before || g->outputs[k] == tensor;
        if (!before)
            g->outputs[g->n_outputs++] = tensor;
    }
    SY_TRY(copy_ints(g->inputs, g->n_inputs, &body->inputs));
    SY_TRY(copy_ints(g->outputs, g->n_outputs, &body->outputs));
    body->n_inputs = g->n_inputs;
    body->n_outputs = g->n_outputs;
    for (int i = 0; i < g->n_inputs; i++)
        body->inputs[i] = g->map[g->inputs[i]];
    for (int i = 0; i < g->n_outputs; i++)
        body->outputs[i] = g->map[g->outputs[i]];
    return SY_OK;
}

static void set_room(struct sy_tensor *t, int64_t bytes)
{
    t->shape.rank = SY_MAX(t->shape.rank, 1);
    for (int i = 0; i < t->shape.rank; i++)
        t->shape.dims[i] = (struct sy_dim){1, 0};
    t->shape.dims[0].fixed = bytes / (int64_t)sy_dtype_bytes(t->dtype);
}

/* Without a bound: the declared type, and a fixed room. */
static int take_declared(struct sy_tensor *t)
{
    if (sy_dtype_bytes(t->dtype) == 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "output '%.100s': its size depends on data that is known at run only, "
                            "and the file does not declare its type",
                            t->name);
    set_room(t, SY_DYNAMIC_ROOM);
    return SY_OK;
}

/* Sets types and maximum shapes of the outputs. */
static int set_bounds(struct gather *g)
{
    struct sy_graph *trial;
    bool *is_unknown;
    SY_TRY(sy_graph_alloc((size_t)g->n_outputs, sizeof *is_unknown, &is_unknown));
    int status = sy_graph_clone(g->body, &trial);
    if (status == SY_OK) {
        for (int i = 0; i < g->n_inputs && status == SY_OK; i++)
            status = sy_infer_hand_down(g->in, g->inputs[i], trial, trial->inputs[i]);
        if (status == SY_OK)
            status = sy_graph_sort(trial);
        if (status == SY_OK)
            status = sy_infer_bound(trial, is_unknown);
        for (int i = 0; i < g->n_outputs && status == SY_OK; i++) {
            struct sy_tensor *t = &g->graph->tensors[g->outputs[i]];
            const struct sy_tensor *bound = &trial->tensors[trial->outputs[i]];
            g->rooms[i] = is_unknown[i];
            if (is_unknown[i]) {
                status = take_declared(t);
                continue;
            }
            t->dtype = bound->dtype;
            t->shape = bound->shape;
            if (!sy_shape_is_open(&t->shape) && room_for_elements(t, 1) > SY_DYNAMIC_MOST_ROOM) {
                set_room(t, SY_DYNAMIC_MOST_ROOM);
                g->rooms[i] = 1;
            }
        }
        sy_graph_free(trial);
    }
    free(is_unknown);
    return status;
}

static int add_dynamic(struct gather *g)
{
    struct sy_node *node;
    struct sy_attr *attr;
    SY_TRY(sy_graph_add_node(g->graph, SY_OP_DYNAMIC, 13, "at run", g->n_inputs, g->inputs,
                             g->n_outputs, g->outputs, &node));
    SY_TRY(sy_node_set_int(node, "formal", 0));
    SY_TRY(sy_node_set_ints(node, "rooms", g->n_outputs, g->rooms));
    SY_TRY(sy_node_attr_slot(node, "body", &attr));
    attr->kind = SY_ATTR_GRAPH;
    attr->graph = g->body;
    g->body = NULL;
    return SY_OK;
}

static int gather(struct gather *g)
{
    size_t n = (size_t)g->graph->n_tensors + 1;
    SY_TRY(sy_graph_create("at run", &g->body));
    SY_TRY(sy_graph_alloc(n, sizeof *g->wanted, &g->wanted));
    SY_TRY(sy_graph_alloc(n, sizeof *g->map, &g->map));
    SY_TRY(sy_graph_alloc(n, sizeof *g->inputs, &g->inputs));
    SY_TRY(sy_graph_alloc((size_t)g->graph->n_outputs, sizeof *g->outputs, &g->outputs));
    SY_TRY(sy_graph_alloc((size_t)g->graph->n_outputs, sizeof *g->rooms, &g->rooms));
    memset(g->map, 0xff, n * sizeof *g->map);
    find_wanted(g);
    SY_TRY(move_nodes(g));
    SY_TRY(sort_bodies(g->body));
    SY_TRY(set_body_ends(g));
    if (g->n_outputs == 0)
        return SY_OK;
    SY_TRY(set_bounds(g));
    return add_dynamic(g);
}

int sy_dynamic_gather(struct sy_infer *in)
{
    struct gather g = {.in = in, .graph = in->graph};
    bool any = false;
    for (int n = 0; n < in->graph->n_nodes; n++)
        any = any || is_deferred(in, &in->graph->nodes[n]);
    if (!any)
        return SY_OK;
    int status = gather(&g);
    sy_graph_free(g.body);
    free(g.wanted);
    free(g.map);
    free(g.inputs);
    free(g.outputs);
    free(g.rooms);
    return status;
}
