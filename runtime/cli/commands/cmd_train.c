#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/train/local_job.h"
#include "runtime/cli/train/rank_devices.h"
#include "runtime/cli/train/rank_job.h"
#include "runtime/cli/train/rank_launch.h"
#include "runtime/cli/train/script_gate.h"
#include "runtime/cli/train/train_curve.h"
#include "runtime/cli/train/train_explain.h"
#include "runtime/cli/train/train_progress.h"
#include "workers/job/job.h"
#include "workers/train/ranks.h"

#define STOP_TIMEOUT_MS  600000u         /* an evaluation may come first */
#define START_TIMEOUT_MS (7 * 86400000u) /* others may have to end first */
#define PATIENCE_S       2               /* then it is said that the job waits */
#define SIGHT_US         100000u         /* between two looks at a job */

static json_t *find_job(json_t *status, json_int_t id)
{
    size_t i;
    json_t *job;

    json_array_foreach(json_object_get(status, "jobs"), i, job)
    {
        if (json_integer_value(json_object_get(job, "job")) == id)
            return job;
    }
    return NULL;
}

/* ---- watching -------------------------------------------------------------------------------------------- */

struct watch {
    bool is_shown;
    const char *plot; /* NULL: no figure */
    char name[128];
    double target, accuracy; /* to be reached, 0: none; last seen */
    struct sy_train_progress progress;
    struct sy_train_curve curve;
};

static void note_sight(struct watch *w, const struct sy_train_sight *sight, bool is_last)
{
    sy_train_curve_add_loss(&w->curve, sight->step, sight->loss);
    sy_train_curve_add_accuracy(&w->curve, sight->accuracy_step, sight->accuracy);
    w->accuracy = sight->accuracy;
    if (w->is_shown)
        sy_train_progress_show(&w->progress, sight, is_last);
}

static int check_target(const struct watch *w)
{
    if (w->target == 0 || w->accuracy >= w->target)
        return 0;
    return sy_cli_fail("%s: accuracy %.2f %%, its target is %.2f %%", w->name,
                       100 * SY_MAX(w->accuracy, 0), 100 * w->target);
}

static int draw(const struct watch *w)
{
    if (!w->plot)
        return 0;
    if (sy_train_curve_write(&w->curve, w->name, w->plot) < 0)
        return sy_cli_fail_status();
    printf("%s: %d points of loss, %d of accuracy\n", w->plot, w->curve.n_loss,
           w->curve.n_accuracy);
    return 0;
}

/* Reads a job's status; false: it has ended. */
static bool see_job(struct watch *w, json_t *job, bool *failed)
{
    const json_t *accuracy = json_object_get(job, "accuracy");
    const char *state = json_string_value(json_object_get(job, "state"));
    struct sy_train_sight sight = {
        .step = (uint64_t)json_integer_value(json_object_get(job, "step")),
        .total_steps = (uint64_t)json_integer_value(json_object_get(job, "total_steps")),
        .loss = json_number_value(json_object_get(job, "loss")),
        .accuracy = json_is_number(accuracy) ? json_number_value(accuracy) : -1,
        .accuracy_step = (uint64_t)json_integer_value(json_object_get(job, "accuracy_step")),
        .state = state ? state : ""};
    *failed = strcmp(sight.state, "failed") == 0;
    bool is_last = *failed || strcmp(sight.state, "ended") == 0;
    note_sight(w, &sight, is_last);
    return !is_last;
}

/* Until the job has ended; 1 if it failed. */
static int watch_job(sy_client *client, json_int_t id, struct watch *w)
{
    for (bool goes_on = true, failed = false; goes_on; usleep(SIGHT_US)) {
        json_t *status, *job;
        if (sy_cli_call(client, "status", json_object(), &status))
            return 1;
        job = find_job(status, id);
        goes_on = job && see_job(w, job, &failed);
        if (failed)
            sy_cli_fail("%s", json_string_value(json_object_get(job, "error")));
        json_decref(status);
        if (failed)
            return draw(w) | 1;
    }
    return draw(w) | check_target(w);
}

/* ---- without a server ------------------------------------------------------------------------------------ */

static volatile sig_atomic_t is_interrupted;

static void interrupt(int signal_number)
{
    is_interrupted = signal_number;
}

/* Between two steps, within the gate. What is in flight on a GPU ends before a request computes there. */
static int give_way(struct sy_local_job *job, struct sy_script_gate *gate)
{
    if (!sy_script_gate_is_closed(gate))
        return SY_OK;
    int status = sy_train_run_synchronize(job->run);
    sy_script_gate_leave(gate);
    sy_script_gate_enter(gate);
    return status;
}

static int run_here(struct sy_local_job *job, struct watch *w, struct sy_script_gate *gate)
{
    enum sy_train_state state = SY_TRAIN_RUNNING;
    bool is_stopping = false;
    while (state == SY_TRAIN_RUNNING) {
        if (is_interrupted && !is_stopping) {
            sy_train_run_stop(job->run, 0);
            is_stopping = true;
        }
        const char *unused;
        bool is_end = sy_train_run_next(job->run, &unused) == SY_TRAIN_OTHER;
        SY_TRY(give_way(job, gate));
        SY_TRY(sy_train_run_advance(job->run, &state));
        bool is_last = state == SY_TRAIN_FINISHED;
        struct sy_train_sight sight = {.step = sy_train_run_step(job->run),
                                       .total_steps = job->needs.total_steps,
                                       .loss = sy_train_run_loss(job->run),
                                       .accuracy = sy_train_run_accuracy(job->run),
                                       .accuracy_step =
                                           atomic_load(&job->page->train_accuracy_step),
                                       .state = is_last  ? "ended"
                                                : is_end ? ""
                                                         : "training"};
        if (!is_end && !is_last)
            continue;
        note_sight(w, &sight, is_last);
        sy_script_gate_show(gate, sight.step, sight.total_steps, sight.loss);
    }
    return SY_OK;
}

/* Under a server a rank reads and builds its model in the job's first turn; as it waits for the others there, a request does not wait for that. */
static int open_gated(const char *text, const char *device, struct sy_ranks *ranks,
                      struct sy_script_gate *gate, struct sy_local_job *job)
{
    SY_TRY(sy_script_gate_open(gate));
    if (ranks)
        ranks->gate = &gate->gate;
    sy_script_gate_enter(gate);
    sy_script_gate_leave(gate);
    return sy_local_job_open(text, SY_HUGE_ALWAYS, device, ranks, job);
}

/* One that could not be opened says so at once: a closed gate opens when its turn comes. */
static int run_gated(struct sy_local_job *job, struct watch *w, struct sy_script_gate *gate)
{
    sy_script_gate_enter(gate);
    int status = run_here(job, w, gate);
    if (status == SY_OK)
        status = sy_train_run_synchronize(job->run);
    sy_script_gate_leave(gate);
    return status;
}

/* ranks: NULL, or joined; all of them come to the same end, and one that fails ends its process, and the others with it. */
static int start_here(const char *text, const char *device, struct watch *w, struct sy_ranks *ranks)
{
    struct sy_local_job job = {0};
    struct sy_script_gate gate = {.page = NULL};
    int status = sy_local_job_pin_threads();
    if (status == SY_OK)
        status = open_gated(text, device, ranks, &gate, &job);
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt); /* also of the server that cancels a rank of its own */
    if (ranks)
        signal(SIGUSR1, interrupt); /* mpirun passes it on */
    w->is_shown = !ranks || ranks->rank == 0;
    if (status == SY_OK)
        status = run_gated(&job, w, &gate);
    int result = status < 0 ? sy_cli_fail_status() : is_interrupted ? 0 : check_target(w);
    sy_local_job_finish(&job);
    sy_script_gate_close(&gate);
    if (ranks && status < 0)
        _exit(result);
    return draw(w) | result;
}

/* Counted on its machine. */
static long local_rank(void)
{
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    return local ? strtol(local, NULL, 10) : 0;
}

static int start_rank(const char *text, const char *devices, struct watch *w)
{
    struct sy_ranks ranks;
    signal(SIGUSR1, interrupt); /* joining takes its time */
    if (sy_ranks_join_mpi(&ranks) < 0)
        return sy_cli_fail_status();
    if (ranks.rank > 0)
        w->plot = NULL;
    char *list = devices ? strdup(devices) : NULL;
    int result = start_here(text, list ? sy_rank_device(list, local_rank()) : NULL, w, &ranks);
    free(list);
    ranks.ops->leave();
    return result;
}

/* ---- a server's ------------------------------------------------------------------------------------------ */

static void say_that_it_waits(int number)
{
    static const char text[] = "the job waits for a worker, or for memory; 'switchyard jobs' shows "
                               "it, Ctrl-C leaves it in the queue\n";
    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
}

/* The answer comes when the job was admitted. */
static int submit(const char *address, const char *text, int64_t *id)
{
    json_t *answer;
    sy_client *client;

    if (sy_cli_connect(address, START_TIMEOUT_MS, &client))
        return 1;
    signal(SIGALRM, say_that_it_waits);
    alarm(PATIENCE_S);
    int result = sy_cli_call(client, "train", json_pack("{s:s}", "text", text), &answer);
    alarm(0);
    sy_client_close(client);
    if (result)
        return result;
    *id = json_integer_value(json_object_get(answer, "job"));
    json_decref(answer);
    return 0;
}

static int start_job(const char *address, const char *text, struct watch *w)
{
    int64_t id;
    sy_client *client;
    int result = submit(address, text, &id);

    if (result)
        return result;
    printf("job %lld\n", (long long)id);
    fflush(stdout);
    if (!w->is_shown && !w->plot)
        return 0;
    if (sy_cli_connect(address, 0, &client))
        return 1;
    result = watch_job(client, id, w);
    sy_client_close(client);
    return result;
}

static int stop_job(sy_client *client, int64_t id, bool evaluate)
{
    json_t *answer;
    int result =
        sy_cli_call(client, "train_stop",
                    json_pack("{s:I, s:b}", "job", (json_int_t)id, "evaluate", evaluate), &answer);

    json_decref(answer);
    return result;
}

/* ---- the command ------------------------------------------------------------------------------------------- */

struct order {
    const char *path, *address;
    bool is_local, is_rank, wants_explanation, evaluate;
    int64_t stop, n_steps, n_ranks;
    const char *mpi_options, *devices, *plot;
    bool watch;
};

/* Trains with several ranks: here, or as a job of a server. */
static int start_ranks(const struct order *order, const char *text, int n_ranks, int64_t batch)
{
    const struct sy_rank_order here = {order->path, n_ranks, order->mpi_options, order->devices,
                                       batch};
    const struct sy_rank_job there = {order->path,        text,           order->address,
                                      order->mpi_options, order->devices, n_ranks};
    return order->is_local ? sy_rank_launch(&here) : sy_rank_job_exec(&there);
}

static int start_text(const struct order *order, const char *text, struct watch *w)
{
    struct sy_job job;

    if (sy_job_parse(text, &job) < 0)
        return sy_cli_fail_status();
    snprintf(w->name, sizeof w->name, "%s", job.name);
    w->target = job.target_accuracy;
    int64_t batch = job.options.batch,
            n_ranks = order->n_ranks > 0 ? order->n_ranks : (int64_t)job.ranks;
    sy_job_finish(&job);
    if (order->wants_explanation)
        return sy_train_explain(text, (int)order->n_steps);
    if (order->is_rank)
        return start_rank(text, order->devices, w);
    if (order->devices && !order->is_local && order->n_ranks == 0 && n_ranks <= 1)
        return sy_cli_usage("train: --device goes with --local or --ranks: a server has its own");
    if ((order->n_ranks > 0 || n_ranks > 1) && w->plot)
        return sy_cli_usage("train --plot does not go with ranks");
    if (order->n_ranks > 0 || n_ranks > 1)
        return start_ranks(order, text, (int)n_ranks, batch);
    return order->is_local ? start_here(text, order->devices, w, NULL)
                           : start_job(order->address, text, w);
}

static int start(const struct order *order, struct watch *w)
{
    char *text = NULL;

    if (sy_job_load(order->path, &text) < 0)
        return sy_cli_fail_status();
    int result = start_text(order, text, w);
    free(text);
    return result;
}

static int stop(const struct order *order)
{
    sy_client *client;
    if (sy_cli_connect(order->address, STOP_TIMEOUT_MS, &client))
        return 1;
    int result = stop_job(client, order->stop, order->evaluate);
    sy_client_close(client);
    return result;
}

static int take_word(void *command, const char *word)
{
    struct order *order = command;
    if (order->path)
        return sy_error_set(SY_EARG, "train takes one job file, not '%s' too", word);
    order->path = word;
    return SY_OK;
}

static const struct sy_cli_field fields[] = {
    {{"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
     SY_CLI_TEXT(struct order, address)},
    {{"watch", NULL, "show step, loss, accuracy, steps per second and ETA until the job ends"},
     SY_CLI_SWITCH(struct order, watch)},
    {{"plot", "FILE.svg", "as --watch, and draw loss and accuracy when the job has ended"},
     SY_CLI_TEXT(struct order, plot)},
    {{"local", NULL, "without a server: train in this process, on its cores or --device"},
     SY_CLI_SWITCH(struct order, is_local)},
    {{"explain", NULL,
      "without a server: where a step's time goes, and what this CPU's switches are worth"},
     SY_CLI_SWITCH(struct order, wants_explanation)},
    {{"steps", "N", "with --explain: steps of each measurement (20)"},
     SY_CLI_INT64(struct order, n_steps, 1, 1000)},
    {{"stop", "JOB", "stop the job of this number after its iteration, with a snapshot"},
     SY_CLI_INT64(struct order, stop, 0, INT64_MAX)},
    {{"evaluate", NULL, "with --stop: measure the accuracy on the test set first"},
     SY_CLI_SWITCH(struct order, evaluate)},
    {{"ranks", "N",
      "N processes under mpirun, each with its part of the batch and its share of the cores (the "
      "job file's 'ranks'); gradients are summed while backward goes on, in an order that is "
      "fixed. If one is killed, the job goes on from its last snapshot with those that are left. "
      "Without --local they are one job of the server, whose requests preempt all of them; this "
      "process owns them and ends with the job"},
     SY_CLI_INT64(struct order, n_ranks, 1, 64)},
    {{"mpi", NULL,
      "with --local: this process is one of mpirun's: mpirun -n 4 --hostfile F switchyard train "
      "JOB.json --local --mpi"},
     SY_CLI_SWITCH(struct order, is_rank)},
    {{"mpi-options", "WORDS",
      "with --ranks: where mpirun puts them, as \"--hostfile F --map-by numa\"; default: this "
      "machine's cores, cut evenly"},
     SY_CLI_TEXT(struct order, mpi_options)},
    {{"device", "DEVICES",
      "with --local or --ranks: cuda:0 instead of this machine's cores; of ranks a list, one for "
      "each rank of a machine, in turns: cuda:0,cuda:1. Their gradients go from GPU to GPU by "
      "NCCL, which wants a GPU for each, or, with \"exchange\": \"host\" in the job file, by MPI"},
     SY_CLI_TEXT(struct order, devices)},
};

int sy_cmd_train(int argc, char **argv)
{
    static const struct sy_cli_fields command = {
        "train JOB.json [options]\n\nStarts a training job at a server, or stops one. What a job "
        "file says: examples/training/README.md. The job is the server's from then on: a "
        "client that goes away leaves it running (switchyard jobs; train --stop).",
        fields, SY_ARRAY_LEN(fields), take_word};
    static struct watch w;
    struct order order = {.stop = -1, .n_steps = 20};
    int status = sy_cli_read(&command, argc, argv, &order);
    if (status != SY_CLI_END)
        return status;
    w.plot = order.plot;
    w.is_shown = order.watch || order.plot;
    if (!order.path == (order.stop < 0))
        return sy_cli_usage("train takes a job file, or --stop JOB; see switchyard train --help");
    if (!order.path && (order.n_ranks > 0 || order.mpi_options))
        return sy_cli_usage("train: --ranks and --mpi-options go with a job file");
    if (order.devices && (!order.path || order.wants_explanation))
        return sy_cli_usage("train: --device goes with a job file, and not with --explain");
    if (order.is_rank && (!order.is_local || !order.path || order.n_ranks > 0))
        return sy_cli_usage("train: --mpi goes with a job file and --local, and not with --ranks");
    if (order.path && order.n_ranks == 0 && (order.is_local || order.wants_explanation))
        sy_local_job_bound_spinning(argv - 1);
    return order.path ? start(&order, &w) : stop(&order);
}
