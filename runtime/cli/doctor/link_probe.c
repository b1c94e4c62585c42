#include "runtime/cli/doctor/link_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/await_child.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

#define ANSWER_BYTES 4096
#define MOST_NS      (10 * SY_NS_PER_S)  /* limits of its CPU time, and of a pause in it */
#define STEP_NS      (50 * SY_NS_PER_MS) /* of CPU time: so much is progress */
#define WALL_NS      (120 * SY_NS_PER_S)
#define LOOK_MS      100

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

/* CPU time of the measurement. Wall time says nothing: on a loaded machine it may get a tenth of a core. */
struct progress {
    clockid_t cpu;
    sy_ns begun_ns, at_ns, cpu_ns; /* at, cpu: when it had moved on last */
};

static sy_ns cpu_now(const struct progress *progress)
{
    struct timespec t = {0};
    clock_gettime(progress->cpu, &t);
    return (sy_ns)t.tv_sec * SY_NS_PER_S + (sy_ns)t.tv_nsec;
}

static struct progress begin(pid_t pid)
{
    sy_ns now = sy_clock_now();
    struct progress progress = {.begun_ns = now, .at_ns = now};
    if (clock_getcpuclockid(pid, &progress.cpu))
        progress.cpu = CLOCK_MONOTONIC; /* unknown: it has MOST_NS in all */
    progress.cpu_ns = cpu_now(&progress);
    return progress;
}

/* How reading an answer ended. */
enum reading { GOES_ON, COMPLETE, STANDS_STILL, TOO_LATE, TOO_LONG };

static enum reading read_progress(struct progress *progress, sy_ns begun_cpu_ns)
{
    sy_ns now = sy_clock_now(), cpu = cpu_now(progress);
    if (cpu > begun_cpu_ns + MOST_NS || now > progress->begun_ns + WALL_NS)
        return TOO_LATE;
    if (cpu > progress->cpu_ns + STEP_NS) {
        progress->at_ns = now;
        progress->cpu_ns = cpu;
    }
    return now > progress->at_ns + MOST_NS ? STANDS_STILL : GOES_ON;
}

static enum reading read_answer(int fd, pid_t pid, char *answer)
{
    struct progress progress = begin(pid);
    const sy_ns begun_cpu_ns = progress.cpu_ns;
    size_t n = 0;
    ssize_t got = 1;
    answer[0] = 0;
    while (got > 0) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        enum reading reading = read_progress(&progress, begun_cpu_ns);
        if (reading != GOES_ON)
            return reading;
        if (n + 1 == ANSWER_BYTES)
            return TOO_LONG;
        if (poll(&poller, 1, LOOK_MS) <= 0)
            continue; /* a signal, or it is late */
        got = read(fd, answer + n, ANSWER_BYTES - 1 - n);
        if (got < 0 && errno == EINTR)
            got = 1;
        else
            n += (size_t)SY_MAX(got, 0);
        answer[n] = 0;
    }
    return COMPLETE;
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

static int failed(const char *device_spec, int wait_status)
{
    if (WIFSIGNALED(wait_status))
        return sy_error_set(SY_EIO, "the measurement of the link of %s ended by signal %d",
                            device_spec, WTERMSIG(wait_status));
    return sy_error_set(SY_EIO,
                        "the measurement of the link of %s failed with exit status %d; "
                        "switchyard bench-link says why",
                        device_spec, WEXITSTATUS(wait_status));
}

int sy_link_probe(const char *device_spec, struct sy_link_cost *out)
{
    char answer[ANSWER_BYTES];
    int fd, wait_status = 0;
    pid_t pid;

    SY_TRY(start(device_spec, &fd, &pid));
    enum reading reading = read_answer(fd, pid, answer);
    close(fd);
    sy_ns end = reading == COMPLETE ? sy_clock_now() + MOST_NS : 0;
    bool ended = sy_await_child(pid, end, &wait_status);
    if (reading == TOO_LONG)
        return sy_error_set(SY_EIO, "the measurement of the link of %s says more than %d bytes",
                            device_spec, ANSWER_BYTES - 1);
    if (reading == TOO_LATE)
        return sy_error_set(
            SY_EIO,
            "the measurement of the link of %s was not over after %d s of CPU time, or %d s",
            device_spec, (int)(MOST_NS / SY_NS_PER_S), (int)(WALL_NS / SY_NS_PER_S));
    if (!ended)
        return sy_error_set(SY_EIO, "the measurement of the link of %s stood still for %d s",
                            device_spec, (int)(MOST_NS / SY_NS_PER_S));
    return wait_status == 0 ? parse(answer, out) : failed(device_spec, wait_status);
}
