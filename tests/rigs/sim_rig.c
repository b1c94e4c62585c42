#include "tests/rigs/sim_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/base/status.h"

#define GB 1000000000ull

struct sy_sim_config sim_plain(void)
{
    struct sy_sim_config c;
    sy_sim_config_default(&c);
    c.pause_ns = 0;
    c.check = true;
    c.device.link_gbps = 10;
    return c;
}

struct sy_sim_report *sim_run(const struct sy_sim_config *c, const struct sy_sim_input *in)
{
    struct sy_sim_report *r = sy_sim_report_new();
    assert_non_null(r);
    if (sy_sim_run(c, in, r) < 0)
        fail_msg("%s", sy_error_text());
    return r;
}

struct sy_sim_job sim_job(const char *name, sy_ns submit_ns, uint64_t n, sy_ns iteration_ns)
{
    struct sy_sim_job j = {.submit_ns = submit_ns, .iterations = n, .iteration_ns = iteration_ns};
    j.persistent_bytes = GB / 10;
    j.ephemeral_bytes = GB;
    j.utilization = 1;
    snprintf(j.name, sizeof j.name, "%s", name);
    return j;
}
