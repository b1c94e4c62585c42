#include "runtime/front/rpc/rpc_receive.h"

#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/request/offload.h"

/* A work; done once. */
static void remove_files(void *ctx)
{
    struct sy_rpc_receive *r = ctx;

    sy_durable_file_discard(&r->file);
    if (!r->taken && *r->path)
        unlink(r->path);
    if (!r->taken && *r->folder)
        rmdir(r->folder);
    *r->path = *r->folder = '\0';
}

static void receive_free(void *ctx)
{
    struct sy_rpc_receive *r = ctx;

    remove_files(r); /* where the end of the server kept the work from running */
    r->server->n_received--;
    sy_front_server_release(&r->server->base);
    sy_job_state_finish(&r->state);
    json_decref(r->snapshot);
    free(r->state_folder);
    free(r->text);
    free(r);
}

void sy_rpc_receive_release(struct sy_rpc_receive *r)
{
    struct sy_offload *moves = r->server->front->moves;

    if (--r->refs > 0 || (moves && sy_offload_run(moves, remove_files, receive_free, r) == SY_OK))
        return;
    receive_free(r);
}

void sy_rpc_receive_drop(struct sy_rpc_connection *connection)
{
    struct sy_rpc_receive *r = connection->receive;

    connection->receive = NULL;
    if (r)
        sy_rpc_receive_release(r);
}

void sy_rpc_receive_tick(struct sy_rpc_connection *connection, sy_ns now)
{
    const struct sy_rpc_receive *r = connection->receive;

    if (!r || r->n_working > 0 || now <= r->pace.at_ns + connection->server->limits.receive_ns)
        return;
    sy_log_info("rpc", "event=receive_stalled name=%s got_bytes=%llu of_bytes=%llu", r->state.name,
                (unsigned long long)r->got, (unsigned long long)r->state.bytes);
    sy_rpc_receive_drop(connection);
}

void sy_rpc_receive_work_begins(struct sy_rpc_receive *r)
{
    r->refs++;
    if (r->n_working++ == 0)
        r->working_ns = sy_clock_now();
}

void sy_rpc_receive_work_ended(struct sy_rpc_receive *r, int status)
{
    if (status < 0)
        r->status = status;
    if (--r->n_working == 0)
        r->pace.at_ns += sy_clock_now() - r->working_ns;
    sy_rpc_receive_release(r);
}

int sy_rpc_receive_create(struct sy_rpc_connection *connection, struct sy_rpc_receive **out)
{
    struct sy_rpc_receive *r = calloc(1, sizeof *r);

    SY_TRY_ALLOC(r, "no memory for a job");
    r->refs = 1;
    r->server = connection->server;
    r->server->base.refs++;
    r->server->n_received++;
    r->file.fd = -1;
    sy_pace_restart(&r->pace);
    *out = r;
    return SY_OK;
}
