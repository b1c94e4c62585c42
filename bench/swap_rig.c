#include "bench/swap_rig.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/swap_child.h"
#include "bench/swap_rig_internal.h"
#include "loader/plan/free_prefix.h"
#include "loader/storage/direct_read.h"
#include "loader/storage/storage.h"
#include "runtime/base/assert.h"
#include "workers/infer/infer_run.h"

/* ---- one cut of the model ------------------------------------------------------------------------ */

/* Plans like the runtime: tables stay in the image where the device can read them there. */
static int plan_cut(const struct swap_rig *r, enum swap_mode mode, struct swap_cut *cut)
{
    struct sy_direct_plan plan;
    SY_TRY(sy_direct_plan_for_pool(r->layers, r->read_bytes, r->package->n_layers, &r->cost,
                                   sy_pool_size(r->pool), &plan));
    cut->n_groups = SY_MIN(plan.n_groups, SY_RUN_MAX_GROUPS);
    struct sy_run_group *groups = calloc((size_t)plan.n_groups, sizeof *groups);
    if (!groups || cut->n_groups < plan.n_groups) {
        free(groups);
        free(plan.groups);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d groups", plan.n_groups);
    }
    for (int g = 0; g < plan.n_groups; g++) {
        cut->first[g] = plan.groups[g].first_layer;
        cut->direct[g] = plan.groups[g].direct;
    }
    sy_run_groups(r->layers, r->read_bytes, plan.groups, plan.n_groups, groups);
    if (mode == SWAP_PREFIX)
        cut->n_there = sy_free_prefix(groups, plan.n_groups, &r->cost,
                                      sy_free_prefix_slack(groups, plan.n_groups));
    free(groups);
    free(plan.groups);
    return SY_OK;
}

int swap_rig_make_cut(const struct swap_rig *r, enum swap_mode mode, struct swap_cut *cut)
{
    cut->n_groups = 0;
    if (mode == SWAP_WHOLE || swap_rig_has_all(mode)) {
        cut->first[cut->n_groups++] = 0;
        return SY_OK;
    }
    if (mode == SWAP_PER_LAYER || mode == SWAP_SEQUENTIAL) {
        for (int i = 0; i < r->package->n_layers && cut->n_groups < SY_RUN_MAX_GROUPS; i++)
            if (i == 0 || r->package->layers[i].bytes > 0)
                cut->first[cut->n_groups++] = i;
        return SY_OK;
    }
    return plan_cut(r, mode, cut);
}

/* ---- storage: the unified device's link ------------------------------------------------------------ */

struct reading {
    struct swap_rig *rig;
    const struct swap_cut *cut;
    struct sy_pool_memory *pool;
    struct sy_storage_range ranges[SY_RUN_MAX_GROUPS];
    int groups[SY_RUN_MAX_GROUPS]; /* of each range */
    int n_ranges, status;
    _Atomic int n_computed;
    bool sequential, verify;
    pthread_t thread;
};

static void range_done(void *ctx, int range, int status)
{
    struct reading *read = ctx;
    int g = read->groups[range];
    int first = read->cut->first[g];
    int end = g + 1 < read->cut->n_groups ? read->cut->first[g + 1] : read->rig->package->n_layers;
    if (status == SY_OK && read->verify)
        status = sy_package_verify(read->rig->package, first, end - first, read->ranges[range].to);
    atomic_store(&read->rig->arrivals[g], status == SY_OK ? SY_ARRIVAL_HERE : SY_ARRIVAL_FAILED);
    sy_futex_wake(&read->rig->arrivals[g]);
}

static int range_ready(void *ctx, int range)
{
    struct reading *read = ctx;
    return !read->sequential || atomic_load(&read->n_computed) >= read->groups[range];
}

static void *read_main(void *arg)
{
    struct reading *read = arg;
    struct sy_storage_reader *reader = NULL;
    struct sy_storage_callbacks callbacks = {.ready = range_ready, .done = range_done, .ctx = read};
    struct sy_storage_result result;
    read->status = sy_storage_reader_create(0, 0, &reader);
    if (read->status == SY_OK)
        read->status = sy_storage_read(reader, read->rig->package->path, read->ranges,
                                       read->n_ranges, &callbacks, &result);
    sy_storage_reader_destroy(reader);
    return NULL;
}

static int start_reading(struct reading *read)
{
    struct swap_rig *r = read->rig;
    read->n_ranges = 0;
    for (int g = 0; g < read->cut->n_groups; g++) {
        uint64_t start, bytes;
        sy_infer_group_range(r->package, read->cut->first, read->cut->n_groups, g, &start, &bytes);
        atomic_store(&r->arrivals[g], bytes ? SY_ARRIVAL_COMING : SY_ARRIVAL_HERE);
        if (bytes == 0)
            continue;
        read->groups[read->n_ranges] = g;
        read->ranges[read->n_ranges++] = (struct sy_storage_range){
            .file_offset = r->package->weights_offset + start,
            .bytes = bytes,
            .to = sy_device_host_pointer(r->device, sy_pool_address(read->pool, start)),
        };
    }
    return pthread_create(&read->thread, NULL, read_main, read) == 0
               ? SY_OK
               : sy_error_set(SY_ENOMEM_HOST, "cannot start the storage thread");
}

/* Drops the file from the page cache, so that the next read comes from disk. */
void swap_rig_forget_file(const struct swap_rig *r)
{
    int fd = open(r->package->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* ---- one swap ----------------------------------------------------------------------------------------- */

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static void no_beat(void *ctx)
{
    (void)ctx;
}

static void count_group(void *ctx, int group)
{
    struct reading *read = ctx;
    atomic_store(&read->n_computed, group + 1);
}

static int add_groups(struct swap_rig *r, const struct swap_cut *cut, enum swap_mode mode,
                      struct sy_transfer *transfer, uint64_t *moved)
{
    bool unified = sy_device_get_properties(r->device)->unified;
    bool all = swap_rig_has_all(mode);
    *moved = 0;
    sy_transfer_begin(transfer);
    for (int g = 0; g < cut->n_groups; g++) {
        uint64_t start, bytes;
        sy_infer_group_range(r->package, cut->first, cut->n_groups, g, &start, &bytes);
        bool resident = all || g < cut->n_there;
        struct sy_transfer_group group = {
            .pool_offset = start,
            .bytes = bytes,
            .image = unified ? NULL : (char *)r->image.base + start,
            .arrival = unified && !resident ? &r->arrivals[g] : NULL,
            .resident = (resident && !cut->direct[g]) || bytes == 0,
            .direct = cut->direct[g],
            .after_group = mode == SWAP_SEQUENTIAL ? g - 1 : -1,
        };
        SY_TRY(sy_transfer_add(transfer, &group, 1));
        *moved += resident || cut->direct[g] ? 0 : bytes;
    }
    return SY_OK;
}

static int compute(struct swap_rig *r, const struct swap_cut *cut, struct sy_pool_memory *pool,
                   struct sy_transfer *transfer, struct reading *read, struct sy_infer_times *times)
{
    struct sy_infer_run run = {
        .engine = r->engine,
        .package = r->package,
        .graph = r->package->usual,
        .program = r->program,
        .device = r->device,
        .pool = pool,
        .compute = r->compute,
        .done = r->run_done,
        .transfer = transfer,
        .group_layers = cut->first,
        .n_groups = cut->n_groups,
        .batch = r->batch,
        .workspace_offset = r->workspace_offset,
        .inputs = (const void *const *)r->inputs,
        .outputs = r->outputs,
        .is_interrupted = never,
        .beat = no_beat,
        .group_done = count_group,
        .ctx = read,
    };
    int status = sy_infer_run(&run, times);
    sy_transfer_end(transfer);
    return status;
}

int swap_rig_create_program(struct swap_rig *r)
{
    return r->engine->program_create(r->package->usual, r->package->layers, r->package->n_layers,
                                     r->batch, &r->program);
}

/* Everything from the arrival of the request to its outputs. */
int swap_rig_swap_in(struct swap_rig *r, enum swap_mode mode, const struct swap_cut *cut,
                     struct sy_pool_memory *pool, struct sy_transfer *transfer,
                     struct swap_result *out)
{
    bool from_storage = sy_device_get_properties(r->device)->unified && !swap_rig_has_all(mode);
    struct reading read = {
        .rig = r, .cut = cut, .pool = pool, .sequential = mode == SWAP_SEQUENTIAL, .verify = true};
    struct sy_infer_times times = {0};
    sy_ns start = sy_clock_now();
    if (mode != SWAP_READY)
        swap_victim_preempt(&r->victim);
    if (mode == SWAP_ONE_PROCESS) {
        SY_TRY(swap_victim_wait(&r->victim, &out->preempt_wait_ns));
        SY_TRY(swap_rig_create_program(r));
    }
    if (from_storage)
        SY_TRY(start_reading(&read));
    int status = add_groups(r, cut, mode, transfer, &out->bytes);
    if (status == SY_OK && mode != SWAP_READY && mode != SWAP_ONE_PROCESS)
        status = swap_victim_wait(&r->victim, &out->preempt_wait_ns);
    if (status == SY_OK)
        status = compute(r, cut, pool, transfer, &read, &times);
    if (from_storage) {
        pthread_join(read.thread, NULL);
        status = status < 0 ? status : read.status;
    }
    out->bytes += times.read_bytes;
    out->total_ns = times.end_ns - start;
    out->first_layer_ns = times.first_layer_ns - start;
    return status;
}

int swap_rig_read(struct swap_rig *r, sy_ns *took)
{
    struct swap_cut *cut = calloc(1, sizeof *cut);
    SY_TRY_ALLOC(cut, "no memory for the groups");
    int status = swap_rig_make_cut(r, SWAP_WHOLE, cut);
    if (status == SY_OK)
        status = swap_victim_hold(&r->victim);
    swap_rig_forget_file(r);
    struct reading read = {.rig = r, .cut = cut, .pool = r->pool};
    sy_ns start = sy_clock_now();
    if (status == SY_OK)
        status = start_reading(&read);
    if (status == SY_OK) {
        pthread_join(read.thread, NULL);
        status = read.status;
    }
    *took = sy_clock_now() - start;
    free(cut);
    return status;
}

int swap_rig_time_layers(struct swap_rig *r, const struct swap_cut *cut, sy_ns *spans)
{
    struct sy_infer_times times = {.compute_spans = spans};
    struct reading nothing = {0};
    uint64_t moved;
    SY_TRY(add_groups(r, cut, SWAP_READY, r->transfer, &moved));
    return compute(r, cut, r->pool, r->transfer, &nothing, &times);
}
