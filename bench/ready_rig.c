#include "bench/ready_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* Allocates huge pages, like the pool. */
static void *take(uint64_t bytes)
{
    const uint64_t block = 2u << 20;
    uint64_t room = SY_ALIGN_UP(bytes + 1, bytes < block ? SY_LAYER_ALIGN : block);
    void *p = aligned_alloc(bytes < block ? SY_LAYER_ALIGN : block, room);
    if (p) {
        (void)madvise(p, room, MADV_HUGEPAGE);
        memset(p, 0, bytes);
    }
    return p;
}

static int read_image(struct ready_rig *rig)
{
    const struct sy_package *package = rig->package;
    uint64_t done = 0;
    int fd = open(package->path, O_RDONLY | O_CLOEXEC);
    rig->image = take(package->weights_bytes);
    rig->weights = take(package->weights_bytes);
    while (fd >= 0 && rig->image && rig->weights && done < package->weights_bytes) {
        ssize_t n = pread(fd, rig->image + done, package->weights_bytes - done,
                          (off_t)(package->weights_offset + done));
        if (n <= 0)
            break;
        done += (uint64_t)n;
    }
    if (fd >= 0)
        close(fd);
    if (done < package->weights_bytes)
        return sy_error_set(SY_EIO, "cannot read %s: %s", package->path, strerror(errno));
    memcpy(rig->weights, rig->image, package->weights_bytes);
    return SY_OK;
}

static int take_tensors(const struct sy_graph *graph, const int *which, int n, int64_t batch,
                        void ***out)
{
    *out = calloc((size_t)n + 1, sizeof **out);
    for (int i = 0; *out && i < n; i++) {
        const struct sy_tensor *t = &graph->tensors[which[i]];
        (*out)[i] = take(sy_graph_tensor_room(graph, which[i], batch));
        if (!(*out)[i])
            return sy_error_set(SY_ENOMEM_HOST, "no memory for tensor %s", t->name);
    }
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for tensors");
}

int ready_rig_open(struct ready_rig *rig, const char *path, int64_t batch)
{
    *rig = (struct ready_rig){0};
    SY_TRY(sy_package_open(path, &rig->package));
    SY_TRY(sy_package_check_engine(rig->package, &sy_host_engine));
    const struct sy_graph *graph = rig->package->usual;
    int n = rig->package->n_layers;
    SY_TRY(read_image(rig));
    SY_TRY(sy_host_engine.program_create(graph, rig->package->layers, n, batch, &rig->program));
    rig->layer_params = calloc((size_t)n + 1, sizeof *rig->layer_params);
    rig->workspace = take(sy_host_engine.program_workspace_bytes(rig->program));
    SY_TRY_ALLOC(rig->layer_params && rig->workspace, "no memory to run %s", path);
    for (int i = 0; i < n; i++)
        rig->layer_params[i] = rig->weights + rig->package->layers[i].offset_bytes;
    SY_TRY(take_tensors(graph, graph->inputs, graph->n_inputs, batch, &rig->inputs));
    SY_TRY(take_tensors(graph, graph->outputs, graph->n_outputs, batch, &rig->outputs));
    rig->binding = (struct sy_binding){.layer_params = rig->layer_params,
                                       .workspace = rig->workspace,
                                       .inputs = (const void *const *)rig->inputs,
                                       .outputs = rig->outputs};
    return SY_OK;
}

void ready_rig_close(struct ready_rig *rig)
{
    for (int i = 0; rig->inputs && i < rig->package->usual->n_inputs; i++)
        free(rig->inputs[i]);
    for (int i = 0; rig->outputs && i < rig->package->usual->n_outputs; i++)
        free(rig->outputs[i]);
    free(rig->inputs);
    free(rig->outputs);
    free(rig->workspace);
    free(rig->layer_params);
    free(rig->image);
    free(rig->weights);
    if (rig->program)
        sy_host_engine.program_destroy(rig->program);
    sy_package_close(rig->package);
    *rig = (struct ready_rig){0};
}
