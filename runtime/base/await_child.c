#include "runtime/base/await_child.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

bool sy_await_child(pid_t pid, sy_ns end, int *wait_status)
{
    const struct timespec nap = {.tv_nsec = (long)SY_NS_PER_MS};
    while (sy_clock_now() < end) {
        if (waitpid(pid, wait_status, WNOHANG) == pid)
            return true;
        nanosleep(&nap, NULL);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, wait_status, 0) < 0 && errno == EINTR)
        ;
    return false;
}
