/* The modes that change the location of memory or its allocation. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/swap_rig_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/device/device_cuda.h"

/* Tensors like a worker's: in shared memory registered with the device. */
static int move_to_slab(struct swap_rig *r)
{
    const struct sy_graph *graph = r->package->usual;
    uint64_t in[16] = {0}, total = 4096, used = 0;
    for (int i = 0; i < graph->n_inputs; i++) {
        const struct sy_tensor *t = &graph->tensors[graph->inputs[i]];
        in[i] = (uint64_t)sy_shape_elements(&t->shape, r->batch) * sy_dtype_bytes(t->dtype);
        total += SY_ALIGN_UP(in[i], 256u);
    }
    for (int i = 0; i < graph->n_outputs; i++)
        total += SY_ALIGN_UP(r->output_bytes[i], 256u);
    SY_TRY(sy_shared_memory_create(&r->slab, "slab", SY_ALIGN_UP(total, 4096u)));
    for (int i = 0; i < graph->n_inputs; i++) {
        void *place = memcpy((char *)r->slab.base + used, r->inputs[i], in[i]);
        free(r->inputs[i]);
        r->inputs[i] = place;
        used += SY_ALIGN_UP(in[i], 256u);
    }
    for (int i = 0; i < graph->n_outputs; i++) {
        free(r->outputs[i]);
        r->outputs[i] = (char *)r->slab.base + used;
        used += SY_ALIGN_UP(r->output_bytes[i], 256u);
    }
    return SY_OK;
}

int swap_rig_make_tensors(struct swap_rig *r)
{
    const struct sy_graph *graph = r->package->usual;
    if (graph->n_inputs > 16 || graph->n_outputs > 16)
        return sy_error_set(SY_EUNSUPPORTED, "more than 16 inputs or outputs");
    for (int i = 0; i < graph->n_inputs; i++) {
        SY_TRY(swap_make_input(&graph->tensors[graph->inputs[i]], r->batch, &r->inputs[i]));
    }
    for (int i = 0; i < graph->n_outputs; i++) {
        const struct sy_tensor *t = &graph->tensors[graph->outputs[i]];
        r->output_bytes[i] =
            (size_t)sy_shape_elements(&t->shape, r->batch) * sy_dtype_bytes(t->dtype);
        r->outputs[i] = calloc(1, r->output_bytes[i]);
        r->reference[i] = calloc(1, r->output_bytes[i]);
        SY_TRY_ALLOC(r->outputs[i] && r->reference[i], "no memory for the outputs");
    }
    return r->engine->attach ? move_to_slab(r) : SY_OK;
}

static int swap_without_pool(struct swap_rig *r, const struct swap_cut *cut,
                             struct swap_result *out)
{
    struct sy_pool_memory *pool = NULL;
    struct sy_transfer *transfer = NULL;
    sy_ns start = sy_clock_now();
    int status = sy_pool_create(r->device, sy_pool_size(r->pool), &pool);
    if (status == SY_OK)
        status = sy_transfer_create(r->device, pool, r->link_core, &transfer);
    sy_ns taken = sy_clock_now() - start;
    if (status == SY_OK)
        status = swap_rig_swap_in(r, SWAP_NO_POOL, cut, pool, transfer, out);
    start = sy_clock_now();
    sy_transfer_destroy(transfer);
    sy_pool_destroy(pool);
    out->total_ns += taken + sy_clock_now() - start;
    out->first_layer_ns += taken;
    return status;
}

/* Imports the same pool again by the handle that workers get, and closes it afterwards. */
static int swap_with_ipc(struct swap_rig *r, const struct swap_cut *cut, struct swap_result *out)
{
    struct sy_pool_memory *pool = NULL;
    struct sy_transfer *transfer = NULL;
    int fd = -1;
    SY_TRY(sy_pool_export(r->pool, &fd));
    sy_ns start = sy_clock_now();
    int status = sy_pool_import(r->device, fd, sy_pool_size(r->pool), &pool);
    if (status == SY_OK)
        status = sy_transfer_create(r->device, pool, r->link_core, &transfer);
    sy_ns taken = sy_clock_now() - start;
    if (status == SY_OK)
        status = swap_rig_swap_in(r, SWAP_NO_IPC, cut, pool, transfer, out);
    start = sy_clock_now();
    sy_transfer_destroy(transfer);
    sy_pool_destroy(pool);
    out->total_ns += taken + sy_clock_now() - start;
    out->first_layer_ns += taken;
    close(fd);
    return status;
}

static int swap_without_pin(struct swap_rig *r, const struct swap_cut *cut, struct swap_result *out)
{
    SY_TRY(sy_device_host_unregister(r->device, r->image.base));
    int status = swap_rig_swap_in(r, SWAP_NO_PIN, cut, r->pool, r->transfer, out);
    SY_TRY(sy_device_host_register(r->device, r->image.base, r->image.bytes));
    int pinned = sy_device_host_register_wait(r->device, 60 * SY_NS_PER_S);
    return status < 0 ? status : pinned;
}

static int take_managed(struct swap_rig *r)
{
    void *symbol;
    SY_TRY(sy_device_cuda_symbol(SY_CUDA_MANAGED_ENTRY, &symbol));
    r->system = symbol;
    SY_TRY(r->system->take(r->device, r->package->weights_bytes, &r->managed));
    memcpy(r->managed, r->image.base, r->package->weights_bytes);
    return SY_OK;
}

/* All weights in managed memory, which stays on the host until kernels touch it. */
static int swap_managed(struct swap_rig *r, struct swap_result *out)
{
    int n = r->package->n_layers;
    unsigned char **params = calloc((size_t)n + 1, sizeof *params);
    SY_TRY_ALLOC(params, "no memory for %d layers", n);
    int status = r->managed ? SY_OK : take_managed(r);
    if (status == SY_OK)
        status = r->system->to_host(r->device, r->managed, r->package->weights_bytes);
    for (int i = 0; i < n; i++)
        params[i] = (unsigned char *)r->managed + r->package->layers[i].offset_bytes;
    struct sy_binding binding = {
        .layer_params = params,
        .workspace = (void *)(uintptr_t)sy_pool_address(r->pool, r->workspace_offset).value,
        .inputs = (const void *const *)r->inputs,
        .outputs = r->outputs};
    sy_ns start = sy_clock_now();
    swap_victim_preempt(&r->victim);
    if (status == SY_OK)
        status = swap_victim_wait(&r->victim, &out->preempt_wait_ns);
    out->first_layer_ns = sy_clock_now() - start;
    if (status == SY_OK)
        status = r->engine->program_run(r->program, &binding, 0, n);
    int done = sy_stream_synchronize(r->compute);
    out->total_ns = sy_clock_now() - start;
    out->bytes = r->package->weights_bytes;
    free(params);
    return status < 0 ? status : done;
}

bool swap_rig_is_special(enum swap_mode mode)
{
    return mode == SWAP_NO_POOL || mode == SWAP_NO_IPC || mode == SWAP_NO_PIN ||
           mode == SWAP_MANAGED;
}

int swap_rig_run_special(struct swap_rig *r, enum swap_mode mode, const struct swap_cut *cut,
                         struct swap_result *out)
{
    if (mode == SWAP_NO_POOL)
        return swap_without_pool(r, cut, out);
    if (mode == SWAP_NO_IPC)
        return swap_with_ipc(r, cut, out);
    return mode == SWAP_NO_PIN ? swap_without_pin(r, cut, out) : swap_managed(r, out);
}
