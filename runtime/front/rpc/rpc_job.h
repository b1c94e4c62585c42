/* Suspended jobs on their way to another server: their state is read in pieces here, or comes in pieces.
 *
 *   source        job_state ─> job_state_read, piece by piece          only of a job that is parked: it cannot change meanwhile
 *   destination   job_receive ─> job_receive_piece ... ─> job_receive_end ─> the job is there, parked
 *
 *   job_receive        STATE/moved/NAME-XXXXXX/ is made, NAME-STEP.safetensors.tmp-PID gets its whole size (a full disk is said before anything was sent)
 *   job_receive_end    hash compared, the snapshot checked; fsync, rename, fsync of the folders; then the job is kept and listed
 *
 * M1: files are made, read, written and removed on a thread of their own (front.h, moves), one piece of work after the other, in pieces of at most
 *     SY_JOB_STATE_PIECE_BYTES. Hashing one ends when the server does.
 * M2: a connection receives one job at a time, a server SY_RPC_RECEIVED; what is not whole goes with its connection, or when fewer bytes
 *     come than a stalled body's (least_rate.h) over receive_ns.
 * M3: what a killed server left of them goes when the next job comes.
 * M4: paths in a job that comes are what its client may name (rpc_access.c); only its snapshot folder is this server's choice.
 * M5: a job that came stays in its folder when it has ended, as its result; where its mover took it back (it was refused here, and goes on where it was) the
 *     mover asks for job_receive_undo once it is over here, and the folder goes. No other folder is removed so.
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_RPC_JOB_H
#define SY_RUNTIME_RPC_JOB_H

#include <jansson.h>

#include "runtime/front/rpc/rpc_internal.h"

#define SY_RPC_RECEIVED 8 /* jobs that come at once */

struct sy_rpc_work;
/* A call whose work takes long: the first member of what it works on. */
struct sy_rpc_work {
    struct sy_rpc_connection *connection; /* held until it is answered */
    bool answers;
    uint64_t id;
    int (*run)(struct sy_rpc_work *work);      /* beside the loop */
    int (*then)(struct sy_rpc_work *work);     /* on the loop, if run succeeded; NULL: nothing */
    void (*release)(struct sy_rpc_work *work); /* frees the whole */
    const _Atomic bool *stop; /* becomes true: the server ends, and run should; NULL: never */
    json_t *answer;           /* NULL: {} */
    int status;               /* ECANCELED: it did not run */
    char error[512];
};

/* Fills in connection, answers, id and stop; run, release and then are the caller's. On failure `work` is the caller's still. EBUSY. */
int sy_rpc_work_start(const struct sy_rpc_request *request, struct sy_rpc_work *work);

/* ---- rpc_job_state.c: a parked job's state ---- */
int sy_rpc_job_state(const struct sy_rpc_request *request, json_t *params);
int sy_rpc_job_state_read(const struct sy_rpc_request *request, json_t *params);

/* ---- rpc_job_receive.c ---- */
int sy_rpc_job_receive(const struct sy_rpc_request *request, json_t *params);
int sy_rpc_job_receive_piece(const struct sy_rpc_request *request, json_t *params);
int sy_rpc_job_receive_end(const struct sy_rpc_request *request, json_t *params);

/* ---- rpc_job_undo.c ---- */
int sy_rpc_job_receive_undo(const struct sy_rpc_request *request, json_t *params);

#endif
