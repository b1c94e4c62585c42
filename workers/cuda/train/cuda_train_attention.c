/* Attention as one node (loader/fuse/fuse_attention.c): one kernel forward, which keeps two numbers of each row, and two backward that make the
 * scores once more. What masks are made of is not trained (sy_graph_fuse_training). */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"

#define FLOP_PER_NS 20000.0

enum { Q, K, V, MASKS, LAST_MASK = MASKS + SY_ATTENTION_MASKS - 1 };
enum { STATS = LAST_MASK + 1, Y, N_FORWARD };
enum { BACK_Y = LAST_MASK + 1, DY, BACK_STATS, DELTA, DQ, DK, DV, N_BACK };

_Static_assert((int)N_BACK <= (int)SY_CUTR_ARGS, "a step has so many arguments");

static void point_at_masks(const struct sy_trainer *t, const struct sy_cutr_step *step,
                           const void **masks)
{
    for (int m = 0; m < SY_ATTENTION_MASKS; m++)
        masks[m] = sy_cutr_pointer(t, step->args[MASKS + m]);
}

static int run_attention(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    const int *a = step->args;
    const void *masks[SY_ATTENTION_MASKS];
    point_at_masks(t, step, masks);
    return t->ops->attention(t->math, &step->attention->forward, sy_cutr_pointer(t, a[Q]),
                             sy_cutr_pointer(t, a[K]), sy_cutr_pointer(t, a[V]), masks,
                             sy_cutr_pointer(t, a[Y]), sy_cutr_pointer(t, a[STATS]));
}

static int run_gradient(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    const int *a = step->args;
    struct sy_math_attention_at at = {.q = sy_cutr_pointer(t, a[Q]),
                                      .k = sy_cutr_pointer(t, a[K]),
                                      .v = sy_cutr_pointer(t, a[V]),
                                      .y = sy_cutr_pointer(t, a[BACK_Y]),
                                      .dy = sy_cutr_pointer(t, a[DY]),
                                      .stats = sy_cutr_pointer(t, a[BACK_STATS]),
                                      .delta = sy_cutr_pointer(t, a[DELTA]),
                                      .dq = sy_cutr_pointer(t, a[DQ]),
                                      .dk = sy_cutr_pointer(t, a[DK]),
                                      .dv = sy_cutr_pointer(t, a[DV])};
    point_at_masks(t, step, at.masks);
    return t->ops->train->attention_gradient(t->math, step->attention, &at);
}

static int64_t count_rows(const struct sy_attention *a)
{
    int64_t n = a->rows;
    for (int d = 0; d < a->head_rank; d++)
        n *= a->head_dims[d];
    return n;
}

/* q, k, v in what products compute in, and masks. */
static int take_operands(struct sy_trainer *t, unsigned when, const struct sy_node *node, int *args)
{
    for (int i = 0; i < SY_ATTENTION_MASKS; i++)
        args[MASKS + i] = -1;
    for (int i = 0; i < node->n_inputs; i++)
        SY_TRY(sy_cutr_operand_typed(t, when, node->inputs[i], SY_CUTR_PLAIN,
                                     i < MASKS ? sy_cutr_product_type(t) : SY_DTYPE_F32, &args[i]));
    return SY_OK;
}

/* products: of [rows, columns] by depth or width. */
static uint64_t cost_ns(const struct sy_attention *a, double products)
{
    return (uint64_t)(products * (double)count_rows(a) * (double)a->columns *
                      (double)(a->depth + a->width) / FLOP_PER_NS);
}

int sy_cutr_attention_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_step *step;
    int args[N_FORWARD];
    struct sy_math_attention_back *back = calloc(1, sizeof *back);
    SY_TRY_ALLOC(back, "no memory for a training plan");
    t->nodes[n].attention = back;
    struct sy_attention *a = &back->forward.of;
    SY_TRY(sy_attention_read(t->graph, node, t->options.batch, a));
    if (SY_MAX(a->depth, a->width) > SY_MATH_ATTENTION_BACK_SIZE)
        return sy_cutr_refuse(node, "heads of more than 128 numbers");
    for (int m = 0; m < a->n_masks; m++)
        if (a->kinds[m] == SY_MASK_ADD && sy_cutr_needs(t, node->inputs[MASKS + m]))
            return sy_cutr_refuse(node, "a mask that is trained");
    SY_TRY(take_operands(t, SY_CUTR_FORWARD, node, args));
    SY_TRY(sy_cutr_value_new(t, 2, (int64_t[]){count_rows(a), 2}, false, false, &args[STATS]));
    SY_TRY(sy_cutr_result_typed(t, node->outputs[0], false,
                                sy_cutr_wanted_type(t, node->outputs[0]), &args[Y]));
    t->nodes[n].moments = args[STATS];
    back->forward.type = sy_cutr_product_type(t);
    back->forward.y_type = t->values[args[Y]].dtype;
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_FORWARD, node->name, run_attention, args, N_FORWARD, &step));
    step->n_results = N_FORWARD - STATS;
    step->attention = back;
    step->cost_ns += cost_ns(a, 2);
    return SY_OK;
}

/* ---- gradients ---- */

/* The buffer for the gradient of an operand of so many elements: in its layout, with a copy for each repetition. Returns the number of copies. */
static int64_t spread(const struct sy_attention *a, const struct sy_attention_view *from,
                      int64_t elements, struct sy_attention_view *to)
{
    int64_t copies = 1;
    *to = *from;
    for (int d = a->head_rank - 1; d >= 0; d--)
        if (from->heads[d] == 0) {
            to->heads[d] = copies * elements;
            copies *= a->head_dims[d];
        }
    if (from == &a->q && from->row == 0 && a->rows > 1) { /* heads that became rows */
        to->row = copies * elements;
        copies *= a->rows;
    }
    return copies;
}

static int take_gradient(struct sy_trainer *t, int tensor, int64_t copies, enum sy_dtype *type,
                         int *value)
{
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, tensor, dims);
    SY_TRY(rank);
    /* what is summed over many is kept as exact as it comes */
    *type = copies > 1 || t->tensors[tensor].param >= 0 ? SY_DTYPE_F32 : sy_cutr_product_type(t);
    if (copies == 1)
        return sy_cutr_value_typed(t, *type, rank, dims, false, false, value);
    return sy_cutr_value_new(t, 2, (int64_t[]){copies, sy_cutr_elements(t, tensor)}, false, false,
                             value);
}

static int end_gradient(struct sy_trainer *t, const char *name, int tensor, int64_t copies,
                        int value)
{
    int sum;
    if (!sy_cutr_needs(t, tensor))
        return SY_OK;
    if (copies == 1)
        return sy_cutr_diff_end(t, tensor, value);
    SY_TRY(sy_cutr_diff_begin(t, tensor, false, &sum));
    SY_TRY(sy_cutr_sum(t, SY_CUTR_TRAIN, name, 2, (int64_t[]){copies, sy_cutr_elements(t, tensor)},
                       (bool[]){true, false}, value, sum));
    return sy_cutr_diff_end(t, tensor, sum);
}

int sy_cutr_attention_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_math_attention_back *back = t->nodes[n].attention;
    const struct sy_attention *a = &back->forward.of;
    const struct sy_attention_view *from[] = {&a->q, &a->k, &a->v};
    struct sy_attention_view *to[] = {&back->dq, &back->dk, &back->dv};
    enum sy_dtype *types[] = {&back->dq_type, &back->dk_type, &back->dv_type};
    struct sy_cutr_step *step;
    int args[N_BACK];
    int64_t copies[3];
    SY_TRY(take_operands(t, SY_CUTR_TRAIN, node, args));
    args[BACK_Y] = t->tensors[node->outputs[0]].value;
    args[BACK_STATS] = t->nodes[n].moments;
    SY_TRY(sy_cutr_as_typed(t, SY_CUTR_TRAIN, gradient, false, sy_cutr_product_type(t), &args[DY]));
    SY_TRY(sy_cutr_value_new(t, 1, (int64_t[]){count_rows(a)}, false, false, &args[DELTA]));
    for (int i = Q; i <= V; i++) {
        copies[i] = spread(a, from[i], sy_cutr_elements(t, node->inputs[i]), to[i]);
        SY_TRY(take_gradient(t, node->inputs[i], copies[i], types[i], &args[DQ + i]));
    }
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_gradient, args, N_BACK, &step));
    step->n_results = N_BACK - DELTA;
    step->attention = back;
    step->cost_ns += cost_ns(a, 7);
    for (int i = Q; i <= V; i++)
        SY_TRY(end_gradient(t, node->name, node->inputs[i], copies[i], args[DQ + i]));
    return SY_OK;
}
