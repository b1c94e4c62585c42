/* Where the tensors of a run lie: in the slab, or in memory that clients share.
 *
 * E4: an index is checked when it is used, and a client may write its memory at any time. So what a node reads of 32 and 64 bit integers in a
 *     region (indices, lengths, sizes: ONNX has them in these types alone) is computed on in a copy that no client sees. Other types hold values only: who changes
 *     them in a run gets another result. */
#ifndef SY_WORKERS_PROCESS_WORKER_TENSORS_H
#define SY_WORKERS_PROCESS_WORKER_TENSORS_H

#include "loader/graph/graph.h"
#include "runtime/wire/messages.h"

struct sy_worker;

struct sy_worker_tensor_copy {
    void **place; /* among inputs or outputs: points to the copy */
    void *shared;
    uint64_t bytes;
    bool is_output;
};

struct sy_worker_tensors {
    void *inputs[SY_MAX_ENDS], *outputs[SY_MAX_ENDS];
    struct sy_worker_tensor_copy copies[2 * SY_MAX_ENDS];
    int n_copies;
    void *memory; /* of the copies */
};

/* Pointers to all tensors of a run, with copies as E4 has them. EPROTO: outside of the slab, no such region, or another number of tensors; EARG, ENOMEM_HOST, EIO: as
 * sy_worker_region_locate; ENOMEM_HOST: no memory for the copies. finish also after a failure. */
int sy_worker_tensors_locate(struct sy_worker *worker, const struct sy_graph *graph, int64_t batch,
                             const struct sy_u64s *inputs, const struct sy_u64s *outputs,
                             struct sy_worker_tensors *out);
/* Gives copied outputs to their client, also those of a run that stopped in between: it goes on with them. */
void sy_worker_tensors_finish(struct sy_worker *worker, struct sy_worker_tensors *tensors);

#endif
