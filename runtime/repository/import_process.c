/*   RUNNING ──end of its error output──> CLOSED (asked every 5 ms whether it has ended) ──> done
 *      └── limit ──> killed ──> as above */
#include "runtime/repository/import_process.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_cores.h"

#define NICENESS 10
#define ASK_US   5000

extern char **environ;

struct sy_import_process {
    pid_t pid;
    int fd; /* its error output; -1: at its end */
    struct event *read_event, *ask_event, *limit_event;
    sy_ns limit_ns;
    bool too_long;
    char line[400]; /* the line being received */
    size_t n_line;
    char last[400]; /* whole line with something in it */
    sy_import_done done;
    void *ctx;
};

static void import_free(struct sy_import_process *p)
{
    struct event *events[] = {p->read_event, p->ask_event, p->limit_event};

    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            event_free(events[i]);
    if (p->fd >= 0)
        close(p->fd);
    free(p);
}

/* ---- its output ---------------------------------------------------------------------------------------------- */

static void end_line(struct sy_import_process *p)
{
    static const char ours[] = "switchyard: ";
    const char *text = p->line;

    p->line[p->n_line] = '\0';
    p->n_line = 0;
    sy_printable_make(p->line);
    if (strncmp(text, ours, sizeof ours - 1) == 0)
        text += sizeof ours - 1;
    if (*text)
        snprintf(p->last, sizeof p->last, "%s", text);
}

static void take_output(struct sy_import_process *p, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] == '\n' || bytes[i] == '\r')
            end_line(p);
        else if (p->n_line + 1 < sizeof p->line)
            p->line[p->n_line++] = bytes[i];
}

/* ---- its end --------------------------------------------------------------------------------------------------- */

static void report(struct sy_import_process *p, int wait_status)
{
    char why[500];
    int status = SY_OK;

    end_line(p);
    if (p->too_long)
        snprintf(why, sizeof why, "the import took longer than %.0f s", (double)p->limit_ns / 1e9);
    else if (WIFSIGNALED(wait_status))
        snprintf(why, sizeof why, "the import was killed by signal %d", WTERMSIG(wait_status));
    else
        snprintf(why, sizeof why, "%s",
                 *p->last ? p->last : "the import failed and gave no reason");
    if (p->too_long || !WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0)
        status = SY_EIO;
    p->done(p->ctx, status, status < 0 ? why : NULL);
    import_free(p);
}

static void ask(struct sy_import_process *p)
{
    struct timeval soon = {0, ASK_US};
    int wait_status;

    if (waitpid(p->pid, &wait_status, WNOHANG) == p->pid)
        report(p, wait_status);
    else
        event_add(p->ask_event, &soon);
}

static void on_ask(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    ask(ctx);
}

static void on_output(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_import_process *p = ctx;
    char bytes[4096];
    ssize_t n = read(fd, bytes, sizeof bytes);

    (void)what;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        take_output(p, bytes, (size_t)n);
        (void)!write(STDERR_FILENO, bytes, (size_t)n);
        return;
    }
    event_del(p->read_event);
    close(p->fd);
    p->fd = -1;
    ask(p);
}

static void on_limit(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_import_process *p = ctx;

    (void)fd, (void)what;
    p->too_long = true;
    kill(p->pid, SIGKILL);
    ask(p); /* a child of the importer may hold the pipe open */
}

/* ---- start and stop ------------------------------------------------------------------------------------------ */

static int spawn(struct sy_import_process *p, const char *program, const char *const *argv,
                 int error_fd)
{
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);

    if (failed)
        return sy_error_set(SY_ENOMEM_HOST, "cannot start %s: %s", program, strerror(failed));
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, error_fd, STDERR_FILENO);
    sy_thread_cores_widen();
    failed = posix_spawn(&p->pid, program, &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    sy_thread_cores_narrow();
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return sy_error_set(SY_EIO, "cannot start %s: %s", program, strerror(failed));
    setpriority(PRIO_PROCESS, (id_t)p->pid, NICENESS); /* where it is refused, it competes */
    return SY_OK;
}

static int make_events(struct sy_import_process *p, struct event_base *base)
{
    struct timeval limit = {(time_t)(p->limit_ns / SY_NS_PER_S),
                            (suseconds_t)(p->limit_ns % SY_NS_PER_S / SY_NS_PER_US)};

    p->read_event = event_new(base, p->fd, EV_READ | EV_PERSIST, on_output, p);
    p->ask_event = event_new(base, -1, 0, on_ask, p);
    p->limit_event = event_new(base, -1, 0, on_limit, p);
    if (!p->read_event || !p->ask_event || !p->limit_event || event_add(p->read_event, NULL) ||
        event_add(p->limit_event, &limit))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for an import's events");
    return SY_OK;
}

int sy_import_process_start(struct event_base *base, const char *program, const char *const *argv,
                            sy_ns limit_ns, sy_import_done done, void *ctx,
                            struct sy_import_process **out)
{
    struct sy_import_process *p = calloc(1, sizeof *p);
    int fds[2], status;

    SY_TRY_ALLOC(p, "no memory for an import");
    if (pipe2(fds, O_CLOEXEC)) {
        free(p);
        return sy_error_set(SY_EIO, "cannot make a pipe: %s", strerror(errno));
    }
    *p = (struct sy_import_process){.fd = fds[0], .limit_ns = limit_ns, .done = done, .ctx = ctx};
    evutil_make_socket_nonblocking(fds[0]);
    status = make_events(p, base);
    if (status == SY_OK)
        status = spawn(p, program, argv, fds[1]);
    close(fds[1]);
    if (status < 0) {
        import_free(p);
        return status;
    }
    *out = p;
    return SY_OK;
}

void sy_import_process_stop(struct sy_import_process *process)
{
    if (!process)
        return;
    kill(process->pid, SIGKILL);
    while (waitpid(process->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    import_free(process);
}
