#include "tests/simulation/sim_os.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FIRST_PID  5000000 /* the kernel gives out none so high */
#define BEGINNING  (1000 * SY_NS_PER_S)
#define MOST_TURNS 100000 /* of the loop without a wait */
#define TURN_NS    700    /* of the loop: no two things happen at the same time */

struct process {
    int pid, exit_fd, wait_status;
    bool gone;
};

static struct {
    bool open;
    struct sim_os_ops ops;
    sy_ns now;
    int next_pid, child_fd;
    uint64_t n_turns, n_busy; /* busy: since it waited last */
    bool sent;
    struct process processes[SIM_OS_PROCESSES];
} os;

/* The C library's own. */
static long real_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    static long (*real)(long, ...);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, a, b, c, d, e, f);
}

void sim_os_open(const struct sim_os_ops *ops)
{
    memset(&os, 0, sizeof os);
    os.ops = *ops;
    os.now = BEGINNING;
    os.next_pid = FIRST_PID;
    os.child_fd = -1;
    os.open = true;
}

void sim_os_close(void)
{
    os.open = false;
}

sy_ns sim_os_now(void)
{
    return os.now;
}

void sim_os_pass(sy_ns ns)
{
    os.now += ns;
}

uint64_t sim_os_n_turns(void)
{
    return os.n_turns;
}

/* ---- processes ---------------------------------------------------------------------------------- */

static struct process *find(int pid)
{
    for (int i = 0; i < SIM_OS_PROCESSES; i++)
        if (os.processes[i].pid == pid)
            return &os.processes[i];
    return NULL;
}

int sim_os_n_processes(void)
{
    int n = 0;
    for (int i = 0; i < SIM_OS_PROCESSES; i++)
        n += os.processes[i].pid != 0;
    return n;
}

void sim_os_exit(int pid, int wait_status)
{
    struct process *p = find(pid);
    uint64_t one = 1;
    if (!p || p->gone)
        return;
    p->gone = true;
    p->wait_status = wait_status;
    if (p->exit_fd >= 0 && write(p->exit_fd, &one, sizeof one) < 0)
        abort();
}

int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd, int to)
{
    (void)actions;
    (void)to;
    os.child_fd = fd;
    return os.open ? 0 : ENOSYS; /* the tests start no other process */
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const environment[])
{
    struct process *p = find(0);
    (void)path;
    (void)actions;
    (void)attributes;
    (void)environment;
    if (!os.open || !p)
        return EAGAIN;
    *p = (struct process){.pid = os.next_pid++, .exit_fd = -1};
    *pid = p->pid;
    os.ops.spawned(os.ops.ctx, p->pid, atoi(argv[5]), fcntl(os.child_fd, F_DUPFD_CLOEXEC, 0));
    return 0;
}

static void reaped(struct process *p)
{
    close(p->exit_fd);
    *p = (struct process){0};
}

pid_t waitpid(pid_t pid, int *wait_status, int options)
{
    struct process *p = os.open ? find(pid) : NULL;
    if (!p)
        return (pid_t)real_syscall(SYS_wait4, pid, (long)wait_status, options, 0, 0, 0);
    if (!p->gone && options & WNOHANG)
        return 0;
    if (wait_status)
        *wait_status = p->wait_status;
    reaped(p);
    return pid;
}

int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    struct process *p = os.open && type == P_PID ? find((int)id) : NULL;
    if (!p)
        return (int)real_syscall(SYS_waitid, type, (long)id, (long)info, options, 0, 0);
    memset(info, 0, sizeof *info);
    if (!p->gone)
        return 0;
    bool exited = WIFEXITED(p->wait_status);
    info->si_signo = SIGCHLD;
    info->si_pid = p->pid;
    info->si_code = exited ? CLD_EXITED : CLD_KILLED;
    info->si_status = exited ? WEXITSTATUS(p->wait_status) : WTERMSIG(p->wait_status);
    if (!(options & WNOWAIT))
        reaped(p);
    return 0;
}

/* A thread that nobody joins, which reaps a process, has done its work at once. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *ctx),
                   void *ctx)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int state = PTHREAD_CREATE_JOINABLE;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (os.open && attributes)
        pthread_attr_getdetachstate(attributes, &state);
    if (state != PTHREAD_CREATE_DETACHED)
        return real(thread, attributes, run, ctx);
    run(ctx);
    return 0;
}

int kill(pid_t pid, int number)
{
    if (!os.open || pid < FIRST_PID)
        return (int)real_syscall(SYS_kill, pid, number, 0, 0, 0, 0);
    os.ops.killed(os.ops.ctx, pid);
    return 0;
}

/* pidfd_open alone is simulated: what it returns becomes readable when the process is gone. Its holder closes it. */
long syscall(long number, ...)
{
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    struct process *p = os.open && number == SYS_pidfd_open ? find((int)a[0]) : NULL;
    if (p) {
        p->exit_fd = eventfd(p->gone, EFD_CLOEXEC | EFD_NONBLOCK);
        return fcntl(p->exit_fd, F_DUPFD_CLOEXEC, 0);
    }
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    if (!os.open)
        return real_syscall(SYS_sched_getaffinity, pid, (long)bytes, (long)set, 0, 0, 0) < 0 ? -1
                                                                                             : 0;
    memset(set, 0, bytes);
    for (size_t c = 0; c < SIM_OS_CORES; c++)
        CPU_SET(c, set);
    return 0;
}

/* Messages to workers go this way, and nothing else does. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    os.sent = true;
    return real_syscall(SYS_sendmsg, fd, (long)message, flags, 0, 0, 0);
}

bool sim_os_was_sent(void)
{
    bool sent = os.sent;
    os.sent = false;
    return sent;
}

/* ---- time --------------------------------------------------------------------------------------- */

int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!os.open)
        return (int)real_syscall(SYS_clock_gettime, clock, (long)t, 0, 0, 0, 0);
    t->tv_sec = (time_t)(os.now / SY_NS_PER_S);
    t->tv_nsec = (long)(os.now % SY_NS_PER_S);
    return 0;
}

/* Nothing else happens while the runtime waits for one descriptor: what is not there now comes too late. */
int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    if (!os.open)
        return (int)real_syscall(SYS_poll, (long)fds, (long)n, timeout_ms, 0, 0, 0);
    int ready = (int)real_syscall(SYS_poll, (long)fds, (long)n, 0, 0, 0, 0);
    if (ready == 0 && timeout_ms > 0)
        os.now += (sy_ns)timeout_ms * SY_NS_PER_MS;
    return ready;
}

static int wait_real(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    return (int)real_syscall(SYS_epoll_wait, fd, (long)events, most, timeout_ms, 0, 0);
}

static void shuffle(struct epoll_event *events, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = (int)os.ops.draw(os.ops.ctx, (uint64_t)i + 1);
        struct epoll_event moved = events[i];
        events[i] = events[k];
        events[k] = moved;
    }
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    if (!os.open)
        return wait_real(fd, events, most, timeout_ms);
    os.n_turns++;
    os.now += TURN_NS;
    int n = wait_real(fd, events, most, 0);
    if (++os.n_busy > MOST_TURNS)
        os.ops.spins(os.ops.ctx);
    if (n != 0 || timeout_ms == 0) {
        shuffle(events, n);
        return n;
    }
    os.n_busy = 0;
    os.ops.look(os.ops.ctx);
    sy_ns timer = timeout_ms < 0 ? UINT64_MAX : os.now + (sy_ns)timeout_ms * SY_NS_PER_MS;
    sy_ns next = os.ops.next(os.ops.ctx);
    if (next > timer) {
        os.now = timer;
        return 0;
    }
    if (next != UINT64_MAX && next > os.now)
        os.now = next;
    os.ops.happen(os.ops.ctx);
    n = wait_real(fd, events, most, 0);
    shuffle(events, n);
    return n;
}
