/* Memory: how much, how fast, in which pages, what may be locked. */
#include <math.h>
#include <string.h>

#include "runtime/doctor/findings_internal.h"

#define MIB (1024.0 * 1024.0)

#define LEAST_BYTES    (512 * MIB) /* slab of 256 MiB, four workers with their libraries */
#define LEAST_SHM      (64 * MIB)  /* the default of containers */
#define LARGE_GAIN     5.0         /* percent; less is within what one measurement is off by */
#define MOSTLY_COVERED 0.9         /* fraction of the blocks */

/* Memory that this process and its workers may still take: the smaller of free memory and the cgroup's rest. */
static double available(const struct sy_doctor_facts *f)
{
    double left = f->memory_limit_bytes - f->memory_limit_used_bytes;
    if (isnan(left))
        left = f->memory_limit_bytes;
    return fmin(f->memory_available_bytes, left); /* fmin passes over NAN */
}

static void amount(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    char there[SY_SIZE_TEXT_BYTES], all[SY_SIZE_TEXT_BYTES], limit[SY_SIZE_TEXT_BYTES];
    double bytes = available(f), wanted = f->pool_wanted_bytes + LEAST_BYTES;
    if (isnan(bytes))
        return;
    bool pool_in_it = f->device_unified == 1 || f->device_emulated == 1;
    bool too_few = bytes < LEAST_BYTES, tight = pool_in_it && bytes < wanted;
    struct sy_finding *finding = sy_finding_add(
        out, SY_GROUP_MEMORY, "memory",
        too_few ? SY_FINDING_FAIL
        : tight ? SY_FINDING_WARN
                : SY_FINDING_OK,
        "%s available of %s, cgroup limit %s", sy_finding_bytes(bytes, there),
        sy_finding_bytes(f->memory_bytes, all), sy_finding_bytes(f->memory_limit_bytes, limit));
    if (too_few)
        sy_finding_advise(finding,
                          "free memory or raise the limit: a server needs %.0f MiB beside "
                          "its pool",
                          LEAST_BYTES / MIB);
    else if (tight)
        sy_finding_advise(finding,
                          "serve with --pool-bytes %.0fMi: its default of %.0f MiB and "
                          "%.0f MiB beside it do not fit",
                          floor(fmax((bytes - LEAST_BYTES) * 0.8, 64 * MIB) / MIB),
                          f->pool_wanted_bytes / MIB, LEAST_BYTES / MIB);
}

static void bandwidth(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (!isnan(f->memory_read_gbps))
        sy_finding_add(out, SY_GROUP_MEMORY, "bandwidth", SY_FINDING_OK,
                       "%.1f GB/s read, %.1f GB/s copied, by %.0f cores", f->memory_read_gbps,
                       f->memory_copy_gbps, f->cores_usable);
}

/* The pool is shared memory. Its blocks are asked for one by one (runtime/device/host_pages.h), which works in whatever mode; the modes
 * say what can be set where that is refused. */
static void huge_pages(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (!(f->huge_asked_blocks > 0) || isnan(f->huge_made_blocks))
        return;
    bool made = f->huge_made_blocks >= MOSTLY_COVERED * f->huge_asked_blocks;
    struct sy_finding *finding =
        sy_finding_add(out, SY_GROUP_MEMORY, "huge_pages", made ? SY_FINDING_OK : SY_FINDING_WARN,
                       "%.0f of %.0f blocks of 2 MiB of a test pool%s", f->huge_made_blocks,
                       f->huge_asked_blocks, isnan(f->huge_gain_percent) ? "" : ":");
    if (!isnan(f->huge_gain_percent))
        sy_finding_append(finding, " random reads %+.0f %% over 4 KiB pages", f->huge_gain_percent);
    if (!made)
        sy_finding_advise(finding,
                          "echo advise > "
                          "/sys/kernel/mm/transparent_hugepage/shmem_enabled (now %s); "
                          "Linux 6.1 needs no setting (here %s)",
                          *f->thp_shmem_mode ? f->thp_shmem_mode : "unknown", f->kernel);
}

/* Workspaces and libraries' memory: anonymous, advised. */
static void thp(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (!*f->thp_mode)
        return;
    bool never = strcmp(f->thp_mode, "never") == 0;
    bool gains = never && f->huge_gain_percent >= LARGE_GAIN;
    struct sy_finding *finding =
        sy_finding_add(out, SY_GROUP_MEMORY, "thp", gains ? SY_FINDING_WARN : SY_FINDING_OK,
                       "'%s' for process memory", f->thp_mode);
    if (gains)
        sy_finding_advise(finding,
                          "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: "
                          "random reads %+.0f %% measured",
                          f->huge_gain_percent);
}

static void hugetlb(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    char bytes[SY_SIZE_TEXT_BYTES];
    if (!isnan(f->hugetlb_free_bytes))
        sy_finding_add(out, SY_GROUP_MEMORY, "hugetlb", SY_FINDING_OK,
                       "%s reserved and free; none is needed",
                       sy_finding_bytes(f->hugetlb_free_bytes, bytes));
}

/* Only a device of its own has the image pinned. CUDA's driver does not count against the limit; whether it pins is known by doing it. */
static void memlock(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    char limit[SY_SIZE_TEXT_BYTES], bytes[SY_SIZE_TEXT_BYTES];
    if (isnan(f->memlock_bytes))
        return;
    sy_finding_bytes(f->memlock_bytes, limit);
    sy_finding_bytes(f->pin_bytes, bytes);
    if (*f->pin_why)
        sy_finding_advise(sy_finding_add(out, SY_GROUP_MEMORY, "memlock", SY_FINDING_WARN,
                                         "%s cannot be pinned: %s; copies are slower and hold up "
                                         "their caller",
                                         bytes, f->pin_why),
                          "ulimit -l unlimited (now %s; LimitMEMLOCK=infinity in systemd): the "
                          "whole host image is pinned",
                          limit);
    else if (isnan(f->pin_bytes))
        sy_finding_add(out, SY_GROUP_MEMORY, "memlock", SY_FINDING_OK, "limit %s%s%s%s", limit,
                       *f->device_name ? "; " : "", f->device_name,
                       *f->device_name ? " pins no memory" : "");
    else
        sy_finding_add(out, SY_GROUP_MEMORY, "memlock", SY_FINDING_OK,
                       "limit %s; the device can pin %s", limit, bytes);
}

static void dev_shm(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    char all[SY_SIZE_TEXT_BYTES], left[SY_SIZE_TEXT_BYTES];
    if (isnan(f->shm_bytes))
        return;
    bool small = f->shm_free_bytes < LEAST_SHM;
    struct sy_finding *finding = sy_finding_add(
        out, SY_GROUP_MEMORY, "dev_shm", small ? SY_FINDING_WARN : SY_FINDING_OK,
        "%s, %s free: clients' shared memory lies there", sy_finding_bytes(f->shm_bytes, all),
        sy_finding_bytes(f->shm_free_bytes, left));
    if (small)
        sy_finding_advise(finding, "mount -o remount,size=1G /dev/shm; docker run --shm-size 1g");
}

void sy_findings_memory(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    amount(f, out);
    bandwidth(f, out);
    huge_pages(f, out);
    thp(f, out);
    hugetlb(f, out);
    memlock(f, out);
    dev_shm(f, out);
}
