#include "runtime/metrics/host_usage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define KIB 1024u
/* fields of a line of /proc/stat: user nice system idle iowait irq softirq steal */
#define FIELDS 8

/* Reads the beginning of a file, which has all needed fields. */
static void read_start(const char *path, char *to, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, to, bytes - 1);

    if (fd >= 0)
        close(fd);
    to[n > 0 ? n : 0] = '\0';
}

double sy_host_usage_cpu(struct sy_host_sampler *sampler, const char *stat)
{
    uint64_t v[FIELDS] = {0}, all = 0;

    if (sscanf(stat,
               "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %" SCNu64,
               &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) < 4)
        return 0;
    for (int i = 0; i < FIELDS; i++)
        all += v[i];
    uint64_t busy = all - v[3] - v[4];
    uint64_t passed = all - sampler->all_ticks, used = busy - sampler->busy_ticks;
    *sampler = (struct sy_host_sampler){.busy_ticks = busy, .all_ticks = all};
    /* The kernel's sums may run backwards by a tick. */
    return passed == 0 || used > passed ? 0 : (double)used / (double)passed;
}

static uint64_t kib_of(const char *meminfo, const char *key)
{
    const char *at = strstr(meminfo, key);
    uint64_t kib = 0;

    return at && sscanf(at + strlen(key), ": %" SCNu64, &kib) == 1 ? kib * KIB : 0;
}

void sy_host_usage_memory(const char *meminfo, uint64_t *out_bytes, uint64_t *out_used_bytes)
{
    uint64_t available = kib_of(meminfo, "MemAvailable");

    *out_bytes = kib_of(meminfo, "MemTotal");
    *out_used_bytes = *out_bytes > available ? *out_bytes - available : 0;
}

static sy_ns ns_of(struct timeval t)
{
    return (sy_ns)t.tv_sec * SY_NS_PER_S + (sy_ns)t.tv_usec * SY_NS_PER_US;
}

void sy_host_usage_read(struct sy_host_sampler *sampler, struct sy_host_usage *out)
{
    struct rusage usage;
    char text[2048];
    uint64_t pages = 0;

    memset(out, 0, sizeof *out);
    read_start("/proc/stat", text, sizeof text);
    out->cpu_utilization = sy_host_usage_cpu(sampler, text);
    read_start("/proc/meminfo", text, sizeof text);
    sy_host_usage_memory(text, &out->memory_bytes, &out->memory_used_bytes);
    read_start("/proc/self/statm", text, sizeof text);
    if (sscanf(text, "%*u %" SCNu64, &pages) == 1)
        out->process_resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        out->process_cpu_ns = ns_of(usage.ru_utime) + ns_of(usage.ru_stime);
}
