#include "runtime/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/fault.h"
#include "runtime/device/device_cuda.h"

#define MAX_CORES 1024 /* CPU_SETSIZE */

/* Fixed order; `--device` picks by kind. */
static const struct sy_device_ops *const backends[] = {&sy_device_host_ops, &sy_device_emulated_ops,
                                                       &sy_device_cuda_ops};

const char *const *sy_device_kinds(void)
{
    static const char *const kinds[] = {"host", "emulated", "cuda", NULL};
    return kinds;
}

/* ---- spec -------------------------------------------------------------------------------------------- */

static int parse_number(const char *text, const char *key, const char *value, double *out)
{
    char *end;
    *out = strtod(value, &end);
    if (end == value || *end || !(*out > 0) || *out > 1e6)
        return sy_error_set(SY_EARG, "device \"%s\": %s=%s is not a number above 0, at most 1e6",
                            text, key, value);
    return SY_OK;
}

static int parse_option(const char *text, char *option, struct sy_device_spec *out)
{
    double number = 0;
    char *value = strchr(option, '=');
    if (value)
        *value++ = 0;
    if (value && strcmp(option, "link-gbps") == 0) {
        SY_TRY(parse_number(text, option, value, &number));
        out->link_gbps = number;
        return SY_OK;
    }
    if (value && strcmp(option, "link-alpha-us") == 0) {
        SY_TRY(parse_number(text, option, value, &number));
        out->link_alpha_ns = (uint64_t)(number * 1000);
        return SY_OK;
    }
    return sy_error_set(
        SY_EARG, "device \"%s\": unknown option \"%s\"; there are link-gbps=N and link-alpha-us=N",
        text, option);
}

int sy_device_spec_parse(const char *text, struct sy_device_spec *out)
{
    char copy[sizeof out->text];
    char *rest = copy;
    if (strlen(text) >= sizeof copy)
        return sy_error_set(SY_EARG, "device name of %zu characters is too long", strlen(text));
    *out = (struct sy_device_spec){.link_gbps = 12.3, .link_alpha_ns = 10000};
    strcpy(copy, text);
    strcpy(out->text, text);
    const char *kind = strsep(&rest, ",");
    snprintf(out->kind, sizeof out->kind, "%s", kind);
    SY_TRY(sy_device_cuda_parse(kind, out));
    bool known = false;
    for (size_t i = 0; i < SY_ARRAY_LEN(backends); i++)
        known = known || strcmp(backends[i]->kind, out->kind) == 0;
    if (!known)
        return sy_error_set(
            SY_ENODEVICE,
            "no device \"%s\"; there are host, emulated[,link-gbps=N] and cuda:N, cuda:UUID", text);
    if (rest && strcmp(out->kind, "emulated") != 0)
        return sy_error_set(SY_EARG, "device \"%s\": %s has no options", text, out->kind);
    while (rest)
        SY_TRY(parse_option(text, strsep(&rest, ","), out));
    return SY_OK;
}

/* ---- device ------------------------------------------------------------------------------------------ */

int sy_device_open(const struct sy_device_spec *spec, struct sy_device **out)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(backends); i++)
        if (strcmp(backends[i]->kind, spec->kind) == 0)
            return backends[i]->open(spec, out);
    return sy_error_set(SY_ENODEVICE, "no device \"%s\"", spec->kind);
}

void sy_device_close(struct sy_device *device)
{
    if (device)
        device->ops->close(device);
}

const struct sy_device_properties *sy_device_get_properties(const struct sy_device *device)
{
    return &device->properties;
}

int sy_device_set_link_core(struct sy_device *device, int core)
{
    if (core < -1 || core >= MAX_CORES)
        return sy_error_set(SY_EARG, "link core %d: there are 0 to %d, and -1 for any", core,
                            MAX_CORES - 1);
    return device->ops->set_link_core ? device->ops->set_link_core(device, core) : SY_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------ */

int sy_pool_create(struct sy_device *device, uint64_t bytes, struct sy_pool_memory **out)
{
    SY_TRY(sy_fault("pool_create"));
    if (bytes == 0 || bytes > device->properties.memory_bytes)
        return sy_error_set(SY_ENOMEM_DEVICE, "pool of %llu bytes: %s has %llu",
                            (unsigned long long)bytes, device->properties.name,
                            (unsigned long long)device->properties.memory_bytes);
    return device->ops->memory->pool_create(device, bytes, out);
}

int sy_pool_import(struct sy_device *device, int fd, uint64_t bytes, struct sy_pool_memory **out)
{
    SY_TRY(sy_fault("pool_import"));
    if (fd < 0 || bytes == 0)
        return sy_error_set(SY_EARG, "no pool to import: fd %d, %llu bytes", fd,
                            (unsigned long long)bytes);
    return device->ops->memory->pool_import(device, fd, bytes, out);
}

int sy_pool_export(struct sy_pool_memory *pool, int *out_fd)
{
    return pool->device->ops->memory->pool_export(pool, out_fd);
}

void sy_pool_destroy(struct sy_pool_memory *pool)
{
    if (pool)
        pool->device->ops->memory->pool_destroy(pool);
}

uint64_t sy_pool_size(const struct sy_pool_memory *pool)
{
    return pool->bytes;
}

sy_device_address sy_pool_address(const struct sy_pool_memory *pool, uint64_t offset)
{
    assert(offset <= pool->bytes);
    return (sy_device_address){pool->base.value + offset};
}

void sy_pool_touch(struct sy_pool_memory *pool, uint64_t offset, uint64_t bytes)
{
    assert(offset <= pool->bytes && bytes <= pool->bytes - offset);
    if (pool->device->ops->memory->pool_touch)
        pool->device->ops->memory->pool_touch(pool, offset, bytes);
}

void *sy_device_host_pointer(struct sy_device *device, sy_device_address address)
{
    return device->ops->memory->host_pointer ? device->ops->memory->host_pointer(device, address)
                                             : NULL;
}

void sy_device_host_read(struct sy_device *device, uint64_t bytes)
{
    if (device->ops->memory->host_read && bytes > 0)
        device->ops->memory->host_read(device, bytes);
}

int sy_device_host_register(struct sy_device *device, void *base, uint64_t bytes)
{
    SY_TRY(sy_fault("host_register"));
    if (!base || bytes == 0)
        return sy_error_set(SY_EARG, "nothing to register: %llu bytes at %p",
                            (unsigned long long)bytes, base);
    return device->ops->memory->host_register
               ? device->ops->memory->host_register(device, base, bytes)
               : SY_OK;
}

int sy_device_host_unregister(struct sy_device *device, void *base)
{
    return device->ops->memory->host_unregister ? device->ops->memory->host_unregister(device, base)
                                                : SY_OK;
}

int sy_device_host_register_wait(struct sy_device *device, sy_ns timeout_ns)
{
    return device->ops->memory->host_register_wait
               ? device->ops->memory->host_register_wait(device, timeout_ns)
               : SY_OK;
}

/* ---- streams and events ------------------------------------------------------------------------------ */

int sy_stream_create(struct sy_device *device, enum sy_stream_kind kind, struct sy_stream **out)
{
    if (kind != SY_STREAM_COMPUTE && kind != SY_STREAM_COPY_H2D && kind != SY_STREAM_COPY_D2H)
        return sy_error_set(SY_EARG, "no stream kind %d", (int)kind);
    return device->ops->stream->create(device, kind, out);
}

void sy_stream_destroy(struct sy_stream *stream)
{
    if (stream)
        stream->device->ops->stream->destroy(stream);
}

int sy_stream_synchronize(struct sy_stream *stream)
{
    return stream->device->ops->stream->synchronize(stream);
}

static int queue_copy(struct sy_stream *stream, void *host, sy_device_address address,
                      uint64_t bytes, bool to_device)
{
    enum sy_stream_kind wrong = to_device ? SY_STREAM_COPY_D2H : SY_STREAM_COPY_H2D;
    if (bytes == 0)
        return SY_OK;
    if (!host || address.value == 0)
        return sy_error_set(SY_EARG, "copy of %llu bytes: no address", (unsigned long long)bytes);
    if (stream->kind == wrong)
        return sy_error_set(SY_EARG, "copy %s the device on a stream of the other direction",
                            to_device ? "to" : "from");
    return stream->device->ops->stream->copy(stream, host, address, bytes, to_device);
}

int sy_copy_h2d(struct sy_stream *stream, sy_device_address to, const void *from, uint64_t bytes)
{
    SY_TRY(sy_fault("copy_h2d"));
    return queue_copy(stream, (void *)(uintptr_t)from, to, bytes, true);
}

int sy_copy_d2h(struct sy_stream *stream, void *to, sy_device_address from, uint64_t bytes)
{
    SY_TRY(sy_fault("copy_d2h"));
    return queue_copy(stream, to, from, bytes, false);
}

int sy_stream_launch(struct sy_stream *stream, void (*fn)(void *arg), void *arg)
{
    SY_TRY(sy_fault("stream_launch"));
    if (!fn)
        return sy_error_set(SY_EARG, "launch of no function");
    return stream->device->ops->stream->launch(stream, fn, arg);
}

static int no_parts(const struct sy_device *device)
{
    return sy_error_set(SY_EUNSUPPORTED, "%s: its compute is cut into no parts",
                        device->properties.name);
}

int sy_device_compute_parts(struct sy_device *device, struct sy_compute_parts *out)
{
    *out = (struct sy_compute_parts){0};
    return device->ops->compute_parts ? device->ops->compute_parts(device, out) : no_parts(device);
}

int sy_stream_confine(struct sy_stream *stream, const int *parts, int n)
{
    const struct sy_stream_ops *ops = stream->device->ops->stream;
    return ops->confine ? ops->confine(stream, parts, n) : no_parts(stream->device);
}

int sy_stream_wait_event(struct sy_stream *stream, struct sy_event *event)
{
    return stream->device->ops->stream->wait_event(stream, event);
}

int sy_event_create(struct sy_device *device, struct sy_event **out)
{
    return device->ops->stream->event_create(device, out);
}

void sy_event_destroy(struct sy_event *event)
{
    if (event)
        event->device->ops->stream->event_destroy(event);
}

int sy_event_record(struct sy_event *event, struct sy_stream *stream)
{
    SY_TRY(sy_fault("event_record"));
    return event->device->ops->stream->event_record(event, stream);
}

int sy_event_query(struct sy_event *event)
{
    return event->device->ops->stream->event_query(event);
}

int sy_event_synchronize(struct sy_event *event, sy_ns timeout_ns)
{
    return event->device->ops->stream->event_synchronize(event, timeout_ns);
}

sy_ns sy_event_time(struct sy_event *event)
{
    return event->device->ops->stream->event_time(event);
}
