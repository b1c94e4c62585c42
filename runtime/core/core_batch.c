#include "runtime/core/core_batch.h"

#include <event2/event.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/core/core_arrival.h"
#include "runtime/core/core_internal.h"
#include "runtime/sched/admission_refusal.h"

struct member {
    struct member *next;
    uint64_t id;
    int64_t rows;
    uint64_t *inputs, *outputs; /* the caller's places; their regions are held */
    sy_core_infer_done done;
    void *ctx;
    sy_ns arrived_ns;
    bool canceled;
};

struct batch {
    struct batch *next;
    struct sy_core_batches *of;
    enum sy_batch_way way;
    int model, class_;
    char tenant[SY_CORE_TENANT_NAME];
    int64_t rows;      /* APART: of each */
    sy_ns expected_ns; /* APART: of one */
    struct sy_core_sizes *sizes;
    struct member *members; /* the latest first */
    int n_members;
    sy_ns due_ns;
    sy_ns deadline_ns; /* HELD: of its one member; 0: none */
    bool sent;
    uint64_t request; /* once it is sent */
    uint64_t *inputs,
        *outputs; /* once it is sent. ROWS: slab offsets of its own; APART: those of all members, one after the other */
};

struct sy_core_batches {
    struct sy_core *core;
    struct event *timer;
    struct batch *batches; /* gathered or sent */
    sy_ns max_delay_ns;
    int64_t max_batch;
    int n_gathered;
    uint64_t n_sent;
};

#define MOST_HELD_NS (24 * 3600 * SY_NS_PER_S) /* what arrives is given up before (fetch.h) */
#define MOST_APART_ENDS \
    16 /* inputs and outputs of a model: of all members they fit into one message */

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

static const struct sy_graph *graph_of(const struct sy_core_batches *b, int model)
{
    return b->core->models[model].package->graph;
}

static const struct sy_core_model *model_of(const struct sy_core_batches *b, int model)
{
    return &b->core->models[model];
}

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
    sy_ns own = model_of(b, model)->max_delay_ns;
    return own ? own : b->max_delay_ns;
}

static int64_t most_rows(const struct sy_core_batches *b, int model)
{
    int64_t own = model_of(b, model)->max_batch;
    return own ? own : b->max_batch;
}

/* What one run computes, as workers measured it: by the round trip a busy machine would take each for a long one. Of a model without a profile
 * the longest that was seen. UINT64_MAX: not known. */
static sy_ns expected_run(const struct sy_core_batches *b, int model, int64_t batch,
                          struct sy_core_sizes *sizes)
{
    const struct sy_core_model *m = model_of(b, model);
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
    const struct sy_core_model *m = model_of(b, model);
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
        takes_rows(model_of(b, model), sizes))
        return SY_BATCH_ROWS;
    return runs_apart(b, model, rows, sizes) ? SY_BATCH_APART : SY_BATCH_ALONE;
}

static void free_member(struct sy_core *core, int model, struct member *m)
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

static struct member *make_member(struct sy_core *core, int model, int64_t rows,
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
        free_member(core, model, m);
        return NULL;
    }
    memcpy(m->inputs, inputs, (size_t)g->n_inputs * sizeof *inputs);
    memcpy(m->outputs, outputs, (size_t)g->n_outputs * sizeof *outputs);
    sy_core_regions_hold(core, m->inputs, g->n_inputs);
    sy_core_regions_hold(core, m->outputs, g->n_outputs);
    return m;
}

/* ---- batches ---------------------------------------------------------------------------------- */

static uint64_t row_bytes(const struct batch *batch, int tensor)
{
    const struct sy_core_model *m = model_of(batch->of, batch->model);
    struct sy_shape shape = sy_core_sizes_shape(m, batch->sizes, tensor);
    return (uint64_t)sy_shape_elements(&shape, 1) *
           sy_dtype_bytes(m->package->graph->tensors[tensor].dtype);
}

static void give_slab(struct batch *batch)
{
    const struct sy_graph *g = graph_of(batch->of, batch->model);
    struct sy_slab *slab = batch->of->core->slab;
    bool owns = batch->way == SY_BATCH_ROWS; /* APART: the members' */
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

/* Between the members' rows and the batch's, which are in the order of the list. */
static void move_rows(struct batch *batch, bool out)
{
    const struct sy_graph *g = graph_of(batch->of, batch->model);
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
    sy_core_sizes_give(&batch->of->core->models[batch->model], batch->sizes);
    sy_core_model_let_go(batch->of->core, batch->model);
    free(batch);
}

static void answer(struct batch *batch, int status, const char *error,
                   const struct sy_request_report *report)
{
    struct member *m = batch->members;
    sy_ns served_ns = report->served_ns;
    unlink_batch(batch);
    while (m) {
        struct member *next = m->next;
        struct sy_request_report own = *report;
        own.id = m->id;
        own.arrived_ns = m->arrived_ns;
        own.served_ns = m->canceled ? 0 : served_ns;
        served_ns = m->canceled ? served_ns : 0;
        int result = m->canceled ? SY_ECANCELED : status;
        sy_core_note_end(batch->of->core, batch->model, result, &own);
        m->done(m->ctx, result, result < 0 ? (m->canceled ? "canceled" : error) : NULL, &own);
        free_member(batch->of->core, batch->model, m);
        m = next;
    }
    free_batch(batch);
}

/* Of one part. */
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
        free_member(core, batch->model, m);
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

static bool is_wanted(const struct batch *batch)
{
    bool any = false;
    for (const struct member *m = batch->members; m; m = m->next)
        any = any || !m->canceled;
    return any;
}

static void answer_unsent(struct batch *batch, int status, const char *why)
{
    struct sy_request_report report = {.worker = -1, .finished_ns = sy_clock_now()};
    give_slab(batch);
    answer(batch, status, why, &report);
}

static int join_rows(struct batch *batch)
{
    const struct sy_graph *g = graph_of(batch->of, batch->model);
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

/* All members' tensors, those of one member together. */
static int list_members(struct batch *batch)
{
    const struct sy_graph *g = graph_of(batch->of, batch->model);
    size_t n_in = (size_t)g->n_inputs, n_out = (size_t)g->n_outputs, i = 0;
    batch->inputs = calloc((size_t)batch->n_members * n_in + 1, sizeof *batch->inputs);
    batch->outputs = calloc((size_t)batch->n_members * n_out + 1, sizeof *batch->outputs);
    if (!batch->inputs || !batch->outputs)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d requests", batch->n_members);
    for (const struct member *m = batch->members; m; m = m->next, i++) {
        memcpy(batch->inputs + i * n_in, m->inputs, n_in * sizeof *m->inputs);
        memcpy(batch->outputs + i * n_out, m->outputs, n_out * sizeof *m->outputs);
    }
    return SY_OK;
}

static void send_batch(struct batch *batch)
{
    struct sy_core_batches *b = batch->of;
    struct sy_core_infer_options options = {.class_ = batch->class_,
                                            .tenant = *batch->tenant ? batch->tenant : NULL};
    sy_ns now = sy_clock_now();
    batch->sent = true;
    b->n_gathered -= batch->n_members;
    if (!is_wanted(batch)) {
        answer_unsent(batch, SY_ECANCELED, "canceled while it waited");
        return;
    }
    if (batch->deadline_ns && batch->deadline_ns <= now) {
        answer_unsent(batch, SY_EDEADLINE, "its deadline passed while its model's package arrived");
        return;
    }
    options.deadline_ns = batch->deadline_ns ? batch->deadline_ns - now : 0;
    b->n_sent += batch->n_members > 1;
    int status = batch->way == SY_BATCH_ROWS ? join_rows(batch) : list_members(batch);
    struct sy_core_work work = work_of(batch);
    work.n_parts = batch->way == SY_BATCH_ROWS ? 1 : batch->n_members;
    if (status == SY_OK)
        status = sy_core_infer_alone(b->core, &work, &options, batch_done, batch, &batch->request);
    if (status == SY_OK)
        return;
    char why[256];
    snprintf(why, sizeof why, "%s", sy_error_text());
    answer_unsent(batch, status, why);
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

/* All that are due by then, of models of the slices (bits). Answers may add and send others: begins anew after each. */
static void send_due(struct sy_core_batches *b, sy_ns by, unsigned slices)
{
    struct batch *at = b->batches;
    while (at) {
        if (at->sent || at->due_ns > by || stays_held(at) ||
            !(slices >> sy_sched_model_slice(b->core->sched, at->model) & 1)) {
            at = at->next;
            continue;
        }
        send_batch(at);
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
    sy_core_pump(b->core);
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
    answer_unsent(at, status, why);
}

void sy_core_batch_flush(struct sy_core_batches *b, int model)
{
    for (struct batch *at = b->batches; at; at = at->next)
        if (at->way != SY_BATCH_HELD || model < 0 || at->model == model)
            at->due_ns = 0;
    send_due(b, UINT64_MAX, UINT_MAX);
}

bool sy_core_batch_holds(const struct sy_core_batches *b, int model)
{
    const struct batch *at = b->batches;
    while (at && (at->sent || at->way != SY_BATCH_HELD || at->model != model))
        at = at->next;
    return at != NULL;
}

/* An answer may add others, but none for this model, which is released or not available. */
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

/* Whether one more of these rows fits. */
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
                            .sizes = sy_core_sizes_again(sizes),
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
    struct member *m = make_member(b->core, model, rows, inputs, outputs);
    struct batch *batch = m ? find_batch(b, way, model, rows, sizes, options) : NULL;
    if (m && !batch)
        batch = make_batch(b, way, model, rows, sizes, options);
    if (!batch) {
        if (m)
            free_member(b->core, model, m);
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
        batch->due_ns = 0; /* full: the next turn of the loop sends it, never this call */
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
        batch->due_ns = 0; /* the next turn of the loop answers it */
    m->canceled = true;    /* its rows stay in the batch: removing them would move the others */
    set_timer(b);
    if (batch->sent && !is_wanted(batch))
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

bool sy_core_batch_is_run(sy_core_infer_done done)
{
    return done == batch_done;
}

uint64_t sy_core_batch_n_sent(const struct sy_core_batches *b)
{
    return b->n_sent;
}
