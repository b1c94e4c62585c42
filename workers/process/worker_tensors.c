#include "workers/process/worker_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/wire/tensor_at.h"
#include "workers/process/worker_internal.h"
#include "workers/process/worker_regions.h"

#define COPY_ALIGN 64            /* as tensors in the slab */
#define COPY_PIECE (32ull << 20) /* between two heartbeats: some 10 ms */

static int locate_tensor(const struct sy_worker *w, const struct sy_tensor *tensor, uint64_t at,
                         uint64_t bytes, void **out)
{
    if (sy_tensor_region(at) != 0)
        return sy_worker_region_locate(at, bytes, tensor->name, out);
    if (at > w->slab.bytes || bytes > w->slab.bytes - at)
        return sy_error_set(SY_EPROTO, "%s: %llu bytes at offset %llu do not lie in %llu",
                            tensor->name, (unsigned long long)bytes, (unsigned long long)at,
                            (unsigned long long)w->slab.bytes);
    *out = (char *)w->slab.base + at;
    return SY_OK;
}

static int locate_all(const struct sy_worker *w, const struct sy_graph *graph, const int *tensors,
                      int n, const struct sy_u64s *at, int64_t batch, void **out)
{
    if (at->n != (size_t)n)
        return sy_error_set(SY_EPROTO, "RUN with %zu tensors for %d", at->n, n);
    for (int i = 0; i < n; i++)
        SY_TRY(locate_tensor(w, &graph->tensors[tensors[i]], at->v[i],
                             sy_graph_tensor_room(graph, tensors[i], batch), &out[i]));
    return SY_OK;
}

/* ---- E4 ----------------------------------------------------------------------------------------- */

static bool is_read_by_a_node(const struct sy_graph *graph, int tensor)
{
    for (int i = 0; i < graph->n_nodes; i++)
        for (int k = 0; k < graph->nodes[i].n_inputs; k++)
            if (graph->nodes[i].inputs[k] == tensor)
                return true;
    return false;
}

static bool needs_copy(const struct sy_graph *graph, int tensor, uint64_t at)
{
    enum sy_dtype dtype = graph->tensors[tensor].dtype;
    return sy_tensor_region(at) != 0 && (dtype == SY_DTYPE_I64 || dtype == SY_DTYPE_I32) &&
           is_read_by_a_node(graph, tensor);
}

static void choose_copies(const struct sy_graph *graph, const int *tensors, int n,
                          const struct sy_u64s *at, int64_t batch, bool is_output, void **places,
                          struct sy_worker_tensors *t)
{
    for (int i = 0; i < n; i++)
        if (needs_copy(graph, tensors[i], at->v[i]))
            t->copies[t->n_copies++] = (struct sy_worker_tensor_copy){
                .place = &places[i],
                .shared = places[i],
                .bytes = sy_graph_tensor_room(graph, tensors[i], batch),
                .is_output = is_output};
}

static void copy(struct sy_worker *w, void *to, const void *from, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += COPY_PIECE) {
        memcpy((char *)to + at, (const char *)from + at, SY_MIN(COPY_PIECE, bytes - at));
        if (bytes > COPY_PIECE)
            sy_worker_beat(w);
    }
}

/* An output has its client's bytes until it is computed: what a run stops before is not this process's to show. */
static int make_copies(struct sy_worker *w, struct sy_worker_tensors *t)
{
    uint64_t all = 0;
    for (int k = 0; k < t->n_copies; k++)
        all += SY_ALIGN_UP(t->copies[k].bytes, COPY_ALIGN);
    t->memory = aligned_alloc(COPY_ALIGN, SY_MAX(all, COPY_ALIGN));
    SY_TRY_ALLOC(t->memory, "no memory to copy %llu bytes of indices from shared memory",
                 (unsigned long long)all);
    char *next = t->memory;
    for (int k = 0; k < t->n_copies; k++) {
        *t->copies[k].place = next;
        copy(w, next, t->copies[k].shared, t->copies[k].bytes);
        next += SY_ALIGN_UP(t->copies[k].bytes, COPY_ALIGN);
    }
    return SY_OK;
}

/* ---- a run's tensors ------------------------------------------------------------------------------ */

int sy_worker_tensors_locate(struct sy_worker *worker, const struct sy_graph *graph, int64_t batch,
                             const struct sy_u64s *inputs, const struct sy_u64s *outputs,
                             struct sy_worker_tensors *out)
{
    out->n_copies = 0;
    out->memory = NULL;
    SY_TRY(locate_all(worker, graph, graph->inputs, graph->n_inputs, inputs, batch, out->inputs));
    SY_TRY(
        locate_all(worker, graph, graph->outputs, graph->n_outputs, outputs, batch, out->outputs));
    choose_copies(graph, graph->inputs, graph->n_inputs, inputs, batch, false, out->inputs, out);
    choose_copies(graph, graph->outputs, graph->n_outputs, outputs, batch, true, out->outputs, out);
    if (out->n_copies == 0)
        return SY_OK;
    int status = make_copies(worker, out);
    out->n_copies = status < 0 ? 0 : out->n_copies;
    return status;
}

void sy_worker_tensors_finish(struct sy_worker *worker, struct sy_worker_tensors *tensors)
{
    for (int k = 0; k < tensors->n_copies; k++)
        if (tensors->copies[k].is_output)
            copy(worker, tensors->copies[k].shared, *tensors->copies[k].place,
                 tensors->copies[k].bytes);
    free(tensors->memory);
    tensors->memory = NULL;
    tensors->n_copies = 0;
}
