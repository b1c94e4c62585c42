#include "runtime/cli/train/rank_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/train/script_gate.h"

#define MAX_WORDS 64

static volatile sig_atomic_t stop_asked;
static volatile pid_t running; /* mpirun; 0: none */

/* mpirun passes SIGUSR1 on to all ranks, and ends them itself on the others. */
static void pass_on(int number)
{
    stop_asked = number;
    if (running > 0)
        kill(running, SIGUSR1);
}

static int n_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 ? SY_MAX(CPU_COUNT(&set), 1) : 1;
}

struct words {
    char *argv[MAX_WORDS + 1];
    int n;
};

static void add(struct words *words, const char *word)
{
    if (words->n < MAX_WORDS)
        words->argv[words->n++] = (char *)(uintptr_t)word;
    words->argv[words->n] = NULL;
}

/* `text` is cut at its blanks, and kept by the caller. */
static void add_all(struct words *words, char *text)
{
    for (char *rest = text, *word; (word = strsep(&rest, " ")) != NULL;)
        if (*word)
            add(words, word);
}

/* Each rank has its cores, and as many threads; more ranks than cores share them. */
static void place_here(struct words *words, char *place, size_t bytes, int n_ranks)
{
    int each = SY_MAX(n_cores() / n_ranks, 1);

    add(words, "--map-by");
    snprintf(place, bytes, "slot:PE=%d", each);
    if (n_ranks > n_cores())
        snprintf(place, bytes, "slot:OVERSUBSCRIBE");
    add(words, place);
    add(words, "--bind-to");
    add(words, n_ranks > n_cores() ? "none" : "core");
}

/* Ctrl-C is for this process, and mpirun, which ends its ranks, ends with it. */
static _Noreturn void become_mpirun(char **argv, pid_t parent, int report)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(127);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
    execvp(argv[0], argv);
    int error = errno;
    (void)!write(report, &error, sizeof error);
    _exit(127);
}

/* 0, or errno. */
static int start_mpirun(char **argv, pid_t *pid)
{
    int report[2], error = 0;
    pid_t parent = getpid();
    if (pipe2(report, O_CLOEXEC) < 0)
        return errno;
    *pid = fork();
    if (*pid == 0)
        become_mpirun(argv, parent, report[1]);
    if (*pid < 0)
        error = errno;
    close(report[1]);
    while (*pid > 0 && read(report[0], &error, sizeof error) < 0 && errno == EINTR)
        continue;
    close(report[0]);
    if (error && *pid > 0)
        (void)waitpid(*pid, NULL, 0);
    return error;
}

/* mpirun's exit status: 128 and the signal's number if a rank was killed by one; -1: it could not be started, which was said. */
static int run_ranks(const struct sy_rank_order *order, int n_ranks, const char *program)
{
    struct words words = {.n = 0};
    char number[16], place[64], *options = order->mpi_options ? strdup(order->mpi_options) : NULL;
    pid_t pid = 0;
    int got;

    snprintf(number, sizeof number, "%d", n_ranks);
    add(&words, "mpirun");
    add(&words, "-n");
    add(&words, number);
    if (geteuid() == 0)
        add(&words, "--allow-run-as-root");
    if (options)
        add_all(&words, options);
    else
        place_here(&words, place, sizeof place, n_ranks);
    add(&words, program);
    add(&words, "train");
    add(&words, order->path);
    add(&words, "--local");
    add(&words, "--mpi");
    if (order->devices) {
        add(&words, "--device");
        add(&words, order->devices);
    }
    if (words.n == MAX_WORDS) {
        sy_cli_fail("the options for mpirun have too many words: %d with this program's, of %d",
                    words.n, MAX_WORDS - 1);
        free(options);
        return -1;
    }
    int failed = start_mpirun(words.argv, &pid);
    free(options);
    if (failed) {
        sy_cli_fail("cannot start mpirun (Debian: openmpi-bin): %s", strerror(failed));
        return -1;
    }
    running = pid;
    if (stop_asked)
        kill(pid, SIGUSR1);
    while (waitpid(pid, &got, 0) < 0 && errno == EINTR)
        continue;
    running = 0;
    return WIFEXITED(got) ? WEXITSTATUS(got) : 128 + WTERMSIG(got);
}

/* The most of those left that cut the batch evenly. */
static int fewer(int n_ranks, int64_t batch)
{
    do
        n_ranks--;
    while (n_ranks > 1 && batch % n_ranks != 0);
    return n_ranks;
}

/* As often as ranks die, with those that are left. */
static int run_until_done(const struct sy_rank_order *order, const char *program,
                          struct sy_script_gate *gate)
{
    for (int n_ranks = order->n_ranks;;) {
        int got = run_ranks(order, n_ranks, program);

        if (got < 0)
            return 1;
        if (stop_asked && got == 128 + SIGUSR1) /* before it computed: nothing is lost */
            return 0;
        if (got <= 128 || stop_asked || n_ranks == 1) /* it ended, or said why it cannot go on */
            return got;
        sy_script_gate_reset(gate);
        n_ranks = fewer(n_ranks, order->batch);
        fprintf(stderr,
                "switchyard: a rank was killed by signal %d; the job goes on from its last "
                "snapshot with %d rank%s\n",
                got - 128, n_ranks, n_ranks > 1 ? "s" : "");
    }
}

int sy_rank_launch(const struct sy_rank_order *order)
{
    char program[4096];
    struct sy_script_gate gate;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    struct sigaction action = {.sa_handler = pass_on};

    if (n < 0)
        return sy_cli_fail("where this program lies is not known: %s", strerror(errno));
    program[n] = '\0';
    if (order->batch % order->n_ranks != 0)
        return sy_cli_fail("a batch of %lld cannot be cut for %d ranks", (long long)order->batch,
                           order->n_ranks);
    signal(SIGCHLD, SIG_DFL); /* where it is ignored there is nobody to wait for */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sy_script_gate_open(&gate) < 0)
        return sy_cli_fail_status();
    int result = run_until_done(order, program, &gate);
    sy_script_gate_close(&gate);
    return result;
}
