#include "runtime/cli/link_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

#define ANSWER_BYTES 4096
#define TIMEOUT_NS   (10 * SY_NS_PER_S)

extern char **environ;

static int start(const char *device_spec, int *out_fd, pid_t *out_pid)
{
    char *argv[] = {"switchyard", "bench-link", "--device", (char *)device_spec, "--json", NULL};
    posix_spawn_file_actions_t actions;
    int fds[2], failed;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return sy_error_set(SY_EIO, "no pipe to measure the link: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    failed = posix_spawn(out_pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    if (failed) {
        close(fds[0]);
        return sy_error_set(SY_EIO, "cannot start the link's measurement: %s", strerror(failed));
    }
    *out_fd = fds[0];
    return SY_OK;
}

/* False if it was not over in time; then it still runs. */
static bool read_answer(int fd, char *answer)
{
    sy_ns end = sy_clock_now() + TIMEOUT_NS;
    bool is_over = false;
    size_t n = 0;

    while (!is_over && n + 1 < ANSWER_BYTES) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        sy_ns now = sy_clock_now();
        ssize_t got;
        int ready;

        if (now >= end)
            break;
        ready = poll(&poller, 1, (int)((end - now) / SY_NS_PER_MS) + 1);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            break;
        got = read(fd, answer + n, ANSWER_BYTES - 1 - n);
        is_over = got <= 0;
        n += (size_t)SY_MAX(got, 0);
    }
    answer[n] = 0;
    return is_over;
}

static int parse(const char *answer, struct sy_link_cost *out)
{
    json_t *root = json_loads(answer, 0, NULL);
    double gbps = json_number_value(json_object_get(root, "h2d_gbps"));
    int status = SY_OK;

    if (!(gbps > 0))
        status = sy_error_set(SY_EIO, "the link's measurement gave no rate");
    else
        *out = (struct sy_link_cost){
            .alpha_ns = json_number_value(json_object_get(root, "alpha_us")) * 1e3,
            .bytes_per_ns = gbps,
            .sigma_ns = json_number_value(json_object_get(root, "sigma_us")) * 1e3,
            .lost_ns_per_byte = json_number_value(json_object_get(root, "lost_ns_per_byte"))};
    json_decref(root);
    return status;
}

int sy_link_probe(const char *device_spec, struct sy_link_cost *out)
{
    char answer[ANSWER_BYTES];
    int fd, wait_status = 0;
    bool is_over;
    pid_t pid;

    SY_TRY(start(device_spec, &fd, &pid));
    is_over = read_answer(fd, answer);
    if (!is_over)
        kill(pid, SIGKILL);
    close(fd);
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
        ;
    if (!is_over)
        return sy_error_set(SY_EIO, "the measurement of the link of %s was not over within %d s",
                            device_spec, (int)(TIMEOUT_NS / SY_NS_PER_S));
    if (WIFSIGNALED(wait_status))
        return sy_error_set(SY_EIO, "the measurement of the link of %s ended by signal %d",
                            device_spec, WTERMSIG(wait_status));
    if (WEXITSTATUS(wait_status) != 0)
        return sy_error_set(SY_EIO,
                            "the measurement of the link of %s failed with exit status %d; "
                            "switchyard bench-link says why",
                            device_spec, WEXITSTATUS(wait_status));
    return parse(answer, out);
}
