/* Attention as one node (loader/fuse/fuse_attention.c says what it is): one kernel, which reads and writes all matrices where they lie. What has
 * larger heads than it takes is not fused. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"

static int run_attention(struct sy_program *p, const struct sy_cuda_step *step)
{
    const struct sy_cuda_attention *a = step->attention;
    const void *at[SY_ARRAY_LEN(a->values)];
    for (size_t i = 0; i < SY_ARRAY_LEN(a->values); i++)
        at[i] = sy_cuda_pointer(p, a->values[i]);
    return p->ops->attention(p->math, &a->of, at[0], at[1], at[2], at + 4,
                             sy_cuda_pointer(p, a->values[3]), NULL);
}

static int take_values(struct sy_program *p, struct sy_cuda_attention *a)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_attention *of = &a->of.of;
    bool narrow = p->narrow != SY_DTYPE_NONE;
    SY_TRY(sy_attention_read(p->graph, node, p->batch, of));
    if (of->depth > SY_MATH_ATTENTION_SIZE || of->width > SY_MATH_ATTENTION_SIZE)
        return sy_unsupported(node, "heads of more than 256 numbers");
    for (int i = 0; i < 3; i++)
        SY_TRY(sy_cuda_input_as(p, i, false, narrow, &a->values[i]));
    for (int m = 0; m < of->n_masks; m++)
        SY_TRY(sy_cuda_input_plain(p, 3 + m, &a->values[4 + m]));
    a->of.type = p->values[a->values[0]].dtype;
    a->of.y_type = sy_cuda_wanted(p, 0);
    of->q.narrow = of->k.narrow = of->v.narrow = narrow;
    of->y.narrow = sy_math_is_narrow(a->of.y_type);
    return sy_cuda_output_as(p, 0, a->of.y_type, false, &a->values[3]);
}

static int build_attention(struct sy_program *p)
{
    struct sy_cuda_step *step;
    struct sy_cuda_attention *a = calloc(1, sizeof *a);
    SY_TRY_ALLOC(a, "no memory for a step");
    memset(a->values, 0xff, sizeof a->values);
    int status = take_values(p, a);
    if (status == SY_OK)
        status = sy_cuda_add_step(p, run_attention, a->values, 4, &step);
    if (status < 0) {
        free(a);
        return status;
    }
    step->attention = a;
    for (int m = 0; m < a->of.of.n_masks; m++)
        sy_cuda_touch(p, a->values[4 + m]);
    return SY_OK;
}

const struct sy_cuda_op sy_cuda_ops_attention[] = {
    {.build = build_attention, SY_OPS(SY_OP_ATTENTION)}, {0}};
