/* R5: which memory of a device an event touches, and where the devices lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"
#include "tests/rigs/sim_rig.h"

#define MS         SY_NS_PER_MS
#define N_DEVICES  4
#define N_REQUESTS 200
#define N_FIRST    100 /* until then every device has the model */
#define FAR        offsetof(struct device, resident_bytes)
#define FAR_BYTES  (sizeof(struct device) - FAR)

static const struct sy_sim_model model = {
    .name = "m", .bytes = 1000000, .compute_ns = 20 * MS, .n_groups = 10};

/* What slices alone need has a value that no event gives it. */
static void read_far(struct sim *s, char far[N_DEVICES][FAR_BYTES], bool set)
{
    for (int i = 0; i < N_DEVICES && set; i++) {
        s->devices[i].alone_ns = s->devices[i].alone_compute_ns = 12345;
        s->devices[i].stretches = true;
    }
    for (int i = 0; i < N_DEVICES; i++)
        memcpy(far[i], (const char *)&s->devices[i] + FAR, FAR_BYTES);
}

static void check_router(enum sy_sim_router router)
{
    static struct sy_sim_request requests[N_REQUESTS];
    char before[N_DEVICES][FAR_BYTES], after[N_DEVICES][FAR_BYTES];
    struct sy_sim_config c = sim_plain();
    c.device.n_devices = N_DEVICES;
    c.router = router;
    for (uint64_t i = 0; i < N_REQUESTS; i++)
        requests[i] = (struct sy_sim_request){.at_ns = i * 4 * MS};
    struct sy_sim_input in = {
        .models = &model, .n_models = 1, .requests = requests, .n_requests = N_REQUESTS};
    struct sim s = {.config = &c, .in = &in, .report = sy_sim_report_new()};
    s.n_all = s.n_devices = N_DEVICES;
    assert_int_equal(sy_sim_open(&s), SY_OK);
    struct sy_sim_streams at = {.n_requests = N_FIRST};
    assert_int_equal(sy_sim_loop(&s, &at), SY_OK);
    read_far(&s, before, true);
    at.n_requests = N_REQUESTS;
    assert_int_equal(sy_sim_loop(&s, &at), SY_OK);
    read_far(&s, after, false);
    assert_int_equal(s.report->n_done, N_REQUESTS);
    assert_memory_equal(before, after, sizeof before);
    sy_sim_close(&s);
    sy_sim_report_free(s.report);
}

static void test_requests_of_a_resident_model_write_a_device_s_first_line_alone(void **state)
{
    (void)state;
    for (int router = 0; router < SY_SIM_N_ROUTERS; router++)
        check_router((enum sy_sim_router)router);
}

/* An even number of lines would put the first lines of all devices, and those of all queues, into a part of a cache's sets. */
static void test_devices_and_queues_are_an_odd_number_of_lines_apart(void **state)
{
    (void)state;
    static const int queues[] = {1, 20, 52, 128, 1000};
    for (size_t i = 0; i < sizeof queues / sizeof *queues; i++) {
        struct sy_sim_config c = sim_plain();
        struct sy_sim_input in = {.models = &model, .n_models = 1};
        struct sim s = {.config = &c, .in = &in, .report = sy_sim_report_new()};
        c.max_queue = queues[i];
        s.n_all = s.n_devices = c.device.n_devices = 2;
        assert_int_equal(sy_sim_open(&s), SY_OK);
        assert_int_equal(s.queue_bytes % (2 * SY_SIM_LINE), SY_SIM_LINE);
        assert_int_equal(sizeof *s.devices % (2 * SY_SIM_LINE), SY_SIM_LINE);
        sy_sim_close(&s);
        sy_sim_report_free(s.report);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_of_a_resident_model_write_a_device_s_first_line_alone),
        cmocka_unit_test(test_devices_and_queues_are_an_odd_number_of_lines_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
