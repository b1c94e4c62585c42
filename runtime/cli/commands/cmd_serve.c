/* serve: puts the core, the RPC server and the models together, and runs the loop until a signal. */
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/service_manager.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_slice.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/commands/serve_options.h"
#include "runtime/cli/config/serve_watchdog.h"
#include "runtime/cli/doctor/link_probe.h"
#include "runtime/cli/doctor/link_record.h"
#include "runtime/cli/slice_words.h"
#include "runtime/device/cache_ways.h"
#include "runtime/device/device.h"
#include "workers/job/job.h"

#define DRAIN_GRACE_NS    (20 * SY_NS_PER_S)
#define FLUSH_LOOK_US     5000
#define FLUSH_STALL_NS    (2 * SY_NS_PER_S) /* without a byte taken by any client */
#define FLUSH_MOST_NS     (10 * SY_NS_PER_S)
#define LOOP_SLICE_NS     (100 * SY_NS_PER_US)
#define LEAST_DESCRIPTORS 16 /* for the first clients and an import */

/* ---- running ---------------------------------------------------------------------------------------------------- */

static bool is_flushed(struct sy_serve *serve)
{
    uint64_t unsent = sy_serve_fronts_unsent(&serve->fronts) +
                      (serve->rpc ? sy_rpc_server_unsent(serve->rpc) : 0);
    sy_ns now = sy_clock_now();

    if (unsent != serve->flush.unsent_bytes)
        serve->flush.moved_ns = now;
    serve->flush.unsent_bytes = unsent;
    if (unsent == 0)
        return true;
    if (now < serve->flush.moved_ns + FLUSH_STALL_NS && now < serve->flush.begun_ns + FLUSH_MOST_NS)
        return false;
    sy_log_warn("serve", "event=answers_cut unsent_bytes=%llu why=\"their clients do not read\"",
                (unsigned long long)unsent);
    return true;
}

static void on_flush(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_serve *serve = ctx;

    (void)fd, (void)what;
    if (is_flushed(serve))
        event_base_loopexit(serve->base, NULL);
}

/* What was computed is sent before the loop ends. */
static void flush(struct sy_serve *serve)
{
    struct timeval period = {.tv_usec = FLUSH_LOOK_US};

    if (serve->flush.timer)
        return;
    serve->flush.begun_ns = sy_clock_now();
    if (!is_flushed(serve))
        serve->flush.timer = event_new(serve->base, -1, EV_PERSIST, on_flush, serve);
    if (!serve->flush.timer || event_add(serve->flush.timer, &period) < 0)
        event_base_loopexit(serve->base, NULL);
}

static void drained(void *ctx)
{
    struct sy_serve *serve = ctx;

    sy_repository_stop(serve->repository);
    sy_arrivals_stop(serve->arrivals);
    flush(serve);
}

static void stop(struct sy_serve *serve)
{
    if (!serve->draining && sy_core_drain(serve->core, DRAIN_GRACE_NS, drained, serve) < 0)
        drained(serve);
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
    struct sy_serve *serve = ctx;

    if (serve->draining) /* what a signal interrupts is no failure, and it gets ready no more */
        return;
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
    sy_core_image_drop_unused(serve->core);
    serve->fronts.front.is_ready = true;
    sy_service_notify("READY=1\nSTATUS=ready");
    printf("ready\n");
    fflush(stdout);
    if (serve->ready_fd >= 0 && write(serve->ready_fd, "ready\n", 6) != 6)
        sy_log_warn("serve", "event=ready_fd why=\"its reader is gone\"");
}

/* Without --strict a model of the folder that is not loaded is listed as unavailable, and the rest is served. */
static void repository_started(void *ctx, int status, const char *error)
{
    struct sy_serve *serve = ctx;

    loaded(ctx, serve->strict ? status : SY_OK, error);
}

static void job_started(void *ctx, int status, const char *error)
{
    (void)ctx;
    if (status < 0)
        sy_log_error("serve", "event=job_refused why=\"%s\"",
                     error ? error : sy_status_text(status));
}

static int start_job(struct sy_serve *serve, const char *path)
{
    char *text = NULL;
    uint64_t id;
    SY_TRY(sy_job_load(path, &text));
    int status = sy_core_job_submit(serve->core, text, job_started, serve, &id);
    free(text);
    return status;
}

/* The first --threads of the cores that this process may use. */
static int choose_threads(struct sy_serve *serve)
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

/* An image of an earlier server of this socket, or one that a later server can have. The server also works without. */
static void open_keeper(struct sy_serve *serve)
{
    char path[1024];
    struct sy_keeper_config config = {.socket_path = path,
                                      .program = serve->core_config.worker_program,
                                      .seconds = (int)serve->keep_seconds,
                                      .keeps_on_stop = serve->keeps_on_stop};

    if (serve->keep_seconds == 0)
        return;
    if (serve->core_config.image_bytes == 0)
        serve->core_config.image_bytes = sy_core_usual_image_bytes();
    config.image_bytes = serve->core_config.image_bytes;
    snprintf(path, sizeof(path), "%s.keep", serve->rpc_config.socket_path);
    if (sy_keeper_open(&config, &serve->keeper) < 0) {
        sy_log_warn("serve", "event=image_not_kept why=\"%s\"", sy_error_text());
        return;
    }
    serve->core_config.image_fd = sy_keeper_image_fd(serve->keeper);
    serve->core_config.image_book = sy_keeper_book(serve->keeper);
}

/* Measurements of an earlier server on this machine: from its keeper, or the state folder. */
static bool recall_link(struct sy_serve *serve)
{
    const char *device = serve->core_config.device, *folder = serve->core_config.state_folder;
    struct sy_image_link known;

    if (!serve->keeper || !sy_image_book_link(sy_keeper_book(serve->keeper), device, &known))
        return folder && sy_link_record_read(folder, device, &serve->link);
    serve->link =
        (struct sy_link_cost){known.values[0], known.values[1], known.values[2], known.values[3]};
    return true;
}

static void take_link(struct sy_serve *serve, const char *event)
{
    const struct sy_link_cost *link = &serve->link;

    sy_log_info("serve", "event=%s gbps=%.2f alpha_us=%.2f sigma_us=%.2f lost_ns_per_byte=%.4f",
                event, link->bytes_per_ns, link->alpha_ns / 1e3, link->sigma_ns / 1e3,
                link->lost_ns_per_byte);
    serve->core_config.link = link;
    if (serve->keeper)
        sy_image_book_set_link(sy_keeper_book(serve->keeper), serve->core_config.device,
                               &(struct sy_image_link){{link->alpha_ns, link->bytes_per_ns,
                                                        link->sigma_ns, link->lost_ns_per_byte}});
}

/* When the core holds the state folder: a server that is started again soon need not measure, also where this one ends in order and its keeper with it. */
static void remember_link(const struct sy_serve *serve)
{
    const char *folder = serve->core_config.state_folder;

    if (folder && serve->measured_link &&
        sy_link_record_write(folder, serve->core_config.device, &serve->link) < 0)
        sy_log_warn("serve", "event=link_not_remembered why=\"%s\"", sy_error_text());
}

/* The link that plans are made for: measured, or else the device's description. */
static int measure_link(struct sy_serve *serve)
{
    struct sy_device_spec spec;

    struct sy_device *device;

    SY_TRY(sy_device_spec_parse(serve->core_config.device, &spec));
    if (strcmp(spec.kind, "host") == 0) {
        if (serve->keep_seconds > 0)
            sy_log_info("serve", "event=image_not_kept why=\"device host has none: weights come "
                                 "from the page cache, which stays\"");
        return SY_OK;
    }
    SY_TRY(sy_device_open(&spec, &device)); /* one that is not there needs no measuring */
    sy_device_close(device);
    open_keeper(serve);
    if (recall_link(serve)) {
        take_link(serve, "link_known");
    } else if (sy_link_probe(serve->core_config.device, &serve->link) == SY_OK) {
        take_link(serve, "link_measured");
        serve->measured_link = true;
    } else {
        sy_log_warn("serve", "event=link_not_measured why=\"%s\"", sy_error_text());
    }
    return SY_OK;
}

static int set_policy(struct sy_serve *serve, const char *policy)
{
    json_t *params = json_pack("{s:s}", "policy", policy);
    int status = params ? sy_core_policy_set(serve->core, params)
                        : sy_error_set(SY_ENOMEM_HOST, "no memory for a policy");
    json_decref(params);
    return status;
}

static bool says_slices(const struct sy_serve *options)
{
    return options->slices || options->for_jobs || options->for_models || options->for_runtime;
}

static const char *or_none(const char *name)
{
    return name ? name : "";
}

/* All of the options as one call: what is not given is the usual. uncut: no --slices takes slices back, else it leaves them. */
static int set_slices(struct sy_serve *serve, const struct sy_serve *options, bool uncut)
{
    json_t *list = options->slices || !uncut ? json_incref(options->slices) : json_array();
    json_t *params = json_pack("{s:s, s:s, s:s, s:o*}", "for_jobs", or_none(options->for_jobs),
                               "for_models", or_none(options->for_models), "for_runtime",
                               or_none(options->for_runtime), "slices", list);
    int status = params
                     ? sy_core_slices_set(serve->core, params)
                     : sy_error_set(SY_EARG, "--for-jobs, --for-models, --for-runtime: no UTF-8");

    json_decref(params);
    return status;
}

static int start_repository(struct sy_serve *serve)
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

static int start_arrivals(struct sy_serve *serve)
{
    if (!serve->arrivals_config.folder)
        return SY_OK;
    SY_TRY(sy_arrivals_create(serve->base, &serve->arrivals_config, &sy_core_own_handlers,
                              serve->core, &serve->arrivals));
    serve->fronts.front.arrivals = serve->arrivals;
    return SY_OK;
}

static int add_package(struct sy_serve *serve, const char *path)
{
    struct sy_core_model_options model = {.name = ""}; /* the package's own */

    if (!sy_arrivals_is_url(path))
        return sy_core_model_add(serve->core, path, &model, loaded, serve);
    return serve->arrivals ? sy_arrivals_add(serve->arrivals, &path, 1, &model, loaded, serve)
                           : sy_error_set(SY_EARG, "%.*s is fetched only with --fetch-to DIR",
                                          (int)strcspn(path, "?#"), path);
}

/* Descriptors left for clients, regions and imports. If the kernel does not list open ones, accept reports the lack (event=accept_failed). */
static int check_descriptors(void)
{
    struct rlimit limit;
    rlim_t n_open = 0;
    DIR *folder = opendir("/proc/self/fd");

    while (folder && readdir(folder))
        n_open++; /* with ".", ".." and the folder's own: three too many */
    if (folder)
        closedir(folder);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || n_open < 3 || limit.rlim_cur == RLIM_INFINITY ||
        n_open - 3 + LEAST_DESCRIPTORS <= limit.rlim_cur)
        return SY_OK;
    return sy_error_set(SY_EARG,
                        "%llu files are open before the first client, and %llu may be: raise the "
                        "limit to %llu at least (ulimit -n, a service's LimitNOFILE=)",
                        (unsigned long long)n_open - 3, (unsigned long long)limit.rlim_cur,
                        (unsigned long long)n_open - 3 + LEAST_DESCRIPTORS);
}

static int start(struct sy_serve *serve)
{
    SY_TRY(sy_service_take());
    SY_TRY(choose_threads(serve));
    SY_TRY(measure_link(serve)); /* first: a device that is not there is all there is to say */
    serve->core_config.resctrl = SY_CACHE_WAYS_ROOT;
    SY_TRY(sy_core_create(serve->base, &serve->core_config, &serve->core));
    remember_link(serve);
    if (says_slices(serve)) /* before models and jobs come: one that names a slice finds it */
        SY_TRY(set_slices(serve, serve, false));
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
    SY_TRY(sy_service_check_all_taken());
    SY_TRY(check_descriptors());
    /* Jobs that were there before, or come meanwhile, would take the room that these models are sure to have beside jobs. */
    sy_core_hold_jobs(serve->core, true);
    serve->n_loading = serve->n_packages + 1;
    SY_TRY(start_arrivals(serve));
    for (int i = 0; i < serve->n_packages; i++)
        SY_TRY(add_package(serve, serve->packages[i]));
    SY_TRY(start_repository(serve));
    if (serve->policy)
        SY_TRY(set_policy(serve, serve->policy));
    for (int i = 0; i < serve->n_jobs; i++)
        SY_TRY(start_job(serve, serve->jobs[i]));
    loaded(serve, SY_OK, NULL); /* the one more: ready also without models */
    return SY_OK;
}

/* ---- reload --------------------------------------------------------------------------------------------- */

static const char *const slice_options[] = {"slices", "for-jobs", "for-models", "for-runtime"};

static bool is_of_slices(const char *name)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(slice_options); i++)
        if (strcmp(name, slice_options[i]) == 0)
            return true;
    return false;
}

/* Applies those of the new options that a running server can change; the rest needs a restart. */
static bool is_live(const char *name)
{
    return strcmp(name, "policy") == 0 || strcmp(name, "string-bytes") == 0 || is_of_slices(name) ||
           sy_serve_fronts_is_limit(name);
}

/* Only where the file changed: else what `switchyard slices` set meanwhile stays. */
static void apply_slices(struct sy_serve *serve, const struct sy_conf *last,
                         const struct sy_serve *fresh)
{
    bool cut = sy_serve_conf_differs(last, fresh->conf, "slices"), differs = cut;

    for (size_t i = 0; i < SY_ARRAY_LEN(slice_options); i++)
        differs |= sy_serve_conf_differs(last, fresh->conf, slice_options[i]);
    if (differs && set_slices(serve, fresh, cut) < 0)
        sy_log_error("serve", "event=reload option=slices why=\"%s\"", sy_error_text());
}

static void apply_options(struct sy_serve *serve, struct sy_serve *fresh)
{
    const struct sy_conf *last = serve->last_conf ? serve->last_conf : serve->conf;

    sy_serve_conf_log_changes(last, fresh->conf, &sy_serve_options, is_live);
    if (fresh->policy && sy_serve_conf_differs(last, fresh->conf, "policy") &&
        set_policy(serve, fresh->policy) < 0)
        sy_log_error("serve", "event=reload option=policy why=\"%s\"", sy_error_text());
    apply_slices(serve, last, fresh);
    serve->fronts.front.string_bytes =
        (int64_t)SY_MIN(fresh->fronts.string_bytes, (uint64_t)INT64_MAX);
    sy_serve_fronts_set_limits(&serve->fronts, &fresh->fronts);
}

/* A file that is wrong changes nothing. */
static void on_reload(evutil_socket_t number, short what, void *ctx)
{
    struct sy_serve *serve = ctx, *fresh = sy_serve_create(serve->argc, serve->argv);

    (void)number, (void)what;
    sy_service_notify("RELOADING=1");
    if (!fresh) {
        sy_log_error("serve", "event=reload_failed why=\"no memory\"");
    } else if (sy_serve_read_options(fresh) != SY_CLI_END) {
        sy_log_error("serve", "event=reload_failed why=\"%s\"", sy_error_text());
    } else {
        apply_options(serve, fresh);
        sy_conf_destroy(serve->last_conf);
        serve->last_conf = fresh->conf;
        fresh->conf = NULL;
    }
    if (fresh)
        sy_serve_destroy(fresh);
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

/* The loop's turns are short; where jobs compute on all cores, it is not to wait for the end of their slices. */
static void take_core_soon(void)
{
    if (sy_thread_slice_set(LOOP_SLICE_NS) < 0)
        sy_log_info("serve", "event=usual_slice why=\"%s\"", sy_error_text());
}

/* Until the loop is told to exit. Between two looks the core is yielded. */
static void run_loop(const struct sy_serve *serve)
{
    int status = 0;

    take_core_soon();
    while (status == 0 && !event_base_got_exit(serve->base)) {
        bool polls = sy_core_poll(serve->core);

        status = event_base_loop(serve->base, polls ? EVLOOP_NONBLOCK : EVLOOP_ONCE);
        if (polls)
            sched_yield();
    }
}

static int run(struct sy_serve *serve)
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
    if (serve->flush.timer)
        event_free(serve->flush.timer);
    sy_serve_fronts_stop(&serve->fronts);
    sy_rpc_server_destroy(serve->rpc);
    sy_arrivals_destroy(serve->arrivals);
    sy_repository_destroy(serve->repository);
    sy_core_destroy(serve->core);
    sy_keeper_close(serve->keeper);
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
    struct sy_serve *serve = sy_serve_create(argc, argv);
    int result;

    if (!serve)
        return sy_cli_fail("no memory");
    result = sy_serve_read_options(serve);
    if (result == SY_CLI_END && serve->prints_config) {
        sy_serve_conf_print(&sy_serve_options);
        result = 0;
    } else if (result == SY_CLI_END) {
        result = serve->checks_config ? 0 : run(serve);
    }
    sy_serve_destroy(serve);
    return result;
}
