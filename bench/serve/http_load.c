/* HTTP/1.1 with keep-alive: the same request again and again, as it stands in a file. --help in load_core.c.
 *
 *   http_load 127.0.0.1 8000 --request FILE [--rate 25000] [--expect FILE: the answer's body] */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "bench/serve/load_core.h"
#include "runtime/base/assert.h"

#define HEADER_BYTES 8192
#define PIECE_BYTES  (256u << 10)

struct request {
    char *bytes, *expect; /* expect NULL: any body */
    size_t n, n_expect;
};

/* State of one connection: bytes left to send, and the answer so far. */
struct exchange {
    size_t sent, header_used, body_left, body_seen;
    bool in_body, right;
    char header[HEADER_BYTES + 1];
};

static int open_exchange(struct load_connection *connection)
{
    struct request *request = load_context(connection);
    struct exchange *exchange = calloc(1, sizeof *exchange);
    connection->state = exchange;
    if (!exchange)
        return load_fail(connection, "no memory");
    exchange->sent = request->n; /* nothing to send yet */
    return 0;
}

static int start(struct load_connection *connection)
{
    struct exchange *exchange = connection->state;
    exchange->sent = exchange->header_used = exchange->body_seen = 0;
    exchange->in_body = false;
    exchange->right = true;
    return 0;
}

static int flush(struct load_connection *connection)
{
    const struct request *request = load_context(connection);
    struct exchange *exchange = connection->state;
    while (exchange->sent < request->n) {
        ssize_t n =
            write(connection->fd, request->bytes + exchange->sent, request->n - exchange->sent);
        if (n < 0 && errno == EAGAIN) {
            connection->wants_write = true;
            return 0;
        }
        if (n < 0)
            return load_fail(connection, "write: %s", strerror(errno));
        exchange->sent += (size_t)n;
    }
    return 0;
}

/* The header is complete: reads its status and the body's length. */
static int read_header(struct load_connection *connection, struct exchange *exchange)
{
    int status = 0;
    const char *length = strcasestr(exchange->header, "\r\ncontent-length:");
    if (sscanf(exchange->header, "HTTP/1.1 %d", &status) != 1 || !length)
        return load_fail(connection, "an answer without status or length: %.40s", exchange->header);
    exchange->right = status == 200;
    if (status != 200)
        load_fail(connection, "status %d", status);
    exchange->body_left = strtoull(length + strlen("\r\ncontent-length:"), NULL, 10);
    exchange->in_body = true;
    return 0;
}

static void check_body(struct load_connection *connection, const char *data, size_t n)
{
    const struct request *request = load_context(connection);
    struct exchange *exchange = connection->state;
    if (request->expect && exchange->right &&
        (exchange->body_seen + n > request->n_expect ||
         memcmp(data, request->expect + exchange->body_seen, n) != 0)) {
        exchange->right = false;
        load_fail(connection, "another body than expected");
    }
    exchange->body_seen += n;
}

/* Consumes bytes of the answer; returns their number, or -1. */
static ssize_t take(struct load_connection *connection, const char *data, size_t n)
{
    struct exchange *exchange = connection->state;
    if (exchange->in_body) {
        n = SY_MIN(n, exchange->body_left);
        check_body(connection, data, n);
        exchange->body_left -= n;
        return (ssize_t)n;
    }
    size_t before = exchange->header_used;
    size_t room = SY_MIN(n, HEADER_BYTES - before);
    memcpy(exchange->header + before, data, room);
    exchange->header[before + room] = '\0';
    char *end = strstr(exchange->header + (before > 3 ? before - 3 : 0), "\r\n\r\n");
    exchange->header_used += room;
    if (!end)
        return exchange->header_used < HEADER_BYTES
                   ? (ssize_t)room
                   : load_fail(connection, "a header of more than %d bytes", HEADER_BYTES);
    end[4] = '\0';
    size_t taken = (size_t)(end + 4 - exchange->header) - before;
    return read_header(connection, exchange) < 0 ? -1 : (ssize_t)taken;
}

static int receive(struct load_connection *connection)
{
    static char piece[PIECE_BYTES];
    struct exchange *exchange = connection->state;
    ssize_t got;
    while ((got = read(connection->fd, piece, sizeof piece)) > 0) {
        for (ssize_t at = 0, n; at < got; at += n) {
            n = take(connection, piece + at, (size_t)(got - at));
            if (n < 0 || !connection->busy)
                return n < 0 ? -1 : load_fail(connection, "more than was asked for");
            if (exchange->in_body && exchange->body_left == 0)
                load_answered(connection, true); /* the error has been counted */
        }
        if ((size_t)got < sizeof piece)
            return 0;
    }
    if (got == 0)
        return load_fail(connection, "the server closed the connection");
    return errno == EAGAIN ? 0 : load_fail(connection, "read: %s", strerror(errno));
}

static void close_exchange(struct load_connection *connection)
{
    free(connection->state);
    connection->state = NULL;
}

static bool set_option(void *context, const char *name, const char *value)
{
    struct request *request = context;
    if (strcmp(name, "--request") == 0)
        request->bytes = load_file(value, &request->n);
    else if (strcmp(name, "--expect") == 0)
        request->expect = load_file(value, &request->n_expect);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    static const struct load_protocol protocol = {open_exchange, start, flush, receive,
                                                  close_exchange};
    struct request request = {0};
    struct load_options options = {.context = &request};
    load_parse(argc, argv, &options, set_option);
    if (!request.bytes) {
        fprintf(stderr, "http_load: --request FILE says what is sent\n");
        return 2;
    }
    int result = load_run(&options, &protocol);
    free(request.bytes);
    free(request.expect);
    return result;
}
