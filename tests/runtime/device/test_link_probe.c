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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/cli/doctor/link_probe.h"

#define ANSWER \
    "{\"h2d_gbps\": 12.5, \"alpha_us\": 7, \"sigma_us\": 3, \"lost_ns_per_byte\": 0.02}\n"

/* As on a loaded machine: a tenth of a core, for longer than a measurement may stand still. */
static void starve(void)
{
    const struct timespec nap = {.tv_nsec = 45 * 1000 * 1000};
    for (sy_ns end = sy_clock_now() + 12 * SY_NS_PER_S, now; (now = sy_clock_now()) < end;) {
        while (sy_clock_now() < now + 5 * SY_NS_PER_MS)
            ;
        nanosleep(&nap, NULL);
    }
}

static int play(const char *what)
{
    alarm(600); /* at the latest */
    if (strcmp(what, "spins") == 0)
        for (;;)
            (void)sy_clock_now();
    if (strcmp(what, "starves") == 0)
        starve();
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

static pid_t in_a_child(int (*probe)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(probe());
    return pid;
}

static int fails(const char *what, const char *says)
{
    struct sy_link_cost cost;
    return sy_link_probe(what, &cost) == SY_EIO && strstr(sy_error_text(), says) ? 0 : 1;
}

static int probe_silent(void)
{
    return fails("silent", "stood still for 10 s");
}

static int probe_spinning(void)
{
    return fails("spins", "not over after 10 s of CPU time");
}

static int probe_starving(void)
{
    struct sy_link_cost cost;
    return sy_link_probe("starves", &cost) == SY_OK ? 0 : 1;
}

/* Neither one that says nothing, nor one that says all and then hangs, nor one that computes for ever is waited for without end; one that is
 * slow is. All at once, for the test's sake. */
static void test_patience(void **state)
{
    static int (*const probes[])(void) = {probe_silent, probe_spinning, probe_starving};
    pid_t pids[3];
    int wait_status;
    (void)state;
    for (int i = 0; i < 3; i++)
        pids[i] = in_a_child(probes[i]);
    assert_fails("closes", "stood still for 10 s");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(waitpid(pids[i], &wait_status, 0), pids[i]);
        assert_int_equal(wait_status, 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "bench-link") == 0)
        return play(argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_is_read),
        cmocka_unit_test(test_failures_have_their_reasons),
        cmocka_unit_test(test_patience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
