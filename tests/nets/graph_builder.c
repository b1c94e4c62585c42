#include "tests/nets/graph_builder.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double gb_uniform(uint64_t *seed, double low, double high)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return low + (high - low) * (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

struct sy_graph *gb_new(const char *name)
{
    struct sy_graph *g = calloc(1, sizeof *g);
    assert(g);
    g->name = strdup(name);
    return g;
}

static int add_tensor(struct sy_graph *g, const char *name, int n, const int64_t *dims,
                      int has_batch)
{
    char text[32];
    snprintf(text, sizeof text, "t%d", g->n_tensors);
    g->tensors = realloc(g->tensors, (size_t)(g->n_tensors + 1) * sizeof *g->tensors);
    assert(g->tensors);
    struct sy_tensor *t = &g->tensors[g->n_tensors];
    *t = (struct sy_tensor){.name = strdup(name ? name : text), .dtype = SY_DTYPE_F32};
    t->shape.rank = n;
    for (int i = 0; i < n; i++)
        t->shape.dims[i] =
            i == 0 && has_batch ? (struct sy_dim){0, dims[0]} : (struct sy_dim){dims[i], 0};
    return g->n_tensors++;
}

static void append_int(int **array, int *n, int value)
{
    *array = realloc(*array, (size_t)(*n + 1) * sizeof **array);
    assert(*array);
    (*array)[(*n)++] = value;
}

int gb_input(struct sy_graph *g, int n, const int64_t *dims)
{
    int t = add_tensor(g, "input", n, dims, 1);
    append_int(&g->inputs, &g->n_inputs, t);
    return t;
}

void gb_output(struct sy_graph *g, int tensor)
{
    append_int(&g->outputs, &g->n_outputs, tensor);
}

int gb_constant(struct sy_graph *g, const char *name, int n, const int64_t *dims, uint64_t *seed,
                double low, double high)
{
    int t = add_tensor(g, name, n, dims, 0);
    size_t elements = 1;
    for (int i = 0; i < n; i++)
        elements *= (size_t)dims[i];
    float *data = malloc(elements * sizeof *data);
    assert(data);
    for (size_t i = 0; i < elements; i++)
        data[i] = (float)gb_uniform(seed, low, high);
    g->tensors[t].data = data;
    g->tensors[t].data_bytes = elements * sizeof *data;
    return t;
}

int gb_node(struct sy_graph *g, enum sy_op op, int n_inputs, const int *inputs, int n,
            const int64_t *dims)
{
    char name[32];
    g->nodes = realloc(g->nodes, (size_t)(g->n_nodes + 1) * sizeof *g->nodes);
    assert(g->nodes);
    struct sy_node *node = &g->nodes[g->n_nodes];
    snprintf(name, sizeof name, "node%d", g->n_nodes++);
    *node = (struct sy_node){
        .op = op, .opset = 17, .name = strdup(name), .bias_input = -1, .residual_input = -1};
    for (int i = 0; i < n_inputs; i++)
        append_int(&node->inputs, &node->n_inputs, inputs[i]);
    int out = add_tensor(g, NULL, n, dims, 1);
    append_int(&node->outputs, &node->n_outputs, out);
    return out;
}

static struct sy_attr *add_attr(struct sy_graph *g, const char *name, enum sy_attr_kind kind)
{
    struct sy_node *node = &g->nodes[g->n_nodes - 1];
    node->attrs = realloc(node->attrs, (size_t)(node->n_attrs + 1) * sizeof *node->attrs);
    assert(node->attrs);
    struct sy_attr *attr = &node->attrs[node->n_attrs++];
    *attr = (struct sy_attr){.name = strdup(name), .kind = kind, .tensor = -1};
    return attr;
}

void gb_int(struct sy_graph *g, const char *name, int64_t value)
{
    add_attr(g, name, SY_ATTR_INT)->i = value;
}

void gb_float(struct sy_graph *g, const char *name, float value)
{
    add_attr(g, name, SY_ATTR_FLOAT)->f = value;
}

void gb_ints(struct sy_graph *g, const char *name, int n, const int64_t *values)
{
    struct sy_attr *attr = add_attr(g, name, SY_ATTR_INTS);
    attr->n = n;
    attr->ints = malloc((size_t)n * sizeof *attr->ints);
    assert(attr->ints);
    memcpy(attr->ints, values, (size_t)n * sizeof *attr->ints);
}

int gb_transpose(struct sy_graph *g, int x, const int64_t *dims, const int64_t *perm, int rank)
{
    int64_t to[SY_MAX_RANK];
    for (int i = 0; i < rank; i++)
        to[i] = dims[perm[i]];
    int y = gb_node(g, SY_OP_TRANSPOSE, 1, &x, rank, to);
    gb_ints(g, "perm", rank, perm);
    return y;
}

int gb_doubled(struct sy_graph *g, int constant)
{
    struct sy_shape shape = g->tensors[constant].shape;
    int64_t dims[SY_MAX_RANK];
    for (int d = 0; d < shape.rank; d++)
        dims[d] = shape.dims[d].fixed;
    int result = gb_node(g, SY_OP_ADD, 2, (int[]){constant, constant}, shape.rank, dims);
    g->tensors[result].shape = shape;
    return result;
}
