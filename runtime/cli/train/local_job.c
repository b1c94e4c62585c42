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
#include "runtime/device/device.h"
#include "workers/engine/engines.h"
#include "workers/train/ranks.h"

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

/* Fills in job->device and what stands on it, if `device` is a GPU. */
static int open_gpu(const char *device, struct sy_local_job *job)
{
    struct sy_device_spec spec;
    SY_TRY(sy_device_spec_parse(device, &spec));
    if (strcmp(spec.kind, "host") == 0)
        return SY_OK;
    if (strcmp(spec.kind, "cuda") != 0)
        return sy_error_set(SY_EARG, "training without a server is on host or cuda:N, not on %s",
                            device);
    const struct sy_engine_ops *engine;
    SY_TRY(sy_engine_for_device(spec.kind, &engine));
    SY_TRY(sy_device_open(&spec, &job->device));
    SY_TRY(sy_stream_create(job->device, SY_STREAM_COMPUTE, &job->compute));
    SY_TRY(engine->attach(job->device, job->compute));
    job->engine = engine;
    return SY_OK;
}

static int map_host(struct sy_local_job *job, uint64_t bytes, enum sy_huge_pages huge)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return sy_error_set(SY_ENOMEM_HOST, "no %llu bytes for the job: %s",
                            (unsigned long long)bytes, strerror(errno));
    job->memory = memory;
    job->memory_bytes = bytes;
    if (huge != SY_HUGE_AS_IS)
        madvise(memory, bytes, huge == SY_HUGE_ALWAYS ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return SY_OK;
}

/* The device, the run on it, and what that needs. */
static int create_run(const char *text, const char *device, const struct sy_ranks *ranks,
                      struct sy_local_job *job)
{
    const struct sy_train_callbacks callbacks = {.ranks = ranks};
    const struct sy_trainer_ops *trainer;
    SY_TRY(open_gpu(device ? device : "host", job));
    SY_TRY(sy_trainer_for_device(job->device ? "cuda" : "host", &trainer));
    SY_TRY(sy_train_run_create(text, trainer, &callbacks, &job->run));
    sy_train_run_needs(job->run, &job->needs);
    return SY_OK;
}

int sy_local_job_open(const char *text, enum sy_huge_pages huge, const char *device,
                      const struct sy_ranks *ranks, struct sy_local_job *job)
{
    *job = (struct sy_local_job){0};
    SY_TRY(create_run(text, device, ranks, job));
    uint64_t persistent = SY_ALIGN_UP(job->needs.persistent_bytes, HUGE_PAGE);
    uint64_t own = persistent + SY_ALIGN_UP(job->needs.ephemeral_bytes, HUGE_PAGE);
    SY_TRY(map_host(job, 2 * HUGE_PAGE + (job->device ? 0 : own), huge)); /* the page, to align */
    char *aligned =
        (char *)job->memory + (HUGE_PAGE - (uintptr_t)job->memory % HUGE_PAGE) % HUGE_PAGE;
    job->page = (struct sy_control_page *)(void *)aligned;
    aligned += HUGE_PAGE;
    if (job->device) {
        SY_TRY(sy_pool_create(job->device, own, &job->pool));
        aligned = (char *)(uintptr_t)sy_pool_address(job->pool, 0).value;
    }
    return sy_train_run_start(job->run, aligned, aligned + persistent, 0, job->page);
}

int sy_local_job_needs(const char *text, const char *device, int n_ranks,
                       struct sy_train_needs *needs)
{
    const struct sy_ranks ranks = {.n = n_ranks};
    struct sy_local_job job = {0};
    int status = create_run(text, device, &ranks, &job);
    *needs = job.needs;
    sy_local_job_finish(&job);
    return status;
}

void sy_local_job_finish(struct sy_local_job *job)
{
    sy_train_run_destroy(job->run);
    sy_pool_destroy(job->pool);
    if (job->engine)
        job->engine->detach();
    sy_stream_destroy(job->compute);
    sy_device_close(job->device);
    if (job->memory)
        munmap(job->memory, job->memory_bytes);
    *job = (struct sy_local_job){0};
}
