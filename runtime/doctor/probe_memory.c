/* How much memory there is, and what may be done with it. */
#include <math.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "runtime/doctor/doctor_file.h"
#include "runtime/doctor/doctor_parse.h"
#include "runtime/doctor/probe.h"

#define THP_FOLDER "/sys/kernel/mm/transparent_hugepage"

static void chosen(const char *path, char out[SY_DOCTOR_TEXT_BYTES])
{
    char text[256];
    if (sy_doctor_read_file(path, text, sizeof text))
        sy_parse_chosen(text, out, SY_DOCTOR_TEXT_BYTES);
}

static void dev_shm(struct sy_doctor_facts *facts)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0)
        return;
    facts->shm_bytes = (double)fs.f_blocks * (double)fs.f_frsize;
    facts->shm_free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
}

void sy_probe_memory(struct sy_doctor_facts *facts)
{
    char text[8192];
    struct rlimit limit;
    if (sy_doctor_read_file("/proc/meminfo", text, sizeof text)) {
        facts->memory_bytes = sy_parse_meminfo(text, "MemTotal");
        facts->memory_available_bytes = sy_parse_meminfo(text, "MemAvailable");
        facts->hugetlb_free_bytes =
            sy_parse_meminfo(text, "HugePages_Free") * sy_parse_meminfo(text, "Hugepagesize");
    }
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        facts->memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? INFINITY : (double)limit.rlim_cur;
    chosen(THP_FOLDER "/enabled", facts->thp_mode);
    chosen(THP_FOLDER "/shmem_enabled", facts->thp_shmem_mode);
    dev_shm(facts);
}
