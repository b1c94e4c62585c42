/* A program's strings: the heap, blocks to entries, entries to the outputs' blocks. */
#include <stdlib.h>
#include <string.h>

#include "loader/infer/deferred.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/strings.h"
#include "workers/host/program/program_internal.h"

int sy_program_open_strings(struct sy_program *p)
{
    int64_t bytes = SY_STRINGS_HEAD + (int64_t)p->graph->string_bytes;
    if (p->graph->string_bytes == 0)
        return SY_OK;
    SY_TRY(sy_program_new_value(p, SY_DTYPE_U8, 1, &bytes, &p->strings));
    p->values[p->strings].first = 0;
    p->values[p->strings].last = p->n_layers;
    return SY_OK;
}

void sy_program_use_strings(const struct sy_program *p, int first)
{
    if (p->strings >= 0)
        sy_strings_use(sy_program_pointer(p, p->strings), p->values[p->strings].bytes, first == 0);
}

static int64_t count(const struct sy_value *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++)
        n *= v->dims[i];
    return n;
}

static int run_take(struct sy_program *p, struct sy_step *step)
{
    int value = step->args[1].value;
    return sy_strings_take(step->name, sy_program_pointer(p, step->args[0].value),
                           (uint64_t)step->numbers[0], count(&p->values[value]),
                           sy_program_pointer(p, value));
}

/* A constant's entries: a body's, which runs many times, go to the heap once a run. */
struct taken {
    uint64_t lent; /* when they were made */
    struct sy_string entries[];
};

static int run_take_constant(struct sy_program *p, struct sy_step *step)
{
    struct taken *t = step->state;
    int value = step->args[1].value;
    int64_t n = count(&p->values[value]);
    if (t->lent != sy_strings_lent()) {
        t->lent = 0;
        SY_TRY(sy_strings_take(step->name, sy_program_pointer(p, step->args[0].value),
                               (uint64_t)step->numbers[0], n, t->entries));
        t->lent = sy_strings_lent();
    }
    memcpy(sy_program_pointer(p, value), t->entries, (size_t)n * sizeof *t->entries);
    return SY_OK;
}

static int keep_taken(struct sy_step *step, int64_t n)
{
    step->state = calloc(1, sizeof(struct taken) + (size_t)n * sizeof(struct sy_string));
    step->free_state = free;
    step->run = run_take_constant;
    return step->state ? SY_OK
                       : sy_error_set(SY_ENOMEM_HOST, "no memory for %lld strings", (long long)n);
}

int sy_program_take_strings(struct sy_program *p, int block, int tensor, int *out)
{
    const struct sy_tensor *t = &p->graph->tensors[tensor];
    uint64_t room = t->data ? t->data_bytes : sy_graph_tensor_room(p->graph, tensor, p->batch);
    SY_TRY(sy_program_new_of(p, tensor, out));
    struct sy_step *step = sy_program_add_step(p, run_take, 2);
    SY_TRY_ALLOC(step, "no memory for a step");
    step->name = t->name;
    if (t->data)
        SY_TRY(keep_taken(step, count(&p->values[*out])));
    sy_step_set(p, step, 0, 0, block);
    sy_step_set(p, step, 1, 0, *out);
    return sy_step_set_numbers(step, (const int64_t[]){(int64_t)room}, 1);
}

/* Number of entries, which AtRun writes behind their room. 0 if it reported that it needs more. */
static int64_t said_count(const struct sy_value *v, const char *entries)
{
    int64_t said[1 + SY_MAX_RANK], n = 1;
    memcpy(said, entries + SY_ALIGN_UP(v->bytes, sizeof(int64_t)), sizeof said);
    for (int i = 0; i < said[0] && i < SY_MAX_RANK; i++)
        n *= said[1 + i];
    return said[0] < 0 ? 0 : n;
}

static int run_give(struct sy_program *p, struct sy_step *step)
{
    const struct sy_value *from = &p->values[step->args[0].value];
    char *entries = sy_program_pointer(p, step->args[0].value),
         *output = p->binding->outputs[step->numbers[0]];
    int64_t n = step->numbers[1] > 0 ? said_count(from, entries) : count(from);
    return sy_strings_give(step->name, (const struct sy_string *)(const void *)entries, n,
                           output + step->numbers[1], (uint64_t)step->numbers[2]);
}

int sy_program_give_strings(struct sy_program *p, int from, int output)
{
    int tensor = p->graph->outputs[output];
    const struct sy_tensor *t = &p->graph->tensors[tensor];
    uint64_t offset = sy_graph_string_offset(p->graph, tensor, &t->shape, p->batch),
             room = sy_graph_tensor_room(p->graph, tensor, p->batch) - offset;
    struct sy_step *step = sy_program_add_step(p, run_give, 1);
    SY_TRY_ALLOC(step, "no memory for a step");
    step->name = t->name;
    sy_step_set(p, step, 0, 0, from);
    return sy_step_set_numbers(step, (const int64_t[]){output, (int64_t)offset, (int64_t)room}, 3);
}
