/* The link's rule, alone and as the copies of a worker follow it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tests/rigs/seed.h"
#include "workers/infer/transfer.h"

#define GROUP_BYTES (20ull << 20)

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

static void rule(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        enum sy_link_class own = (enum sy_link_class)below(4),
                           others = (enum sy_link_class)below(4);
        uint64_t left = 1 + below(1u << 30), waited = below(3) * SY_LINK_PATIENCE_NS / 2;
        uint64_t bytes = sy_link_turn(own, others, left, waited);
        assert_true(bytes <= left);
        if (own == SY_LINK_URGENT) {
            assert_int_equal(bytes, left);
            continue;
        }
        assert_true(bytes <= SY_LINK_CHUNK_BYTES); /* L1 */
        if (others > own && waited < SY_LINK_PATIENCE_NS)
            assert_int_equal(bytes, 0);
        else if (own != SY_LINK_NONE)
            assert_true(bytes > 0); /* L2: nothing starves */
    }
}

/* In virtual time: random arrivals; an urgent copy never waits for more than one chunk of each of the others. */
static void urgent_waits_for_one_chunk_at_most(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        uint64_t left[4], waited[4] = {0}, urgent_behind = 0;
        enum sy_link_class class[4] = {SY_LINK_URGENT, SY_LINK_PREFETCH, SY_LINK_PREFETCH,
                                       SY_LINK_SPILL};
        uint64_t arrives = below(200);
        for (int i = 0; i < 4; i++)
            left[i] = 1 + below(100u << 20);
        for (uint64_t now = 0; left[0] > 0; now++) {
            int who = (int)below(4);
            bool urgent_is_here = now >= arrives;
            if (who == 0 && !urgent_is_here)
                continue;
            enum sy_link_class others = SY_LINK_NONE;
            for (int i = urgent_is_here ? 0 : 1; i < 4; i++)
                if (i != who && left[i] > 0 && class[i] > others)
                    others = class[i];
            uint64_t bytes =
                left[who] ? sy_link_turn(class[who], others, left[who], waited[who]) : 0;
            left[who] -= bytes;
            if (urgent_is_here && who != 0)
                urgent_behind += bytes; /* begun after the urgent one came */
        }
        assert_int_equal(urgent_behind, 0);
    }
}

/* ---- a worker's copies ------------------------------------------------------------------------------- */

struct rig {
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_transfer *transfer;
    struct sy_stream *compute;
    struct sy_link_board board;
    unsigned char *image, *memory;
};

static void open_rig_on(struct rig *r, const char *device, uint64_t pool_bytes)
{
    struct sy_device_spec spec;
    memset(r, 0, sizeof *r);
    assert_int_equal(sy_device_spec_parse(device, &spec), SY_OK);
    assert_int_equal(sy_device_open(&spec, &r->device), SY_OK);
    assert_int_equal(sy_pool_create(r->device, pool_bytes, &r->pool), SY_OK);
    assert_int_equal(sy_stream_create(r->device, SY_STREAM_COMPUTE, &r->compute), SY_OK);
    assert_int_equal(sy_transfer_create(r->device, r->pool, -1, &r->transfer), SY_OK);
    sy_transfer_set_board(r->transfer, &r->board, 0);
    r->image = malloc(2 * GROUP_BYTES);
    assert_non_null(r->image);
    for (uint64_t i = 0; i < 2 * GROUP_BYTES; i++)
        r->image[i] = (unsigned char)(i * 7 + (i >> 16));
    r->memory = sy_device_host_pointer(r->device, sy_pool_address(r->pool, 0));
}

static void open_rig(struct rig *r)
{
    open_rig_on(r, "emulated,link-gbps=20", 2 * GROUP_BYTES);
}

static void close_rig(struct rig *r)
{
    sy_transfer_destroy(r->transfer);
    sy_stream_destroy(r->compute);
    sy_pool_destroy(r->pool);
    sy_device_close(r->device);
    free(r->image);
}

static void begin(struct rig *r, enum sy_link_class c)
{
    sy_transfer_begin(r->transfer);
    sy_transfer_set_class(r->transfer, c);
    for (uint64_t g = 0; g < 2; g++) {
        struct sy_transfer_group group = {.pool_offset = g * GROUP_BYTES,
                                          .bytes = GROUP_BYTES,
                                          .image = r->image + g * GROUP_BYTES,
                                          .after_group = -1};
        assert_int_equal(sy_transfer_add(r->transfer, &group, 1), SY_OK);
    }
}

static void beat(void *ctx)
{
    (void)ctx;
}

static void wait_and_check(struct rig *r)
{
    for (int g = 0; g < 2; g++)
        assert_int_equal(sy_transfer_wait(r->transfer, g, r->compute, beat, NULL), SY_OK);
    assert_int_equal(sy_transfer_n_arrived(r->transfer), 2);
    assert_memory_equal(r->memory, r->image, 2 * GROUP_BYTES);
    sy_transfer_end(r->transfer);
    assert_int_equal(r->board.classes[0], SY_LINK_NONE);
    memset(r->memory, 0, 2 * GROUP_BYTES);
}

static void sleep_ms(uint64_t ms)
{
    sy_clock_sleep_until(sy_clock_now() + ms * SY_NS_PER_MS);
}

static void prefetch_gives_way_and_becomes_urgent(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r);
    begin(&r, SY_LINK_URGENT);
    wait_and_check(&r);
    begin(&r, SY_LINK_PREFETCH);
    wait_and_check(&r); /* nobody else is there */

    sy_ns since = sy_clock_now();
    sy_link_board_set(&r.board, 1, SY_LINK_URGENT);
    begin(&r, SY_LINK_PREFETCH);
    sleep_ms(50);
    int n = sy_transfer_n_arrived(r.transfer);
    unsigned char last = r.memory[2 * GROUP_BYTES - 1];
    if (sy_clock_now() - since < SY_LINK_PATIENCE_NS) {
        assert_int_equal(n, 0);
        assert_int_equal(last, 0);
    }
    sy_link_board_set(&r.board, 1, SY_LINK_NONE);
    wait_and_check(&r);

    sy_link_board_set(&r.board, 1, SY_LINK_URGENT);
    begin(&r, SY_LINK_PREFETCH);
    sy_transfer_set_class(r.transfer, SY_LINK_URGENT);
    wait_and_check(&r); /* two urgent ones share */
    close_rig(&r);
}

static void what_waits_can_end(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r);
    sy_link_board_set(&r.board, 1, SY_LINK_URGENT);
    for (int i = 0; i < 20; i++) {
        begin(&r, i % 2 ? SY_LINK_PREFETCH : SY_LINK_SPILL);
        sleep_ms(below(3));
        sy_transfer_end(r.transfer);
        assert_true(sy_transfer_n_arrived(r.transfer) <= 2);
        assert_int_equal(r.board.classes[0], SY_LINK_NONE);
    }
    r.board.classes[5] = 77; /* a broken worker's */
    sy_link_board_set(&r.board, 1, SY_LINK_NONE);
    assert_int_equal(sy_link_board_others(&r.board, 0), SY_LINK_NONE);
    begin(&r, SY_LINK_SPILL);
    wait_and_check(&r);
    close_rig(&r);
}

/* X6: of 96 MiB, which take 0.1 s, those that are not under way when the run ends are not waited for. */
static void who_gives_way_does_not_wait_for_all_copies(void **state)
{
    (void)state;
    struct rig r;
    const uint64_t n_groups = 12, bytes = 8 << 20;
    open_rig_on(&r, "emulated,link-gbps=1", n_groups * bytes);
    unsigned char *image = calloc(1, bytes);
    assert_non_null(image);
    sy_transfer_begin(r.transfer);
    for (uint64_t g = 0; g < n_groups; g++) {
        struct sy_transfer_group group = {
            .pool_offset = g * bytes, .bytes = bytes, .image = image, .after_group = -1};
        assert_int_equal(sy_transfer_add(r.transfer, &group, 1), SY_OK);
    }
    assert_int_equal(sy_transfer_wait(r.transfer, 0, r.compute, beat, NULL), SY_OK);
    sy_transfer_end(r.transfer);
    int n = sy_transfer_n_arrived(r.transfer);
    assert_in_range(n, 1, 6);
    free(image);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule),
        cmocka_unit_test(urgent_waits_for_one_chunk_at_most),
        cmocka_unit_test(prefetch_gives_way_and_becomes_urgent),
        cmocka_unit_test(what_waits_can_end),
        cmocka_unit_test(who_gives_way_does_not_wait_for_all_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
