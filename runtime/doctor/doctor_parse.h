/* The kernel's text files about itself, taken apart. Pure: text in, values out. */
#ifndef SY_DOCTOR_DOCTOR_PARSE_H
#define SY_DOCTOR_DOCTOR_PARSE_H

#include <stddef.h>

/* "MemTotal:   24 kB" in /proc/meminfo: bytes, or the plain number where no kB follows. NAN when there is no such line. */
double sy_parse_meminfo(const char *text, const char *key);
/* "always [madvise] never": the word in brackets; "" when there is none. */
void sy_parse_chosen(const char *text, char *out, size_t size);
/* "key : value" in /proc/cpuinfo, the first such line's value; "" when there is none. */
void sy_parse_cpuinfo(const char *text, const char *key, char *out, size_t size);
/* The instruction sets that matter here, by their usual names ("AVX2, AVX-512, BF16"), of the flags line of x86 or the features line of ARM. */
void sy_parse_cpu_features(const char *cpuinfo, char *out, size_t size);
/* cgroup v2's cpu.max, "QUOTA PERIOD" or "max PERIOD": cores. INFINITY: no limit; NAN: not such a text. */
double sy_parse_cpu_max(const char *text);
/* cgroup's memory.max, "max" or bytes. v1 says a number near 2^63 for no limit. As above. */
double sy_parse_memory_max(const char *text);
/* "key value" in cgroup's memory.stat. NAN when there is no such line. */
double sy_parse_stat(const char *text, const char *key);
/* /proc/self/cgroup: the path of version 2 ("0::/a/b") or, for a controller of version 1, "N:cpu,cpuacct:/a". `controller` "" is version 2.
 * "" when there is none. */
void sy_parse_cgroup_path(const char *text, const char *controller, char *out, size_t size);

#endif
