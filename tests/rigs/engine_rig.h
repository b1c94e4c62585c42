/* A graph through an engine as the worker does it: laid out, packed, a program per batch size, run; and everything that
 * must hold of every graph checked on the way. */
#ifndef SY_TESTS_RIGS_ENGINE_RIG_H
#define SY_TESTS_RIGS_ENGINE_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/engine.h"
#include "tests/nets/graph_builder.h"
#include "tests/rigs/lists.h"

struct engine_case {
    struct sy_graph *graph;    /* taken over; the yardstick computes it as it is */
    bool optimize;             /* the engine runs what sy_graph_optimize makes of it */
    double low, high;          /* of float inputs; both 0: -1 to 1 */
    int64_t int_low, int_high; /* of integer inputs, both included */
    double tolerance;          /* |x - ref| <= tolerance * (1 + |ref|); 0: 2e-5 */
};

/* What is tested: the host engine, unless the binary is linked with a rig_choose_engine (tests/on_cpu/) that puts another here. */
struct rig_engine {
    const struct sy_engine_ops *ops;
    bool lacks_operators; /* what it refuses as unsupported by name is passed over, and counted */
    void *(*device_view)(void *memory); /* of parameters and workspace; NULL: the pointer itself */
    void *(*take)(uint64_t bytes);      /* memory for all of it, 4096-aligned; NULL: malloc's */
    void (*drop)(void *memory);         /* with take; NULL is fine */
    int (*synchronize)(void);           /* after a run; NULL: it is done when program_run returns */
};
extern struct rig_engine rig_engine;
void rig_choose_engine(struct rig_engine *out) __attribute__((weak));

/* First of all in main: the engine's threads (one under the thread sanitizer, which cannot see into OpenMP), the seed: SY_SEED or 1, printed. */
uint64_t rig_start(void);
/* The host engine, on a CPU without instructions for bf16: it computes in float32 with weights that are stored as bf16. */
bool rig_only_stores_bf16(void);
/* Batch sizes 1, 2, 3, 5. Right results; the same bits whatever the memory held before, however the layers are split into
 * calls, and in a second run of the program; nothing written outside; inputs and parameters untouched. */
void rig_check(const struct engine_case *c, uint64_t *seed);
/* Import refuses the graph (taken over): EUNSUPPORTED naming node `node`, its operator and `word`. */
void rig_refused(struct sy_graph *graph, bool optimize, int node, const char *word);

/* The graph (taken over) without symbols, as engines see it: with its usual sizes. */
struct sy_graph *rig_sized(struct sy_graph *graph);
/* Nodes of `op` in what the engine runs of the graph, optimised. */
int rig_count(const struct sy_graph *graph, enum sy_op op);
/* What the parameters of the graph (taken over), optimised, take when they are packed. */
uint64_t rig_packed_bytes(struct sy_graph *graph);

/* ---- in steps ---- */
struct engine_rig {
    struct sy_graph *graph; /* what runs, a copy */
    struct sy_layer *layers;
    int n_layers;
    unsigned char **params; /* per layer */
    unsigned char **packed; /* a second copy, to compare with */
    unsigned char **absent; /* as large, full of NaN: the layer's group is not there (any more) */
};

struct rig_tensors {
    int n;
    void **data;
    uint64_t *bytes;
};

int rig_open(struct engine_rig *rig, const struct sy_graph *graph,
             bool optimize); /* the engine's status; rig_close in any case */
void rig_close(struct engine_rig *rig);
struct sy_program *rig_program(const struct engine_rig *rig, int64_t batch); /* fails the test */
/* Memory for these tensors of the graph at this batch size, filled with `byte`. */
void rig_take(const struct engine_rig *rig, const int *tensors, int n, int64_t batch, int byte,
              struct rig_tensors *out);
void rig_drop(struct rig_tensors *t);
void rig_fill(const struct engine_rig *rig, const struct engine_case *c, struct rig_tensors *inputs,
              uint64_t *seed);
/* The workspace holds `byte` everywhere before. split: NULL for one call, else layers are split at random, and in each call only
 * the parameters of its own layers are there. The engine's status. */
int rig_run(const struct engine_rig *rig, struct sy_program *program,
            const struct rig_tensors *inputs, const struct rig_tensors *outputs, int byte,
            uint64_t *split);

/* ---- what graph_builder.h has not ---- */
int gb_input_of(struct sy_graph *g, enum sy_dtype dtype, int n, const int64_t *dims);
int gb_constant_of(struct sy_graph *g, enum sy_dtype dtype, int n, const int64_t *dims,
                   const int64_t *values);
void gb_string(struct sy_graph *g, const char *name, const char *value);
void gb_type(struct sy_graph *g, int tensor, enum sy_dtype dtype);
/* What is stored as bf16 (constants of two dimensions and more) gets numbers that bf16 holds. */
void gb_round_weights(struct sy_graph *g);
/* The tensor's first dimension does not depend on the batch size. */
void gb_fixed(struct sy_graph *g, int tensor);
int64_t rig_int(uint64_t *seed, int64_t low, int64_t high); /* both included */
/* A rank, returned, and as many dimensions: the first is 1, the others at most 9, or 4 of many. */
int rig_dims(uint64_t *seed, int low_rank, int high_rank, int64_t *dims);

#endif
