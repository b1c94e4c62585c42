/* The options of `serve`. */
#include "runtime/cli/commands/serve_options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/cli/serve_values.h"
#include "runtime/sched/policy.h"

#define MAX_DELAY_MS     1e6
#define MAX_KEEP_SECONDS (7 * 86400)
#define POLL_US          50 /* runtime/core/README.md, "Polling" */

enum {
    O_MODELS,
    O_PACKAGE,
    O_DEVICE,
    O_POOL_BYTES,
    O_IMAGE_BYTES,
    O_SLAB_BYTES,
    O_WORKERS,
    O_THREADS,
    O_CORES,
    O_SOCKET,
    O_TCP,
    O_STATE,
    O_WARM_BATCHES,
    O_TRAIN,
    O_GROUPING,
    O_HANG_TIMEOUT,
    O_NO_PREFETCH,
    O_WHOLE_MODELS,
    O_READY_FD,
    O_MAX_DELAY_MS,
    O_MAX_BATCH,
    O_POLICY,
    O_MODEL_CONTROL,
    O_POLL_SECONDS,
    O_LOAD_MODEL,
    O_STRICT,
    O_IMPORT_LIMIT,
    O_POLL_US,
    O_CONFIG,
    O_PRINT_CONFIG,
    O_SOCKET_MODE,
    O_SOCKET_GROUP,
    O_SOCKET_RIGHTS,
    O_KEEP_IMAGE,
    O_KEEP_ON_STOP,
    O_FETCH_TO,
    O_FETCH_STALL
};
const struct sy_cli_option sy_serve_options[] = {
    [O_MODELS] = {"models", "DIR",
                  "models laid out as Triton's, NAME/VERSION/model.onnx or model.sypkg, and "
                  "NAME/config.pbtxt; "
                  "what has no up-to-date package is imported first"},
    [O_PACKAGE] = {"package", "FILE",
                   "one package, or with --fetch-to its URL; may be given again"},
    [O_DEVICE] = {"device", "SPEC",
                  "host, or emulated[,link-gbps=12.3][,link-alpha-us=10], or cuda:N, or cuda:UUID "
                  "of a GPU or MIG instance; default host"},
    [O_POOL_BYTES] = {"pool-bytes", "SIZE", "device memory: 400M is 400*10^6, 400Mi is 400*2^20"},
    [O_IMAGE_BYTES] = {"image-bytes", "SIZE", "host image of a discrete device"},
    [O_SLAB_BYTES] = {"slab-bytes", "SIZE",
                      "memory of request and response tensors; default 256Mi"},
    [O_WORKERS] = {"workers", "N",
                   "worker processes, 2 to 64; each job that trains has one, the last is left to "
                   "requests, so N "
                   "- 1 train at "
                   "once and others wait; default 4"},
    [O_THREADS] = {"threads", "N",
                   "compute threads; default: all cores that may be used, less the link's"},
    [O_CORES] = {"cores", "LIST", "compute cores, as 0-3"},
    [O_SOCKET] = {"socket", "PATH",
                  "Unix socket, also as unix:PATH; default $XDG_RUNTIME_DIR/switchyard.sock or "
                  "/tmp/switchyard-UID.sock"},
    [O_TCP] = {"tcp", "HOST:PORT",
               "also listen on TCP, for other machines (switchyard attach, --server "
               "tcp:HOST:PORT); :PORT is "
               "127.0.0.1; beyond this machine only with --token-file"},
    [O_STATE] = {"state", "DIR", "remember training jobs, and the rules that are set, here"},
    [O_WARM_BATCHES] = {"warm-batches", "LIST",
                        "batch sizes prepared when a model is loaded; default 1"},
    [O_TRAIN] = {"train", "JOB.json", "start this training job; may be given again"},
    [O_GROUPING] = {"grouping", "KIND", "planned, per_layer or whole; for comparison"},
    [O_HANG_TIMEOUT] =
        {"hang-timeout", "SECONDS",
         "a worker without a heartbeat for this time is replaced; default 10. While it "
         "loads: if it uses no CPU time for this time, at least 5 s, or computes on one "
         "model for six times as long, at least 300 s"},
    [O_NO_PREFETCH] = {"no-prefetch", NULL,
                       "do not prefetch heads of models into the pool while the device is idle"},
    [O_WHOLE_MODELS] = {"whole-models", NULL,
                        "no heads: evict whole models, least recently used first; for comparison"},
    [O_READY_FD] = {"ready-fd", "N", "write \"ready\" to this fd too"},
    [O_MAX_DELAY_MS] = {"max-delay-ms", "N",
                        "while the device is busy, gather requests for a model for this time into "
                        "one run; default 0: "
                        "never"},
    [O_MAX_BATCH] = {"max-batch", "N", "rows of such a run; default 8"},
    [O_POLICY] = {"policy", "NAME",
                  "among training jobs, one of" SY_POLICY_WORDS
                  "; default: as --state remembers, else fair"},
    [O_MODEL_CONTROL] =
        {"model-control", "MODE",
         "none: the folder of --models is read at start; poll: repeatedly; explicit: a model is "
         "loaded by 'models load' only; default none"},
    [O_POLL_SECONDS] = {"poll-seconds", "N", "with poll: how often; default 15"},
    [O_LOAD_MODEL] = {"load-model", "NAME",
                      "with explicit: loaded at start; may be given again; '*': all"},
    [O_STRICT] = {"strict", NULL, "a model of --models that cannot be loaded ends the server"},
    [O_IMPORT_LIMIT] = {"import-limit", "SECONDS",
                        "an import that takes longer is ended; default 3600"},
    [O_POLL_US] = {"poll-us", "N",
                   "how long a worker polls for the next request before it sleeps; never while a "
                   "job trains; default 50, and 0, "
                   "never, on one core"},
    [O_CONFIG] =
        {"config", "FILE",
         "these options from a TOML file, each by its name; the command line counts where "
         "both say "
         "something; read again on SIGHUP, which logs what changed and what needs a restart"},
    [O_PRINT_CONFIG] = {"print-config", NULL,
                        "print such a file with all options, each commented out, and end"},
    [O_SOCKET_MODE] = {"socket-mode", "OCTAL",
                       "of the Unix socket; default 600, with --socket-group 660"},
    [O_SOCKET_GROUP] = {"socket-group", "GROUP", "of the Unix socket: its members may connect"},
    [O_SOCKET_RIGHTS] = {"socket-rights", "RIGHTS",
                         "of other users than this one and root there; default infer,models,jobs"},
    [O_KEEP_IMAGE] =
        {"keep-image", "SECONDS",
         "of a discrete device: should this server be killed, a keeper process holds the host "
         "image "
         "for this time, and the next server with this --socket goes on with it; under systemd its "
         "descriptor "
         "store "
         "does; default 0: the image ends with the server"},
    [O_KEEP_ON_STOP] = {"keep-on-stop", NULL,
                        "with --keep-image: also when this server is stopped in order"},
    [O_FETCH_TO] = {"fetch-to", "DIR",
                    "packages may be loaded from http:// and https:// URLs, also by --package, and "
                    "are kept here; "
                    "a model takes requests once the package's head is there, and its first "
                    "layers compute while the last ones arrive; default: none are"},
    [O_FETCH_STALL] =
        {"fetch-stall", "SECONDS",
         "a source whose connection is silent for this time is asked again, twice, then the next "
         "one, then the model is unavailable; default 10"},
    SY_SERVE_FRONT_OPTIONS,
    {NULL, NULL, NULL}};

/* ---- options ------------------------------------------------------------------------------------------- */

static int add_package(struct sy_serve *serve, const char *path, const char *name)
{
    if (serve->n_packages == SY_SERVE_MAX_PACKAGES)
        return sy_error_set(SY_EARG, "more than %d models", SY_SERVE_MAX_PACKAGES);
    if (strlen(path) >= sizeof(serve->packages[0].path) ||
        strlen(name) >= sizeof(serve->packages[0].name))
        return sy_error_set(SY_EARG, "path or name too long: %s", path);
    strcpy(serve->packages[serve->n_packages].path, path);
    strcpy(serve->packages[serve->n_packages++].name, name);
    return SY_OK;
}

static int set_batches(struct sy_serve *serve, const char *text)
{
    char copy[128], *rest = copy, *word;

    snprintf(copy, sizeof(copy), "%s", text);
    serve->core_config.n_warm_batches = 0;
    while ((word = strsep(&rest, ","))) {
        if (serve->core_config.n_warm_batches == (int)SY_ARRAY_LEN(serve->warm_batches))
            return sy_error_set(SY_EARG, "at most 8 batch sizes");
        SY_TRY(sy_cli_integer(word, 1, 1024,
                              &serve->warm_batches[serve->core_config.n_warm_batches++]));
    }
    serve->core_config.warm_batches = serve->warm_batches;
    return SY_OK;
}

static int set_hang_timeout(struct sy_serve *serve, const char *value)
{
    double seconds;

    SY_TRY(sy_cli_real(value, &seconds));
    if (seconds < 0.1 || seconds > 1e6)
        return sy_error_set(SY_EARG, "\"%s\" is not a time from 0.1 to 1e6 seconds", value);
    serve->core_config.hang_timeout_ns = (uint64_t)(seconds * 1e9);
    return SY_OK;
}

static int set_control(struct sy_serve *serve, const char *value)
{
    static const char *const names[] = {"none", "poll", "explicit"};

    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
        if (strcmp(value, names[i]) == 0) {
            serve->repository_config.control = (enum sy_repository_control)i;
            return SY_OK;
        }
    return sy_error_set(SY_EARG, "\"%s\" is not none, poll or explicit", value);
}

static int add_startup(struct sy_serve *serve, const char *value)
{
    if (serve->repository_config.n_startup_models == SY_SERVE_MAX_STARTUP)
        return sy_error_set(SY_EARG, "more than %d of them; '*' is all", SY_SERVE_MAX_STARTUP);
    serve->startup[serve->repository_config.n_startup_models++] = value;
    return SY_OK;
}

static int add_job(struct sy_serve *serve, const char *value)
{
    if (serve->n_jobs == SY_SERVE_MAX_JOBS)
        return sy_error_set(SY_EARG, "more than %d jobs", SY_SERVE_MAX_JOBS);
    serve->jobs[serve->n_jobs++] = value;
    return SY_OK;
}

static int set_max_delay(struct sy_core_config *core, const char *value)
{
    double ms;
    SY_TRY(sy_cli_real(value, &ms));
    core->max_delay_ns = (uint64_t)(SY_MIN(ms, MAX_DELAY_MS) * 1e6);
    return ms <= MAX_DELAY_MS
               ? SY_OK
               : sy_error_set(SY_EARG, "\"%s\" is more than %g", value, MAX_DELAY_MS);
}

static int set_fetch_stall(struct sy_arrivals_config *arrivals, const char *value)
{
    SY_TRY(sy_cli_real(value, &arrivals->stall_s));
    return arrivals->stall_s >= 1 && arrivals->stall_s <= 3600
               ? SY_OK
               : sy_error_set(SY_EARG, "\"%s\" is not a time from 1 to 3600 seconds", value);
}

/* ---- by option ------------------------------------------------------------------------------------------ */

/* Destination of an option whose value is kept as text; NULL: another kind. */
static const char **text_option(struct sy_serve *serve, int index)
{
    struct sy_core_config *core = &serve->core_config;
    switch (index) {
    case O_MODELS:
        return &serve->repository_config.folder;
    case O_DEVICE:
        return &core->device;
    case O_CORES:
        return &core->cores;
    case O_TCP:
        return &serve->rpc_config.tcp_address;
    case O_STATE:
        return &core->state_folder;
    case O_GROUPING:
        return &core->grouping;
    case O_SOCKET_GROUP:
        return &serve->rpc_config.socket_group;
    case O_SOCKET_RIGHTS:
        return &serve->fronts.access.socket_rights;
    case O_FETCH_TO:
        return &serve->arrivals_config.folder;
    default:
        return NULL;
    }
}

static uint64_t *size_option(struct sy_core_config *core, int index)
{
    return index == O_POOL_BYTES    ? &core->pool_bytes
           : index == O_IMAGE_BYTES ? &core->image_bytes
           : index == O_SLAB_BYTES  ? &core->slab_bytes
                                    : NULL;
}

/* False: an option with a value. */
static bool set_flag(struct sy_serve *serve, int index)
{
    struct sy_core_config *core = &serve->core_config;
    switch (index) {
    case O_NO_PREFETCH:
        core->fetch_heads = false;
        return true;
    case O_WHOLE_MODELS:
        core->whole_models = true;
        return true;
    case O_STRICT:
        serve->strict = true;
        return true;
    case O_PRINT_CONFIG:
        serve->prints_config = true;
        return true;
    case O_KEEP_ON_STOP:
        serve->keeps_on_stop = true;
        return true;
    default:
        return false;
    }
}

static int set_option(struct sy_serve *serve, int index, const char *value)
{
    struct sy_core_config *core = &serve->core_config;
    enum sy_policy_kind policy;
    const char **text = text_option(serve, index);
    uint64_t *size = size_option(core, index);

    if (text)
        return sy_serve_set_text(text, value);
    if (size)
        return sy_serve_set_bytes(value, size);
    if (set_flag(serve, index))
        return SY_OK;
    switch (index) {
    case O_PACKAGE:
        return add_package(serve, value, "");
    case O_WORKERS:
        return sy_serve_set_count(value, 2, SY_CORE_MAX_WORKERS, &core->n_workers);
    case O_THREADS:
        return sy_serve_set_count(value, 1, CPU_SETSIZE, &serve->n_threads);
    case O_SOCKET:
        return sy_serve_set_text(&serve->rpc_config.socket_path,
                                 strncmp(value, "unix:", 5) == 0 ? value + 5 : value);
    case O_WARM_BATCHES:
        return set_batches(serve, value);
    case O_TRAIN:
        return add_job(serve, value);
    case O_HANG_TIMEOUT:
        return set_hang_timeout(serve, value);
    case O_READY_FD:
        return sy_serve_set_count(value, 1, 1 << 20, &serve->ready_fd);
    case O_MAX_DELAY_MS:
        return set_max_delay(core, value);
    case O_MAX_BATCH:
        return sy_serve_set_count(value, 1, 1024, &core->max_batch);
    case O_POLICY:
        serve->policy = value;
        return sy_policy_parse(value, &policy);
    case O_MODEL_CONTROL:
        return set_control(serve, value);
    case O_POLL_SECONDS:
        return sy_serve_set_seconds(value, &serve->repository_config.poll_ns);
    case O_LOAD_MODEL:
        return add_startup(serve, value);
    case O_IMPORT_LIMIT:
        return sy_serve_set_seconds(value, &serve->repository_config.importer.limit_ns);
    case O_POLL_US:
        return sy_serve_set_poll(value, &core->poll_us);
    case O_CONFIG: /* was read before (sy_serve_conf_path) */
        return SY_OK;
    case O_SOCKET_MODE:
        return sy_serve_set_mode(value, &serve->rpc_config.socket_mode);
    case O_KEEP_IMAGE:
        return sy_cli_integer(value, 0, MAX_KEEP_SECONDS, &serve->keep_seconds);
    case O_FETCH_STALL:
        return set_fetch_stall(&serve->arrivals_config, value);
    default:
        return sy_serve_fronts_option(&serve->fronts, sy_serve_options[index].name, value);
    }
}

static int take_option(void *ctx, int index, const char *value)
{
    return set_option(ctx, index, value);
}

/* That this process may use; polling on the only one would keep the awaited process from it. */
static int n_own_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : get_nprocs();
}

struct sy_serve *sy_serve_create(int argc, char **argv)
{
    struct sy_serve *serve = calloc(1, sizeof(*serve));

    if (!serve)
        return NULL;
    serve->argc = argc;
    serve->argv = argv;
    serve->ready_fd = -1;
    serve->core_config.fetch_heads = true;
    serve->core_config.device = "host";
    serve->core_config.poll_us = n_own_cores() > 1 ? POLL_US : 0;
    sy_serve_fronts_init(&serve->fronts);
    serve->rpc_config.socket_path = sy_cli_default_socket();
    return serve;
}

void sy_serve_destroy(struct sy_serve *serve)
{
    sy_conf_destroy(serve->last_conf);
    sy_conf_destroy(serve->conf);
    free(serve);
}

int sy_serve_read_options(struct sy_serve *serve)
{
    struct sy_cli_parser parser = {
        "serve [options]\n\nRuns the server until SIGTERM or SIGINT, "
        "which drain it. Prints \"ready\" when all models that are loaded at "
        "start are; one of --models that cannot be is listed with its "
        "reason, and the others are served (--strict: it ends the server).",
        sy_serve_options, serve->argc, serve->argv, 0};
    const char *path = sy_serve_conf_path(serve->argc, serve->argv), *value;
    int got;

    if (path && sy_serve_conf_read(path, sy_serve_options, take_option, serve, &serve->conf) < 0) {
        sy_cli_usage("%s", sy_error_text());
        return SY_CLI_BAD;
    }
    while ((got = sy_cli_next(&parser, &value)) >= 0)
        if (set_option(serve, got, value) < 0) {
            sy_cli_usage("--%s: %s", sy_serve_options[got].name, sy_error_text());
            return SY_CLI_BAD;
        }
    if (got == SY_CLI_WORD) {
        sy_cli_usage("serve takes no words: %s", value);
        return SY_CLI_BAD;
    }
    return got;
}
