/* Limits of the cgroup, version 2 and 1: the tightest of it and its ancestors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/doctor/doctor_file.h"
#include "runtime/doctor/doctor_parse.h"
#include "runtime/doctor/probe.h"

#define ROOT       "/sys/fs/cgroup"
#define PATH_BYTES 1024
#define TEXT_BYTES 8192

/* Up by one folder; false at the top. */
static bool up(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || path[0] == '\0')
        return false;
    *slash = '\0';
    return true;
}

static bool read_at(const char *mount, const char *path, const char *file, char text[TEXT_BYTES])
{
    char full[2 * PATH_BYTES];
    snprintf(full, sizeof full, "%s%s/%s", mount, path, file);
    return sy_doctor_read_file(full, text, TEXT_BYTES);
}

static double cpu_v2(const char *mount, const char *path)
{
    char text[TEXT_BYTES];
    return read_at(mount, path, "cpu.max", text) ? sy_parse_cpu_max(text) : NAN;
}

static double memory_v2(const char *mount, const char *path)
{
    char text[TEXT_BYTES];
    return read_at(mount, path, "memory.max", text) ? sy_parse_memory_max(text) : NAN;
}

static double cpu_v1(const char *mount, const char *path)
{
    char quota[TEXT_BYTES], period[TEXT_BYTES], both[2 * TEXT_BYTES];
    if (!read_at(mount, path, "cpu.cfs_quota_us", quota) ||
        !read_at(mount, path, "cpu.cfs_period_us", period))
        return NAN;
    quota[strcspn(quota, "\n")] = '\0';
    snprintf(both, sizeof both, "%s %s", quota[0] == '-' ? "max" : quota, period);
    return sy_parse_cpu_max(both);
}

static double memory_v1(const char *mount, const char *path)
{
    char text[TEXT_BYTES];
    return read_at(mount, path, "memory.limit_in_bytes", text) ? sy_parse_memory_max(text) : NAN;
}

/* The least of `limit` from here up; `path` is used up. */
static double tightest(const char *mount, char *path,
                       double (*limit)(const char *mount, const char *path))
{
    double least = NAN;
    if (strcmp(path, "/") == 0)
        path[0] = '\0';
    do
        least = fmin(least, limit(mount, path));
    while (up(path));
    return least;
}

/* Page cache goes when memory is wanted. */
static double used_without_cache(const char *mount, const char *path, const char *current)
{
    char text[TEXT_BYTES];
    double used = read_at(mount, path, current, text) ? sy_parse_memory_max(text) : NAN;
    if (isnan(used) || !read_at(mount, path, "memory.stat", text))
        return used;
    double cached = sy_parse_stat(text, "active_file") + sy_parse_stat(text, "inactive_file");
    return isnan(cached) ? used : fmax(used - cached, 0);
}

static bool version_1(struct sy_doctor_facts *facts, const char *groups)
{
    char path[PATH_BYTES];
    sy_parse_cgroup_path(groups, "memory", path, sizeof path);
    if (*path) {
        facts->memory_limit_used_bytes =
            used_without_cache(ROOT "/memory", path, "memory.usage_in_bytes");
        facts->memory_limit_bytes = tightest(ROOT "/memory", path, memory_v1);
    }
    sy_parse_cgroup_path(groups, "cpu", path, sizeof path);
    if (*path)
        facts->cores_quota = tightest(ROOT "/cpu", path, cpu_v1);
    return !isnan(facts->memory_limit_bytes) || !isnan(facts->cores_quota);
}

void sy_probe_cgroup(struct sy_doctor_facts *facts)
{
    char groups[TEXT_BYTES], path[PATH_BYTES], again[PATH_BYTES];
    if (!sy_doctor_read_file("/proc/self/cgroup", groups, sizeof groups) ||
        version_1(facts, groups))
        return;
    sy_parse_cgroup_path(groups, "", path, sizeof path);
    if (!*path)
        return;
    snprintf(again, sizeof again, "%s", path);
    facts->memory_limit_used_bytes = used_without_cache(ROOT, path, "memory.current");
    facts->cores_quota =
        fmin(tightest(ROOT, path, cpu_v2), INFINITY); /* none said: none is there */
    facts->memory_limit_bytes = fmin(tightest(ROOT, again, memory_v2), INFINITY);
}
