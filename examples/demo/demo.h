/* The demo: one training job and three models on one device. Shared by its files.
 *
 *   1. ready    a server with room for everything: reference outputs, ready latencies
 *   2. restart  a fresh server per request: what stopping and starting costs
 *   3. beside   a pool that does not hold the models: training runs, clients send requests (Poisson), all checked
 *   4. alone    the same training again for as many steps, undisturbed: the bits must be equal
 *   5. report   table, report.json, trace.json, timeline.svg */
#ifndef SY_DEMO_H
#define SY_DEMO_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/clock.h"
#include "runtime/client/switchyard.h"

#define DEMO_MODELS     3
#define DEMO_VARIANTS   4 /* different inputs a model */
#define DEMO_MAX_INPUTS 3

struct demo_samples { /* of one quantity, in ms */
    int n, capacity;
    double *ms;
};

void demo_samples_add(struct demo_samples *s, double ms);
double demo_samples_quantile(const struct demo_samples *s, double q); /* NaN when empty */

struct demo_model {
    const char *name; /* in the repository and in the report */
    uint64_t weights_bytes;
    int n_inputs;
    sy_client_tensor inputs[DEMO_VARIANTS][DEMO_MAX_INPUTS];
    sy_client_result *reference[DEMO_VARIANTS];
    struct demo_samples ready, swap, restart, end_to_end;
};

struct demo {
    const char *binary, *models_folder, *folder, *device; /* folder: build/demo */
    uint64_t pool_bytes;
    double seconds;
    double load; /* share of the device's time that requests should take */
    int n_clients;
    struct demo_model models[DEMO_MODELS];

    /* what happened, phase 3 */
    long requests, failed, wrong, swaps, preempted;
    char first_error[256];
    struct demo_samples preempt_wait;
    json_t *status_before, *status_after, *trace;
    char device_name[64];
    /* training */
    uint64_t steps, steps_beside;
    double loss_first, loss_last, accuracy, steps_per_s_alone, steps_per_s_beside, idle_share,
        longest_layer_ms;
    char longest_layer[96]; /* what that stretch was */
    bool bits_equal;
};

/* demo_server.c: a server that the demo starts and stops. */
struct demo_server {
    pid_t pid;
    char address[256];
};

/* Starts `switchyard serve` with these extra arguments (NULL-terminated) and waits until it says that it is ready (120 s). */
int demo_server_start(struct demo_server *s, const struct demo *demo, const char *name,
                      uint64_t pool_bytes, const char *const *extra);
int demo_server_stop(struct demo_server *s); /* SIGTERM, waits 30 s; 0 if it exited with 0 */
/* A call with JSON parameters; NULL on failure (printed). */
json_t *demo_call(sy_client *client, const char *method, json_t *params);

/* demo_clients.c: phase 3's load. */
int demo_make_inputs(struct demo_model *model);
bool demo_same_outputs(const sy_client_result *a, const sy_client_result *b);
/* n_clients threads, each a Poisson process, `rate` requests a second together, for demo->seconds. */
int demo_run_clients(struct demo *demo, const char *address, double rate);

/* demo_training.c */
int demo_write_job(const struct demo *demo, const char *path, const char *name, uint64_t max_steps);
int demo_job_submit(sy_client *client, const char *path, uint64_t *job);
/* The state of the job in the status: step, loss, accuracy (negative: none), ended. */
struct demo_job_state {
    uint64_t step, snapshot_step;
    double loss, accuracy, longest_layer_ms;
    char longest_layer[96];
    bool ended;
    char error[256];
};
int demo_job_state(json_t *status, uint64_t job, struct demo_job_state *out);
int demo_same_snapshots(const char *a, const char *b, bool *same);

/* demo_timeline.c */
int demo_write_timeline(const struct demo *demo, const char *path);
/* Share of [start, end] that no request held the device, from the trace's training spans. */
double demo_idle_share(json_t *trace);

/* demo_report.c */
int demo_write_report(const struct demo *demo, const char *path);
void demo_print_table(const struct demo *demo);

#endif
