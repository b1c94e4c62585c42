/* Cores and what they can do, as the kernel says. */
#include <sched.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/device/cache_ways.h"
#include "runtime/doctor/doctor_file.h"
#include "runtime/doctor/doctor_parse.h"
#include "runtime/doctor/probe.h"

#define CPUINFO_BYTES 16384 /* the first core's part has some 2 KiB */

static double usable_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                       : (double)sysconf(_SC_NPROCESSORS_ONLN);
}

void sy_probe_cpu(struct sy_doctor_facts *facts)
{
    char text[CPUINFO_BYTES];
    struct utsname name;
    struct sy_cache_ways ways;
    facts->cores_online = (double)sysconf(_SC_NPROCESSORS_ONLN);
    facts->cores_usable = usable_cores();
    if (sy_doctor_read_file("/proc/filesystems", text, sizeof text))
        facts->resctrl = strstr(text, "\tresctrl\n") != NULL;
    if (sy_cache_ways_read(SY_CACHE_WAYS_ROOT, &ways) == SY_OK)
        facts->cache_ways = ways.n_ways;
    if (uname(&name) == 0)
        sy_doctor_text(facts->kernel, name.release);
    if (!sy_doctor_read_file("/proc/cpuinfo", text, sizeof text))
        return;
    sy_parse_cpuinfo(text, "model name", facts->cpu_model, sizeof facts->cpu_model);
    sy_parse_cpu_features(text, facts->cpu_features, sizeof facts->cpu_features);
}
