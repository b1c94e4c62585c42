/* TLS on a non-blocking socket (OpenSSL), in the manner of recv and sendmsg: -1 with errno, EAGAIN for "not now".
 *
 * T1: versions 1.2 and 1.3 only; no renegotiation, no session tickets, no compression of TLS's own.
 * T2: the handshake runs inside the first reads and writes; nothing blocks. Limits of time are the caller's: sy_tls_is_ready says whether it is over.
 * T3: bytes that were decrypted and not yet taken make no event on the socket: after reading, a caller that stops before EAGAIN asks sy_tls_pending.
 * T4: a failed stream stays failed; sy_tls_why says what went wrong, in words.
 *
 * A stream is used by one thread at a time; a context by any number. */
#ifndef SY_NET_TLS_H
#define SY_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "runtime/base/clock.h"

struct sy_tls;
struct sy_tls_stream;

/* A server's: certificate chain and key, PEM. EARG names the file and OpenSSL's reason. The context outlives its streams. */
int sy_tls_server_create(const char *cert_file, const char *key_file, struct sy_tls **out);
/* A client's: trusts what `ca_file` (PEM) holds; NULL: what the system trusts. EARG. */
int sy_tls_client_create(const char *ca_file, struct sy_tls **out);
void sy_tls_destroy(struct sy_tls *tls); /* NULL is fine */

/* For a connected, non-blocking socket, which stays the caller's. name: of a client's stream, the host that the server's certificate must be for (a name or
 * an address); of a server's, the protocol that is spoken in it, for clients that ask (ALPN: "h2", "http/1.1"; NULL: none), in static memory. ENOMEM_HOST,
 * EARG. */
int sy_tls_stream_create(struct sy_tls *tls, int fd, const char *name, struct sy_tls_stream **out);
/* Nothing more is written: says so to the peer, as far as the socket takes it, and still reads. Before shutdown(fd, SHUT_WR), else the peer takes the end
 * for a cut. NULL is fine. */
void sy_tls_end(struct sy_tls_stream *stream);
/* As sy_tls_end, and frees. NULL is fine. */
void sy_tls_stream_destroy(struct sy_tls_stream *stream);

/* As recv and sendmsg: bytes, 0 for the end, -1 with errno. */
ssize_t sy_tls_read(struct sy_tls_stream *stream, void *to, size_t n);
ssize_t sy_tls_write(struct sy_tls_stream *stream, const struct iovec *parts, size_t n_parts);
/* Goes on with the handshake. 1: it is over; 0: it waits for the peer (*wants_write: for room in the socket); -1: it failed. */
int sy_tls_handshake(struct sy_tls_stream *stream, bool *wants_write);
bool sy_tls_is_ready(const struct sy_tls_stream *stream); /* NULL: true, a plain socket is */
bool sy_tls_pending(const struct sy_tls_stream *stream);  /* NULL: false */
/* Why the stream failed; "" where it did not. */
const char *sy_tls_why(const struct sy_tls_stream *stream);

/* The same calls on a socket with or without TLS: stream NULL is the plain socket. Plain sendmsg with MSG_NOSIGNAL, both MSG_DONTWAIT. */
ssize_t sy_net_read(int fd, struct sy_tls_stream *stream, void *to, size_t n);
ssize_t sy_net_write(int fd, struct sy_tls_stream *stream, struct iovec *parts, size_t n_parts);

/* Small messages at once (TCP_NODELAY), and an idle peer that vanished is detected within some three seconds: probed after one second of silence,
 * lost after two probes without an answer. Bytes that nobody acknowledges, or takes (a peer that does not read), end the connection after 30 s, the limit of a
 * stall, and no earlier. Errors are ignored: not every socket has these. */
void sy_net_set_tcp(int fd);

/* Logs why a listener could not accept (errno) and what to change, once a minute at most: it tries again several times a second. *said_ns: the caller's, 0 at
 * first. */
void sy_net_accept_failed(const char *component, sy_ns *said_ns);

#endif
