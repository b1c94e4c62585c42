#include "runtime/device/cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/assert.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_internal.h"
#include "runtime/device/cuda/pci_link.h"
#include "runtime/device/cuda/queue_bound.h"

#define MIN_CAPABILITY 80 /* 8.0: bf16, asynchronous copies into shared memory */

static pthread_mutex_t api_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sy_cuda_api api;
static bool api_loaded;

/* ---- opening ----------------------------------------------------------------------------------------- */

/* Whatever keeps a device from opening, it is ENODEVICE to the caller. */
static int refused(struct sy_cuda_device *device, int error, const char *what)
{
    if (error == SY_CUDA_Success)
        return SY_OK;
    device->api->error_clear();
    sy_cuda_device_set_text(device, error, what);
    return SY_ENODEVICE;
}

static int attribute(struct sy_cuda_device *device, enum sy_cuda_attribute which, int *out)
{
    return refused(device, device->api->device_attribute(device->base.spec.ordinal, which, out),
                   "cannot read its attributes");
}

/* As NVIDIA's tools write it; a MIG instance's name says that it is one. */
static void write_uuid(const unsigned char uuid[SY_CUDA_UUID_BYTES], const char *name, char *to,
                       size_t bytes)
{
    size_t used = (size_t)snprintf(to, bytes, strstr(name, " MIG ") ? "MIG-" : "GPU-");
    for (int i = 0; i < SY_CUDA_UUID_BYTES && used < bytes; i++)
        used += (size_t)snprintf(to + used, bytes - used, "%s%02x",
                                 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static int read_name_and_uuid(struct sy_cuda_device *device, int ordinal)
{
    SY_TRY(refused(device, device->api->device_name(ordinal, device->name, sizeof device->name),
                   "cannot read its name"));
    SY_TRY(
        refused(device, device->api->device_uuid(ordinal, device->uuid), "cannot read its UUID"));
    write_uuid(device->uuid, device->name, device->base.properties.uuid,
               sizeof device->base.properties.uuid);
    return SY_OK;
}

/* The ordinal in this process of the GPU or MIG instance that spec.uuid names. */
static int find_uuid(struct sy_cuda_device *device, int n)
{
    const char *uuid = device->base.spec.uuid;
    for (int ordinal = 0; ordinal < n; ordinal++) {
        SY_TRY(read_name_and_uuid(device, ordinal));
        if (strcasecmp(device->base.properties.uuid, uuid) == 0) {
            device->base.spec.ordinal = ordinal;
            return SY_OK;
        }
    }
    return sy_error_set(SY_ENODEVICE,
                        "cuda:%s: not among the %d GPU%s that this process sees; nvidia-smi -L "
                        "lists GPUs and MIG instances, CUDA_VISIBLE_DEVICES may hide some",
                        uuid, n, n == 1 ? "" : "s");
}

/* CUDA shows a process one MIG instance at most: the one that CUDA_VISIBLE_DEVICES names when the driver starts. What an orchestrator set there is not
 * widened. */
static int show_instance(const char *uuid)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && *visible && !strcasestr(visible, uuid))
        return sy_error_set(SY_ENODEVICE,
                            "cuda:%s: CUDA_VISIBLE_DEVICES is %s, which does not name it", uuid,
                            visible);
    if (setenv("CUDA_VISIBLE_DEVICES", uuid, 1) < 0)
        return sy_error_set(SY_ENODEVICE, "cuda:%s: no memory for CUDA_VISIBLE_DEVICES", uuid);
    return SY_OK;
}

static int start_driver(struct sy_cuda_device *device, int *out_n)
{
    const char *uuid = device->base.spec.uuid;
    *out_n = 0;
    if (strncmp(uuid, "MIG-", 4) == 0)
        SY_TRY(show_instance(uuid));
    SY_TRY(refused(device, device->api->init(), "the NVIDIA driver does not start"));
    return refused(device, device->api->device_count(out_n), "cannot count the GPUs");
}

static int find_device(struct sy_cuda_device *device)
{
    int n, ordinal = device->base.spec.ordinal;
    SY_TRY(start_driver(device, &n));
    if (device->base.spec.uuid[0])
        return find_uuid(device, n);
    if (ordinal < n)
        return SY_OK;
    return sy_error_set(SY_ENODEVICE, "cuda:%d: there %s %d GPU%s here%s%s", ordinal,
                        n == 1 ? "is" : "are", n, n == 1 ? "" : "s",
                        n > 0 ? ", counted from cuda:0" : "; use --device host",
                        sy_cuda_error_hint(SY_CUDA_NoDevice));
}

static int check_capability(struct sy_cuda_device *device)
{
    int major = 0, minor = 0;
    SY_TRY(attribute(device, SY_CUDA_CAPABILITY_MAJOR, &major));
    SY_TRY(attribute(device, SY_CUDA_CAPABILITY_MINOR, &minor));
    if (major * 10 + minor >= MIN_CAPABILITY)
        return SY_OK;
    return sy_error_set(SY_ENODEVICE,
                        "cuda:%d: %s has compute capability %d.%d; %d.%d or later is needed "
                        "(A100, RTX 30 and newer); use --device host",
                        device->base.spec.ordinal, device->name, major, minor, MIN_CAPABILITY / 10,
                        MIN_CAPABILITY % 10);
}

/* Several workers have the device open at once. */
static int check_mode(struct sy_cuda_device *device)
{
    int mode = SY_CUDA_MODE_DEFAULT, ordinal = device->base.spec.ordinal;
    SY_TRY(attribute(device, SY_CUDA_COMPUTE_MODE, &mode));
    if (mode == SY_CUDA_MODE_DEFAULT)
        return SY_OK;
    return sy_error_set(
        SY_ENODEVICE,
        "cuda:%d is in %s mode, but several workers must open it at once: "
        "nvidia-smi -i %d -c DEFAULT changes that",
        ordinal, mode == SY_CUDA_MODE_EXCLUSIVE ? "exclusive-process" : "prohibited", ordinal);
}

static int read_properties(struct sy_cuda_device *device)
{
    struct sy_device_properties *p = &device->base.properties;
    int ordinal = device->base.spec.ordinal, read_only = 0, node = -1;
    char pci[32] = "";
    snprintf(p->name, sizeof p->name, "cuda:%d (%s)", ordinal, device->name);
    p->queue_entries = SY_QUEUE_ENTRIES;
    SY_TRY(refused(device, device->api->device_memory(ordinal, &p->memory_bytes),
                   "cannot read its memory's size"));
    SY_TRY(refused(device, device->api->device_pci(ordinal, pci, sizeof pci),
                   "cannot read its PCI address"));
    SY_TRY(attribute(device, SY_CUDA_READ_ONLY_REGISTER, &read_only));
    SY_TRY(attribute(device, SY_CUDA_NUMA_NODE, &node));
    device->read_only_register = read_only != 0;
    sy_pci_link_read("/sys/bus/pci/devices", pci, &p->link_gbps, &p->numa_node);
    if (node >= 0)
        p->numa_node = node;
    return SY_OK;
}

static int load_api(const struct sy_cuda_api **out)
{
    pthread_mutex_lock(&api_lock);
    int status = api_loaded ? SY_OK : sy_cuda_api_load(&api);
    api_loaded = status == SY_OK;
    pthread_mutex_unlock(&api_lock);
    *out = &api;
    return status;
}

static int probe(struct sy_cuda_device *device)
{
    int status = load_api(&device->api);
    if (status < 0)
        return sy_error_prefix(status, "%s", device->base.spec.text);
    SY_TRY(find_device(device));
    SY_TRY(read_name_and_uuid(device, device->base.spec.ordinal));
    SY_TRY(check_capability(device));
    SY_TRY(check_mode(device));
    return read_properties(device);
}

static int open_device(const struct sy_device_spec *spec, struct sy_device **out)
{
    struct sy_cuda_device *device = calloc(1, sizeof *device);
    SY_TRY_ALLOC(device, "no memory for the device");
    device->base.ops = &sy_cuda_ops;
    device->base.spec = *spec;
    int status = probe(device);
    if (status < 0) {
        free(device);
        return status;
    }
    pthread_mutex_init(&device->failing, NULL);
    pthread_mutex_init(&device->lock, NULL);
    sy_cuda_registrar_init(&device->registrar);
    sy_cuda_clock_init(&device->clock);
    *out = &device->base;
    return SY_OK;
}

/* The primary context stays: it is the process's, and goes with it. */
static void close_device(struct sy_device *base)
{
    struct sy_cuda_device *device = (struct sy_cuda_device *)base;
    assert(!device->pools);
    if (atomic_load(&device->has_context))
        (void)sy_cuda_device_enter(base); /* C2, for what is destroyed below */
    sy_cuda_registrar_finish(device);
    sy_cuda_clock_finish(device);
    pthread_mutex_destroy(&device->lock);
    pthread_mutex_destroy(&device->failing);
    free(device);
}

const struct sy_device_ops sy_cuda_ops = {.kind = "cuda",
                                          .open = open_device,
                                          .close = close_device,
                                          .compute_parts = sy_cuda_compute_parts,
                                          .memory = &sy_cuda_memory_ops,
                                          .stream = &sy_cuda_stream_ops};
