#include "runtime/front/infer_region.h"

#include "runtime/base/status.h"

#define TENSOR_ALIGN 64 /* of tensors that workers use where they lie */

static int find(struct sy_front *front, const char *name, const struct sy_infer_region *region,
                uint64_t *id, uint64_t *at)
{
    if (!front->regions)
        return sy_error_set(SY_EUNSUPPORTED, "this server shares no memory with its clients");
    return sy_shared_regions_find(front->regions, name, region->offset, region->bytes, id, at);
}

static int open_to_copy(struct sy_front *front, const char *name, struct sy_infer_region *region)
{
    SY_TRY(sy_region_file_open(front->regions, name, region->offset, region->bytes, &region->file));
    region->is_copied = true;
    return SY_OK;
}

int sy_infer_region_input(struct sy_front *front, struct sy_front_infer *infer, int input,
                          const char *name, struct sy_infer_region *region)
{
    uint64_t id, at;

    SY_TRY(find(front, name, region, &id, &at));
    if (at % TENSOR_ALIGN != 0 || sy_front_infer_has_strings(infer, input))
        return open_to_copy(front, name, region);
    sy_front_infer_place_input(infer, input, id, at, region->bytes);
    return SY_OK;
}

int sy_infer_region_output(struct sy_front *front, struct sy_front_infer *infer, int output,
                           const char *name, struct sy_infer_region *region)
{
    const struct sy_graph *graph = sy_front_infer_model(infer)->package->graph;
    uint64_t id, at;

    SY_TRY(find(front, name, region, &id, &at));
    if (at % TENSOR_ALIGN != 0 || sy_graph_is_dynamic(graph, graph->outputs[output]) ||
        graph->tensors[graph->outputs[output]].dtype == SY_DTYPE_STRING)
        return open_to_copy(front, name, region);
    sy_front_infer_place_output(infer, output, id, at, region->bytes);
    return SY_OK;
}

int sy_infer_region_read(const struct sy_infer_region *region, void *to, uint64_t bytes)
{
    return sy_region_file_read(&region->file, to, bytes);
}

int sy_infer_region_write(const struct sy_infer_region *region,
                          const struct sy_front_tensor *tensor)
{
    if (tensor->bytes > region->bytes)
        return sy_error_set(
            SY_EARG, "output \"%s\" has %llu bytes; its place in shared memory has %llu",
            tensor->name, (unsigned long long)tensor->bytes, (unsigned long long)region->bytes);
    return sy_region_file_write(&region->file, tensor->data, tensor->bytes);
}

void sy_infer_region_close(struct sy_infer_region *region)
{
    if (region->is_copied)
        sy_region_file_close(&region->file);
    region->is_copied = false;
}
