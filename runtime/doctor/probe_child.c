#include "runtime/doctor/probe_child.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/await_child.h"

static void await(pid_t pid, sy_ns timeout_ns, char why[SY_DOCTOR_TEXT_BYTES])
{
    int status = 0;
    if (!sy_await_child(pid, sy_clock_now() + timeout_ns, &status))
        snprintf(why, SY_DOCTOR_TEXT_BYTES, "it was not over within %llu s",
                 (unsigned long long)(timeout_ns / SY_NS_PER_S));
    else if (WIFSIGNALED(status))
        snprintf(why, SY_DOCTOR_TEXT_BYTES, "the process that tried ended by signal %d (%s)",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0)
        snprintf(why, SY_DOCTOR_TEXT_BYTES, "the process that tried ended with exit status %d",
                 WEXITSTATUS(status));
}

void sy_probe_in_child(struct sy_doctor_facts *facts,
                       void (*probe)(struct sy_doctor_facts *facts, void *ctx), void *ctx,
                       sy_ns timeout_ns, char why[SY_DOCTOR_TEXT_BYTES])
{
    struct sy_doctor_facts *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        sy_doctor_text(why, strerror(errno));
        return;
    }
    *shared = *facts;
    pid_t pid = fork();
    if (pid == 0) {
        probe(shared, ctx);
        _exit(0);
    }
    int failed = errno;
    if (pid > 0) {
        char end[SY_DOCTOR_TEXT_BYTES] = "";
        await(pid, timeout_ns, end);
        *facts = *shared;
        if (*end)
            sy_doctor_text(why, end);
    } else {
        sy_doctor_text(why, strerror(failed));
    }
    munmap(shared, sizeof *shared);
}
