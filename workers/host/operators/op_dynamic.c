/* AtRun: a body that is executed node by node. Its results are written to the outputs' memory, followed by their dimensions. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "workers/host/dynamic/dynamic.h"
#include "workers/host/program/program.h"
#include "workers/host/program/program_internal.h"

struct dynamic_step {
    struct sy_dynamic *run;
    struct sy_array *inputs, *outputs;
    int n_in, n_out;
};

static void step_free(void *state)
{
    struct dynamic_step *s = state;
    sy_dynamic_destroy(s->run);
    free(s->inputs);
    free(s->outputs);
    free(s);
}

/* Models of half precision are computed in float32; outputs keep their type. */
static void narrow(const struct sy_array *from, enum sy_dtype dtype, uint16_t *to)
{
    const float *x = from->data;
    for (int64_t i = 0; i < from->n; i++)
        to[i] = dtype == SY_DTYPE_F16 ? sy_float_to_half(x[i]) : sy_float_to_bf16(x[i]);
}

static int write_output(const struct sy_program *p, const struct sy_node *node, int i,
                        const struct sy_array *a, const struct sy_value *v, unsigned char *to)
{
    const struct sy_tensor *t = &p->graph->tensors[node->outputs[i]];
    int64_t said[1 + SY_MAX_RANK] = {a->rank};
    bool halves =
        a->dtype == SY_DTYPE_F32 && (t->dtype == SY_DTYPE_F16 || t->dtype == SY_DTYPE_BF16);
    uint64_t bytes = (uint64_t)a->n * sy_dtype_bytes(t->dtype);
    if (a->dtype != t->dtype && !halves)
        return sy_error_set(SY_EARG, "output '%.100s' is %s, declared %s", t->name,
                            sy_dtype_wire_name(a->dtype), sy_dtype_wire_name(t->dtype));
    if (bytes > v->bytes) {
        said[0] = SY_NEEDS_ROOM;
        said[1] = (int64_t)bytes;
    } else if (halves)
        narrow(a, t->dtype, (uint16_t *)(void *)to);
    else if (bytes > 0)
        memcpy(to, a->data, bytes);
    if (said[0] != SY_NEEDS_ROOM)
        memcpy(said + 1, a->dims, (size_t)a->rank * sizeof *said);
    memcpy(to + SY_ALIGN_UP(v->bytes, sizeof(int64_t)), said, sizeof said);
    return SY_OK;
}

static int run_dynamic(struct sy_program *p, struct sy_step *step)
{
    struct dynamic_step *s = step->state;
    for (int i = 0; i < s->n_in; i++)
        s->inputs[i].data = sy_program_pointer(p, step->args[i].value);
    SY_TRY(sy_dynamic_run(s->run, s->inputs, s->outputs));
    for (int i = 0; i < s->n_out; i++) {
        int value = step->args[s->n_in + i].value;
        SY_TRY(write_output(p, step->node, i, &s->outputs[i], &p->values[value],
                            sy_program_pointer(p, value)));
    }
    return SY_OK;
}

/* Writes to an output's memory without an intermediate copy. */
static int take_output(struct sy_program *p, int i, int *out)
{
    int tensor = sy_program_node(p)->outputs[i];
    SY_TRY(sy_program_new_of(p, tensor, out));
    for (int k = 0; k < p->graph->n_outputs; k++)
        if (p->graph->outputs[k] == tensor) {
            p->values[*out].place = SY_IN_OUTPUT;
            p->values[*out].index = k;
            sy_program_set_output(p, i, *out);
            return SY_OK;
        }
    return sy_unsupported(sy_program_node(p), "a result that is no output");
}

static int fill(struct sy_program *p, struct dynamic_step *s)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *attr = sy_node_attr(node, "body");
    if (!attr || attr->kind != SY_ATTR_GRAPH || attr->graph->n_inputs != node->n_inputs ||
        attr->graph->n_outputs != node->n_outputs)
        return sy_unsupported(node, "a body with other inputs or results");
    s->n_in = node->n_inputs;
    s->n_out = node->n_outputs;
    s->inputs = calloc((size_t)s->n_in + 1, sizeof *s->inputs);
    s->outputs = calloc((size_t)s->n_out + 1, sizeof *s->outputs);
    SY_TRY_ALLOC(s->inputs && s->outputs, "no memory for a step");
    bool *is_param = calloc((size_t)s->n_in + 1, sizeof *is_param);
    SY_TRY_ALLOC(is_param, "no memory for a step");
    for (int i = 0; i < s->n_in; i++)
        is_param[i] = node->inputs[i] >= 0 && sy_program_is_param(p, i);
    int status =
        sy_dynamic_create(attr->graph, is_param, p->layers, p->layers[p->layer].node, &s->run);
    free(is_param);
    return status;
}

static int add_step(struct sy_program *p, struct dynamic_step *s, int *ids)
{
    for (int i = 0; i < s->n_in; i++) {
        SY_TRY(sy_program_input_plain(p, i, &ids[i]));
        const struct sy_value *v = &p->values[ids[i]];
        s->inputs[i] = (struct sy_array){.dtype = v->dtype, .rank = v->rank, .n = 1};
        for (int d = 0; d < v->rank; d++) {
            s->inputs[i].dims[d] = v->dims[d];
            s->inputs[i].n *= v->dims[d];
        }
    }
    for (int i = 0; i < s->n_out; i++)
        SY_TRY(take_output(p, i, &ids[s->n_in + i]));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_dynamic, ids, s->n_in + s->n_out, &step));
    step->node = sy_program_node(p);
    step->state = s;
    step->free_state = step_free;
    return SY_OK;
}

static int build_dynamic(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    struct dynamic_step *s = calloc(1, sizeof *s);
    int *ids = calloc((size_t)node->n_inputs + (size_t)node->n_outputs + 1, sizeof *ids);
    int status = s && ids ? fill(p, s) : sy_error_set(SY_ENOMEM_HOST, "no memory for a step");
    if (status == SY_OK)
        status = add_step(p, s, ids);
    if (status < 0 && s)
        step_free(s);
    free(ids);
    return status;
}

const struct sy_host_op sy_host_ops_dynamic[] = {{.build = build_dynamic, SY_OPS(SY_OP_DYNAMIC)},
                                                 {0}};
