/* Last step of creation: places buffers, and builds the lists of steps that run. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/train_rules.h"
#include "workers/host/train/train_internal.h"

/* At most this many elements in one update step: three streams of 4 MiB pass in about 2 ms on one core. */
#define UPDATE_ELEMENTS (1u << 20)

/* ---- lifetimes (G3) ----------------------------------------------------------------------------- */

static void touch(struct sy_trainer *t, int value, int step)
{
    struct sy_tr_buffer *buffer = &t->buffers[t->values[value].buffer];
    if (buffer->first < 0)
        buffer->first = step;
    buffer->last = SY_MAX(buffer->last, step);
}

static void find_lifetimes(struct sy_trainer *t)
{
    for (int i = 0; i < t->graph->n_inputs; i++)
        touch(t, t->tensors[t->graph->inputs[i]].value, 0);
    touch(t, t->labels, 0);
    for (int s = 0; s < t->n_steps; s++) {
        const struct sy_tr_step *step = &t->steps[s];
        for (int i = 0; i < step->n_args; i++)
            touch(t, step->args[i].value, s);
        for (int i = 0; i < step->n_values; i++)
            if (step->value[i] >= 0)
                touch(t, step->value[i], s);
    }
    /* The update phase comes after the last step and reads the batch's statistics. */
    for (int p = 0; p < t->n_params; p++)
        if (t->params[p].total >= 0)
            touch(t, t->params[p].total, t->n_steps);
}

/* ---- offsets ------------------------------------------------------------------------------------ */

static const struct sy_tr_buffer
    *sorted_buffers; /* qsort has no context; create is called by one thread */

static int larger_first(const void *a, const void *b)
{
    const struct sy_tr_buffer *x = &sorted_buffers[*(const int *)a],
                              *y = &sorted_buffers[*(const int *)b];
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return *(const int *)a - *(const int *)b;
}

static bool lives_overlap(const struct sy_tr_buffer *a, const struct sy_tr_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest offset where the buffer meets none of those placed already. A few hundred buffers: repeating the scan until
 * nothing is in the way is fast enough. */
static uint64_t lowest_gap(const struct sy_trainer *t, const int *placed, int n_placed,
                           const struct sy_tr_buffer *b)
{
    uint64_t offset = 0;
    for (int i = 0; i < n_placed;) {
        const struct sy_tr_buffer *other = &t->buffers[placed[i]];
        bool is_in_way = lives_overlap(other, b) && offset < other->offset + other->bytes &&
                         other->offset < offset + b->bytes;
        if (is_in_way) {
            offset = other->offset + other->bytes;
            i = 0;
        } else {
            i++;
        }
    }
    return offset;
}

static int place_buffers(struct sy_trainer *t)
{
    int *order = malloc((size_t)t->n_buffers * sizeof *order), n = 0;
    SY_TRY_ALLOC(order, "training plan: no room for %d buffers", t->n_buffers);
    for (int b = 0; b < t->n_buffers; b++) {
        struct sy_tr_buffer *buffer = &t->buffers[b];
        if (!buffer->persistent && !buffer->fixed && buffer->first >= 0) {
            order[n++] = b;
        } else if (buffer->persistent) {
            buffer->offset = t->persistent_bytes;
            t->persistent_bytes += buffer->bytes;
        }
    }
    sorted_buffers = t->buffers;
    qsort(order, (size_t)n, sizeof *order, larger_first);
    for (int i = 0; i < n; i++) {
        struct sy_tr_buffer *buffer = &t->buffers[order[i]];
        buffer->offset = lowest_gap(t, order, i, buffer);
        t->ephemeral_bytes = SY_MAX(t->ephemeral_bytes, buffer->offset + buffer->bytes);
    }
    free(order);
    return SY_OK;
}

/* ---- lists -------------------------------------------------------------------------------------- */

static int add_updates(struct sy_trainer *t, int param)
{
    if (t->params[param].gradient < 0 && t->params[param].batch_statistic < 0)
        return SY_OK; /* frozen */
    const dnnl_memory_desc_t *md = &t->values[t->params[param].value].md;
    uint64_t n = dnnl_memory_desc_get_size(md) / sizeof(float); /* padding included: G2 */
    for (uint64_t first = 0; first < n; first += UPDATE_ELEMENTS) {
        struct sy_tr_update *update = sy_append(&t->updates, &t->n_updates, sizeof *update);
        if (!update)
            return SY_ENOMEM_HOST;
        *update = (struct sy_tr_update){
            .param = param, .first = first, .n = SY_MIN(n - first, UPDATE_ELEMENTS)};
    }
    return SY_OK;
}

static int add_states(struct sy_trainer *t, int param)
{
    const char *name = t->graph->tensors[t->params[param].tensor].name;
    return sy_train_add_states(&t->states, &t->n_states, param, name, t->options.optimizer,
                               t->params[param].n_slots);
}

static int make_memories(struct sy_trainer *t)
{
    for (int v = 0; v < t->n_values; v++)
        SY_TRY(sy_tr_check(
            dnnl_memory_create(&t->values[v].memory, &t->values[v].md, t->engine, DNNL_MEMORY_NONE),
            "memory", "training plan"));
    for (int s = 0; s < t->n_steps; s++) {
        struct sy_tr_step *step = &t->steps[s];
        for (int i = 0; i < step->n_args; i++)
            step->exec[i] =
                (dnnl_exec_arg_t){step->args[i].arg, t->values[step->args[i].value].memory};
    }
    return SY_OK;
}

static int add_turns(int step, int n_pieces, struct sy_tr_turn **list, int *n)
{
    for (int piece = 0; piece < SY_MAX(n_pieces, 1); piece++) {
        struct sy_tr_turn *turn = sy_append(list, n, sizeof *turn);
        if (!turn)
            return SY_ENOMEM_HOST;
        *turn = (struct sy_tr_turn){step, piece};
    }
    return SY_OK;
}

static int make_lists(struct sy_trainer *t)
{
    for (int s = 0; s < t->n_steps; s++) {
        const struct sy_tr_step *step = &t->steps[s];
        if (step->when & SY_TR_TRAIN)
            SY_TRY(add_turns(s, step->n_pieces, &t->train_steps, &t->n_train));
        if (step->when & SY_TR_EVALUATE)
            SY_TRY(add_turns(s, step->n_pieces, &t->evaluate_steps, &t->n_evaluate));
    }
    return SY_OK;
}

int sy_tr_finish_plan(struct sy_trainer *t)
{
    find_lifetimes(t);
    SY_TRY(place_buffers(t));
    for (int p = 0; p < t->n_params; p++) {
        if (t->params[p].alias_of >= 0)
            continue;
        SY_TRY(add_updates(t, p));
        SY_TRY(add_states(t, p));
    }
    SY_TRY(make_lists(t));
    return make_memories(t);
}
