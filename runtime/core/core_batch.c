#include "runtime/core/core_batch.h"

#include <event2/event.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/core/core_arrival.h"
#include "runtime/core/core_batch_internal.h"
#include "runtime/sched/admission_refusal.h"

#define MOST_HELD_NS (24 * 3600 * SY_NS_PER_S) /* a fetch gives up earlier (fetch.h) */
/* inputs and outputs of a model: those of all members fit into one message */
#define MOST_APART_ENDS 16

static void on_timer(int fd, short what, void *batches);

int sy_core_batches_create(struct sy_core *core, sy_ns max_delay_ns, int64_t max_batch,
                           struct sy_core_batches **out)
{
    struct sy_core_batches *b = calloc(1, sizeof *b);
    if (b)
        b->timer = event_new(core->base, -1, 0, on_timer, b);
    if (!b || !b->timer) {
        free(b);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for batches");
    }
    b->core = core;
    b->max_delay_ns = max_delay_ns;
    b->max_batch = max_batch;
    *out = b;
    return SY_OK;
}

void sy_core_batches_destroy(struct sy_core_batches *b)
{
    if (!b)
        return;
    assert(!b->batches);
    event_free(b->timer);
    free(b);
}

/* ---- members ---------------------------------------------------------------------------------- */

static bool is_rows(const struct sy_core_model *m, const struct sy_core_sizes *sizes, int tensor)
{
    struct sy_shape shape = sy_core_sizes_shape(m, sizes, tensor);
    for (int d = 1; d < shape.rank; d++)
        if (shape.dims[d].per_batch != 0)
            return false;
    return shape.rank > 0 && shape.dims[0].per_batch == 1 && shape.dims[0].fixed == 0;
}

static bool takes_rows(const struct sy_core_model *m, const struct sy_core_sizes *sizes)
{
    const struct sy_graph *g = m->package->graph;
    bool all = m->rows_are_independent && g->n_inputs > 0 && g->n_outputs > 0;
    for (int i = 0; i < g->n_inputs; i++)
        all = all && is_rows(m, sizes, g->inputs[i]);
    for (int i = 0; i < g->n_outputs; i++)
        all = all && is_rows(m, sizes, g->outputs[i]) && !sy_graph_is_dynamic(g, g->outputs[i]);
    return all;
}

static sy_ns delay_of(const struct sy_core_batches *b, int model)
{
    sy_ns own = sy_batch_model(b, model)->max_delay_ns;
    return own ? own : b->max_delay_ns;
}

static int64_t most_rows(const struct sy_core_batches *b, int model)
{
    int64_t own = sy_batch_model(b, model)->max_batch;
    return own ? own : b->max_batch;
}

/* The compute time of one run, as measured by workers: round trips would make short runs look long on a busy machine. For a model without a profile the
 * longest run seen. UINT64_MAX: not known. */
static sy_ns expected_run(const struct sy_core_batches *b, int model, int64_t batch,
                          struct sy_core_sizes *sizes)
{
    const struct sy_core_model *m = sy_batch_model(b, model);
    const struct sy_core_request wants = {
        .model = model, .batch = batch, .sizes = sizes, .n_parts = 1};
    if (!m->package->profile.layer_ns[0])
        return m->was_run ? m->longest_run_ns : UINT64_MAX;
    double scale = m->run_scale > 0 ? m->run_scale : 1;
    return (sy_ns)(scale * (double)sy_core_predict(b->core, &wants).ns);
}

/* B4 */
static bool runs_apart(const struct sy_core_batches *b, int model, int64_t batch,
                       struct sy_core_sizes *sizes)
{
    const struct sy_core_model *m = sy_batch_model(b, model);
    const struct sy_graph *g = m->package->graph;
    int n_ends = g->n_inputs + g->n_outputs;
    return n_ends <= MOST_APART_ENDS && !m->leaving &&
           sy_residency_n_resident(sy_sched_residency(b->core->sched), model) == m->n_groups &&
           sy_sched_is_ready(b->core->sched, model, batch, sizes ? sizes->id : 0) &&
           expected_run(b, model, batch, sizes) <= SY_BATCH_APART_RUN_NS;
}

enum sy_batch_way sy_core_batch_way(const struct sy_core_batches *b, int model, int64_t rows,
                                    struct sy_core_sizes *sizes,
                                    const struct sy_core_infer_options *options)
{
    const struct sy_sched *s = b->core->sched;
    if (sy_core_arrival_holds(b->core, model))
        return SY_BATCH_HELD;
    if (!sy_sched_slice_is_busy(s, sy_sched_model_slice(s, model)) || rows < 1 ||
        options->deadline_ns != 0)
        return SY_BATCH_ALONE;
    if (delay_of(b, model) > 0 && rows < most_rows(b, model) &&
        takes_rows(sy_batch_model(b, model), sizes))
        return SY_BATCH_ROWS;
    return runs_apart(b, model, rows, sizes) ? SY_BATCH_APART : SY_BATCH_ALONE;
}

/* ---- gathering -------------------------------------------------------------------------------- */

static bool is_full(const struct batch *batch)
{
    if (batch->way == SY_BATCH_HELD)
        return false;
    if (batch->way == SY_BATCH_ROWS)
        return batch->rows == most_rows(batch->of, batch->model);
    return batch->n_members == SY_BATCH_APART_MOST ||
           (sy_ns)(batch->n_members + 1) * batch->expected_ns > SY_BATCH_APART_SUM_NS;
}

static void set_timer(struct sy_core_batches *b)
{
    sy_ns due = 0, now = sy_clock_now();
    for (const struct batch *at = b->batches; at; at = at->next)
        if (!at->sent && (due == 0 || at->due_ns < due))
            due = at->due_ns;
    if (due == 0)
        return;
    sy_ns left = due > now ? due - now : 0;
    struct timeval timeout = {.tv_sec = (time_t)(left / SY_NS_PER_S),
                              .tv_usec = (suseconds_t)(left % SY_NS_PER_S / 1000 + 1)};
    event_add(b->timer, &timeout);
}

/* B6 */
static bool stays_held(const struct batch *batch)
{
    return batch->way == SY_BATCH_HELD && batch->due_ns > sy_clock_now();
}

/* Sends all batches due by then, of models in these slices (bit mask). Answers may add and send others, so the walk restarts after each. */
static void send_due(struct sy_core_batches *b, sy_ns by, unsigned slices)
{
    struct batch *at = b->batches;
    while (at) {
        if (at->sent || at->due_ns > by || stays_held(at) ||
            !(slices >> sy_sched_model_slice(b->core->sched, at->model) & 1)) {
            at = at->next;
            continue;
        }
        sy_batch_send(at);
        at = b->batches;
    }
}

static void on_timer(int fd, short what, void *ctx)
{
    struct sy_core_batches *b = ctx;
    (void)fd;
    (void)what;
    sy_core_tick(b->core);
    send_due(b, sy_clock_now(), UINT_MAX);
    set_timer(b);
    sy_core_pump_soon(b->core);
}

static void refuse_held(struct sy_core_batches *b, int model, int status, const char *why)
{
    struct batch *at = b->batches;
    while (at && (at->sent || at->way != SY_BATCH_HELD || at->model != model))
        at = at->next;
    if (!at)
        return;
    at->sent = true;
    b->n_gathered -= at->n_members;
    sy_batch_answer_unsent(at, status, why);
}

void sy_core_batch_flush(struct sy_core_batches *b, int model)
{
    for (struct batch *at = b->batches; at; at = at->next)
        if (at->way != SY_BATCH_HELD || model < 0 || at->model == model)
            at->due_ns = 0;
    send_due(b, UINT64_MAX, UINT_MAX);
}

/* An answer may add batches, but none for this model, which is released or unavailable. */
void sy_core_batch_release(struct sy_core_batches *b, int model, int status, const char *why)
{
    struct batch *at = b->batches;
    while (at) {
        if (at->sent || at->way != SY_BATCH_HELD || at->model != model) {
            at = at->next;
            continue;
        }
        at->due_ns = 0;
        at = at->next;
        if (status == SY_OK)
            continue;
        refuse_held(b, model, status, why);
        at = b->batches;
    }
    set_timer(b);
}

void sy_core_batch_flush_idle(struct sy_core_batches *b)
{
    unsigned idle = 0;
    for (int i = 0; i < SY_SCHED_MAX_SLICES; i++)
        idle |= (unsigned)!sy_sched_slice_is_busy(b->core->sched, i) << i;
    send_due(b, UINT64_MAX, idle);
}

/* Whether a request with this many rows fits. */
static bool has_place(const struct batch *batch, int64_t rows)
{
    if (batch->way == SY_BATCH_HELD)
        return false;
    if (batch->way == SY_BATCH_ROWS)
        return batch->rows + rows <= most_rows(batch->of, batch->model);
    return batch->rows == rows && !is_full(batch);
}

static struct batch *find_batch(struct sy_core_batches *b, enum sy_batch_way way, int model,
                                int64_t rows, const struct sy_core_sizes *sizes,
                                const struct sy_core_infer_options *options)
{
    const char *tenant = options->tenant ? options->tenant : "";
    struct batch *at = b->batches;
    while (at && (at->sent || at->way != way || at->model != model || at->sizes != sizes ||
                  at->class_ != options->class_ || !has_place(at, rows) ||
                  strcmp(at->tenant, tenant) != 0))
        at = at->next;
    return at;
}

static struct batch *make_batch(struct sy_core_batches *b, enum sy_batch_way way, int model,
                                int64_t rows, struct sy_core_sizes *sizes,
                                const struct sy_core_infer_options *options)
{
    struct batch *batch = calloc(1, sizeof *batch);
    bool is_apart = way == SY_BATCH_APART, is_held = way == SY_BATCH_HELD;
    if (!batch)
        return NULL;
    *batch = (struct batch){.next = b->batches,
                            .of = b,
                            .way = way,
                            .model = model,
                            .rows = is_apart || is_held ? rows : 0,
                            .expected_ns = is_apart ? expected_run(b, model, rows, sizes) : 0,
                            .sizes = sy_core_sizes_hold(sizes),
                            .class_ = options->class_,
                            .due_ns = sy_clock_now() + (is_held    ? MOST_HELD_NS
                                                        : is_apart ? SY_BATCH_APART_DELAY_NS
                                                                   : delay_of(b, model))};
    snprintf(batch->tenant, sizeof batch->tenant, "%s", options->tenant ? options->tenant : "");
    sy_core_model_hold(b->core, model);
    b->batches = batch;
    return batch;
}

int sy_core_batch_add(struct sy_core_batches *b, enum sy_batch_way way, int model, int64_t rows,
                      struct sy_core_sizes *sizes, const uint64_t *inputs, const uint64_t *outputs,
                      const struct sy_core_infer_options *options, sy_core_infer_done done,
                      void *ctx, uint64_t *out_id)
{
    int tenant;
    if (b->n_gathered + (int)sy_admission_kept((uint64_t)b->core->max_queue, options->class_) >=
        b->core->max_queue)
        return sy_admission_refuse_full(b->n_gathered, b->core->max_queue, options->class_);
    if (options->tenant)
        SY_TRY(sy_core_tenant_find(b->core, options->tenant, &tenant));
    struct member *m = sy_batch_make_member(b->core, model, rows, inputs, outputs);
    struct batch *batch = m ? find_batch(b, way, model, rows, sizes, options) : NULL;
    if (m && !batch)
        batch = make_batch(b, way, model, rows, sizes, options);
    if (!batch) {
        if (m)
            sy_batch_free_member(b->core, model, m);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request");
    }
    m->id = ++b->core->last_request;
    m->done = done;
    m->ctx = ctx;
    m->arrived_ns = sy_clock_now();
    m->next = batch->members;
    batch->members = m;
    batch->n_members++;
    batch->rows += way == SY_BATCH_ROWS ? rows : 0;
    if (way == SY_BATCH_HELD && options->deadline_ns)
        batch->deadline_ns = batch->due_ns = m->arrived_ns + options->deadline_ns;
    b->n_gathered++;
    *out_id = m->id;
    if (is_full(batch))
        batch->due_ns = 0; /* full: sent by the next turn of the loop, never within this call */
    set_timer(b);
    return SY_OK;
}

static struct member *find_member(const struct batch *batch, uint64_t id)
{
    struct member *m = batch->members;
    while (m && m->id != id)
        m = m->next;
    return m;
}

bool sy_core_batch_cancel(struct sy_core_batches *b, uint64_t id)
{
    struct batch *batch = b->batches;
    struct member *m = NULL;
    while (batch && !(m = find_member(batch, id)))
        batch = batch->next;
    if (!m)
        return false;
    if (batch->way == SY_BATCH_HELD && !batch->sent)
        batch->due_ns = 0; /* answered by the next turn of the loop */
    m->canceled = true;    /* its rows stay in the batch: removing them would move the others */
    set_timer(b);
    if (batch->sent && !sy_batch_is_wanted(batch))
        sy_sched_cancel(b->core->sched, batch->request);
    return true;
}

int sy_core_batch_n_gathered(const struct sy_core_batches *b)
{
    return b->n_gathered;
}

void sy_core_batch_count_gathered(const struct sy_core_batches *b, int *by_model)
{
    for (const struct batch *at = b->batches; at; at = at->next)
        by_model[at->model] += at->sent ? 0 : at->n_members;
}

uint64_t sy_core_batch_n_sent(const struct sy_core_batches *b)
{
    return b->n_sent;
}
