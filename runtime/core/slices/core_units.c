/* The units that slices are made of: cores on the host, groups of a GPU's multiprocessors on cuda. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"

static void take_parts(struct sy_core *core, const struct sy_compute_parts *parts)
{
    struct sy_core_units *u = &core->units;
    u->n = (size_t)parts->n;
    u->each = (unsigned)parts->n_sms;
    for (size_t i = 0; i < u->n; i++)
        u->ids[i] = i;
    if (!parts->beside)
        snprintf(u->no_slices, sizeof u->no_slices,
                 "%.30s: two slices at a time need MPS, without which the driver lets processes "
                 "compute by turns only: start nvidia-cuda-mps-control -d, then Switchyard; until "
                 "then tasks share the whole device by turns",
                 core->spec.text);
}

void sy_core_units_start(struct sy_core *core)
{
    struct sy_core_units *u = &core->units;
    struct sy_compute_parts parts;
    u->n = core->n_cores;
    u->each = 1;
    memcpy(u->ids, core->cores, core->n_cores * sizeof *core->cores);
    if (strcmp(core->spec.kind, "cuda") != 0)
        return;
    if (sy_device_compute_parts(core->device, &parts) == SY_OK) {
        take_parts(core, &parts);
        sy_log_info("slices", "event=parts device=%s parts=%zu multiprocessors=%u beside=%s",
                    core->spec.text, u->n, u->each, *u->no_slices ? "no" : "yes");
        return;
    }
    u->n = 1;
    u->ids[0] = 0;
    snprintf(u->no_slice, sizeof u->no_slice, "%s", sy_error_text());
    sy_log_info("slices", "event=no_parts why=\"%s\"", u->no_slice);
}

int sy_core_units_check(const struct sy_core *core, size_t n_slices)
{
    const struct sy_core_units *u = &core->units;
    const char *why = n_slices > 0 && *u->no_slice ? u->no_slice : n_slices > 1 ? u->no_slices : "";
    return *why ? sy_error_set(SY_EUNSUPPORTED, "%s", why) : SY_OK;
}

json_t *sy_core_units_limit(const struct sy_core *core)
{
    const struct sy_core_units *u = &core->units;
    const char *why = *u->no_slice ? u->no_slice : u->no_slices;
    return *why ? json_string(why) : json_null();
}

/* Multiprocessors as units: each unit must be listed whole. */
static int read_list(const struct sy_core_units *u, struct sy_slice_wish *wish, uint64_t *listed)
{
    static unsigned n_of[SY_CORE_MAX_CORES]; /* used by one thread; large for a stack */
    size_t n = 0;
    memset(n_of, 0, sizeof n_of);
    for (size_t i = 0; i < wish->n_listed; i++) {
        if (listed[i] >= u->n * u->each)
            return sy_error_set(SY_EARG,
                                "slice '%s': multiprocessor %llu: slices are made of 0 to %zu",
                                wish->name, (unsigned long long)listed[i], u->n * u->each - 1);
        n_of[listed[i] / u->each]++;
    }
    for (size_t k = 0; k < u->n; k++) {
        if (n_of[k] != 0 && n_of[k] != u->each)
            return sy_error_set(SY_EARG,
                                "slice '%s': multiprocessors %zu to %zu belong to one slice: all "
                                "or none",
                                wish->name, k * u->each, (k + 1) * u->each - 1);
        if (n_of[k])
            listed[n++] = k;
    }
    wish->n_listed = n;
    return SY_OK;
}

int sy_core_units_read(const struct sy_core *core, struct sy_slice_wish *wish, uint64_t *listed)
{
    const struct sy_core_units *u = &core->units;
    if (u->each == 1)
        return SY_OK;
    if (wish->by == SY_SLICE_BY_LIST)
        return read_list(u, wish, listed);
    if (wish->by != SY_SLICE_BY_COUNT)
        return SY_OK;
    if (wish->amount % u->each)
        return sy_error_set(SY_EARG,
                            "slice '%s': %u multiprocessors: this GPU gives them in groups of %u",
                            wish->name, wish->amount, u->each);
    wish->amount /= u->each;
    return SY_OK;
}

const char *sy_core_units_text(const struct sy_core *core, const struct sy_core_slice *slice,
                               char *buffer, size_t bytes)
{
    static uint64_t all[SY_CORE_MAX_CORES]; /* used by one thread; large for a stack */
    unsigned each = core->units.each;
    size_t n = 0;
    for (size_t i = 0; i < slice->n_cores; i++)
        for (unsigned k = 0; k < each && n < SY_CORE_MAX_CORES; k++)
            all[n++] = slice->cores[i] * each + k;
    return sy_slice_cores_text(all, n, buffer, bytes);
}
