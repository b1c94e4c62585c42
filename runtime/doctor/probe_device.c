/* The device, its pool, pinned memory, and CUDA's driver, each by doing it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/core/core.h"
#include "runtime/device/device.h"
#include "runtime/doctor/probe.h"
#include "runtime/doctor/probe_child.h"

#define TIMEOUT_NS  (10 * SY_NS_PER_S)
#define PIN_BYTES   (64u << 20)
#define WRITE_BYTES (1u << 20)

/* As a worker does: maps a pool that another process has made, at the same bytes. */
static int import_pool(struct sy_device *device, struct sy_pool_memory *pool)
{
    struct sy_pool_memory *second = NULL;
    int fd, status;
    char *here = sy_device_host_pointer(device, sy_pool_address(pool, 0));
    if (!here)
        return SY_OK; /* the host cannot look */
    SY_TRY(sy_pool_export(pool, &fd));
    status = sy_pool_import(device, fd, sy_pool_size(pool), &second);
    close(fd);
    SY_TRY(status);
    const char *there = sy_device_host_pointer(device, sy_pool_address(second, 0));
    memset(here, 0x5a, WRITE_BYTES);
    if (memcmp(here, there, WRITE_BYTES) != 0)
        status = sy_error_set(SY_EDEVICE, "what is written through one mapping is not seen in "
                                          "another");
    sy_pool_destroy(second);
    return status;
}

static void probe_pool(struct sy_doctor_facts *facts, struct sy_device *device)
{
    struct sy_pool_memory *pool = NULL;
    uint64_t bytes = sy_core_usual_pool_bytes(sy_device_get_properties(device));
    facts->pool_wanted_bytes = (double)bytes;
    int status = sy_pool_create(device, bytes, &pool);
    if (status == SY_OK)
        status = import_pool(device, pool);
    if (status < 0)
        sy_doctor_text(facts->pool_why, sy_error_text());
    sy_pool_destroy(pool);
}

static void probe_pin(struct sy_doctor_facts *facts, struct sy_device *device)
{
    void *memory = aligned_alloc(2u << 20, PIN_BYTES);
    if (!memory)
        return;
    memset(memory, 1, PIN_BYTES);
    facts->pin_bytes = PIN_BYTES;
    int status = sy_device_host_register(device, memory, PIN_BYTES);
    if (status == SY_OK)
        status = sy_device_host_register_wait(device, TIMEOUT_NS);
    if (status < 0)
        sy_doctor_text(facts->pin_why, sy_error_text());
    else
        (void)sy_device_host_unregister(device, memory);
    free(memory);
}

/* A device of cores has none: slices are then sets of cores. */
static void probe_slices(struct sy_doctor_facts *facts, struct sy_device *device)
{
    struct sy_compute_parts parts;
    if (sy_device_compute_parts(device, &parts) < 0)
        return;
    facts->slice_parts = parts.n;
    facts->slice_units = parts.n_sms;
    facts->slices_beside = parts.beside;
}

static void probe_open(struct sy_doctor_facts *facts, void *ctx)
{
    const struct sy_device_spec *spec = ctx;
    struct sy_device *device;
    if (sy_device_open(spec, &device) < 0) {
        sy_doctor_text(facts->device_why, sy_error_text());
        return;
    }
    const struct sy_device_properties *is = sy_device_get_properties(device);
    sy_doctor_text(facts->device_name, is->name);
    facts->device_unified = is->unified;
    facts->device_emulated = is->emulated;
    facts->device_memory_bytes = (double)is->memory_bytes;
    probe_slices(facts, device);
    probe_pool(facts, device);
    if (!is->unified && !is->emulated)
        probe_pin(facts, device);
    sy_device_close(device);
}

void sy_probe_device(struct sy_doctor_facts *facts, const char *text)
{
    struct sy_device_spec spec;
    sy_doctor_text(facts->device, text);
    if (sy_device_spec_parse(text, &spec) < 0)
        sy_doctor_text(facts->device_why, sy_error_text());
    else
        sy_probe_in_child(facts, probe_open, &spec, TIMEOUT_NS, facts->device_why);
}

static void probe_driver(struct sy_doctor_facts *facts, void *ctx)
{
    struct sy_device *device;
    if (sy_device_open(ctx, &device) < 0)
        sy_doctor_text(facts->cuda_why, sy_error_text());
    else
        sy_device_close(device);
}

void sy_probe_cuda(struct sy_doctor_facts *facts)
{
    struct sy_device_spec spec;
    if (sy_device_spec_parse("cuda:0", &spec) < 0)
        sy_doctor_text(facts->cuda_why, sy_error_text());
    else
        sy_probe_in_child(facts, probe_driver, &spec, TIMEOUT_NS, facts->cuda_why);
}
