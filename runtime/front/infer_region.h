/* A tensor of an inference request in shared memory that its client registered (shared_regions.h).
 *
 * At a multiple of 64 the worker reads or writes it there ("placed"). Elsewhere, and where only the run knows its size, it is copied from or to the object
 * ("copied"), by sy_infer_region_read and sy_infer_region_write, which any thread may call. */
#ifndef SY_RUNTIME_FRONT_INFER_REGION_H
#define SY_RUNTIME_FRONT_INFER_REGION_H

#include "runtime/front/request/front_infer.h"
#include "runtime/front/shared_regions.h"

/* Zeroed before use. */
struct sy_infer_region {
    uint64_t offset, bytes; /* in the region, as the client says */
    bool is_copied;         /* has `file`, which close gives back */
    struct sy_region_file file;
};

/* Places the tensor, or opens the object to copy. region->offset and bytes are set. EARG: no such region, or outside of it; EUNSUPPORTED: the server shares no memory; EBUSY: no file descriptors. */
int sy_infer_region_input(struct sy_front *front, struct sy_front_infer *infer, int input,
                          const char *name, struct sy_infer_region *region);
int sy_infer_region_output(struct sy_front *front, struct sy_front_infer *infer, int output,
                           const char *name, struct sy_infer_region *region);
/* A copied input. EIO: the object is shorter than it was registered. */
int sy_infer_region_read(const struct sy_infer_region *region, void *to, uint64_t bytes);
/* A copied output. EARG: the region has fewer bytes; EIO. */
int sy_infer_region_write(const struct sy_infer_region *region,
                          const struct sy_front_tensor *tensor);
void sy_infer_region_close(struct sy_infer_region *region);

#endif
