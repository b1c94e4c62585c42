/* Whether as many processes start at once as a server has workers, by fork and exec of this program. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/doctor/probe.h"

#define MOST 64

extern char **environ;

/* 0 or the error. */
static int start(pid_t *out)
{
    char *argv[] = {"switchyard", "version", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawn(out, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

static bool ended_well(pid_t pid)
{
    int status;
    pid_t got;
    do
        got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    return got == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void sy_probe_workers(struct sy_doctor_facts *facts, int n)
{
    pid_t pids[MOST];
    int started = 0, well = 0, failed = 0;
    n = SY_MIN(n, MOST);
    sy_ns begin = sy_clock_now();
    while (started < n && (failed = start(&pids[started])) == 0)
        started++;
    for (int i = 0; i < started; i++)
        well += ended_well(pids[i]);
    facts->workers_wanted = n;
    facts->workers_started = well;
    facts->worker_start_ms = (double)(sy_clock_now() - begin) / 1e6;
    if (well < n)
        sy_doctor_text(facts->worker_why,
                       failed ? strerror(failed) : "one ended by a signal or with an error");
}
