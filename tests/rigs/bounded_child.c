#include "tests/rigs/bounded_child.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t address_space(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%llu", &pages) != 1)
        abort();
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void limit(int what, uint64_t most)
{
    struct rlimit limits = {.rlim_cur = most, .rlim_max = most};
    if (setrlimit((__rlimit_resource_t)what, &limits) != 0)
        abort();
}

/* Time passes faster for one that shares its core, and much faster for one with sanitizers. */
#ifdef SY_SANITIZED
#define SLOWNESS 8
#else
#define SLOWNESS 2
#endif

void bounded_child_run(void (*work)(const void *ctx, struct child_report *report), const void *ctx,
                       uint64_t memory_bytes, unsigned cpu_seconds, struct child_end *out)
{
    int status;
    struct rusage usage;
    struct child_report *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        abort();
    if (pid == 0) {
        limit(RLIMIT_CORE, 0);
        limit(RLIMIT_CPU, SLOWNESS * cpu_seconds);
#ifndef SY_SANITIZED
        limit(RLIMIT_AS, address_space() + memory_bytes);
#else
        (void)memory_bytes;
        (void)address_space;
#endif
        work(ctx, shared);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            abort();
    if (getrusage(RUSAGE_CHILDREN, &usage) != 0)
        abort();
    *out = (struct child_end){.report = *shared,
                              .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                              .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                              .peak_bytes = (uint64_t)usage.ru_maxrss * 1024};
    out->report.text[sizeof out->report.text - 1] = 0;
    munmap(shared, sizeof *shared);
}
