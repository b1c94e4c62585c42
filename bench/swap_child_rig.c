/* Starts and stops the child processes of the swap bench; swap_child.c is what they run. */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/swap_child.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#define START_TIMEOUT_NS (20 * SY_NS_PER_S)

extern char **environ;

int swap_make_input(const struct sy_tensor *tensor, int64_t batch, void **out)
{
    int64_t n = sy_shape_elements(&tensor->shape, batch);
    size_t bytes = (size_t)n * sy_dtype_bytes(tensor->dtype);
    unsigned seed = 7;
    *out = calloc(1, bytes ? bytes : 1);
    if (n < 0 || !*out)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for input %s", tensor->name);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        if (tensor->dtype == SY_DTYPE_F32)
            ((float *)*out)[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
        else if (tensor->dtype == SY_DTYPE_I64)
            ((int64_t *)*out)[i] = seed >> 31;
        else if (tensor->dtype == SY_DTYPE_I32)
            ((int32_t *)*out)[i] = (int32_t)(seed >> 31);
    }
    return SY_OK;
}

int swap_victim_create(struct swap_victim *v, const char *program, const char *model,
                       const char *device, const int *cores, int n_cores)
{
    v->program = program;
    v->model = model;
    v->device = device;
    v->n_cores = n_cores;
    memcpy(v->cores, cores, (size_t)n_cores * sizeof *cores);
    SY_TRY(sy_shared_memory_create(&v->memory, "victim", SY_CONTROL_PAGE_BYTES));
    v->page = v->memory.base;
    return swap_victim_spawn(v);
}

int swap_victim_spawn(struct swap_victim *v)
{
    char fd[16], cores[256] = "";
    if (!v->model)
        return SY_OK;
    for (int i = 0; i < v->n_cores; i++)
        snprintf(cores + strlen(cores), sizeof cores - strlen(cores), "%s%d", i ? "," : "",
                 v->cores[i]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    int page_fd = dup(v->memory.fd); /* dup clears CLOEXEC */
    snprintf(fd, sizeof fd, "%d", page_fd);
    char *argv[] = {(char *)v->program,
                    "--child-victim",
                    fd,
                    (char *)v->model,
                    cores,
                    (char *)(v->device ? v->device : "host"),
                    NULL};
    atomic_store(&v->page->train_step, 0);
    int failed = posix_spawn(&v->pid, v->program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(page_fd);
    if (failed)
        return sy_error_set(SY_EIO, "cannot start the training process: %s", strerror(failed));
    atomic_store(&v->page->preempt_epoch, atomic_load(&v->page->preempt_epoch) & ~1u);
    for (sy_ns deadline = sy_clock_now() + START_TIMEOUT_NS;
         atomic_load(&v->page->train_step) < 3;) {
        if (sy_clock_now() > deadline || waitpid(v->pid, NULL, WNOHANG) == v->pid)
            return sy_error_set(SY_EPEER, "the training process did not start");
        sy_clock_sleep_until(sy_clock_now() + 10 * SY_NS_PER_MS);
    }
    return SY_OK;
}

void swap_victim_kill(struct swap_victim *v)
{
    if (v->pid <= 0)
        return;
    kill(v->pid, SIGKILL);
    waitpid(v->pid, NULL, 0);
    v->pid = 0;
}

void swap_victim_destroy(struct swap_victim *v)
{
    swap_victim_kill(v);
    sy_shared_memory_finish(&v->memory);
}

void swap_victim_preempt(struct swap_victim *v)
{
    v->asked_ns = sy_clock_now();
    if (v->pid > 0 && !(atomic_load(&v->page->preempt_epoch) & 1)) {
        atomic_store(&v->page->preempt_ns, v->asked_ns);
        atomic_fetch_add(&v->page->preempt_epoch, 1);
    }
}

static int check_alive(struct swap_victim *v)
{
    int how = 0;
    if (waitpid(v->pid, &how, WNOHANG) != v->pid)
        return SY_OK;
    v->pid = 0;
    return sy_error_set(SY_EIO, "the training process ended by itself (%s %d): see what it wrote",
                        WIFSIGNALED(how) ? "signal" : "exit status",
                        WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
}

int swap_victim_wait(struct swap_victim *v, sy_ns *preempt_wait_ns)
{
    *preempt_wait_ns = 0;
    if (v->pid <= 0)
        return SY_OK;
    uint32_t epoch = atomic_load(&v->page->preempt_epoch);
    for (uint32_t seen; (seen = atomic_load(&v->page->paused_epoch)) != epoch;) {
        SY_TRY(check_alive(v));
        sy_futex_wait(&v->page->paused_epoch, seen, 100 * SY_NS_PER_MS);
    }
    sy_ns paused = atomic_load(&v->page->paused_ns);
    *preempt_wait_ns = paused > v->asked_ns ? paused - v->asked_ns : 0;
    return SY_OK;
}

int swap_victim_hold(struct swap_victim *v)
{
    sy_ns ignored;
    swap_victim_preempt(v);
    return swap_victim_wait(v, &ignored);
}

void swap_victim_train(struct swap_victim *v, sy_ns for_ns)
{
    if (v->pid > 0 && (atomic_load(&v->page->preempt_epoch) & 1)) {
        atomic_fetch_add(&v->page->preempt_epoch, 1);
        sy_futex_wake(&v->page->preempt_epoch);
    }
    sy_clock_sleep_until(sy_clock_now() + for_ns);
}

/* A child inherits the cores of the thread that starts it. */
static int spawn_on(const cpu_set_t *cores, const char *program, char **argv, pid_t *pid)
{
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) < 0 ||
        sched_setaffinity(0, sizeof *cores, cores) < 0)
        return errno;
    int failed = posix_spawn(pid, program, NULL, NULL, argv, environ);
    if (sched_setaffinity(0, sizeof own, &own) < 0)
        sy_log_warn("bench", "event=affinity_failed what=%s", strerror(errno));
    return failed;
}

int swap_child_restart(const char *program, const char *package, const char *device, int64_t batch,
                       const cpu_set_t *allowed, struct swap_child_times *out)
{
    char batch_text[24], fd_text[16];
    int fds[2];
    pid_t pid;
    if (pipe(fds) != 0)
        return sy_error_set(SY_EIO, "no pipe");
    snprintf(batch_text, sizeof batch_text, "%lld", (long long)batch);
    snprintf(fd_text, sizeof fd_text, "%d", fds[1]);
    char *argv[] = {(char *)program, "--child-restart", fd_text, (char *)package,
                    (char *)device,  batch_text,        NULL};
    int failed = spawn_on(allowed, program, argv, &pid);
    close(fds[1]);
    ssize_t n = failed ? 0 : read(fds[0], out, sizeof *out);
    close(fds[0]);
    if (!failed)
        waitpid(pid, NULL, 0);
    return n == (ssize_t)sizeof *out ? SY_OK
                                     : sy_error_set(SY_EPEER, "the fresh process gave no answer");
}
