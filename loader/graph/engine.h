/* The interface of an engine to the loader and the worker: a table that workers/host and workers/cuda
 * fill in. At import: layouts and packing of parameters. At run: a program per (model, batch). */
#ifndef SY_LOADER_GRAPH_ENGINE_H
#define SY_LOADER_GRAPH_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/graph/graph.h"

#define SY_PARAM_ALIGN 64u
#define SY_LAYER_ALIGN 4096u /* so that any division into groups can be read with O_DIRECT */

/* One packed parameter: the constant input `input` of the layer's node, in the engine's layout. */
struct sy_param {
    int input;             /* index into the node's inputs */
    uint64_t offset_bytes; /* from the layer's start, multiple of SY_PARAM_ALIGN */
    uint64_t bytes;
    size_t layout_bytes; /* the engine's own description of the layout, opaque to the loader */
    void *layout;        /* owned by the sy_layer */
};

/* A layer is one node of the optimized graph. Many have no parameters. */
struct sy_layer {
    int node;
    int n_params;
    struct sy_param *params;
    /* of its parameters in the package's weights; multiple of SY_LAYER_ALIGN */
    uint64_t offset_bytes;
    uint64_t bytes; /* rounded up to SY_LAYER_ALIGN; 0 when there are none */
    /* Bit k: for batches of 2^k to 2^(k+1) - 1 a single thread computes this layer. Measured at import and stored in the package, since it decides how sums
     * are split; 0: not measured, all threads. */
    uint32_t solo_batches;
};

/* Whether a single thread computes the layer at this batch size (at least 1). */
static inline bool sy_layer_is_solo(const struct sy_layer *layer, int64_t batch)
{
    int k = 63 - __builtin_clzll((unsigned long long)batch);
    return k < 32 && (layer->solo_batches >> k & 1) != 0;
}

struct sy_program;
struct sy_device; /* runtime/device/device.h */
struct sy_stream;

/* Data of one run. All pointers are the device's view. */
struct sy_binding {
    unsigned char *const
        *layer_params; /* per layer: start of its parameters; may be NULL if bytes == 0 */
    /* program workspace_bytes, SY_PARAM_ALIGN aligned; nothing in it survives a run. Without attach a run keeps nothing anywhere else, but in outputs: another
     * process with the same program can go on with the next layer */
    void *workspace;
    const void *const *inputs; /* per graph input, plain row-major */
    void *const *outputs;      /* per graph output */
};

/* Computes single nodes in host memory, for an engine that executes nodes with data-dependent shapes one by one. */
struct sy_node_helper {
    /* All shapes of the graph, of one node, are known; constants are read during the call only. like: a program of a graph with the same
     * constants, which may be robbed of what it has packed; NULL: none. EUNSUPPORTED: this one not. */
    int (*create)(const struct sy_graph *graph, void *like, void **out);
    int (*run)(void *program, const void *const *inputs, void *const *outputs);
    void (*destroy)(void *program); /* NULL is fine */
};

struct sy_engine_ops {
    const char *name; /* "host" */

    /* Everything that packed layouts depend on: library version, CPU class, order of our own, e.g. "onednn-2.6.3 avx512_core_bf16 packing-2". */
    int (*describe)(char *buffer, size_t bytes);

    /* (optional: float32 only) Whether this engine on this machine can compute a graph of that precision; EUNSUPPORTED says what it lacks. */
    int (*check_precision)(enum sy_precision precision);

    /* Compute threads of this process, pinned to `cores` (n of them). Before anything else. */
    int (*set_threads)(const int *cores, int n);

    /* (optional: NULL, the engine computes in the calling thread, and program_run returns when it is done) For a device that
     * computes by itself: from now on programs are made and run on `device`, by enqueuing on its stream `compute`; both are borrowed until
     * detach. Before program_create; describe, layout_layer and pack_layer do without. ENODEVICE says what is missing. */
    int (*attach)(struct sy_device *device, struct sy_stream *compute);
    /* (optional: its compute has no parts) With attach: what is run from now on is computed on these parts of the device (struct
     * sy_compute_parts) alone; n 0: on all of it. Waits for what is queued. Same bits on any parts. As sy_stream_confine. */
    int (*confine)(const int *parts, int n);
    /* (optional, as attach) All programs are destroyed and the stream is idle. */
    void (*detach)(void);

    /* (optional: none) Import: whether it has nodes of an operator that only sy_graph_fuse makes, and of this size (loader/graph/graph.h); whether it has
     * If and Loop, which sy_graph_fuse writes out otherwise. */
    bool (*fuses)(enum sy_op op, int64_t size);

    /* Import: fills layer->params (inputs, bytes, layouts, offsets within the layer) and the layer's bytes; EUNSUPPORTED
     * with node, operator, opset, what is missing. */
    int (*layout_layer)(const struct sy_graph *graph, struct sy_layer *layer);
    /* Import: writes the packed parameters (from the graph's constant data) to `to` (layer->bytes). */
    int (*pack_layer)(const struct sy_graph *graph, const struct sy_layer *layer, void *to);

    /* Prepares all layers for one batch size: primitives, memory plan. The graph and layers are borrowed and must outlive the
     * program. Constant data of parameters is not needed (it is in the package). */
    int (*program_create)(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                          int64_t batch, struct sy_program **out);
    void (*program_destroy)(struct sy_program *program);
    uint64_t (*program_workspace_bytes)(const struct sy_program *program);
    /* Runs layers [first, first + n) in order, in the calling thread and the engine's threads;
     * deterministic: same inputs and weights, same bits. Any split of 0..n_layers-1 into calls in order is the same run.
     * With attach: enqueues only. What binding.inputs holds is read, and outputs are written, up to when the stream has been
     * synchronised after the last layer; binding itself only during the call. */
    int (*program_run)(struct sy_program *program, const struct sy_binding *binding, int first,
                       int n);
    /* (optional: SY_OK) After the stream was synchronised at a run's end: what only the device could see. EARG names the node and
     * the index that was outside its tensor. */
    int (*program_finish)(struct sy_program *program);

    /* Which algorithms are the fastest on a device depends on the device; measured where a package is profiled, and kept in it, so that
     * all workers compute with the same ones and give the same bits. All three: (optional), or none of them.
     * tune: from now on, programs that are made measure (on) or take what was measured (off, as at first). */
    void (*tune)(bool on);
    /* The choices measured since attach, as printable text with the device's name; malloc'd, the caller's. */
    int (*choices)(char **out);
    /* Choices that another process measured. Those of another device or version, or damaged, are ignored, and logged. After attach. */
    int (*use_choices)(const char *text);
    /* (optional: it lacks none) Import: whether what the engine lacks is packed for the host engine, which computes it within the
     * program; else, as at first, it is refused by name. */
    void (*allow_host_ops)(bool allowed);

    /* (optional: it has none) From now on called between the turns of every Loop that runs, and the nodes that are sized one by one: they may
     * take long together. A status below 0 ends the run with it. Before the first run; NULL: nothing is called. */
    void (*on_turn)(int (*turn)(void *ctx), void *ctx);

    /* (optional: it sizes none) From now on large products and convolutions among the nodes that it sizes one by one are the helper's, borrowed.
     * NULL: none, as at first. No program is there that was run. */
    void (*use_helper)(const struct sy_node_helper *helper);
};

extern const struct sy_engine_ops sy_host_engine;

#endif
