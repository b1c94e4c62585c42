/* Messages between the runtime and its workers, declared once.
 *
 * A control socket is SOCK_SEQPACKET: one message a packet, at most SY_MESSAGE_MAX_BYTES, encoded as the msgpack array
 * [id, field, field, ...]. This table gives the enum, the structs, the codec, the log dump and the fuzz target. Ids are
 * never reused. HELLO is frozen; it carries the version.
 *
 * Field kinds: U64 uint64_t, I64 int64_t, F64 double, STR char * (never NULL, UTF-8), U64S struct sy_u64s, STATUS int64_t, of which only codes of status.h are
 * decoded. */
#ifndef SY_WIRE_MESSAGES_H
#define SY_WIRE_MESSAGES_H

#include <stddef.h>
#include <stdint.h>

#define SY_WIRE_VERSION      10
#define SY_MESSAGE_MAX_BYTES (64u * 1024u)
#define SY_MESSAGE_MAX_FDS   8

struct sy_u64s {
    size_t n;
    uint64_t *v;
};

#define SY_FIELDS_HELLO(F) F(U64, version) F(U64, pid) F(STR, engine)
/* With 4 or 5 fds in this order: control page, arrivals, slab, pool, image (only if image_bytes > 0). */
#define SY_FIELDS_WELCOME(F) \
    F(U64, worker)           \
    F(STR, device)           \
    F(U64, pool_bytes) F(U64, image_bytes) F(U64, slab_bytes) F(U64S, cores) F(I64, link_core)
#define SY_FIELDS_READY(F) F(U64, worker)
/* The worker opens the package (checks it), prepares a program per warm batch (a PREPARED for each is sent first), then
 * answers MODEL_ADDED. group_layers: first layer of each group. */
#define SY_FIELDS_MODEL_ADD(F) \
    F(U64, model) F(STR, path) F(U64S, group_layers) F(U64S, warm_batches)
#define SY_FIELDS_MODEL_ADDED(F) F(U64, model) F(STATUS, status) F(STR, error)
/* New cuts for a model that has no run on this worker. */
#define SY_FIELDS_MODEL_REGROUP(F) F(U64, model) F(U64S, group_layers)
#define SY_FIELDS_MODEL_DROP(F)    F(U64, model)
/* Builds the program for one batch size and these sizes of the graph's symbols, in their order, if it is not there (bounded: the least
 * recently used is dropped). No sizes: the usual ones, here and in all that follow. took_ns: to make it; 0 where it was there. team, here and in all that
 * follow: computed by so many threads (0: one for each core of WELCOME), on `cores` (none: those of WELCOME), which may be fewer. */
#define SY_FIELDS_PREPARE(F) F(U64, model) F(U64, batch) F(U64, team) F(U64S, sizes) F(U64S, cores)
#define SY_FIELDS_PREPARED(F) \
    F(U64, model)             \
    F(U64, batch)             \
    F(U64, team)              \
    F(U64S, sizes) F(STATUS, status) F(STR, error) F(U64, workspace_bytes) F(U64, took_ns)
/* Groups first_group .. first_group + n - 1 of the run's model: where each lies in the pool, whether it is there already (1), stays in the image where
 * computing reads it (2) or comes (0), after which group's computation it may be written (0: at once, else that group + 1), where it lies in the image
 * (discrete device), and its arrival word's index. On a discrete device the worker queues the copies at once. link_class (link_turn.h): as what the copies
 * go; RUN makes them urgent. May come in several parts, in order, all of them in front of RUN; a worker has one run at a time, from its first LOAD to its
 * RUN_DONE. */
/* clang-format off */
#define SY_FIELDS_LOAD(F) \
    F(U64, run) \
    F(U64, model) \
    F(U64, first_group) \
    F(U64, link_class) \
    F(U64S, pool_offsets) \
    F(U64S, resident) \
    F(U64S, after_group) \
    F(U64S, image_offsets) \
    F(U64S, arrivals)
/* clang-format on */
enum sy_load_resident { SY_LOAD_COMES = 0, SY_LOAD_RESIDENT = 1, SY_LOAD_DIRECT = 2 };
/* Compute: layer after layer, each group behind its arrival (on a unified device the arrival word of the group's place in the pool; on a discrete one the
 * copy, which waits for the arrival word of the image). Tensors are places (tensor_at.h) in the graph's order; workspace is a pool offset. parts: as many
 * runs one after the other, each with its own tensors (inputs and outputs list them part by part); 1 where groups cycle, or first_layer is not 0.
 * workspace_bytes: room for the workspace; a program that needs more does not run. first_layer: what the layers in front of it computed is in the workspace
 * and the outputs (a run that was interrupted; its groups do not cycle). */
/* clang-format off */
#define SY_FIELDS_RUN(F) \
    F(U64, run) F(U64, model) F(U64, batch) F(U64, workspace_offset) F(U64, workspace_bytes) \
    F(U64, first_layer) F(U64, parts) F(U64, team) F(U64S, sizes) F(U64S, inputs) F(U64S, outputs) F(U64S, cores)
/* clang-format on */
/* A run that was LOADed and will not RUN: RUN_DONE as soon as its groups are there. */
#define SY_FIELDS_FETCH(F) F(U64, run)
/* Forget a run that was LOADed but will not RUN; answered by RUN_DONE with ECANCELED when its copies have ended. */
#define SY_FIELDS_CANCEL(F) F(U64, run)
/* lost_ns: of first_layer to end, that the computing thread stood without a core; 0 where that is not measured (no slice of one core, or a device that
 * computes elsewhere). n_arrived: leading groups that are in the pool. read_bytes: of groups that stay in the image, what this run read of them. spans: per
 * group copy start, copy end, compute start, compute end (ns; 0 where there was none). wait_ns: compute stood waiting for groups. next_layer: of an
 * interrupted run, where it can go on; 0: from its beginning only. */
#define SY_FIELDS_RUN_DONE(F) \
    F(U64, run)               \
    F(STATUS, status)         \
    F(STR, error)             \
    F(U64, received_ns)       \
    F(U64, first_layer_ns)    \
    F(U64, end_ns)            \
    F(U64, wait_ns)           \
    F(U64, lost_ns) F(U64, read_bytes) F(U64, n_arrived) F(U64, next_layer) F(U64S, spans)
/* Reads the job (JSON text) and its model and says what it needs; keeps it ready. The job keeps its team until it ends or leaves. Of a script, with the
 * connection to its `switchyard run` (workers/torch/script_link.h) if that is there: a confined worker makes none. */
#define SY_FIELDS_JOB_PREPARE(F) F(U64, job) F(STR, text) F(U64, team) F(U64S, cores)
#define SY_FIELDS_JOB_PREPARED(F) \
    F(U64, job)                   \
    F(STATUS, status)             \
    F(STR, error) F(U64, persistent_bytes) F(U64, ephemeral_bytes) F(U64, total_steps)
/* in_memory 1: the persistent part at this offset is intact (the last worker died in the gradient phase, or the job left it): go on from it. 0: from the last
 * snapshot, or from the beginning when there is none. It then waits for its turn. With a file of shared memory, if it may be spilled: that is
 * where to. spilled 1: its persistent state is in that file, and goes to this offset first; then as in_memory 1. */
#define SY_FIELDS_JOB_START(F) \
    F(U64, job)                \
    F(U64, persistent_offset) F(U64, ephemeral_offset) F(U64, in_memory) F(U64, spilled)
#define SY_FIELDS_JOB_STARTED(F) F(U64, job) F(U64, step)
/* The job may compute, with an iteration's memory at this offset, until it is between two iterations and the control page's turn_keeps is
 * 0; it then answers. busy_ns: what it computed in this turn. cores: where its team computes from now on. */
#define SY_FIELDS_JOB_TURN(F)      F(U64, job) F(U64, ephemeral_offset) F(U64S, cores)
#define SY_FIELDS_JOB_TURN_OVER(F) F(U64, job) F(U64, step) F(U64, busy_ns)
/* The job's persistent state goes from the pool to the file that came with JOB_START; the worker answers. status < 0: it could not, and all is as it was. And
 * back, to this offset. */
#define SY_FIELDS_JOB_SPILL(F)    F(U64, job)
#define SY_FIELDS_JOB_SPILLED(F)  F(U64, job) F(STATUS, status) F(STR, error) F(U64, bytes)
#define SY_FIELDS_JOB_RETURN(F)   F(U64, job) F(U64, persistent_offset)
#define SY_FIELDS_JOB_RETURNED(F) F(U64, job) F(U64, bytes)
#define SY_FIELDS_JOB_PAUSED(F)   F(U64, job) F(U64, epoch) F(U64, paused_ns)
/* The job, which has no turn, releases its worker: snapshot, if it has a folder; its persistent state stays where it is, in the pool or in its file.
 * JOB_LEFT when the worker has forgotten it (status < 0: its snapshot failed); another may be told to PREPARE it then, and to START it with in_memory 1, or
 * spilled 1. */
#define SY_FIELDS_JOB_LEAVE(F) F(U64, job)
#define SY_FIELDS_JOB_LEFT(F)  F(U64, job) F(U64, step) F(STATUS, status)
/* Stop at the end of the iteration: snapshot; evaluate on the test set if `evaluate`; then JOB_ENDED. */
#define SY_FIELDS_JOB_STOP(F)     F(U64, job) F(U64, evaluate)
#define SY_FIELDS_JOB_SNAPSHOT(F) F(U64, job) F(U64, step) F(STR, path)
#define SY_FIELDS_JOB_ENDED(F) \
    F(U64, job) F(STATUS, status) F(STR, error) F(U64, step) F(F64, loss) F(F64, accuracy)
#define SY_FIELDS_SHUTDOWN(F) F(U64, grace_ns)
/* Client memory that tensors may lie in (tensor_at.h): `bytes` of the one fd that comes with it, from offset_bytes on. sealed 0: the file may
 * shrink at any time. It is not answered: a run that names a region which could not be mapped fails with the reason. */
#define SY_FIELDS_REGION_ADD(F) F(U64, region) F(U64, offset_bytes) F(U64, bytes) F(U64, sealed)
/* No run names them any more. */
#define SY_FIELDS_REGION_DROP(F) F(U64S, regions)

/* M(NAME, struct and function suffix, id, direction) */
/* clang-format off */
#define SY_MESSAGE_TABLE(M) \
    M(HELLO, hello, 1, TO_RUNTIME) \
    M(WELCOME, welcome, 2, TO_WORKER) \
    M(READY, ready, 3, TO_RUNTIME) \
    M(MODEL_ADD, model_add, 4, TO_WORKER) \
    M(MODEL_ADDED, model_added, 5, TO_RUNTIME) \
    M(MODEL_DROP, model_drop, 6, TO_WORKER) \
    M(PREPARE, prepare, 7, TO_WORKER) \
    M(PREPARED, prepared, 8, TO_RUNTIME) \
    M(LOAD, load, 9, TO_WORKER) \
    M(RUN, run, 10, TO_WORKER) \
    M(CANCEL, cancel, 11, TO_WORKER) \
    M(RUN_DONE, run_done, 12, TO_RUNTIME) \
    M(JOB_PREPARE, job_prepare, 13, TO_WORKER) \
    M(JOB_PREPARED, job_prepared, 14, TO_RUNTIME) \
    M(JOB_START, job_start, 15, TO_WORKER) \
    M(JOB_STARTED, job_started, 16, TO_RUNTIME) \
    M(JOB_PAUSED, job_paused, 17, TO_RUNTIME) \
    M(JOB_STOP, job_stop, 18, TO_WORKER) \
    M(JOB_SNAPSHOT, job_snapshot, 19, TO_RUNTIME) \
    M(JOB_ENDED, job_ended, 20, TO_RUNTIME) \
    M(SHUTDOWN, shutdown, 21, TO_WORKER) \
    M(MODEL_REGROUP, model_regroup, 22, TO_WORKER) \
    M(FETCH, fetch, 25, TO_WORKER) \
    M(JOB_TURN, job_turn, 23, TO_WORKER) \
    M(JOB_TURN_OVER, job_turn_over, 24, TO_RUNTIME) \
    M(JOB_SPILL, job_spill, 26, TO_WORKER) \
    M(JOB_SPILLED, job_spilled, 27, TO_RUNTIME) \
    M(JOB_RETURN, job_return, 28, TO_WORKER) \
    M(JOB_RETURNED, job_returned, 29, TO_RUNTIME) \
    M(JOB_LEAVE, job_leave, 30, TO_WORKER) \
    M(JOB_LEFT, job_left, 31, TO_RUNTIME) \
    M(REGION_ADD, region_add, 32, TO_WORKER) \
    M(REGION_DROP, region_drop, 33, TO_WORKER)
/* clang-format on */

enum sy_message_id {
#define M(NAME, name, id, direction) SY_MSG_##NAME = id,
    SY_MESSAGE_TABLE(M)
#undef M
};

enum sy_message_direction { SY_TO_WORKER, SY_TO_RUNTIME };

#define SY_FIELD_U64(name)    uint64_t name;
#define SY_FIELD_I64(name)    int64_t name;
#define SY_FIELD_STATUS(name) int64_t name;
#define SY_FIELD_F64(name)    double name;
#define SY_FIELD_STR(name)    char *name;
#define SY_FIELD_U64S(name)   struct sy_u64s name;
#define SY_FIELD(kind, name)  SY_FIELD_##kind(name)
#define M(NAME, name, id, direction) \
    struct sy_msg_##name {           \
        SY_FIELDS_##NAME(SY_FIELD)   \
    };
SY_MESSAGE_TABLE(M)
#undef M

struct sy_message {
    enum sy_message_id id;
    union {
#define M(NAME, name, id, direction) struct sy_msg_##name name;
        SY_MESSAGE_TABLE(M)
#undef M
    };
    /* owns the strings and arrays of a decoded message; NULL for one made by the sender */
    void *storage;
};

const char *sy_message_name(int id); /* "RUN", or "?" */

/* Encodes into `buffer`; ETOOBIG if it does not fit. STR fields that are NULL are sent as "". */
int sy_message_encode(const struct sy_message *message, void *buffer, size_t capacity,
                      size_t *out_bytes);
/* Untrusted bytes: EPROTO names the message and field. `direction`: messages of the other direction are refused.
 * The caller calls sy_message_finish. */
int sy_message_decode(const void *bytes, size_t n_bytes, enum sy_message_direction direction,
                      struct sy_message *out);
void sy_message_finish(struct sy_message *message);
/* One line for the log: "RUN run=3 model=1 ...". */
void sy_message_dump(const struct sy_message *message, char *buffer, size_t bytes);

/* Sends one message with fds on a control socket. A full socket waits at most 1 s, then EBUSY (the peer hangs); a closed one: EPEER. */
int sy_message_send(int fd, const struct sy_message *message, const int *fds, int n_fds);
/* Receives one; blocks unless the socket is non-blocking (then EBUSY when there is nothing). EPEER at the end. fds: up to SY_MESSAGE_MAX_FDS,
 * CLOEXEC, owned by the caller. */
int sy_message_receive(int fd, enum sy_message_direction direction, struct sy_message *out,
                       int *fds, int *n_fds);

#endif
