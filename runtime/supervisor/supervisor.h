/* Keeps the worker processes alive: spawns, watches, kills, reaps, replaces.
 *
 * V1: a worker's memory is given to others only after `lost`, which comes when its process has ended with all of its threads.
 * V2: a worker is killed by its own pid, which is ours until it is reaped, after `lost`.
 * V3: one that had its models (IDLE) is replaced at once where no other is idle, else after 50 ms: what it computed runs again first, and a start beside
 *     it takes the cores from it. One that dies before is replaced at once the first time, then after 100 ms, doubling to 5 s; after ten such deaths in a row
 *     it is given up, and that is logged. A start in vain (no process, no descriptor) counts as one.
 * V4: a heartbeat older than the hang timeout (and than the time in which it wanted a core and had none, up to six of them), a state that outlasts its timeout, or a socket that it closed a second ago
 *     kills it. One that is told to stop may wind up without a heartbeat, but has to begin within the hang timeout.
 *     Others wait for one that loads models, starts a job, or is told to stop in a state without beats: it is killed if it uses no CPU time, and waits
 *     for no storage, for the hang timeout and 5 s at least; if it computes on one program for six of them and 300 s at least.
 * V5: at most `most_starting` start at once, half of that while another serves, the others after them: six that start together on two cores are all ready
 *     as late as the last one, and take the cores from requests. One that has started for a second holds up no other.
 *
 * One thread, the event loop's. Callbacks are made from the event loop, `message` also handles bad messages by returning
 * negative: then the worker is killed. */
#ifndef SY_RUNTIME_SUPERVISOR_SUPERVISOR_H
#define SY_RUNTIME_SUPERVISOR_SUPERVISOR_H

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/supervisor/worker_state.h"
#include "runtime/wire/control_page.h"
#include "runtime/wire/messages.h"

struct event_base;
struct sy_supervisor;

struct sy_supervisor_ops {
    int (*message)(void *ctx, int worker, const struct sy_message *message);
    /* was: its state then; DEAD: it was idle, and gone before it was told of anything, or did not start. comes_back false: given up. The control page still holds what the
     * worker wrote last. */
    void (*lost)(void *ctx, int worker, enum sy_worker_state was, bool comes_back, const char *why);
    void *ctx;
};

struct sy_supervisor_config {
    const char *program; /* NULL: /proc/self/exe */
    int n_workers;
    int most_starting; /* V5; 0: all */
    sy_ns hang_timeout_ns;
    struct sy_supervisor_ops ops;
};

/* Spawns the first workers, the others as these are ready (V5). EARG, ENOMEM_HOST, EIO. */
int sy_supervisor_create(struct event_base *base, const struct sy_supervisor_config *config,
                         struct sy_supervisor **out);
/* Kills and reaps what is left (blocks for that: SIGKILL, no callbacks). NULL is fine. */
void sy_supervisor_destroy(struct sy_supervisor *s);

enum sy_worker_state sy_supervisor_state(const struct sy_supervisor *s, int worker);
pid_t sy_supervisor_pid(const struct sy_supervisor *s, int worker); /* 0: none */
int sy_supervisor_n_deaths(const struct sy_supervisor *s, int worker);
struct sy_control_page *sy_supervisor_page(struct sy_supervisor *s, int worker);
int sy_supervisor_page_fd(const struct sy_supervisor *s, int worker);

/* The one setter: moves, logs, sets the deadline. EPROTO (pair not in the table): the worker is killed already. */
int sy_supervisor_event(struct sy_supervisor *s, int worker, enum sy_worker_event event);
/* A failure to send kills the worker; it is returned, too. */
int sy_supervisor_send(struct sy_supervisor *s, int worker, const struct sy_message *message,
                       const int *fds, int n_fds);
/* Handles the messages that workers posted in shared memory (runtime/wire/post_box.h). polls true: the caller calls it repeatedly, so workers may go on
 * posting; false: for the last time before the loop sleeps. */
void sy_supervisor_take_posts(struct sy_supervisor *s, bool polls);
void sy_supervisor_kill(struct sy_supervisor *s, int worker, const char *why);
/* SHUTDOWN to all that have their models, the end of those that still start; no worker is replaced from now on. The dead are reported by `lost`. */
void sy_supervisor_stop(struct sy_supervisor *s, sy_ns grace_ns);
int sy_supervisor_n_alive(const struct sy_supervisor *s);

#endif
