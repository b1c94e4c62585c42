#include "runtime/cli/train/local_job.h"

#include <errno.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/engine/engines.h"

#define HUGE_PAGE (2ull << 20)

void sy_local_job_bound_spinning(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    setenv("GOMP_SPINCOUNT", "20000", 1);
    execv("/proc/self/exe", argv);
    sy_log_warn("train", "threads spin for longer: /proc/self/exe: %s", strerror(errno));
}

int sy_local_job_pin_threads(void)
{
    int cores[CPU_SETSIZE], n = 0;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return SY_OK; /* more cores than the set has room for: they stay where the kernel puts them */
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &set))
            cores[n++] = core;
    if (n != omp_get_max_threads() || getenv("OMP_PROC_BIND") || getenv("GOMP_CPU_AFFINITY"))
        return SY_OK;
    const struct sy_engine_ops *engine;
    SY_TRY(sy_engine_for_device("host", &engine));
    return engine->set_threads(cores, n);
}

int sy_local_job_open(const char *text, enum sy_huge_pages huge, const struct sy_ranks *ranks,
                      struct sy_local_job *job)
{
    const struct sy_train_callbacks callbacks = {.ranks = ranks};
    *job = (struct sy_local_job){0};
    SY_TRY(sy_train_run_create(text, &sy_host_trainer, &callbacks, &job->run));
    sy_train_run_needs(job->run, &job->needs);
    uint64_t persistent = SY_ALIGN_UP(job->needs.persistent_bytes, HUGE_PAGE);
    uint64_t ephemeral = SY_ALIGN_UP(job->needs.ephemeral_bytes, HUGE_PAGE);
    uint64_t bytes = HUGE_PAGE + persistent + ephemeral + HUGE_PAGE; /* the page, and to align */
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return sy_error_set(SY_ENOMEM_HOST, "no %llu bytes for the job: %s",
                            (unsigned long long)bytes, strerror(errno));
    job->memory = memory;
    job->memory_bytes = bytes;
    if (huge != SY_HUGE_AS_IS)
        madvise(memory, bytes, huge == SY_HUGE_ALWAYS ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    char *aligned = memory + (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    job->page = (struct sy_control_page *)(void *)aligned;
    aligned += HUGE_PAGE;
    return sy_train_run_start(job->run, aligned, aligned + persistent, 0, job->page);
}

void sy_local_job_finish(struct sy_local_job *job)
{
    sy_train_run_destroy(job->run);
    if (job->memory)
        munmap(job->memory, job->memory_bytes);
    *job = (struct sy_local_job){0};
}
