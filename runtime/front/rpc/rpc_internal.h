/* Internals of the RPC server: server, connection, reply. */
#ifndef SY_RUNTIME_RPC_INTERNAL_H
#define SY_RUNTIME_RPC_INTERNAL_H

#include <event2/event.h>
#include <msgpack.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "loader/graph/graph.h"
#include "runtime/base/msgpack_scan.h"
#include "runtime/front/access/access.h"
#include "runtime/front/closed_watch.h"
#include "runtime/front/front_server.h"
#include "runtime/front/least_rate.h"
#include "runtime/front/rpc/rpc_long.h"
#include "runtime/front/rpc/rpc_server.h"
#include "runtime/front/socket_events.h"
#include "runtime/net/tls.h"
#include "runtime/repository/repository.h"

#define SY_RPC_MAX_ELEMENTS   65536u      /* of one message; tensors are one element each */
#define SY_RPC_STRANGER_BYTES (16u << 10) /* limit of a message from a caller without any right */
#define SY_RPC_STRANGER_NS    (10 * SY_NS_PER_S) /* for the handshake, and for a token */
#define SY_RPC_MAX_TENSORS    SY_MAX_ENDS        /* inputs, or outputs, of one request */

struct sy_rpc_connection;

struct sy_rpc_server {
    struct sy_front_server base; /* first: front_server.h */
    struct sy_front *front;
    struct sy_rpc_limits limits;
    char *socket_path;
    struct sy_closed_watch *closed_watch; /* connections that are not being read */
    LIST_HEAD(, sy_rpc_connection) connections;
    sy_ns said_ns; /* when a failed TLS connection was logged last */
    uint64_t buffered_bytes;
    uint64_t region_bytes; /* of all connections */
    int n_received;        /* jobs that come from other servers (rpc_job.h) */
    /* One whole message (rpc_methods.c): the connections' files do not know what it says. */
    int (*dispatch)(struct sy_rpc_connection *connection, const msgpack_object *message);
};

struct sy_rpc_infer;
struct sy_rpc_receive;

/* An answer on its way out: `head` holds all bytes but the tensors'; `cut[i]` says where tensor i goes in. */
struct sy_rpc_reply {
    struct sy_rpc_reply *next;
    bool answers;         /* counts as outstanding until it is sent */
    msgpack_sbuffer head; /* written by sy_rpc_reply_write */
    bool failed;          /* no memory for a part of the head: it cannot be sent */
    int n_tensors;
    size_t cut[SY_RPC_MAX_TENSORS];
    const void *tensor[SY_RPC_MAX_TENSORS];
    uint64_t tensor_bytes[SY_RPC_MAX_TENSORS];
    uint64_t bytes;             /* of all */
    struct sy_rpc_infer *infer; /* whose outputs these are, or NULL; freed when sent */
    int fd;                     /* goes with the first byte (Unix sockets), the reply's; -1: none */
};

struct sy_rpc_connection {
    struct sy_rpc_server *server;
    LIST_ENTRY(sy_rpc_connection) link;
    int fd;   /* -1: closed */
    int refs; /* the server's list, each request at the core, a running callback */
    struct sy_socket_events events; /* again: TLS bytes that were decrypted and not taken */
    bool processing, closing;       /* closing: when the replies are out */
    unsigned char *buffer;
    uint64_t used, capacity;
    struct sy_msgpack_scan scan;
    struct sy_rpc_longs longs; /* long values of the message at the front of the buffer */
    uint32_t low_water; /* sy_net_set_low_water: of a client that sends a long one fast (L3) */
    struct sy_tls_stream *tls; /* NULL: plain */
    struct sy_grant grant;     /* rights of this client */
    sy_ns opened_ns;
    int n_outstanding;
    struct sy_rpc_reply *first_reply, *last_reply;
    uint64_t sent; /* bytes of first_reply */
    uint64_t unsent_bytes;
    struct sy_transfer_pace pace;     /* of what comes or is sent */
    LIST_HEAD(, sy_rpc_infer) infers; /* at the core */
    bool is_local;                    /* on the Unix socket: it can be passed descriptors */
    struct sy_rpc_region *regions;
    int n_regions; /* these, and those that are dropped and in use */
    uint64_t region_bytes;
    struct sy_rpc_receive *receive; /* the job that comes from another server; NULL: none */
    struct sy_repository_wait wait;
    bool waits; /* its first message is for a model that is being loaded */
};

/* One request as its method sees it. Objects point into the connection's buffer: valid during the call only. */
struct sy_rpc_request {
    struct sy_rpc_connection *connection;
    bool answers; /* false: a notification */
    uint64_t id;
    const msgpack_object *params;
};

/* ---- rpc_connection.c ---- */
int sy_rpc_connection_create(struct sy_rpc_server *server, int fd, bool is_local);
/* After an answer of the core: reads on if it had to wait. */
void sy_rpc_connection_resume(struct sy_rpc_connection *connection);
/* While it is not read: its peer sends no more, or is gone. */
void sy_rpc_connection_gone(void *connection, bool is_gone);
bool sy_rpc_connection_stalled(const struct sy_rpc_connection *connection, sy_ns now);

/* ---- rpc_close.c ---- */
/* Its requests are canceled, its regions, replies and the job that it sends dropped. Of a closed one, too. */
void sy_rpc_connection_close(struct sy_rpc_connection *connection);
void sy_rpc_connection_release(struct sy_rpc_connection *connection);
/* Without references, or not created wholly. */
void sy_rpc_connection_free(struct sy_rpc_connection *connection);

/* ---- rpc_reply.c ---- */
/* A reply that begins as a response to `id`: after it the caller packs error and result. NULL: out of memory. */
struct sy_rpc_reply *sy_rpc_reply_create(void);
/* A packer's writer: appends to the head of a struct sy_rpc_reply, and notes what fails. */
int sy_rpc_reply_write(void *reply, const char *bytes, size_t n);
void sy_rpc_reply_free(struct sy_rpc_reply *reply);

/* ---- rpc_send.c ---- */
/* Sends: takes the reply over. A closed connection drops it. */
void sy_rpc_reply_send(struct sy_rpc_connection *connection, struct sy_rpc_reply *reply);
/* Writes what the socket takes, at most 1 MiB: the rest in the next turns of the loop. False: the connection is broken. */
bool sy_rpc_reply_flush(struct sy_rpc_connection *connection);
/* Steals the reference. */
void sy_rpc_answer_json(struct sy_rpc_connection *connection, bool answers, uint64_t id,
                        json_t *result);
/* As sy_rpc_answer_json, with a descriptor, which is taken over. */
void sy_rpc_answer_json_with_fd(struct sy_rpc_connection *connection, bool answers, uint64_t id,
                                json_t *result, int fd);
void sy_rpc_answer_error(struct sy_rpc_connection *connection, bool answers, uint64_t id,
                         int status, const char *message);
/* Says why to a socket that is no connection yet, if it takes that at once; the caller closes it. */
void sy_rpc_refuse(int fd, int status, const char *message);

/* ---- rpc_access.c ---- */
/* {"token": TEXT}: the connection's rights are the token's from now on. EDENIED: there is no such token, and the connection ends. */
int sy_rpc_auth(const struct sy_rpc_request *request, json_t *params);
/* The path of a package, or of a job's file, as this client may name it: *out is the caller's. EDENIED, ENOTFOUND. */
int sy_rpc_allow_path(const struct sy_rpc_connection *connection, const char *path, char **out);
/* A job's text with paths that this client may name, and its tenant; no script of another machine; *out is the caller's. EARG, EDENIED, ENOTFOUND. */
int sy_rpc_allow_job(const struct sy_rpc_connection *connection, const char *text, char **out);

/* ---- rpc_methods.c ---- */
/* One whole message. EPROTO when it is no RPC message: the connection must end. SY_REPOSITORY_LOADS: not now, see sy_rpc_infer. */
int sy_rpc_dispatch(struct sy_rpc_connection *connection, const msgpack_object *message);

/* ---- rpc_params.c ---- */
/* The value of `key` in a map, or NULL. */
const msgpack_object *sy_rpc_get(const msgpack_object *map, const char *key);
/* A string of the map that fits into `to`, zero-terminated. EARG. */
int sy_rpc_get_text(const msgpack_object *map, const char *key, char *to, size_t bytes);

/* ---- rpc_infer.c ---- */
/* Negative: refused, the caller answers with the error text. SY_REPOSITORY_LOADS: its model is loaded first; the same message is dispatched again then. */
int sy_rpc_infer(const struct sy_rpc_request *request);

/* ---- rpc_infer_request.c ---- */
void sy_rpc_infer_free(struct sy_rpc_infer *infer); /* NULL is fine */
/* The client is gone. */
void sy_rpc_infer_cancel_all(struct sy_rpc_connection *connection);

#endif
