/* Copies of nodes and graphs. */
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/status.h"

int sy_graph_clone(const struct sy_graph *from, struct sy_graph **out)
{
    bool *keep;
    void *bytes = NULL;
    size_t n;
    SY_TRY(sy_graph_alloc((size_t)from->n_tensors, sizeof *keep, &keep));
    memset(keep, 1, (size_t)from->n_tensors);
    int status = sy_graph_encode(from, keep, &bytes, &n);
    if (status == SY_OK)
        status = sy_graph_decode_copy(bytes, n, out);
    free(bytes);
    free(keep);
    return status;
}

static int copy_list(const void *from, int n, size_t bytes, void *out)
{
    void *copy;
    if (!from)
        return SY_OK;
    SY_TRY(sy_graph_alloc((size_t)n, bytes, &copy));
    memcpy(copy, from, (size_t)n * bytes);
    memcpy(out, &copy, sizeof copy);
    return SY_OK;
}

static int copy_attr(struct sy_node *to, const struct sy_attr *from)
{
    struct sy_attr *attr;
    SY_TRY(sy_node_attr_slot(to, from->name, &attr));
    attr->kind = from->kind;
    attr->i = from->i;
    attr->f = from->f;
    attr->tensor = from->tensor;
    attr->n = from->n;
    if (from->kind == SY_ATTR_STRINGS) {
        SY_TRY(copy_list(from->s, (int)from->ints[from->n], 1, &attr->s));
        return copy_list(from->ints, from->n + 1, sizeof *from->ints, &attr->ints);
    }
    if (from->s)
        SY_TRY(sy_graph_strdup(from->s, &attr->s));
    SY_TRY(copy_list(from->ints, from->n, sizeof *from->ints, &attr->ints));
    SY_TRY(copy_list(from->floats, from->n, sizeof *from->floats, &attr->floats));
    return copy_list(from->sizes, from->n, sizeof *from->sizes, &attr->sizes);
}

int sy_node_set_strings(struct sy_node *node, const char *name, const struct sy_attr *from)
{
    struct sy_attr *attr;
    char *texts = NULL;
    int64_t *offsets = NULL;
    int n = from->n; /* `from` may be in the list that grows */
    size_t bytes = n > 0 ? (size_t)from->ints[n] : 0;
    SY_TRY(copy_list(from->s, (int)bytes, 1, &texts));
    int status = copy_list(from->ints, n + 1, sizeof *offsets, &offsets);
    if (status == SY_OK && (status = sy_node_attr_slot(node, name, &attr)) < 0)
        free(offsets);
    if (status < 0) {
        free(texts);
        return status;
    }
    attr->kind = SY_ATTR_STRINGS;
    attr->n = n;
    attr->s = texts;
    attr->ints = offsets;
    return SY_OK;
}

static int copy_node(const struct sy_node *from, struct sy_node *to)
{
    SY_TRY(sy_graph_strdup(from->name, &to->name));
    SY_TRY(copy_list(from->inputs, from->n_inputs, sizeof *from->inputs, &to->inputs));
    to->n_inputs = from->n_inputs;
    SY_TRY(copy_list(from->outputs, from->n_outputs, sizeof *from->outputs, &to->outputs));
    to->n_outputs = from->n_outputs;
    for (int i = 0; i < from->n_attrs; i++)
        SY_TRY(copy_attr(to, &from->attrs[i]));
    return SY_OK;
}

int sy_node_clone_flat(const struct sy_node *from, struct sy_node *to)
{
    *to = *from;
    to->name = NULL;
    to->inputs = to->outputs = NULL;
    to->attrs = NULL;
    to->n_inputs = to->n_outputs = to->n_attrs = 0;
    int status = copy_node(from, to);
    if (status < 0)
        sy_node_finish(to);
    return status;
}

int sy_node_clone(const struct sy_node *from, struct sy_node *to)
{
    SY_TRY(sy_node_clone_flat(from, to));
    int status = SY_OK;
    for (int i = 0; i < from->n_attrs && status == SY_OK; i++)
        if (from->attrs[i].graph)
            status = sy_graph_clone(from->attrs[i].graph, &to->attrs[i].graph);
    if (status < 0)
        sy_node_finish(to);
    return status;
}
