/* Internal declarations of the client library. */
#ifndef SY_RUNTIME_CLIENT_CLIENT_INTERNAL_H
#define SY_RUNTIME_CLIENT_CLIENT_INTERNAL_H

#include <msgpack.h>
#include <stdbool.h>
#include <sys/uio.h>

#include "runtime/base/clock.h"
#include "runtime/client/switchyard.h"

struct sy_tls;
struct sy_tls_stream;

#define SY_CLIENT_MAX_LONGS 16

/* A tensor of an answer that was received where its reader keeps it; NULL: it was taken. A block of client_block.h. */
struct sy_client_long {
    void *data;
    size_t bytes;
};

struct sy_client {
    int fd;
    struct sy_tls *tls_context; /* NULL: plain */
    struct sy_tls_stream *tls;
    bool is_tcp;
    sy_ns timeout_ns, deadline;
    uint64_t next_id;
    unsigned char *buffer; /* the answer being received */
    uint64_t used, capacity;
    bool takes_longs;   /* of the call that is made */
    uint32_t low_water; /* sy_net_set_low_water */
    int n_longs;        /* of the answer */
    struct sy_client_long longs[SY_CLIENT_MAX_LONGS];
    bool expects_fd; /* of the call that is made */
    int received_fd; /* -1: none came */
    sy_client_region *regions;
    char error[512];
};

struct sy_client_region {
    sy_client_region *next; /* of its client */
    sy_client *client;      /* NULL: it is closed */
    uint64_t id;
    unsigned char *data;
    size_t bytes;
};

/* ---- client_call.c ---- */
/* Keeps the thread's error text for sy_client_error; gives `status`. */
int sy_client_fail(sy_client *client, int status);
/* Ends a call: as sy_client_fail if `status` is an error. Gives `status`. */
int sy_client_finish(sy_client *client, int status);
/* Begins [0, id, method, params]; the caller packs params, an array. */
void sy_client_pack_request(sy_client *client, msgpack_packer *packer, const char *method);
void sy_client_pack_text(msgpack_packer *packer, const char *text);
/* Sends the parts and receives; *result points into the client's buffer and `unpacked`. */
int sy_client_ask(sy_client *client, struct iovec *parts, int n_parts, msgpack_unpacked *unpacked,
                  const msgpack_object **result);
/* The value of `key` in a map, or NULL. */
const msgpack_object *sy_client_get(const msgpack_object *map, const char *key);

/* ---- client_socket.c: until the call's deadline. EDEADLINE, EIO, EPEER ---- */
/* Waits for `events` of poll. */
int sy_client_wait(sy_client *client, short events);
/* All bytes of the parts, which are used up. */
int sy_client_send(sy_client *client, struct iovec *parts, int n_parts);
/* At least a byte of at most `room`; *n: how many. */
int sy_client_receive(sy_client *client, void *to, uint64_t room, uint64_t *n);

/* ---- client_long.c ---- */
struct sy_msgpack_scan;
/* After the scan asked for more of the answer: if it stands inside of a long bin, its bytes go to a block of their own from here on; *to, *room: where the next
 * ones go; room 0: to the client's buffer. ENOMEM_HOST. */
int sy_client_long_begin(sy_client *client, struct sy_msgpack_scan *scan, unsigned char **to,
                         uint64_t *room);
/* Returns the data that `data` of an answer refers to, now owned by the caller; NULL: not a long one. */
void *sy_client_long_take(sy_client *client, const msgpack_object *data, size_t *bytes);
void sy_client_long_drop(sy_client *client);

/* ---- client_secure.c ---- */
/* `value`, or where it is NULL the environment's of this name; NULL: none, as an empty one is. */
const char *sy_client_setting(const char *value, const char *name);
/* On a TCP connection that stands: TLS, if `security` or the environment asks for it. host: of the address. */
int sy_client_start_tls(sy_client *client, const char *host, const sy_client_security *security);
void sy_client_end_tls(sy_client *client);

/* ---- client_token.c ---- */
/* Shows the token, if there is one. */
int sy_client_show_token(sy_client *client, bool is_tcp, const sy_client_security *security);

/* ---- client_region.c ---- */
/* The region that `bytes` at `data` lie in, at an offset that tensors may have; NULL: none. */
const sy_client_region *sy_client_region_of(const sy_client *client, const void *data,
                                            size_t bytes);
/* The client's region of this id that has `bytes` at `offset`; NULL: none. */
const sy_client_region *sy_client_region_find(const sy_client *client, uint64_t id, uint64_t offset,
                                              uint64_t bytes);
/* The client closes: its regions' memory stays until each is destroyed. */
void sy_client_region_orphan_all(sy_client *client);

#endif
