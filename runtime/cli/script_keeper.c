#include "runtime/cli/script_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/cli/script_signals.h"
#include "runtime/cli/script_tree.h"

#define ROUNDS   50
#define ROUND_MS 10 /* what is killed goes, and what it had just started shows */
/* Rounds in a row with nothing left: a process that is about to end has no environment any more, and its children are not yet another's. */
#define QUIET 10
/* Nobody waits for this process, and what was killed may be slow to die. */
#define CGROUP_PATIENCE (30 * SY_NS_PER_S)

/* Also what is in a group or a session of its own. Orphans of the run and this process go to the same one, a moment after the pipe's end. */
static void end_all(const struct sy_script_process *p, pid_t run)
{
    static pid_t pids[SY_SCRIPT_TREE_MOST];
    const struct timespec pause = {.tv_nsec = ROUND_MS * (long)SY_NS_PER_MS};
    char setting[sizeof p->folder + sizeof SY_SCRIPT_RUN_VARIABLE + 1];
    snprintf(setting, sizeof setting, SY_SCRIPT_RUN_VARIABLE "=%s", p->folder);
    (void)kill(-p->pid, SIGKILL);
    sy_script_cgroup_kill(p->cgroup);
    for (int round = 0, quiet = 0; round < ROUNDS && quiet < QUIET; round++) {
        int n = getppid() == run ? -1 : sy_script_tree_list_left(getppid(), setting, pids);
        quiet = n == 0 ? quiet + 1 : 0;
        for (int i = 0; i < n; i++)
            (void)kill(pids[i], SIGKILL);
        nanosleep(&pause, NULL);
    }
}

static void replace_run(struct sy_script_process *p, pid_t run)
{
    if (p->is_child) {
        end_all(p, run);
    } else {
        p->is_stopped = true; /* perhaps */
        sy_script_let_go(p);
    }
    unlink(p->socket);
    rmdir(p->folder);
    sy_script_cgroup_remove(p->cgroup, CGROUP_PATIENCE);
}

/* In a session of its own, with signals ignored and no file but the pipe: a reader of run's output must not wait for this process. */
static _Noreturn void keep(struct sy_script_process *p, pid_t run, int pipe_end)
{
    sigset_t every;
    char byte, *outer = getenv(SY_SCRIPT_RUN_VARIABLE);
    ssize_t got;
    if (outer) /* of a run within a run: its keeper is not to be ended with it */
        memset(outer, 0, strlen(outer));
    sy_script_cgroup_leave();
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, NULL);
    setsid();
    dup2(pipe_end, 0);
    (void)syscall(SYS_close_range, 1u, ~0u, 0u);
    while ((got = read(0, &byte, 1)) < 0 && errno == EINTR)
        continue;
    if (got == 0)
        replace_run(p, run);
    _exit(0);
}

int sy_script_keeper_start(struct sy_script_process *p)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return sy_error_set(SY_EIO, "a pipe: %s", strerror(errno));
    pid_t run = getpid(), pid = fork();
    if (pid == 0)
        keep(p, run, ends[0]);
    int error = errno;
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return sy_error_set(SY_EIO, "fork: %s", strerror(error));
    }
    p->keeper = pid;
    p->keeper_pipe = ends[1];
    return SY_OK;
}

void sy_script_keeper_end(struct sy_script_process *p)
{
    if (p->keeper <= 0)
        return;
    (void)!write(p->keeper_pipe, "", 1);
    close(p->keeper_pipe);
    (void)waitpid(p->keeper, NULL, 0);
    p->keeper = 0;
}
