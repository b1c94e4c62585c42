#include "runtime/device/cuda/pool_keeper.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_error.h"

#define KEEPER_FD    3
#define REPLY_MS     60000 /* a context takes a second, on machines with many GPUs several */
#define STOP_NS      (5 * SY_NS_PER_S)
#define PATH_BYTES   4096
#define MAX_ARGUMENT 24

extern char **environ;

struct keeper_reply {
    int32_t status;
    char why[300];
    unsigned char ipc[SY_CUDA_IPC_BYTES];
};

/* ---- the process that starts it------------------------------------------------------------------------ */

/* Beside the file that this function is in: the plugin. */
static void program_path(char *out)
{
    Dl_info info;
    const char *named = getenv("SY_CUDA_KEEPER");
    if (named && *named) {
        snprintf(out, PATH_BYTES, "%s", named);
        return;
    }
    const char *file = dladdr((void *)(uintptr_t)sy_pool_keeper_start, &info) ? info.dli_fname : "";
    const char *slash = strrchr(file, '/');
    snprintf(out, PATH_BYTES, "%.*s/" SY_CUDA_KEEPER_FILE, slash ? (int)(slash - file) : 1,
             slash ? file : ".");
}

static int spawn(const char *path, int socket, int ordinal, uint64_t bytes, pid_t *out)
{
    posix_spawn_file_actions_t actions;
    char program[PATH_BYTES], fd[MAX_ARGUMENT], device[MAX_ARGUMENT], size[MAX_ARGUMENT];
    snprintf(program, sizeof program, "%s", path);
    snprintf(fd, sizeof fd, "%d", KEEPER_FD);
    snprintf(device, sizeof device, "%d", ordinal);
    snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
    char *const argv[] = {program, fd, device, size, NULL};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, socket, KEEPER_FD);
    int why = posix_spawn(out, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return why == 0 ? SY_OK
                    : sy_error_set(SY_ENODEVICE,
                                   "cannot start the pool's keeper %s: %s; SY_CUDA_KEEPER names it",
                                   path, strerror(why));
}

static int await_reply(int socket, unsigned char *out_ipc)
{
    struct keeper_reply reply;
    struct pollfd wait = {.fd = socket, .events = POLLIN};
    sy_ns deadline = sy_clock_now() + (sy_ns)REPLY_MS * SY_NS_PER_MS;
    int ready;
    do {
        sy_ns now = sy_clock_now();
        ready = poll(&wait, 1, now < deadline ? (int)((deadline - now) / SY_NS_PER_MS) : 0);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0)
        return sy_error_set(SY_EDEADLINE, "the pool's keeper did not answer within %d s",
                            REPLY_MS / 1000);
    ssize_t got = recv(socket, &reply, sizeof reply, 0);
    if (got != (ssize_t)sizeof reply)
        return sy_error_set(SY_EPEER, "the pool's keeper died before it had the memory");
    reply.why[sizeof reply.why - 1] = 0;
    if (reply.status < 0)
        return sy_error_set(reply.status, "the pool's keeper: %s", reply.why);
    memcpy(out_ipc, reply.ipc, sizeof reply.ipc);
    return SY_OK;
}

int sy_pool_keeper_start(int ordinal, uint64_t bytes, pid_t *out_pid, int *out_socket,
                         unsigned char *out_ipc)
{
    int ends[2];
    char path[PATH_BYTES];
    pid_t pid = 0;
    program_path(path);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return sy_error_set(SY_ENOMEM_HOST, "cannot start the pool's keeper: socketpair: %s",
                            strerror(errno));
    int status = spawn(path, ends[1], ordinal, bytes, &pid);
    close(ends[1]);
    if (status < 0) {
        close(ends[0]);
        return status;
    }
    status = await_reply(ends[0], out_ipc);
    if (status < 0) {
        sy_pool_keeper_stop(pid, ends[0]);
        return status;
    }
    *out_pid = pid;
    *out_socket = ends[0];
    return SY_OK;
}

void sy_pool_keeper_stop(pid_t pid, int socket)
{
    sy_ns deadline = sy_clock_now() + STOP_NS;
    close(socket);
    for (;;) {
        pid_t done = waitpid(pid, NULL, WNOHANG);
        if (done == pid || (done < 0 && errno != EINTR)) /* ECHILD: somebody else waited for it */
            return;
        if (sy_clock_now() > deadline)
            break;
        sy_clock_sleep_until(sy_clock_now() + 2 * SY_NS_PER_MS);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- the keeper -------------------------------------------------------------------------------------- */

static int failure(const struct sy_cuda_api *api, int error, const char *what)
{
    if (error == SY_CUDA_Success)
        return SY_OK;
    return sy_error_set(sy_cuda_error_status(error), "%s: %s (%s)%s", what, api->error_text(error),
                        api->error_name(error), sy_cuda_error_hint(error));
}

static int take_memory(const struct sy_cuda_api *api, int ordinal, uint64_t bytes,
                       uint64_t *out_address, unsigned char *out_ipc)
{
    char what[80];
    snprintf(what, sizeof what, "cannot take %llu bytes of cuda:%d", (unsigned long long)bytes,
             ordinal);
    SY_TRY(failure(api, api->init(), "the NVIDIA driver does not start"));
    SY_TRY(failure(api, api->context_open(ordinal), "cannot make a context"));
    SY_TRY(failure(api, api->context_enter(ordinal), "cannot enter its context"));
    SY_TRY(failure(api, api->ipc_alloc(bytes, out_address), what));
    return failure(api, api->ipc_handle(*out_address, out_ipc), "cannot share the memory");
}

/* Until the other end is closed. Nothing is ever sent to it. */
static void await_end(int socket)
{
    char byte;
    ssize_t got;
    do
        got = recv(socket, &byte, sizeof byte, 0);
    while (got > 0 || (got < 0 && errno == EINTR));
}

int sy_pool_keeper_run(int socket, int ordinal, uint64_t bytes)
{
    static struct sy_cuda_api api;
    struct keeper_reply reply = {0};
    uint64_t address = 0;
    signal(SIGINT, SIG_IGN); /* Ctrl-C goes to the whole group; the runtime says when */
    reply.status = sy_cuda_api_load(&api);
    if (reply.status == SY_OK)
        reply.status = take_memory(&api, ordinal, bytes, &address, reply.ipc);
    if (reply.status < 0)
        snprintf(reply.why, sizeof reply.why, "%s", sy_error_text());
    bool told = send(socket, &reply, sizeof reply, MSG_NOSIGNAL) == (ssize_t)sizeof reply;
    if (reply.status == SY_OK && told)
        await_end(socket);
    if (address)
        api.ipc_free(address);
    return reply.status == SY_OK && told ? 0 : 1;
}
