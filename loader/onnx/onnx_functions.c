/* Functions of a model (lists of nodes that it names itself): each call becomes the nodes, with names of their own. Before anything else looks
 * at the graph. How deep calls go and how many nodes come out is bounded: a short file could ask for any number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/onnx/onnx_internal.h"
#include "loader/onnx/protobuf_nesting.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum {
    MAX_DEPTH = 16,
    MAX_NODES = 200000,
    MAX_NESTING = 16,
    MAX_FIELDS = 1 << 16,
    DEFAULTS = 11,
    MAX_FUNCTIONS = 4096,
    MAX_NAMES = 1024
};

static const size_t max_bytes =
    (size_t)1 << 28; /* limit for bytes of copied nodes, including their constants */

struct node_list {
    size_t n, room;
    Onnx__NodeProto **nodes;
};

struct inliner {
    Onnx__ModelProto *model;
    struct sy_onnx_versions *versions;
    int opset; /* of the function whose nodes are read; 0: the model's */
    size_t n_calls, n_nodes, n_bytes;
};

/* One call of a function, with the names that its nodes get. */
struct call {
    const Onnx__FunctionProto *function;
    const Onnx__NodeProto *node;
    size_t serial;
};

static int no_memory(void)
{
    return sy_error_set(SY_ENOMEM_HOST, "no memory for the nodes of a function");
}

/* Takes ownership of the node, also on failure. */
static int append(struct inliner *in, struct node_list *list, Onnx__NodeProto *node)
{
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : 16;
        Onnx__NodeProto **grown = realloc(list->nodes, room * sizeof(Onnx__NodeProto *));
        if (!grown) {
            onnx__node_proto__free_unpacked(node, NULL);
            return no_memory();
        }
        list->nodes = grown;
        list->room = room;
    }
    list->nodes[list->n++] = node;
    return ++in->n_nodes <= MAX_NODES
               ? SY_OK
               : sy_error_set(SY_EUNSUPPORTED,
                              "with its functions written out it has more than %d "
                              "nodes",
                              MAX_NODES);
}

/* ---- names ------------------------------------------------------------------------------------ */

static int replace_text(char **text, const char *by)
{
    char *copy = strdup(by);
    if (!copy)
        return no_memory();
    if (*text != (char *)protobuf_c_empty_string)
        free(*text);
    *text = copy;
    return SY_OK;
}

/* The caller's name for it; else a name unique to this call. */
static int rename_value(const struct call *c, char **name)
{
    char own[512];
    const char *text = sy_onnx_text(*name);
    if (!*text)
        return SY_OK;
    for (size_t i = 0; i < c->function->n_input; i++)
        if (strcmp(text, sy_onnx_text(c->function->input[i])) == 0)
            return replace_text(name, i < c->node->n_input ? sy_onnx_text(c->node->input[i]) : "");
    for (size_t i = 0; i < c->function->n_output && i < c->node->n_output; i++)
        if (strcmp(text, sy_onnx_text(c->function->output[i])) == 0 &&
            *sy_onnx_text(c->node->output[i]))
            return replace_text(name, c->node->output[i]);
    int n =
        snprintf(own, sizeof own, "%s.%zu/%s", sy_onnx_text(c->function->name), c->serial, text);
    if (n < 0 || (size_t)n >= sizeof own)
        return sy_error_set(SY_EUNSUPPORTED, "name '%.60s...' is too long", text);
    return replace_text(name, own);
}

static int rename_node(const struct call *c, Onnx__NodeProto *node);

static int rename_graph(const struct call *c, Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_input; i++)
        SY_TRY(rename_value(c, &g->input[i]->name));
    for (size_t i = 0; i < g->n_output; i++)
        SY_TRY(rename_value(c, &g->output[i]->name));
    for (size_t i = 0; i < g->n_initializer; i++)
        SY_TRY(rename_value(c, &g->initializer[i]->name));
    for (size_t i = 0; i < g->n_sparse_initializer; i++)
        if (g->sparse_initializer[i]->values) /* else it is refused when it is read */
            SY_TRY(rename_value(c, &g->sparse_initializer[i]->values->name));
    for (size_t i = 0; i < g->n_value_info; i++)
        SY_TRY(rename_value(c, &g->value_info[i]->name));
    for (size_t i = 0; i < g->n_node; i++)
        SY_TRY(rename_node(c, g->node[i]));
    return SY_OK;
}

/* ---- attributes ------------------------------------------------------------------------------- */

/* A copy under another name; NULL: no memory. */
static Onnx__AttributeProto *copy_attribute(const Onnx__AttributeProto *from, const char *name)
{
    size_t n = onnx__attribute_proto__get_packed_size(from);
    unsigned char *bytes = malloc(n + 1);
    Onnx__AttributeProto *to = NULL;
    if (bytes) {
        onnx__attribute_proto__pack(from, bytes);
        to = onnx__attribute_proto__unpack(NULL, n, bytes);
    }
    free(bytes);
    if (to && replace_text(&to->name, name) < 0) {
        onnx__attribute_proto__free_unpacked(to, NULL);
        to = NULL;
    }
    return to;
}

/* A default of the function, which protobuf-c of older ONNX keeps as bytes behind their length. NULL: not this one. */
static Onnx__AttributeProto *read_default(const ProtobufCMessageUnknownField *field)
{
    size_t skip = 0;
    while (skip < field->len && skip < 10 && (field->data[skip] & 0x80))
        skip++;
    skip++;
    if (field->tag != DEFAULTS || skip > field->len ||
        sy_protobuf_check_nesting(&onnx__attribute_proto__descriptor, field->data + skip,
                                  field->len - skip, MAX_NESTING, MAX_FIELDS) < 0)
        return NULL;
    return onnx__attribute_proto__unpack(NULL, field->len - skip, field->data + skip);
}

/* Resolves a reference to attribute `wanted` of the call: the caller's, the function's default, or none. */
static int find_attribute(const struct call *c, const char *wanted, const char *name,
                          Onnx__AttributeProto **out)
{
    *out = NULL;
    for (size_t i = 0; i < c->node->n_attribute; i++) {
        if (strcmp(sy_onnx_text(c->node->attribute[i]->name), wanted) != 0)
            continue;
        *out = copy_attribute(c->node->attribute[i], name);
        return *out ? SY_OK : no_memory();
    }
    for (size_t i = 0; i < c->function->base.n_unknown_fields; i++) {
        Onnx__AttributeProto *found = read_default(&c->function->base.unknown_fields[i]);
        if (found && strcmp(sy_onnx_text(found->name), wanted) == 0) {
            *out = copy_attribute(found, name);
            onnx__attribute_proto__free_unpacked(found, NULL);
            return *out ? SY_OK : no_memory();
        }
        if (found)
            onnx__attribute_proto__free_unpacked(found, NULL);
    }
    return SY_OK;
}

static int resolve_attributes(const struct call *c, Onnx__NodeProto *node)
{
    size_t kept = 0;
    int status = SY_OK;
    for (size_t i = 0; i < node->n_attribute; i++) {
        Onnx__AttributeProto *attr = node->attribute[i], *value = attr;
        bool refers = *sy_onnx_text(attr->ref_attr_name) != 0;
        if (status == SY_OK && refers)
            status = find_attribute(c, attr->ref_attr_name, sy_onnx_text(attr->name), &value);
        else if (status == SY_OK && attr->g)
            status = rename_graph(c, attr->g);
        if (value != attr)
            onnx__attribute_proto__free_unpacked(attr, NULL);
        if (value)
            node->attribute[kept++] = value;
    }
    node->n_attribute = kept;
    return status;
}

static int rename_node(const struct call *c, Onnx__NodeProto *node)
{
    char name[512];
    for (size_t i = 0; i < node->n_input; i++)
        SY_TRY(rename_value(c, &node->input[i]));
    for (size_t i = 0; i < node->n_output; i++)
        SY_TRY(rename_value(c, &node->output[i]));
    snprintf(name, sizeof name, "%.200s/%.200s", sy_onnx_text(c->node->name),
             sy_onnx_text(node->name));
    SY_TRY(replace_text(&node->name, name));
    return resolve_attributes(c, node);
}

/* ---- calls ------------------------------------------------------------------------------------ */

static const Onnx__FunctionProto *find_function(const Onnx__ModelProto *model,
                                                const Onnx__NodeProto *node)
{
    for (size_t i = 0; i < model->n_functions; i++)
        if (strcmp(sy_onnx_text(model->functions[i]->name), sy_onnx_text(node->op_type)) == 0 &&
            strcmp(sy_onnx_text(model->functions[i]->domain), sy_onnx_text(node->domain)) == 0)
            return model->functions[i];
    return NULL;
}

static int64_t opset_of(size_t n, Onnx__OperatorSetIdProto *const *imports)
{
    for (size_t i = 0; i < n; i++)
        if (!*sy_onnx_text(imports[i]->domain) || strcmp(imports[i]->domain, "ai.onnx") == 0)
            return imports[i]->version;
    return -1;
}

static int check_function(const struct inliner *in, const Onnx__FunctionProto *f, int *opset)
{
    int64_t own = opset_of(f->n_opset_import, f->opset_import),
            around = opset_of(in->model->n_opset_import, in->model->opset_import);
    if (own >= 0 && own != around && (own < SY_ONNX_MIN_OPSET || own > SY_ONNX_MAX_OPSET))
        return sy_error_set(SY_EUNSUPPORTED, "function '%.80s' is of opset %lld; %d to %d are read",
                            sy_onnx_text(f->name), (long long)own, SY_ONNX_MIN_OPSET,
                            SY_ONNX_MAX_OPSET);
    *opset = own < 0 || own == around ? 0 : (int)own;
    if (f->n_input + f->n_output > MAX_NAMES)
        return sy_error_set(SY_EUNSUPPORTED, "function '%.80s' has %zu inputs and %zu outputs",
                            sy_onnx_text(f->name), f->n_input, f->n_output);
    return SY_OK;
}

/* Notes the opset of a node that will be read in another one than its model's. */
static int note_version(struct inliner *in, const Onnx__NodeProto *node)
{
    struct sy_onnx_versions *v = in->versions;
    if (in->opset == 0)
        return SY_OK;
    if (v->n == v->room) {
        size_t room = v->room ? 2 * v->room : 16;
        struct sy_onnx_version *grown = realloc(v->of, room * sizeof *grown);
        if (!grown)
            return no_memory();
        v->of = grown;
        v->room = room;
    }
    v->of[v->n++] = (struct sy_onnx_version){.node = node, .opset = in->opset};
    return SY_OK;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct sy_onnx_version *)a)->node,
              y = (uintptr_t)((const struct sy_onnx_version *)b)->node;
    return (x > y) - (x < y);
}

int sy_onnx_node_opset(const struct sy_onnx_versions *versions, const Onnx__NodeProto *node,
                       int around)
{
    struct sy_onnx_version key = {.node = node};
    const struct sy_onnx_version *found =
        versions->n ? bsearch(&key, versions->of, versions->n, sizeof key, by_address) : NULL;
    return found ? found->opset : around;
}

static int copy_node(struct inliner *in, const Onnx__NodeProto *from, Onnx__NodeProto **to)
{
    size_t n = onnx__node_proto__get_packed_size(from);
    in->n_bytes += n;
    if (in->n_bytes > max_bytes)
        return sy_error_set(SY_EUNSUPPORTED,
                            "with its functions written out its nodes have more than %zu bytes",
                            max_bytes);
    unsigned char *bytes = malloc(n + 1);
    *to = NULL;
    if (bytes) {
        onnx__node_proto__pack(from, bytes);
        *to = onnx__node_proto__unpack(NULL, n, bytes);
    }
    free(bytes);
    return *to ? SY_OK : no_memory();
}

static int inline_graph(struct inliner *in, Onnx__GraphProto *g, int depth);

/* Takes ownership of the node, which calls no function. */
static int keep_node(struct inliner *in, Onnx__NodeProto *node, struct node_list *list, int depth)
{
    int status = note_version(in, node);
    for (size_t i = 0; i < node->n_attribute && status == SY_OK; i++)
        if (node->attribute[i]->g)
            status = inline_graph(in, node->attribute[i]->g, depth);
    int appended = append(in, list, node);
    return status < 0 ? status : appended;
}

/* Result i, if no node of the function makes it under the caller's name: an input that is returned, or what another result is, too. */
static int copy_result(struct inliner *in, const struct call *c, size_t i, struct node_list *list)
{
    Onnx__NodeProto node = ONNX__NODE_PROTO__INIT, *copy = NULL;
    char *from = strdup(sy_onnx_text(c->function->output[i])), *to = c->node->output[i],
         op_type[] = "Identity";
    int status = from ? rename_value(c, &from) : no_memory();
    node.op_type = op_type;
    node.n_input = node.n_output = 1;
    node.input = &from;
    node.output = &to;
    if (status == SY_OK && strcmp(from, sy_onnx_text(to)) != 0)
        status = copy_node(in, &node, &copy);
    free(from);
    return status == SY_OK && copy ? append(in, list, copy) : status;
}

static int inline_node(struct inliner *in, Onnx__NodeProto *node, struct node_list *list,
                       int depth);

static int inline_body(struct inliner *in, const struct call *c, struct node_list *list, int depth)
{
    int status = SY_OK;
    for (size_t i = 0; i < c->function->n_node && status == SY_OK; i++) {
        Onnx__NodeProto *copy = NULL;
        status = copy_node(in, c->function->node[i], &copy);
        if (status == SY_OK)
            status = rename_node(c, copy);
        if (status == SY_OK)
            status = inline_node(in, copy, list, depth + 1);
        else if (copy)
            onnx__node_proto__free_unpacked(copy, NULL);
    }
    for (size_t i = 0; i < c->function->n_output && i < c->node->n_output && status == SY_OK; i++)
        if (*sy_onnx_text(c->node->output[i]))
            status = copy_result(in, c, i, list);
    return status;
}

/* Takes ownership of the node. */
static int inline_node(struct inliner *in, Onnx__NodeProto *node, struct node_list *list, int depth)
{
    struct call c = {.function = find_function(in->model, node), .node = node};
    if (!c.function)
        return keep_node(in, node, list, depth);
    int around = in->opset;
    c.serial = ++in->n_calls;
    int status = check_function(in, c.function, &in->opset);
    if (status == SY_OK && depth >= MAX_DEPTH)
        status = sy_error_set(SY_EUNSUPPORTED, "functions that call each other deeper than %d",
                              MAX_DEPTH);
    if (status == SY_OK && in->n_calls > MAX_NODES)
        status = sy_error_set(SY_EUNSUPPORTED, "more than %d calls of functions", MAX_NODES);
    if (status == SY_OK)
        status = inline_body(in, &c, list, depth);
    in->opset = around;
    onnx__node_proto__free_unpacked(node, NULL);
    return status;
}

static int inline_graph(struct inliner *in, Onnx__GraphProto *g, int depth)
{
    struct node_list list = {0};
    int status = SY_OK;
    for (size_t i = 0; i < g->n_node; i++) {
        if (status == SY_OK)
            status = inline_node(in, g->node[i], &list, depth);
        else
            onnx__node_proto__free_unpacked(g->node[i], NULL);
    }
    free(g->node);
    g->node = list.nodes;
    g->n_node = list.n;
    return status;
}

int sy_onnx_inline_functions(Onnx__ModelProto *model, struct sy_onnx_versions *versions)
{
    struct inliner in = {.model = model, .versions = versions};
    if (model->n_functions > MAX_FUNCTIONS)
        return sy_error_set(SY_EUNSUPPORTED, "it has %zu functions, at most %d are read",
                            model->n_functions, MAX_FUNCTIONS);
    if (model->n_functions == 0)
        return SY_OK;
    SY_TRY(inline_graph(&in, model->graph, 0));
    if (versions->n > 1)
        qsort(versions->of, versions->n, sizeof *versions->of, by_address);
    return SY_OK;
}
