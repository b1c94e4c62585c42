/* Captures of a body: tensors of the outer graph that it reads by name become inputs of its node; small constants are copied. */
#include <stdlib.h>
#include <string.h>

#include "loader/onnx/onnx_internal.h"
#include "runtime/base/status.h"

/* Small constants, which shapes may depend on, are copied into the body; other captures become inputs of the node. */
static bool is_small_constant(const struct sy_tensor *t)
{
    return t->data && t->data_bytes <= 1024 && (t->dtype != SY_DTYPE_F32 || t->data_bytes <= 64);
}

static int copy_constant(struct sy_graph *to, const struct sy_tensor *t, int *out)
{
    void *data;
    struct sy_shape shape = t->shape;
    SY_TRY(sy_graph_alloc(t->data_bytes, 1, &data));
    if (t->data_bytes > 0)
        memcpy(data, t->data, t->data_bytes);
    const unsigned char small_type = t->small_type;
    SY_TRY(sy_graph_add_constant(to, t->name, t->dtype, &shape, data, t->data_bytes, out));
    to->tensors[*out].small_type = small_type;
    return SY_OK;
}

static int capture(struct sy_onnx_reader *r, int outer, const char *name, int *out)
{
    struct sy_onnx_captures *c = r->captures;
    int k = 0;
    while (k < c->n && c->outer[k] != outer)
        k++;
    if (k == c->n) {
        int **lists[1 + SY_ONNX_MAX_BODIES] = {&c->outer, &c->local[0], &c->local[1]};
        for (int i = 0; i < 1 + SY_ONNX_MAX_BODIES; i++) {
            int *grown = realloc(*lists[i], ((size_t)k + 1) * sizeof *grown);
            SY_TRY_ALLOC(grown, "no memory for captured tensors");
            grown[k] = -1;
            *lists[i] = grown;
        }
        c->outer[c->n++] = outer;
    }
    SY_TRY(sy_graph_add_tensor(r->graph, name, SY_DTYPE_NONE, NULL, out));
    c->local[r->body][k] = *out;
    return SY_OK;
}

/* Finds the tensor of that name in this graph or an outer one; -1 if there is none. */
int sy_onnx_find_tensor(struct sy_onnx_reader *r, const char *name, int *out)
{
    int outer;
    *out = sy_name_map_get(&r->map, name);
    if (*out >= 0 || !r->outer)
        return SY_OK;
    SY_TRY(sy_onnx_find_tensor(r->outer, name, &outer));
    if (outer < 0)
        return SY_OK;
    const struct sy_tensor *t = &r->outer->graph->tensors[outer];
    if (is_small_constant(t))
        SY_TRY(copy_constant(r->graph, t, out));
    else
        SY_TRY(capture(r, outer, name, out));
    return sy_name_map_set(&r->map, name, *out);
}

/* Large constants of a body become the node's inputs, so that they are parameters like others: packed once, moved with their group. */
int sy_onnx_hoist_constants(struct sy_onnx_reader *r)
{
    for (int t = 0; t < r->graph->n_tensors; t++) {
        struct sy_tensor *from = &r->graph->tensors[t];
        int outer, k;
        if (!from->data || is_small_constant(from))
            continue;
        struct sy_shape shape = from->shape;
        void *data = from->data;
        size_t bytes = from->data_bytes;
        from->data = NULL;
        from->data_bytes = 0;
        SY_TRY(sy_graph_add_constant(r->outer->graph, from->name, from->dtype, &shape, data, bytes,
                                     &outer));
        SY_TRY(capture(r, outer, from->name, &k)); /* adds a tensor without readers */
        r->captures->local[r->body][r->captures->n - 1] = t;
    }
    return SY_OK;
}
