/* Runs a graph whose sizes only the run knows: nodes whose sizes follow from what has come so far are inferred together, made into one program and run
 * (dynamic_stretch.h); the others one by one.
 *
 *   value    a tensor or a list of values; counted references; dropped after its last reader
 *   stretch  many nodes as one program, kept by their sizes
 *   node     If, Loop, lists and counting operators (dynamic.c, dynamic_list.c) or a graph of one node (dynamic_node.c)
 *
 * Slower than a program by what inference and making programs cost (some 50 us a node whose shapes are new), so only what must be is run so. One
 * thread; loops within nodes use the engine's. Memory is the process's, at most SY_DYNAMIC_BYTES in all. */
#ifndef SY_WORKERS_HOST_DYNAMIC_DYNAMIC_H
#define SY_WORKERS_HOST_DYNAMIC_DYNAMIC_H

#include "runtime/base/clock.h"
#include "workers/host/reference/kernel.h"

#define SY_DYNAMIC_BYTES   (2ull << 30)
#define SY_DYNAMIC_TURNS   (1 << 20) /* limit of all loops of a run together */
#define SY_DYNAMIC_COUNTED (1 << 12) /* a counted loop up to this many iterations is not timed */
/* Limit of a run's time in loops that only their condition ends: longer is considered endless. */
#define SY_DYNAMIC_NS (60 * SY_NS_PER_S)

/* Limit of packed weights that nodes keep in a process: others are packed in each run. */
#define SY_DYNAMIC_PACKED (1ull << 30)

/* Unused value memory that is kept until the last run is destroyed. */
#define SY_DYNAMIC_KEPT (256ull << 20)

struct sy_dynamic;

/* As on_turn of struct sy_engine_ops: called between the nodes of every run of this process. */
void sy_dynamic_on_turn(int (*turn)(void *ctx), void *ctx);
/* Called between two iterations of any Loop of this engine: a negative status ends the run. */
int sy_dynamic_between_turns(void);

/* model, node: runs of the same AtRun node of a model, with other sizes of requests, share what is made for them, see dynamic_stretch.h; model NULL:
 * nothing is shared.
 * `body`: of an AtRun node (loader/infer/deferred.h); borrowed. is_param[i]: its input i has the same elements in all runs, so that nodes may keep what they
 * pack of it; NULL: none has. EUNSUPPORTED: an operator that the engine does not have. */
int sy_dynamic_create(const struct sy_graph *body, const bool *is_param, const void *model,
                      int node, struct sy_dynamic **out);
void sy_dynamic_destroy(struct sy_dynamic *run); /* NULL is fine */
/* inputs: one a body's input, read until the call ends. outputs[i]: filled in; valid until the next run, or destroy. EARG, EUNSUPPORTED name the node. */
int sy_dynamic_run(struct sy_dynamic *run, const struct sy_array *inputs, struct sy_array *outputs);

#endif
