#include "runtime/net/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

/* of one recv; 16 KiB records one by one are two calls each */
#define READ_AHEAD_BYTES (256u << 10)
#define JOINED_BYTES     (16u << 10) /* small parts go out as one record */
#define TURN_BYTES       (1u << 20)  /* of one call: the event loop's turn stays short */

struct sy_tls {
    SSL_CTX *context;
    bool is_server;
};

struct sy_tls_stream {
    SSL *ssl;
    bool is_server, is_ready, failed;
    /* the socket takes no more; what the peer said before it closed can still be read */
    bool is_unwritable;
    bool drained; /* the last read ended with "not now": what is buffered is no whole record */
    char why[256];
};

/* ---- the socket ---------------------------------------------------------------------------------------- */

/* OpenSSL's own socket BIO writes with write(), and a peer that is gone raises SIGPIPE in a program that uses the library. */
static int bio_write(BIO *bio, const char *from, int n)
{
    ssize_t sent =
        send((int)(intptr_t)BIO_get_data(bio), from, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);

    BIO_clear_retry_flags(bio);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    return (int)sent;
}

static int bio_read(BIO *bio, char *to, int n)
{
    ssize_t got = recv((int)(intptr_t)BIO_get_data(bio), to, (size_t)n, MSG_DONTWAIT);

    BIO_clear_retry_flags(bio);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    return (int)got;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* Made once, kept for the process's life. */
static BIO_METHOD *socket_method;
static pthread_once_t socket_method_once = PTHREAD_ONCE_INIT;

static void make_socket_method(void)
{
    BIO_METHOD *method =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "switchyard socket");

    if (method) {
        BIO_meth_set_write(method, bio_write);
        BIO_meth_set_read(method, bio_read);
        BIO_meth_set_ctrl(method, bio_ctrl);
    }
    socket_method = method;
}

static bool set_socket(SSL *ssl, int fd)
{
    BIO *bio;

    pthread_once(&socket_method_once, make_socket_method);
    bio = socket_method ? BIO_new(socket_method) : NULL;
    if (!bio)
        return false;
    BIO_set_data(bio, (void *)(intptr_t)fd);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    return true;
}

/* ---- contexts ------------------------------------------------------------------------------------------ */

static const char *openssl_reason(void)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;

    return reason ? reason : code ? strerror((int)ERR_GET_REASON(code)) : "no reason given";
}

/* Of a file with certificates or a key: the first error is the file's own, later ones say where OpenSSL was. */
static const char *file_reason(void)
{
    unsigned long code = ERR_peek_error();

    if (ERR_GET_LIB(code) == ERR_LIB_SYS)
        return strerror((int)ERR_GET_REASON(code));
    if ((ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE) ||
        ERR_GET_LIB(code) == ERR_LIB_OSSL_DECODER)
        return "it holds none in PEM form";
    return openssl_reason();
}

static int context_create(const SSL_METHOD *method, struct sy_tls **out)
{
    struct sy_tls *tls = calloc(1, sizeof *tls);

    ERR_clear_error();
    if (tls)
        tls->context = SSL_CTX_new(method);
    if (!tls || !tls->context) {
        free(tls);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for TLS: %s", openssl_reason());
    }
    SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
    SSL_CTX_set_options(tls->context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                          SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(tls->context, 0);
    SSL_CTX_set_mode(tls->context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                       SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                       SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(tls->context, 1);
    SSL_CTX_set_default_read_buffer_len(tls->context, READ_AHEAD_BYTES);
    *out = tls;
    return SY_OK;
}

/* ALPN: the stream's own protocol, if the client offers it; clients of HTTP/2 insist. Others are served without. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_bytes,
                           const unsigned char *offered, unsigned n, void *ctx)
{
    const char *own = SSL_get_app_data(ssl);
    size_t bytes = own ? strlen(own) : 0;

    (void)ctx;
    for (unsigned at = 0; own && at < n && at + 1 + offered[at] <= n; at += 1 + offered[at])
        if (offered[at] == bytes && memcmp(offered + at + 1, own, bytes) == 0) {
            *out = offered + at + 1;
            *out_bytes = offered[at];
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_NOACK;
}

/* Clients refuse such a certificate, and their reason stands in their logs only. */
static void warn_of_dates(SSL_CTX *context, const char *cert_file)
{
    const X509 *cert = SSL_CTX_get0_certificate(context);
    const char *why = X509_cmp_current_time(X509_get0_notAfter(cert)) < 0    ? "has expired"
                      : X509_cmp_current_time(X509_get0_notBefore(cert)) > 0 ? "is not valid yet"
                                                                             : NULL;

    if (why)
        sy_log_warn("tls", "event=certificate path=\"%s\" why=\"it %s: clients refuse it\"",
                    cert_file, why);
}

int sy_tls_server_create(const char *cert_file, const char *key_file, struct sy_tls **out)
{
    struct sy_tls *tls = NULL;
    int status = SY_OK;

    *out = NULL;
    SY_TRY(context_create(TLS_server_method(), &tls));
    tls->is_server = true;
    SSL_CTX_set_alpn_select_cb(tls->context, choose_protocol, NULL);
    if (SSL_CTX_use_certificate_chain_file(tls->context, cert_file) != 1)
        status = sy_error_set(SY_EARG, "--tls-cert %s: %s", cert_file, file_reason());
    else if (SSL_CTX_use_PrivateKey_file(tls->context, key_file, SSL_FILETYPE_PEM) != 1)
        status = sy_error_set(SY_EARG, "--tls-key %s: %s", key_file, file_reason());
    else if (SSL_CTX_check_private_key(tls->context) != 1)
        status = sy_error_set(SY_EARG, "--tls-key %s is not the key of --tls-cert %s", key_file,
                              cert_file);
    if (status < 0) {
        sy_tls_destroy(tls);
        return status;
    }
    warn_of_dates(tls->context, cert_file);
    *out = tls;
    return SY_OK;
}

int sy_tls_client_create(const char *ca_file, struct sy_tls **out)
{
    struct sy_tls *tls = NULL;
    int loaded;

    *out = NULL;
    SY_TRY(context_create(TLS_client_method(), &tls));
    loaded = ca_file ? SSL_CTX_load_verify_locations(tls->context, ca_file, NULL)
                     : SSL_CTX_set_default_verify_paths(tls->context);
    if (loaded != 1) {
        int status = sy_error_set(SY_EARG, "TLS: cannot read the certificates of %s: %s",
                                  ca_file ? ca_file : "this system", file_reason());

        sy_tls_destroy(tls);
        return status;
    }
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    *out = tls;
    return SY_OK;
}

void sy_tls_destroy(struct sy_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    free(tls);
}

/* ---- streams ------------------------------------------------------------------------------------------- */

static bool is_address(const char *host)
{
    struct in6_addr address;

    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/* The certificate must be for this name, or this address. */
static bool expect_host(SSL *ssl, const char *host)
{
    if (is_address(host))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

int sy_tls_stream_create(struct sy_tls *tls, int fd, const char *name, struct sy_tls_stream **out)
{
    struct sy_tls_stream *stream = calloc(1, sizeof *stream);

    *out = NULL;
    ERR_clear_error();
    if (stream)
        stream->ssl = SSL_new(tls->context);
    if (!stream || !stream->ssl || !set_socket(stream->ssl, fd)) {
        sy_tls_stream_destroy(stream);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a TLS connection");
    }
    stream->is_server = tls->is_server;
    if (tls->is_server) {
        SSL_set_accept_state(stream->ssl);
        SSL_set_app_data(stream->ssl, (void *)(uintptr_t)name);
    } else {
        SSL_set_connect_state(stream->ssl);
        if (!expect_host(stream->ssl, name)) {
            sy_tls_stream_destroy(stream);
            return sy_error_set(SY_EARG, "TLS: \"%s\" is no name that a certificate can be for",
                                name);
        }
    }
    *out = stream;
    return SY_OK;
}

void sy_tls_end(struct sy_tls_stream *stream)
{
    if (stream && stream->ssl && stream->is_ready && !stream->failed && !stream->is_unwritable &&
        !(SSL_get_shutdown(stream->ssl) & SSL_SENT_SHUTDOWN))
        (void)SSL_shutdown(stream->ssl); /* once: what the peer says to it is of no interest */
}

void sy_tls_stream_destroy(struct sy_tls_stream *stream)
{
    if (!stream)
        return;
    sy_tls_end(stream);
    SSL_free(stream->ssl);
    ERR_clear_error();
    free(stream);
}

/* Adds an explanation where OpenSSL's text does not give one. */
static void explain(struct sy_tls_stream *stream, int error)
{
    unsigned long code = ERR_peek_last_error();
    int reason = ERR_GET_REASON(code);
    long verified = SSL_get_verify_result(stream->ssl);

    if (!stream->is_server && verified != X509_V_OK)
        snprintf(stream->why, sizeof stream->why, "TLS: the server's certificate is refused: %s",
                 X509_verify_cert_error_string(verified));
    else if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason == SSL_R_WRONG_VERSION_NUMBER)
        snprintf(stream->why, sizeof stream->why, "TLS: the peer speaks no TLS on this port");
    else if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason == SSL_R_HTTP_REQUEST)
        snprintf(stream->why, sizeof stream->why,
                 "TLS: the peer speaks plain HTTP on a port with TLS");
    else if (code)
        snprintf(stream->why, sizeof stream->why, "TLS: %s", openssl_reason());
    else if (error == SSL_ERROR_SYSCALL && errno)
        snprintf(stream->why, sizeof stream->why, "TLS: %s", strerror(errno));
    else
        snprintf(stream->why, sizeof stream->why, "TLS: the peer closed the connection%s",
                 stream->is_ready ? "" : " in the handshake");
}

/* errno from what an SSL call returned. A read that would have to write first has a peer that asks for something and does not read: it fails. */
static ssize_t result(struct sy_tls_stream *stream, int n, bool is_write)
{
    int error = SSL_get_error(stream->ssl, n);

    if (error == SSL_ERROR_WANT_READ || (error == SSL_ERROR_WANT_WRITE && is_write)) {
        stream->drained = error == SSL_ERROR_WANT_READ;
        errno = EAGAIN;
        return -1;
    }
    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    if (is_write && stream->is_ready && error == SSL_ERROR_SYSCALL)
        stream->is_unwritable = true;
    else
        stream->failed = true;
    explain(stream, error);
    if (is_write || errno == 0 || errno == EAGAIN || errno == EINTR || error == SSL_ERROR_SSL)
        errno = error == SSL_ERROR_SSL ? EPROTO : ECONNRESET;
    return -1;
}

static bool is_broken(const struct sy_tls_stream *stream)
{
    errno = stream->failed ? ECONNRESET : 0;
    ERR_clear_error();
    return stream->failed;
}

/* A record at a time, until there is no whole one. An error behind bytes that came is met by the next call. */
ssize_t sy_tls_read(struct sy_tls_stream *stream, void *to, size_t n)
{
    size_t most = SY_MIN(n, (size_t)TURN_BYTES), used = 0;

    stream->drained = false;
    while (used < most) {
        int got;

        if (is_broken(stream))
            return used > 0 ? (ssize_t)used : -1;
        got = SSL_read(stream->ssl, (unsigned char *)to + used, (int)(most - used));
        stream->is_ready |= SSL_is_init_finished(stream->ssl) == 1;
        if (got <= 0) {
            ssize_t ended = result(stream, got, false);

            return used > 0 ? (ssize_t)used : ended;
        }
        used += (size_t)got;
    }
    return (ssize_t)used;
}

/* What goes out in one SSL_write: a long part where it lies, or short ones side by side in `joined`. With the same bytes in front it may be tried again from
 * other memory. */
static struct iovec next_block(const struct iovec *parts, size_t n_parts, size_t *at, size_t *from,
                               unsigned char *joined)
{
    size_t used = 0;

    while (*at < n_parts) {
        size_t left = parts[*at].iov_len - *from;
        unsigned char *bytes = (unsigned char *)parts[*at].iov_base + *from;

        if (used == 0 && left >= JOINED_BYTES) {
            size_t n = SY_MIN(left, (size_t)TURN_BYTES);

            *from += n;
            return (struct iovec){bytes, n};
        }
        size_t n = SY_MIN(left, JOINED_BYTES - used);

        if (n > 0)
            memcpy(joined + used, bytes, n);
        used += n;
        *from += n;
        if (*from < parts[*at].iov_len)
            break;
        *from = 0;
        ++*at;
    }
    return (struct iovec){joined, used};
}

ssize_t sy_tls_write(struct sy_tls_stream *stream, const struct iovec *parts, size_t n_parts)
{
    unsigned char joined[JOINED_BYTES];
    size_t at = 0, from = 0, sent = 0;

    while (sent < TURN_BYTES) {
        struct iovec block = next_block(parts, n_parts, &at, &from, joined);
        int n;

        if (block.iov_len == 0)
            break;
        if (is_broken(stream))
            return -1;
        if (stream->is_unwritable) {
            errno = ECONNRESET;
            return -1;
        }
        n = SSL_write(stream->ssl, block.iov_base, (int)block.iov_len);
        stream->is_ready |= SSL_is_init_finished(stream->ssl) == 1;
        if (n <= 0)
            return sent > 0 && SSL_get_error(stream->ssl, n) == SSL_ERROR_WANT_WRITE
                       ? (ssize_t)sent
                       : result(stream, n, true);
        sent += (size_t)n;
        if ((size_t)n < block.iov_len)
            break;
    }
    return (ssize_t)sent;
}

int sy_tls_handshake(struct sy_tls_stream *stream, bool *wants_write)
{
    int n, error;

    *wants_write = false;
    if (stream->is_ready)
        return 1;
    if (is_broken(stream))
        return -1;
    n = SSL_do_handshake(stream->ssl);
    if (n == 1) {
        stream->is_ready = true;
        return 1;
    }
    error = SSL_get_error(stream->ssl, n);
    *wants_write = error == SSL_ERROR_WANT_WRITE;
    if (*wants_write || error == SSL_ERROR_WANT_READ)
        return 0;
    (void)result(stream, n, true);
    return -1;
}

bool sy_tls_is_ready(const struct sy_tls_stream *stream)
{
    return !stream || stream->is_ready;
}

bool sy_tls_pending(const struct sy_tls_stream *stream)
{
    return stream && !stream->failed && !stream->drained && SSL_has_pending(stream->ssl) == 1;
}

const char *sy_tls_why(const struct sy_tls_stream *stream)
{
    return stream ? stream->why : "";
}

/* ---- with or without --------------------------------------------------------------------------------------- */

ssize_t sy_net_read(int fd, struct sy_tls_stream *stream, void *to, size_t n)
{
    return stream ? sy_tls_read(stream, to, n) : recv(fd, to, n, MSG_DONTWAIT);
}

ssize_t sy_net_write(int fd, struct sy_tls_stream *stream, struct iovec *parts, size_t n_parts)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = n_parts};

    return stream ? sy_tls_write(stream, parts, n_parts)
                  : sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void sy_net_set_tcp(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 1}, {IPPROTO_TCP, TCP_KEEPINTVL, 1},
        {IPPROTO_TCP, TCP_KEEPCNT, 2},  {IPPROTO_TCP, TCP_USER_TIMEOUT, 30000},
    };

    for (size_t i = 0; i < SY_ARRAY_LEN(options); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof options[i].value);
}

void sy_net_accept_failed(const char *component, sy_ns *said_ns)
{
    int why = errno;
    sy_ns now = sy_clock_now();

    if (*said_ns && now - *said_ns < 60 * SY_NS_PER_S)
        return;
    *said_ns = now;
    sy_log_warn(component, "event=accept_failed why=\"%s%s\"", strerror(why),
                why == EMFILE ? "; clients wait until others go: raise the limit (ulimit -n, a "
                                "service's LimitNOFILE=)"
                              : "");
}
