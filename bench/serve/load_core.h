/* A load generator's loop, whatever the protocol: connections, when requests are sent, what is counted.
 *
 *   rate 0   closed loop: each connection sends its next request when it has its answer
 *   rate R   open loop: request k is due at start + k / R, whoever is late; it is sent on a free connection, or waits for one. Its latency counts
 *            from when it was due, so a server that stalls is charged for all that had to wait (no coordinated omission)
 *
 * One thread. It spins while a request is due within SPIN_NS: give it a core of its own. */
#ifndef SY_BENCH_LOAD_CORE_H
#define SY_BENCH_LOAD_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/clock.h"

struct load;

struct load_connection {
    struct load *load;
    int fd;
    void *state; /* private to the protocol */
    bool busy, wants_write;
    sy_ns due_ns; /* of the request in flight */
};

/* A protocol's functions. All return 0, or -1 after load_fail. */
struct load_protocol {
    int (*open)(
        struct load_connection *connection); /* connected; may send the protocol's greeting */
    int (*start)(struct load_connection *connection); /* begins a request; the loop flushes */
    /* Writes as much as the socket accepts; sets wants_write if bytes are left. */
    int (*flush)(struct load_connection *connection);
    /* Reads what is available; calls load_answered for each answer. */
    int (*receive)(struct load_connection *connection);
    void (*close)(struct load_connection *connection);
};

struct load_options {
    const char *host, *port;
    int n_connections;
    double seconds, warm_up_seconds, rate;
    void *context; /* private to the protocol */
};

/* Parses the options that all generators share; passes others to `extra(name, value)`. Exits on bad usage. */
void load_parse(int argc, char **argv, struct load_options *options,
                bool (*extra)(void *context, const char *name, const char *value));
/* Runs and prints a line of JSON: n (latencies), errors, error (the first), unserved (due, and never sent: their latency is what they waited at least), rps
 * (answers a second), mean_us, min_us, p50_us, p90_us, p99_us, p999_us, max_us, late_p99_us (how late requests were sent), stalled_ms (how
 * long this process stood still: the kernel or the virtual machine's host had its core), and smooth_n, smooth_p99_us, smooth_max_us: of the requests
 * in whose time it did not stand still, nor was sending what had become due meanwhile on connections that were free; null where there was none. A stop
 * of the server stays in these only if no stall of this process fell into it: they are a lower bound of the server's tail. The exit status: 0, 1 if nothing
 * could be measured. */
int load_run(const struct load_options *options, const struct load_protocol *protocol);

void *load_context(const struct load_connection *connection);
/* Reports the answer to the request in flight. */
void load_answered(struct load_connection *connection, bool right);
/* Records the first error's reason. Returns -1. */
int load_fail(struct load_connection *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads the whole file, malloc'd; exits when it cannot be read. */
char *load_file(const char *path, size_t *bytes);

#endif
