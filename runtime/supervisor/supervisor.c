#include "runtime/supervisor/supervisor.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/shared_memory.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/supervisor/worker_program.h"
#include "runtime/supervisor/worker_watch.h"

#define TICK_NS          (100 * SY_NS_PER_MS)
#define FIRST_BACKOFF    (100 * SY_NS_PER_MS)
#define LONGEST_BACKOFF  (5 * SY_NS_PER_S)
#define MAX_EARLY_DEATHS 10
#define START_PATIENCE   SY_NS_PER_S         /* V5 */
#define RERUN_TIME       (50 * SY_NS_PER_MS) /* V3 */
#define MESSAGES_A_TURN  32 /* so that one chatty worker does not starve the others */

struct process {
    struct sy_supervisor *owner;
    int index, fd, pidfd;
    pid_t pid;
    enum sy_worker_state state, died_in;
    sy_ns spawned_ns, respawn_ns; /* respawn_ns 0: it is not to be */
    struct sy_worker_watch watch;
    struct event *socket_event, *exit_event;
    struct sy_shared_memory page;
    struct sy_post post;   /* messages, both ways */
    int n_deaths, n_early; /* n_early: deaths before it was idle, and vain starts, in a row */
    bool was_ready, given_up;
    bool is_untold; /* given up, of which `lost` does not know yet */
    char why[256];  /* it was killed */
};

struct sy_supervisor {
    struct event_base *base;
    char *program;
    struct sy_supervisor_config config;
    struct event *tick, *due; /* due: the next respawn */
    char **environment;
    bool stopping;
    struct process *processes;
};

static void on_socket(int fd, short what, void *process);
static void on_exit_fd(int fd, short what, void *process);
static void spawn_due(struct sy_supervisor *s, sy_ns now);
static void plan_respawn(struct sy_supervisor *s, struct process *p);

/* ---- state ------------------------------------------------------------------------------------ */

int sy_supervisor_event(struct sy_supervisor *s, int worker, enum sy_worker_event event)
{
    struct process *p = &s->processes[worker];
    enum sy_worker_state to;
    int status = sy_worker_state_move(p->state, event, &to);
    if (status < 0) {
        char why[200];
        snprintf(why, sizeof why, "%s", sy_error_text());
        sy_supervisor_kill(s, worker, why);
        return sy_error_set(status, "worker %d: %s", worker, why);
    }
    sy_log_debug("supervisor", "worker=%d event=%s from=%s to=%s", worker,
                 sy_worker_event_name(event), sy_worker_state_name(p->state),
                 sy_worker_state_name(to));
    sy_worker_watch_move(&p->watch, to, sy_clock_now());
    p->state = to;
    if (to == SY_WORKER_IDLE && !p->was_ready) {
        p->was_ready = true;
        spawn_due(s, p->watch.moved_ns);
    }
    return SY_OK;
}

enum sy_worker_state sy_supervisor_state(const struct sy_supervisor *s, int worker)
{
    return s->processes[worker].state;
}

pid_t sy_supervisor_pid(const struct sy_supervisor *s, int worker)
{
    return s->processes[worker].pid;
}

int sy_supervisor_n_deaths(const struct sy_supervisor *s, int worker)
{
    return s->processes[worker].n_deaths;
}

struct sy_control_page *sy_supervisor_page(struct sy_supervisor *s, int worker)
{
    return s->processes[worker].page.base;
}

int sy_supervisor_page_fd(const struct sy_supervisor *s, int worker)
{
    return s->processes[worker].page.fd;
}

int sy_supervisor_n_alive(const struct sy_supervisor *s)
{
    int n = 0;
    for (int i = 0; i < s->config.n_workers; i++)
        n += s->processes[i].pid > 0;
    return n;
}

/* ---- spawning --------------------------------------------------------------------------------- */

static int watch(struct sy_supervisor *s, struct process *p)
{
    p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0); /* CLOEXEC by itself */
    if (p->pidfd < 0)
        return sy_error_set(SY_EIO, "pidfd_open of worker %d: %s", p->index, strerror(errno));
    p->socket_event = event_new(s->base, p->fd, EV_READ | EV_PERSIST, on_socket, p);
    p->exit_event = event_new(s->base, p->pidfd, EV_READ | EV_PERSIST, on_exit_fd, p);
    if (!p->socket_event || !p->exit_event || event_add(p->socket_event, NULL) < 0 ||
        event_add(p->exit_event, NULL) < 0)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the events of worker %d", p->index);
    return SY_OK;
}

static void unwatch(struct process *p)
{
    if (p->socket_event)
        event_free(p->socket_event);
    if (p->exit_event)
        event_free(p->exit_event);
    p->socket_event = p->exit_event = NULL;
    if (p->fd >= 0)
        close(p->fd);
    if (p->pidfd >= 0)
        close(p->pidfd);
    p->fd = p->pidfd = -1;
}

static void reap_now(struct process *p)
{
    kill(p->pid, SIGKILL);
    while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    p->pid = 0;
}

static int spawn(struct sy_supervisor *s, struct process *p)
{
    int pair[2], status;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return sy_error_set(SY_EIO, "control socket of worker %d: %s", p->index, strerror(errno));
    p->fd = pair[0];
    fcntl(p->fd, F_SETFL, O_NONBLOCK);
    memset(p->page.base, 0, SY_CONTROL_PAGE_BYTES);
    struct sy_control_page *page = p->page.base;
    atomic_store_explicit(&page->heartbeat_ns, sy_clock_now(), memory_order_relaxed);
    p->post = (struct sy_post){.out = &page->to_worker, .in = &page->to_runtime};
    status = sy_worker_program_start(s->program, s->environment, p->index, pair[1], &p->pid);
    close(pair[1]);
    SY_TRY_GOTO(status, close_socket);
    SY_TRY_GOTO(watch(s, p), reap);
    p->was_ready = false;
    p->why[0] = 0;
    p->respawn_ns = 0;
    p->watch = (struct sy_worker_watch){0};
    p->spawned_ns = sy_clock_now();
    sy_log_info("supervisor", "event=spawned worker=%d pid=%d", p->index, (int)p->pid);
    return sy_supervisor_event(s, p->index, SY_WORKER_EVENT_SPAWN);

reap:
    reap_now(p);
close_socket:
    unwatch(p);
    return status;
}

static bool is_starting(const struct process *p, sy_ns now)
{
    return p->pid > 0 && !p->was_ready && p->state != SY_WORKER_KILLED &&
           now < p->spawned_ns + START_PATIENCE;
}

static bool may_start(const struct sy_supervisor *s, sy_ns now)
{
    int n = 0, most = s->config.most_starting;
    bool serves = false;
    for (int i = 0; i < s->config.n_workers; i++) {
        n += is_starting(&s->processes[i], now);
        serves |= s->processes[i].pid > 0 && s->processes[i].was_ready;
    }
    most = serves ? SY_MAX(most / 2, 1) : most;
    return !s->stopping && (s->config.most_starting == 0 || n < most);
}

/* Sets the timer to the next respawn. Where it cannot be set the tick comes. */
static void set_due(struct sy_supervisor *s, sy_ns now)
{
    sy_ns next = UINT64_MAX;
    for (int i = 0; i < s->config.n_workers; i++) {
        const struct process *p = &s->processes[i];
        if (p->pid <= 0 && p->respawn_ns > now)
            next = SY_MIN(next, p->respawn_ns);
    }
    if (next == UINT64_MAX || s->stopping)
        return;
    sy_ns wait_us = (next - now) / SY_NS_PER_US + 1;
    struct timeval later = {.tv_sec = (time_t)(wait_us / 1000000),
                            .tv_usec = (suseconds_t)(wait_us % 1000000)};
    event_add(s->due, &later);
}

/* Without a process, a descriptor, or its program: as an early death. */
static void fail_spawn(struct sy_supervisor *s, struct process *p)
{
    snprintf(p->why, sizeof p->why, "%s", sy_error_text());
    sy_log_warn("supervisor", "event=not_spawned worker=%d why=\"%s\"", p->index, p->why);
    p->was_ready = false;
    plan_respawn(s, p);
    p->is_untold = p->given_up;
}

/* Starts the workers that are due, as many as V5 allows. */
static void spawn_due(struct sy_supervisor *s, sy_ns now)
{
    for (int i = 0; i < s->config.n_workers && may_start(s, now); i++) {
        struct process *p = &s->processes[i];
        if (p->pid <= 0 && p->respawn_ns && now >= p->respawn_ns && spawn(s, p) < 0)
            fail_spawn(s, p);
    }
    set_due(s, now);
}

/* ---- dying ------------------------------------------------------------------------------------ */

void sy_supervisor_kill(struct sy_supervisor *s, int worker, const char *why)
{
    struct process *p = &s->processes[worker];
    if (p->pid <= 0 || p->state == SY_WORKER_KILLED || p->state == SY_WORKER_DEAD)
        return;
    sy_log_at(s->stopping && !p->was_ready ? SY_LOG_INFO : SY_LOG_WARN, "supervisor",
              "event=kill worker=%d pid=%d state=%s why=\"%s\"", worker, (int)p->pid,
              sy_worker_state_name(p->state), why);
    snprintf(p->why, sizeof p->why, "%s", why);
    p->died_in = p->state;
    kill(p->pid, SIGKILL);
    if (p->socket_event)
        event_del(p->socket_event);
    (void)sy_supervisor_event(s, worker, SY_WORKER_EVENT_KILL);
}

static void describe_exit(const struct process *p, const siginfo_t *info, char *text, size_t bytes)
{
    if (p->why[0])
        snprintf(text, bytes, "worker %d was killed: %s", p->index, p->why);
    else if (info->si_code != CLD_EXITED)
        snprintf(text, bytes, "worker %d was ended by signal %d (%s)", p->index, info->si_status,
                 strsignal(info->si_status));
    else
        snprintf(text, bytes, "worker %d exited with status %d", p->index, info->si_status);
}

static bool one_is_idle(const struct sy_supervisor *s)
{
    for (int i = 0; i < s->config.n_workers; i++)
        if (s->processes[i].state == SY_WORKER_IDLE)
            return true;
    return false;
}

/* V3. */
static sy_ns respawn_wait(const struct sy_supervisor *s, const struct process *p)
{
    sy_ns wait = 0;
    if (p->was_ready)
        return one_is_idle(s) ? RERUN_TIME : 0;
    for (int i = 1; i < p->n_early; i++)
        wait = wait ? SY_MIN(2 * wait, LONGEST_BACKOFF) : FIRST_BACKOFF;
    return wait;
}

static void plan_respawn(struct sy_supervisor *s, struct process *p)
{
    p->n_early = p->was_ready ? 0 : p->n_early + 1;
    p->respawn_ns = sy_clock_now() + respawn_wait(s, p);
    if (p->n_early < MAX_EARLY_DEATHS)
        return;
    p->given_up = true;
    p->respawn_ns = 0;
    sy_log_error(
        "supervisor",
        "event=given_up worker=%d deaths=%d why=\"it died, or did not start, %d times in a "
        "row before it had loaded its models\" "
        "try=\"run %s worker by hand, SY_LOG=debug\"",
        p->index, p->n_deaths, p->n_early, s->program);
}

/* The process has ended: tells of it, and has another one started. */
static void end_process(struct sy_supervisor *s, struct process *p, const char *why)
{
    unwatch(p);
    p->pid = 0;
    (void)sy_supervisor_event(s, p->index, SY_WORKER_EVENT_EXIT);
    if (s->stopping) {
        s->config.ops.lost(s->config.ops.ctx, p->index, p->died_in, false, why);
        return;
    }
    p->n_deaths++;
    sy_log_warn("supervisor", "event=lost worker=%d state=%s why=\"%s\"", p->index,
                sy_worker_state_name(p->died_in), why);
    plan_respawn(s, p);
    s->config.ops.lost(s->config.ops.ctx, p->index, p->died_in, !p->given_up, why);
    spawn_due(s, sy_clock_now());
}

/* What waits for the worker goes on before it is reaped: that can take long (worker_program.h), and all of its threads and memory are gone already. */
static void on_exit_fd(int fd, short what, void *process)
{
    struct process *p = process;
    siginfo_t info = {0};
    char text[400];
    (void)fd;
    (void)what;
    /* Messages that it sent before it died still count, unless it was killed for one. */
    if (p->state != SY_WORKER_KILLED)
        on_socket(p->fd, EV_READ, p);
    pid_t pid = p->pid;
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid)
        return;
    if (p->state != SY_WORKER_KILLED)
        p->died_in = p->state;
    describe_exit(p, &info, text, sizeof text);
    end_process(p->owner, p, text);
    sy_worker_program_reap(pid);
}

/* ---- messages --------------------------------------------------------------------------------- */

/* posted: only what lies in a slot; else what comes next. EBUSY: nothing. */
static int take_message(struct sy_supervisor *s, struct process *p, bool posted)
{
    struct sy_message message;
    int status = posted ? sy_post_take(&p->post, SY_TO_RUNTIME, &message)
                        : sy_post_receive(&p->post, p->fd, SY_TO_RUNTIME, &message, NULL, NULL);
    if (status < 0 || (posted && status == 0))
        return status < 0 ? status : SY_EBUSY;
    if (sy_log_threshold >= SY_LOG_DEBUG) {
        char line[200];
        sy_message_dump(&message, line, sizeof line);
        sy_log_debug("wire", "from=%d %s", p->index, line);
    }
    p->watch.heard_ns = sy_clock_now();
    status = s->config.ops.message(s->config.ops.ctx, p->index, &message);
    sy_message_finish(&message);
    if (status == SY_EBUSY || status == SY_EPEER)
        status = SY_EPROTO; /* these two mean something else in the caller */
    return status;
}

static void take_messages(struct sy_supervisor *s, struct process *p, bool posted)
{
    char why[200];
    for (int i = 0; i < MESSAGES_A_TURN && p->state != SY_WORKER_KILLED && p->fd >= 0; i++) {
        int status = take_message(s, p, posted);
        if (status == SY_EBUSY)
            return;
        if (status == SY_EPEER) {
            event_del(
                p->socket_event); /* its exit follows, or it has closed the socket and hangs */
            p->watch.closed_ns = sy_clock_now();
            return;
        }
        if (status < 0) {
            snprintf(why, sizeof why, "%s", sy_error_text());
            sy_supervisor_kill(s, p->index, why);
            return;
        }
    }
}

static void on_socket(int fd, short what, void *process)
{
    struct process *p = process;
    (void)fd;
    (void)what;
    take_messages(p->owner, p, false);
}

void sy_supervisor_take_posts(struct sy_supervisor *s, bool polls)
{
    for (int i = 0; i < s->config.n_workers; i++) {
        struct process *p = &s->processes[i];
        sy_post_set_polled(&p->post, polls);
        take_messages(s, p, true);
    }
}

int sy_supervisor_send(struct sy_supervisor *s, int worker, const struct sy_message *message,
                       const int *fds, int n_fds)
{
    struct process *p = &s->processes[worker];
    char why[200];
    if (p->fd < 0 || p->state == SY_WORKER_KILLED)
        return sy_error_set(SY_EPEER, "worker %d does not exist", worker);
    int status = sy_post_send(&p->post, p->fd, message, fds, n_fds);
    if (status < 0) {
        bool was_gone = status == SY_EPEER && p->state == SY_WORKER_IDLE;
        snprintf(why, sizeof why, "cannot send %s: %s", sy_message_name((int)message->id),
                 sy_error_text());
        sy_supervisor_kill(s, worker, why);
        p->died_in = was_gone ? SY_WORKER_DEAD : p->died_in;
    }
    return status;
}

/* ---- time ------------------------------------------------------------------------------------- */

static void check_process(struct sy_supervisor *s, struct process *p, sy_ns now)
{
    char why[SY_WORKER_WATCH_WHY];
    if (p->pid <= 0 || p->state == SY_WORKER_KILLED)
        return;
    struct sy_control_page *page = p->page.base;
    sy_ns beat = atomic_load_explicit(&page->heartbeat_ns, memory_order_relaxed);
    if (sy_worker_watch_is_over(&p->watch, p->state, p->pid, beat, s->config.hang_timeout_ns, now,
                                why))
        sy_supervisor_kill(s, p->index, why);
}

/* Here, since a vain start may come in the midst of the caller's work. */
static void tell_of_vain_starts(struct sy_supervisor *s)
{
    for (int i = 0; i < s->config.n_workers; i++) {
        struct process *p = &s->processes[i];
        if (!p->is_untold || s->stopping)
            continue;
        p->is_untold = false;
        s->config.ops.lost(s->config.ops.ctx, i, SY_WORKER_DEAD, false, p->why);
    }
}

static void on_tick(int fd, short what, void *supervisor)
{
    struct sy_supervisor *s = supervisor;
    sy_ns now = sy_clock_now();
    (void)fd;
    (void)what;
    for (int i = 0; i < s->config.n_workers; i++)
        check_process(s, &s->processes[i], now);
    spawn_due(s, now);
    tell_of_vain_starts(s);
}

static void on_due(int fd, short what, void *supervisor)
{
    (void)fd;
    (void)what;
    spawn_due(supervisor, sy_clock_now());
}

/* ---- start and end ---------------------------------------------------------------------------- */

static int init_processes(struct sy_supervisor *s)
{
    sy_ns now = sy_clock_now();
    for (int i = 0; i < s->config.n_workers; i++)
        s->processes[i] = (struct process){.owner = s, .index = i, .fd = -1, .pidfd = -1};
    for (int i = 0; i < s->config.n_workers; i++)
        SY_TRY(sy_shared_memory_create(&s->processes[i].page, "switchyard-control",
                                       SY_CONTROL_PAGE_BYTES));
    for (int i = 0; i < s->config.n_workers; i++)
        s->processes[i].respawn_ns = now;
    for (int i = 0; i < s->config.n_workers && may_start(s, now); i++)
        SY_TRY(spawn(s, &s->processes[i]));
    return SY_OK;
}

int sy_supervisor_create(struct event_base *base, const struct sy_supervisor_config *config,
                         struct sy_supervisor **out)
{
    struct timeval tick = {.tv_usec = TICK_NS / SY_NS_PER_US};
    struct sy_supervisor *s = calloc(1, sizeof *s);
    SY_TRY_ALLOC(s, "no memory for the supervisor");
    s->base = base;
    s->config = *config;
    s->program = strdup(config->program ? config->program : "/proc/self/exe");
    s->environment = sy_worker_program_environment();
    s->processes = calloc((size_t)config->n_workers, sizeof *s->processes);
    s->tick = event_new(base, -1, EV_PERSIST, on_tick, s);
    s->due = event_new(base, -1, 0, on_due, s);
    int status = SY_OK;
    if (!s->program || !s->environment || !s->processes || !s->tick || !s->due ||
        event_add(s->tick, &tick) < 0)
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for %d workers", config->n_workers);
    if (status == SY_OK)
        status = init_processes(s);
    if (status < 0) {
        sy_supervisor_destroy(s);
        return status;
    }
    *out = s;
    return SY_OK;
}

void sy_supervisor_destroy(struct sy_supervisor *s)
{
    if (!s)
        return;
    for (int i = 0; s->processes && i < s->config.n_workers; i++) {
        struct process *p = &s->processes[i];
        if (!p->owner)
            continue;
        if (p->pid > 0)
            reap_now(p);
        unwatch(p);
        sy_shared_memory_finish(&p->page);
    }
    if (s->tick)
        event_free(s->tick);
    if (s->due)
        event_free(s->due);
    free(s->processes);
    free(s->environment);
    free(s->program);
    free(s);
}

void sy_supervisor_stop(struct sy_supervisor *s, sy_ns grace_ns)
{
    struct sy_message message = {.id = SY_MSG_SHUTDOWN, .shutdown = {.grace_ns = grace_ns}};
    s->stopping = true;
    for (int i = 0; i < s->config.n_workers; i++) {
        struct process *p = &s->processes[i];
        if (p->pid <= 0 || p->state == SY_WORKER_KILLED)
            continue;
        if (!p->was_ready) { /* it holds nothing, and would read the message only after its start */
            sy_supervisor_kill(s, i, "told to stop before it had its models");
            continue;
        }
        const struct sy_control_page *page = p->page.base;
        p->watch.beat_at_stop_ns =
            sy_worker_state_has_heartbeat(p->state)
                ? atomic_load_explicit(&page->heartbeat_ns, memory_order_relaxed)
                : 0;
        if (sy_supervisor_send(s, i, &message, NULL, 0) < 0)
            continue;
        (void)sy_supervisor_event(s, i, SY_WORKER_EVENT_SHUTDOWN);
    }
}
