/* Descriptors, disk, ports: what runs out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/doctor/findings_internal.h"

#define LEAST_FILES 64.0   /* a server with four workers and its listeners holds about 32 */
#define USUAL_FILES 1100.0 /* that, and 1000 connections */
#define LEAST_DISK  (1e9)  /* a package or a snapshot of 240 MB, written beside the old one */

/* serve raises its limit as far as the system lets it: the hard one counts. */
static void files(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    double most = isnan(f->files_most) ? f->files_limit : f->files_most;
    char text[SY_SIZE_TEXT_BYTES] = "unlimited";
    if (isnan(most))
        return;
    enum sy_finding_level level = most < LEAST_FILES   ? SY_FINDING_FAIL
                                  : most < USUAL_FILES ? SY_FINDING_WARN
                                                       : SY_FINDING_OK;
    if (!isinf(most))
        snprintf(text, sizeof text, "%.0f", most);
    struct sy_finding *finding = sy_finding_add(out, SY_GROUP_LIMITS, "open_files", level,
                                                "%s (serve raises its limit so far)", text);
    if (level != SY_FINDING_OK)
        sy_finding_advise(finding,
                          "ulimit -Hn 65536, as systemd LimitNOFILE=65536: %.0f for the server "
                          "itself, one for each connection",
                          LEAST_FILES);
}

static void disk(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    char bytes[SY_SIZE_TEXT_BYTES];
    if (isnan(f->disk_free_bytes))
        return;
    bool full = f->disk_free_bytes < LEAST_DISK;
    struct sy_finding *finding =
        sy_finding_add(out, SY_GROUP_LIMITS, "disk", full ? SY_FINDING_WARN : SY_FINDING_OK,
                       "%s free in %s", sy_finding_bytes(f->disk_free_bytes, bytes), f->folder);
    if (full)
        sy_finding_advise(finding, "free 1 GB: a package is written beside the model that it is "
                                   "made of");
}

static void ports(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (!*f->ports_busy) {
        sy_finding_add(out, SY_GROUP_LIMITS, "ports", SY_FINDING_OK,
                       "8000 (HTTP), 8001 (gRPC) and 8002 (metrics) are free");
        return;
    }
    sy_finding_advise(
        sy_finding_add(out, SY_GROUP_LIMITS, "ports", SY_FINDING_WARN, "taken: %s", f->ports_busy),
        "stop what listens there (ss -ltnp), or name others: serve --http "
        "127.0.0.1:PORT --grpc 127.0.0.1:PORT");
}

static void sandbox(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (*f->sandbox_why) {
        sy_finding_advise(
            sy_finding_add(out, SY_GROUP_LIMITS, "sandbox", SY_FINDING_WARN, "%s", f->sandbox_why),
            "Linux 5.13 or later with landlock among the security modules (lsm=landlock,... on the "
            "kernel's command line), and a container that lets landlock_* and seccomp through; "
            "until "
            "then import only models of people whom you trust");
        return;
    }
    if (!isnan(f->landlock_abi))
        sy_finding_add(out, SY_GROUP_LIMITS, "sandbox", SY_FINDING_OK,
                       "imports and workers: Landlock %.0f, seccomp, no capabilities%s",
                       f->landlock_abi,
                       strncmp(f->device, "cuda", 4) == 0
                           ? "; workers of a GPU: no new privileges only, its driver needs the rest"
                           : "");
}

void sy_findings_limits(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    files(f, out);
    disk(f, out);
    ports(f, out);
    sandbox(f, out);
}
