/* Probes, one file a kind. A probe does the thing once and writes the result into the facts; a failed one leaves its numbers
 * unknown and its reason in the *_why text. None returns an error: that something cannot be measured is a result, too. All block. */
#ifndef SY_DOCTOR_PROBE_H
#define SY_DOCTOR_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/doctor/doctor_facts.h"

void sy_probe_cpu(struct sy_doctor_facts *facts);
void sy_probe_cgroup(struct sy_doctor_facts *facts);
/* Each node's memory read by the core that this runs on; about 50 ms a node. */
void sy_probe_numa(struct sy_doctor_facts *facts);
void sy_probe_memory(struct sy_doctor_facts *facts);
/* All usable cores at once read, then copy, for budget_ns each; takes up to 64 MiB a core, 1 GiB in all. After sy_probe_cpu and _memory. */
void sy_probe_bandwidth(struct sy_doctor_facts *facts, sy_ns budget_ns);
/* A test pool of `bytes` (a multiple of 2 MiB), in pages of 4 KiB and as a server's. */
void sy_probe_huge_pages(struct sy_doctor_facts *facts, uint64_t bytes);
/* Descriptors, processes, ports. */
void sy_probe_limits(struct sy_doctor_facts *facts);
/* Goes into a worker's and an import's sandbox, in a process of its own. */
void sy_probe_sandbox(struct sy_doctor_facts *facts);
/* Reads once through a new ring, in a child process, since a system call filter may kill it. */
void sy_probe_uring(struct sy_doctor_facts *facts);
/* O_DIRECT, room and read rate in `folder`: of `sample`, a file there, or of a scratch file if that is NULL. Reads at most max_bytes, and
 * for about two seconds on slow storage; writes for at most three. */
void sy_probe_storage(struct sy_doctor_facts *facts, const char *folder, const char *sample,
                      uint64_t max_bytes);
/* Opens the device, takes a pool of the server's default size, maps it twice and writes through one to the other; pins memory where the
 * device does that. In a process of its own, at most ten seconds. */
void sy_probe_device(struct sy_doctor_facts *facts, const char *spec);
/* Opens the CUDA device and closes it: whether the driver works. In a process of its own, as sy_probe_device. */
void sy_probe_cuda(struct sy_doctor_facts *facts);
/* Starts this program `n` times at once, as a server starts its workers. */
void sy_probe_workers(struct sy_doctor_facts *facts, int n);

#endif
