/* A trip to host memory and back: every byte, one chunk at a time, and nothing while the link is another's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "allocator/shared_memory.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "workers/train/spill.h"

#define POOL_BYTES (40ull << 20)
#define FROM       (1ull << 20)
#define TO         (3ull << 20)

struct rig {
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_link_board board;
    struct sy_spill *spill;
    int file;
    unsigned char *memory, *expected;
};

static void open_rig(struct rig *r, const char *device)
{
    struct sy_device_spec spec;
    memset(r, 0, sizeof *r);
    assert_int_equal(sy_device_spec_parse(device, &spec), SY_OK);
    assert_int_equal(sy_device_open(&spec, &r->device), SY_OK);
    assert_int_equal(sy_pool_create(r->device, POOL_BYTES, &r->pool), SY_OK);
    r->file = sy_shared_memory_file("test-spill", 30ull << 20);
    assert_true(r->file >= 0);
    assert_int_equal(sy_spill_create(r->device, r->pool, &r->board, 0, r->file, &r->spill), SY_OK);
    r->memory = sy_device_host_pointer(r->device, sy_pool_address(r->pool, 0));
    r->expected = malloc(POOL_BYTES);
    for (size_t i = 0; i < POOL_BYTES; i++)
        r->memory[i] = r->expected[i] = (unsigned char)(i * 31 + (i >> 13));
}

static void close_rig(struct rig *r)
{
    sy_spill_destroy(r->spill);
    close(r->file);
    assert_int_equal(r->board.classes[0], SY_LINK_NONE);
    sy_pool_destroy(r->pool);
    sy_device_close(r->device);
    free(r->expected);
}

static int travel(struct rig *r)
{
    bool done = false;
    int status = SY_OK;
    for (int i = 0; i < 100000 && !done && status == SY_OK; i++)
        status = sy_spill_step(r->spill, &done);
    assert_true(done || status < 0);
    assert_int_equal(r->board.classes[0], SY_LINK_NONE);
    assert_false(sy_spill_is_moving(r->spill));
    return status;
}

/* What is spilled may be overwritten, and comes back to another place; what lies around that place stays. */
static void there_and_back(struct rig *r, uint64_t bytes)
{
    assert_int_equal(sy_spill_begin_spill(r->spill, FROM, bytes), SY_OK);
    assert_true(sy_spill_is_outbound(r->spill));
    assert_int_equal(travel(r), SY_OK);
    assert_true(sy_spill_is_complete(r->spill));
    assert_memory_equal(sy_spill_host(r->spill), r->expected + FROM, bytes);
    memset(r->memory, 0xee, POOL_BYTES);
    sy_spill_begin_restore(r->spill, TO);
    assert_int_equal(travel(r), SY_OK);
    assert_false(sy_spill_is_complete(r->spill));
    assert_memory_equal(r->memory + TO, r->expected + FROM, bytes);
    assert_int_equal(r->memory[TO - 1], 0xee);
    assert_int_equal(r->memory[TO + bytes], 0xee);
    memcpy(r->memory, r->expected, POOL_BYTES);
}

static void every_byte_comes_back(void **state)
{
    (void)state;
    const char *const devices[] = {"host", "emulated,link-gbps=8"};
    const uint64_t sizes[] = {1,
                              4095,
                              SY_LINK_CHUNK_BYTES / 2,
                              SY_LINK_CHUNK_BYTES / 2 + 1,
                              SY_LINK_CHUNK_BYTES,
                              2 * SY_LINK_CHUNK_BYTES + 12345,
                              30ull << 20};
    for (int d = 0; d < 2; d++) {
        struct rig r;
        open_rig(&r, devices[d]);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            there_and_back(&r, sizes[i]);
        close_rig(&r);
    }
}

/* Once another has shown a higher class, what is on its way lands and nothing else begins: at most one chunk in all. */
static void gives_way(void **state)
{
    (void)state;
    struct rig r;
    bool done = false;
    open_rig(&r, "emulated,link-gbps=8");
    uint64_t bytes = 30ull << 20;
    assert_int_equal(sy_spill_begin_spill(r.spill, FROM, bytes), SY_OK);
    assert_int_equal(travel(&r), SY_OK);
    memset(r.memory, 0, POOL_BYTES);
    sy_ns since = sy_clock_now();
    sy_spill_begin_restore(r.spill, FROM);
    sy_link_board_set(&r.board, 1, SY_LINK_URGENT);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sy_spill_step(r.spill, &done), SY_OK);
    if (sy_clock_now() - since < SY_LINK_PATIENCE_NS) { /* L2 would let a chunk go */
        assert_int_equal(r.memory[FROM], 0);
        assert_int_equal(r.board.classes[0], SY_LINK_NONE);
    }
    sy_link_board_set(&r.board, 1, SY_LINK_NONE);
    assert_int_equal(sy_spill_step(r.spill, &done), SY_OK); /* one has begun */
    assert_false(done);
    since = sy_clock_now();
    sy_link_board_set(&r.board, 1, SY_LINK_URGENT);
    for (int i = 0; i < 5; i++)
        assert_int_equal(sy_spill_step(r.spill, &done), SY_OK);
    if (sy_clock_now() - since < SY_LINK_PATIENCE_NS) {
        uint64_t end = FROM + SY_LINK_CHUNK_BYTES + SY_LINK_CHUNK_BYTES / 2;
        assert_int_equal(r.board.classes[0], SY_LINK_NONE);
        for (uint64_t at = end; at < FROM + bytes; at++)
            assert_int_equal(r.memory[at], 0);
    }
    sy_link_board_set(&r.board, 1, SY_LINK_NONE);
    assert_int_equal(travel(&r), SY_OK);
    assert_memory_equal(r.memory + FROM, r.expected + FROM, bytes);
    close_rig(&r);
}

/* Destroyed at any moment, it leaves nothing behind: the sanitizers see the rest. */
static void can_be_dropped_on_its_way(void **state)
{
    (void)state;
    for (int steps = 0; steps < 6; steps++)
        for (int back = 0; back < 2; back++) {
            struct rig r;
            bool done;
            open_rig(&r, "emulated,link-gbps=8");
            assert_int_equal(sy_spill_begin_spill(r.spill, FROM, 30ull << 20), SY_OK);
            if (back) {
                assert_int_equal(travel(&r), SY_OK);
                sy_spill_begin_restore(r.spill, FROM);
            }
            for (int i = 0; i < steps; i++)
                assert_int_equal(sy_spill_step(r.spill, &done), SY_OK);
            close_rig(&r);
        }
}

/* Whoever took it out is gone, at any moment: another has it from the file, whole as soon as it was out. */
static void another_brings_it_back(void **state)
{
    (void)state;
    const uint64_t bytes = (20ull << 20) + 4096;
    for (int steps = 0; steps < 3; steps++) {
        struct rig r;
        bool done;
        open_rig(&r, "emulated,link-gbps=8");
        assert_false(sy_spill_holds(r.spill));
        assert_int_equal(sy_spill_begin_spill(r.spill, FROM, bytes), SY_OK);
        assert_false(sy_spill_holds(r.spill));
        assert_int_equal(travel(&r), SY_OK);
        sy_spill_begin_restore(r.spill, TO);
        for (int i = 0; i < steps; i++)
            assert_int_equal(sy_spill_step(r.spill, &done), SY_OK);
        assert_true(sy_spill_holds(r.spill));
        assert_memory_equal(sy_spill_host(r.spill), r.expected + FROM, bytes);
        sy_spill_destroy(r.spill);
        memset(r.memory, 0xee, POOL_BYTES);
        assert_int_equal(sy_spill_create(r.device, r.pool, &r.board, 1, r.file, &r.spill), SY_OK);
        assert_int_equal(sy_spill_adopt(r.spill, (30ull << 20) + 1), SY_EARG); /* has no more */
        assert_int_equal(sy_spill_adopt(r.spill, bytes), SY_OK);
        sy_spill_begin_restore(r.spill, TO);
        assert_int_equal(travel(&r), SY_OK);
        assert_memory_equal(r.memory + TO, r.expected + FROM, bytes);
        assert_int_equal(r.memory[TO + bytes], 0xee);
        close_rig(&r);
    }
}

/* In a process of its own, whose environment says which copy fails. */
static void fail_on_the_way(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, "emulated,link-gbps=8");
    assert_int_equal(sy_spill_begin_spill(r.spill, FROM, 30ull << 20), SY_OK);
    assert_int_equal(travel(&r), SY_EDEVICE);
    assert_true(strlen(sy_error_text()) > 0);
    assert_false(sy_spill_is_complete(r.spill));
    assert_memory_equal(r.memory, r.expected, POOL_BYTES);
    close_rig(&r);
}

static void a_failed_copy_ends_the_trip(void **state)
{
    (void)state;
    const char *const faults[] = {"copy_d2h:1:EDEVICE", "copy_d2h:2:EDEVICE", "copy_d2h:4:EDEVICE",
                                  "copy_run:3:EDEVICE"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char self[400], command[600];
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        assert_true(n > 0);
        self[n] = 0;
        snprintf(command, sizeof command, "SY_FAULT=%s '%s' failing >/dev/null 2>&1", faults[i],
                 self);
        assert_int_equal(system(command), 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest failing[] = {cmocka_unit_test(fail_on_the_way)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_comes_back),       cmocka_unit_test(gives_way),
        cmocka_unit_test(can_be_dropped_on_its_way),   cmocka_unit_test(another_brings_it_back),
        cmocka_unit_test(a_failed_copy_ends_the_trip),
    };
    if (argc > 1 && strcmp(argv[1], "failing") == 0)
        return cmocka_run_group_tests(failing, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
