/* What no other step computes: operators by their formula for each element (generic.h), row-major, of the tensors' own types. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"

static int run_each(struct sy_program *p, const struct sy_cuda_step *step)
{
    const struct sy_cuda_formula *each = step->formula;
    void *at[SY_GENERIC_ARRAYS];
    for (int i = 0; i < SY_GENERIC_ARRAYS; i++)
        at[i] = sy_cuda_pointer(p, each->values[i]);
    if (each->copies_first)
        SY_TRY(p->ops->copy(p->math, at[0], at[SY_GENERIC_IN],
                            p->values[each->values[SY_GENERIC_IN]].bytes));
    struct sy_math_generic of = each->of;
    of.step = step - p->steps + 1;
    return p->ops->each(p->math, &of, at, p->fault);
}

static void describe(const struct sy_program *p, int value, struct sy_generic_array *out)
{
    const struct sy_cuda_value *v = &p->values[value];
    out->dtype = v->dtype;
    out->rank = v->rank;
    memcpy(out->dims, v->dims, sizeof out->dims);
}

/* All inputs, and n_out results from `first` on. */
static int take_values(struct sy_program *p, struct sy_cuda_formula *each, int first, int n_out)
{
    const struct sy_node *node = sy_cuda_node(p);
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0) {
            SY_TRY(sy_cuda_input_plain(p, i, &each->values[i]));
            describe(p, each->values[i], &each->of.at[i]);
        }
    for (int i = 0; i < n_out; i++)
        if (node->outputs[first + i] >= 0) {
            int *value = &each->values[SY_GENERIC_IN + i];
            SY_TRY(sy_cuda_output(p, first + i, false, value));
            describe(p, *value, &each->of.at[SY_GENERIC_IN + i]);
        }
    each->of.n_in = node->n_inputs;
    each->of.n_out = n_out;
    return SY_OK;
}

static int open_results(struct sy_program *p, int first, int n_out, struct sy_cuda_formula **out)
{
    const struct sy_node *node = sy_cuda_node(p);
    if (node->n_inputs > SY_GENERIC_IN || n_out > SY_GENERIC_OUT)
        return sy_unsupported(node, "so many inputs and outputs");
    struct sy_cuda_formula *each = calloc(1, sizeof *each);
    SY_TRY_ALLOC(each, "node %s: no memory for its step", node->name);
    memset(each->values, 0xff, sizeof each->values);
    int status = take_values(p, each, first, n_out);
    if (status < 0) {
        free(each);
        return status;
    }
    *out = each;
    return SY_OK;
}

int sy_cuda_formula_open(struct sy_program *p, struct sy_cuda_formula **out)
{
    return open_results(p, 0, sy_cuda_node(p)->n_outputs, out);
}

int sy_cuda_formula_add(struct sy_program *p, struct sy_cuda_formula *each)
{
    struct sy_cuda_step *step;
    int status = sy_cuda_add_step(p, run_each, NULL, 0, &step);
    if (status < 0) {
        free(each);
        return status;
    }
    step->formula = each;
    for (int i = 0; i < SY_GENERIC_ARRAYS; i++)
        if (each->values[i] >= 0)
            sy_cuda_touch(p, each->values[i]);
    return SY_OK;
}

/* Takes the kernel's scratch. */
static int take_room(struct sy_program *p, struct sy_cuda_formula *each)
{
    const struct sy_generic_array *room = &each->of.at[SY_GENERIC_ROOM];
    if (room->dtype == SY_DTYPE_NONE)
        return SY_OK;
    return sy_cuda_new_value(p, room->dtype, room->rank, room->dims, false,
                             &each->values[SY_GENERIC_ROOM]);
}

/* Takes `each`, whatever happens. */
static int describe_and_add(struct sy_program *p, struct sy_cuda_formula *each)
{
    int status = sy_generic_describe(sy_cuda_node(p), &each->of, &each->copies_first);
    if (status == SY_OK)
        status = take_room(p, each);
    if (status < 0) {
        free(each);
        return status;
    }
    return sy_cuda_formula_add(p, each);
}

/* More parts than a kernel has results: as many kernels as it takes, each of which finds its own in the input. */
static int build_parts(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_generic_split split = {.parts = node->n_outputs};
    while (split.before < split.parts) {
        struct sy_cuda_formula *each;
        int n = (int)SY_MIN(split.parts - split.before, SY_GENERIC_OUT);
        SY_TRY(open_results(p, (int)split.before, n, &each));
        each->of.as.split = split;
        SY_TRY(describe_and_add(p, each));
        split.before += n;
        for (int i = 0; i < n; i++)
            split.offset += each->of.at[SY_GENERIC_IN + i].dims[each->of.axis];
    }
    return SY_OK;
}

int sy_cuda_formula_build(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_cuda_formula *each;
    if (node->n_inputs < 1 || node->inputs[0] < 0)
        return sy_unsupported(node, "a first input that is left out");
    if (node->op == SY_OP_RUN_SPLIT)
        return build_parts(p);
    SY_TRY(sy_cuda_formula_open(p, &each));
    return describe_and_add(p, each);
}
