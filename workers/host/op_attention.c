/* Attention as one node (loader/fuse_attention.c says what it is): finds where its matrices lie. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/attention.h"
#include "workers/host/program_internal.h"

/* args: q, k, v, y, scratch, masks */
static int run_attention(struct sy_program *p, struct sy_step *step)
{
    const struct sy_attention *a = step->state;
    const struct sy_step_arg *args = step->args;
    struct sy_attention_data data = {.q = sy_program_pointer(p, args[0].value),
                                     .k = sy_program_pointer(p, args[1].value),
                                     .v = sy_program_pointer(p, args[2].value),
                                     .y = sy_program_pointer(p, args[3].value),
                                     .scratch = sy_program_pointer(p, args[4].value)};
    for (int m = 0; m < a->n_masks; m++)
        data.masks[m] = sy_program_pointer(p, args[5 + m].value);
    return sy_attention_run(a, &data);
}

/* The value of a matrix per head, as the axes of `perm` say: axis i of the matrix is the value's axis perm[i]. */
static int view_of(const struct sy_program *p, int value, const int64_t *perm, int64_t *dims,
                   int64_t *strides)
{
    const struct sy_value *v = &p->values[value];
    int64_t own[SY_MAX_RANK], stride = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        own[i] = stride;
        stride *= v->dims[i];
    }
    for (int i = 0; i < v->rank; i++) {
        if (perm[i] < 0 || perm[i] >= v->rank)
            return sy_error_set(SY_ECORRUPT, "node %s: axis %lld of %d", sy_program_node(p)->name,
                                (long long)perm[i], v->rank);
        dims[i] = v->dims[perm[i]];
        strides[i] = own[perm[i]];
    }
    return SY_OK;
}

/* The axes of operand `i`, or of the result (3), which is transposed when it is made. */
static int axes_of(const struct sy_program *p, int i, int rank, int64_t *axes)
{
    static const char *const names[] = {"q_perm", "k_perm", "v_perm", "y_perm"};
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *perm = sy_node_attr(node, names[i]);
    if (!perm || perm->kind != SY_ATTR_INTS || perm->n != rank)
        return sy_error_set(SY_ECORRUPT, "node %s: %s does not fit", node->name, names[i]);
    for (int k = 0; k < rank; k++)
        axes[k] = i < 3 ? perm->ints[k] : -1;
    for (int k = 0; k < rank && i == 3; k++)
        if (perm->ints[k] >= 0 && perm->ints[k] < rank)
            axes[perm->ints[k]] = k;
    return SY_OK;
}

/* Leading extents of 1 are repeated over the heads. */
static int set_view(const struct sy_program *p, const struct sy_attention *a, const int64_t *dims,
                    const int64_t *strides, bool narrow, struct sy_attention_view *view)
{
    for (int i = 0; i < a->head_rank; i++) {
        if (dims[i] != a->head_dims[i] && dims[i] != 1)
            return sy_unsupported(sy_program_node(p), "operands that cannot be broadcast");
        view->heads[i] = dims[i] == 1 ? 0 : strides[i];
    }
    view->row = strides[a->head_rank];
    view->column = strides[a->head_rank + 1];
    view->narrow = narrow;
    return SY_OK;
}

/* What sgemm takes: one of the strides is 1. */
static bool is_matrix(const struct sy_attention_view *view, int64_t rows, int64_t columns)
{
    return columns == 1 || rows == 1 || view->row == 1 || view->column == 1;
}

static bool matrices_fit(const struct sy_attention *a, const int64_t dims[][SY_MAX_RANK], int rank)
{
    return dims[1][rank - 2] == a->depth && dims[2][rank - 2] == a->columns &&
           dims[3][rank - 2] == a->rows && dims[3][rank - 1] == a->width &&
           is_matrix(&a->q, a->rows, a->depth) && is_matrix(&a->k, a->depth, a->columns) &&
           is_matrix(&a->v, a->columns, a->width) && (a->y.column == 1 || a->width == 1);
}

static int set_matrices(struct sy_program *p, const int *values, struct sy_attention *a)
{
    struct sy_attention_view *views[] = {&a->q, &a->k, &a->v, &a->y};
    int64_t dims[4][SY_MAX_RANK], strides[4][SY_MAX_RANK], axes[SY_MAX_RANK];
    int rank = p->values[values[3]].rank;
    if (rank < 2)
        return sy_unsupported(sy_program_node(p), "operands that are not matrices");
    for (int i = 0; i < 4; i++) {
        SY_TRY(axes_of(p, i, p->values[values[i]].rank, axes));
        SY_TRY(view_of(p, values[i], axes, dims[i], strides[i]));
        if (p->values[values[i]].rank != rank)
            return sy_unsupported(sy_program_node(p), "operands of different ranks");
    }
    a->head_rank = rank - 2;
    memcpy(a->head_dims, dims[3], sizeof a->head_dims);
    a->rows = dims[0][rank - 2];
    a->depth = dims[0][rank - 1];
    a->columns = dims[1][rank - 1];
    a->width = dims[2][rank - 1];
    for (int i = 0; i < 4; i++)
        SY_TRY(set_view(p, a, dims[i], strides[i], sy_value_is_narrow(&p->values[values[i]]),
                        views[i]));
    if (!matrices_fit(a, dims, rank))
        return sy_unsupported(sy_program_node(p), "operands that do not fit each other");
    return SY_OK;
}

/* Numpy's rule: strides of mask `m` seen as the scores, 0 where it is repeated. */
static int set_mask(struct sy_program *p, int m, int value, struct sy_attention *a)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *kinds = sy_node_attr(node, "mask_kinds"),
                         *fills = sy_node_attr(node, "mask_fills");
    const struct sy_value *v = &p->values[value];
    int rank = a->head_rank + 2;
    int64_t strides[SY_MAX_RANK] = {0}, dims[SY_MAX_RANK] = {0}, stride = 1;
    if (!kinds || !fills || m >= kinds->n || m >= fills->n || kinds->ints[m] < SY_MASK_ADD ||
        kinds->ints[m] > SY_MASK_DROP || v->rank > rank)
        return sy_error_set(SY_ECORRUPT, "node %s: mask %d does not fit", node->name, m);
    a->kinds[m] = (enum sy_attention_mask)kinds->ints[m];
    a->fills[m] = fills->floats[m];
    if (v->dtype != (a->kinds[m] == SY_MASK_ADD ? SY_DTYPE_F32 : SY_DTYPE_BOOL))
        return sy_unsupported(node, "a mask of this element type");
    for (int i = 0; i < rank; i++)
        dims[i] = i < rank - v->rank ? 1 : v->dims[i - (rank - v->rank)];
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = dims[i] == 1 ? 0 : stride;
        stride *= dims[i];
    }
    if ((dims[rank - 2] != 1 && dims[rank - 2] != a->rows) ||
        (dims[rank - 1] != 1 && dims[rank - 1] != a->columns))
        return sy_unsupported(node, "a mask that does not fit the scores");
    return set_view(p, a, dims, strides, false, &a->masks[m]);
}

/* Row-major, bf16 if it is that already. */
static int take_operands(struct sy_program *p, int *values)
{
    const struct sy_node *node = sy_program_node(p);
    for (int i = 0; i < 3; i++) {
        if (node->inputs[i] < 0 || sy_program_input_tensor(p, i)->dtype != SY_DTYPE_F32)
            return sy_unsupported(node, "only float32");
        SY_TRY(sy_program_is_param(p, i) ? sy_program_input_plain(p, i, &values[i])
                                         : sy_program_input_rows(p, i, &values[i]));
    }
    if (sy_program_wanted(p, 0) != SY_WANT_NARROW)
        return sy_program_output_plain(p, 0, &values[3]);
    SY_TRY(sy_program_new_narrow(p, node->outputs[0], &values[3]));
    sy_program_set_output(p, 0, values[3]);
    return SY_OK;
}

static int build_attention(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    int values[5 + SY_ATTENTION_MASKS], status;
    if (node->n_inputs < 3 || node->n_inputs > 3 + SY_ATTENTION_MASKS)
        return sy_error_set(SY_ECORRUPT, "node %s: attention of %d inputs", node->name,
                            node->n_inputs);
    struct sy_attention *a = calloc(1, sizeof *a);
    if (!a)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a step");
    a->n_threads = omp_get_max_threads();
    a->n_masks = node->n_inputs - 3;
    a->scale = sy_node_float(node, "scale", 1);
    a->zero_nan = sy_node_int(node, "zero_nan", 0) != 0;
    struct sy_step *step;
    SY_TRY_GOTO(take_operands(p, values), failed);
    SY_TRY_GOTO(set_matrices(p, values, a), failed);
    for (int m = 0; m < a->n_masks; m++) {
        SY_TRY_GOTO(sy_program_input_plain(p, 3 + m, &values[5 + m]), failed);
        SY_TRY_GOTO(set_mask(p, m, values[5 + m], a), failed);
    }
    SY_TRY_GOTO(
        sy_program_new_value(p, SY_DTYPE_U8, 1, (int64_t[]){sy_attention_scratch(a)}, &values[4]),
        failed);
    step = sy_program_add_step(p, run_attention, node->n_inputs + 2);
    SY_TRY_GOTO(step ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a step"), failed);
    for (int i = 0; i < node->n_inputs + 2; i++)
        sy_step_set(p, step, i, 0, values[i]);
    step->state = a;
    step->free_state = free;
    return SY_OK;
failed:
    free(a);
    return status;
}

const struct sy_host_op sy_host_ops_attention[] = {{SY_OP_ATTENTION, build_attention, NULL, NULL},
                                                   {0}};
