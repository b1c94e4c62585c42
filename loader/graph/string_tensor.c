#include "loader/graph/string_tensor.h"

#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- blocks --------------------------------------------------------------------------------------- */

uint64_t sy_string_block_bytes(int64_t n, uint64_t bytes)
{
    return SY_ALIGN_UP(SY_STRING_HEAD + (uint64_t)n * sizeof(uint32_t) + bytes, 16u);
}

static uint64_t bytes_of(const void *block)
{
    uint64_t bytes;
    memcpy(&bytes, block, sizeof bytes);
    return bytes;
}

void sy_string_block_end(void *text, uint64_t bytes)
{
    char *head = (char *)text - SY_STRING_HEAD;
    memset(head, 0, SY_STRING_HEAD);
    memcpy(head, &bytes, sizeof bytes);
}

bool sy_string_block_next(const void *block, uint64_t room, uint64_t *at, const char **text,
                          uint32_t *bytes)
{
    const char *from = (const char *)block + SY_STRING_HEAD;
    uint64_t all = room < SY_STRING_HEAD ? 0 : bytes_of(block);
    if (room < SY_STRING_HEAD || all > room - SY_STRING_HEAD)
        return false;
    *text = from;
    *bytes = 0;
    if (all == 0) /* S1 */
        return true;
    if (all - *at < sizeof *bytes)
        return false;
    memcpy(bytes, from + *at, sizeof *bytes);
    *at += sizeof *bytes;
    if (*bytes > all - *at)
        return false;
    *text = from + *at;
    *at += *bytes;
    return true;
}

bool sy_string_block_is_valid(const void *block, uint64_t room, int64_t n)
{
    const char *text;
    uint64_t at = 0;
    uint32_t bytes;
    if (room < SY_STRING_HEAD)
        return false;
    for (int64_t i = 0; i < n && bytes_of(block) > 0; i++)
        if (!sy_string_block_next(block, room, &at, &text, &bytes))
            return false;
    return at == bytes_of(block) || bytes_of(block) == 0;
}

/* ---- sizes ---------------------------------------------------------------------------------------- */

int sy_graph_string_size(const struct sy_graph *graph)
{
    for (int i = 0; i < graph->n_symbols; i++)
        if (strcmp(graph->symbols[i].name, SY_STRING_SIZE) == 0)
            return i;
    return -1;
}

bool sy_graph_is_own_size(const struct sy_graph *graph, int symbol)
{
    return symbol >= 0 &&
           (symbol == sy_graph_string_size(graph) || symbol == sy_graph_room_size(graph));
}

static int64_t round_up(uint64_t bytes)
{
    int64_t heap = SY_STRING_LEAST;
    while (heap < SY_STRING_MOST && (uint64_t)heap < bytes)
        heap *= 2;
    return heap;
}

/* The model's constant strings are part of its usual heap. */
int64_t sy_graph_string_heap(const struct sy_graph *graph, uint64_t input_bytes)
{
    int size = sy_graph_string_size(graph);
    uint64_t own = size < 0 ? 0 : (uint64_t)graph->symbols[size].usual;
    return round_up(own + 2 * SY_MIN(input_bytes, (uint64_t)SY_STRING_MOST));
}

/* Twice the bytes of the graph's own strings: constants, and attributes, also in bodies. *some: the graph has strings at all. */
static uint64_t own_bytes(const struct sy_graph *graph, bool *some)
{
    uint64_t bytes = 0;
    for (int t = 0; t < graph->n_tensors; t++) {
        const struct sy_tensor *tensor = &graph->tensors[t];
        *some = *some || tensor->dtype == SY_DTYPE_STRING;
        bytes += tensor->dtype == SY_DTYPE_STRING && tensor->data ? tensor->data_bytes : 0;
    }
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_attrs; i++) {
            const struct sy_attr *attr = &graph->nodes[n].attrs[i];
            if (attr->kind == SY_ATTR_STRINGS)
                bytes += (uint64_t)attr->ints[attr->n];
            if (attr->kind == SY_ATTR_GRAPH)
                bytes += own_bytes(attr->graph, some);
        }
    return 2 * bytes;
}

int sy_graph_open_strings(struct sy_graph *graph)
{
    bool some = false;
    struct sy_dim size;
    uint64_t bytes = own_bytes(graph, &some);
    if (!some)
        return SY_OK;
    if (sy_graph_string_size(graph) < 0 && graph->n_symbols >= SY_MAX_SYMBOLS)
        return sy_error_set(SY_EUNSUPPORTED,
                            "%d sizes are open, beside strings %d may be; give some their numbers "
                            "(import --dim %.80s=SIZE)",
                            graph->n_symbols, SY_MAX_SYMBOLS - 1, graph->symbols[0].name);
    SY_TRY(sy_graph_add_symbol(graph, SY_STRING_SIZE, 1, 0, &size));
    graph->symbols[sy_graph_string_size(graph)].usual = round_up(bytes);
    return SY_OK;
}

uint64_t sy_graph_string_offset(const struct sy_graph *graph, int tensor,
                                const struct sy_shape *shape, int64_t batch)
{
    uint64_t n = (uint64_t)sy_shape_elements(shape, batch);
    if (!sy_graph_is_dynamic(graph, tensor))
        return 0;
    return SY_ALIGN_UP(n * sizeof(struct sy_string) + SY_SIZED_DYNAMIC_BYTES, 16u);
}

/* ---- lists ---------------------------------------------------------------------------------------- */

static int grow(void *array, size_t *room, size_t needs, size_t each)
{
    void *old, *grown;
    size_t more = SY_MAX(needs, *room * 2);
    if (needs <= *room)
        return SY_OK;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, more * each);
    SY_TRY_ALLOC(grown, "no memory for strings of %zu bytes", needs);
    memcpy(array, &grown, sizeof grown);
    *room = more;
    return SY_OK;
}

int sy_text_list_add(struct sy_text_list *list, const void *text, size_t bytes)
{
    int status = grow(&list->texts, &list->room_bytes, list->bytes + bytes + 1, 1);
    if (status == SY_OK)
        status = grow(&list->offsets, &list->room, (size_t)list->n + 2, sizeof *list->offsets);
    if (status < 0) {
        sy_text_list_finish(list);
        return status;
    }
    if (bytes > 0)
        memcpy(list->texts + list->bytes, text, bytes);
    list->texts[list->bytes + bytes] = '\0';
    list->offsets[list->n++] = (int64_t)list->bytes;
    list->bytes += bytes + 1;
    list->offsets[list->n] = (int64_t)list->bytes;
    return SY_OK;
}

int sy_text_list_take(struct sy_text_list *list, struct sy_attr *attr)
{
    attr->kind = SY_ATTR_STRINGS;
    attr->n = list->n;
    if (list->n == 0) {
        SY_TRY(sy_graph_alloc(1, 1, &attr->s));
        return sy_graph_alloc(1, sizeof *attr->ints, &attr->ints);
    }
    attr->s = list->texts;
    attr->ints = list->offsets;
    *list = (struct sy_text_list){0};
    return SY_OK;
}

void sy_text_list_finish(struct sy_text_list *list)
{
    free(list->texts);
    free(list->offsets);
    *list = (struct sy_text_list){0};
}
