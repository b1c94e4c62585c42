/* The options of `serve`. */
#include "runtime/cli/commands/serve_options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/cli/slice_words.h"
#include "runtime/sched/policy.h"

#define MOST_SECONDS     1e6
#define MAX_POLL_US      10000
#define MAX_KEEP_SECONDS (7 * 86400)
#define POLL_US          50 /* runtime/core/README.md, "Polling" */

static int add_package(void *command, const char *value)
{
    struct sy_serve *serve = command;

    if (serve->n_packages == SY_SERVE_MAX_PACKAGES)
        return sy_error_set(SY_EARG, "more than %d models", SY_SERVE_MAX_PACKAGES);
    serve->packages[serve->n_packages++] = value;
    return SY_OK;
}

static int set_batches(void *command, const char *text)
{
    struct sy_serve *serve = command;
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

static int set_control(void *command, const char *value)
{
    struct sy_serve *serve = command;
    static const char *const names[] = {"none", "poll", "explicit"};

    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
        if (strcmp(value, names[i]) == 0) {
            serve->repository_config.control = (enum sy_repository_control)i;
            return SY_OK;
        }
    return sy_error_set(SY_EARG, "\"%s\" is not none, poll or explicit", value);
}

static int add_startup(void *command, const char *value)
{
    struct sy_serve *serve = command;

    if (serve->repository_config.n_startup_models == SY_SERVE_MAX_STARTUP)
        return sy_error_set(SY_EARG, "more than %d of them; '*' is all", SY_SERVE_MAX_STARTUP);
    serve->startup[serve->repository_config.n_startup_models++] = value;
    return SY_OK;
}

static int add_job(void *command, const char *value)
{
    struct sy_serve *serve = command;

    if (serve->n_jobs == SY_SERVE_MAX_JOBS)
        return sy_error_set(SY_EARG, "more than %d jobs", SY_SERVE_MAX_JOBS);
    serve->jobs[serve->n_jobs++] = value;
    return SY_OK;
}

static int set_socket(void *command, const char *value)
{
    struct sy_serve *serve = command;

    serve->rpc_config.socket_path = strncmp(value, "unix:", 5) == 0 ? value + 5 : value;
    return SY_OK;
}

static int set_policy(void *command, const char *value)
{
    struct sy_serve *serve = command;
    enum sy_policy_kind policy;

    serve->policy = value;
    return sy_policy_parse(value, &policy);
}

/* Given again: more of them. */
static int add_slices(void *command, const char *value)
{
    struct sy_serve *serve = command;
    json_t *list;

    SY_TRY(sy_cli_slice_list(value, &list));
    if (!serve->slices)
        serve->slices = json_array();
    int failed = json_array_extend(serve->slices, list);
    json_decref(list);
    return failed ? sy_error_set(SY_ENOMEM_HOST, "no memory for slices") : SY_OK;
}

static int set_mode(void *command, const char *value)
{
    struct sy_serve *serve = command;
    char *end;
    unsigned long mode = strtoul(value, &end, 8);

    serve->rpc_config.socket_mode = (unsigned)mode;
    if (!*value || *end || mode == 0 || mode > 0777)
        return sy_error_set(SY_EARG, "\"%s\" is no mode from 1 to 777", value);
    return SY_OK;
}

/* --config was read before the command line (sy_serve_conf_path). */
static int ignore_value(void *command, const char *value)
{
    (void)command, (void)value;
    return SY_OK;
}

static const struct sy_cli_field rows[] = {
    {{"models", "DIR",
      "models laid out as Triton's, NAME/VERSION/model.onnx or model.sypkg, and NAME/config.pbtxt; "
      "what has no up-to-date package is imported first"},
     SY_CLI_TEXT(struct sy_serve, repository_config.folder)},
    {{"package", "FILE", "one package, or with --fetch-to its URL; may be given again"},
     SY_CLI_SET(add_package)},
    {{"device", "SPEC",
      "host, or emulated[,link-gbps=12.3][,link-alpha-us=10], or cuda:N, or cuda:UUID of a GPU or "
      "MIG instance; default host"},
     SY_CLI_TEXT(struct sy_serve, core_config.device)},
    {{"pool-bytes", "SIZE", "device memory: 400M is 400*10^6, 400Mi is 400*2^20"},
     SY_CLI_SOME_BYTES(struct sy_serve, core_config.pool_bytes)},
    {{"image-bytes", "SIZE", "host image of a discrete device"},
     SY_CLI_SOME_BYTES(struct sy_serve, core_config.image_bytes)},
    {{"slab-bytes", "SIZE", "memory of request and response tensors; default 256Mi"},
     SY_CLI_SOME_BYTES(struct sy_serve, core_config.slab_bytes)},
    {{"workers", "N",
      "worker processes, 2 to 64; each job that trains has one, the last is left to requests, so N "
      "- 1 train at once and others wait; default 4"},
     SY_CLI_INT(struct sy_serve, core_config.n_workers, 2, SY_CORE_MAX_WORKERS)},
    {{"threads", "N", "compute threads; default: all cores that may be used, less the link's"},
     SY_CLI_INT(struct sy_serve, n_threads, 1, CPU_SETSIZE)},
    {{"cores", "LIST", "compute cores, as 0-3"}, SY_CLI_TEXT(struct sy_serve, core_config.cores)},
    {{"socket", "PATH",
      "Unix socket, also as unix:PATH; default $XDG_RUNTIME_DIR/switchyard.sock or "
      "/tmp/switchyard-UID.sock"},
     SY_CLI_SET(set_socket)},
    {{"tcp", "HOST:PORT",
      "also listen on TCP, for other machines (switchyard attach, --server tcp:HOST:PORT); :PORT "
      "is 127.0.0.1; beyond this machine only with --token-file"},
     SY_CLI_TEXT(struct sy_serve, rpc_config.tcp_address)},
    {{"state", "DIR", "remember training jobs, and the rules that are set, here"},
     SY_CLI_TEXT(struct sy_serve, core_config.state_folder)},
    {{"warm-batches", "LIST", "batch sizes prepared when a model is loaded; default 1"},
     SY_CLI_SET(set_batches)},
    {{"train", "JOB.json", "start this training job; may be given again"}, SY_CLI_SET(add_job)},
    {{"grouping", "KIND", "planned, per_layer or whole; for comparison"},
     SY_CLI_TEXT(struct sy_serve, core_config.grouping)},
    {{"hang-timeout", "SECONDS",
      "a worker without a heartbeat for this time is replaced; default 10. While it loads: if it "
      "uses no CPU time for this time, at least 5 s, or computes on one model for six times as "
      "long, at least 300 s"},
     SY_CLI_TIME_WITHIN(struct sy_serve, core_config.hang_timeout_ns, SY_NS_PER_S, 0.1,
                        MOST_SECONDS)},
    {{"no-prefetch", NULL,
      "do not prefetch heads of models into the pool while the device is idle"},
     SY_CLI_OFF(struct sy_serve, core_config.fetch_heads)},
    {{"whole-models", NULL,
      "no heads: evict whole models, least recently used first; for comparison"},
     SY_CLI_SWITCH(struct sy_serve, core_config.whole_models)},
    {{"ready-fd", "N", "write \"ready\" to this fd too"},
     SY_CLI_INT(struct sy_serve, ready_fd, 1, 1 << 20)},
    {{"max-delay-ms", "N",
      "while the device is busy, gather requests for a model for this time into one run; default "
      "0: never"},
     SY_CLI_TIME_WITHIN(struct sy_serve, core_config.max_delay_ns, SY_NS_PER_MS, 0, 1e6)},
    {{"max-batch", "N", "rows of such a run; default 8"},
     SY_CLI_INT(struct sy_serve, core_config.max_batch, 1, 1024)},
    {{"policy", "NAME",
      "among training jobs, one of" SY_POLICY_WORDS "; default: as --state remembers, else fair"},
     SY_CLI_SET(set_policy)},
    {{"slices", "LIST",
      "cut the cores, or a GPU's multiprocessors, into parts that compute side by side, as "
      "'switchyard slices' does: \"train=1 serve=50%\"; set before models and jobs come, which "
      "name "
      "them; may be given again; default: as --state remembers, else one of all"},
     SY_CLI_SET(add_slices)},
    {{"for-jobs", "NAME", "with slices: the one of jobs that name none; default the first"},
     SY_CLI_TEXT(struct sy_serve, for_jobs)},
    {{"for-models", "NAME", "with slices: the one of models that name none; default the first"},
     SY_CLI_TEXT(struct sy_serve, for_models)},
    {{"for-runtime", "NAME",
      "with slices: the one on whose cores the server's own thread computes; default all cores"},
     SY_CLI_TEXT(struct sy_serve, for_runtime)},
    {{"model-control", "MODE",
      "none: the folder of --models is read at start; poll: repeatedly; explicit: a model is "
      "loaded by 'models load' only; default none"},
     SY_CLI_SET(set_control)},
    {{"poll-seconds", "N", "with poll: how often; default 15"},
     SY_CLI_TIME_WITHIN(struct sy_serve, repository_config.poll_ns, SY_NS_PER_S, 0.01,
                        MOST_SECONDS)},
    {{"load-model", "NAME", "with explicit: loaded at start; may be given again; '*': all"},
     SY_CLI_SET(add_startup)},
    {{"strict", NULL, "a model of --models that cannot be loaded ends the server"},
     SY_CLI_SWITCH(struct sy_serve, strict)},
    {{"import-limit", "SECONDS", "an import that takes longer is ended; default 3600"},
     SY_CLI_TIME_WITHIN(struct sy_serve, repository_config.importer.limit_ns, SY_NS_PER_S, 0.01,
                        MOST_SECONDS)},
    {{"poll-us", "N",
      "how long a worker polls for the next request before it sleeps; never while a job trains; "
      "default 50, and 0, never, on one core"},
     SY_CLI_INT(struct sy_serve, core_config.poll_us, 0, MAX_POLL_US)},
    {{"config", "FILE",
      "these options from a TOML file, each by its name; the command line counts where both say "
      "something; read again on SIGHUP, which logs what changed and what needs a restart"},
     SY_CLI_SET(ignore_value)},
    {{"print-config", NULL, "print such a file with all options, each commented out, and end"},
     SY_CLI_SWITCH(struct sy_serve, prints_config)},
    {{"check-config", NULL, "read the options and the file, say what is wrong with them, and end"},
     SY_CLI_SWITCH(struct sy_serve, checks_config)},
    {{"socket-mode", "OCTAL", "of the Unix socket; default 600, with --socket-group 660"},
     SY_CLI_SET(set_mode)},
    {{"socket-group", "GROUP", "of the Unix socket: its members may connect"},
     SY_CLI_TEXT(struct sy_serve, rpc_config.socket_group)},
    {{"socket-rights", "RIGHTS",
      "of other users than this one and root there; default infer,models,jobs"},
     SY_CLI_TEXT(struct sy_serve, fronts.access.socket_rights)},
    {{"keep-image", "SECONDS",
      "of a discrete device: should this server be killed, a keeper process holds the host image "
      "for this time, and the next server with this --socket goes on with it; under systemd its "
      "descriptor store does; default 0: the image ends with the server"},
     SY_CLI_INT64(struct sy_serve, keep_seconds, 0, MAX_KEEP_SECONDS)},
    {{"keep-on-stop", NULL, "with --keep-image: also when this server is stopped in order"},
     SY_CLI_SWITCH(struct sy_serve, keeps_on_stop)},
    {{"fetch-to", "DIR",
      "packages may be loaded from http:// and https:// URLs, also by --package, and are kept "
      "here; a model takes requests once the package's head is there, and its first layers compute "
      "while the last ones arrive; default: none are"},
     SY_CLI_TEXT(struct sy_serve, arrivals_config.folder)},
    {{"fetch-stall", "SECONDS",
      "a source whose connection is silent for this time is asked again, twice, then the next one, "
      "then the model is unavailable; default 10"},
     SY_CLI_REAL_WITHIN(struct sy_serve, arrivals_config.stall_s, 1, 3600)},
    {{"http", "HOST:PORT",
      "HTTP: Open Inference Protocol, live page, metrics; default 127.0.0.1:8000; off: none"},
     SY_CLI_TEXT_OR_OFF(struct sy_serve, fronts.http.address)},
    {{"grpc", "HOST:PORT", "gRPC, as Triton's; default 127.0.0.1:8001; off: none"},
     SY_CLI_TEXT_OR_OFF(struct sy_serve, fronts.grpc.address)},
    {{"metrics", "HOST:PORT", "metrics alone; default 127.0.0.1:8002; off: none"},
     SY_CLI_TEXT_OR_OFF(struct sy_serve, fronts.metrics.address)},
    {{"page-token", "TOKEN",
      "what the live page's buttons need; default none: this machine's own pages only"},
     SY_CLI_TEXT(struct sy_serve, fronts.access.page_token)},
    {{"token-file", "FILE",
      "who may do what over TCP, HTTP, gRPC: lines NAME TOKEN RIGHTS [tenant=T], RIGHTS of "
      "infer,models,jobs,admin; with tenant= for that tenant's requests and jobs alone, never "
      "models and settings, which all share; read again when it changes"},
     SY_CLI_TEXT(struct sy_serve, fronts.access.token_file)},
    {{"anonymous", "RIGHTS",
      "of TCP callers without a token: read,infer,models,jobs,admin or none; default none with "
      "--token-file; without, all but paths outside --models, and on loopback only"},
     SY_CLI_TEXT(struct sy_serve, fronts.access.anonymous)},
    {{"tls-cert", "FILE", "certificate chain, PEM: TCP, HTTP and gRPC speak TLS 1.2 and 1.3"},
     SY_CLI_TEXT(struct sy_serve, fronts.tls_cert)},
    {{"tls-key", "FILE", "its key, PEM"}, SY_CLI_TEXT(struct sy_serve, fronts.tls_key)},
    {{"otlp", "URL", "send each request's spans to this collector: http://HOST:4318"},
     SY_CLI_TEXT(struct sy_serve, fronts.otlp.url)},
    {{"otlp-sample", "RATIO", "of requests without a traceparent, 0 to 1; default 1"},
     SY_CLI_REAL_WITHIN(struct sy_serve, fronts.otlp_sample, 0, 1)},
    {{"string-bytes", "SIZE",
      "strings of one request, and of its results; default 64Mi, at most 1Gi; more is 413"},
     SY_CLI_SOME_BYTES(struct sy_serve, fronts.string_bytes)},
    {{"least-rate", "SIZE",
      "bytes a second that a body or an answer moves at least, over its --http-stall or "
      "--grpc-stall; default 1Ki; 408, or closed"},
     SY_CLI_SOME_BYTES(struct sy_serve, fronts.least_bytes_per_s)},
    {{"http-header-bytes", "SIZE", "request line and header lines; default 32Ki; more is 431"},
     SY_CLI_SOME_BYTES(struct sy_serve, fronts.http.limits.header_bytes)},
    {{"http-body-bytes", "SIZE", "a request's body, inflated; default 1Gi; more is 413"},
     SY_CLI_SOME_BYTES(struct sy_serve, fronts.http.limits.body_bytes)},
    {{"http-buffered-bytes", "SIZE", "unfinished requests together; default 2Gi; more is 503"},
     SY_CLI_SOME_BYTES(struct sy_serve, fronts.http.limits.buffered_bytes)},
    {{"http-json-depth", "N", "nesting of a request's JSON; default 64; more is 400"},
     SY_CLI_INT(struct sy_serve, fronts.http.limits.json_depth, 1, 10000)},
    {{"http-connections", "N", "open connections; default 4096; more are told 503"},
     SY_CLI_INT(struct sy_serve, fronts.http.limits.max_connections, 1, 1 << 20)},
    {{"http-idle", "SECONDS", "a connection without a request is closed; default 75"},
     SY_CLI_TIME_WITHIN(struct sy_serve, fronts.http.limits.idle_ns, SY_NS_PER_S, 0.1,
                        MOST_SECONDS)},
    {{"http-header-time", "SECONDS", "for a request's header lines; default 10; more is 408"},
     SY_CLI_TIME_WITHIN(struct sy_serve, fronts.http.limits.header_ns, SY_NS_PER_S, 0.1,
                        MOST_SECONDS)},
    {{"http-stall", "SECONDS", "a body or an answer that does not move; default 30; 408"},
     SY_CLI_TIME_WITHIN(struct sy_serve, fronts.http.limits.stall_ns, SY_NS_PER_S, 0.1,
                        MOST_SECONDS)},
    {{"grpc-message-bytes", "SIZE", "a request of gRPC, inflated; default 1Gi"},
     SY_CLI_SOME_BYTES(struct sy_serve, fronts.grpc.limits.message_bytes)},
    {{"grpc-buffered-bytes", "SIZE", "unfinished messages together; default 2Gi"},
     SY_CLI_SOME_BYTES(struct sy_serve, fronts.grpc.limits.buffered_bytes)},
    {{"grpc-unsent-bytes", "SIZE", "answers that one client does not read; default 512Mi"},
     SY_CLI_SOME_BYTES(struct sy_serve, fronts.grpc.limits.unsent_bytes)},
    {{"grpc-header-bytes", "SIZE", "a gRPC request's headers; default 16Ki"},
     SY_CLI_SOME_BYTES(struct sy_serve, fronts.grpc.limits.header_bytes)},
    {{"grpc-connections", "N", "open gRPC connections; default 4096"},
     SY_CLI_INT(struct sy_serve, fronts.grpc.limits.max_connections, 1, 1 << 20)},
    {{"grpc-streams", "N", "calls of one connection at a time; default 256"},
     SY_CLI_INT(struct sy_serve, fronts.grpc.limits.max_streams, 1, 1 << 16)},
    {{"grpc-outstanding", "N", "requests of one ModelStreamInfer at a time; default 64"},
     SY_CLI_INT(struct sy_serve, fronts.grpc.limits.max_outstanding, 1, 1 << 16)},
    {{"grpc-pings", "N", "PING, SETTINGS, resets of one connection a second; default 1000"},
     SY_CLI_INT(struct sy_serve, fronts.grpc.limits.pings_per_s, 1, 1 << 30)},
    {{"grpc-idle", "SECONDS", "a connection without a call gets GOAWAY; default 1800"},
     SY_CLI_TIME_WITHIN(struct sy_serve, fronts.grpc.limits.idle_ns, SY_NS_PER_S, 0.1,
                        MOST_SECONDS)},
    {{"grpc-header-time", "SECONDS", "for HTTP/2's preface, and for a call's headers; default 10"},
     SY_CLI_TIME_WITHIN(struct sy_serve, fronts.grpc.limits.header_ns, SY_NS_PER_S, 0.1,
                        MOST_SECONDS)},
    {{"sessions", "N", "sessions of decoders at a time; default 1024"},
     SY_CLI_INT(struct sy_serve, fronts.sessions.max_sessions, 1, 1 << 16)},
    {{"session-idle", "SECONDS", "a session that nothing used ends; default 60"},
     SY_CLI_TIME_WITHIN(struct sy_serve, fronts.sessions.idle_ns, SY_NS_PER_S, 0.1, MOST_SECONDS)},
    {{"session-bytes", "SIZE", "of all sessions, in the slab; default three quarters of it"},
     SY_CLI_SOME_BYTES(struct sy_serve, fronts.sessions.bytes)},
    {{"session-tenant-bytes", "SIZE", "of one tenant's sessions; default half of the slab"},
     SY_CLI_SOME_BYTES(struct sy_serve, fronts.sessions.tenant_bytes)},
    {{"grpc-stall", "SECONDS", "a message or an answer that does not move; default 30"},
     SY_CLI_TIME_WITHIN(struct sy_serve, fronts.grpc.limits.stall_ns, SY_NS_PER_S, 0.1,
                        MOST_SECONDS)},
};
const struct sy_cli_fields sy_serve_options = {
    "serve [options]\n\nRuns the server until SIGTERM or SIGINT, which drain it. Prints \"ready\" "
    "when all models that are loaded at start are; one of --models that cannot be is listed with "
    "its reason, and the others are served (--strict: it ends the server).",
    rows, SY_ARRAY_LEN(rows), NULL};

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
    json_decref(serve->slices);
    free(serve);
}

int sy_serve_read_options(struct sy_serve *serve)
{
    const char *path = sy_serve_conf_path(serve->argc, serve->argv);

    if (path && sy_serve_conf_read(path, &sy_serve_options, serve, &serve->conf) < 0)
        return sy_cli_usage("%s", sy_error_text());
    json_t *of_file = serve->slices;
    serve->slices = NULL;
    int result = sy_cli_read(&sy_serve_options, serve->argc, serve->argv, serve);
    if (serve->slices) /* the command line's count, and not both together */
        json_decref(of_file);
    else
        serve->slices = of_file;
    return result;
}
