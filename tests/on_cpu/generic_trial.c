#include "tests/on_cpu/generic_trial.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"
#include "workers/cuda/kernels/kernels_generic.h"

const enum sy_dtype trial_types[TRIAL_TYPES] = {SY_DTYPE_F32,  SY_DTYPE_F64, SY_DTYPE_F16,
                                                SY_DTYPE_BF16, SY_DTYPE_I64, SY_DTYPE_I32,
                                                SY_DTYPE_I8,   SY_DTYPE_U8};

enum sy_dtype trial_any_type(void)
{
    return trial_types[kernel_between(0, 7)];
}

struct trial *trial_start(enum sy_op op)
{
    struct trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->graph = gb_new(sy_op_name(op));
    (void)gb_node(t->graph, op, 0, NULL, 0, NULL);
    struct sy_node *node = &t->graph->nodes[0];
    node->residual_input = node->bias_input = -1;
    t->call.node = node;
    return t;
}

static struct kernel_tensor *place(struct sy_array *a, enum sy_dtype type, int rank,
                                   const int64_t *dims)
{
    *a = (struct sy_array){.dtype = type, .rank = rank, .n = kernel_elements(rank, dims)};
    memcpy(a->dims, dims, (size_t)rank * sizeof *dims);
    struct kernel_tensor *tensor = kernel_tensor(type, a->n);
    a->data = tensor->at;
    return tensor;
}

struct sy_array *trial_operand(struct trial *t, enum sy_dtype type, int rank, const int64_t *dims)
{
    struct sy_array *a = &t->call.in[t->call.n_in];
    t->in[t->call.n_in++] = place(a, type, rank, dims);
    for (int64_t i = 0; i < a->n; i++)
        sy_put(a, i,
               type == SY_DTYPE_BOOL ? (double)kernel_between(0, 1)
               : sy_is_float(type)   ? (double)kernel_between(-30, 30) / 8
                                     : (double)kernel_between(type == SY_DTYPE_U8 ? 0 : -4, 12));
    return a;
}

void trial_absent(struct trial *t)
{
    t->call.in[t->call.n_in++] = (struct sy_array){.dtype = SY_DTYPE_NONE};
}

struct sy_array *trial_indices(struct trial *t, int rank, const int64_t *dims, int64_t low,
                               int64_t high)
{
    struct sy_array *a =
        trial_operand(t, kernel_between(0, 1) ? SY_DTYPE_I64 : SY_DTYPE_I32, rank, dims);
    for (int64_t i = 0; i < a->n; i++)
        sy_put_int(a, i, kernel_between(low, high));
    return a;
}

struct sy_array *trial_numbers(struct trial *t, int64_t n, const int64_t *numbers)
{
    struct sy_array *a = trial_indices(t, 1, &n, 0, 0);
    for (int64_t i = 0; i < n; i++)
        sy_put_int(a, i, numbers[i]);
    return a;
}

void trial_result(struct trial *t, enum sy_dtype type, int rank, const int64_t *dims)
{
    t->out[t->call.n_out] = place(&t->call.out[t->call.n_out], type, rank, dims);
    t->call.n_out++;
}

static int launch(void *arg)
{
    struct trial *t = arg;
    void *at[SY_GENERIC_ARRAYS] = {NULL};
    for (int i = 0; i < SY_GENERIC_IN; i++)
        at[i] = KERNEL_AT(t->in[i]);
    for (int i = 0; i < SY_GENERIC_OUT; i++)
        at[SY_GENERIC_IN + i] = KERNEL_AT(t->out[i]);
    at[SY_GENERIC_ROOM] = KERNEL_AT(t->room);
    return sy_kernel_each(kernel_stream, &t->each, at, t->fault->device);
}

static void describe(struct trial *t)
{
    t->each.n_in = t->call.n_in;
    t->each.n_out = t->call.n_out;
    t->each.step = 7;
    for (int i = 0; i < SY_GENERIC_ROOM; i++) {
        const struct sy_array *a =
            i < SY_GENERIC_IN ? &t->call.in[i] : &t->call.out[i - SY_GENERIC_IN];
        t->each.at[i] = (struct sy_generic_array){.dtype = a->dtype, .rank = a->rank};
        memcpy(t->each.at[i].dims, a->dims, sizeof a->dims);
    }
    if (sy_generic_describe(t->call.node, &t->each, &t->copies_first) < 0)
        fail_msg("%s", sy_error_text());
    const struct sy_generic_array *room = &t->each.at[SY_GENERIC_ROOM];
    if (room->dtype != SY_DTYPE_NONE)
        t->room = kernel_tensor(room->dtype, room->n);
    t->fault = kernel_tensor(SY_DTYPE_I64, 2);
    memset(t->fault->at, 0, 16);
}

/* The host's results, in memory of their own. */
static int compute(const struct trial *t, struct sy_array *want)
{
    const struct sy_kernel *kernel = sy_kernel_find(t->call.node->op);
    struct sy_call call = t->call;
    call.scratch = kernel->scratch ? malloc((size_t)kernel->scratch(&call) + 1) : NULL;
    for (int i = 0; i < call.n_out; i++) {
        call.out[i].data = malloc((size_t)call.out[i].n * 8 + 1);
        want[i] = call.out[i];
    }
    int status = kernel->run(&call);
    free(call.scratch);
    return status;
}

static void end(struct trial *t)
{
    sy_graph_free(t->graph);
    free(t);
    kernel_end(NULL);
}

void trial_check(struct trial *t)
{
    struct sy_array want[SY_GENERIC_OUT];
    describe(t);
    if (compute(t, want) < 0)
        fail_msg("%s", sy_error_text());
    if (t->copies_first)
        memcpy(t->out[0]->at, t->in[0]->at, (size_t)t->in[0]->n * sy_dtype_bytes(t->in[0]->type));
    kernel_run(launch, t);
    assert_int_equal(((struct sy_math_fault *)t->fault->at)->step, 0);
    for (int o = 0; o < t->call.n_out; o++) {
        for (int64_t i = 0; i < want[o].n; i++) {
            double a = sy_get(&t->call.out[o], i), b = sy_get(&want[o], i);
            double unit = want[o].dtype == SY_DTYPE_BF16  ? 0.01
                          : want[o].dtype == SY_DTYPE_F16 ? 0.002
                                                          : 1e-6;
            bool floats = sy_is_float(want[o].dtype);
            bool same =
                floats ? a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= unit * (1 + fabs(b))
                       : sy_get_int(&t->call.out[o], i) == sy_get_int(&want[o], i);
            if (!same)
                fail_msg("%s: result %d[%lld] of %lld is %.9g, not %.9g",
                         sy_op_name(t->call.node->op), o, (long long)i, (long long)want[o].n, a, b);
        }
        free(want[o].data);
    }
    end(t);
}

void trial_refused(struct trial *t, int64_t index)
{
    struct sy_array want[SY_GENERIC_OUT];
    const struct sy_math_fault *fault;
    describe(t);
    assert_int_equal(compute(t, want), SY_EARG);
    for (int o = 0; o < t->call.n_out; o++) {
        memset(t->out[o]->at, 0, (size_t)t->out[o]->n * sy_dtype_bytes(t->out[o]->type));
        free(want[o].data);
    }
    kernel_run(launch, t);
    fault = t->fault->at;
    assert_int_equal(fault->step, 7);
    assert_int_equal(fault->index, index);
    end(t);
}
