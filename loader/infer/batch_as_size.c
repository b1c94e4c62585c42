#include "loader/infer/batch_as_size.h"

#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "loader/graph/size_expr.h"
#include "runtime/base/status.h"

bool sy_batch_is_open(const struct sy_graph *graph)
{
    for (int i = 0; i < graph->n_inputs; i++) {
        const struct sy_shape *shape = &graph->tensors[graph->inputs[i]].shape;
        for (int d = 0; d < shape->rank; d++)
            if (shape->dims[d].per_batch != 0 && !sy_dim_is_expr(shape->dims[d]))
                return true;
    }
    return false;
}

/* ---- data --------------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (void *const *)a, y = (uintptr_t) * (void *const *)b;
    return x < y ? -1 : x > y;
}

int sy_batch_lend(struct sy_graph *graph, struct sy_lent *lent)
{
    *lent = (struct sy_lent){0};
    SY_TRY(sy_graph_alloc((size_t)graph->n_tensors, sizeof *lent->data, &lent->data));
    for (int t = 0; t < graph->n_tensors; t++) {
        struct sy_tensor *tensor = &graph->tensors[t];
        if (!tensor->data || tensor->is_borrowed)
            continue;
        lent->data[lent->n++] = tensor->data;
        tensor->is_borrowed = true;
    }
    qsort(lent->data, (size_t)lent->n, sizeof *lent->data, by_address);
    return SY_OK;
}

void sy_batch_claim(struct sy_lent *lent, struct sy_graph *graph)
{
    for (int t = 0; t < graph->n_tensors && lent->n > 0; t++) {
        struct sy_tensor *tensor = &graph->tensors[t];
        void **own = tensor->data ? bsearch(&tensor->data, lent->data, (size_t)lent->n,
                                            sizeof *lent->data, by_address)
                                  : NULL;
        if (!own)
            continue;
        tensor->is_borrowed = false;
        memmove(own, own + 1, (size_t)(lent->data + --lent->n - own) * sizeof *own);
    }
    for (int i = 0; i < lent->n; i++)
        free(lent->data[i]);
    free(lent->data);
    *lent = (struct sy_lent){0};
}

/* ---- the copy ----------------------------------------------------------------------------------- */

static int copy_without_data(const struct sy_graph *from, struct sy_graph **out)
{
    void *bytes = NULL;
    size_t n;
    SY_TRY(sy_graph_encode(from, NULL, &bytes, &n));
    int status = sy_graph_decode_copy(bytes, n, out);
    free(bytes);
    return status;
}

static void borrow(const struct sy_graph *from, struct sy_graph *to)
{
    for (int t = 0; t < from->n_tensors; t++) {
        to->tensors[t].data = from->tensors[t].data;
        to->tensors[t].data_bytes = from->tensors[t].data_bytes;
        to->tensors[t].is_borrowed = from->tensors[t].data != NULL;
        to->tensors[t].is_derived = from->tensors[t].is_derived;
        to->tensors[t].small_type = from->tensors[t].small_type;
    }
}

/* Names of batch dimensions are short, or contain the word. */
static bool sounds_like_batch(const char *name)
{
    return strlen(name) < 3 || strcasestr(name, "batch");
}

static int replace_batch(struct sy_graph *graph, const char *name)
{
    struct sy_dim symbol;
    int n_before = graph->n_symbols;
    SY_TRY(sy_graph_add_symbol(graph, name, 1, 0, &symbol));
    if (graph->n_symbols > n_before && sounds_like_batch(name))
        graph->symbols[n_before].usual = 1;
    for (int i = 0; i < graph->n_inputs; i++) {
        struct sy_shape *shape = &graph->tensors[graph->inputs[i]].shape;
        for (int d = 0; d < shape->rank; d++)
            if (shape->dims[d].per_batch != 0 && !sy_dim_is_expr(shape->dims[d]))
                shape->dims[d] = symbol; /* inputs have N alone, as the reader makes them */
    }
    return SY_OK;
}

int sy_batch_copy(const struct sy_graph *graph, bool is_sized, struct sy_graph **out)
{
    struct sy_graph *copy;
    const char *name = graph->batch_name ? graph->batch_name : "N";
    SY_TRY(copy_without_data(graph, &copy));
    borrow(graph, copy);
    int status = is_sized ? replace_batch(copy, name) : SY_OK;
    if (status == SY_OK && graph->batch_name)
        status = sy_graph_strdup(graph->batch_name, &copy->batch_name);
    if (status < 0) {
        sy_graph_free(copy);
        return status;
    }
    *out = copy;
    return SY_OK;
}
