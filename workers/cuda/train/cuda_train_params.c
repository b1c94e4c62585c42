/* Constants of the graph on the device, operands of steps, and where gradients go. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"

bool sy_cutr_needs(const struct sy_trainer *t, int tensor)
{
    return tensor >= 0 && t->tensors[tensor].needs_gradient;
}

int64_t sy_cutr_elements(const struct sy_trainer *t, int tensor)
{
    return sy_shape_elements(&t->graph->tensors[tensor].shape, t->options.batch);
}

/* ---- constants ---------------------------------------------------------------------------------------- */

static int n_slots_of(const struct sy_train_options *options)
{
    if (options->optimizer != SY_OPTIMIZER_SGD)
        return 2;
    return options->momentum != 0.0 ? 1 : 0;
}

static int add_param(struct sy_trainer *t, int tensor, enum sy_cutr_param_kind kind, bool last)
{
    const struct sy_tensor *x = &t->graph->tensors[tensor];
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, tensor, dims);
    SY_TRY(rank);
    struct sy_cutr_param *p = sy_append(&t->params, &t->n_params, sizeof *p);
    if (!p)
        return SY_ENOMEM_HOST;
    *p = (struct sy_cutr_param){
        .tensor = tensor, .kind = kind, .gradient = -1, .total = -1, .batch_statistic = -1};
    t->tensors[tensor].param = t->n_params - 1;
    last = last && x->dtype == SY_DTYPE_F32;
    SY_TRY(sy_cutr_value_typed(t, x->dtype, rank, dims, last, true, &p->value));
    if (x->data_bytes != sy_cutr_value_bytes(t, p->value))
        return sy_error_set(SY_EARG, "tensor '%s': %zu bytes of data where its shape wants %llu",
                            x->name, x->data_bytes,
                            (unsigned long long)sy_cutr_value_bytes(t, p->value));
    if (kind != SY_CUTR_TRAINED)
        return SY_OK;
    SY_TRY(sy_cutr_value_new(t, rank, dims, last, true, &p->gradient));
    p->total = p->gradient;
    if (t->options.accumulate > 1)
        SY_TRY(sy_cutr_value_new(t, rank, dims, last, true, &p->total));
    p->n_slots = n_slots_of(&t->options);
    for (int i = 0; i < p->n_slots; i++)
        SY_TRY(sy_cutr_value_new(t, rank, dims, last, true, &p->slots[i]));
    return SY_OK;
}

int sy_cutr_operand(struct sy_trainer *t, unsigned when, int tensor, enum sy_cutr_layout layout,
                    int *value)
{
    return sy_cutr_operand_typed(t, when, tensor, layout, SY_DTYPE_F32, value);
}

int sy_cutr_operand_typed(struct sy_trainer *t, unsigned when, int tensor,
                          enum sy_cutr_layout layout, enum sy_dtype type, int *value)
{
    const struct sy_tensor *x = &t->graph->tensors[tensor];
    *value = t->tensors[tensor].value;
    if (x->data) {
        if (t->tensors[tensor].param < 0)
            SY_TRY(add_param(t, tensor, sy_cutr_needs(t, tensor) ? SY_CUTR_TRAINED : SY_CUTR_FIXED,
                             layout == SY_CUTR_LAST));
        *value = t->params[t->tensors[tensor].param].value;
    }
    if (*value < 0)
        return sy_error_set(SY_EUNSUPPORTED, "tensor '%s' is not computed in training", x->name);
    bool last = layout == SY_CUTR_ANY ? t->values[*value].last : layout == SY_CUTR_LAST;
    return x->dtype != SY_DTYPE_F32 ? SY_OK : sy_cutr_as_typed(t, when, *value, last, type, value);
}

int sy_cutr_statistic(struct sy_trainer *t, int tensor, int64_t channels, int batch, float keep,
                      int *value)
{
    const struct sy_tensor *x = &t->graph->tensors[tensor];
    if (!x->data || x->dtype != SY_DTYPE_F32 || sy_cutr_elements(t, tensor) != channels)
        return sy_error_set(SY_EUNSUPPORTED,
                            "tensor '%s': a running statistic must be a float32 constant of %lld "
                            "channels",
                            x->name, (long long)channels);
    if (t->tensors[tensor].param >= 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "tensor '%s': shared by nodes that read it in different ways", x->name);
    SY_TRY(add_param(t, tensor, SY_CUTR_STATISTIC, false));
    struct sy_cutr_param *p = &t->params[t->tensors[tensor].param];
    p->batch_statistic = p->total = batch;
    p->keep = keep;
    *value = p->value;
    if (t->options.accumulate > 1) /* what it is to gain, over all phases */
        return sy_cutr_value_new(t, 1, &channels, false, true,
                                 &t->params[t->tensors[tensor].param].total);
    return SY_OK;
}

int sy_cutr_result(struct sy_trainer *t, int tensor, bool last, int *value)
{
    return sy_cutr_result_typed(t, tensor, last, SY_DTYPE_NONE, value);
}

int sy_cutr_result_typed(struct sy_trainer *t, int tensor, bool last, enum sy_dtype type,
                         int *value)
{
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, tensor, dims);
    SY_TRY(rank);
    if (type == SY_DTYPE_NONE)
        type = t->graph->tensors[tensor].dtype;
    SY_TRY(sy_cutr_value_typed(t, type, rank, dims, last, false, value));
    t->tensors[tensor].value = *value;
    return SY_OK;
}

static bool wants_narrow(const struct sy_trainer *t, int tensor, int depth);

/* Operators that take bfloat16 as it is given. */
static bool takes_narrow(const struct sy_trainer *t, const struct sy_node *node, int depth)
{
    switch (node->op) {
    case SY_OP_CONV:
    case SY_OP_CONV_TRANSPOSE:
    case SY_OP_GEMM:
    case SY_OP_MATMUL:
    case SY_OP_ATTENTION:
    case SY_OP_BATCH_NORM:
    case SY_OP_MAX_POOL:
    case SY_OP_AVERAGE_POOL:
    case SY_OP_ADD:
        return true;
    case SY_OP_RESHAPE:
    case SY_OP_FLATTEN:
    case SY_OP_SQUEEZE:
    case SY_OP_UNSQUEEZE:
    case SY_OP_IDENTITY:
    case SY_OP_TRANSPOSE:
    case SY_OP_SLICE:
    case SY_OP_SPLIT:
    case SY_OP_CONCAT:
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i] >= 0 && depth > 0 && wants_narrow(t, node->outputs[i], depth - 1))
                return true;
        return false;
    default: {
        enum sy_gradient family = sy_op_facts(node->op)->gradient;
        return family == SY_GRADIENT_ACTIVATION || family == SY_GRADIENT_CHAIN;
    }
    }
}

static bool wants_narrow(const struct sy_trainer *t, int tensor, int depth)
{
    const struct sy_graph *g = t->graph;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_inputs; i++)
            if (g->nodes[n].inputs[i] == tensor && takes_narrow(t, &g->nodes[n], depth))
                return true;
    return false;
}

enum sy_dtype sy_cutr_wanted_type(const struct sy_trainer *t, int tensor)
{
    const int most_moves = 4; /* in a row that are looked through */
    bool narrow = sy_cutr_product_type(t) == SY_DTYPE_BF16 && wants_narrow(t, tensor, most_moves);
    return narrow ? SY_DTYPE_BF16 : SY_DTYPE_F32;
}

/* ---- gradients ---------------------------------------------------------------------------------------- */

static const struct sy_math_chain sum_of_two = {
    .n_inputs = 2, .n_steps = 2, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}, {SY_CHAIN_ADD, 1, 0, 0}}};

static struct sy_cutr_param *param_of(struct sy_trainer *t, int tensor)
{
    int param = t->tensors[tensor].param;
    return param >= 0 && t->params[param].kind == SY_CUTR_TRAINED ? &t->params[param] : NULL;
}

int sy_cutr_diff_begin(struct sy_trainer *t, int tensor, bool last, int *value)
{
    return sy_cutr_diff_begin_typed(t, tensor, last, SY_DTYPE_F32, value);
}

int sy_cutr_diff_begin_typed(struct sy_trainer *t, int tensor, bool last, enum sy_dtype type,
                             int *value)
{
    const struct sy_cutr_param *p = param_of(t, tensor);
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, tensor, dims);
    SY_TRY(rank);
    if (p && p->n_contributions == 0 && type == SY_DTYPE_F32 &&
        t->values[p->gradient].last == (last && rank >= 3)) {
        *value = p->gradient;
        return SY_OK;
    }
    return sy_cutr_value_typed(t, type, rank, dims, last, false, value);
}

/* `value` in the tensor's own dims. */
static int with_dims(struct sy_trainer *t, int tensor, int value, int *out)
{
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, tensor, dims);
    const struct sy_cutr_value *v = &t->values[value];
    SY_TRY(rank);
    *out = value;
    if (v->rank == rank && memcmp(v->dims, dims, (size_t)rank * sizeof *dims) == 0)
        return SY_OK;
    sy_assert_internal(!v->last);
    return sy_cutr_view(t, value, rank, dims, false, 0, out);
}

static int commit(struct sy_trainer *t, struct sy_cutr_param *p, int value)
{
    struct sy_math_chain load = {.n_inputs = 1, .n_steps = 1, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}}};
    int gradient = p->gradient, same;
    bool is_first = p->n_contributions++ == 0;
    if (is_first && value == gradient)
        return SY_OK;
    SY_TRY(
        sy_cutr_as_typed(t, SY_CUTR_TRAIN, value, t->values[gradient].last, SY_DTYPE_NONE, &same));
    return sy_cutr_chain(t, SY_CUTR_TRAIN, "gradient", is_first ? &load : &sum_of_two,
                         is_first ? (int[]){same} : (int[]){gradient, same}, (bool[]){false, false},
                         1, gradient);
}

/* Never in place: the earlier contribution may be another tensor's gradient too (both inputs of a residual add). */
static int add_gradient(struct sy_trainer *t, int tensor, int value)
{
    int before = t->tensors[tensor].gradient, same, sum;
    if (before < 0) {
        t->tensors[tensor].gradient = value;
        return SY_OK;
    }
    const struct sy_cutr_value v = t->values[before];
    SY_TRY(sy_cutr_as_typed(t, SY_CUTR_TRAIN, value, v.last, SY_DTYPE_NONE, &same));
    enum sy_dtype type = sy_cutr_common_type(t, (int[]){before, same}, 2);
    SY_TRY(sy_cutr_value_typed(t, type, v.rank, v.dims, v.last, false, &sum));
    SY_TRY(sy_cutr_chain(t, SY_CUTR_TRAIN, "gradient", &sum_of_two, (int[]){before, same},
                         (bool[]){false, false}, 1, sum));
    t->tensors[tensor].gradient = sum;
    return SY_OK;
}

int sy_cutr_diff_end(struct sy_trainer *t, int tensor, int value)
{
    struct sy_cutr_param *p = param_of(t, tensor);
    SY_TRY(with_dims(t, tensor, value, &value));
    return p ? commit(t, p, value) : add_gradient(t, tensor, value);
}

int sy_cutr_diff_of(struct sy_trainer *t, int tensor, int *value)
{
    return sy_cutr_as_typed(t, SY_CUTR_TRAIN, t->tensors[tensor].gradient, false, SY_DTYPE_NONE,
                            value);
}

int sy_cutr_diff_reduction(struct sy_trainer *t, const char *name, int tensor, int rank,
                           const int64_t *dims, int full)
{
    int64_t own[SY_MAX_RANK];
    bool reduced[SY_MAX_RANK], any = false;
    int own_rank = sy_cutr_dims(t, tensor, own), to;
    SY_TRY(own_rank);
    for (int i = 0; i < rank; i++) {
        int64_t extent = i < rank - own_rank ? 1 : own[i - (rank - own_rank)];
        reduced[i] = extent != dims[i];
        any |= reduced[i];
    }
    if (!any)
        return sy_cutr_diff_end(t, tensor, full);
    SY_TRY(sy_cutr_diff_begin(t, tensor, false, &to));
    SY_TRY(sy_cutr_sum(t, SY_CUTR_TRAIN, name, rank, dims, reduced, full, to));
    return sy_cutr_diff_end(t, tensor, to);
}
