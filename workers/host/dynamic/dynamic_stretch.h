/* Stretches: the nodes between two points where a size appears, as one program.
 *
 *   plan     a b c [NonZero] d e f g [NonMaxSuppression] h i
 *            `-stretch-'      `--stretch--'              `-stretch
 *
 * When the sizes at the stretch's beginning are known, its nodes become a graph of numbers, which is optimised, fused, laid out and packed as any other, and
 * stays, by those sizes, in a cache of the process. What belongs to a stretch is found out by inference: nodes whose sizes need elements that the
 * stretch itself computes wait for the next one.
 *
 * S1: which nodes a stretch has follows from the nodes done before it and the sizes it begins with: equal inputs run through equal programs (P9).
 * S2: weights are packed once and shared by the programs of all sizes; a block counts its users, the last one frees it.
 * S3: the cache is bounded in number and bytes, the least recently used goes; none goes while it runs.
 * S4: a stretch that cannot be made (an operator that a program refuses, a tensor without elements) is run node by node; the cache remembers so.
 * S5: the programs of one model for different sizes of requests share its stretches. The model is known by its layer table, which outlives them. */
#ifndef SY_WORKERS_HOST_DYNAMIC_DYNAMIC_STRETCH_H
#define SY_WORKERS_HOST_DYNAMIC_DYNAMIC_STRETCH_H

#include "workers/host/dynamic/dynamic_internal.h"

/* Kept in a process. A detector has some ten stretches, and the numbers of its boxes change with each image: room for the last 25 images or sizes. What
 * is run node by node is remembered among them. Some 0.2 MB each beside the weights, which SY_DYNAMIC_PACKED bounds. */
#define SY_STRETCHES_KEPT      256
#define SY_STRETCHES_MAX_BYTES (64ull << 20)

/* Progress of one run of a graph. */
struct sy_at_frame {
    struct sy_at_state *state;
    const struct sy_graph *graph;
    const bool *is_read; /* per node: a result is read; other nodes are never executed */
    const bool *alone;   /* per node: sy_at_find_alone */
    bool *done;          /* per node */
    int *uses;           /* per tensor: remaining readers, plus 1 for an output */
    struct sy_at_value **values;
};

/* alone[n]: node n is always run by itself: it has lists, results whose size is counted, or a body. An If is not, where nothing but sizes decides on the
 * branch: a stretch holds the nodes of that branch. */
int sy_at_find_alone(const struct sy_graph *graph, bool *alone);

struct sy_at_identity {
    const void *model; /* NULL: nothing is shared */
    int node;          /* the AtRun's */
    int graph;         /* among its bodies */
};

/* Stretches of one graph, perhaps shared. */
struct sy_at_stretches;
int sy_at_stretches_acquire(const struct sy_at_identity *who, struct sy_at_stretches **out);
void sy_at_stretches_release(struct sy_at_stretches *s); /* NULL is fine */

/* Runs the stretch that can be run now. *ran false: there is none, the next node is run by itself. EARG names the node. */
int sy_at_stretch_run(struct sy_at_stretches *s, struct sy_at_frame *frame, bool *ran);
/* The node has run: its inputs may be dropped. */
void sy_at_frame_done(struct sy_at_frame *frame, int node);

/* For tests: off executes all nodes one by one, for comparison with stretches. Initially on. */
void sy_at_stretches_use(bool on);
/* Replaces SY_STRETCHES_KEPT and SY_STRETCHES_MAX_BYTES, from the next stretch on. A running stretch is never evicted. */
void sy_at_stretches_limit(int n, uint64_t bytes);
/* Counts kept stretches of the process, and their bytes without packed weights. */
int sy_at_stretches_n(void);
uint64_t sy_at_stretches_bytes(void);

#endif
