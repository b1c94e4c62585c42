#include "workers/cuda/math/generic_forms.h"

#include <string.h>

#include "runtime/base/status.h"

int sy_generic_refuse(const struct sy_node *node, const char *what)
{
    return sy_error_set(SY_EUNSUPPORTED, "node %s: %s (opset %d): %s", node->name,
                        sy_op_name(node->op), node->opset, what);
}

/* Which of the texts the attribute is; the first without it. */
int sy_generic_choose(const struct sy_node *node, const char *name, const char *const *texts,
                      int *which)
{
    const struct sy_attr *a = sy_node_attr(node, name);
    const char *text = a && a->kind == SY_ATTR_STRING && a->s ? a->s : texts[0];
    for (*which = 0; texts[*which]; ++*which)
        if (strcmp(text, texts[*which]) == 0)
            return SY_OK;
    return sy_error_set(SY_EUNSUPPORTED, "node %s: %s (opset %d): %s '%s'", node->name,
                        sy_op_name(node->op), node->opset, name, text);
}

int64_t sy_generic_extent(const struct sy_generic_array *a, int first, int end)
{
    int64_t n = 1;
    for (int i = first; i < end; i++)
        n *= a->dims[i];
    return n;
}

void sy_generic_take_room(struct sy_math_generic *e, int64_t n)
{
    e->at[SY_GENERIC_ROOM] = (struct sy_generic_array){
        .dtype = SY_DTYPE_I64, .rank = 1, .n = n, .dims = {n}, .strides = {1}};
}

const struct sy_generic_array *sy_generic_input(const struct sy_math_generic *e, int i)
{
    return i < e->n_in && e->at[i].dtype != SY_DTYPE_NONE ? &e->at[i] : NULL;
}

/* The first n inputs seen with the result's dims, by numpy's rule. */
int sy_generic_spread(const struct sy_node *node, struct sy_math_generic *e, int n)
{
    const struct sy_generic_array *y = &e->at[SY_GENERIC_IN];
    for (int k = 0; k < n; k++) {
        struct sy_generic_array *a = &e->at[k];
        int64_t own[SY_MAX_RANK];
        memcpy(own, a->strides, sizeof own);
        if (a->dtype == SY_DTYPE_NONE || a->rank > y->rank)
            return sy_generic_refuse(node, "shapes that cannot be broadcast");
        for (int d = 0; d < y->rank; d++) {
            int i = d - (y->rank - a->rank);
            bool repeats = i < 0 || a->dims[i] == 1;
            if (!repeats && a->dims[i] != y->dims[d])
                return sy_generic_refuse(node, "shapes that cannot be broadcast");
            a->strides[d] = repeats ? 0 : own[i];
        }
    }
    return SY_OK;
}
