/* serve: puts the core, the RPC server and the models together, and runs the loop until a signal. */
#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "loader/package/package.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/service_manager.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/config/serve_conf.h"
#include "runtime/cli/config/serve_watchdog.h"
#include "runtime/cli/link_probe.h"
#include "runtime/cli/serve_fronts.h"
#include "runtime/cli/serve_values.h"
#include "runtime/core/core.h"
#include "runtime/device/device.h"
#include "runtime/front/rpc/rpc_server.h"
#include "runtime/repository/repository.h"
#include "runtime/sched/policy.h"
#include "workers/job/job.h"

#define MAX_PACKAGES   256
#define MAX_JOBS       16
#define MAX_STARTUP    256
#define MAX_DELAY_MS   1e6
#define POLL_US        50 /* runtime/core/README.md, "Polling" */
#define DRAIN_GRACE_NS (20 * SY_NS_PER_S)

struct package_path {
    char path[1024], name[128]; /* name "": the package's own */
};

struct serve {
    struct sy_core_config core_config;
    struct sy_rpc_config rpc_config;
    struct sy_link_cost link;
    int64_t warm_batches[8];
    int n_threads;
    char threads_cores[8 * CPU_SETSIZE];
    const char *policy, *jobs[MAX_JOBS], *startup[MAX_STARTUP];
    struct sy_repository_config repository_config; /* folder NULL: none */
    bool strict;
    int n_packages, n_jobs, n_loading, ready_fd, result;
    struct package_path packages[MAX_PACKAGES];
    struct event_base *base;
    struct sy_core *core;
    struct sy_serve_fronts fronts;
    struct sy_repository *repository;
    struct sy_rpc_server *rpc;
    bool draining, prints_config;
    int argc; /* the command line, to be read again on SIGHUP */
    char **argv;
    struct sy_conf *conf;      /* that options point into; NULL: none */
    struct sy_conf *last_conf; /* as SIGHUP found it last; NULL: `conf` still */
    char why[512];             /* it ends; said last, below what is logged while it drains */
};

static const struct sy_cli_option options[] = {
    {"models", "DIR",
     "models laid out as Triton's, NAME/VERSION/model.onnx or model.sypkg, and NAME/config.pbtxt; "
     "what has no up-to-date package is imported first"},
    {"package", "FILE", "one package; may be given again"},
    {"device", "SPEC",
     "host, or emulated[,link-gbps=12.3][,link-alpha-us=10], or cuda:N; default host"},
    {"pool-bytes", "SIZE", "device memory: 400M is 400*10^6, 400Mi is 400*2^20"},
    {"image-bytes", "SIZE", "host image of a discrete device"},
    {"slab-bytes", "SIZE", "memory of request and response tensors; default 256Mi"},
    {"workers", "N",
     "worker processes, 2 to 64; each job that trains has one, the last is left to requests, so N "
     "- 1 train at "
     "once and others wait; default 4"},
    {"threads", "N", "compute threads; default: all cores that may be used, less the link's"},
    {"cores", "LIST", "compute cores, as 0-3"},
    {"socket", "PATH",
     "Unix socket, also as unix:PATH; default $XDG_RUNTIME_DIR/switchyard.sock or "
     "/tmp/switchyard-UID.sock"},
    {"tcp", "HOST:PORT",
     "also listen on TCP, for other machines (switchyard attach, --server tcp:HOST:PORT); :PORT is "
     "127.0.0.1; beyond this machine only with --token-file"},
    {"state", "DIR", "remember training jobs, and the rules that are set, here"},
    {"warm-batches", "LIST", "batch sizes prepared when a model is loaded; default 1"},
    {"train", "JOB.json", "start this training job; may be given again"},
    {"grouping", "KIND", "planned, per_layer or whole; for comparison"},
    {"hang-timeout", "SECONDS", "a worker without a heartbeat for so long is replaced; default 10"},
    {"no-prefetch", NULL, "bring no heads of models into the pool while no request runs"},
    {"whole-models", NULL,
     "no heads: evict whole models, least recently used first; for comparison"},
    {"ready-fd", "N", "write \"ready\" to this fd too"},
    {"max-delay-ms", "N",
     "while the device is busy, gather requests for a model for so long into one run; default 0: "
     "never"},
    {"max-batch", "N", "rows of such a run; default 8"},
    {"policy", "NAME",
     "among training jobs, one of" SY_POLICY_WORDS "; default: as --state remembers, else fair"},
    {"model-control", "MODE",
     "none: the folder of --models is read at start; poll: again and again; explicit: a model is "
     "loaded by 'models load' only; default none"},
    {"poll-seconds", "N", "with poll: how often; default 15"},
    {"load-model", "NAME", "with explicit: loaded at start; may be given again; '*': all"},
    {"strict", NULL, "a model of --models that cannot be loaded ends the server"},
    {"import-limit", "SECONDS", "an import that takes longer is ended; default 3600"},
    {"poll-us", "N",
     "after a request its worker looks for the next one so long before it sleeps; never while a "
     "job trains; default 50, and 0, "
     "never, on one core"},
    {"config", "FILE",
     "these options from a TOML file, each by its name; the command line counts where both say "
     "something; read again on SIGHUP, which logs what changed and what needs a restart"},
    {"print-config", NULL, "print such a file with all options, each commented out, and end"},
    {"socket-mode", "OCTAL", "of the Unix socket; default 600, with --socket-group 660"},
    {"socket-group", "GROUP", "of the Unix socket: its members may connect"},
    {"socket-rights", "RIGHTS",
     "of other users than this one and root there; default infer,models,jobs"},
    SY_SERVE_FRONT_OPTIONS,
    {NULL, NULL, NULL}};

/* ---- options ------------------------------------------------------------------------------------------- */

static int add_package(struct serve *serve, const char *path, const char *name)
{
    if (serve->n_packages == MAX_PACKAGES)
        return sy_error_set(SY_EARG, "more than %d models", MAX_PACKAGES);
    if (strlen(path) >= sizeof(serve->packages[0].path) ||
        strlen(name) >= sizeof(serve->packages[0].name))
        return sy_error_set(SY_EARG, "path or name too long: %s", path);
    strcpy(serve->packages[serve->n_packages].path, path);
    strcpy(serve->packages[serve->n_packages++].name, name);
    return SY_OK;
}

static int set_batches(struct serve *serve, const char *text)
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

static int set_hang_timeout(struct serve *serve, const char *value)
{
    double seconds;

    SY_TRY(sy_cli_real(value, &seconds));
    if (seconds < 0.1 || seconds > 1e6)
        return sy_error_set(SY_EARG, "\"%s\" is no time from 0.1 to 1e6 seconds", value);
    serve->core_config.hang_timeout_ns = (uint64_t)(seconds * 1e9);
    return SY_OK;
}

static int set_control(struct serve *serve, const char *value)
{
    static const char *const names[] = {"none", "poll", "explicit"};

    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
        if (strcmp(value, names[i]) == 0) {
            serve->repository_config.control = (enum sy_repository_control)i;
            return SY_OK;
        }
    return sy_error_set(SY_EARG, "\"%s\" is not none, poll or explicit", value);
}

static int add_startup(struct serve *serve, const char *value)
{
    if (serve->repository_config.n_startup_models == MAX_STARTUP)
        return sy_error_set(SY_EARG, "more than %d of them; '*' is all", MAX_STARTUP);
    serve->startup[serve->repository_config.n_startup_models++] = value;
    return SY_OK;
}

static int add_job(struct serve *serve, const char *value)
{
    if (serve->n_jobs == MAX_JOBS)
        return sy_error_set(SY_EARG, "more than %d jobs", MAX_JOBS);
    serve->jobs[serve->n_jobs++] = value;
    return SY_OK;
}

/* By the order of `options`. */
static int set_option(struct serve *serve, int index, const char *value)
{
    struct sy_core_config *core = &serve->core_config;
    enum sy_policy_kind policy;
    double ms;

    switch (index) {
    case 0:
        return sy_serve_set_text(&serve->repository_config.folder, value);
    case 1:
        return add_package(serve, value, "");
    case 2:
        return sy_serve_set_text(&core->device, value);
    case 3:
        return sy_serve_set_bytes(value, &core->pool_bytes);
    case 4:
        return sy_serve_set_bytes(value, &core->image_bytes);
    case 5:
        return sy_serve_set_bytes(value, &core->slab_bytes);
    case 6:
        return sy_serve_set_count(value, 64, &core->n_workers);
    case 7:
        return sy_serve_set_count(value, CPU_SETSIZE, &serve->n_threads);
    case 8:
        return sy_serve_set_text(&core->cores, value);
    case 9:
        return sy_serve_set_text(&serve->rpc_config.socket_path,
                                 strncmp(value, "unix:", 5) == 0 ? value + 5 : value);
    case 10:
        return sy_serve_set_text(&serve->rpc_config.tcp_address, value);
    case 11:
        return sy_serve_set_text(&core->state_folder, value);
    case 12:
        return set_batches(serve, value);
    case 13:
        return add_job(serve, value);
    case 14:
        return sy_serve_set_text(&core->grouping, value);
    case 15:
        return set_hang_timeout(serve, value);
    case 16:
        core->fetch_heads = false;
        return SY_OK;
    case 17:
        core->whole_models = true;
        return SY_OK;
    case 18:
        return sy_serve_set_count(value, 1 << 20, &serve->ready_fd);
    case 19:
        SY_TRY(sy_cli_real(value, &ms));
        core->max_delay_ns = (uint64_t)(SY_MIN(ms, MAX_DELAY_MS) * 1e6);
        return ms <= MAX_DELAY_MS
                   ? SY_OK
                   : sy_error_set(SY_EARG, "\"%s\" is more than %g", value, MAX_DELAY_MS);
    case 20:
        return sy_serve_set_count(value, 1024, &core->max_batch);
    case 21:
        serve->policy = value;
        return sy_policy_parse(value, &policy);
    case 22:
        return set_control(serve, value);
    case 23:
        return sy_serve_set_seconds(value, &serve->repository_config.poll_ns);
    case 24:
        return add_startup(serve, value);
    case 25:
        serve->strict = true;
        return SY_OK;
    case 26:
        return sy_serve_set_seconds(value, &serve->repository_config.importer.limit_ns);
    case 27:
        return sy_serve_set_poll(value, &core->poll_us);
    case 28: /* was read before (sy_serve_conf_path) */
        return SY_OK;
    case 29:
        serve->prints_config = true;
        return SY_OK;
    case 30:
        return sy_serve_set_mode(value, &serve->rpc_config.socket_mode);
    case 31:
        return sy_serve_set_text(&serve->rpc_config.socket_group, value);
    case 32:
        return sy_serve_set_text(&serve->fronts.access.socket_rights, value);
    default:
        return sy_serve_fronts_option(&serve->fronts, options[index].name, value);
    }
}

static int take_option(void *ctx, int index, const char *value)
{
    return set_option(ctx, index, value);
}

/* That this process may use; polling on the only one would keep whoever is waited for from it. */
static int n_own_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : get_nprocs();
}

/* NULL: no memory. */
static struct serve *create_serve(int argc, char **argv)
{
    struct serve *serve = calloc(1, sizeof(*serve));

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

static void destroy_serve(struct serve *serve)
{
    sy_conf_destroy(serve->last_conf);
    sy_conf_destroy(serve->conf);
    free(serve);
}

/* The file first, then the command line, which counts. SY_CLI_END, HELP or BAD, which was said. */
static int read_options(struct serve *serve)
{
    struct sy_cli_parser parser = {
        "serve [options]\n\nRuns the server until SIGTERM or SIGINT, "
        "which drain it. Prints \"ready\" when all models that are loaded at "
        "start are; one of --models that cannot be is listed with its "
        "reason, and the others are served (--strict: it ends the server).",
        options, serve->argc, serve->argv, 0};
    const char *path = sy_serve_conf_path(serve->argc, serve->argv), *value;
    int got;

    if (path && sy_serve_conf_read(path, options, take_option, serve, &serve->conf) < 0) {
        sy_cli_usage("%s", sy_error_text());
        return SY_CLI_BAD;
    }
    while ((got = sy_cli_next(&parser, &value)) >= 0)
        if (set_option(serve, got, value) < 0) {
            sy_cli_usage("--%s: %s", options[got].name, sy_error_text());
            return SY_CLI_BAD;
        }
    if (got == SY_CLI_WORD) {
        sy_cli_usage("serve takes no words: %s", value);
        return SY_CLI_BAD;
    }
    return got;
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

static void drained(void *ctx)
{
    event_base_loopexit(((struct serve *)ctx)->base, NULL);
}

static void stop(struct serve *serve)
{
    if (!serve->draining)
        sy_core_drain(serve->core, DRAIN_GRACE_NS, drained, serve);
    if (!serve->draining)
        sy_service_notify("STOPPING=1\nSTATUS=draining");
    serve->draining = true;
    serve->fronts.front.is_ready = false;
    sy_serve_fronts_drain(&serve->fronts);
}

static void on_signal(evutil_socket_t number, short what, void *ctx)
{
    (void)what;
    sy_log_info("serve", "event=drain signal=%d", (int)number);
    stop(ctx);
}

static void loaded(void *ctx, int status, const char *error)
{
    struct serve *serve = ctx;

    if (status < 0) {
        if (!serve->result)
            snprintf(serve->why, sizeof(serve->why), "%s",
                     error && *error ? error : sy_status_text(status));
        serve->result = 1;
        stop(serve);
    }
    if (--serve->n_loading > 0 || serve->result)
        return;
    sy_core_hold_jobs(serve->core, false);
    serve->fronts.front.is_ready = true;
    sy_service_notify("READY=1\nSTATUS=ready");
    printf("ready\n");
    fflush(stdout);
    if (serve->ready_fd >= 0 && write(serve->ready_fd, "ready\n", 6) != 6)
        sy_log_warn("serve", "event=ready_fd why=\"nobody reads it\"");
}

/* Without --strict a model of the folder that is not loaded is listed as unavailable, and the rest is served. */
static void repository_started(void *ctx, int status, const char *error)
{
    struct serve *serve = ctx;

    loaded(ctx, serve->strict ? status : SY_OK, error);
}

static void job_started(void *ctx, int status, const char *error)
{
    (void)ctx;
    if (status < 0)
        sy_log_error("serve", "event=job_refused why=\"%s\"",
                     error ? error : sy_status_text(status));
}

static int start_job(struct serve *serve, const char *path)
{
    char *text = NULL;
    uint64_t id;
    SY_TRY(sy_job_load(path, &text));
    int status = sy_core_job_submit(serve->core, text, job_started, serve, &id);
    free(text);
    return status;
}

/* The first --threads of the cores that this process may use. */
static int choose_threads(struct serve *serve)
{
    size_t used = 0;
    cpu_set_t set;
    int n = 0;

    if (serve->n_threads == 0)
        return SY_OK;
    if (serve->core_config.cores)
        return sy_error_set(SY_EARG, "--threads and --cores: give one of them");
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int core = 0; core < CPU_SETSIZE && n < serve->n_threads; core++)
        if (CPU_ISSET(core, &set)) {
            used +=
                (size_t)snprintf(serve->threads_cores + used, sizeof(serve->threads_cores) - used,
                                 "%s%d", n ? "," : "", core);
            n++;
        }
    if (n < serve->n_threads)
        return sy_error_set(SY_EARG, "--threads %d: this process may use %d cores",
                            serve->n_threads, n);
    serve->core_config.cores = serve->threads_cores;
    return SY_OK;
}

/* What plans are made for; where it cannot be measured, the device's description stands in. */
static int measure_link(struct serve *serve)
{
    struct sy_device_spec spec;

    struct sy_device *device;

    SY_TRY(sy_device_spec_parse(serve->core_config.device, &spec));
    if (strcmp(spec.kind, "host") == 0)
        return SY_OK;
    SY_TRY(sy_device_open(&spec, &device)); /* one that is not there needs no measuring */
    sy_device_close(device);
    if (sy_link_probe(serve->core_config.device, &serve->link) < 0) {
        sy_log_warn("serve", "event=link_not_measured why=\"%s\"", sy_error_text());
        return SY_OK;
    }
    sy_log_info("serve",
                "event=link_measured gbps=%.2f alpha_us=%.2f sigma_us=%.2f lost_ns_per_byte=%.4f",
                serve->link.bytes_per_ns, serve->link.alpha_ns / 1e3, serve->link.sigma_ns / 1e3,
                serve->link.lost_ns_per_byte);
    serve->core_config.link = &serve->link;
    return SY_OK;
}

static int set_policy(struct serve *serve, const char *policy)
{
    json_t *params = json_pack("{s:s}", "policy", policy);
    int status = params ? sy_core_policy_set(serve->core, params)
                        : sy_error_set(SY_ENOMEM_HOST, "no memory for a policy");
    json_decref(params);
    return status;
}

static int start_repository(struct serve *serve)
{
    struct sy_repository_config *config = &serve->repository_config;

    if (!config->folder)
        return SY_OK;
    config->startup_models = serve->startup;
    config->device = serve->core_config.device;
    config->importer.is_imported = sy_cli_is_imported;
    config->importer.kept_precision = sy_cli_kept_precision;
    config->started = repository_started;
    config->ctx = serve;
    serve->n_loading++;
    SY_TRY(sy_repository_create(serve->base, config, &sy_core_own_handlers, serve->core,
                                &serve->repository));
    serve->fronts.front.repository = serve->repository;
    return SY_OK;
}

static int start(struct serve *serve)
{
    SY_TRY(sy_service_take());
    SY_TRY(choose_threads(serve));
    SY_TRY(measure_link(serve)); /* first: a device that is not there is all there is to say */
    SY_TRY(sy_core_create(serve->base, &serve->core_config, &serve->core));
    serve->fronts.front = (struct sy_front){
        .base = serve->base,
        .handlers = &sy_core_own_handlers,
        .core = serve->core,
        .state_folder = serve->core_config.state_folder,
        .models_folder = serve->repository_config.folder,
        .least_bytes_per_s = serve->fronts.least_bytes_per_s,
        .string_bytes = (int64_t)SY_MIN(serve->fronts.string_bytes, (uint64_t)INT64_MAX)};
    serve->fronts.front.job_paths = sy_job_each_path;
    SY_TRY(sy_serve_fronts_guard(&serve->fronts, serve->rpc_config.tcp_address));
    SY_TRY(sy_serve_fronts_start(&serve->fronts));
    SY_TRY(sy_rpc_server_create(&serve->rpc_config, &serve->fronts.front, &serve->rpc));
    SY_TRY(sy_service_all_taken());
    /* Jobs that were there before, or come meanwhile, would take the room that these models are sure to have beside jobs. */
    sy_core_hold_jobs(serve->core, true);
    serve->n_loading = serve->n_packages + 1;
    for (int i = 0; i < serve->n_packages; i++) {
        const struct package_path *package = &serve->packages[i];

        struct sy_core_model_options model = {.name = package->name};

        SY_TRY(sy_core_model_add(serve->core, package->path, &model, loaded, serve));
    }
    SY_TRY(start_repository(serve));
    if (serve->policy)
        SY_TRY(set_policy(serve, serve->policy));
    for (int i = 0; i < serve->n_jobs; i++)
        SY_TRY(start_job(serve, serve->jobs[i]));
    loaded(serve, SY_OK, NULL); /* the one more: ready also without models */
    return SY_OK;
}

/* ---- reload --------------------------------------------------------------------------------------------- */

/* What the running server takes over from the fresh options; the rest needs a restart. */
static bool is_live(const char *name)
{
    return strcmp(name, "policy") == 0 || strcmp(name, "string-bytes") == 0 ||
           sy_serve_fronts_is_limit(name);
}

static void apply_options(struct serve *serve, struct serve *fresh)
{
    const struct sy_conf *last = serve->last_conf ? serve->last_conf : serve->conf;

    sy_serve_conf_log_changes(last, fresh->conf, options, is_live);
    if (fresh->policy && sy_serve_conf_differs(last, fresh->conf, "policy") &&
        set_policy(serve, fresh->policy) < 0)
        sy_log_error("serve", "event=reload option=policy why=\"%s\"", sy_error_text());
    serve->fronts.front.string_bytes =
        (int64_t)SY_MIN(fresh->fronts.string_bytes, (uint64_t)INT64_MAX);
    sy_serve_fronts_set_limits(&serve->fronts, &fresh->fronts);
}

/* A file that is wrong changes nothing. */
static void on_reload(evutil_socket_t number, short what, void *ctx)
{
    struct serve *serve = ctx, *fresh = create_serve(serve->argc, serve->argv);

    (void)number, (void)what;
    sy_service_notify("RELOADING=1");
    if (!fresh) {
        sy_log_error("serve", "event=reload_failed why=\"no memory\"");
    } else if (read_options(fresh) != SY_CLI_END) {
        sy_log_error("serve", "event=reload_failed why=\"%s\"", sy_error_text());
    } else {
        apply_options(serve, fresh);
        sy_conf_destroy(serve->last_conf);
        serve->last_conf = fresh->conf;
        fresh->conf = NULL;
    }
    if (fresh)
        destroy_serve(fresh);
    sy_service_notify("READY=1");
}

/* Each connection and each shared region takes a descriptor. */
static void allow_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        sy_log_warn("serve", "event=descriptors why=\"%s\"", strerror(errno));
}

/* Until the loop is told to exit. Between two looks whoever else wants this core has it. */
static void run_loop(const struct serve *serve)
{
    int status = 0;

    while (status == 0 && !event_base_got_exit(serve->base)) {
        bool polls = sy_core_poll(serve->core);

        status = event_base_loop(serve->base, polls ? EVLOOP_NONBLOCK : EVLOOP_ONCE);
        if (polls)
            sched_yield();
    }
}

static int run(struct serve *serve)
{
    struct event *signals[3], *watchdog;
    int status;

    signal(SIGPIPE, SIG_IGN);
    allow_descriptors();
    serve->base = event_base_new();
    if (!serve->base)
        return sy_cli_fail("no event loop");
    signals[0] = evsignal_new(serve->base, SIGTERM, on_signal, serve);
    signals[1] = evsignal_new(serve->base, SIGINT, on_signal, serve);
    signals[2] = evsignal_new(serve->base, SIGHUP, on_reload, serve);
    status = start(serve);
    if (status < 0)
        serve->result = sy_cli_fail_status();
    for (int i = 0; i < (serve->conf ? 3 : 2); i++) /* without a file SIGHUP ends it, as usual */
        event_add(signals[i], NULL);
    watchdog = sy_serve_watchdog_create(serve->base);
    if (status == SY_OK)
        run_loop(serve);
    sy_serve_fronts_stop(&serve->fronts);
    sy_rpc_server_destroy(serve->rpc);
    sy_repository_destroy(serve->repository);
    sy_core_destroy(serve->core);
    sy_serve_fronts_finish(&serve->fronts);
    if (*serve->why)
        sy_cli_fail("%s", serve->why);
    for (int i = 0; i < 3; i++)
        event_free(signals[i]);
    if (watchdog)
        event_free(watchdog);
    event_base_free(serve->base);
    return serve->result;
}

int sy_cmd_serve(int argc, char **argv)
{
    struct serve *serve = create_serve(argc, argv);
    int got, result;

    if (!serve)
        return sy_cli_fail("no memory");
    got = read_options(serve);
    result = got == SY_CLI_HELP || serve->prints_config ? 0 : 2;
    if (got == SY_CLI_END && serve->prints_config)
        sy_serve_conf_print(options);
    else if (got == SY_CLI_END)
        result = run(serve);
    destroy_serve(serve);
    return result;
}
