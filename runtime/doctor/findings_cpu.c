/* Cores, what they can do, and how far their memory is. */
#include <math.h>
#include <string.h>

#include "runtime/device/cache_ways.h"
#include "runtime/doctor/findings_internal.h"

#define FAR_PERCENT 90.0 /* a node that reads slower than this is worth staying away from */

static void cores(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (isnan(f->cores_usable))
        return;
    bool throttled = f->cores_quota < f->cores_usable; /* NAN: false */
    bool shares_link = f->device_emulated == 1 && f->cores_usable < 2;
    struct sy_finding *finding = sy_finding_add(
        out, SY_GROUP_CPU, "cores", throttled || shares_link ? SY_FINDING_WARN : SY_FINDING_OK,
        "%.0f of %.0f usable", f->cores_usable, f->cores_online);
    if (throttled) {
        sy_finding_append(finding, ", but the cgroup allows %.1f cores' time", f->cores_quota);
        sy_finding_advise(finding,
                          "serve with --threads %.0f: more are stopped in each period, or "
                          "raise cpu.max",
                          fmax(floor(f->cores_quota), 1));
    } else if (shares_link) {
        sy_finding_advise(finding, "give it 2 cores: the emulated link wants one of its own");
    }
}

static void features(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (!*f->cpu_model && !*f->cpu_features)
        return;
    bool x86 = !strstr(f->cpu_features, "NEON");
    bool plain = x86 && !strstr(f->cpu_features, "AVX2");
    struct sy_finding *finding =
        sy_finding_add(out, SY_GROUP_CPU, "features", plain ? SY_FINDING_WARN : SY_FINDING_OK,
                       "%s: %s", *f->cpu_model ? f->cpu_model : "this CPU",
                       *f->cpu_features ? f->cpu_features : "none known");
    if (plain)
        sy_finding_advise(finding, "in a virtual machine pass the CPU through (-cpu host); kernels "
                                   "are made for AVX2 and above");
    else if (strstr(f->cpu_features, "BF16"))
        sy_finding_append(finding, " (import --precision bf16 halves what a swap moves)");
}

static void numa(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (isnan(f->numa_nodes))
        return;
    bool far = f->numa_nodes > 1 && f->numa_far_percent < FAR_PERCENT;
    struct sy_finding *finding =
        sy_finding_add(out, SY_GROUP_CPU, "numa", far ? SY_FINDING_WARN : SY_FINDING_OK,
                       "%.0f memory node%s", f->numa_nodes, f->numa_nodes > 1 ? "s" : "");
    if (f->numa_nodes > 1 && !isnan(f->numa_far_percent))
        sy_finding_append(finding, "; the farthest reads at %.0f %% of the nearest",
                          f->numa_far_percent);
    if (far)
        sy_finding_advise(finding, "keep the server on one node: numactl --cpunodebind=0 "
                                   "--membind=0 switchyard serve ...");
}

/* Further confinement of a slice of the cores. */
static void slices(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (isnan(f->cores_usable))
        return;
    struct sy_finding *finding = sy_finding_add(out, SY_GROUP_CPU, "slices", SY_FINDING_OK,
                                                "up to %.0f, of cores", fmin(f->cores_usable, 8));
    if (!isnan(f->cache_ways)) {
        sy_finding_append(finding,
                          ", with parts of the %.0f ways of the last-level cache (resctrl is "
                          "mounted); memory bandwidth stays shared",
                          f->cache_ways);
        return;
    }
    sy_finding_append(finding, "; caches and memory bandwidth stay shared (%s)",
                      f->resctrl == 1
                          ? "resctrl is not mounted, or cannot divide this cache: mount -t resctrl "
                            "resctrl " SY_CACHE_WAYS_ROOT
                          : "this kernel has no resctrl");
}

void sy_findings_cpu(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    cores(f, out);
    features(f, out);
    slices(f, out);
    numa(f, out);
}
