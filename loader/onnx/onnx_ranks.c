/* What the caller or the nodes say of inputs' shapes beside the file: how many dimensions one has whose file does not say it (INPUT.rank, or by those that read
 * it), all of them open; and names that do not mean one size (SY_ONNX_APART). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/onnx/onnx_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static bool is_op(const Onnx__NodeProto *node, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(sy_onnx_text(node->op_type), *names) == 0)
            return true;
    return false;
}

static int reads_at(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_input; i++)
        if (strcmp(sy_onnx_text(node->input[i]), name) == 0)
            return (int)i;
    return -1;
}

/* Length of a list of integers; 0: the node has none of that name. */
static int list_length(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_attribute; i++)
        if (strcmp(sy_onnx_text(node->attribute[i]->name), name) == 0)
            return (int)SY_MIN(node->attribute[i]->n_ints, (size_t)SY_MAX_RANK + 1);
    return 0;
}

/* Rank of the constant that is the node's input i; 0: it is none. */
static int constant_rank(const struct sy_onnx_reader *r, const Onnx__NodeProto *node, size_t i)
{
    for (size_t k = 0; i < node->n_input && k < r->proto->n_initializer; k++)
        if (strcmp(sy_onnx_text(r->proto->initializer[k]->name), sy_onnx_text(node->input[i])) == 0)
            return (int)SY_MIN(r->proto->initializer[k]->n_dims, (size_t)SY_MAX_RANK + 1);
    return 0;
}

/* The rank that the node's input `at` has for certain; 0: it may be another. */
static int rank_at(const struct sy_onnx_reader *r, const Onnx__NodeProto *node, int at)
{
    static const char *const convs[] = {"Conv", "ConvTranspose", "FusedConv", NULL},
                             *const recurrent[] = {"LSTM", "GRU", "RNN", NULL},
                             *const pools[] = {"MaxPool", "AveragePool", "LpPool", NULL},
                             *const perms[] = {"Transpose", NULL}, *const gemm[] = {"Gemm", NULL},
                             *const products[] = {"MatMul", NULL};
    if (at <= 1 && is_op(node, gemm))
        return 2;
    if (at != 0)
        return 0;
    if (strcmp(sy_onnx_text(node->domain), "ai.onnx.ml") == 0)
        return 2;
    if (is_op(node, convs))
        return constant_rank(r, node, 1);
    if (is_op(node, recurrent))
        return 3;
    if (is_op(node, pools))
        return list_length(node, "kernel_shape") > 0 ? list_length(node, "kernel_shape") + 2 : 0;
    if (is_op(node, perms))
        return list_length(node, "perm");
    return is_op(node, products) && constant_rank(r, node, 1) == 2 ? 2 : 0; /* or more: rows */
}

/* By those that read `name`, and behind nodes that keep the rank. */
static int rank_by_use(const struct sy_onnx_reader *r, const char *name, int depth)
{
    enum { MOST_STEPS = 8 };
    static const char *const keep[] = {"Cast", "Identity", "Relu",    "Sigmoid",   "Tanh", "Neg",
                                       "Abs",  "Clip",     "Dropout", "LeakyRelu", NULL};
    for (size_t i = 0; i < r->proto->n_node; i++) {
        const Onnx__NodeProto *node = r->proto->node[i];
        int at = reads_at(node, name), rank = at >= 0 ? rank_at(r, node, at) : 0;
        if (at == 0 && rank == 0 && depth < MOST_STEPS && is_op(node, keep) && node->n_output > 0)
            rank = rank_by_use(r, sy_onnx_text(node->output[0]), depth + 1);
        if (rank > 0)
            return rank;
    }
    return 0;
}

/* What the caller says, else what the readers do. */
static int rank_of(const struct sy_onnx_reader *r, const char *name)
{
    char said[256];
    snprintf(said, sizeof said, "%.200s.rank", name);
    for (int k = 0; k < r->n_dims; k++)
        if (r->dims[k].size >= 0 && strcmp(r->dims[k].name, said) == 0) {
            r->dims_used[k] = true;
            return (int)SY_MIN(r->dims[k].size, (int64_t)SY_MAX_RANK + 1);
        }
    return rank_by_use(r, name, 0);
}

/* A shape of `rank` open dimensions, of the message's own memory. */
static int open_shape(int rank, Onnx__TensorShapeProto **out)
{
    Onnx__TensorShapeProto *shape = malloc(sizeof *shape);
    if (!shape)
        return sy_error_set(SY_ENOMEM_HOST, "a shape of %d dimensions", rank);
    onnx__tensor_shape_proto__init(shape);
    *out = shape; /* freed with the message */
    shape->dim = calloc((size_t)rank, sizeof(Onnx__TensorShapeProto__Dimension *));
    for (; shape->dim && (int)shape->n_dim < rank; shape->n_dim++) {
        Onnx__TensorShapeProto__Dimension *dim = malloc(sizeof *dim);
        if (!dim)
            break;
        onnx__tensor_shape_proto__dimension__init(dim);
        shape->dim[shape->n_dim] = dim;
    }
    return (int)shape->n_dim == rank
               ? SY_OK
               : sy_error_set(SY_ENOMEM_HOST, "a shape of %d dimensions", rank);
}

/* Whether the caller says that the name does not mean one size. */
static bool is_apart(struct sy_onnx_reader *r, const char *name)
{
    for (int k = 0; k < r->n_dims; k++)
        if (r->dims[k].size == SY_ONNX_APART && strcmp(r->dims[k].name, name) == 0) {
            r->dims_used[k] = true;
            return true;
        }
    return false;
}

/* A dimension without a name is a size of its own, until the graph requires it to be another's. */
static void forget_names(struct sy_onnx_reader *r, Onnx__TensorShapeProto *shape)
{
    for (size_t d = 0; d < shape->n_dim; d++) {
        Onnx__TensorShapeProto__Dimension *dim = shape->dim[d];
        if (dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM ||
            !is_apart(r, sy_onnx_text(dim->dim_param)))
            continue;
        if (dim->dim_param != protobuf_c_empty_string)
            free(dim->dim_param);
        dim->dim_param = NULL;
        dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE__NOT_SET;
    }
}

int sy_onnx_find_ranks(struct sy_onnx_reader *r)
{
    for (size_t i = 0; i < r->proto->n_input; i++) {
        const Onnx__ValueInfoProto *info = r->proto->input[i];
        if (!info->type || info->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
            !info->type->tensor_type)
            continue;
        if (info->type->tensor_type->shape) {
            forget_names(r, info->type->tensor_type->shape);
            continue;
        }
        const char *name = sy_onnx_text(info->name);
        int rank = rank_of(r, name);
        if (rank > 0 && rank <= SY_MAX_RANK)
            SY_TRY(open_shape(rank, &info->type->tensor_type->shape));
    }
    return SY_OK;
}
