/* A gathered batch becomes one run, and its result the answers of its members (B3, B5). */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/core/core_batch_internal.h"

void sy_batch_free_member(struct sy_core *core, int model, struct member *m)
{
    const struct sy_graph *g = core->models[model].package->graph;
    if (m->inputs && m->outputs) {
        sy_core_regions_release(core, m->inputs, g->n_inputs);
        sy_core_regions_release(core, m->outputs, g->n_outputs);
    }
    free(m->inputs);
    free(m->outputs);
    free(m);
}

struct member *sy_batch_make_member(struct sy_core *core, int model, int64_t rows,
                                    const uint64_t *inputs, const uint64_t *outputs)
{
    const struct sy_graph *g = core->models[model].package->graph;
    struct member *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->rows = rows;
    m->inputs = calloc((size_t)g->n_inputs, sizeof *m->inputs);
    m->outputs = calloc((size_t)g->n_outputs, sizeof *m->outputs);
    if (!m->inputs || !m->outputs) {
        sy_batch_free_member(core, model, m);
        return NULL;
    }
    memcpy(m->inputs, inputs, (size_t)g->n_inputs * sizeof *inputs);
    memcpy(m->outputs, outputs, (size_t)g->n_outputs * sizeof *outputs);
    sy_core_regions_hold(core, m->inputs, g->n_inputs);
    sy_core_regions_hold(core, m->outputs, g->n_outputs);
    return m;
}

static uint64_t row_bytes(const struct batch *batch, int tensor)
{
    const struct sy_core_model *m = sy_batch_model(batch->of, batch->model);
    struct sy_shape shape = sy_core_sizes_shape(m, batch->sizes, tensor);
    return (uint64_t)sy_shape_elements(&shape, 1) *
           sy_dtype_bytes(m->package->graph->tensors[tensor].dtype);
}

static void give_slab(struct batch *batch)
{
    const struct sy_graph *g = sy_batch_graph(batch->of, batch->model);
    struct sy_slab *slab = batch->of->core->slab;
    bool owns = batch->way == SY_BATCH_ROWS; /* APART: they are the members' */
    for (int i = 0; owns && batch->inputs && i < g->n_inputs; i++)
        if (batch->inputs[i] != UINT64_MAX)
            sy_slab_release(slab, batch->inputs[i]);
    for (int i = 0; owns && batch->outputs && i < g->n_outputs; i++)
        if (batch->outputs[i] != UINT64_MAX)
            sy_slab_release(slab, batch->outputs[i]);
    free(batch->inputs);
    free(batch->outputs);
    batch->inputs = batch->outputs = NULL;
}

static uint64_t *take_slab(struct batch *batch, const int *tensors, int n)
{
    uint64_t *offsets = malloc(((size_t)n + 1) * sizeof *offsets);
    for (int i = 0; offsets && i < n; i++)
        offsets[i] = UINT64_MAX;
    for (int i = 0; offsets && i < n; i++) {
        uint64_t bytes = (uint64_t)batch->rows * row_bytes(batch, tensors[i]);
        if (sy_slab_alloc(batch->of->core->slab, SY_MAX(bytes, 1), &offsets[i]) < 0) {
            offsets[i] = UINT64_MAX;
            break;
        }
    }
    return offsets;
}

/* Copies rows between the members and the batch, in the order of the list. */
static void move_rows(struct batch *batch, bool out)
{
    const struct sy_graph *g = sy_batch_graph(batch->of, batch->model);
    struct sy_slab *slab = batch->of->core->slab;
    int n = out ? g->n_outputs : g->n_inputs;
    for (int i = 0; i < n; i++) {
        uint64_t each = row_bytes(batch, out ? g->outputs[i] : g->inputs[i]);
        char *all = sy_slab_pointer(slab, out ? batch->outputs[i] : batch->inputs[i]);
        for (struct member *m = batch->members; m; m = m->next) {
            char *one = sy_slab_pointer(slab, out ? m->outputs[i] : m->inputs[i]);
            uint64_t bytes = (uint64_t)m->rows * each;
            memcpy(out ? one : all, out ? all : one, bytes);
            all += bytes;
        }
    }
}

static void unlink_batch(struct batch *batch)
{
    struct batch **at = &batch->of->batches;
    while (*at != batch)
        at = &(*at)->next;
    *at = batch->next;
}

static void free_batch(struct batch *batch)
{
    sy_core_sizes_release(&batch->of->core->models[batch->model], batch->sizes);
    sy_core_model_unhold(batch->of->core, batch->model);
    free(batch);
}

static void answer(struct batch *batch, int status, const char *error,
                   const struct sy_request_report *report)
{
    struct member *m = batch->members;
    sy_ns served_ns = report->served_ns;
    int64_t run_rows = report->run_rows;
    unlink_batch(batch);
    while (m) {
        struct member *next = m->next;
        struct sy_request_report own = *report;
        own.id = m->id;
        own.arrived_ns = m->arrived_ns;
        own.served_ns = m->canceled ? 0 : served_ns;
        own.run_rows = m->canceled ? 0 : run_rows;
        served_ns = m->canceled ? served_ns : 0;
        run_rows = m->canceled ? run_rows : 0;
        int result = m->canceled ? SY_ECANCELED : status;
        sy_core_note_end(batch->of->core, batch->model, result, &own);
        m->done(m->ctx, result, result < 0 ? (m->canceled ? "canceled" : error) : NULL, &own);
        sy_batch_free_member(batch->of->core, batch->model, m);
        m = next;
    }
    free_batch(batch);
}

/* The work of one part. */
static struct sy_core_work work_of(const struct batch *batch)
{
    return (struct sy_core_work){.model = batch->model,
                                 .batch = batch->rows,
                                 .sizes = batch->sizes,
                                 .inputs = batch->inputs,
                                 .outputs = batch->outputs,
                                 .n_parts = 1};
}

/* B5 */
static void run_each_alone(struct batch *batch, const struct sy_request_report *report)
{
    struct sy_core *core = batch->of->core;
    struct sy_core_infer_options options = {.class_ = batch->class_,
                                            .tenant = *batch->tenant ? batch->tenant : NULL};
    struct member *m = batch->members;
    unlink_batch(batch);
    while (m) {
        struct member *next = m->next;
        struct sy_request_report own = *report;
        struct sy_core_work work = work_of(batch);
        work.inputs = m->inputs;
        work.outputs = m->outputs;
        work.id = own.id = m->id;
        int status = m->canceled
                         ? sy_error_set(SY_ECANCELED, "canceled")
                         : sy_core_infer_alone(core, &work, &options, m->done, m->ctx, NULL);
        if (status < 0)
            m->done(m->ctx, status, sy_error_text(), &own);
        sy_batch_free_member(core, batch->model, m);
        m = next;
    }
    free_batch(batch);
}

static void batch_done(void *ctx, int status, const char *error,
                       const struct sy_request_report *report)
{
    struct batch *batch = ctx;
    bool again = batch->way == SY_BATCH_APART && batch->n_members > 1 && status < 0 &&
                 status != SY_ECANCELED && !batch->of->core->stopping;
    if (status == SY_OK && batch->way == SY_BATCH_ROWS)
        move_rows(batch, true);
    give_slab(batch);
    if (again)
        run_each_alone(batch, report);
    else
        answer(batch, status, error, report);
}

static bool has_slab(const struct batch *batch, const struct sy_graph *g)
{
    bool all = batch->inputs && batch->outputs;
    for (int i = 0; all && i < g->n_inputs; i++)
        all = batch->inputs[i] != UINT64_MAX;
    for (int i = 0; all && i < g->n_outputs; i++)
        all = batch->outputs[i] != UINT64_MAX;
    return all;
}

bool sy_batch_is_wanted(const struct batch *batch)
{
    bool any = false;
    for (const struct member *m = batch->members; m; m = m->next)
        any = any || !m->canceled;
    return any;
}

void sy_batch_answer_unsent(struct batch *batch, int status, const char *why)
{
    struct sy_request_report report = {.worker = -1, .finished_ns = sy_clock_now()};
    give_slab(batch);
    answer(batch, status, why, &report);
}

static int join_rows(struct batch *batch)
{
    const struct sy_graph *g = sy_batch_graph(batch->of, batch->model);
    batch->inputs = take_slab(batch, g->inputs, g->n_inputs);
    batch->outputs = take_slab(batch, g->outputs, g->n_outputs);
    if (!has_slab(batch, g))
        return sy_error_set(SY_ENOMEM_HOST,
                            "no room in the slab for a batch of %lld rows; make it larger "
                            "(--slab-bytes)",
                            (long long)batch->rows);
    move_rows(batch, false);
    return SY_OK;
}

/* Lists all members' tensors, grouped by member. */
static int list_members(struct batch *batch)
{
    const struct sy_graph *g = sy_batch_graph(batch->of, batch->model);
    size_t n_in = (size_t)g->n_inputs, n_out = (size_t)g->n_outputs, i = 0;
    batch->inputs = calloc((size_t)batch->n_members * n_in + 1, sizeof *batch->inputs);
    batch->outputs = calloc((size_t)batch->n_members * n_out + 1, sizeof *batch->outputs);
    SY_TRY_ALLOC(batch->inputs && batch->outputs, "no memory for %d requests", batch->n_members);
    for (const struct member *m = batch->members; m; m = m->next, i++) {
        memcpy(batch->inputs + i * n_in, m->inputs, n_in * sizeof *m->inputs);
        memcpy(batch->outputs + i * n_out, m->outputs, n_out * sizeof *m->outputs);
    }
    return SY_OK;
}

void sy_batch_send(struct batch *batch)
{
    struct sy_core_batches *b = batch->of;
    struct sy_core_infer_options options = {.class_ = batch->class_,
                                            .tenant = *batch->tenant ? batch->tenant : NULL};
    sy_ns now = sy_clock_now();
    batch->sent = true;
    b->n_gathered -= batch->n_members;
    if (!sy_batch_is_wanted(batch)) {
        sy_batch_answer_unsent(batch, SY_ECANCELED, "canceled while it waited");
        return;
    }
    if (batch->deadline_ns && batch->deadline_ns <= now) {
        sy_batch_answer_unsent(batch, SY_EDEADLINE,
                               "its deadline passed while its model's package arrived");
        return;
    }
    options.deadline_ns = batch->deadline_ns ? batch->deadline_ns - now : 0;
    b->n_sent += batch->n_members > 1;
    int status = batch->way == SY_BATCH_ROWS ? join_rows(batch) : list_members(batch);
    struct sy_core_work work = work_of(batch);
    work.is_batch = true;
    work.n_parts = batch->way == SY_BATCH_ROWS ? 1 : batch->n_members;
    if (status == SY_OK)
        status = sy_core_infer_alone(b->core, &work, &options, batch_done, batch, &batch->request);
    if (status == SY_OK)
        return;
    char why[256];
    snprintf(why, sizeof why, "%s", sy_error_text());
    sy_batch_answer_unsent(batch, status, why);
}
