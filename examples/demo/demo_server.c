#include "examples/demo/demo.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_TIMEOUT_MS 120000
#define STOP_TIMEOUT_NS  (30 * SY_NS_PER_S)

static void exec_server(const struct demo *demo, const char *socket, const char *pool,
                        const char *log, int ready_fd, const char *const *extra)
{
    const char *argv[56];
    char ready[16];
    int n = 0;
    snprintf(ready, sizeof ready, "%d", ready_fd);
    const char *const fixed[] = {demo->binary, "serve",    "--device", demo->device, "--pool-bytes",
                                 pool,         "--socket", socket,     "--ready-fd", ready,
                                 "--http",     "off",      "--grpc",   "off",        "--metrics",
                                 "off",        NULL};
    for (int i = 0; fixed[i]; i++)
        argv[n++] = fixed[i];
    for (int i = 0; extra[i] && n < 54; i++)
        argv[n++] = extra[i];
    argv[n] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd >= 0) {
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
    }
    execv(demo->binary, (char *const *)argv);
    _exit(127);
}

static int wait_ready(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;
    if (poll(&p, 1, READY_TIMEOUT_MS) != 1 || read(fd, &byte, 1) != 1)
        return -1;
    return 0;
}

int demo_server_start(struct demo_server *s, const struct demo *demo, const char *name,
                      uint64_t pool_bytes, const char *const *extra)
{
    char socket[200], log[256], pool[32];
    int pipe_fds[2];
    snprintf(socket, sizeof socket, "%s/%s.sock", demo->folder, name);
    snprintf(log, sizeof log, "%s/%s.log", demo->folder, name);
    snprintf(pool, sizeof pool, "%llu", (unsigned long long)pool_bytes);
    snprintf(s->address, sizeof s->address, "unix:%s", socket);
    if (pipe(pipe_fds) != 0)
        return -1;
    fcntl(pipe_fds[0], F_SETFD, FD_CLOEXEC);
    s->pid = fork();
    if (s->pid == 0)
        exec_server(demo, socket, pool, log, pipe_fds[1], extra);
    close(pipe_fds[1]);
    int status = s->pid < 0 ? -1 : wait_ready(pipe_fds[0]);
    close(pipe_fds[0]);
    if (status < 0) {
        fprintf(stderr, "demo: the server %s did not get ready; its log is %s\n", name, log);
        if (s->pid > 0)
            demo_server_stop(s);
    }
    return status;
}

int demo_server_stop(struct demo_server *s)
{
    int status = 0;
    kill(s->pid, SIGTERM);
    sy_ns deadline = sy_clock_now() + STOP_TIMEOUT_NS;
    while (waitpid(s->pid, &status, WNOHANG) == 0) {
        if (sy_clock_now() > deadline) {
            fprintf(stderr, "demo: server %d did not stop within 30 s; killing it\n", (int)s->pid);
            kill(s->pid, SIGKILL);
            waitpid(s->pid, &status, 0);
            return -1;
        }
        sy_clock_sleep_until(sy_clock_now() + 10 * SY_NS_PER_MS);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

json_t *demo_call(sy_client *client, const char *method, json_t *params)
{
    char *text = json_dumps(params, JSON_COMPACT);
    char *answer = NULL;
    json_t *json = NULL;
    if (text && sy_client_call(client, method, text, &answer) == 0)
        json = json_loads(answer, JSON_DECODE_ANY, NULL);
    if (!json)
        fprintf(stderr, "demo: %s: %s\n", method, sy_client_error(client));
    free(text);
    free(answer);
    json_decref(params);
    return json;
}
