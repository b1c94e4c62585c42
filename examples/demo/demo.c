#include "examples/demo/demo.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READY_RUNS       12
#define RESTART_RUNS     3
#define READY_POOL_BYTES 1600000000ull

static int fail(const char *what)
{
    fprintf(stderr, "demo: %s\n", what);
    return -1;
}

static int infer(sy_client *client, const struct demo_model *model, int variant,
                 sy_client_result **out)
{
    if (sy_client_infer(client, model->name, model->inputs[variant], model->n_inputs, out) == 0)
        return 0;
    fprintf(stderr, "demo: %s: %s\n", model->name, sy_client_error(client));
    return -1;
}

/* ---- 1. ready ---------------------------------------------------------------------------------------- */

static int measure_ready(struct demo_model *model, sy_client *client)
{
    for (int v = 0; v < DEMO_VARIANTS; v++)
        if (infer(client, model, v, &model->reference[v]) < 0)
            return -1;
    for (int i = 0; i < READY_RUNS; i++) {
        sy_client_result *result = NULL;
        if (infer(client, model, i % DEMO_VARIANTS, &result) < 0)
            return -1;
        demo_samples_add(&model->ready, (double)(result->total_ns - result->queue_ns) / 1e6);
        sy_client_result_free(result);
    }
    printf("  %-13s %.1f ms\n", model->name, demo_samples_quantile(&model->ready, 0.5));
    return 0;
}

static void read_model_sizes(struct demo *demo, sy_client *client)
{
    size_t i;
    json_t *entry, *status = demo_call(client, "status", json_object());
    json_t *device = json_object_get(json_object_get(status, "device"), "name");
    snprintf(demo->device_name, sizeof demo->device_name, "%s",
             json_is_string(device) ? json_string_value(device) : demo->device);
    json_array_foreach(json_object_get(status, "models"), i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        for (int m = 0; name && m < DEMO_MODELS; m++)
            if (strcmp(name, demo->models[m].name) == 0)
                demo->models[m].weights_bytes =
                    (uint64_t)json_integer_value(json_object_get(entry, "weights_bytes"));
    }
    json_decref(status);
}

static int phase_ready(struct demo *demo)
{
    struct demo_server server;
    sy_client *client = NULL;
    printf("1/4 ready latency and reference outputs, with room for all models\n");
    const char *const extra[] = {"--models", demo->models_folder, NULL};
    if (demo_server_start(&server, demo, "ready", READY_POOL_BYTES, extra) < 0)
        return -1;
    int status = sy_client_connect(server.address, 60000, &client);
    for (int m = 0; status == 0 && m < DEMO_MODELS; m++)
        status = measure_ready(&demo->models[m], client);
    if (status == 0)
        read_model_sizes(demo, client);
    sy_client_close(client);
    return demo_server_stop(&server) < 0 ? fail("the ready server did not stop cleanly") : status;
}

/* ---- 2. restart --------------------------------------------------------------------------------------- */

static int one_restart(struct demo *demo, struct demo_model *model)
{
    char package[512];
    struct demo_server server;
    sy_client *client = NULL;
    sy_client_result *result = NULL;
    snprintf(package, sizeof package, "%s/%s/1/model.sypkg", demo->models_folder, model->name);
    const char *const extra[] = {"--package", package, "--workers", "2", NULL};
    sy_ns start = sy_clock_now();
    if (demo_server_start(&server, demo, "restart", READY_POOL_BYTES, extra) < 0)
        return -1;
    int status = sy_client_connect(server.address, 60000, &client);
    if (status == 0)
        status = infer(client, model, 0, &result);
    demo_samples_add(&model->restart, (double)(sy_clock_now() - start) / 1e6);
    sy_client_result_free(result);
    sy_client_close(client);
    demo_server_stop(&server);
    return status;
}

static int phase_restart(struct demo *demo)
{
    printf("2/4 stop and start: a fresh process for one request\n");
    for (int m = 0; m < DEMO_MODELS; m++) {
        for (int i = 0; i < RESTART_RUNS; i++)
            if (one_restart(demo, &demo->models[m]) < 0)
                return -1;
        printf("  %-13s %.0f ms\n", demo->models[m].name,
               demo_samples_quantile(&demo->models[m].restart, 0.5));
    }
    return 0;
}

/* ---- 3. beside ---------------------------------------------------------------------------------------- */

static int job_now(sy_client *client, uint64_t job, struct demo_job_state *state)
{
    json_t *status = demo_call(client, "status", json_object());
    int found = demo_job_state(status, job, state);
    json_decref(status);
    return found;
}

static int wait_for_step(sy_client *client, uint64_t job, uint64_t step,
                         struct demo_job_state *state)
{
    sy_ns deadline = sy_clock_now() + 120 * SY_NS_PER_S;
    while (sy_clock_now() < deadline) {
        if (job_now(client, job, state) < 0)
            return fail("the training job is gone");
        if (state->ended || state->step >= step)
            return state->error[0] ? fail(state->error) : 0;
        sy_clock_sleep_until(sy_clock_now() + 50 * SY_NS_PER_MS);
    }
    return fail("training made no progress for two minutes");
}

static int wait_for_end(struct demo *demo, sy_client *client, uint64_t job,
                        struct demo_job_state *state)
{
    for (sy_ns deadline = sy_clock_now() + 200 * SY_NS_PER_S; sy_clock_now() < deadline;) {
        if (job_now(client, job, state) < 0)
            return fail("the training job is gone");
        if (state->ended)
            return state->error[0] ? fail(state->error) : 0;
        sy_clock_sleep_until(sy_clock_now() + 100 * SY_NS_PER_MS);
    }
    (void)demo;
    return fail("the training job did not end");
}

/* So many requests a second that they take `load` of the device's time, from what one swap of each costs. */
static double request_rate(const struct demo *demo, sy_client *client)
{
    double total_ms = 0;
    for (int m = 0; m < DEMO_MODELS; m++) {
        sy_client_result *result = NULL;
        if (infer(client, &demo->models[m], 0, &result) < 0)
            return -1;
        total_ms += (double)(result->total_ns - result->queue_ns) / 1e6;
        sy_client_result_free(result);
    }
    return demo->load * 1000.0 / (total_ms / DEMO_MODELS);
}

static int run_beside(struct demo *demo, sy_client *client, const char *address, uint64_t job)
{
    struct demo_job_state first, before, after;
    if (wait_for_step(client, job, 1, &first) < 0)
        return -1;
    demo->loss_first = first.loss;
    double rate = request_rate(demo, client);
    if (rate < 0)
        return -1;
    printf("  %.1f requests a second from %d clients for %.0f s\n", rate, demo->n_clients,
           demo->seconds);
    json_decref(demo_call(client, "trace", json_pack("{s:b}", "enable", 1)));
    demo->status_before = demo_call(client, "status", json_object());
    sy_ns start = sy_clock_now();
    if (demo_job_state(demo->status_before, job, &before) < 0 ||
        demo_run_clients(demo, address, rate) < 0)
        return -1;
    demo->status_after = demo_call(client, "status", json_object());
    double took_s = (double)(sy_clock_now() - start) / 1e9;
    demo->trace = demo_call(client, "trace", json_object());
    if (!demo->trace || demo_job_state(demo->status_after, job, &after) < 0)
        return -1;
    demo->steps_beside = after.step - before.step;
    demo->steps_per_s_beside = (double)demo->steps_beside / took_s;
    demo->idle_share = demo_idle_share(demo->trace);
    return 0;
}

static int finish_training(struct demo *demo, sy_client *client, uint64_t job)
{
    struct demo_job_state end;
    json_decref(demo_call(client, "train_stop",
                          json_pack("{s:I, s:b}", "job", (json_int_t)job, "evaluate", 1)));
    if (wait_for_end(demo, client, job, &end) < 0)
        return -1;
    demo->steps = end.step;
    demo->loss_last = end.loss;
    demo->accuracy = end.accuracy;
    demo->longest_layer_ms = end.longest_layer_ms;
    strcpy(demo->longest_layer, end.longest_layer);
    return 0;
}

static int phase_beside(struct demo *demo)
{
    char job_path[512], state_folder[512];
    struct demo_server server;
    sy_client *client = NULL;
    uint64_t job = 0;
    printf("3/4 training on Fashion-MNIST beside requests, pool of %.0f MB\n",
           (double)demo->pool_bytes / 1e6);
    snprintf(job_path, sizeof job_path, "%s/beside.json", demo->folder);
    snprintf(state_folder, sizeof state_folder, "%s/state-beside", demo->folder);
    const char *const extra[] = {"--models", demo->models_folder, "--state", state_folder, NULL};
    if (demo_write_job(demo, job_path, "beside", 0) < 0 ||
        demo_server_start(&server, demo, "beside", demo->pool_bytes, extra) < 0)
        return -1;
    int status = sy_client_connect(server.address, 120000, &client);
    if (status == 0)
        status = demo_job_submit(client, job_path, &job);
    if (status == 0)
        status = run_beside(demo, client, server.address, job);
    if (status == 0)
        status = finish_training(demo, client, job);
    sy_client_close(client);
    return demo_server_stop(&server) < 0 ? fail("the server did not drain cleanly") : status;
}

/* ---- 4. alone ------------------------------------------------------------------------------------------- */

static int measure_alone(struct demo *demo, sy_client *client, uint64_t job)
{
    struct demo_job_state first, middle, end;
    if (wait_for_step(client, job, demo->steps / 10 + 1, &first) < 0)
        return -1;
    sy_ns start = sy_clock_now();
    if (wait_for_step(client, job, demo->steps * 9 / 10, &middle) < 0)
        return -1;
    demo->steps_per_s_alone =
        (double)(middle.step - first.step) / ((double)(sy_clock_now() - start) / 1e9);
    return wait_for_end(demo, client, job, &end);
}

static int compare_bits(struct demo *demo)
{
    char beside[512], alone[512];
    snprintf(beside, sizeof beside, "%s/snapshots-beside/beside-%llu.safetensors", demo->folder,
             (unsigned long long)demo->steps);
    snprintf(alone, sizeof alone, "%s/snapshots-alone/alone-%llu.safetensors", demo->folder,
             (unsigned long long)demo->steps);
    return demo_same_snapshots(beside, alone, &demo->bits_equal);
}

static int phase_alone(struct demo *demo)
{
    char job_path[512], state_folder[512];
    struct demo_server server;
    sy_client *client = NULL;
    uint64_t job = 0;
    printf("4/4 the same %llu steps alone, never preempted\n", (unsigned long long)demo->steps);
    snprintf(job_path, sizeof job_path, "%s/alone.json", demo->folder);
    snprintf(state_folder, sizeof state_folder, "%s/state-alone", demo->folder);
    const char *const extra[] = {"--state", state_folder, NULL};
    if (demo_write_job(demo, job_path, "alone", demo->steps) < 0 ||
        demo_server_start(&server, demo, "alone", demo->pool_bytes, extra) < 0)
        return -1;
    int status = sy_client_connect(server.address, 120000, &client);
    if (status == 0)
        status = demo_job_submit(client, job_path, &job);
    if (status == 0)
        status = measure_alone(demo, client, job);
    sy_client_close(client);
    if (demo_server_stop(&server) < 0)
        return fail("the server did not drain cleanly");
    return status < 0 ? status : compare_bits(demo);
}

/* ---- 5. report ------------------------------------------------------------------------------------------ */

static int write_results(const struct demo *demo)
{
    char path[512];
    snprintf(path, sizeof path, "%s/trace.json", demo->folder);
    if (json_dump_file(demo->trace, path, JSON_COMPACT) < 0)
        return fail("cannot write trace.json");
    snprintf(path, sizeof path, "%s/timeline.svg", demo->folder);
    if (demo_write_timeline(demo, path) < 0)
        return fail("cannot write timeline.svg");
    snprintf(path, sizeof path, "%s/report.json", demo->folder);
    if (demo_write_report(demo, path) < 0)
        return fail("cannot write report.json");
    demo_print_table(demo);
    printf("\n  %s/report.json  trace.json (chrome://tracing, ui.perfetto.dev)  timeline.svg\n",
           demo->folder);
    return 0;
}

static int judge(const struct demo *demo)
{
    if (demo->failed)
        fprintf(stderr, "demo: %ld requests failed; the first: %s\n", demo->failed,
                demo->first_error);
    if (demo->wrong)
        fprintf(stderr, "demo: %ld outputs differ from the idle system's\n", demo->wrong);
    if (!demo->bits_equal)
        fprintf(stderr,
                "demo: preempted training ended with other weights than undisturbed training\n");
    if (demo->requests == 0)
        fprintf(stderr, "demo: no request was made\n");
    return demo->failed || demo->wrong || !demo->bits_equal || demo->requests == 0;
}

/* Removes what an earlier demo left: its snapshots and job states would be resumed. */
static void remove_tree(const char *path, int depth)
{
    DIR *folder = depth < 4 ? opendir(path) : NULL;
    if (!folder)
        return;
    for (struct dirent *e; (e = readdir(folder));) {
        char child[1024];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(child, sizeof child, "%s/%s", path, e->d_name);
        if (unlink(child) != 0 && (errno == EISDIR || errno == EPERM)) {
            remove_tree(child, depth + 1);
            rmdir(child);
        }
    }
    closedir(folder);
}

static void usage(void)
{
    printf("usage: demo --binary build/switchyard --models build/models [--folder build/demo]\n"
           "            [--device host|emulated[,link-gbps=N]] [--pool-bytes N] [--seconds N] "
           "[--load 0.45]\n"
           "\n"
           "Trains a network on Fashion-MNIST while clients ask three models that together do not "
           "fit into the\n"
           "pool, checks every output and the training's bits, and writes report.json, trace.json "
           "and\n"
           "timeline.svg into the folder.\n");
}

static bool read_option(struct demo *demo, const char *key, const char *value)
{
    if (strcmp(key, "--binary") == 0)
        demo->binary = value;
    else if (strcmp(key, "--models") == 0)
        demo->models_folder = value;
    else if (strcmp(key, "--folder") == 0)
        demo->folder = value;
    else if (strcmp(key, "--device") == 0)
        demo->device = value;
    else if (strcmp(key, "--pool-bytes") == 0)
        demo->pool_bytes = strtoull(value, NULL, 10);
    else if (strcmp(key, "--seconds") == 0)
        demo->seconds = strtod(value, NULL);
    else if (strcmp(key, "--load") == 0)
        demo->load = strtod(value, NULL);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    struct demo demo = {
        .binary = "build/switchyard",
        .models_folder = "build/models",
        .folder = "build/demo",
        .device = "host",
        .pool_bytes = 400000000,
        .seconds = 60,
        .load = 0.45,
        .n_clients = 4,
        .models = {{.name = "resnet152"}, {.name = "inception_v3"}, {.name = "bert_base"}},
    };
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        usage();
        return 0;
    }
    for (int i = 1; i < argc; i += 2)
        if (i + 1 >= argc || !read_option(&demo, argv[i], argv[i + 1])) {
            fprintf(stderr, "demo: unknown or incomplete option %s; see --help\n", argv[i]);
            return 2;
        }
    if (demo.seconds < 1 || demo.load <= 0 || demo.load >= 1) {
        fprintf(stderr, "demo: --seconds must be at least 1, --load between 0 and 1\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    mkdir(demo.folder, 0755);
    remove_tree(demo.folder, 0);
    for (int m = 0; m < DEMO_MODELS; m++)
        if (demo_make_inputs(&demo.models[m]) < 0)
            return 1;
    if (phase_ready(&demo) < 0 || phase_restart(&demo) < 0 || phase_beside(&demo) < 0 ||
        phase_alone(&demo) < 0 || write_results(&demo) < 0)
        return 1;
    return judge(&demo);
}
