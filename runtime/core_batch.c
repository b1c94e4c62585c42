#include "runtime/core_batch.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/core_internal.h"
#include "runtime/sched/admission_refusal.h"

struct member {
    struct member *next;
    uint64_t id;
    int64_t rows;
    uint64_t *inputs, *outputs; /* slab offsets, the caller's */
    sy_core_infer_done done;
    void *ctx;
    sy_ns arrived_ns;
    bool canceled;
};

struct batch {
    struct batch *next;
    struct sy_core_batches *of;
    int model, class_;
    char tenant[SY_CORE_TENANT_NAME];
    int64_t rows;
    struct sy_core_sizes *sizes;
    struct member *members; /* the latest first */
    int n_members;
    sy_ns due_ns;
    bool sent;
    uint64_t request;           /* once it is sent */
    uint64_t *inputs, *outputs; /* slab offsets of its own, once it is sent */
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
    bool all = m->rows_are_apart && g->n_inputs > 0 && g->n_outputs > 0;
    for (int i = 0; i < g->n_inputs; i++)
        all = all && is_rows(m, sizes, g->inputs[i]);
    for (int i = 0; i < g->n_outputs; i++)
        all =
            all && is_rows(m, sizes, g->outputs[i]) && !sy_graph_is_sized_at_run(g, g->outputs[i]);
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

bool sy_core_batch_wants(const struct sy_core_batches *b, int model, int64_t rows,
                         const struct sy_core_sizes *sizes,
                         const struct sy_core_infer_options *options)
{
    const struct sy_sched *s = b->core->sched;
    bool busy = sy_sched_n_started(s) > 0 || sy_sched_n_waiting(s) > 0;
    return delay_of(b, model) > 0 && busy && rows >= 1 && rows < most_rows(b, model) &&
           options->deadline_ns == 0 && takes_rows(model_of(b, model), sizes);
}

static void free_member(struct member *m)
{
    free(m->inputs);
    free(m->outputs);
    free(m);
}

static struct member *make_member(const struct sy_graph *g, int64_t rows, const uint64_t *inputs,
                                  const uint64_t *outputs)
{
    struct member *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->rows = rows;
    m->inputs = calloc((size_t)g->n_inputs, sizeof *m->inputs);
    m->outputs = calloc((size_t)g->n_outputs, sizeof *m->outputs);
    if (!m->inputs || !m->outputs) {
        free_member(m);
        return NULL;
    }
    memcpy(m->inputs, inputs, (size_t)g->n_inputs * sizeof *inputs);
    memcpy(m->outputs, outputs, (size_t)g->n_outputs * sizeof *outputs);
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
    for (int i = 0; batch->inputs && i < g->n_inputs; i++)
        if (batch->inputs[i] != UINT64_MAX)
            sy_slab_release(slab, batch->inputs[i]);
    for (int i = 0; batch->outputs && i < g->n_outputs; i++)
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
        free_member(m);
        m = next;
    }
    sy_core_sizes_give(&batch->of->core->models[batch->model], batch->sizes);
    sy_core_model_let_go(batch->of->core, batch->model);
    free(batch);
}

static void batch_done(void *ctx, int status, const char *error,
                       const struct sy_request_report *report)
{
    struct batch *batch = ctx;
    if (status == SY_OK)
        move_rows(batch, true);
    give_slab(batch);
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

static void send_batch(struct batch *batch)
{
    struct sy_core_batches *b = batch->of;
    const struct sy_graph *g = graph_of(b, batch->model);
    struct sy_core_infer_options options = {.class_ = batch->class_,
                                            .tenant = *batch->tenant ? batch->tenant : NULL};
    batch->sent = true;
    b->n_gathered -= batch->n_members;
    if (!is_wanted(batch)) {
        answer_unsent(batch, SY_ECANCELED, "canceled while it waited");
        return;
    }
    b->n_sent += batch->n_members > 1;
    batch->inputs = take_slab(batch, g->inputs, g->n_inputs);
    batch->outputs = take_slab(batch, g->outputs, g->n_outputs);
    int status = has_slab(batch, g) ? SY_OK
                                    : sy_error_set(SY_ENOMEM_HOST,
                                                   "no room in the slab for a batch of %lld rows; "
                                                   "make it larger (--slab-bytes)",
                                                   (long long)batch->rows);
    if (status == SY_OK) {
        move_rows(batch, false);
        status =
            sy_core_infer_alone(b->core, batch->model, batch->rows, batch->sizes, batch->inputs,
                                batch->outputs, &options, batch_done, batch, &batch->request);
    }
    if (status == SY_OK)
        return;
    char why[256];
    snprintf(why, sizeof why, "%s", sy_error_text());
    answer_unsent(batch, status, why);
}

/* ---- gathering -------------------------------------------------------------------------------- */

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

/* All that are due by then. Answers may add and send others: begins anew after each. */
static void send_due(struct sy_core_batches *b, sy_ns by)
{
    struct batch *at = b->batches;
    while (at) {
        if (at->sent || at->due_ns > by) {
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
    send_due(b, sy_clock_now());
    set_timer(b);
    sy_core_pump(b->core);
}

void sy_core_batch_flush(struct sy_core_batches *b)
{
    send_due(b, UINT64_MAX);
}

static struct batch *find_batch(struct sy_core_batches *b, int model, int64_t rows,
                                struct sy_core_sizes *sizes,
                                const struct sy_core_infer_options *options)
{
    const char *tenant = options->tenant ? options->tenant : "";
    struct batch *at = b->batches;
    while (at &&
           (at->sent || at->model != model || at->sizes != sizes || at->class_ != options->class_ ||
            at->rows + rows > most_rows(b, model) || strcmp(at->tenant, tenant) != 0))
        at = at->next;
    if (at)
        return at;
    at = calloc(1, sizeof *at);
    if (!at)
        return NULL;
    *at = (struct batch){.next = b->batches,
                         .of = b,
                         .model = model,
                         .sizes = sy_core_sizes_again(sizes),
                         .class_ = options->class_,
                         .due_ns = sy_clock_now() + delay_of(b, model)};
    snprintf(at->tenant, sizeof at->tenant, "%s", tenant);
    sy_core_model_hold(b->core, model);
    b->batches = at;
    return at;
}

int sy_core_batch_add(struct sy_core_batches *b, int model, int64_t rows,
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
    struct member *m = make_member(graph_of(b, model), rows, inputs, outputs);
    struct batch *batch = m ? find_batch(b, model, rows, sizes, options) : NULL;
    if (!batch) {
        if (m)
            free_member(m);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request");
    }
    m->id = ++b->core->last_request;
    m->done = done;
    m->ctx = ctx;
    m->arrived_ns = sy_clock_now();
    m->next = batch->members;
    batch->members = m;
    batch->n_members++;
    batch->rows += rows;
    b->n_gathered++;
    *out_id = m->id;
    if (batch->rows == most_rows(b, model))
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
    m->canceled = true; /* its rows go along; they would have to be moved otherwise */
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
