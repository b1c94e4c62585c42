/* Switchyard's public C API: the client of a running server.
 *
 * A connection is used by one thread at a time. Calls block until the answer is there or the timeout passed.
 * Errors: negative sy_status values; sy_client_error gives the server's or the client's words. */
#ifndef SWITCHYARD_H
#define SWITCHYARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWITCHYARD_VERSION         "0.1.0"
#define SWITCHYARD_MAX_RANK        8
#define SWITCHYARD_MAX_TENSORS     256   /* inputs, or outputs, of a model */
#define SWITCHYARD_MAX_DEADLINE_MS 3.6e6 /* an hour: a request's deadline is at most so long */
#define SWITCHYARD_REGION_ALIGN    64    /* bytes: of tensors in shared memory */

typedef struct sy_client sy_client;

typedef struct {
    const char *name;
    const char *dtype; /* "FP32", "INT64", ... (Open Inference Protocol names) */
    int rank;
    int64_t shape[SWITCHYARD_MAX_RANK];
    /* row-major, little-endian; of BYTES each string behind its length, a uint32 */
    const void *data;
    size_t bytes;
} sy_client_tensor;

typedef struct {
    int n_outputs;
    sy_client_tensor *outputs; /* owned by the result */
    /* times in nanoseconds, as the server saw them */
    uint64_t queue_ns, preempt_wait_ns, swap_ns, total_ns, first_layer_ns, bound_ns, moved_bytes;
    int swapped, preempted, attempts;
    uint64_t predicted_ns; /* what total_ns was expected to be when the request was taken */
    /* of total_ns: it alone had the device (of requests that ran as one batch the first has it all) */
    uint64_t served_ns;
} sy_client_result;

/* address: "unix:/path", "/path", or "tcp:host:port". timeout_ms per call; 0: 60 s. */
/* *out is set on failure too, so that sy_client_error can say why; close it then as well. */
int sy_client_connect(const char *address, unsigned timeout_ms, sy_client **out);

/* A server on another machine: "tcp:host:port" with a token of the server's --token-file, and TLS if its port has it. What is NULL or 0 here is taken from the
 * environment: SWITCHYARD_TOKEN_FILE, SWITCHYARD_TLS_CA. Over a Unix socket a token is sent only where `token` or `token_file` is set. */
typedef struct {
    const char *token;      /* the secret itself; NULL: from token_file */
    const char *token_file; /* a file that holds the secret: its first line */
    /* TLS: certificates (PEM) that the server's must go back to; "system": those of this system; NULL: plain */
    const char *tls_ca;
    const char *tls_name; /* what the server's certificate must be for; NULL: the address's host */
} sy_client_security;

/* As sy_client_connect, with these settings; NULL: those of the environment, as sy_client_connect. SY_EDENIED: the token is none of the
 * server's; SY_EPEER: no server, or its certificate is refused. */
int sy_client_connect_secure(const char *address, unsigned timeout_ms,
                             const sy_client_security *security, sy_client **out);
void sy_client_close(sy_client *client);
const char *sy_client_error(const sy_client *client);

/* One batch. The result is the caller's until sy_client_result_free. */
int sy_client_infer(sy_client *client, const char *model, const sy_client_tensor *inputs,
                    int n_inputs, sy_client_result **out);
/* Where an output is to be written: `bytes` at `data`, in a region of this client, aligned to SWITCHYARD_REGION_ALIGN. */
typedef struct {
    const char *name;
    void *data;
    size_t bytes; /* at least as many as the output has (SY_EARG says how many) */
} sy_client_place;

typedef struct {
    int urgency_class; /* 0: the most urgent .. 9; a request is never delayed by higher ones. SWITCHYARD_MODEL_CLASS: as the model's configuration says */
    /* 0: none. A request that would be late by prediction is refused at once, with the prediction (SY_EDEADLINE) */
    double deadline_ms;
    const char *tenant;            /* NULL: the server's default */
    const sy_client_place *places; /* outputs that are written to shared memory; NULL: none */
    int n_places;
    long long version; /* of the model; 0: as its version policy says, the highest that is served */
    /* One of a sequence of requests whose model keeps tensors at the server in between, as a decoder its keys and values: what the server has
     * (inputs "past...") is not sent, what it keeps (outputs "present...") is not answered. An id that this client's tenant chooses, at most 127 bytes;
     * NULL: no session. A request that fails leaves the session as it was. SY_ENOTFOUND: there is none, or it was idle for too long. */
    const char *session;
    int session_start; /* a new session; one of this id that is idle is dropped */
    int session_end;   /* it is over with this request */
} sy_client_options;
#define SWITCHYARD_MODEL_CLASS (-1)
#define SWITCHYARD_USUAL_CLASS 1

/* As sy_client_infer, with options; NULL: the usual class, no deadline. */
int sy_client_infer_with(sy_client *client, const char *model, const sy_client_tensor *inputs,
                         int n_inputs, const sy_client_options *options, sy_client_result **out);
void sy_client_result_free(sy_client_result *result);

/* Memory that the client and the server share, so that large tensors are not copied. Only over a Unix socket.
 *
 *   sy_client_region_create(client, bytes, &region);
 *   float *x = sy_client_region_data(region);       write the input there
 *   sy_client_infer_with(...)                       with sy_client_tensor.data = x: found to be shared, and sent by reference;
 *                                                   outputs with a sy_client_place are written there
 *
 * An input is sent by reference if all of it lies in a region, at a multiple of SWITCHYARD_REGION_ALIGN bytes; else its bytes are sent. A placed output's
 * `data` in the result points to its place, which stays the caller's: sy_client_result_free leaves it. Inputs must not change, and places must not be read,
 * until the
 * call has returned; places overlap neither each other nor an input. After a call that ended without an answer (SY_EDEADLINE of the client, SY_EPEER) what is
 * placed may still
 * change.
 *
 * EUNSUPPORTED: over TCP, or the server shares none. EBUSY, ETOOBIG: the server's limits. The memory is zeroed at first. */
typedef struct sy_client_region sy_client_region;

int sy_client_region_create(sy_client *client, size_t bytes, sy_client_region **out);
void *sy_client_region_data(const sy_client_region *region); /* aligned to a page */
size_t sy_client_region_bytes(const sy_client_region *region);
/* Unmaps it, and tells the server, if the client is still open; also to be called after sy_client_close, until when the memory stays. NULL is fine. */
void sy_client_region_destroy(sy_client_region *region);

/* What a model takes and gives. A dimension of -1 is open: the batch ("N" in dims), or a size that each request chooses by the shapes of
 * the inputs that it sends ("seq"; the same name is the same size everywhere), or what follows from these ("2*seq+1"), or what only a
 * run knows ("?"). usual_shape: one row, of the usual sizes (-1: only a run knows). */
typedef struct {
    const char *name, *dtype;
    int rank;
    int64_t shape[SWITCHYARD_MAX_RANK], usual_shape[SWITCHYARD_MAX_RANK];
    const char *dims[SWITCHYARD_MAX_RANK]; /* NULL where it is a number */
} sy_client_port;

typedef struct {
    int n_inputs, n_outputs, n_sizes;
    sy_client_port *inputs, *outputs;
    struct {
        const char *name;
        int64_t usual; /* what the model was timed with; any other runs as well */
    } * sizes;         /* the open ones, without the batch */
    void *storage;     /* the library's */
} sy_client_model;

/* SY_ENOTFOUND: no such model; SY_EBUSY: it is loading, or unavailable. The model is the caller's until sy_client_model_free. */
int sy_client_model_find(sy_client *client, const char *name, sy_client_model **out);
void sy_client_model_free(sy_client_model *model); /* NULL is fine */

/* Any other method (see runtime/front/rpc/README.md: status, models, model_load, model_unload, evict, train, train_stop, trace, ping, drain), parameters and
 * answer as JSON text. *out_json is malloc'd. */
int sy_client_call(sy_client *client, const char *method, const char *params_json, char **out_json);

#ifdef __cplusplus
}
#endif

#endif
