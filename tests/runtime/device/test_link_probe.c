/* The measurement of a link in a process of its own: its answer, or why there is none, within the time that it has, whatever that process
 * does. This program plays it: as /proc/self/exe it is started for "bench-link". */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/cli/doctor/link_probe.h"

#define ANSWER \
    "{\"h2d_gbps\": 12.5, \"alpha_us\": 7, \"sigma_us\": 3, \"lost_ns_per_byte\": 0.02}\n"

static int play(const char *what)
{
    alarm(60); /* at the latest */
    if (strcmp(what, "silent") != 0)
        fputs(strcmp(what, "no rate") == 0 ? "{}" : ANSWER, stdout);
    if (strcmp(what, "long") == 0)
        for (int i = 0; i < 5000; i++)
            fputc(' ', stdout);
    fflush(stdout);
    if (strcmp(what, "closes") == 0) /* and does not end */
        fclose(stdout);
    if (strcmp(what, "closes") == 0 || strcmp(what, "silent") == 0)
        for (;;)
            pause();
    if (strcmp(what, "dies") == 0)
        kill(getpid(), SIGTERM);
    return strcmp(what, "fails") == 0 ? 3 : 0;
}

static void assert_fails(const char *what, const char *says)
{
    struct sy_link_cost cost;
    assert_int_equal(sy_link_probe(what, &cost), SY_EIO);
    if (!strstr(sy_error_text(), says))
        fail_msg("%s: \"%s\" was expected in: %s", what, says, sy_error_text());
}

static void test_an_answer_is_read(void **state)
{
    (void)state;
    struct sy_link_cost cost;
    assert_int_equal(sy_link_probe("fine", &cost), SY_OK);
    assert_true(cost.bytes_per_ns == 12.5 && cost.lost_ns_per_byte == 0.02);
    assert_true(cost.alpha_ns == 7000 && cost.sigma_ns == 3000);
}

static void test_failures_have_their_reasons(void **state)
{
    (void)state;
    assert_fails("no rate", "gave no rate");
    assert_fails("fails", "failed with exit status 3");
    assert_fails("dies", "ended by signal 15");
    assert_fails("long", "more than 4095 bytes");
}

/* Neither one that says nothing nor one that says all and then hangs is waited for longer than it has; both at once, for the test's sake. */
static void test_none_is_waited_for_without_end(void **state)
{
    (void)state;
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        struct sy_link_cost cost;
        int status = sy_link_probe("silent", &cost);
        _exit(status == SY_EIO && strstr(sy_error_text(), "not over within 10 s") ? 0 : 1);
    }
    assert_fails("closes", "not over within 10 s");
    int status;
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "bench-link") == 0)
        return play(argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_is_read),
        cmocka_unit_test(test_failures_have_their_reasons),
        cmocka_unit_test(test_none_is_waited_for_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
