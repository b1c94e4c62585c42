/* Options of `serve`, from its command line and its file, and its state while it runs. */
#ifndef SY_CLI_SERVE_OPTIONS_H
#define SY_CLI_SERVE_OPTIONS_H

#include <jansson.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/cli/cli.h"
#include "runtime/cli/config/serve_conf.h"
#include "runtime/cli/serve_fronts.h"
#include "runtime/core/core.h"
#include "runtime/front/rpc/rpc_server.h"
#include "runtime/keeper/keeper.h"
#include "runtime/repository/package_arrivals.h"
#include "runtime/repository/repository.h"

#define SY_SERVE_MAX_PACKAGES 256
#define SY_SERVE_MAX_JOBS     16
#define SY_SERVE_MAX_STARTUP  256

struct sy_serve {
    struct sy_core_config core_config;
    struct sy_rpc_config rpc_config;
    struct sy_link_cost link;
    bool measured_link; /* by this server, not an earlier one */
    int64_t warm_batches[8];
    int n_threads;
    char threads_cores[8 * CPU_SETSIZE];
    json_t *slices;                                  /* of the "slices" call; NULL: not given */
    const char *for_jobs, *for_models, *for_runtime; /* NULL: not given */
    const char *policy, *jobs[SY_SERVE_MAX_JOBS], *startup[SY_SERVE_MAX_STARTUP];
    struct sy_repository_config repository_config; /* folder NULL: none */
    bool strict;
    int n_packages, n_jobs, n_loading, ready_fd, result;
    const char *packages[SY_SERVE_MAX_PACKAGES]; /* files, URLs */
    struct event_base *base;
    struct sy_core *core;
    struct sy_serve_fronts fronts;
    struct sy_repository *repository;
    struct sy_arrivals_config arrivals_config; /* folder NULL: no package is fetched */
    struct sy_arrivals *arrivals;
    struct sy_rpc_server *rpc;
    struct sy_keeper *keeper; /* NULL: the image is the core's own */
    int64_t keep_seconds;
    bool keeps_on_stop;
    bool draining, prints_config, checks_config;
    struct { /* answers on their way, when all else has ended */
        struct event *timer;
        uint64_t unsent_bytes;
        sy_ns begun_ns, moved_ns; /* moved_ns: a client has taken some */
    } flush;
    int argc; /* the command line, to be read again on SIGHUP */
    char **argv;
    struct sy_conf *conf;      /* that options point into; NULL: none */
    struct sy_conf *last_conf; /* as SIGHUP found it last; NULL: `conf` still */
    char why[512];             /* it ends; said last, below what is logged while it drains */
};

/* Its rows fill a struct sy_serve. */
extern const struct sy_cli_fields sy_serve_options;

/* NULL: no memory. argv outlives it. */
struct sy_serve *sy_serve_create(int argc, char **argv);
/* The options' memory alone: what runs is ended before. */
void sy_serve_destroy(struct sy_serve *serve);
/* The file first, then the command line, which counts. As sy_cli_read. */
int sy_serve_read_options(struct sy_serve *serve);

#endif
