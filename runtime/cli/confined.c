/*   fork ──> prepare ──> sandbox ──> work ──> answer into the pipe ──> exit
 *    └── caller: reads the answer until the pipe's end, at most limit_ns, then ends the child */
#include "runtime/cli/confined.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/doctor/probe.h"

#define DEFAULT_LIMIT_S 3600

struct answer {
    int32_t status;
    char text[1020];
};

/* ---- what it may take -------------------------------------------------------------------------------------- */

static uint64_t default_memory_bytes(void)
{
    struct sy_doctor_facts facts;
    sy_doctor_facts_init(&facts);
    sy_probe_memory(&facts);
    sy_probe_cgroup(&facts);
    double bytes = facts.memory_bytes;
    if (!isnan(facts.memory_limit_bytes) && !(facts.memory_limit_bytes > bytes))
        bytes = facts.memory_limit_bytes;
    return isnan(bytes) || isinf(bytes) ? 0 : (uint64_t)(bytes * 3 / 4);
}

static void choose_limits(struct sy_confined *how, struct sy_sandbox_limits *out)
{
    if (!how->limit_ns)
        how->limit_ns = DEFAULT_LIMIT_S * SY_NS_PER_S;
    if (!how->memory_bytes)
        how->memory_bytes = default_memory_bytes();
    cpu_set_t set;
    CPU_ZERO(&set);
    uint64_t cores =
        sched_getaffinity(0, sizeof set, &set) == 0 ? (uint64_t)SY_MAX(CPU_COUNT(&set), 1) : 1;
    *out = (struct sy_sandbox_limits){
        .data_bytes = how->memory_bytes,
        .file_bytes = SY_MAX(how->memory_bytes, how->file_bytes),
        .cpu_seconds = (how->limit_ns / SY_NS_PER_S + 1) * cores,
    };
}

/* ---- the child ---------------------------------------------------------------------------------------------- */

/* If the machine runs out of memory, the kernel kills this process first. */
static void die_first(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, "1000", 4);
    close(fd);
}

static int confine(const struct sy_confined *how, const struct sy_sandbox_limits *limits)
{
    struct sy_sandbox_state state;
    if (how->is_open)
        return sy_sandbox_no_new_privs();
    SY_TRY(sy_sandbox_enter_import(&how->paths, limits, &state));
    if (state.landlock_abi == 0 || !state.filtered)
        fprintf(stderr, "switchyard: %s is less confined than it should be: %s%s%s\n", how->what,
                state.landlock_why, *state.landlock_why && *state.filter_why ? "; " : "",
                state.filter_why);
    return SY_OK;
}

static _Noreturn void child(const struct sy_confined *how, const struct sy_sandbox_limits *limits,
                            int (*prepare)(void *), int (*work)(void *), void *ctx, int to)
{
    struct answer answer = {0};
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    die_first();
    int status = prepare ? prepare(ctx) : SY_OK;
    if (status == SY_OK)
        status = confine(how, limits);
    if (status == SY_OK)
        status = work(ctx);
    if (fflush(NULL) && status == SY_OK)
        status = sy_error_set(SY_EIO, "cannot write the output: %s", strerror(errno));
    answer.status = status;
    snprintf(answer.text, sizeof answer.text, "%s", status < 0 ? sy_error_text() : "");
    (void)!write(to, &answer, sizeof answer);
    _exit(0);
}

/* ---- the caller --------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    interrupted = number;
}

/* Reads until the end of the pipe; false: too late, or interrupted. */
static bool read_answer(int fd, sy_ns until, struct answer *out, size_t *n)
{
    for (*n = 0;;) {
        sy_ns now = sy_clock_now();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (interrupted || now >= until)
            return false;
        int ready = poll(&p, 1, (int)SY_MIN((until - now) / SY_NS_PER_MS + 1, 1000ull));
        if (ready <= 0)
            continue;
        ssize_t got = read(fd, (char *)out + *n, sizeof *out - *n);
        if (got == 0)
            return true;
        *n += got > 0 ? (size_t)got : 0;
        if (*n == sizeof *out)
            return true;
    }
}

static int why_it_ended(const struct sy_confined *how, int wait_status, bool is_late)
{
    int number = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    if (is_late)
        return sy_error_set(SY_EDEADLINE, "%s took longer than %.0f s, and was ended", how->what,
                            (double)how->limit_ns / 1e9);
    if (number == SIGXCPU || number == SIGKILL)
        return sy_error_set(SY_EIO, "%s was ended by the system: it took too much %s", how->what,
                            number == SIGXCPU ? "CPU time" : "memory, or somebody killed it");
    if (number)
        return sy_error_set(
            SY_EIO,
            "%s crashed (%s) in its own process, which may take %.1f GB; nothing was "
            "written",
            how->what, strsignal(number), (double)how->memory_bytes / 1e9);
    return sy_error_set(SY_EIO, "%s ended without an answer (exit status %d)", how->what,
                        WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1);
}

/* The child's answer is checked like any input. */
static int take_answer(struct answer *answer)
{
    answer->text[sizeof answer->text - 1] = '\0';
    sy_printable_make(answer->text);
    if (answer->status == SY_OK)
        return SY_OK;
    enum sy_status status =
        answer->status < 0 && answer->status >= SY_EBUG ? (enum sy_status)answer->status : SY_EIO;
    return sy_error_set(status, "%s", *answer->text ? answer->text : "it failed without a reason");
}

static int wait_for(const struct sy_confined *how, pid_t pid, int fd)
{
    struct answer answer;
    size_t n = 0;
    int wait_status = 0;
    bool in_time = read_answer(fd, sy_clock_now() + how->limit_ns, &answer, &n);
    /* A child that answered, or closed the pipe, but does not exit would be waited for without end; one that exits has its status already. */
    kill(pid, SIGKILL);
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
        ;
    if (n == sizeof answer && in_time)
        return take_answer(&answer);
    return why_it_ended(how, wait_status, !in_time && !interrupted);
}

static int start(const struct sy_confined *how, const struct sy_sandbox_limits *limits,
                 int (*prepare)(void *), int (*work)(void *), void *ctx, pid_t *pid, int *from)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC))
        return sy_error_set(SY_EIO, "cannot make a pipe: %s", strerror(errno));
    fflush(NULL);
    *pid = fork();
    if (*pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        close(ends[0]);
        child(how, limits, prepare, work, ctx, ends[1]);
    }
    int error = errno;
    close(ends[1]);
    *from = ends[0];
    if (*pid > 0)
        return SY_OK;
    close(ends[0]);
    return sy_error_set(SY_EIO, "cannot start a process: %s", strerror(error));
}

int sy_cli_confined(const struct sy_confined *how, int (*prepare)(void *ctx),
                    int (*work)(void *ctx), void (*cleanup)(void *ctx), void *ctx)
{
    struct sy_confined mine = *how;
    struct sy_sandbox_limits limits;
    struct sigaction stop = {.sa_handler = on_interrupt}, before[2];
    pid_t pid;
    int from;

    choose_limits(&mine, &limits);
    interrupted = 0;
    sigaction(SIGINT, &stop, &before[0]);
    sigaction(SIGTERM, &stop, &before[1]);
    int status = start(&mine, &limits, prepare, work, ctx, &pid, &from);
    if (status == SY_OK) {
        status = wait_for(&mine, pid, from);
        close(from);
    }
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
    if (interrupted) {
        if (cleanup)
            cleanup(ctx);
        raise(interrupted);
    }
    return status;
}
