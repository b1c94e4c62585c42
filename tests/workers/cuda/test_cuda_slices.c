/* Slices of the GPU's multiprocessors on a table of calls that records them: what a stream is confined to, who hears of it, what is left after
 * a failure. What a GPU does with it: test_gpu_slices. */
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_error.h"
#include "tests/rigs/cuda_device_rig.h"

static uint64_t parts_of(struct sy_stream *stream)
{
    return fake_cuda_stream_parts(sy_cuda_stream_handle(stream));
}

IN_A_PROCESS(the_parts_need_no_context)
{
    struct sy_device *device = must_open();
    struct sy_compute_parts parts;
    fake_cuda_reset();
    CHECK(sy_device_compute_parts(device, &parts) == SY_OK);
    CHECK(parts.n == 16 && parts.n_sms == 8 && parts.beside);
    CHECK_CALLS("sm_parts device_attribute ");
    fake_cuda.mps = 0;
    CHECK(sy_device_compute_parts(device, &parts) == SY_OK && !parts.beside);
    CHECK(!fake_cuda_has_context());
    sy_device_close(device);
}

IN_A_PROCESS(a_driver_without_them_says_so)
{
    struct rig r = make_rig();
    struct sy_compute_parts parts;
    const int part = 0;
    fake_cuda.n_parts = 0;
    CHECK(sy_device_compute_parts(r.device, &parts) == SY_EUNSUPPORTED);
    CHECK(strstr(sy_error_text(), "cuda:0") && strstr(sy_error_text(), "green contexts"));
    CHECK(sy_stream_confine(r.compute, &part, 1) == SY_EUNSUPPORTED);
    CHECK(sy_stream_confine(r.compute, NULL, 0) == SY_OK); /* it is on the whole device */
    fake_cuda.n_parts = 1;
    CHECK(sy_device_compute_parts(r.device, &parts) == SY_EUNSUPPORTED);
    CHECK(strstr(sy_error_text(), "1 part"));
    drop_rig(&r);
}

IN_A_PROCESS(a_stream_moves_and_comes_back)
{
    static const int some[] = {3, 1}, same[] = {1, 3}, other[] = {15};
    struct rig r = make_rig();
    int alive = fake_cuda_alive();
    CHECK(parts_of(r.compute) == 0);
    CHECK(sy_stream_confine(r.compute, some, 2) == SY_OK && parts_of(r.compute) == 0xa);
    fake_cuda_reset();
    CHECK(sy_stream_confine(r.compute, same, 2) == SY_OK);
    CHECK_CALLS(""); /* it is there */
    CHECK(sy_stream_confine(r.compute, other, 1) == SY_OK && parts_of(r.compute) == 1u << 15);
    CHECK_CALLS("stream_synchronize sm_parts device_attribute slice_create slice_stream "
                "stream_destroy slice_destroy ");
    CHECK(sy_stream_confine(r.compute, NULL, 0) == SY_OK && parts_of(r.compute) == 0);
    CHECK(fake_cuda_alive() == alive);
    for (int i = 0; i < 100; i++) {
        int part = i % 16;
        CHECK(sy_stream_confine(r.compute, &part, 1) == SY_OK);
        CHECK(parts_of(r.compute) == 1u << part && fake_cuda_alive() == alive + 1);
    }
    drop_rig(&r); /* from within a slice */
    CHECK(fake_cuda_alive() == 0);
}

IN_A_PROCESS(parts_that_are_not_there)
{
    static const int negative[] = {-1}, beyond[] = {16}, far[] = {0, SY_CUDA_MAX_PARTS};
    struct rig r = make_rig();
    CHECK(sy_stream_confine(r.compute, negative, 1) == SY_EARG);
    CHECK(sy_stream_confine(r.compute, beyond, 1) == SY_EARG);
    CHECK(strstr(sy_error_text(), "16"));
    CHECK(sy_stream_confine(r.compute, far, 2) == SY_EARG);
    CHECK(parts_of(r.compute) == 0);
    drop_rig(&r);
}

/* D2: what was queued is done, and waits on events of before are satisfied. */
IN_A_PROCESS(a_move_keeps_the_order)
{
    static const int part = 2;
    struct rig r = make_rig();
    _Atomic int n = 0;
    for (int i = 0; i < 100; i++)
        CHECK(sy_stream_launch(r.compute, count_up, (void *)&n) == SY_OK);
    CHECK(sy_event_record(r.event, r.compute) == SY_OK);
    CHECK(sy_stream_confine(r.compute, &part, 1) == SY_OK);
    CHECK(atomic_load(&n) == 100 && sy_event_query(r.event) == 1);
    CHECK(sy_stream_wait_event(r.compute, r.event) == SY_OK);
    CHECK(sy_stream_launch(r.compute, count_up, (void *)&n) == SY_OK);
    CHECK(sy_event_record(r.event, r.compute) == SY_OK);
    CHECK(sy_event_synchronize(r.event, 20 * SY_NS_PER_S) == SY_OK && atomic_load(&n) == 101);
    drop_rig(&r);
}

struct heard {
    int n, answer;
    struct CUstream_st *handle;
};

static int hear(void *ctx, struct CUstream_st *handle)
{
    struct heard *heard = ctx;
    heard->n++;
    heard->handle = handle;
    return heard->answer < 0 ? sy_error_set(heard->answer, "it cannot follow") : SY_OK;
}

IN_A_PROCESS(who_uses_the_handle_hears_of_it)
{
    static const int part = 4, other = 5;
    struct heard heard = {0};
    struct rig r = make_rig();
    sy_cuda_stream_on_move(r.compute, hear, &heard);
    CHECK(sy_stream_confine(r.compute, &part, 1) == SY_OK);
    CHECK(heard.n == 1 && heard.handle == sy_cuda_stream_handle(r.compute));
    CHECK(sy_stream_confine(r.compute, &part, 1) == SY_OK && heard.n == 1);
    int alive = fake_cuda_alive();
    heard.answer = SY_EDEVICE;
    CHECK(sy_stream_confine(r.compute, &other, 1) == SY_EDEVICE && heard.n == 2);
    CHECK(parts_of(r.compute) == 1u << part && fake_cuda_alive() == alive);
    sy_cuda_stream_on_move(r.compute, NULL, NULL);
    CHECK(sy_stream_confine(r.compute, &other, 1) == SY_OK && heard.n == 2);
    drop_rig(&r);
}

/* Each call of a move fails: the stream stays, and works, where it was. */
IN_A_PROCESS(a_move_that_fails_changes_nothing)
{
    static const char *const calls[] = {"stream_synchronize", "sm_parts", "device_attribute",
                                        "slice_create", "slice_stream"};
    static const int here = 1, there = 2;
    struct rig r = make_rig();
    CHECK(sy_stream_confine(r.compute, &here, 1) == SY_OK);
    int alive = fake_cuda_alive();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fake_cuda.fail_name = calls[i];
        fake_cuda.fail_error = SY_CUDA_MemoryAllocation;
        CHECK(sy_stream_confine(r.compute, &there, 1) < 0);
        CHECK(strstr(sy_error_text(), "cuda:0"));
        CHECK(parts_of(r.compute) == 1u << here && fake_cuda_alive() == alive);
        CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 0), r.host, 4096) == SY_OK);
        CHECK(sy_stream_synchronize(r.compute) == SY_OK);
    }
    CHECK(sy_stream_confine(r.compute, &there, 1) == SY_OK);
    drop_rig(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_parts_need_no_context),
        cmocka_unit_test(test_a_driver_without_them_says_so),
        cmocka_unit_test(test_a_stream_moves_and_comes_back),
        cmocka_unit_test(test_parts_that_are_not_there),
        cmocka_unit_test(test_a_move_keeps_the_order),
        cmocka_unit_test(test_who_uses_the_handle_hears_of_it),
        cmocka_unit_test(test_a_move_that_fails_changes_nothing),
    };
    int code;
    return cuda_device_keeps(argc, argv, &code) ? code : cmocka_run_group_tests(tests, NULL, NULL);
}
