#include "workers/process/worker_internal.h"

#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "workers/infer/infer_run.h"
#include "workers/process/worker_regions.h"
#include "workers/process/worker_tensors.h"

#define MOST_PARTS 1024

static int check_range(const char *what, uint64_t offset, uint64_t bytes, uint64_t limit)
{
    if (offset > limit || bytes > limit - offset)
        return sy_error_set(SY_EPROTO, "%s: %llu bytes at offset %llu do not lie in %llu", what,
                            (unsigned long long)bytes, (unsigned long long)offset,
                            (unsigned long long)limit);
    return SY_OK;
}

static int send_done(struct sy_worker *w, uint64_t run, int status,
                     const struct sy_infer_times *times, struct sy_u64s spans)
{
    struct sy_message done = {.id = SY_MSG_RUN_DONE};
    done.run_done = (struct sy_msg_run_done){
        .run = run,
        .status = status,
        .error = status < 0 ? (char *)sy_error_text() : "",
        .received_ns = w->received_ns,
        .first_layer_ns = times->first_layer_ns,
        .end_ns = times->end_ns,
        .wait_ns = times->wait_ns,
        .lost_ns = times->lost_ns,
        .read_bytes = times->read_bytes,
        .next_layer = (uint64_t)times->next_layer,
        .spans = spans,
    };
    if (w->loaded)
        done.run_done.n_arrived = (uint64_t)sy_transfer_n_arrived(w->transfer);
    w->loaded = w->fetching = false;
    return sy_worker_send(w, &done);
}

/* After a device error the process ends, and the runtime runs the request again in another worker (W5). */
static int fail_run_at(struct sy_worker *w, uint64_t run, int status, int next_layer)
{
    if (status == SY_EDEVICE)
        return status;
    struct sy_infer_times none = {.next_layer = next_layer};
    if (w->loaded)
        sy_transfer_end(w->transfer);
    return send_done(w, run, status, &none, (struct sy_u64s){0});
}

static int fail_run(struct sy_worker *w, uint64_t run, int status)
{
    return fail_run_at(w, run, status, 0);
}

static int check_direct(const struct sy_worker *w, const struct sy_worker_model *model, int g)
{
    int end = g + 1 < model->n_groups ? model->group_layers[g + 1] : model->package->n_layers;
    if (w->image.bytes && end == model->group_layers[g] + 1 &&
        sy_device_get_properties(w->device)->host_reads)
        return SY_OK;
    return sy_error_set(SY_EPROTO,
                        "LOAD of group %d of model %s, to be read in the image: it has %d layers, "
                        "and the device must be one that reads there",
                        g, model->package->name, end - model->group_layers[g]);
}

/* W3: turns group `i` of the message into a transfer group. */
static int check_group(struct sy_worker *w, const struct sy_msg_load *load, size_t i,
                       struct sy_transfer_group *out)
{
    struct sy_worker_model *model;
    SY_TRY(sy_worker_models_find(w->models, load->model, &model));
    uint64_t start = 0, bytes = 0;
    uint64_t g = load->first_group + i;
    if (g >= (uint64_t)model->n_groups)
        return sy_error_set(SY_EPROTO, "LOAD of group %llu of model %s, which has %d",
                            (unsigned long long)g, model->package->name, model->n_groups);
    sy_infer_group_range(model->package, model->group_layers, model->n_groups, (int)g, &start,
                         &bytes);
    bool direct = load->resident.v[i] == SY_LOAD_DIRECT;
    uint64_t image_offset = load->image_offsets.n ? load->image_offsets.v[i] : 0;
    SY_TRY(check_range("group in the pool", load->pool_offsets.v[i], direct ? 0 : bytes,
                       sy_pool_size(w->pool)));
    if (w->image.bytes)
        SY_TRY(check_range("group in the image", image_offset, bytes, w->image.bytes));
    if (load->arrivals.v[i] >= SY_ARRIVAL_WORDS || load->after_group.v[i] > g ||
        load->resident.v[i] > SY_LOAD_DIRECT)
        return sy_error_set(
            SY_EPROTO, "LOAD of group %llu: arrival %llu, after %llu, resident %llu",
            (unsigned long long)g, (unsigned long long)load->arrivals.v[i],
            (unsigned long long)load->after_group.v[i], (unsigned long long)load->resident.v[i]);
    if (direct)
        SY_TRY(check_direct(w, model, (int)g));
    *out = (struct sy_transfer_group){
        .pool_offset = load->pool_offsets.v[i],
        .bytes = bytes,
        .image = w->image.bytes ? (char *)w->image.base + image_offset : NULL,
        .arrival = &w->arrivals[load->arrivals.v[i]],
        .resident = load->resident.v[i] == SY_LOAD_RESIDENT,
        .direct = direct,
        .after_group = (int32_t)load->after_group.v[i] - 1,
    };
    return SY_OK;
}

static int add_groups(struct sy_worker *w, const struct sy_msg_load *load)
{
    size_t n = load->pool_offsets.n;
    if (load->resident.n != n || load->after_group.n != n || load->arrivals.n != n ||
        (w->image.bytes && load->image_offsets.n != n))
        return sy_error_set(SY_EPROTO, "LOAD with lists of different lengths");
    if (load->first_group != (uint64_t)sy_transfer_n_groups(w->transfer))
        return sy_error_set(SY_EPROTO, "LOAD of group %llu after %d groups",
                            (unsigned long long)load->first_group,
                            sy_transfer_n_groups(w->transfer));
    for (size_t i = 0; i < n; i++) {
        struct sy_transfer_group group;
        SY_TRY(check_group(w, load, i, &group));
        SY_TRY(sy_transfer_add(w->transfer, &group, 1));
    }
    return SY_OK;
}

int sy_worker_load(struct sy_worker *w, const struct sy_msg_load *load)
{
    if (w->loaded && w->run != load->run)
        return fail_run(w, load->run,
                        sy_error_set(SY_EPROTO, "LOAD of run %llu while run %llu is loaded",
                                     (unsigned long long)load->run, (unsigned long long)w->run));
    if (load->link_class == SY_LINK_NONE || load->link_class > SY_LINK_URGENT)
        return fail_run(w, load->run,
                        sy_error_set(SY_EPROTO, "LOAD of run %llu as link class %llu",
                                     (unsigned long long)load->run,
                                     (unsigned long long)load->link_class));
    if (!w->loaded) {
        sy_transfer_begin(w->transfer);
        w->loaded = true;
        w->run = load->run;
        w->run_model = load->model;
        w->received_ns = sy_clock_now();
        atomic_store_explicit(&w->page->run_progress, load->run << 16, memory_order_release);
    }
    sy_transfer_set_class(w->transfer, (enum sy_link_class)load->link_class);
    int status = add_groups(w, load);
    return status < 0 ? fail_run(w, load->run, status) : SY_OK;
}

int sy_worker_fetch_look(struct sy_worker *w)
{
    struct sy_infer_times none = {0};
    if (!w->fetching)
        return SY_OK;
    int status = sy_transfer_status(w->transfer);
    if (status < 0)
        return fail_run(w, w->run, status);
    if (sy_transfer_n_arrived(w->transfer) < sy_transfer_n_groups(w->transfer))
        return SY_OK;
    sy_transfer_end(w->transfer);
    return send_done(w, w->run, SY_OK, &none, (struct sy_u64s){0});
}

int sy_worker_fetch(struct sy_worker *w, const struct sy_msg_fetch *fetch)
{
    if (!w->loaded || w->run != fetch->run)
        return SY_OK; /* its LOAD failed, and said so */
    w->fetching = true;
    return sy_worker_fetch_look(w);
}

int sy_worker_cancel(struct sy_worker *w, const struct sy_msg_cancel *cancel)
{
    if (!w->loaded || w->run != cancel->run)
        return SY_OK; /* it is over already; its RUN_DONE is on the way */
    return fail_run(w, cancel->run, sy_error_set(SY_ECANCELED, "canceled"));
}

static void group_done(void *worker, int group)
{
    struct sy_worker *w = worker;
    atomic_store_explicit(&w->page->run_progress, w->run << 16 | (uint64_t)(group + 1),
                          memory_order_release);
}

static struct sy_u64s collect_spans(struct sy_worker *w, uint64_t *spans, int n_groups)
{
    for (int g = n_groups - 1; g >= 0; g--) {
        uint64_t start = spans[2 * g], end = spans[2 * g + 1];
        sy_transfer_span(w->transfer, g, &spans[4 * g], &spans[4 * g + 1]);
        spans[4 * g + 2] = start;
        spans[4 * g + 3] = end;
    }
    return (struct sy_u64s){.n = (size_t)n_groups * 4, .v = spans};
}

static bool is_interrupted(void *worker)
{
    struct sy_worker *w = worker;
    sy_worker_follow_page(w);
    return atomic_load_explicit(&w->page->interrupted_run, memory_order_relaxed) == w->run;
}

int sy_worker_between_turns(void *worker)
{
    struct sy_worker *w = worker;
    sy_worker_beat(w);
    return w->is_running && is_interrupted(w) ? sy_infer_interrupted() : SY_OK;
}

/* A piece takes a few milliseconds, the first time. */
static void touch_workspace(struct sy_worker *w, uint64_t offset, uint64_t bytes)
{
    const uint64_t piece = 32u << 20;
    for (uint64_t at = 0; at < bytes; at += piece) {
        sy_pool_touch(w->pool, offset + at, SY_MIN(piece, bytes - at));
        sy_worker_beat(w);
    }
}

/* Checks RUN against LOAD and the mapped memory. */
static int check_run(const struct sy_worker *w, const struct sy_msg_run *msg,
                     const struct sy_worker_model *model)
{
    if (model->package->graph->n_inputs > SY_MAX_ENDS ||
        model->package->graph->n_outputs > SY_MAX_ENDS)
        return sy_error_set(SY_EUNSUPPORTED, "model %s has more than %d inputs or outputs",
                            model->package->name, SY_MAX_ENDS);
    if (!w->loaded || w->run != msg->run || w->run_model != msg->model ||
        sy_transfer_n_groups(w->transfer) != model->n_groups)
        return sy_error_set(SY_EPROTO,
                            "RUN %llu of model %s before all of its %d groups were LOADed",
                            (unsigned long long)msg->run, model->package->name, model->n_groups);
    if (msg->first_layer >= (uint64_t)model->package->n_layers ||
        (msg->first_layer > 0 && (w->engine->attach || msg->parts > 1)))
        return sy_error_set(SY_EPROTO, "RUN %llu of model %s from layer %llu on",
                            (unsigned long long)msg->run, model->package->name,
                            (unsigned long long)msg->first_layer);
    if (msg->parts < 1 || msg->parts > MOST_PARTS)
        return sy_error_set(SY_EPROTO, "RUN %llu with %llu parts", (unsigned long long)msg->run,
                            (unsigned long long)msg->parts);
    for (int g = 0; msg->parts > 1 && g < model->n_groups; g++)
        if (sy_transfer_group(w->transfer, g)->after_group >= 0)
            return sy_error_set(SY_EUNSUPPORTED,
                                "%llu runs back to back of model %s, whose groups cycle",
                                (unsigned long long)msg->parts, model->package->name);
    return SY_OK;
}

/* The tensors of one part. */
static struct sy_u64s part_of(const struct sy_u64s *all, uint64_t part, uint64_t parts)
{
    size_t n = all->n / parts;
    return (struct sy_u64s){.n = n, .v = all->v + part * n};
}

static int run_part(struct sy_worker *w, const struct sy_msg_run *msg, uint64_t part,
                    struct sy_infer_run *run, struct sy_infer_times *times)
{
    struct sy_worker_tensors tensors;
    struct sy_u64s inputs = part_of(&msg->inputs, part, msg->parts),
                   outputs = part_of(&msg->outputs, part, msg->parts);
    int status = sy_worker_tensors_locate(w, run->graph, run->batch, &inputs, &outputs, &tensors);
    run->inputs = (const void *const *)tensors.inputs;
    run->outputs = tensors.outputs;
    if (status == SY_OK)
        status = sy_infer_run(run, times);
    sy_worker_tensors_finish(w, &tensors);
    return status;
}

/* One part after the other; of the times the first one's beginning and the last one's end. */
static int run_parts(struct sy_worker *w, const struct sy_msg_run *msg,
                     const struct sy_infer_run *of, struct sy_infer_times *times)
{
    struct sy_infer_times each = {.compute_spans = times->compute_spans};
    struct sy_infer_run run = *of;
    for (uint64_t part = 0; part < msg->parts; part++) {
        int status = run_part(w, msg, part, &run, &each);
        times->first_layer_ns = part == 0 ? each.first_layer_ns : times->first_layer_ns;
        times->end_ns = each.end_ns;
        times->wait_ns += each.wait_ns;
        times->read_bytes += each.read_bytes;
        times->next_layer = msg->parts == 1 ? each.next_layer : 0;
        SY_TRY(status);
    }
    return SY_OK;
}

/* In a slice of one core: what the thread did not compute it stood without it. On more it also sleeps while others of its team compute. */
static int run_timed(struct sy_worker *w, const struct sy_msg_run *msg,
                     const struct sy_infer_run *run, struct sy_infer_times *times)
{
    bool counts = msg->cores.n == 1 && !w->engine->attach;
    sy_ns had = counts ? sy_clock_thread() : 0, from = sy_clock_now();
    int status = run_parts(w, msg, run, times);
    if (counts) {
        sy_ns took = sy_clock_now() - from;
        had = sy_clock_thread() - had;
        times->lost_ns = took > had ? took - had : 0;
    }
    return status;
}

static int execute(struct sy_worker *w, const struct sy_msg_run *msg, struct sy_infer_times *times,
                   struct sy_u64s *spans)
{
    struct sy_worker_model *model;
    struct sy_worker_program of;
    SY_TRY(sy_worker_models_find(w->models, msg->model, &model));
    SY_TRY(check_run(w, msg, model));
    SY_TRY(sy_worker_set_cores(w, msg->team, &msg->cores));
    SY_TRY(sy_worker_models_program(w->models, msg->model, msg->batch, msg->sizes.v, msg->sizes.n,
                                    false, &of));
    uint64_t workspace = w->engine->program_workspace_bytes(of.program);
    SY_TRY(check_range("workspace in its room", 0, workspace, msg->workspace_bytes));
    SY_TRY(check_range("workspace", msg->workspace_offset, workspace, sy_pool_size(w->pool)));
    struct sy_infer_run run = {
        .engine = w->engine,
        .package = model->package,
        .graph = of.graph,
        .program = of.program,
        .device = w->device,
        .pool = w->pool,
        .compute = w->compute,
        .done = w->run_done,
        .transfer = w->transfer,
        .group_layers = model->group_layers,
        .n_groups = model->n_groups,
        .first_layer = (int)msg->first_layer,
        .batch = (int64_t)msg->batch,
        .workspace_offset = msg->workspace_offset,
        .is_interrupted = is_interrupted,
        .beat = sy_worker_beat,
        .group_done = group_done,
        .ctx = w,
    };
    sy_transfer_set_class(w->transfer, SY_LINK_URGENT);
    touch_workspace(w, msg->workspace_offset, workspace);
    uint64_t *room = calloc((size_t)model->n_groups * 4, sizeof *room);
    SY_TRY_ALLOC(room, "no memory for %d spans", model->n_groups * 4);
    times->compute_spans = room;
    spans->v = room;
    w->is_running = true;
    int status = run_timed(w, msg, &run, times);
    w->is_running = false;
    sy_transfer_end(w->transfer);
    if (status == SY_OK)
        *spans = collect_spans(w, room, model->n_groups);
    return status;
}

/* E1: what it has read may be zeros, and what it wrote may be lost. */
static int check_regions(const struct sy_msg_run *msg, int status)
{
    SY_TRY(sy_worker_regions_check(&msg->inputs));
    SY_TRY(sy_worker_regions_check(&msg->outputs));
    return status;
}

int sy_worker_run(struct sy_worker *w, const struct sy_msg_run *msg)
{
    struct sy_infer_times times = {0};
    struct sy_u64s spans = {0};
    int status = execute(w, msg, &times, &spans);
    if (status != SY_EDEVICE)
        status = check_regions(msg, status);
    status = status < 0 ? fail_run_at(w, msg->run, status, times.next_layer)
                        : send_done(w, msg->run, status, &times, spans);
    free(spans.v);
    w->run_end_ns = sy_clock_now();
    return status;
}
