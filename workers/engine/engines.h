/* Which engine computes on which kind of device. */
#ifndef SY_WORKERS_ENGINE_ENGINES_H
#define SY_WORKERS_ENGINE_ENGINES_H

#include "loader/graph/engine.h"
#include "workers/engine/trainer.h"

#define SY_CUDA_ENGINE_ENTRY  "sy_cuda_engine_v1"
#define SY_CUDA_TRAINER_ENTRY "sy_cuda_trainer_v1"

/* Sum over the structures that both sides of the plugin see: an engine of another build is refused, not called. */
#define SY_ENGINE_LAYOUT_BYTES                                                                \
    ((uint32_t)(sizeof(struct sy_engine_ops) + sizeof(struct sy_binding) +                    \
                sizeof(struct sy_layer) + sizeof(struct sy_param) + sizeof(struct sy_graph) + \
                sizeof(struct sy_node) + sizeof(struct sy_tensor) + sizeof(struct sy_attr)) + \
     ((uint32_t)SY_OP_COUNT << 16))

/* The plugin's symbol SY_CUDA_ENGINE_ENTRY: its engine; NULL when the sum is another. Again: the same. `host`, static: for operators that
 * it lacks. */
typedef const struct sy_engine_ops *(*sy_engine_entry)(uint32_t layout_bytes,
                                                       const struct sy_engine_ops *host);

#define SY_TRAINER_LAYOUT_BYTES                                                   \
    (SY_ENGINE_LAYOUT_BYTES +                                                     \
     (uint32_t)(sizeof(struct sy_trainer_ops) + sizeof(struct sy_train_options) + \
                sizeof(struct sy_state_tensor) + sizeof(struct sy_shared_part) +  \
                sizeof(struct sy_device_exchange_ops) + sizeof(struct sy_device_exchange_want)))

/* The plugin's symbol SY_CUDA_TRAINER_ENTRY, likewise. */
typedef const struct sy_trainer_ops *(*sy_trainer_entry)(uint32_t layout_bytes);

/* The plugin's symbol SY_CUDA_MANAGED_ENTRY: CUDA's unified memory, for comparison in benches. to_host: all of it lies on the host, whose
 * pages the device then fetches as it touches them. */
#define SY_CUDA_MANAGED_ENTRY "sy_cuda_managed_v1"
struct sy_device;
struct sy_cuda_managed {
    int (*take)(struct sy_device *device, uint64_t bytes, void **out);
    int (*to_host)(struct sy_device *device, void *memory, uint64_t bytes);
    void (*drop)(struct sy_device *device, void *memory);
};

/* The engine for a device kind as sy_device_spec_parse gives it ("host", "emulated", "cuda"); static. No device is opened: layouts and
 * packing need none, programs of an engine with attach do. ENODEVICE says why there is none (no plugin, one without the engine,
 * another build). */
int sy_engine_for_device(const char *kind, const struct sy_engine_ops **out);
/* Likewise the trainer; it works while the device's engine is attached. */
int sy_trainer_for_device(const char *kind, const struct sy_trainer_ops **out);

#endif
