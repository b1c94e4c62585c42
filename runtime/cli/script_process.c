#include "runtime/cli/script_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/cli/script_keeper.h"
#include "runtime/cli/script_signals.h"
#include "runtime/cli/script_tree.h"
#include "runtime/wire/control_page.h"
#include "workers/torch/script_link.h"

#define CGROUP_PATIENCE (500 * SY_NS_PER_MS) /* the user waits */
#define FAREWELL_MS     2000
#define LOOK_NS         (5 * SY_NS_PER_MS)
/* Helpers end a moment after their script, as multiprocessing's resource tracker: so long while they could have computed. AFTER_MOST_NS: with all else. */
#define AFTER_NS      (200 * SY_NS_PER_MS)
#define AFTER_MOST_NS (10 * SY_NS_PER_S)
#define LEFT_MS       1000 /* between SIGTERM and SIGKILL of what a script left behind */
#define WEIGH_NS      (500 * SY_NS_PER_MS)
#define OOM_SCORE     "500" /* where the machine itself runs out: before servers, which have 0 */

/* ---- start ------------------------------------------------------------------------------------ */

int sy_script_process_prepare(struct sy_script_process *p, uint64_t limit_bytes,
                              uint64_t device_limit_bytes, uint64_t patience_ns)
{
    *p = (struct sy_script_process){
        .listener = -1, .link = -1, .pidfd = -1, .wait_status = -1, .patience_ns = patience_ns};
    SY_TRY(sy_shared_memory_create(&p->memory, "switchyard-script", SY_SCRIPT_PAGE_BYTES));
    p->page = p->memory.base;
    p->page->magic = SY_SCRIPT_MAGIC;
    p->page->limit_bytes = limit_bytes;
    p->page->device_limit_bytes = device_limit_bytes;
    atomic_store(&p->page->gate, 1);
    snprintf(p->folder, sizeof p->folder, "/tmp/switchyard-run-XXXXXX");
    if (!mkdtemp(p->folder)) {
        p->folder[0] = '\0';
        return sy_error_set(SY_EIO, "a folder for the socket in /tmp: %s", strerror(errno));
    }
    snprintf(p->socket, sizeof p->socket, "%s/socket", p->folder);
    return sy_script_listen(p->socket, &p->listener);
}

static void write_page_path(const struct sy_script_process *p, pid_t run, char *out, size_t size)
{
    snprintf(out, size, "/proc/%ld/fd/%d", (long)run, p->memory.fd);
}

int sy_script_process_allow_spill(struct sy_script_process *p, const char *folder)
{
    if (strlen(folder) >= sizeof p->page->spill_folder)
        return sy_error_set(SY_EARG, "%s: longer than %zu bytes", folder,
                            sizeof p->page->spill_folder - 1);
    if (access(folder, W_OK | X_OK) < 0)
        return sy_error_set(SY_EARG, "%s: %s", folder, strerror(errno));
    snprintf(p->page->spill_folder, sizeof p->page->spill_folder, "%s", folder);
    return SY_OK;
}

void sy_script_process_page_path(const struct sy_script_process *p, char *out, size_t size)
{
    write_page_path(p, getpid(), out, size);
}

/* OpenMP's threads sleep soon after their work, so that a paused script takes no core; values that the user set are kept. */
static void set_environment(const struct sy_script_process *p, pid_t run, const char *hooks)
{
    char path[64], *both = NULL;
    const char *python = getenv("PYTHONPATH");
    write_page_path(p, run, path, sizeof path);
    setenv("SWITCHYARD_SCRIPT_PAGE", path, 1);
    setenv(SY_SCRIPT_RUN_VARIABLE, p->folder, 1);
    setenv("KMP_BLOCKTIME", "1", 0);
    setenv("GOMP_SPINCOUNT", "100000", 0);
    if (!hooks)
        return;
    if (python && *python && asprintf(&both, "%s:%s", hooks, python) < 0)
        both = NULL;
    setenv("PYTHONPATH", both ? both : hooks, 1);
    free(both);
}

static void offer_to_oom_killer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, OOM_SCORE, strlen(OOM_SCORE)); /* refused where it is higher already */
    close(fd);
}

static _Noreturn void become(const struct sy_script_process *p, char **argv, const char *hooks,
                             pid_t parent, int report)
{
    sigset_t none;
    setpgid(0, 0);
    sy_script_cgroup_enter(p->cgroup);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGTTOU, SIG_DFL);
    set_environment(p, parent, hooks);
    offer_to_oom_killer();
    execvp(argv[0], argv);
    int error = errno;
    (void)!write(report, &error, sizeof error);
    _exit(127);
}

static void take_terminal(pid_t group)
{
    if (isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp()) {
        signal(SIGTTOU, SIG_IGN);
        (void)tcsetpgrp(STDIN_FILENO, group);
    }
}

int sy_script_process_adopt(struct sy_script_process *p, pid_t pid)
{
    p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (p->pidfd < 0)
        return sy_error_set(SY_ENOTFOUND, "process %ld: %s", (long)pid, strerror(errno));
    p->pid = pid;
    if (p->is_stopped)
        sy_script_signal_group(p, SIGSTOP);
    return sy_script_keeper_start(p);
}

int sy_script_process_spawn(struct sy_script_process *p, char **argv, const char *hooks)
{
    int report[2], error = 0;
    pid_t parent = getpid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pipe2(report, O_CLOEXEC) < 0)
        return sy_error_set(SY_EIO, "a pipe: %s", strerror(errno));
    sy_script_cgroup_make(strrchr(p->folder, '/') + 1, p->cgroup);
    pid_t pid = fork();
    if (pid == 0)
        become(p, argv, hooks, parent, report[1]);
    close(report[1]);
    if (pid > 0) {
        setpgid(pid, pid);
        take_terminal(pid);
    }
    ssize_t got = pid > 0 ? read(report[0], &error, sizeof error) : 0;
    close(report[0]);
    if (pid < 0)
        return sy_error_set(SY_EIO, "fork: %s", strerror(errno));
    if (got == (ssize_t)sizeof error) {
        (void)waitpid(pid, NULL, 0);
        return sy_error_set(error == ENOENT ? SY_ENOTFOUND : SY_EIO, "%s: %s", argv[0],
                            strerror(error));
    }
    p->is_child = true;
    return sy_script_process_adopt(p, pid);
}

/* ---- what happens ----------------------------------------------------------------------------- */

static void welcome(struct sy_script_process *p)
{
    int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (p->link >= 0)
        close(p->link); /* the new one stands for the job now */
    p->link = fd;
    p->lost_ns = 0;
    p->is_alone = false;
    if (sy_script_send(fd, SY_SCRIPT_HELLO, SY_SCRIPT_LINK_VERSION, p->memory.fd) == SY_OK)
        return;
    close(fd);
    p->link = -1;
}

static void lose_link(struct sy_script_process *p)
{
    close(p->link);
    p->link = -1;
    p->lost_ns = sy_clock_now();
    if (!p->is_alone && !p->kill_ns)
        sy_script_set_gate(p, 1);
}

void sy_script_process_signal(struct sy_script_process *p, int number)
{
    sy_script_signal_group(p, number);
    sy_script_restore_tensors(p); /* no thread of a script that is out hears anything */
    if (number != SIGSTOP && number != SIGCONT)
        sy_script_continue(p); /* else it hears nothing; a gate that is closed stays closed */
}

/* SIGTERM, and SIGKILL after the patience. */
static void terminate(struct sy_script_process *p)
{
    if (!p->kill_ns)
        p->kill_ns = sy_clock_now() + p->patience_ns;
    sy_script_restore_tensors(p);
    sy_script_set_gate(p, 0);
    sy_script_process_signal(p, SIGTERM);
}

static void handle_packet(struct sy_script_process *p, const struct sy_script_packet *packet)
{
    switch (packet->word) {
    case SY_SCRIPT_STOP:
        if (p->kill_ns)
            break;
        sy_script_stop(p);
        if (sy_script_send(p->link, SY_SCRIPT_STOPPED, 0, -1) < 0)
            lose_link(p);
        break;
    case SY_SCRIPT_CONTINUE:
        sy_script_continue(p);
        break;
    case SY_SCRIPT_TERMINATE:
        terminate(p);
        break;
    case SY_SCRIPT_DETACH:
        fprintf(stderr, "switchyard: the server stops; the script continues, and is the next "
                        "server's job\n");
        sy_script_let_go(p);
        break;
    default:
        break;
    }
}

static void read_packets(struct sy_script_process *p)
{
    struct sy_script_packet packet;
    int file, got;
    while (p->link >= 0 && (got = sy_script_receive(p->link, 0, &packet, &file)) != 0) {
        if (file >= 0)
            close(file);
        if (got < 0)
            lose_link(p);
        else
            handle_packet(p, &packet);
    }
}

/* Orphans that have ended since. */
static void reap_orphans(const struct sy_script_process *p)
{
    siginfo_t info = {0};
    while (p->is_child && waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid > 0 && (info.si_pid != p->pid || p->ended)) {
        (void)waitpid(info.si_pid, NULL, WNOHANG);
        info.si_pid = 0;
    }
}

static bool has_more(const struct sy_script_process *p)
{
    reap_orphans(p);
    return kill(-p->pid, 0) == 0 || sy_script_signal_strays(p, 0) > 0;
}

/* Whether no process of the script's is left, at the latest after that time. */
static bool wait_for_rest(const struct sy_script_process *p, uint64_t most_ms)
{
    sy_ns until = sy_clock_now() + most_ms * SY_NS_PER_MS;
    const struct timespec slice = {.tv_nsec = (long)LOOK_NS};
    while (has_more(p)) {
        if (sy_clock_now() >= until)
            return false;
        nanosleep(&slice, NULL);
    }
    return true;
}

/* Whether all that the script started ends within AFTER_NS. On a loaded machine neither the time counts in which what is ready to compute got no core, nor
 * that in which this process had none to look. */
static bool wait_for_helpers(const struct sy_script_process *p)
{
    pid_t pids[SY_SCRIPT_TREE_MOST];
    const struct timespec slice = {.tv_nsec = (long)LOOK_NS};
    sy_ns begun = sy_clock_now(), last = begun, had = 0;
    uint64_t ran, ran_before = 0;
    while (has_more(p)) {
        if (had >= AFTER_NS || last >= begun + AFTER_MOST_NS)
            return false;
        nanosleep(&slice, NULL);
        sy_ns now = sy_clock_now();
        bool wants = sy_script_tree_wants_core(pids, sy_script_list_processes(p, pids), &ran);
        if (!wants || ran != ran_before)
            had += SY_MIN(now - last, 2 * LOOK_NS);
        ran_before = ran;
        last = now;
    }
    return true;
}

static void see_end(struct sy_script_process *p)
{
    if (p->is_child && waitpid(p->pid, &p->wait_status, WNOHANG) != p->pid)
        return;
    sy_script_continue(p);
    p->ended = true;
    p->has_left = p->is_child && !wait_for_helpers(p);
    if (!p->has_left)
        return;
    (void)kill(-p->pid, SIGTERM);
    (void)sy_script_signal_strays(p, SIGTERM);
}

/* Processes that the script started and did not wait for would compute on without a job. */
static void end_left(const struct sy_script_process *p)
{
    if (!p->has_left)
        return;
    (void)wait_for_rest(p, LEFT_MS);
    (void)kill(-p->pid, SIGKILL);
    (void)sy_script_signal_strays(p, SIGKILL);
    reap_orphans(p);
}

/* Memory that the counted allocator does not see: other allocators, numpy, other processes. */
static void check_memory(struct sy_script_process *p)
{
    pid_t pids[SY_SCRIPT_TREE_MOST];
    sy_ns now = sy_clock_now();
    if (!p->process_limit_bytes || p->pid <= 0 || p->ended || now < p->weigh_ns)
        return;
    uint64_t bytes =
        sy_script_tree_memory(pids, sy_script_list_processes(p, pids), p->process_limit_bytes);
    p->weigh_ns = sy_clock_now() + SY_MAX(WEIGH_NS, 10 * (sy_clock_now() - now));
    if (bytes <= p->process_limit_bytes)
        return;
    p->over_bytes = bytes;
    atomic_store(&p->page->is_over_memory, 1);
    sy_script_signal_group(p, SIGKILL);
    (void)sy_script_signal_strays(p, SIGKILL);
}

void sy_script_process_look(struct sy_script_process *p, int timeout_ms, int extra)
{
    struct pollfd fds[] = {{.fd = p->listener, .events = POLLIN},
                           {.fd = p->link, .events = POLLIN},
                           {.fd = p->ended ? -1 : p->pidfd, .events = POLLIN},
                           {.fd = extra, .events = POLLIN}};
    (void)poll(fds, SY_ARRAY_LEN(fds), timeout_ms);
    if (fds[1].revents)
        read_packets(p);
    if (fds[0].revents)
        welcome(p);
    if (fds[2].revents)
        see_end(p);
    reap_orphans(p);
    check_memory(p);
    if (p->kill_ns && !p->ended && sy_clock_now() >= p->kill_ns)
        sy_script_signal_group(p, SIGKILL);
}

void sy_script_process_finish(struct sy_script_process *p)
{
    sy_ns until = sy_clock_now() + FAREWELL_MS * SY_NS_PER_MS;
    take_terminal(getpgrp());
    end_left(p);
    sy_script_keeper_end(p);
    if (p->link >= 0 && p->pid > 0)
        (void)sy_script_send(p->link, SY_SCRIPT_ENDED, p->wait_status, -1);
    if (p->listener >= 0)
        close(p->listener);
    p->listener = -1;
    while (p->link >= 0 && p->pid > 0 && sy_clock_now() < until)
        sy_script_process_look(p, 20, -1);
    if (p->pid > 0 && !p->is_child && !p->ended)
        sy_script_let_go(p); /* again: a worker that had it closes the gate when its turn ends */
    if (p->link >= 0)
        close(p->link);
    if (p->pidfd >= 0)
        close(p->pidfd);
    sy_script_cgroup_kill(p->cgroup);
    sy_script_cgroup_remove(p->cgroup, CGROUP_PATIENCE);
    if (p->socket[0])
        unlink(p->socket);
    if (p->folder[0])
        rmdir(p->folder);
    sy_shared_memory_finish(&p->memory);
}
