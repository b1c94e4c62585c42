/* replay: sends a trace of requests to a running server, each at its time, and reports what simulate reports. */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_slice.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/inputs/random_inputs.h"
#include "runtime/cli/train/run_progress.h"
#include "runtime/sim/sim_report.h"
#include "runtime/sim/sim_trace.h"

#define MAX_CONNECTIONS 1024
#define TIMEOUT_MS      60000u
#define START_NS        (50 * SY_NS_PER_MS)  /* until all threads are there */
#define LOOK_UP_NS      (100 * SY_NS_PER_MS) /* a sleeper sees within this that all is given up */
#define MOST_WAIT_NS    1e18                 /* 30 years, from the first request to the last */
#define SLICE_NS        (100 * SY_NS_PER_US)
#define LATE_NS         SY_NS_PER_MS /* sent later than that after its time: all connections were taken */

struct model_inputs {
    sy_client_tensor tensors[SWITCHYARD_MAX_TENSORS];
    int n;
};

struct replay {
    const char *trace, *address, *plot, *answers_path;
    FILE *answers; /* NULL: not asked for */
    int64_t n_connections, batch, seed;
    double speed;
    bool json;
    json_t *described; /* what the server says of its models */
    struct sy_sim_model *models;
    struct model_inputs *inputs; /* by model; n 0: not asked for */
    int n_models;
    struct sy_sim_request *requests;
    uint64_t n_requests;
    sy_ns begun;
    atomic_uint_fast64_t next;
    atomic_bool stop;
    pthread_mutex_t lock; /* what is below */
    struct sy_sim_report *report;
    struct sy_cli_run_progress progress;
    uint64_t n_sent_late;
    sy_ns latest_ns;   /* the most that one was sent after its time */
    char failure[256]; /* the first request's that failed */
};

static atomic_bool interrupted; /* by SIGINT: what is under way is waited for, and reported */

static void on_interrupt(int signal)
{
    (void)signal;
    atomic_store(&interrupted, true);
}

static bool should_stop(const struct replay *r)
{
    return atomic_load(&r->stop) || atomic_load(&interrupted);
}

/* ---- what is sent ---- */

static int describe_model(struct replay *r, int at)
{
    const char *name =
        json_string_value(json_object_get(json_array_get(r->described, (size_t)at), "name"));
    if (!name || strlen(name) >= SY_SIM_NAME_BYTES)
        return sy_error_set(SY_EPROTO, "the server names a model %.60s", name ? name : "nothing");
    strcpy(r->models[at].name, name);
    return SY_OK;
}

static int ask_for_models(struct replay *r, sy_client *client)
{
    char *text;
    if (sy_client_call(client, "models", "{}", &text) < 0)
        return sy_error_set(SY_EPEER, "%s", sy_client_error(client));
    r->described = json_loads(text, 0, NULL);
    free(text);
    r->n_models = (int)json_array_size(r->described);
    r->models = calloc((size_t)r->n_models + 1, sizeof *r->models);
    r->inputs = calloc((size_t)r->n_models + 1, sizeof *r->inputs);
    SY_TRY_ALLOC(r->models && r->inputs, "no memory for %d models", r->n_models);
    for (int i = 0; i < r->n_models; i++)
        SY_TRY(describe_model(r, i));
    return SY_OK;
}

static int make_inputs(struct replay *r, int model, uint64_t *state)
{
    json_t *list = sy_cli_inputs_of(r->described, r->models[model].name), *entry;
    struct model_inputs *inputs = &r->inputs[model];
    size_t i;
    if (json_array_size(list) < 1 || json_array_size(list) > SWITCHYARD_MAX_TENSORS)
        return sy_error_set(SY_EUNSUPPORTED, "%s has %zu inputs: 1 to %d can be made",
                            r->models[model].name, json_array_size(list), SWITCHYARD_MAX_TENSORS);
    json_array_foreach(list, i, entry)
    {
        sy_client_tensor *out = &inputs->tensors[i];
        out->name = json_string_value(json_object_get(entry, "name"));
        if (!out->name)
            return sy_error_set(SY_EPROTO, "an input of %s has no name", r->models[model].name);
        inputs->n = (int)i + 1;
        SY_TRY(sy_cli_random_input(entry, r->batch, NULL, state, out));
    }
    return SY_OK;
}

/* Slowed down further, times would overflow nanoseconds, and requests be sent at once. */
static int check_speed(const struct replay *r)
{
    sy_ns last = r->n_requests ? r->requests[r->n_requests - 1].at_ns : 0;
    if ((double)last / r->speed <= MOST_WAIT_NS)
        return SY_OK;
    return sy_error_set(SY_EARG,
                        "%s: the last request is at %g s, at a speed of %g more than 30 "
                        "years from now",
                        r->trace, (double)last / 1e9, r->speed);
}

static int prepare(struct replay *r, sy_client *client)
{
    uint64_t state = (uint64_t)r->seed;
    SY_TRY(ask_for_models(r, client));
    SY_TRY(sy_sim_read_requests(r->trace, r->models, r->n_models, &r->requests, &r->n_requests));
    SY_TRY(check_speed(r));
    for (uint64_t i = 0; i < r->n_requests; i++)
        if (r->inputs[r->requests[i].model].n == 0)
            SY_TRY(make_inputs(r, r->requests[i].model, &state));
    return SY_OK;
}

/* ---- sending ---- */

/* False: all is given up meanwhile. */
static bool sleep_until(const struct replay *r, sy_ns at)
{
    for (sy_ns now; (now = sy_clock_now()) < at && !should_stop(r);) {
        sy_ns next = SY_MIN(at, now + LOOK_UP_NS);
        struct timespec until = {(time_t)(next / SY_NS_PER_S), (long)(next % SY_NS_PER_S)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    return !should_stop(r);
}

/* Returns how long it had the device, as the server says: answers come to threads in another order than requests end in. Not 0, which is for
 * those of which it is not known. */
static sy_ns note_answer(struct replay *r, const struct sy_sim_request *request,
                         const sy_client_result *result, sy_ns latency, sy_ns now)
{
    struct sy_sim_report *report = r->report;
    sy_ns served = SY_MAX(result->served_ns, SY_NS_PER_US);
    report->n_done++;
    report->n_late += request->deadline_ns > 0 && latency > request->deadline_ns;
    report->n_swaps += result->swapped != 0;
    report->moved_bytes += result->moved_bytes;
    sy_sim_note_latency(report, request->class_, latency);
    sy_sim_note_use(report, 0, SY_SIM_USE_REQUESTS, now - SY_MIN(served, now), now);
    return served;
}

/* The trace's deadlines count from the time at which a request was to be sent. A deadline longer than the server accepts
 * is cut to its most: replay itself waits for a minute. */
static double deadline_left_ms(const struct sy_sim_request *request, sy_ns late_ns)
{
    if (request->deadline_ns == 0)
        return 0;
    if (request->deadline_ns <= late_ns + SY_NS_PER_US)
        return 0.001;
    return SY_MIN((double)(request->deadline_ns - late_ns) / 1e6, SWITCHYARD_MAX_DEADLINE_MS);
}

static bool is_refusal(int status, sy_ns took)
{
    return status == SY_EBUSY || (status == SY_EDEADLINE && took < TIMEOUT_MS * SY_NS_PER_MS);
}

static void note_failure(struct replay *r, const struct sy_sim_request *request, const char *words)
{
    r->report->n_failed++;
    if (!r->failure[0])
        snprintf(r->failure, sizeof r->failure, "%s: %s", r->models[request->model].name, words);
}

static void show_progress(struct replay *r)
{
    if (sy_cli_run_progress_is_due(&r->progress))
        sy_cli_run_progress_show(
            &r->progress, "%llu of %llu requests, %llu refused, %llu failed",
            (unsigned long long)r->report->n_requests, (unsigned long long)r->n_requests,
            (unsigned long long)r->report->n_refused, (unsigned long long)r->report->n_failed);
}

/* Times count from when it was to be sent: a server that is slow cannot slow the trace and so look fast. False: the connection is of no
 * use any more. */
static bool send_one(struct replay *r, sy_client *client, const struct sy_sim_request *request)
{
    struct model_inputs *inputs = &r->inputs[request->model];
    sy_ns due = r->begun + (sy_ns)((double)request->at_ns / r->speed);
    sy_client_result *result = NULL;
    if (!sleep_until(r, due))
        return false;
    sy_ns sent = sy_clock_now();
    sy_client_options options = {.urgency_class = request->class_,
                                 .deadline_ms = deadline_left_ms(request, sent - due)};
    int status = sy_client_infer_with(client, r->models[request->model].name, inputs->tensors,
                                      inputs->n, &options, &result);
    sy_ns now = sy_clock_now(), served = 0;
    bool refused = is_refusal(status, now - sent);
    pthread_mutex_lock(&r->lock);
    r->report->n_requests++;
    r->report->n_events += 2;
    r->report->n_refused += refused;
    r->report->n_busy += status == SY_EBUSY;
    r->n_sent_late += sent > due + LATE_NS;
    r->latest_ns = SY_MAX(r->latest_ns, sent - due);
    r->report->makespan_ns = SY_MAX(r->report->makespan_ns, now - r->begun);
    if (status == SY_OK)
        served = note_answer(r, request, result, now - due, now - r->begun);
    else if (!refused)
        note_failure(r, request, sy_client_error(client));
    if (r->answers)
        fprintf(r->answers, "%.6f,%s,%d,0,%s,%.3f,%.3f\n", (double)request->at_ns / 1e9,
                r->models[request->model].name, request->class_,
                status == SY_OK ? "done"
                : refused       ? "refused"
                                : "failed",
                (double)(now - due) / 1e6, (double)served / 1e6);
    show_progress(r);
    pthread_mutex_unlock(&r->lock);
    if (status == SY_OK)
        sy_client_result_free(result);
    return status == SY_OK || refused;
}

/* NULL: no server to send the rest to, and the replay ends. */
static sy_client *connect_again(struct replay *r, sy_client *old)
{
    sy_client *client;
    sy_client_close(old);
    if (sy_client_connect_secure(r->address, TIMEOUT_MS, sy_cli_security(), &client) == SY_OK)
        return client;
    pthread_mutex_lock(&r->lock);
    if (!r->failure[0])
        snprintf(r->failure, sizeof r->failure, "%s", sy_client_error(client));
    pthread_mutex_unlock(&r->lock);
    atomic_store(&r->stop, true);
    sy_client_close(client);
    return NULL;
}

/* Beside a server on the same machine, a thread whose time has come takes the core from workers: waiting 3 ms for the end of their slice would be measured as
 * latency. Where the kernel refuses, it waits. */
static void *connection_main(void *arg)
{
    struct replay *r = arg;
    (void)sy_thread_slice_set(SLICE_NS);
    sy_client *client = connect_again(r, NULL);
    while (client && !should_stop(r)) {
        uint64_t i = atomic_fetch_add(&r->next, 1);
        if (i >= r->n_requests)
            break;
        /* Whatever went wrong, the next one gets a connection of its own. */
        if (!send_one(r, client, &r->requests[i]) && !should_stop(r))
            client = connect_again(r, client);
    }
    sy_client_close(client);
    return NULL;
}

static int send_all(struct replay *r)
{
    int64_t n = 0, wanted = SY_MIN(r->n_connections, (int64_t)SY_MAX(r->n_requests, 1));
    pthread_t *threads = calloc((size_t)wanted, sizeof *threads);
    int status = SY_OK;
    SY_TRY_ALLOC(threads, "no memory for %lld connections", (long long)wanted);
    struct sigaction first = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND | SA_RESTART},
                     before; /* the second one ends the process */
    sigaction(SIGINT, &first, &before);
    r->begun = sy_clock_now() + START_NS;
    for (; n < wanted && status == SY_OK; n++)
        if (pthread_create(&threads[n], NULL, connection_main, r) != 0) {
            status = sy_error_set(SY_ENOMEM_HOST, "cannot start %lld threads; give --connections",
                                  (long long)wanted);
            atomic_store(&r->stop, true);
            break;
        }
    while (n > 0)
        pthread_join(threads[--n], NULL);
    sigaction(SIGINT, &before, NULL);
    free(threads);
    return status;
}

/* ---- the report ---- */

static int open_answers(struct replay *r)
{
    if (!r->answers_path)
        return SY_OK;
    r->answers = fopen(r->answers_path, "w");
    if (!r->answers)
        return sy_error_set(SY_EIO, "cannot write %s: %s", r->answers_path, strerror(errno));
    fprintf(r->answers, "time_s,model,class,device,outcome,latency_ms,served_ms\n");
    return SY_OK;
}

static int plot(const struct replay *r)
{
    char title[256];
    FILE *file = fopen(r->plot, "w");
    if (!file)
        return sy_error_set(SY_EIO, "cannot write %s: %s", r->plot, strerror(errno));
    snprintf(title, sizeof title, "%s replayed at %s (measured)", r->trace, r->address);
    int status = sy_sim_plot_svg(r->report, title, file);
    if (fclose(file) != 0 && status == SY_OK)
        status = sy_error_set(SY_EIO, "cannot write %s: %s", r->plot, strerror(errno));
    return status;
}

static int report(const struct replay *r)
{
    double wall_s = (double)r->report->makespan_ns / 1e9;
    SY_TRY(r->json ? sy_sim_print_json(r->report, wall_s, stdout)
                   : sy_sim_print_text(r->report, wall_s, stdout));
    if (r->plot)
        SY_TRY(plot(r));
    if (r->n_sent_late > 0)
        fprintf(stderr,
                "switchyard: %llu of %llu requests were sent more than 1 ms after their time, at "
                "most %.1f ms; if that is many, give more --connections\n",
                (unsigned long long)r->n_sent_late, (unsigned long long)r->report->n_requests,
                (double)r->latest_ns / 1e6);
    uint64_t n_left = r->n_requests - r->report->n_requests;
    if (r->report->n_failed + n_left > 0)
        return sy_error_set(SY_EIO,
                            "%llu of %llu requests failed, %llu were not sent; the first: %s",
                            (unsigned long long)r->report->n_failed,
                            (unsigned long long)r->n_requests, (unsigned long long)n_left,
                            r->failure[0] ? r->failure : "not sent, for this was interrupted");
    return SY_OK;
}

/* ---- the command ---- */

static void finish(struct replay *r)
{
    for (int i = 0; i < r->n_models && r->inputs; i++)
        for (int k = 0; k < r->inputs[i].n; k++)
            free((void *)r->inputs[i].tensors[k].data);
    free(r->inputs);
    free(r->models);
    free(r->requests);
    json_decref(r->described);
    sy_sim_report_free(r->report);
    pthread_mutex_destroy(&r->lock);
}

static int replay(struct replay *r)
{
    sy_client *client;
    if (sy_cli_connect(r->address, TIMEOUT_MS, &client))
        return 1;
    pthread_mutex_init(&r->lock, NULL);
    r->report = sy_sim_report_new();
    int status = r->report ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a report");
    if (status == SY_OK)
        status = prepare(r, client);
    sy_client_close(client);
    if (status == SY_OK)
        status = open_answers(r);
    if (status == SY_OK)
        status = sy_sim_report_add_kind(r->report, "server", 1);
    if (status == SY_OK) {
        sy_cli_run_progress_begin(&r->progress);
        status = send_all(r);
        sy_cli_run_progress_end(&r->progress);
    }
    if (r->answers && fclose(r->answers) != 0 && status == SY_OK)
        status = sy_error_set(SY_EIO, "cannot write %s", r->answers_path);
    if (status == SY_OK)
        status = report(r);
    finish(r);
    return status < 0 ? sy_cli_fail_status() : 0;
}

static int set_speed(void *command, const char *value)
{
    struct replay *r = command;

    SY_TRY(sy_cli_real(value, &r->speed));
    return r->speed >= 1e-6 && r->speed <= 1e6
               ? SY_OK
               : sy_error_set(SY_EARG, "%s is not from 0.000001 to 1000000", value);
}

static int set_trace(void *command, const char *word)
{
    struct replay *r = command;

    if (r->trace)
        return sy_error_set(SY_EARG, "one trace at a time: %s", word);
    r->trace = word;
    return SY_OK;
}

static const struct sy_cli_field fields[] = {
    {{"server", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
     SY_CLI_TEXT(struct replay, address)},
    {{"socket", "ADDRESS", "the same"}, SY_CLI_TEXT(struct replay, address)},
    {{"connections", "N", "the most requests in flight at once; default 64"},
     SY_CLI_INT64(struct replay, n_connections, 1, MAX_CONNECTIONS)},
    {{"speed", "X", "so many times as fast as the trace says; default 1"}, SY_CLI_SET(set_speed)},
    {{"batch", "N", "batch size of the random inputs; default 1"},
     SY_CLI_INT64(struct replay, batch, 1, 1 << 20)},
    {{"seed", "N", "of the random inputs; default 1"},
     SY_CLI_INT64(struct replay, seed, 0, INT64_MAX)},
    {{"answers", "FILE",
      "CSV of each request: time_s,model,class,device,outcome,latency_ms,served_ms"},
     SY_CLI_TEXT(struct replay, answers_path)},
    {{"plot", "FILE", "SVG: the device over time, distribution"}, SY_CLI_TEXT(struct replay, plot)},
    {{"json", NULL, "print JSON, with the keys of simulate --json"},
     SY_CLI_SWITCH(struct replay, json)}};

int sy_cmd_replay(int argc, char **argv)
{
    static const struct sy_cli_fields command = {
        "replay TRACE.csv [options]\n\nSends each request of the trace (time_s,model[,class,"
        "deadline_ms], as for simulate --requests) to a running server at its time, whether or not "
        "others have been answered, and prints what simulate prints. Inputs are random.",
        fields, SY_ARRAY_LEN(fields), set_trace};
    struct replay r = {.n_connections = 64, .batch = 1, .seed = 1, .speed = 1};
    r.address = sy_cli_default_socket();
    int result = sy_cli_read(&command, argc, argv, &r);

    if (result != SY_CLI_END)
        return result;
    if (!r.trace)
        return sy_cli_usage("replay which trace? see switchyard replay --help");
    return replay(&r);
}
