/* What of the devices needs no device: names and options, the link's clock, the arithmetic of a measurement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/device/device.h"
#include "runtime/device/link_clock.h"
#include "runtime/device/link_cost.h"

static void expect_spec(const char *text, int expected, const char *word)
{
    struct sy_device_spec spec;
    assert_int_equal(sy_device_spec_parse(text, &spec), expected);
    if (word)
        assert_non_null(strstr(sy_error_text(), word));
}

static void test_specs(void **state)
{
    (void)state;
    struct sy_device_spec spec;
    char text[300];
    expect_spec("host", SY_OK, NULL);
    expect_spec("host,link-gbps=1", SY_EARG, "no options");
    expect_spec("host,", SY_EARG, NULL);
    expect_spec("", SY_ENODEVICE, NULL);
    expect_spec("gpu", SY_ENODEVICE, "gpu");
    expect_spec("emulatedandsomemorecharacters", SY_ENODEVICE, NULL);
    expect_spec("emulated,", SY_EARG, NULL);
    expect_spec("emulated,link-gbps", SY_EARG, "link-gbps");
    expect_spec("emulated,link-gbps=", SY_EARG, "link-gbps");
    expect_spec("emulated,link-gbps=-1", SY_EARG, "-1");
    expect_spec("emulated,link-gbps=0", SY_EARG, NULL);
    expect_spec("emulated,link-gbps=nan", SY_EARG, "nan");
    expect_spec("emulated,link-gbps=inf", SY_EARG, NULL);
    expect_spec("emulated,link-gbps=12x", SY_EARG, "12x");
    expect_spec("emulated,color=red", SY_EARG, "color");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    expect_spec(text, SY_EARG, "too long");
    assert_int_equal(sy_device_spec_parse("emulated", &spec), SY_OK);
    assert_true(spec.link_gbps == 12.3 && spec.link_alpha_ns == 10000);
    assert_int_equal(sy_device_spec_parse("emulated,link-alpha-us=2.5,link-gbps=0.5", &spec),
                     SY_OK);
    assert_true(spec.link_gbps == 0.5 && spec.link_alpha_ns == 2500);
    assert_string_equal(spec.text, "emulated,link-alpha-us=2.5,link-gbps=0.5");
    assert_string_equal(spec.kind, "emulated");
    for (const char *const *kind = sy_device_kinds(); *kind; kind++)
        expect_spec(*kind, SY_OK, NULL);
    spec = (struct sy_device_spec){.kind = "gpu"};
    struct sy_device *device;
    assert_int_equal(sy_device_open(&spec, &device), SY_ENODEVICE);
    sy_device_close(NULL);
}

static void test_gpus_by_number_and_uuid(void **state)
{
    (void)state;
    static const char uuid[] = "MIG-0f9e8d7c-0123-4567-89AB-cdef01234567";
    struct sy_device_spec spec;
    char text[80];
    assert_int_equal(sy_device_spec_parse("cuda:127", &spec), SY_OK);
    assert_true(spec.ordinal == 127 && !spec.uuid[0]);
    snprintf(text, sizeof text, "cuda:%s", uuid);
    assert_int_equal(sy_device_spec_parse(text, &spec), SY_OK);
    assert_string_equal(spec.kind, "cuda");
    assert_string_equal(spec.uuid, uuid);
    assert_true(spec.ordinal == 0);
    memcpy(text + 5, "GPU", 3);
    expect_spec(text, SY_OK, NULL);
    for (const char *const *bad = (const char *const[]){"cuda:128", "cuda:-1", "cuda:+1", "cuda:",
                                                        "cuda:1x", "cuda:GPU-", "cuda:gpu-0f9e8d7c",
                                                        "cuda:99999999999999999999", NULL};
         *bad; bad++)
        expect_spec(*bad, SY_EARG, "GPU-UUID");
    strcat(text, "0"); /* a digit more */
    expect_spec(text, SY_EARG, "nvidia-smi -L");
    text[strlen(text) - 2] = 0; /* one less */
    expect_spec(text, SY_EARG, NULL);
    memcpy(text, "cuda:GPU-0f9e8d7c_0123", 22);
    expect_spec(text, SY_EARG, NULL);
}

/* One reserver: slots are back to back, or begin now when the link is idle. */
static void test_the_link_clock(void **state)
{
    (void)state;
    struct sy_link_clock clock = {0};
    assert_int_equal(sy_link_clock_reserve(&clock, SY_LINK_H2D, 1000, 50), 1050);
    assert_int_equal(sy_link_clock_reserve(&clock, SY_LINK_H2D, 1010, 50), 1100);
    assert_int_equal(sy_link_clock_reserve(&clock, SY_LINK_D2H, 1010, 50), 1060);
    assert_int_equal(sy_link_clock_reserve(&clock, SY_LINK_H2D, 5000, 0), 5000);
    assert_int_equal(sy_link_clock_reserve(&clock, SY_LINK_H2D, 10, 7), 5007);
}

static void test_the_fit(void **state)
{
    (void)state;
    double alpha, gbps;
    sy_link_fit(4000, 1000 + 4000 / 2.0, 1000000, 1000 + 1000000 / 2.0, &alpha, &gbps);
    assert_true(alpha > 999.999 && alpha < 1000.001 && gbps > 1.999999 && gbps < 2.000001);
    sy_link_fit(4000, 1000, 1000000, 500, &alpha, &gbps); /* noise: the large one was faster */
    assert_true(gbps == 2000 && alpha == 998);
    sy_link_fit(4000, 1, 1000000, 1000001, &alpha, &gbps); /* noise: no room for alpha */
    assert_true(alpha == 0 && gbps > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_specs), cmocka_unit_test(test_gpus_by_number_and_uuid),
        cmocka_unit_test(test_the_link_clock), cmocka_unit_test(test_the_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
