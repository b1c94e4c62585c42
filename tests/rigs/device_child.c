#include "tests/rigs/device_child.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/device/device.h"
#include "runtime/device/link_clock.h"

/* The number of the line that found something wrong, in what an exit status holds. */
#define EXPECT(condition)              \
    do {                               \
        if (!(condition))              \
            return 1 + __LINE__ % 120; \
    } while (0)

struct child {
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_stream *h2d, *d2h, *compute;
    struct sy_event *event;
    unsigned char host[DEVICE_CHILD_BYTES + 8];
    int fd;
    uint64_t bytes;
};

unsigned char device_child_byte(unsigned i, int which)
{
    return (unsigned char)((i * 2654435761u >> 13) + (unsigned)which * 17u);
}

static void nothing(void *arg)
{
    (void)arg;
}

static int play_bytes(struct child *c)
{
    uint64_t address = sy_pool_address(c->pool, DEVICE_CHILD_READS).value, seen;
    EXPECT(sy_copy_d2h(c->d2h, c->host, (sy_device_address){address}, sizeof c->host) == SY_OK);
    EXPECT(sy_stream_synchronize(c->d2h) == SY_OK);
    memcpy(&seen, c->host + DEVICE_CHILD_BYTES, sizeof seen);
    EXPECT(seen == address || sy_device_get_properties(c->device)->own_addresses);
    for (unsigned i = 0; i < DEVICE_CHILD_BYTES; i++)
        EXPECT(c->host[i] == device_child_byte(i, 1));
    for (unsigned i = 0; i < DEVICE_CHILD_BYTES; i++)
        c->host[i] = device_child_byte(i, 2);
    EXPECT(sy_copy_h2d(c->h2d, sy_pool_address(c->pool, DEVICE_CHILD_WRITES), c->host,
                       DEVICE_CHILD_BYTES) == SY_OK);
    EXPECT(sy_stream_synchronize(c->h2d) == SY_OK);
    return 0;
}

/* SY_FAULT=copy_run:2:EDEVICE: the queueing succeeds, what is behind the copy fails, and so does the device from then on. */
static int play_sticky(struct child *c)
{
    sy_device_address place = sy_pool_address(c->pool, 5);
    EXPECT(sy_copy_h2d(c->h2d, place, c->host, 100) == SY_OK);
    EXPECT(sy_event_record(c->event, c->h2d) == SY_OK);
    EXPECT(sy_event_synchronize(c->event, UINT64_MAX) == SY_OK);
    EXPECT(sy_copy_h2d(c->h2d, place, c->host, 100) == SY_OK);
    EXPECT(sy_stream_synchronize(c->h2d) == SY_EDEVICE);
    EXPECT(sy_event_query(c->event) == 1); /* what was before is as it was */
    EXPECT(sy_copy_h2d(c->h2d, place, c->host, 100) == SY_EDEVICE);
    EXPECT(strlen(sy_error_text()) > 0);
    EXPECT(sy_event_record(c->event, c->h2d) == SY_EDEVICE);
    EXPECT(sy_event_synchronize(c->event, UINT64_MAX) == SY_EDEVICE);
    EXPECT(sy_event_query(c->event) == SY_EDEVICE);
    EXPECT(sy_stream_launch(c->compute, nothing, NULL) == SY_EDEVICE);
    EXPECT(sy_stream_synchronize(c->d2h) == SY_EDEVICE);
    return 0;
}

static int play_slots(struct child *c)
{
    struct device_child_slots *slots =
        sy_device_host_pointer(c->device, sy_pool_address(c->pool, 0));
    struct sy_link_clock *clock =
        sy_device_host_pointer(c->device, sy_pool_address(c->pool, sy_pool_size(c->pool)));
    sy_ns give_up = sy_clock_now() + 5 * SY_NS_PER_S;
    atomic_fetch_add(&slots->started, 1);
    while (atomic_load(&slots->started) < 2 &&
           sy_clock_now() < give_up) /* together, so that they meet */
        sy_clock_sleep_until(sy_clock_now() + 50 * SY_NS_PER_US);
    for (unsigned i = 0; i < DEVICE_CHILD_SLOTS; i++) {
        uint64_t duration = 1 + i % 1000;
        uint64_t end = sy_link_clock_reserve(clock, SY_LINK_H2D, 1000000, duration);
        slots->slots[atomic_fetch_add(&slots->n, 1)] =
            (struct device_child_slot){end - duration, end};
    }
    return 0;
}

static int play_link(struct child *c)
{
    for (int i = 0; i < DEVICE_CHILD_COPIES; i++)
        EXPECT(sy_copy_h2d(c->h2d, sy_pool_address(c->pool, 0), c->host, DEVICE_CHILD_BYTES) ==
               SY_OK);
    EXPECT(sy_stream_synchronize(c->h2d) == SY_OK);
    return 0;
}

/* ---- faults: the call's second use fails and says so; the third is fine ---------------------------------- */

static int call_once(struct child *c, const char *op)
{
    struct sy_pool_memory *pool = NULL;
    int status = SY_EBUG;
    if (strcmp(op, "pool_create") == 0)
        status = sy_pool_create(c->device, 4096, &pool);
    else if (strcmp(op, "pool_import") == 0)
        status = sy_pool_import(c->device, c->fd, c->bytes, &pool);
    else if (strcmp(op, "copy_h2d") == 0)
        status = sy_copy_h2d(c->h2d, sy_pool_address(c->pool, 0), c->host, 10);
    else if (strcmp(op, "copy_d2h") == 0)
        status = sy_copy_d2h(c->d2h, c->host, sy_pool_address(c->pool, 0), 10);
    else if (strcmp(op, "event_record") == 0)
        status = sy_event_record(c->event, c->h2d);
    else if (strcmp(op, "stream_launch") == 0)
        status = sy_stream_launch(c->compute, nothing, NULL);
    else if (strcmp(op, "host_register") == 0)
        status = sy_device_host_register(c->device, c->host, sizeof c->host);
    sy_pool_destroy(pool);
    return status;
}

static int play_fault(struct child *c, const char *op)
{
    if (strcmp(op, "pool_import") != 0) /* that one was used once already, to start */
        EXPECT(call_once(c, op) == SY_OK);
    EXPECT(call_once(c, op) == SY_EDEVICE);
    EXPECT(strstr(sy_error_text(), op));
    EXPECT(call_once(c, op) == SY_OK);
    EXPECT(sy_stream_synchronize(c->h2d) == SY_OK && sy_stream_synchronize(c->d2h) == SY_OK);
    return 0;
}

static int play(struct child *c, const char *role)
{
    if (strcmp(role, "bytes") == 0)
        return play_bytes(c);
    if (strcmp(role, "sticky") == 0)
        return play_sticky(c);
    if (strcmp(role, "slots") == 0)
        return play_slots(c);
    if (strcmp(role, "link") == 0)
        return play_link(c);
    return play_fault(c, role);
}

static int start(struct child *c, const char *spec_text)
{
    struct sy_device_spec spec;
    SY_TRY(sy_device_spec_parse(spec_text, &spec));
    SY_TRY(sy_device_open(&spec, &c->device));
    SY_TRY(sy_pool_import(c->device, c->fd, c->bytes, &c->pool));
    SY_TRY(sy_stream_create(c->device, SY_STREAM_COPY_H2D, &c->h2d));
    SY_TRY(sy_stream_create(c->device, SY_STREAM_COPY_D2H, &c->d2h));
    SY_TRY(sy_stream_create(c->device, SY_STREAM_COMPUTE, &c->compute));
    return sy_event_create(c->device, &c->event);
}

int device_child_main(const char *role, const char *spec_text, int fd, uint64_t bytes)
{
    static struct child c;
    c.fd = fd;
    c.bytes = bytes;
    if (start(&c, spec_text) < 0)
        return 126;
    int wrong = play(&c, role);
    sy_stream_destroy(c.h2d);
    sy_stream_destroy(c.d2h);
    sy_stream_destroy(c.compute);
    sy_event_destroy(c.event);
    sy_pool_destroy(c.pool);
    sy_device_close(c.device);
    return wrong;
}
