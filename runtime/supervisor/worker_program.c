#include "runtime/supervisor/worker_program.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "runtime/base/status.h"
#include "runtime/base/thread_cores.h"

#define WORKER_FD 3

extern char **environ;

char **sy_worker_program_environment(void)
{
    size_t n = 0;
    while (environ[n])
        n++;
    char **list = calloc(n + 2, sizeof *list);
    if (!list)
        return NULL;
    memcpy(list, environ, n * sizeof *list);
    if (!getenv("GOMP_SPINCOUNT"))
        list[n] = "GOMP_SPINCOUNT=20000";
    return list;
}

int sy_worker_program_start(const char *program, char *const *environment, int index, int child_fd,
                            pid_t *pid)
{
    char fd_text[16], index_text[16];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    snprintf(fd_text, sizeof fd_text, "%d", WORKER_FD);
    snprintf(index_text, sizeof index_text, "%d", index);
    char *const argv[] = {
        (char *)(uintptr_t)program, "worker", "--fd", fd_text, "--index", index_text, NULL};
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, child_fd,
                                     WORKER_FD); /* clears CLOEXEC, also when they are equal */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    sy_thread_cores_widen();
    int error = posix_spawn(pid, program, &actions, &attributes, argv, environment);
    sy_thread_cores_narrow();
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error == 0)
        return SY_OK;
    *pid = 0;
    return sy_error_set(SY_EIO, "cannot start worker %d from %s: %s", index, program,
                        strerror(error));
}

static void *reap(void *pid)
{
    while (waitpid((pid_t)(intptr_t)pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return NULL;
}

void sy_worker_program_reap(pid_t pid)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the loop's */
    int error = pthread_create(&thread, &attributes, reap, (void *)(intptr_t)pid);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error != 0)
        (void)reap((void *)(intptr_t)pid);
}
