#include "tests/simulation/sim_front.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/core/core_handlers.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/http/http_internal.h"
#include "runtime/front/http/http_protocol.h"
#include "runtime/front/rpc/rpc_internal.h"
#include "tests/rigs/seed.h"
#include "tests/simulation/sim_world.h"

#define MOST_CONNECTIONS 8
#define MOST_ASKS        6    /* of one connection, not answered */
#define ROOM_BYTES       4608 /* in a socket: the least that the kernel gives */
#define PACE_NS          (300 * SY_NS_PER_US)
#define STALL_NS         (400 * SY_NS_PER_MS) /* and the other limits of time; walks last for seconds */

static struct {
    bool open, calm, wild, fine;
    uint64_t random, n_made, last_ask;
    sy_ns next_ns, calm_ns;
    struct sy_front front;
    struct sy_http_server *http;
    struct sy_rpc_server *rpc;
    struct sy_grpc_server *grpc;
    struct sim_connection *connections;
    int n_connections;
} fronts;

uint64_t sim_front_draw(uint64_t n)
{
    return (seed_next(&fronts.random) >> 16) % n;
}

bool sim_front_is_wild(void)
{
    return fronts.wild;
}

bool sim_front_is_fine(void)
{
    return fronts.fine;
}

/* ---- connections -------------------------------------------------------------------------------- */

static void connect_one(void)
{
    struct sim_connection *c = calloc(1, sizeof *c);
    int fds[2], room = ROOM_BYTES;
    SIM_CHECK(c && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0,
              "no connection");
    for (int i = 0; i < 2; i++)
        setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    *c = (struct sim_connection){.number = ++fronts.n_made,
                                 .protocol = (enum sim_protocol)sim_front_draw(SIM_N_PROTOCOLS),
                                 .fd = fds[1],
                                 .by_bytes = fronts.fine && sim_front_draw(3) == 0,
                                 .clean_ns = sim_os_now(),
                                 .next = fronts.connections};
    fronts.connections = c;
    fronts.n_connections++;
    int status = c->protocol == SIM_HTTP  ? sy_http_connection_create(fronts.http, fds[0])
                 : c->protocol == SIM_RPC ? sy_rpc_connection_create(fronts.rpc, fds[0], true)
                                          : sy_grpc_connection_create(fronts.grpc, fds[0]);
    SIM_CHECK(status == SY_OK, "%s", sy_error_text());
    if (c->protocol == SIM_GRPC)
        sim_front_grpc_open(c);
    sim_say("connection %llu: %s", (unsigned long long)c->number,
            (const char *const[]){"HTTP", "RPC", "gRPC"}[c->protocol]);
}

static void drop(struct sim_connection *c)
{
    struct sim_connection **at = &fronts.connections;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    fronts.n_connections--;
    close(c->fd);
    while (c->asks) {
        struct sim_ask *next = c->asks->next;
        sim.n_front_left++;
        sim_front_grpc_free(c->asks);
        free(c->asks);
        c->asks = next;
    }
    nghttp2_session_del(c->session);
    free(c);
}

/* HT4, GR7: a client that kept to its limits, and only sends no more. */
static void check_half_closed(const struct sim_connection *c)
{
    bool is_checked = c->protocol == SIM_HTTP || (c->protocol == SIM_GRPC && !fronts.wild);
    for (const struct sim_ask *a = c->asks; a && c->half_closed && is_checked; a = a->next)
        SIM_CHECK(
            a->end == 0 || a->end > c->n_taken || c->nonsense || c->ends ||
                sim_os_now() > c->clean_ns + STALL_NS,
            "connection %llu: half-closed, and request %llu, which was whole, is not answered",
            (unsigned long long)c->number, (unsigned long long)a->id);
}

/* The server has ended it: for what the client did, or for its slowness. */
static void ended(struct sim_connection *c)
{
    SIM_CHECK(c->half_closed || c->nonsense || c->ends || sim_os_now() > c->clean_ns + STALL_NS,
              "connection %llu: ended by the server, %.6f s after nobody waited",
              (unsigned long long)c->number, (double)(sim_os_now() - c->clean_ns) / 1e9);
    check_half_closed(c);
    sim_say("connection %llu: ended by the server", (unsigned long long)c->number);
    sim.n_front_ended++;
    drop(c);
}

/* ---- what clients do ---------------------------------------------------------------------------- */

static void ask(struct sim_connection *c)
{
    static const char *const models[] = {"a", "b", "none"};
    struct sim_ask *a = calloc(1, sizeof *a), **end = &c->asks;
    int n = 0;
    for (; *end; end = &(*end)->next)
        n++;
    SIM_CHECK(a, "no memory");
    a->id = ++fronts.last_ask;
    a->rows = (int)sim_front_draw(SIM_ASK_ROWS + 1);
    for (int i = 0; i < a->rows * FAKE_ROW; i++)
        a->x[i] = (float)sim_front_draw(1000);
    const char *model = models[sim_front_draw(20) ? sim_front_draw(2) : 2];
    if (n >= MOST_ASKS || c->half_closed || c->nonsense || !sim_front_ask(c, a, model)) {
        free(a);
        return;
    }
    if (end == &c->asks)
        c->clean_ns = sim_os_now();
    *end = a;
    sim_say("connection %llu: asks %s, %d rows, request %llu", (unsigned long long)c->number, model,
            a->rows, (unsigned long long)a->id);
}

static void send_some(struct sim_connection *c, size_t most)
{
    sim_front_grpc_say(c);
    ssize_t sent = c->n_said ? send(c->fd, c->said, SY_MIN(c->n_said, most), MSG_NOSIGNAL) : 0;
    size_t n = sent > 0 ? (size_t)sent : 0;
    if (sent < 0 && errno != EAGAIN)
        n = c->n_said; /* the server has ended it, which is seen behind what it had answered */
    c->n_sent += n;
    c->n_taken += sent > 0 ? n : 0;
    c->n_said -= n;
    memmove(c->said, c->said + n, c->n_said);
}

/* False: the connection is gone. */
static bool read_some(struct sim_connection *c, size_t most)
{
    ssize_t n = recv(c->fd, c->read + c->n_read, SY_MIN(most, sizeof c->read - c->n_read), 0);
    if (n < 0 && errno == EAGAIN)
        return true;
    if (n <= 0) {
        ended(c);
        return false;
    }
    c->n_read += (size_t)n;
    while (sim_front_take_answer(c))
        ;
    return true;
}

static void half_close(struct sim_connection *c)
{
    sim_say("connection %llu: half-closed", (unsigned long long)c->number);
    shutdown(c->fd, SHUT_WR);
    c->half_closed = true;
    c->n_said = 0;
}

static void act(struct sim_connection *c)
{
    uint64_t roll = sim_front_draw(1000);
    if (fronts.wild && c->protocol == SIM_GRPC && sim_front_draw(12) == 0) {
        sim_front_grpc_misbehave(c);
    } else if (roll < 300) {
        ask(c);
    } else if (roll < 650) {
        send_some(c, c->by_bytes ? 1 : 1 + sim_front_draw(sim_front_draw(2) ? 40 : SIM_SAID_BYTES));
    } else if (roll < 980) {
        read_some(c, 1 + sim_front_draw(sim_front_draw(2) ? 100 : SIM_READ_BYTES));
    } else if (roll < 986) {
        half_close(c);
    } else if (roll < 990 && !c->half_closed) {
        sim_front_talk_nonsense(c);
    } else if (roll < 994 && c->protocol == SIM_GRPC) {
        sim_front_grpc_reset(c);
    } else if (roll >= 994) {
        sim_say("connection %llu: vanishes", (unsigned long long)c->number);
        drop(c);
    }
}

/* Nobody asks any more: says the rest, reads, leaves. */
static void end_one(struct sim_connection *c)
{
    send_some(c, SIM_SAID_BYTES);
    if (read_some(c, SIM_READ_BYTES) && !c->asks)
        drop(c);
}

/* Whoever still waits a second after the last fault may do so for the longest limit of a worker, minutes: they look less often. */
static sy_ns pace(void)
{
    if (fronts.calm && sim_os_now() > fronts.calm_ns + SY_NS_PER_S)
        return 100 * PACE_NS;
    return fronts.fine ? PACE_NS / 8 : PACE_NS;
}

void sim_front_happen(void)
{
    struct sim_connection *c = fronts.connections, *next;
    fronts.next_ns = sim_os_now() + 1 + sim_front_draw(2 * pace());
    if (fronts.calm) {
        for (; c; c = next) {
            next = c->next;
            if (fronts.wild && c->protocol == SIM_GRPC && !c->nonsense)
                sim_front_grpc_end(c);
            end_one(c);
        }
        return;
    }
    if (fronts.n_connections == 0 ||
        (fronts.n_connections < MOST_CONNECTIONS && sim_front_draw(60) == 0)) {
        connect_one();
        return;
    }
    for (uint64_t k = sim_front_draw((uint64_t)fronts.n_connections); k > 0; k--)
        c = c->next;
    act(c);
}

sy_ns sim_front_next(void)
{
    bool any = fronts.open && (!fronts.calm || fronts.connections);
    return any ? fronts.next_ns : SIM_NEVER;
}

/* ---- what must hold ----------------------------------------------------------------------------- */

void sim_front_look(void)
{
    const struct sy_http_connection *http;
    const struct sy_rpc_connection *rpc;
    const struct sy_grpc_connection *grpc;
    const struct sy_grpc_stream *stream;

    if (!fronts.open)
        return;
    LIST_FOREACH (http, &fronts.http->connections, link)
        SIM_CHECK(http->held_used <= SY_HTTP_HELD_BYTES, "an HTTP connection holds %u bytes",
                  http->held_used);
    LIST_FOREACH (rpc, &fronts.rpc->connections, link) {
        SIM_CHECK(rpc->n_outstanding <= fronts.rpc->limits.max_outstanding,
                  "an RPC connection has %d requests", rpc->n_outstanding);
        SIM_CHECK(rpc->used <= rpc->capacity,
                  "an RPC connection has read more than it has room for");
    }
    LIST_FOREACH (grpc, &fronts.grpc->connections, link)
        LIST_FOREACH (stream, &grpc->streams, link)
            SIM_CHECK(stream->n_infers <= 1, "a call has %d requests", stream->n_infers);
    SIM_CHECK(fronts.grpc->budget.used_bytes <= fronts.grpc->budget.most_bytes &&
                  fronts.http->buffered_bytes <= fronts.http->limits.buffered_bytes &&
                  fronts.rpc->buffered_bytes <= fronts.rpc->limits.buffered_bytes,
              "more is buffered than may be");
}

void sim_front_calm(void)
{
    fronts.calm = true;
    fronts.calm_ns = sim_os_now();
}

bool sim_front_is_over(void)
{
    return !fronts.open ||
           (!fronts.connections && fronts.http->base.refs == 1 && fronts.rpc->base.refs == 1 &&
            fronts.grpc->base.refs == 1 && fronts.grpc->budget.used_bytes == 0 &&
            fronts.http->buffered_bytes == 0 && fronts.rpc->buffered_bytes == 0);
}

/* ---- open, close -------------------------------------------------------------------------------- */

void sim_front_open(uint64_t seed)
{
    const struct sy_http_config http = {.address = "127.0.0.1:0",
                                        .limits = {.buffered_bytes = 64u << 10,
                                                   .idle_ns = STALL_NS,
                                                   .header_ns = STALL_NS,
                                                   .stall_ns = STALL_NS}};
    const struct sy_rpc_config rpc = {
        .limits = {.buffered_bytes = 256u << 10, .max_outstanding = 3, .stall_ns = STALL_NS}};
    const struct sy_grpc_config grpc = {.address = "127.0.0.1:0",
                                        .limits = {.buffered_bytes = 64u << 10,
                                                   .max_streams = SIM_GRPC_STREAMS,
                                                   .idle_ns = STALL_NS,
                                                   .header_ns = STALL_NS,
                                                   .stall_ns = STALL_NS}};
    memset(&fronts, 0, sizeof fronts);
    fronts.random = seed * 2654435761u + 1;
    fronts.wild = seed % 4 == 1; /* the others are as they were before there was any such client */
    fronts.fine = seed % 8 == 5;
    fronts.next_ns = sim_os_now();
    fronts.front = (struct sy_front){.base = sim.rig.base,
                                     .handlers = &sy_core_own_handlers,
                                     .core = sim.core,
                                     .is_ready = true};
    SIM_CHECK(sy_http_server_create(&http, &fronts.front, &fronts.http) == SY_OK &&
                  sy_http_protocol_add(fronts.http, &fronts.front) == SY_OK &&
                  sy_rpc_server_create(&rpc, &fronts.front, &fronts.rpc) == SY_OK &&
                  sy_grpc_server_create(&grpc, &fronts.front, &fronts.grpc) == SY_OK,
              "%s", sy_error_text());
    fronts.open = true;
}

void sim_front_close(void)
{
    if (!fronts.open)
        return;
    while (fronts.connections)
        drop(fronts.connections);
    sy_http_server_destroy(fronts.http);
    sy_rpc_server_destroy(fronts.rpc);
    sy_grpc_server_destroy(fronts.grpc);
    fronts.open = false;
}
