#include "loader/infer/explain.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MOST_REASONS = 1024, MOST_KINDS = 8 };

/* ---- noting ------------------------------------------------------------------------------------- */

/* Index of the first input that determines the result's size. */
static int first_operand(const struct sy_node *node)
{
    switch (node->op) {
    case SY_OP_RESHAPE:
    case SY_OP_SQUEEZE:
    case SY_OP_UNSQUEEZE:
    case SY_OP_EXPAND:
    case SY_OP_SLICE:
    case SY_OP_SPLIT:
    case SY_OP_PAD:
    case SY_OP_TILE:
    case SY_OP_TOP_K:
    case SY_OP_ONE_HOT:
    case SY_OP_COMPRESS:
        return 1;
    case SY_OP_RESIZE:
    case SY_OP_MAX_UNPOOL:
        return 2;
    default:
        return 0;
    }
}

/* The first operand that import does not know, else the first operand; -1: none. */
static int deciding_input(const struct sy_infer *in, const struct sy_node *node)
{
    int first = first_operand(node);
    if (node->op == SY_OP_IF)
        return sy_node_input(node, 0);
    for (int i = first; i < node->n_inputs; i++)
        if (!sy_infer_is_known(in, node, i))
            return node->inputs[i];
    return sy_node_input(node, first) >= 0 ? node->inputs[first] : sy_node_input(node, 0);
}

static const struct sy_node *maker_of(const struct sy_graph *graph, int tensor)
{
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_outputs; i++)
            if (graph->nodes[n].outputs[i] == tensor)
                return &graph->nodes[n];
    return NULL;
}

static const char *first_result(const struct sy_graph *graph, const struct sy_node *node)
{
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0)
            return graph->tensors[node->outputs[i]].name;
    return "";
}

static int fill(const struct sy_infer *in, const struct sy_node *node, struct sy_run_reason *reason)
{
    char text[256] = "", maker_text[200];
    int decides = deciding_input(in, node);
    const struct sy_node *maker = decides < 0 ? NULL : maker_of(in->graph, decides);
    if (maker)
        snprintf(text, sizeof text, "made by %s",
                 sy_node_text(maker, maker_text, sizeof maker_text));
    else if (decides >= 0 && sy_graph_is_input(in->graph, decides))
        snprintf(text, sizeof text, "an input of the model");
    SY_TRY(sy_graph_strdup(sy_error_text(), &reason->why));
    SY_TRY(sy_graph_strdup(first_result(in->graph, node), &reason->result));
    SY_TRY(sy_graph_strdup(decides < 0 ? "" : in->graph->tensors[decides].name, &reason->input));
    return sy_graph_strdup(text, &reason->maker);
}

int sy_explain_note(struct sy_infer *in, const struct sy_node *node)
{
    struct sy_graph *graph = in->graph;
    if (graph->n_reasons == MOST_REASONS)
        return SY_OK;
    struct sy_run_reason reason = {0},
                         *grown = realloc(graph->reasons,
                                          (size_t)(graph->n_reasons + 1) * sizeof *grown);
    SY_TRY_ALLOC(grown, "no memory for %d reasons", graph->n_reasons + 1);
    graph->reasons = grown;
    int status = fill(in, node, &reason);
    if (status < 0) {
        sy_run_reason_finish(&reason);
        return status;
    }
    grown[graph->n_reasons++] = reason;
    return SY_OK;
}

/* ---- stretches ---------------------------------------------------------------------------------- */

struct stretches {
    const struct sy_graph *graph, *body;
    int *of_node;   /* per node of the body: index of its reason, or -1 */
    int *of_tensor; /* per tensor of the body */
};

static int reason_of(const struct stretches *s, const struct sy_node *node)
{
    const char *result = first_result(s->body, node);
    int found = -1;
    for (int r = 0; r < s->graph->n_reasons; r++)
        if (strcmp(s->graph->reasons[r].result, result) == 0)
            return r;
    for (int i = 0; i < node->n_inputs && found < 0; i++)
        if (node->inputs[i] >= 0)
            found = s->of_tensor[node->inputs[i]];
    return found;
}

/* A node without a reason of its own gets that of its first deferred input. */
static int find_stretches(struct stretches *s)
{
    SY_TRY(sy_graph_alloc((size_t)s->body->n_nodes, sizeof *s->of_node, &s->of_node));
    SY_TRY(sy_graph_alloc((size_t)s->body->n_tensors, sizeof *s->of_tensor, &s->of_tensor));
    for (int t = 0; t < s->body->n_tensors; t++)
        s->of_tensor[t] = -1;
    for (int n = 0; n < s->body->n_nodes; n++) {
        const struct sy_node *node = &s->body->nodes[n];
        s->of_node[n] = reason_of(s, node);
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i] >= 0)
                s->of_tensor[node->outputs[i]] = s->of_node[n];
    }
    return SY_OK;
}

/* Prints "12 nodes: 5 Gather, 3 Concat, ..." for the nodes deferred for this reason. */
static void print_nodes(const struct stretches *s, int reason, FILE *to)
{
    int counts[SY_OP_COUNT] = {0}, total = 0, kinds = 0;
    for (int n = 0; n < s->body->n_nodes; n++)
        if (s->of_node[n] == reason) {
            counts[s->body->nodes[n].op]++;
            total++;
        }
    fprintf(to, "    %d node%s:", total, total == 1 ? "" : "s");
    while (total > 0 && kinds++ < MOST_KINDS) {
        int most = 0;
        for (int op = 0; op < SY_OP_COUNT; op++)
            most = counts[op] > counts[most] ? op : most;
        total -= counts[most];
        fprintf(to, "%s %d %s", kinds > 1 ? "," : "", counts[most], sy_op_name((enum sy_op)most));
        counts[most] = 0;
    }
    if (total > 0)
        fprintf(to, ", %d more", total);
    fputc('\n', to);
}

static void print_outputs(const struct stretches *s, int reason, FILE *to)
{
    bool any = false;
    for (int i = 0; i < s->body->n_outputs; i++) {
        int tensor = s->body->outputs[i];
        if (s->of_tensor[tensor] != reason)
            continue;
        fprintf(to, "%s '%.120s'", any ? "," : "    outputs:", s->body->tensors[tensor].name);
        any = true;
    }
    if (any)
        fputc('\n', to);
}

static void print_stretch(const struct stretches *s, int r, FILE *to)
{
    const struct sy_run_reason *reason = &s->graph->reasons[r];
    fprintf(to, "  %s\n", reason->why);
    if (reason->input[0])
        fprintf(to, "    decided by '%.120s'%s%s\n", reason->input, reason->maker[0] ? ", " : "",
                reason->maker);
    print_nodes(s, r, to);
    print_outputs(s, r, to);
}

static bool is_wanted(const struct stretches *s, int reason)
{
    for (int n = 0; n < s->body->n_nodes; n++)
        if (s->of_node[n] == reason)
            return true;
    return false;
}

static const struct sy_graph *find_body(const struct sy_graph *graph)
{
    for (int n = 0; n < graph->n_nodes; n++) {
        const struct sy_attr *body = sy_node_attr(&graph->nodes[n], "body");
        if (graph->nodes[n].op == SY_OP_DYNAMIC && body)
            return body->graph;
    }
    return NULL;
}

int sy_explain_print(const struct sy_graph *graph, FILE *to)
{
    struct stretches s = {.graph = graph, .body = find_body(graph)};
    if (!s.body) {
        fputs("nothing is sized at run\n", to);
        return SY_OK;
    }
    int status = find_stretches(&s);
    if (status == SY_OK)
        fprintf(to, "%d of %d nodes %s sized at run:\n", s.body->n_nodes,
                s.body->n_nodes + graph->n_nodes - 1, s.body->n_nodes == 1 ? "is" : "are");
    for (int r = 0; r < graph->n_reasons && status == SY_OK; r++)
        if (is_wanted(&s, r))
            print_stretch(&s, r, to);
    free(s.of_node);
    free(s.of_tensor);
    return status;
}
