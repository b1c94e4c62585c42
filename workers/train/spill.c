#include "workers/train/spill.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/train/spill_room.h"

#define TURN_SLICE_NS (20 * SY_NS_PER_MS)

/* Two parts are in flight, one behind the other, so that the link is not idle while this thread wakes up: half a chunk in all, so that an
 * urgent swap waits for less than a chunk even if threads wake up late. */
#define N_PARTS    2
#define PART_BYTES (SY_LINK_CHUNK_BYTES / 4)

struct sy_spill {
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_link_board *board;
    int slot, file;
    struct sy_stream *out, *back;
    struct sy_event *ends[N_PARTS]; /* of part n: ends[n % N_PARTS] */
    struct sy_spill_room *room; /* from the first wish on: fresh memory is slower than the link */
    bool registered;            /* with the device */
    uint64_t bytes, pool_offset;
    uint64_t queued;             /* of bytes; what is not on its way has come */
    uint64_t n_queued, n_landed; /* parts */
    bool travels, goes_out, is_out;
    sy_ns since_ns; /* start of the last chunk, or of the request */
};

int sy_spill_create(struct sy_device *device, struct sy_pool_memory *pool,
                    struct sy_link_board *board, int slot, int file, struct sy_spill **out)
{
    struct sy_spill *s = calloc(1, sizeof *s);
    SY_TRY_ALLOC(s, "no memory for spilling");
    *s = (struct sy_spill){
        .device = device, .pool = pool, .board = board, .slot = slot, .file = file};
    int status = sy_stream_create(device, SY_STREAM_COPY_D2H, &s->out);
    if (status == SY_OK)
        status = sy_stream_create(device, SY_STREAM_COPY_H2D, &s->back);
    for (int i = 0; i < N_PARTS && status == SY_OK; i++)
        status = sy_event_create(device, &s->ends[i]);
    if (status < 0) {
        sy_spill_destroy(s);
        return status;
    }
    *out = s;
    return SY_OK;
}

static void give_room(struct sy_spill *s)
{
    if (s->registered)
        SY_CLEANUP(sy_device_host_unregister(s->device, sy_spill_room_base(s->room)));
    s->registered = false;
    sy_spill_room_give(s->room);
    s->room = NULL;
}

int sy_spill_prepare(struct sy_spill *s, uint64_t bytes)
{
    assert(!s->travels && !s->is_out && bytes > 0);
    if (s->room && sy_spill_room_bytes(s->room) >= bytes)
        return SY_OK;
    give_room(s);
    SY_TRY(sy_spill_room_take(s->file, bytes, &s->room));
    s->registered = sy_device_host_register(s->device, sy_spill_room_base(s->room), bytes) == SY_OK;
    if (!s->registered)
        sy_log_warn("worker", "event=spill_not_pinned bytes=%llu why=\"%s\"",
                    (unsigned long long)bytes, sy_error_text());
    return SY_OK;
}

bool sy_spill_is_prepared(const struct sy_spill *s)
{
    return s && s->room && sy_spill_room_is_ready(s->room);
}

void sy_spill_destroy(struct sy_spill *s)
{
    if (!s)
        return;
    if (s->out)
        sy_stream_destroy(s->out);
    if (s->back)
        sy_stream_destroy(s->back);
    for (int i = 0; i < N_PARTS; i++)
        sy_event_destroy(s->ends[i]);
    sy_link_board_set(s->board, s->slot, SY_LINK_NONE); /* it may have been under way */
    give_room(s);
    free(s);
}

static void begin(struct sy_spill *s, uint64_t pool_offset, bool goes_out)
{
    s->pool_offset = pool_offset;
    s->goes_out = goes_out;
    s->queued = s->n_queued = s->n_landed = 0;
    s->travels = true;
    s->since_ns = sy_clock_now();
}

int sy_spill_adopt(struct sy_spill *s, uint64_t bytes)
{
    SY_TRY(sy_spill_prepare(s, bytes));
    s->bytes = bytes;
    s->is_out = true;
    return SY_OK;
}

int sy_spill_begin_spill(struct sy_spill *s, uint64_t pool_offset, uint64_t bytes)
{
    SY_TRY(sy_spill_prepare(s, bytes));
    sy_spill_room_hurry(s->room);
    s->bytes = bytes;
    begin(s, pool_offset, true);
    return SY_OK;
}

void sy_spill_begin_restore(struct sy_spill *s, uint64_t pool_offset)
{
    assert(!s->travels && s->is_out);
    begin(s, pool_offset, false);
}

static int flying(const struct sy_spill *s)
{
    return (int)(s->n_queued - s->n_landed);
}

static int queue_part(struct sy_spill *s, uint64_t bytes)
{
    struct sy_stream *stream = s->goes_out ? s->out : s->back;
    unsigned char *host = sy_spill_room_base(s->room);
    sy_device_address at = sy_pool_address(s->pool, s->pool_offset + s->queued);
    int status = s->goes_out ? sy_copy_d2h(stream, host + s->queued, at, bytes)
                             : sy_copy_h2d(stream, at, host + s->queued, bytes);
    SY_TRY(status);
    SY_TRY(sy_event_record(s->ends[s->n_queued % N_PARTS], stream));
    s->queued += bytes;
    s->n_queued++;
    return SY_OK;
}

static int land_part(struct sy_spill *s)
{
    SY_TRY(sy_event_synchronize(s->ends[s->n_landed % N_PARTS], UINT64_MAX));
    s->n_landed++;
    s->since_ns = sy_clock_now();
    return SY_OK;
}

/* Queues what the rule allows now, up to one whole chunk in flight. Announced on the board before it moves. */
static int queue_parts(struct sy_spill *s, uint64_t allowed)
{
    while (allowed > 0 && flying(s) < N_PARTS) {
        uint64_t bytes = SY_MIN(allowed, PART_BYTES);
        sy_link_board_set(s->board, s->slot, SY_LINK_SPILL);
        SY_TRY(queue_part(s, bytes));
        allowed -= bytes;
    }
    return SY_OK;
}

/* Shown on the board only while a chunk moves or could: a waiting worker blocks none. */
static int take_turn(struct sy_spill *s)
{
    uint32_t seen = s->board ? atomic_load(&s->board->changed) : 0;
    SY_TRY(queue_parts(s, sy_link_turn(SY_LINK_SPILL, sy_link_board_others(s->board, s->slot),
                                       s->bytes - s->queued, sy_clock_now() - s->since_ns)));
    if (flying(s) == 0) {
        sy_link_board_wait(s->board, seen, TURN_SLICE_NS);
        return SY_OK;
    }
    SY_TRY(land_part(s));
    if (flying(s) == 0)
        sy_link_board_set(s->board, s->slot, SY_LINK_NONE);
    return SY_OK;
}

/* Nothing may be on its way into memory that is given back. */
static int give_up(struct sy_spill *s, int status)
{
    char why[512];
    snprintf(why, sizeof why, "%s", sy_error_text());
    (void)sy_stream_synchronize(s->goes_out ? s->out : s->back); /* fails as it did */
    s->n_landed = s->n_queued;
    sy_link_board_set(s->board, s->slot, SY_LINK_NONE);
    s->travels = false;
    return sy_error_set(status, "%s", why);
}

int sy_spill_step(struct sy_spill *s, bool *done)
{
    assert(s->travels);
    *done = false;
    int status = take_turn(s);
    if (status < 0)
        return give_up(s, status);
    if (s->queued < s->bytes || flying(s) > 0)
        return SY_OK;
    s->travels = false;
    *done = true;
    s->is_out = s->goes_out;
    return SY_OK;
}

bool sy_spill_is_moving(const struct sy_spill *s)
{
    return s && s->travels;
}

bool sy_spill_is_outbound(const struct sy_spill *s)
{
    return s->goes_out;
}

bool sy_spill_is_complete(const struct sy_spill *s)
{
    return s && s->is_out && !s->travels;
}

bool sy_spill_holds(const struct sy_spill *s)
{
    return s && s->is_out;
}

void *sy_spill_host(struct sy_spill *s)
{
    assert(s->is_out);
    return sy_spill_room_base(s->room);
}
