/* Work on what others wrote, in a process of its own that can reach nothing else (runtime/sandbox). Whatever becomes of that process,
 * there is a status and a reason: it crashed, took too long, wanted too much memory. */
#ifndef SY_CLI_CONFINED_H
#define SY_CLI_CONFINED_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/sandbox/sandbox.h"

struct sy_confined {
    const char *what; /* "the import": for the reason */
    struct sy_sandbox_paths paths;
    uint64_t memory_bytes; /* 0: three quarters of what the machine, or its cgroup, has */
    uint64_t file_bytes;   /* of what it writes; at least as much as memory_bytes is allowed */
    sy_ns limit_ns;        /* 0: an hour */
    bool is_open; /* no sandbox but the process: a GPU's driver needs more than can be listed */
};

/* work(ctx) in the child; prepare(ctx) there too, before it is confined (NULL: none). What both return is returned, its error text is the
 * caller's. The calling process has one thread. EIO: the child ended without an answer, ENOMEM_HOST, or took too long (EDEADLINE). SIGINT and SIGTERM end the
 * child first and then the caller, by cleanup(ctx) (NULL: none) in between. */
int sy_cli_confined(const struct sy_confined *how, int (*prepare)(void *ctx),
                    int (*work)(void *ctx), void (*cleanup)(void *ctx), void *ctx);

#endif
