/* The device itself, workers, the pool: what a server needs before it can do anything. */
#include <math.h>
#include <string.h>

#include "runtime/doctor/findings_internal.h"

static void device(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    char memory[SY_SIZE_TEXT_BYTES];
    if (!*f->device_why) {
        sy_finding_add(out, SY_GROUP_DEVICE, "device", SY_FINDING_OK, "%s opens, %s of memory%s",
                       f->device_name, sy_finding_bytes(f->device_memory_bytes, memory),
                       f->device_emulated == 1 ? "; its results are emulated" : "");
        return;
    }
    bool named = strncmp(f->device_why, f->device, strlen(f->device)) == 0;
    sy_finding_advise(sy_finding_add(out, SY_GROUP_DEVICE, "device", SY_FINDING_FAIL, "%s%s%s",
                                     named ? "" : f->device, named ? "" : ": ", f->device_why),
                      "put that right, or serve with --device host");
}

/* Not a failure: --device cuda reports why the GPU cannot be used. */
static void gpu_driver(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (strncmp(f->device, "cuda", 4) == 0)
        return;
    if (*f->cuda_why)
        sy_finding_add(out, SY_GROUP_DEVICE, "gpu", SY_FINDING_OK, "none: %s", f->cuda_why);
    else
        sy_finding_add(out, SY_GROUP_DEVICE, "gpu", SY_FINDING_OK,
                       "cuda:0 opens; doctor --device cuda:0 measures it");
}

static void slices(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (isnan(f->slice_parts))
        return;
    sy_finding_add(out, SY_GROUP_DEVICE, "gpu_slices", SY_FINDING_OK,
                   "of %.0f parts, %.0f multiprocessors each; %s", f->slice_parts, f->slice_units,
                   f->slices_beside == 1 ? "several compute at the same time, under MPS"
                                         : "one computes at a time: for more start MPS before the "
                                           "server (nvidia-cuda-mps-control -d)");
}

static void workers(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (isnan(f->workers_wanted))
        return;
    if (f->workers_started >= f->workers_wanted) {
        sy_finding_add(out, SY_GROUP_DEVICE, "workers", SY_FINDING_OK,
                       "%.0f processes start at once, in %.0f ms", f->workers_wanted,
                       f->worker_start_ms);
        return;
    }
    sy_finding_advise(sy_finding_add(out, SY_GROUP_DEVICE, "workers", SY_FINDING_FAIL,
                                     "%.0f of %.0f processes start: %s", f->workers_started,
                                     f->workers_wanted, f->worker_why),
                      "raise the process limit: ulimit -u 4096 (now %.0f), or the cgroup's "
                      "pids.max",
                      f->processes_limit);
}

static void pool(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    char bytes[SY_SIZE_TEXT_BYTES];
    if (isnan(f->pool_wanted_bytes))
        return;
    sy_finding_bytes(f->pool_wanted_bytes, bytes);
    if (!*f->pool_why) {
        sy_finding_add(out, SY_GROUP_DEVICE, "pool", SY_FINDING_OK,
                       "%s can be mapped, written, and shared with a worker", bytes);
        return;
    }
    sy_finding_advise(
        sy_finding_add(out, SY_GROUP_DEVICE, "pool", SY_FINDING_FAIL, "%s: %s", bytes, f->pool_why),
        "lift ulimit -v, or serve with a smaller --pool-bytes");
}

void sy_findings_device(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    device(f, out);
    gpu_driver(f, out);
    slices(f, out);
    workers(f, out);
    pool(f, out);
}
