/* A job that another server sends (rpc_job.h): its life, from job_receive until it is kept, or dropped with its files. One thread, the event loop's. */
#ifndef SY_RUNTIME_RPC_RECEIVE_H
#define SY_RUNTIME_RPC_RECEIVE_H

#include <jansson.h>

#include "runtime/base/durable_file.h"
#include "runtime/front/rpc/rpc_internal.h"
#include "runtime/move/job_snapshot.h"
#include "runtime/move/job_state.h"

/* A job that comes. Its connection has it, and each piece of work on it. Works run one after the other (M1): what a work alone uses needs no lock. */
struct sy_rpc_receive {
    int refs;
    struct sy_rpc_server *server; /* held */
    struct sy_job_state state;
    char *text;            /* text of the job, as it is stored here */
    json_t *snapshot;      /* the job's snapshot, until its folder has a name */
    char *state_folder;    /* the server's */
    uint64_t got;          /* bytes that came */
    int n_working, status; /* status: of the first work that failed */
    sy_ns working_ns;      /* since when n_working is above 0 */
    struct sy_transfer_pace pace;
    bool taken; /* the core has it: its files stay */
    /* of works */
    char folder[SY_JOB_SNAPSHOT_PATH_BYTES], path[SY_JOB_SNAPSHOT_PATH_BYTES];
    struct sy_durable_file file; /* path NULL: no snapshot, or it has its name already */
    bool is_made;                /* its folder and file */
};

/* The caller's reference. ENOMEM_HOST. */
int sy_rpc_receive_create(struct sy_rpc_connection *connection, struct sy_rpc_receive **out);
/* With the last reference its files go, if the core does not have it, and then it. */
void sy_rpc_receive_release(struct sy_rpc_receive *r);
/* The connection is gone, or gives up. NULL is fine. */
void sy_rpc_receive_drop(struct sy_rpc_connection *connection);
/* M2: drops one that has stalled. */
void sy_rpc_receive_tick(struct sy_rpc_connection *connection, sy_ns now);
/* A work of it begins, and has ended with that status: the time between is none that the client stalled. */
void sy_rpc_receive_work_begins(struct sy_rpc_receive *r);
void sy_rpc_receive_work_ended(struct sy_rpc_receive *r, int status);

#endif
