/* Values of a run: tensors, and lists of tensors. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/dynamic/dynamic_internal.h"

int sy_at_fail(const struct sy_node *node, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return sy_error_set(SY_EARG, "node '%.120s' (%s, opset %d): %s", node->name,
                        sy_op_name(node->op), node->opset, text);
}

static int new_value(struct sy_at_value **out)
{
    *out = calloc(1, sizeof **out);
    SY_TRY_ALLOC(*out, "no memory for a value");
    (*out)->refs = 1;
    return SY_OK;
}

enum { LARGE_PAGE = 2 << 20, LARGE = 2 * LARGE_PAGE, MOST_KEPT = 32 };

/* Recycled memory, oldest first. Programs are run by one thread at a time. */
static struct {
    int n;
    uint64_t bytes;
    struct {
        void *data;
        uint64_t bytes;
    } blocks[MOST_KEPT];
} kept;

static void *take_kept(int i)
{
    void *data = kept.blocks[i].data;
    kept.bytes -= kept.blocks[i].bytes;
    kept.n--;
    memmove(&kept.blocks[i], &kept.blocks[i + 1], (size_t)(kept.n - i) * sizeof kept.blocks[0]);
    return data;
}

void *sy_at_alloc(uint64_t bytes)
{
    int best = -1;
    if (bytes < LARGE)
        return aligned_alloc(64, SY_ALIGN_UP(bytes, 64u));
    bytes = SY_ALIGN_UP(bytes, (uint64_t)LARGE_PAGE);
    for (int i = 0; i < kept.n; i++)
        if (kept.blocks[i].bytes >= bytes && kept.blocks[i].bytes / 2 <= bytes &&
            (best < 0 || kept.blocks[i].bytes < kept.blocks[best].bytes))
            best = i;
    if (best >= 0)
        return take_kept(best);
    void *data = aligned_alloc(LARGE_PAGE, bytes);
    if (data)
        madvise(data, bytes, MADV_HUGEPAGE); /* without huge pages, small ones are used */
    return data;
}

void sy_at_free(void *data, uint64_t bytes)
{
    if (bytes < LARGE || !data || bytes > SY_DYNAMIC_KEPT) {
        free(data);
        return;
    }
    while (kept.n == MOST_KEPT || kept.bytes > SY_DYNAMIC_KEPT - bytes)
        free(take_kept(0));
    bytes = SY_ALIGN_UP(bytes, (uint64_t)LARGE_PAGE);
    kept.blocks[kept.n].data = data;
    kept.blocks[kept.n++].bytes = bytes;
    kept.bytes += bytes;
}

void sy_at_free_kept(void)
{
    while (kept.n > 0)
        free(take_kept(kept.n - 1));
}

int sy_at_value_new(struct sy_at_state *state, enum sy_dtype dtype, int rank, const int64_t *dims,
                    struct sy_at_value **out)
{
    int64_t n = 1, bytes;
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(n, dims[i], &n))
            return sy_error_set(SY_EARG, "a tensor with a dimension of %lld", (long long)dims[i]);
    if (rank > SY_MAX_RANK || __builtin_mul_overflow(n, (int64_t)sy_dtype_bytes(dtype), &bytes) ||
        (uint64_t)bytes > SY_DYNAMIC_BYTES || state->bytes > SY_DYNAMIC_BYTES - (uint64_t)bytes)
        return sy_error_set(SY_EARG,
                            "%lld elements more; what is sized at run may take %llu MiB in all",
                            (long long)n, SY_DYNAMIC_BYTES >> 20);
    SY_TRY(new_value(out));
    struct sy_at_value *v = *out;
    v->a = (struct sy_array){.dtype = dtype, .rank = rank, .n = n};
    for (int i = 0; i < rank; i++)
        v->a.dims[i] = dims[i];
    v->bytes = SY_ALIGN_UP((uint64_t)bytes + 1, 64u);
    v->a.data = sy_at_alloc(v->bytes);
    if (!v->a.data) {
        free(v);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a tensor of %lld bytes",
                            (long long)bytes);
    }
    v->owns = true;
    state->bytes += v->bytes;
    return SY_OK;
}

int sy_at_value_borrow(const struct sy_array *a, struct sy_at_value **out)
{
    SY_TRY(new_value(out));
    (*out)->a = *a;
    return SY_OK;
}

int sy_at_value_view(struct sy_at_value *of, int rank, const int64_t *dims,
                     struct sy_at_value **out)
{
    SY_TRY(sy_at_value_borrow(&of->a, out));
    (*out)->a.rank = rank;
    for (int i = 0; i < rank; i++)
        (*out)->a.dims[i] = dims[i];
    (*out)->base = sy_at_value_ref(of->base ? of->base : of);
    return SY_OK;
}

int sy_at_value_new_list(struct sy_at_value *const *items, int n, struct sy_at_value **out)
{
    SY_TRY(new_value(out));
    (*out)->is_list = true;
    (*out)->items = calloc((size_t)n + 1, sizeof *(*out)->items);
    if (!(*out)->items) {
        free(*out);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a list of %d", n);
    }
    for (int i = 0; i < n; i++)
        (*out)->items[i] = sy_at_value_ref(items[i]);
    (*out)->n_items = n;
    return SY_OK;
}

struct sy_at_value *sy_at_value_ref(struct sy_at_value *v)
{
    v->refs++;
    return v;
}

void sy_at_value_drop(struct sy_at_state *state, struct sy_at_value *v)
{
    if (!v || --v->refs > 0)
        return;
    for (int i = 0; i < v->n_items; i++)
        sy_at_value_drop(state, v->items[i]);
    free(v->items);
    sy_at_value_drop(state, v->base);
    if (v->owns) {
        state->bytes -= v->bytes;
        sy_at_free(v->a.data, v->bytes);
    }
    free(v);
}

void sy_at_values_drop(struct sy_at_state *state, struct sy_at_value **values, int n)
{
    for (int i = 0; i < n; i++) {
        sy_at_value_drop(state, values[i]);
        values[i] = NULL;
    }
}

int sy_at_value_append(struct sy_at_value *list, struct sy_at_value *item)
{
    struct sy_at_value **grown = realloc(list->items, ((size_t)list->n_items + 1) * sizeof *grown);
    SY_TRY_ALLOC(grown, "no memory for a list");
    list->items = grown;
    list->items[list->n_items++] = item;
    return SY_OK;
}

int sy_at_value_new_none(struct sy_at_value **out)
{
    SY_TRY(sy_at_value_new_list(NULL, 0, out));
    (*out)->is_none = true;
    return SY_OK;
}

size_t sy_at_value_size(const struct sy_at_value *v)
{
    return (size_t)v->a.n * sy_dtype_bytes(v->a.dtype);
}

int sy_at_value_integer(const struct sy_node *node, const struct sy_at_value *v, int64_t otherwise,
                        int64_t *out)
{
    *out = otherwise;
    if (!v)
        return SY_OK;
    if (v->is_list || v->a.n != 1 || sy_is_float(v->a.dtype))
        return sy_at_fail(node, "an operand that is not one integer");
    *out = sy_get_int(&v->a, 0);
    return SY_OK;
}
