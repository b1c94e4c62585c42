/* Tokenizer in front of TfIdfVectorizer, as scikit-learn's text models are exported. How many tokens a text has is known at the run only, and all
 * behind would be sized at run; but the counts of the pool's grams have a fixed size. So TfIdfVectorizer reads the texts and cuts them itself:
 *
 *   texts [N] or [N, 1] -> Tokenizer -> (Flatten) -> TfIdfVectorizer [N, columns]      becomes      texts -> TfIdfVectorizer (with tokenexp)
 *
 * Tokenizer pads rows to the longest. Padding that no gram of the pool has counts nothing. */
#include <string.h>

#include "loader/expand/expand.h"
#include "loader/graph/graph_internal.h"
#include "runtime/base/status.h"

/* The only reader of a tensor that is no output; -1: there is none, or are more. */
static int only_reader(const struct sy_infer *in, int tensor)
{
    const struct sy_graph *graph = in->graph;
    if (in->uses[tensor] != 1 || sy_graph_is_output(graph, tensor))
        return -1;
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_inputs; i++)
            if (graph->nodes[n].inputs[i] == tensor)
                return n;
    return -1;
}

static bool has_string(const struct sy_attr *list, const char *text)
{
    size_t n;
    for (int i = 0; i < list->n; i++) {
        const char *one = sy_attr_string(list, i, &n);
        if (n == strlen(text) && memcmp(one, text, n) == 0)
            return true;
    }
    return false;
}

/* Each text is a row of tokens, once it went through `flatten` (-1: it does not). */
static bool is_row_each(const struct sy_infer *in, const struct sy_node *tokenizer, int flatten)
{
    const struct sy_shape *shape = &in->graph->tensors[tokenizer->inputs[0]].shape;
    bool flat = flatten >= 0 && sy_node_int(&in->graph->nodes[flatten], "axis", 1) == 1;
    if (shape->rank == 1)
        return flatten < 0 || flat;
    return shape->rank == 2 && flat && sy_dim_is(shape->dims[1], 1);
}

/* Finds the consumers of the tokens: TfIdfVectorizer, and Flatten in front of it, or -1. */
static bool find_readers(const struct sy_infer *in, const struct sy_node *node, int *flatten,
                         int *grams)
{
    const struct sy_graph *graph = in->graph;
    int reader = only_reader(in, node->outputs[0]);
    *flatten = -1;
    if (reader >= 0 && graph->nodes[reader].op == SY_OP_FLATTEN) {
        *flatten = reader;
        reader = only_reader(in, graph->nodes[reader].outputs[0]);
    }
    *grams = reader;
    return reader >= 0 && graph->nodes[reader].op == SY_OP_TF_IDF;
}

static bool has_rule(const struct sy_node *tokenizer)
{
    const struct sy_attr *pattern = sy_node_attr(tokenizer, "tokenexp"),
                         *separators = sy_node_attr(tokenizer, "separators");
    return (pattern && pattern->s && *pattern->s) ||
           (separators && separators->kind == SY_ATTR_STRINGS && separators->n > 0);
}

bool sy_expand_feeds_grams(const struct sy_infer *in, const struct sy_node *node)
{
    int flatten, grams;
    const struct sy_attr *pad = sy_node_attr(node, "pad_value"), *pool;
    if (node->n_inputs != 1 || node->inputs[0] < 0 || node->n_outputs != 1 ||
        node->outputs[0] < 0 || in->is_dynamic[node->inputs[0]] || in->is_bound || in->is_trial ||
        sy_node_int(node, "mark", 0) != 0 || !find_readers(in, node, &flatten, &grams))
        return false;
    pool = sy_node_attr(&in->graph->nodes[grams], "pool_strings");
    return in->graph->tensors[node->inputs[0]].dtype == SY_DTYPE_STRING && has_rule(node) && pool &&
           pool->kind == SY_ATTR_STRINGS && !has_string(pool, pad && pad->s ? pad->s : "") &&
           is_row_each(in, node, flatten);
}

static int pass_attributes(const struct sy_node *from, struct sy_node *to)
{
    const struct sy_attr *pattern = sy_node_attr(from, "tokenexp"),
                         *separators = sy_node_attr(from, "separators");
    SY_TRY(sy_node_set_int(to, "mincharnum", sy_node_int(from, "mincharnum", 1)));
    if (pattern && pattern->s && *pattern->s) {
        struct sy_attr *attr;
        SY_TRY(sy_node_attr_slot(to, "tokenexp", &attr));
        attr->kind = SY_ATTR_STRING;
        return sy_graph_strdup(pattern->s, &attr->s);
    }
    return separators ? sy_node_set_strings(to, "separators", separators) : SY_OK;
}

static void move_use(struct sy_infer *in, int from, int to)
{
    in->uses[from]--;
    in->uses[to]++;
}

/* Nothing is put in the Tokenizer's place: its readers read its input. */
static int let_grams_cut(struct sy_expand *e)
{
    int flatten, grams, texts = e->node->inputs[0], tokens = e->node->outputs[0];
    if (!find_readers(e->in, e->node, &flatten, &grams))
        return sy_infer_fail(e->node, SY_EUNSUPPORTED, "other readers than TfIdfVectorizer");
    struct sy_node *reader = &e->graph->nodes[grams];
    SY_TRY(pass_attributes(e->node, reader));
    move_use(e->in, reader->inputs[0], texts);
    reader->inputs[0] = texts;
    if (flatten >= 0) { /* unused: removed with the dead nodes */
        e->graph->nodes[flatten].inputs[0] = texts;
        move_use(e->in, tokens, texts);
    }
    return SY_OK;
}

const struct sy_expander_line sy_expanders_text[] = {{SY_OP_MS_TOKENIZER, let_grams_cut}, {0}};
