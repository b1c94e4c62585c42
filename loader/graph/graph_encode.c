/* A graph to bytes: loader/graph/graph_codec.h. */
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_codec.h"
#include "loader/graph/graph_internal.h"
#include "loader/graph/size_expr.h"
#include "runtime/base/status.h"

static void put_text(msgpack_packer *pk, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    msgpack_pack_str(pk, n);
    msgpack_pack_str_body(pk, text ? text : "", n);
}

static void put_ints(msgpack_packer *pk, int n, const int *values)
{
    msgpack_pack_array(pk, (size_t)n);
    for (int i = 0; i < n; i++)
        msgpack_pack_int(pk, values[i]);
}

static void put_sum(msgpack_packer *pk, struct sy_dim dim);

static void put_atom(msgpack_packer *pk, int id)
{
    struct sy_atom atom = sy_size_atom(id);
    switch (atom.kind) {
    case SY_ATOM_N:
        msgpack_pack_int(pk, 0);
        break;
    case SY_ATOM_SYMBOL:
        put_text(pk, atom.name);
        break;
    case SY_ATOM_FLOOR:
        msgpack_pack_array(pk, 2);
        put_sum(pk, atom.a);
        put_sum(pk, atom.b);
        break;
    case SY_ATOM_MIN:
        msgpack_pack_array(pk, 1);
        put_sum(pk, atom.a);
        break;
    }
}

static void put_sum(msgpack_packer *pk, struct sy_dim dim)
{
    struct sy_size_term terms[SY_SIZE_MAX_TERMS];
    int n = sy_size_terms(dim, terms);
    msgpack_pack_array(pk, (size_t)n);
    for (int i = 0; i < n; i++) {
        msgpack_pack_array(pk, (size_t)terms[i].n_atoms + 1);
        msgpack_pack_int64(pk, terms[i].factor);
        for (int k = 0; k < terms[i].n_atoms; k++)
            put_atom(pk, terms[i].atoms[k]);
    }
}

static void put_tensor(msgpack_packer *pk, const struct sy_tensor *t, bool keep_data)
{
    msgpack_pack_array(pk, 4);
    put_text(pk, t->name);
    msgpack_pack_int(pk, (int)t->dtype);
    msgpack_pack_array(pk, (size_t)t->shape.rank * 2);
    for (int i = 0; i < t->shape.rank; i++) {
        if (sy_dim_is_expr(t->shape.dims[i])) {
            put_sum(pk, t->shape.dims[i]);
            msgpack_pack_nil(pk);
            continue;
        }
        msgpack_pack_int64(pk, t->shape.dims[i].fixed);
        msgpack_pack_int64(pk, t->shape.dims[i].per_batch);
    }
    if (!keep_data || !t->data) {
        msgpack_pack_nil(pk);
        return;
    }
    msgpack_pack_bin(pk, t->data_bytes);
    if (t->data_bytes > 0)
        msgpack_pack_bin_body(pk, t->data, t->data_bytes);
}

static void put_graph(msgpack_packer *pk, const struct sy_graph *graph, const bool *keep_data,
                      bool keep_all);

static void put_attr(msgpack_packer *pk, const struct sy_attr *attr)
{
    msgpack_pack_array(pk, 3);
    put_text(pk, attr->name);
    msgpack_pack_int(pk, (int)attr->kind);
    switch (attr->kind) {
    case SY_ATTR_INT:
        msgpack_pack_int64(pk, attr->i);
        break;
    case SY_ATTR_FLOAT:
        msgpack_pack_float(pk, attr->f);
        break;
    case SY_ATTR_STRING:
        put_text(pk, attr->s);
        break;
    case SY_ATTR_TENSOR:
        msgpack_pack_int(pk, attr->tensor);
        break;
    case SY_ATTR_INTS:
        msgpack_pack_array(pk, (size_t)attr->n);
        for (int i = 0; i < attr->n; i++)
            msgpack_pack_int64(pk, attr->ints[i]);
        break;
    case SY_ATTR_FLOATS:
        msgpack_pack_array(pk, (size_t)attr->n);
        for (int i = 0; i < attr->n; i++)
            msgpack_pack_float(pk, attr->floats[i]);
        break;
    case SY_ATTR_SIZES:
        msgpack_pack_array(pk, (size_t)attr->n);
        for (int i = 0; i < attr->n; i++)
            put_sum(pk, attr->sizes[i]);
        break;
    case SY_ATTR_STRINGS:
        msgpack_pack_array(pk, (size_t)attr->n);
        for (int i = 0; i < attr->n; i++) {
            size_t n;
            const char *text = sy_attr_string(attr, i, &n);
            msgpack_pack_bin(pk, n);
            msgpack_pack_bin_body(pk, text, n);
        }
        break;
    case SY_ATTR_GRAPH:
        put_graph(pk, attr->graph, NULL, true);
        break;
    }
}

static void put_node(msgpack_packer *pk, const struct sy_node *node)
{
    msgpack_pack_array(pk, 11);
    put_text(pk, sy_op_name(node->op));
    msgpack_pack_int(pk, node->opset);
    put_text(pk, node->name);
    put_ints(pk, node->n_inputs, node->inputs);
    put_ints(pk, node->n_outputs, node->outputs);
    msgpack_pack_array(pk, (size_t)node->n_attrs);
    for (int i = 0; i < node->n_attrs; i++)
        put_attr(pk, &node->attrs[i]);
    msgpack_pack_int(pk, (int)node->activation);
    msgpack_pack_float(pk, node->act_alpha);
    msgpack_pack_float(pk, node->act_beta);
    msgpack_pack_int(pk, node->bias_input);
    msgpack_pack_int(pk, node->residual_input);
}

static void put_open_sizes(msgpack_packer *pk, const struct sy_graph *graph)
{
    msgpack_pack_array(pk, (size_t)graph->n_symbols * 2);
    for (int i = 0; i < graph->n_symbols; i++) {
        put_text(pk, graph->symbols[i].name);
        msgpack_pack_int64(pk, graph->symbols[i].usual);
    }
    msgpack_pack_array(pk, (size_t)graph->n_conditions);
    for (int i = 0; i < graph->n_conditions; i++) {
        const struct sy_condition *c = &graph->conditions[i];
        msgpack_pack_array(pk, 4);
        put_sum(pk, c->left);
        put_sum(pk, c->right);
        msgpack_pack_int(pk, c->at_most);
        put_text(pk, c->where);
    }
}

static void put_graph(msgpack_packer *pk, const struct sy_graph *graph, const bool *keep_data,
                      bool keep_all)
{
    bool open = graph->n_symbols > 0;
    msgpack_pack_array(pk, open ? 9 : graph->precision ? 7 : 6);
    msgpack_pack_int(pk, open ? SY_GRAPH_CODEC_OPEN_VERSION : SY_GRAPH_CODEC_VERSION);
    put_text(pk, graph->name);
    msgpack_pack_array(pk, (size_t)graph->n_tensors);
    for (int t = 0; t < graph->n_tensors; t++)
        put_tensor(pk, &graph->tensors[t], keep_all || (keep_data && keep_data[t]));
    msgpack_pack_array(pk, (size_t)graph->n_nodes);
    for (int n = 0; n < graph->n_nodes; n++)
        put_node(pk, &graph->nodes[n]);
    put_ints(pk, graph->n_inputs, graph->inputs);
    put_ints(pk, graph->n_outputs, graph->outputs);
    if (graph->precision || open)
        msgpack_pack_int(pk, (int)graph->precision);
    if (open)
        put_open_sizes(pk, graph);
}

/* A writer that remembers that memory ran out, so that the many calls above need no check each. */
struct checked_buffer {
    msgpack_sbuffer buffer;
    bool failed;
};

static int write_checked(void *ctx, const char *bytes, size_t n)
{
    struct checked_buffer *out = ctx;
    if (!out->failed)
        out->failed = msgpack_sbuffer_write(&out->buffer, bytes, n) != 0;
    return out->failed ? -1 : 0;
}

int sy_graph_encode(const struct sy_graph *graph, const bool *keep_data, void **out,
                    size_t *out_bytes)
{
    struct checked_buffer to = {.failed = false};
    msgpack_packer pk;
    msgpack_sbuffer_init(&to.buffer);
    msgpack_packer_init(&pk, &to, write_checked);
    put_graph(&pk, graph, keep_data, false);
    if (to.failed) {
        msgpack_sbuffer_destroy(&to.buffer);
        return sy_error_set(SY_ENOMEM_HOST, "graph '%.100s': no memory to encode it", graph->name);
    }
    *out_bytes = to.buffer.size;
    *out = msgpack_sbuffer_release(&to.buffer);
    return SY_OK;
}
