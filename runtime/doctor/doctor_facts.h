/* The doctor's measurements of this machine: plain values, written by the probes (probe.h), read by the findings (findings.h).
 *
 * A number that no probe could determine is NAN (unknown is not zero); one without a limit is INFINITY. Texts are "" when unknown; a text
 * that ends in _why is the reason of a failure, and "" means that there was none. */
#ifndef SY_DOCTOR_DOCTOR_FACTS_H
#define SY_DOCTOR_DOCTOR_FACTS_H

#include <jansson.h>

/* X(name, what it is): the fields, and the keys of "facts" in `doctor --json`. Names are stable. */
#define SY_DOCTOR_NUMBERS(X)                                                                     \
    X(cores_online, "cores of the machine")                                                      \
    X(cores_usable, "cores that this process may run on (affinity)")                             \
    X(resctrl, "1: the kernel can confine tasks to cache ways (resctrl)")                        \
    X(cache_ways, "ways of the last-level cache that slices can have, where resctrl is mounted") \
    X(cores_quota, "cores' worth of CPU time that the cgroup allows")                            \
    X(numa_nodes, "memory nodes")                                                                \
    X(numa_far_percent, "slowest node's read rate, percent of the fastest's")                    \
    X(memory_bytes, "memory of the machine")                                                     \
    X(memory_available_bytes, "memory that can be taken without swapping")                       \
    X(memory_limit_bytes, "memory limit of the cgroup")                                          \
    X(memory_limit_used_bytes, "of that limit, in use; page cache left out")                     \
    X(memory_read_gbps, "read rate of memory, all usable cores")                                 \
    X(memory_copy_gbps, "copy rate of memory, all usable cores; bytes copied, not moved")        \
    X(memlock_bytes, "RLIMIT_MEMLOCK")                                                           \
    X(pin_bytes, "host memory that the device was asked to register; unknown: it needs none")    \
    X(huge_asked_blocks, "blocks of 2 MiB for which a test pool asked for huge pages")           \
    X(huge_made_blocks, "of those, blocks that the kernel made huge")                            \
    X(huge_gain_percent, "random reads a second, huge pages over 4 KiB pages, percent more")     \
    X(hugetlb_free_bytes, "reserved huge pages that are free")                                   \
    X(shm_bytes, "size of /dev/shm")                                                             \
    X(shm_free_bytes, "of that, free")                                                           \
    X(files_limit, "RLIMIT_NOFILE, soft")                                                        \
    X(files_most, "RLIMIT_NOFILE, hard")                                                         \
    X(processes_limit, "RLIMIT_NPROC, soft")                                                     \
    X(workers_wanted, "processes started at once, as many as a server's workers")                \
    X(workers_started, "of those, started and ended well")                                       \
    X(worker_start_ms, "from the first start to the last end")                                   \
    X(pool_wanted_bytes, "pool of a server that is not told its size")                           \
    X(device_unified, "1: the device computes in host memory, and needs no copy")                \
    X(device_emulated, "1: a paced link stands in for a device; results are emulated")           \
    X(device_memory_bytes, "what a pool may take at most")                                       \
    X(slice_parts, "equal parts of a GPU's compute, which slices are made of")                   \
    X(slice_units, "multiprocessors of each")                                                    \
    X(slices_beside, "1: slices of several processes compute at the same time")                  \
    X(link_gbps, "host to device; on a unified device: copies within memory")                    \
    X(link_alpha_us, "fixed cost of one copy")                                                   \
    X(link_sigma_us, "cost of one group's synchronisation")                                      \
    X(link_lost_ns_per_byte, "delay of computing for each byte that moves beside it")            \
    X(storage_gbps, "sequential reads past the page cache, as a swap reads")                     \
    X(storage_read_bytes, "bytes read for that")                                                 \
    X(storage_scratch, "1: of a scratch file just written; 0: of a model")                       \
    X(disk_free_bytes, "free on the file system of the models folder")                           \
    X(landlock_abi, "version of Landlock that imports and workers are confined by; 0: none")     \
    X(seccomp_filter, "1: imports and workers run behind a system call filter")

#define SY_DOCTOR_TEXTS(X)                                                                 \
    X(kernel, "kernel release")                                                            \
    X(cpu_model, "as the kernel names the CPU")                                            \
    X(cpu_features, "of AVX2, AVX-512, VNNI, BF16, AMX and their like: those that it has") \
    X(thp_mode, "/sys/kernel/mm/transparent_hugepage/enabled")                             \
    X(thp_shmem_mode, "/sys/kernel/mm/transparent_hugepage/shmem_enabled")                 \
    X(device, "the device as given")                                                       \
    X(device_name, "the device as it calls itself")                                        \
    X(device_why, "why the device does not open")                                          \
    X(pool_why, "why no pool can be taken, mapped and shared")                             \
    X(pin_why, "why host memory cannot be registered with the device")                     \
    X(worker_why, "why workers do not start")                                              \
    X(link_why, "why the link could not be measured")                                      \
    X(cuda_why, "why cuda:0 does not open; empty: it does")                                \
    X(folder, "the folder that was looked at")                                             \
    X(storage_why, "why reading could not be measured")                                    \
    X(direct_why, "why O_DIRECT does not work in the folder")                              \
    X(sandbox_why, "why imports and workers are not, or less, confined")                   \
    X(uring_why, "why io_uring does not work")                                             \
    X(ports_busy, "of the default ports 8000 to 8002: those taken")

#define SY_DOCTOR_TEXT_BYTES 256

struct sy_doctor_facts {
#define X(name, what) double name;
    SY_DOCTOR_NUMBERS(X)
#undef X
#define X(name, what) char name[SY_DOCTOR_TEXT_BYTES];
    SY_DOCTOR_TEXTS(X)
#undef X
};

/* All unknown. */
void sy_doctor_facts_init(struct sy_doctor_facts *facts);

/* An object with a key for each number and text: unknown is null, no limit is -1. A new reference; NULL without memory. */
json_t *sy_doctor_facts_json(const struct sy_doctor_facts *facts);

/* Copies `text` as one printable line, cut to the field's size. */
void sy_doctor_text(char field[SY_DOCTOR_TEXT_BYTES], const char *text);

#endif
