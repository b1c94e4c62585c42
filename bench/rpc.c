/* rpc/identity: round trip of a request to an empty model over a Unix socket, through the runtime and a worker. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/gbench.h"
#include "runtime/base/clock.h"
#include "runtime/client/switchyard.h"

#define MAX_SAMPLES      100000
#define READY_TIMEOUT_MS 30000

static sy_client *client;
static const char *poll_us = "50"; /* third argument */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_rpc(struct gb_state *state, void *arg)
{
    static double us[MAX_SAMPLES];
    float data[4] = {1, 2, 3, 4};
    int n = 0;
    sy_client_tensor input = {"input", "FP32", 2, {1, 4}, data, sizeof data};
    (void)arg;
    while (gb_keep_running(state)) {
        sy_client_result *result = NULL;
        sy_ns start = sy_clock_now();
        if (sy_client_infer(client, "identity", &input, 1, &result) < 0)
            gb_fail(state, sy_client_error(client));
        else if (n < MAX_SAMPLES)
            us[n++] = (double)(sy_clock_now() - start) / 1e3;
        sy_client_result_free(result);
    }
    qsort(us, (size_t)n, sizeof *us, compare_doubles);
    gb_set_counter(state, "p50_us", n ? us[n / 2] : 0);
    gb_set_counter(state, "p99_us", n ? us[(long)n * 99 / 100] : 0);
    gb_set_counter(state, "min_us", n ? us[0] : 0);
}

/* A server of the identity model; its pid, or -1. */
static pid_t start_server(const char *program, const char *package, const char *socket)
{
    int fds[2];
    char ready[16], byte;
    if (pipe(fds) != 0)
        return -1;
    fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    snprintf(ready, sizeof ready, "%d", fds[1]);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(program, program, "serve", "--package", package, "--pool-bytes", "16M", "--http",
              "off", "--grpc", "off", "--metrics", "off", "--socket", socket, "--ready-fd", ready,
              "--poll-us", poll_us, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    struct pollfd p = {.fd = fds[0], .events = POLLIN};
    int up = pid > 0 && poll(&p, 1, READY_TIMEOUT_MS) == 1 && read(fds[0], &byte, 1) == 1;
    close(fds[0]);
    return up ? pid : -1;
}

int main(int argc, char **argv)
{
    char socket[64], address[80];
    struct gb_options options = {.iterations = 5000};
    gb_initialize(&argc, argv);
    const char *program = argc > 1 ? argv[1] : "build/switchyard";
    const char *package = argc > 2 ? argv[2] : "build/models/identity/1/model.sypkg";
    poll_us = argc > 3 ? argv[3] : poll_us;
    snprintf(socket, sizeof socket, "/tmp/switchyard-rpc-%d.sock", (int)getpid());
    snprintf(address, sizeof address, "unix:%s", socket);
    pid_t pid = start_server(program, package, socket);
    if (pid < 0 || sy_client_connect(address, 5000, &client) < 0) {
        fprintf(stderr,
                "rpc: no server; build it and run: %s import build/models/identity/1/model.onnx\n",
                program);
        return 1;
    }
    gb_register("rpc/identity", run_rpc, NULL, &options);
    int ran = gb_run();
    sy_client_close(client);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    return ran > 0 ? 0 : 1;
}
