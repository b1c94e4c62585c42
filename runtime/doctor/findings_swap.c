/* Storage, link, and which of them a swap waits for. */
#include <math.h>

#include "runtime/doctor/findings_internal.h"
#include "runtime/doctor/swap_forecast.h"

#define SLOW_STORAGE_GBPS 0.2 /* a spinning disk; 240 MB take over a second */

static void storage(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    char bytes[SY_SIZE_TEXT_BYTES];
    if (*f->storage_why) {
        sy_finding_advise(sy_finding_add(out, SY_GROUP_SWAP, "storage", SY_FINDING_WARN,
                                         "not measured: %s", f->storage_why),
                          "run doctor --models DIR with a folder that can be written or holds "
                          "models");
        return;
    }
    if (isnan(f->storage_gbps))
        return;
    bool slow = f->storage_gbps < SLOW_STORAGE_GBPS;
    struct sy_finding *finding =
        sy_finding_add(out, SY_GROUP_SWAP, "storage", slow ? SY_FINDING_WARN : SY_FINDING_OK,
                       "%.2f GB/s past the page cache (%s of %s)", f->storage_gbps,
                       sy_finding_bytes(f->storage_read_bytes, bytes),
                       f->storage_scratch == 1 ? "a scratch file" : "a model");
    if (slow)
        sy_finding_advise(finding,
                          "put the models on an SSD: at 1.5 GB/s a cold swap reads %.0f "
                          "times as fast",
                          1.5 / f->storage_gbps);
}

static void direct_reads(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (!*f->folder)
        return;
    if (!*f->direct_why) {
        sy_finding_add(out, SY_GROUP_SWAP, "o_direct", SY_FINDING_OK, "works in %s", f->folder);
        return;
    }
    sy_finding_advise(sy_finding_add(out, SY_GROUP_SWAP, "o_direct", SY_FINDING_WARN,
                                     "refused in %s: %s; reads are copied through the page cache",
                                     f->folder, f->direct_why),
                      "keep models on ext4, xfs or btrfs, not on tmpfs, overlay or a network");
}

static void uring(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (!*f->uring_why) {
        sy_finding_add(out, SY_GROUP_SWAP, "io_uring", SY_FINDING_OK, "works");
        return;
    }
    sy_finding_advise(sy_finding_add(out, SY_GROUP_SWAP, "io_uring", SY_FINDING_WARN,
                                     "refused: %s; storage is read one chunk at a time, at %.2f "
                                     "GB/s",
                                     f->uring_why, f->storage_gbps),
                      "sysctl kernel.io_uring_disabled=0; in a container allow io_uring in its "
                      "seccomp profile");
}

static void link(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    if (*f->device_why)
        return;
    if (*f->link_why) {
        sy_finding_advise(sy_finding_add(out, SY_GROUP_SWAP, "link", SY_FINDING_WARN,
                                         "not measured: %s", f->link_why),
                          "switchyard bench-link --device %s says why", f->device);
        return;
    }
    if (isnan(f->link_gbps))
        return;
    if (f->device_unified == 1)
        sy_finding_add(out, SY_GROUP_SWAP, "link", SY_FINDING_OK,
                       "none: %s computes where the model lies (copies: %.2f GB/s)", f->device_name,
                       f->link_gbps);
    else
        sy_finding_add(out, SY_GROUP_SWAP, "link", SY_FINDING_OK,
                       "%.2f GB/s, %.1f us a copy, %.1f us a group, computing held up %.4f ns/B%s",
                       f->link_gbps, f->link_alpha_us, f->link_sigma_us, f->link_lost_ns_per_byte,
                       f->device_emulated == 1 ? " (emulated)" : "");
}

static void example(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    struct sy_swap_forecast swap;
    sy_swap_forecast_bytes(f, SY_DOCTOR_EXAMPLE_BYTES, &swap);
    if (isnan(swap.cold_ms))
        return;
    if (f->device_unified == 1)
        sy_finding_add(out, SY_GROUP_SWAP, "swap_240mb", SY_FINDING_OK,
                       "storage to pool %.0f ms: a cold swap waits for storage where its model "
                       "computes for less",
                       swap.storage_ms);
    else
        sy_finding_add(out, SY_GROUP_SWAP, "swap_240mb", SY_FINDING_OK,
                       "storage to image %.0f ms, link to pool %.0f ms: a cold swap waits for "
                       "%s, a warm one for the link, where the model computes for less",
                       swap.storage_ms, swap.link_ms, sy_swap_bound_name(swap.cold_bound));
}

void sy_findings_swap(const struct sy_doctor_facts *f, struct sy_findings *out)
{
    storage(f, out);
    direct_reads(f, out);
    uring(f, out);
    link(f, out);
    example(f, out);
}
