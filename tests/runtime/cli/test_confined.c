/* Confined work that goes wrong in each way: the caller lives, and has a status and words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/cli/confined.h"

static int answers(void *ctx)
{
    return *(int *)ctx;
}

#ifdef SY_SANITIZED
static const bool is_sanitized = true;
#else
static const bool is_sanitized = false;
#endif

static int refuses(void *ctx)
{
    (void)ctx;
    return sy_error_set(SY_EUNSUPPORTED, "operator '%s'\n is unknown", "Frob\033[2J");
}

static int crashes(void *ctx)
{
    (void)ctx;
    signal(SIGSEGV, SIG_DFL); /* cmocka has a handler */
    raise(SIGSEGV);
    return SY_OK;
}

static int aborts(void *ctx)
{
    (void)ctx;
    abort();
}

static int leaves(void *ctx)
{
    (void)ctx;
    _exit(3);
}

static int hangs(void *ctx)
{
    (void)ctx;
    while (pause() == -1)
        ;
    return SY_OK;
}

struct made_up_answer {
    int32_t status;
    char text[1020];
};

/* As a hostile model's code could: it answers over the pipe by itself, or only closes it, and stays. */
static int stays(void *ctx)
{
    static const struct made_up_answer ok;
    struct stat info;

    for (int fd = 3; fd < 64; fd++)
        if (fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode)) {
            if (*(bool *)ctx)
                (void)!write(fd, &ok, sizeof ok);
            close(fd);
        }
    return hangs(NULL);
}

static int takes_memory(void *ctx)
{
    (void)ctx;
    for (uint64_t n = 0; n < 1ull << 40; n += 64 << 20)
        if (mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
            MAP_FAILED)
            return sy_error_set(SY_ENOMEM_HOST, "no memory after %llu MB",
                                (unsigned long long)n / 1000000);
    return SY_OK;
}

static int reads_a_file(void *ctx)
{
    int fd = open(ctx, O_RDONLY);
    return fd < 0 ? sy_error_set(SY_EIO, "cannot open it") : SY_OK;
}

static int confined(int (*work)(void *), void *ctx, struct sy_confined how)
{
    how.what = "the test";
    return sy_cli_confined(&how, NULL, work, NULL, ctx);
}

static void its_answer_is_the_callers(void **state)
{
    int ok = SY_OK;
    (void)state;
    assert_int_equal(confined(answers, &ok, (struct sy_confined){0}), SY_OK);
    assert_int_equal(confined(refuses, NULL, (struct sy_confined){0}), SY_EUNSUPPORTED);
    assert_string_equal(sy_error_text(), "operator 'Frob?[2J'? is unknown");
}

static void a_status_that_is_none_is_a_failure(void **state)
{
    int made_up = 77;
    (void)state;
    assert_int_equal(confined(answers, &made_up, (struct sy_confined){0}), SY_EIO);
    made_up = -500;
    assert_int_equal(confined(answers, &made_up, (struct sy_confined){0}), SY_EIO);
}

static void its_death_is_a_refusal_in_words(void **state)
{
    (void)state;
    if (!is_sanitized) { /* whose handler makes an exit of it */
        assert_int_equal(confined(crashes, NULL, (struct sy_confined){0}), SY_EIO);
        assert_non_null(strstr(sy_error_text(), "the test crashed (Segmentation fault)"));
    }
    assert_int_equal(confined(aborts, NULL, (struct sy_confined){0}), SY_EIO);
    assert_non_null(strstr(sy_error_text(), "crashed (Aborted)"));
    assert_int_equal(confined(leaves, NULL, (struct sy_confined){0}), SY_EIO);
    assert_non_null(strstr(sy_error_text(), "exit status 3"));
}

static void a_hang_ends_at_the_limit(void **state)
{
    (void)state;
    struct sy_confined how = {.limit_ns = SY_NS_PER_S};
    assert_int_equal(confined(hangs, NULL, how), SY_EDEADLINE);
    assert_string_equal(sy_error_text(), "the test took longer than 1 s, and was ended");
}

static void one_that_stays_is_not_waited_for(void **state)
{
    bool answers_first = true;
    (void)state;
    alarm(60);
    assert_int_equal(confined(stays, &answers_first, (struct sy_confined){0}), SY_OK);
    answers_first = false;
    assert_int_equal(confined(stays, &answers_first, (struct sy_confined){0}), SY_EIO);
    alarm(0);
}

static void memory_ends_at_the_limit(void **state)
{
    (void)state;
    struct sy_confined how = {.memory_bytes = 512 << 20};
    if (!is_sanitized)
        assert_int_equal(confined(takes_memory, NULL, how), SY_ENOMEM_HOST);
}

static void only_files_that_are_named_are_read(void **state)
{
    (void)state;
    struct sy_sandbox_state kernel;
    if (fork() == 0) { /* whether this kernel has Landlock */
        struct sy_sandbox_paths none = {0};
        struct sy_sandbox_limits no_limits = {0};
        _exit(sy_sandbox_enter_import(&none, &no_limits, &kernel) < 0 || kernel.landlock_abi == 0);
    }
    int has_none;
    wait(&has_none);
    struct sy_confined how = {.paths = {.read = {"/etc/hostname"}, .n_read = 1}};
    assert_int_equal(confined(reads_a_file, (void *)(uintptr_t) "/etc/hostname", how), SY_OK);
    if (!has_none)
        assert_int_equal(confined(reads_a_file, (void *)(uintptr_t) "/etc/passwd", how), SY_EIO);
}

static int cleaned_fd;

static void cleanup(void *ctx)
{
    (void)ctx;
    (void)!write(cleaned_fd, "c", 1);
}

/* The caller is told to stop: the child is gone, the cleanup is done, and the caller dies of the signal as it would have. */
static void an_interrupt_ends_both(void **state)
{
    int ends[2], wait_status;
    char byte;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    cleaned_fd = ends[1];
    pid_t pid = fork();
    if (pid == 0) {
        struct sy_confined how = {.what = "the test"};
        alarm(0);
        pid_t told = getpid();
        if (fork() == 0) {
            usleep(200000);
            kill(told, SIGTERM);
            _exit(0);
        }
        sy_cli_confined(&how, NULL, hangs, cleanup, NULL);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGTERM);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(read(ends[0], &byte, 1),
                     0); /* nobody holds the other end: the child is gone */
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_answer_is_the_callers),
        cmocka_unit_test(a_status_that_is_none_is_a_failure),
        cmocka_unit_test(its_death_is_a_refusal_in_words),
        cmocka_unit_test(a_hang_ends_at_the_limit),
        cmocka_unit_test(one_that_stays_is_not_waited_for),
        cmocka_unit_test(memory_ends_at_the_limit),
        cmocka_unit_test(only_files_that_are_named_are_read),
        cmocka_unit_test(an_interrupt_ends_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
