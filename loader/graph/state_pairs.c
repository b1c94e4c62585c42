#include "loader/graph/state_pairs.h"

#include <string.h>

#include "runtime/base/assert.h"

/* A name without "past" or "present": the parts before and after that word. */
struct cut_name {
    const char *head, *tail;
    size_t head_bytes;
};

/* The first of the words that is in the name. */
static bool cut(const char *name, const char *const *words, int n_words, struct cut_name *out)
{
    for (int w = 0; w < n_words; w++) {
        const char *at = strstr(name, words[w]);

        if (!at)
            continue;
        *out = (struct cut_name){
            .head = name, .head_bytes = (size_t)(at - name), .tail = at + strlen(words[w])};
        return true;
    }
    return false;
}

static bool same_rest(const struct cut_name *a, const struct cut_name *b)
{
    return a->head_bytes == b->head_bytes && memcmp(a->head, b->head, a->head_bytes) == 0 &&
           strcmp(a->tail, b->tail) == 0;
}

static int find_output(const struct sy_graph *graph, const struct sy_tensor *input,
                       const struct cut_name *wanted)
{
    static const char *const words[] = {"present_key_values", "present"};

    for (int o = 0; o < graph->n_outputs; o++) {
        const struct sy_tensor *output = &graph->tensors[graph->outputs[o]];
        struct cut_name name;

        if (cut(output->name, words, SY_ARRAY_LEN(words), &name) && same_rest(wanted, &name) &&
            output->dtype == input->dtype && input->dtype != SY_DTYPE_STRING &&
            output->shape.rank == input->shape.rank)
            return o;
    }
    return -1;
}

static bool is_taken(const struct sy_state_pair *pairs, int n, int output)
{
    for (int i = 0; i < n; i++)
        if (pairs[i].output == output)
            return true;
    return false;
}

int sy_state_pairs_find(const struct sy_graph *graph, struct sy_state_pair *pairs, int most)
{
    static const char *const words[] = {"past_key_values", "past"};
    int n = 0;

    for (int i = 0; i < graph->n_inputs && n < most; i++) {
        const struct sy_tensor *input = &graph->tensors[graph->inputs[i]];
        struct cut_name name;

        if (!cut(input->name, words, SY_ARRAY_LEN(words), &name))
            continue;
        int output = find_output(graph, input, &name);
        if (output >= 0 && !is_taken(pairs, n, output))
            pairs[n++] = (struct sy_state_pair){i, output};
    }
    return n;
}
