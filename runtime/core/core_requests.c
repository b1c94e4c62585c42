/* Requests in the scheduler, from admission to the answer. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"

#define MOST_CLASS 9

_Static_assert(-SY_EBUG < SY_CORE_N_STATUS, "a place for each status");

struct sy_core_request *sy_core_find_run(struct sy_core *core, uint64_t run)
{
    struct sy_core_request *r = core->requests;
    while (r && r->run != run)
        r = r->next;
    return r;
}

struct sy_core_request *sy_core_find_request(struct sy_core *core, uint64_t id)
{
    struct sy_core_request *r = core->requests;
    while (r && r->id != id)
        r = r->next;
    return r;
}

static void free_request(struct sy_core *core, struct sy_core_request *r)
{
    if (r->holds_regions) {
        sy_core_regions_release(core, r->inputs, r->n_inputs);
        sy_core_regions_release(core, r->outputs, r->n_outputs);
    }
    sy_core_sizes_release(&core->models[r->model], r->sizes);
    sy_core_model_unhold(core, r->model);
    free(r->inputs);
    free(r->outputs);
    free(r);
}

static uint64_t *copy_addresses(const uint64_t *from, int n)
{
    uint64_t *copy = malloc(((size_t)n + 1) * sizeof *copy);
    if (copy)
        memcpy(copy, from, (size_t)n * sizeof *copy);
    return copy;
}

static int make_request(struct sy_core *core, const struct sy_core_work *work,
                        struct sy_core_request **out)
{
    const struct sy_graph *graph = core->models[work->model].package->graph;
    if (graph->n_inputs > SY_MAX_ENDS || graph->n_outputs > SY_MAX_ENDS)
        return sy_error_set(SY_EUNSUPPORTED, "model %s has more than %d inputs or outputs",
                            core->models[work->model].name, SY_MAX_ENDS);
    struct sy_core_request *r = calloc(1, sizeof *r);
    SY_TRY_ALLOC(r, "no memory for a request");
    r->model = work->model;
    sy_core_model_hold(core, work->model);
    r->batch = work->batch;
    r->sizes = sy_core_sizes_hold(work->sizes);
    r->n_parts = work->n_parts;
    r->is_batch = work->is_batch;
    r->n_inputs = work->n_parts * graph->n_inputs;
    r->n_outputs = work->n_parts * graph->n_outputs;
    r->inputs = copy_addresses(work->inputs, r->n_inputs);
    r->outputs = copy_addresses(work->outputs, r->n_outputs);
    if (!r->inputs || !r->outputs) {
        free_request(core, r);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request");
    }
    sy_core_regions_hold(core, r->inputs, r->n_inputs);
    sy_core_regions_hold(core, r->outputs, r->n_outputs);
    r->holds_regions = true;
    *out = r;
    return SY_OK;
}

static int take_options(struct sy_core *core, struct sy_core_request *r,
                        const struct sy_core_infer_options *options)
{
    if (options->class_ < 0 || options->class_ > MOST_CLASS)
        return sy_error_set(SY_EARG, "class %d: 0, the most urgent, to %d", options->class_,
                            MOST_CLASS);
    r->class_ = options->class_;
    r->deadline_ns = options->deadline_ns ? r->report.arrived_ns + options->deadline_ns : 0;
    r->guess = sy_core_predict(core, r);
    return options->tenant ? sy_core_tenant_find(core, options->tenant, &r->tenant) : SY_OK;
}

int sy_core_infer_alone(struct sy_core *core, const struct sy_core_work *work,
                        const struct sy_core_infer_options *options, sy_core_infer_done done,
                        void *ctx, uint64_t *out_id)
{
    struct sy_core_request *r = NULL;
    int index = work->model;
    SY_TRY(make_request(core, work, &r));
    r->id = r->report.id = work->id ? work->id : ++core->last_request;
    r->done = done;
    r->ctx = ctx;
    r->report.arrived_ns = sy_clock_now();
    r->report.worker = -1;
    int status = take_options(core, r, options);
    if (status < 0) {
        free_request(core, r);
        return status;
    }
    r->next = core->requests;
    core->requests = r;
    core->n_requests++;
    sy_core_tick(core);
    struct sy_sched_request wants = {.id = r->id,
                                     .model = index,
                                     .batch = r->batch,
                                     .sizes = r->sizes ? r->sizes->id : 0,
                                     .class_ = r->class_,
                                     .deadline_ns = r->deadline_ns,
                                     .duration = sy_core_whole_duration(core, r)};
    struct sy_prediction prediction;
    status = sy_sched_request(core->sched, &wants, &prediction);
    if (status < 0) {
        if (status == SY_EDEADLINE) {
            sy_ns now = sy_clock_now();
            sy_core_forget_after_refusal(core, index, r->guess,
                                         r->deadline_ns > now ? r->deadline_ns - now : 0);
            status = sy_core_explain_preparing(core, r, status);
        }
        core->n_refused_late += status == SY_EDEADLINE;
        core->requests = r->next;
        core->n_requests--;
        free_request(core, r);
        return status;
    }
    r->report.predicted_ns =
        prediction.finish_ns - SY_MIN(r->report.arrived_ns, prediction.finish_ns);
    core->models[index].n_requests++;
    sy_core_heads_note(core, &core->models[index]);
    if (out_id)
        *out_id = r->id;
    sy_core_pump_soon(core);
    return SY_OK;
}

void sy_core_note_end(struct sy_core *core, int model, int status,
                      const struct sy_request_report *report)
{
    if (status < 0) {
        core->counts.failed[SY_MIN(-status, SY_CORE_N_STATUS - 1)]++;
        return;
    }
    sy_phases_add(&core->models[model].phases, &core->counts.phases, report);
}

/* Learns its time on the device, without the queue, for the prediction of the model's next request. */
static void learn(struct sy_core *core, const struct sy_core_request *r)
{
    struct sy_core_slice *slice = &core->slices[r->slice];
    sy_ns begun = SY_MAX(r->report.started_ns, slice->last_finish_ns);
    slice->last_finish_ns = r->report.finished_ns;
    core->n_late += r->deadline_ns && r->report.finished_ns > r->deadline_ns;
    if (r->report.attempts == 1 && r->report.finished_ns > begun)
        sy_core_learn(core, r->model, r->guess, r->report.finished_ns - begun);
}

void sy_core_end_request(struct sy_core *core, struct sy_core_request *r, int status,
                         const char *error)
{
    struct sy_core_request **at = &core->requests;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    core->n_requests--;
    struct sy_core_model *m = &core->models[r->model];
    r->report.finished_ns = sy_clock_now();
    r->report.run_rows = r->batch * r->n_parts;
    if (status == SY_OK)
        learn(core, r);
    core->n_done += status == SY_OK;
    core->n_failed += status < 0;
    core->n_swaps += status == SY_OK && r->report.swapped;
    core->moved_bytes += r->report.moved_bytes;
    m->n_failed += status < 0;
    m->n_swaps += status == SY_OK && r->report.swapped;
    if (!r->is_batch)
        sy_core_note_end(core, r->model, status, &r->report);
    r->done(r->ctx, status, status < 0 ? error : NULL, &r->report);
    free_request(core, r);
    sy_core_poll_next(core);
}
