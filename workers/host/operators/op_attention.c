/* Attention as one node (loader/fuse/fuse_attention.c says what it is): finds where its matrices lie. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/rows/attention.h"

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

/* sgemm requires one stride of 1. */
static bool is_matrix(const struct sy_attention_view *view, int64_t rows, int64_t columns)
{
    return columns == 1 || rows == 1 || view->row == 1 || view->column == 1;
}

static bool lies_as_matrices(const struct sy_attention *a)
{
    return is_matrix(&a->q, a->rows, a->depth) && is_matrix(&a->k, a->depth, a->columns) &&
           is_matrix(&a->v, a->columns, a->width) && (a->y.column == 1 || a->width == 1);
}

/* Row-major, bf16 if it is that already. */
static int take_operands(struct sy_program *p, int *values)
{
    const struct sy_node *node = sy_program_node(p);
    for (int i = 0; i < 3; i++)
        SY_TRY(sy_program_is_param(p, i) ? sy_program_input_plain(p, i, &values[i])
                                         : sy_program_input_rows(p, i, &values[i]));
    if (sy_program_wanted(p, 0) != SY_WANT_NARROW)
        return sy_program_output_plain(p, 0, &values[3]);
    SY_TRY(sy_program_new_narrow(p, node->outputs[0], &values[3]));
    sy_program_set_output(p, 0, values[3]);
    return SY_OK;
}

static int read_node(struct sy_program *p, int *values, struct sy_attention *a)
{
    struct sy_attention_view *views[] = {&a->q, &a->k, &a->v, &a->y};
    const struct sy_node *node = sy_program_node(p);
    SY_TRY(sy_attention_read(p->graph, node, p->batch, a));
    if (!lies_as_matrices(a))
        return sy_unsupported(node, "operands that do not lie as matrices");
    a->n_threads = omp_get_max_threads();
    SY_TRY(take_operands(p, values));
    for (int i = 0; i < 4; i++)
        views[i]->narrow = sy_value_is_narrow(&p->values[values[i]]);
    for (int m = 0; m < a->n_masks; m++)
        SY_TRY(sy_program_input_plain(p, 3 + m, &values[5 + m]));
    return sy_program_new_value(p, SY_DTYPE_U8, 1, (int64_t[]){sy_attention_scratch(a)},
                                &values[4]);
}

static int build_attention(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    int values[5 + SY_ATTENTION_MASKS], status;
    struct sy_attention *a = calloc(1, sizeof *a);
    SY_TRY_ALLOC(a, "no memory for a step");
    struct sy_step *step;
    SY_TRY_GOTO(read_node(p, values, a), failed);
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

const struct sy_host_op sy_host_ops_attention[] = {
    {.build = build_attention, SY_OPS(SY_OP_ATTENTION)}, {0}};
