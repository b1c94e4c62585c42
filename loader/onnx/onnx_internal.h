/* Shared by the parts of the ONNX reader: the only header that knows ONNX's protobuf messages. */
#ifndef SY_LOADER_ONNX_ONNX_INTERNAL_H
#define SY_LOADER_ONNX_ONNX_INTERNAL_H

#include "loader/graph/graph_internal.h"
#include "loader/onnx/name_map.h"
#include "onnx.pb-c.h"

enum { SY_ONNX_MAX_BODIES = 2, SY_ONNX_MIN_OPSET = 6, SY_ONNX_MAX_OPSET = 28 };

/* Nodes of functions whose opset is not their model's, by address. */
struct sy_onnx_version {
    const Onnx__NodeProto *node;
    int opset;
};
struct sy_onnx_versions {
    struct sy_onnx_version *of;
    size_t n, room;
};

/* Captures of the bodies of one node: tensors of the outer graph, in the order of the node's last inputs. */
struct sy_onnx_captures {
    int n, *outer;
    int *local
        [SY_ONNX_MAX_BODIES]; /* per body: the same as tensors of the body; -1: it does not read it */
};

/* One graph being read: the model's, or the body of one of its nodes. */
struct sy_onnx_reader {
    const char *path;
    Onnx__ModelProto *model;
    const Onnx__GraphProto *proto;
    struct sy_graph *graph;
    struct sy_name_map map; /* tensors */
    struct sy_name_map
        declared; /* results that the file gives a type: index into value_info, then into outputs */
    int opset;
    const struct sy_onnx_versions *versions;
    size_t *dense_bytes; /* of all sparse tensors read so far, also in bodies */
    const struct sy_onnx_dim
        *dims; /* numbers for symbolic dimensions, and whether an input has them */
    bool *dims_used;
    int n_dims;
    /* of a body: */
    struct sy_onnx_reader *outer;
    struct sy_onnx_captures *captures;
    int body, depth;
};

/* "" for absent and for NULL alike. */
static inline const char *sy_onnx_text(const char *s)
{
    return s ? s : "";
}

/* A constant of the graph, called `name`. Empties `proto` of its data. (onnx_tensor.c) */
int sy_onnx_read_tensor(struct sy_onnx_reader *r, Onnx__TensorProto *proto, const char *name,
                        int *out);
/* A sparse tensor as a constant of the graph, with zeros where it names no value. Empties `proto` of its data. EUNSUPPORTED: the file's have more
 * than 1 GiB when they are dense. (onnx_tensor.c) */
int sy_onnx_read_sparse(struct sy_onnx_reader *r, Onnx__SparseTensorProto *proto, const char *name,
                        int *out);
/* The tensor of that name, here or in the graphs around; -1 if there is none. (onnx_body.c) */
int sy_onnx_find_tensor(struct sy_onnx_reader *r, const char *name, int *out);
/* Large constants of a body become its node's inputs. */
int sy_onnx_hoist_constants(struct sy_onnx_reader *r);
/* The node has as many inputs and outputs as its operator may have, and its attributes, each once and of its kind. (onnx_schema.c) */
int sy_onnx_check_node(enum sy_op op, const Onnx__NodeProto *node);
/* The node's attributes that are graphs; `node` has its own inputs already, what the bodies capture is added to them. (onnx_body.c) */
int sy_onnx_read_bodies(struct sy_onnx_reader *r, const Onnx__NodeProto *from,
                        struct sy_node *node);
/* Calls of the model's own functions become their nodes. Caller frees versions->of, also on failure. EUNSUPPORTED: too deep, too many, of an opset that is not
 * read. (onnx_functions.c) */
int sy_onnx_inline_functions(Onnx__ModelProto *model, struct sy_onnx_versions *versions);
/* The opset of a node; `around`: the model's, which it has unless `versions` names another. (onnx_functions.c) */
int sy_onnx_node_opset(const struct sy_onnx_versions *versions, const Onnx__NodeProto *node,
                       int around);
/* Outputs that no node makes become copies, so that a layer writes them. (onnx_body.c) */
int sy_onnx_copy_passed_through(struct sy_graph *graph);
/* An input of the graph. (onnx_inputs.c) */
int sy_onnx_read_input(struct sy_onnx_reader *r, const Onnx__ValueInfoProto *info);
/* An input that is a sequence or an optional: inputs for its parts, and the node that makes it of them. EUNSUPPORTED: of something else than tensors, or
 * a part has the name of another input. (onnx_lists.c) */
int sy_onnx_read_list_input(struct sy_onnx_reader *r, const Onnx__ValueInfoProto *info);
/* Whether the file says that it is a sequence or an optional. */
bool sy_onnx_is_list(const Onnx__ValueInfoProto *info);
/* Gives inputs without a shape one of open sizes, where r->dims or their readers tell how many; takes the names of sizes that are apart. (onnx_ranks.c) */
int sy_onnx_find_ranks(struct sy_onnx_reader *r);
/* Whether the file says that it is a map. */
bool sy_onnx_is_map(const Onnx__ValueInfoProto *info);
/* An input that is a map: inputs for its keys and its values, and the sequence of these two that its readers get. EUNSUPPORTED: keys or values of other types.
 * (onnx_lists.c) */
int sy_onnx_read_map_input(struct sy_onnx_reader *r, const Onnx__ValueInfoProto *info);
/* Outputs for the parts of `tensor`, which is one. */
int sy_onnx_add_list_output(struct sy_onnx_reader *r, const Onnx__ValueInfoProto *info, int tensor);
/* The graph's outputs, when all nodes were read. (onnx_inputs.c) */
int sy_onnx_read_outputs(struct sy_onnx_reader *r);
/* Fills r->graph from r->proto. (onnx_reader.c) */
int sy_onnx_read_graph(struct sy_onnx_reader *r);

#endif
