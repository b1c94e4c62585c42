/* switchyard run: somebody's script as a job of a running server. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/script_process.h"
#include "runtime/cli/script_signals.h"
#include "runtime/cli/torch_export.h"

#define START_TIMEOUT_MS (7 * 86400000u) /* others may have to end first */
#define PATIENCE_NS      (2 * SY_NS_PER_S)
#define LOOK_MS          200
#define ALONE_AFTER_NS   (5 * SY_NS_PER_S) /* a server that does not answer for so long is gone */
#define ASK_EVERY_NS     SY_NS_PER_S
#define ASK_TIMEOUT_MS   1000u
#define DEAF_AFTER_NS    (3 * SY_NS_PER_S)
#define BESIDE_BYTES \
    (4ull << 30) /* usual room beside tensors: PyTorch itself, numpy, data loaders */

struct order {
    const char *address, *name, *tenant, *class_, *spill_folder;
    double share; /* negative: not said */
    int64_t priority, total_steps, grace_ms, kill_after_s, pid;
    uint64_t memory_bytes, device_memory_bytes, process_memory_bytes;
    bool no_hooks;
    char **argv;
};

/* ---- the server ------------------------------------------------------------------------------- */

struct submission {
    const char *address;
    json_t *job;
    int report; /* a pipe's end: a byte when it is answered */
    int result;
    int64_t id;
};

static void *submit(void *ctx)
{
    struct submission *s = ctx;
    sy_client *client;
    json_t *answer = NULL;
    char *text = json_dumps(s->job, JSON_COMPACT);
    s->result = !text || sy_cli_connect(s->address, START_TIMEOUT_MS, &client);
    if (!s->result) {
        s->result = sy_cli_call(client, "train", json_pack("{s:s}", "text", text), &answer);
        s->id = json_integer_value(json_object_get(answer, "job"));
        sy_client_close(client);
    }
    json_decref(answer);
    free(text);
    (void)!write(s->report, "", 1);
    return NULL;
}

static int set_share(const struct order *order)
{
    sy_client *client;
    json_t *answer;
    if (order->share < 0)
        return 0;
    if (sy_cli_connect(order->address, 0, &client))
        return 1;
    int result = sy_cli_call(
        client, "tenant",
        json_pack("{s:s, s:f}", "tenant", order->tenant, "hard_share", order->share), &answer);
    json_decref(answer);
    sy_client_close(client);
    return result;
}

/* Whether the server still has the job; negative: it does not answer. */
static int server_has(const char *address, int64_t id)
{
    sy_client *client;
    char *text = NULL;
    size_t i;
    json_t *job;
    int has = 0;
    int status =
        sy_client_connect(address ? address : sy_cli_default_socket(), ASK_TIMEOUT_MS, &client);
    if (status == SY_OK)
        status = sy_client_call(client, "status", "{}", &text);
    sy_client_close(client);
    if (status < 0)
        return -1;
    json_t *answer = json_loads(text, 0, NULL);
    json_array_foreach(json_object_get(answer, "jobs"), i, job)
    {
        const char *state = sy_cli_word(job, "state");
        if ((int64_t)sy_cli_number(job, "job") == id)
            has = strcmp(state, "ended") != 0 && strcmp(state, "failed") != 0;
    }
    json_decref(answer);
    free(text);
    return has;
}

/* ---- while it runs ---------------------------------------------------------------------------- */

struct session {
    const struct order *order;
    struct sy_script_process process;
    struct submission submission; /* its thread's until that was joined */
    pthread_t submitter;
    int signals, answered; /* descriptors */
    sy_ns asked_ns;
    sy_ns signal_ns; /* when it was sent one that ends programs; 0: not, or that was said */
    int signal;
    bool is_canceled;
};

/* The worker is gone. Another comes, or the server has died: then a paused script must not stay paused for good. */
static void look_for_server(struct session *s)
{
    struct sy_script_process *p = &s->process;
    sy_ns now = sy_clock_now();
    if (!p->lost_ns || p->is_alone || p->ended || now - p->lost_ns < ASK_EVERY_NS ||
        now - s->asked_ns < ASK_EVERY_NS)
        return;
    s->asked_ns = now;
    int has = server_has(s->order->address, s->submission.id);
    if (has > 0)
        p->lost_ns = now - ASK_EVERY_NS;
    if (has == 0 || (has < 0 && now - p->lost_ns >= ALONE_AFTER_NS)) {
        fprintf(stderr, "switchyard: the server %s; the script continues without it\n",
                has < 0 ? "does not answer" : "has given the job up");
        sy_script_let_go(p);
    }
}

/* Ctrl-Z goes to the script, which has the terminal; its run stops with it, for the shell to see. */
static void follow_stop(struct session *s)
{
    siginfo_t info = {0};
    const struct sy_script_process *p = &s->process;
    if (!p->is_child || waitid(P_PID, (id_t)p->pid, &info, WSTOPPED | WNOHANG) < 0 ||
        info.si_pid == 0 || info.si_status != SIGTSTP)
        return;
    (void)tcsetpgrp(STDIN_FILENO, getpgrp());
    raise(SIGSTOP);
    (void)tcsetpgrp(STDIN_FILENO, p->pid);
    if (!p->is_stopped)
        (void)kill(-p->pid, SIGCONT);
}

/* A process that is not ours is let go: it computes on as if it had never joined. */
static void leave(struct session *s)
{
    fprintf(stderr, "switchyard: process %ld continues on its own\n", (long)s->process.pid);
    sy_script_let_go(&s->process);
    s->process.ended = true;
    s->process.wait_status = -1;
}

/* Signals that came for us are the script's; before there is one, they end us, as behind one that joined. True: we are to end. */
static bool pass_signals(struct session *s)
{
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            follow_stop(s);
        else if (s->process.pid == 0)
            return true;
        else if (s->process.is_child) {
            sy_script_process_signal(&s->process, (int)info.ssi_signo);
            s->signal = (int)info.ssi_signo;
            s->signal_ns = sy_clock_now();
        } else {
            leave(s);
        }
    }
    return false;
}

/* A script may end later, or never; only a cancel kills it. */
static void report_ignored_signal(struct session *s)
{
    if (!s->signal_ns || s->process.ended || sy_clock_now() - s->signal_ns < DEAF_AFTER_NS)
        return;
    s->signal_ns = 0;
    fprintf(stderr,
            "switchyard: the script was sent signal %d (%s) and goes on; 'switchyard jobs cancel "
            "%lld' kills it %lld s after a SIGTERM\n",
            s->signal, strsignal(s->signal), (long long)s->submission.id,
            (long long)s->order->kill_after_s);
}

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* Until the server has admitted the job: 0; else the exit status. */
static int wait_for_admission(struct session *s)
{
    struct pollfd fds[] = {{.fd = s->answered, .events = POLLIN}};
    sy_ns since = sy_clock_now();
    bool said = false;
    while (poll(fds, 1, 0) == 0) {
        sy_script_process_look(&s->process, LOOK_MS / 4, s->answered);
        if (pass_signals(s)) {
            sy_cli_fail("given up before the job was admitted");
            return 130;
        }
        if (!said && sy_clock_now() - since > PATIENCE_NS) {
            fprintf(stderr, "switchyard: the job waits for a worker, or for memory; 'switchyard "
                            "jobs' shows it, Ctrl-C gives it up\n");
            said = true;
        }
    }
    pthread_join(s->submitter, NULL); /* it has written its last byte */
    return s->submission.result;
}

static void run_to_end(struct session *s)
{
    while (!s->process.ended) {
        sy_script_process_look(&s->process, LOOK_MS, s->signals);
        (void)pass_signals(s);
        report_ignored_signal(s);
        look_for_server(s);
        s->is_canceled |= s->process.kill_ns != 0;
    }
}

static int exit_status(int wait_status)
{
    if (wait_status == -1)
        return 0;
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static void explain_hook(const struct session *s)
{
    const struct sy_script_page *page = s->process.page;
    uint32_t hook = atomic_load(&page->hook);
    const char *kept = hook != SY_SCRIPT_HOOK_OPERATORS && page->limit_bytes
                           ? "; --memory was not kept, --process-memory was"
                           : "";
    if (hook == SY_SCRIPT_HOOK_NONE && s->process.is_child)
        fprintf(
            stderr,
            "switchyard: the program did not import torch under a Python that our hook reaches: "
            "it gave way by being stopped, after %lld ms%s\n",
            (long long)s->order->grace_ms, kept);
    if (atomic_load(&page->n_retaken))
        fprintf(stderr, "switchyard: the script put another allocator of CPU tensors in place of "
                        "the counted one; it was put back, what was allocated meanwhile is not "
                        "counted\n");
}

static void explain_memory(const struct sy_script_process *p)
{
    const struct sy_script_page *page = p->page;
    uint64_t refused = atomic_load(&page->n_refused);
    uint64_t refused_there = atomic_load(&page->n_device_refused);
    if (p->over_bytes)
        fprintf(stderr,
                "switchyard: the script's processes together had %llu bytes of memory, tensors "
                "included, and were killed; the limit is %llu (--process-memory)\n",
                (unsigned long long)p->over_bytes, (unsigned long long)p->process_limit_bytes);
    if (refused)
        fprintf(stderr,
                "switchyard: %llu allocations beyond the limit of %llu bytes were refused\n",
                (unsigned long long)refused, (unsigned long long)page->limit_bytes);
    if (refused_there)
        fprintf(stderr,
                "switchyard: the GPU had no memory %llu times; the job's limit there is %llu bytes "
                "(0: none), its most was %llu\n",
                (unsigned long long)refused_there, (unsigned long long)page->device_limit_bytes,
                (unsigned long long)atomic_load(&page->device_peak_bytes));
}

/* Explains states of the script that may surprise its user. */
static void explain(const struct session *s)
{
    if (s->is_canceled)
        fprintf(stderr, "switchyard: job %lld was canceled%s\n", (long long)s->submission.id,
                exit_status(s->process.wait_status) == 128 + SIGKILL
                    ? "; it did not end by SIGTERM and was killed (--kill-after)"
                    : "");
    if (s->process.has_left)
        fprintf(stderr, "switchyard: the script ended and left processes behind; they are ended "
                        "too\n");
    explain_hook(s);
    explain_memory(&s->process);
}

/* ---- the job ---------------------------------------------------------------------------------- */

static const char *usual_name(const struct order *order)
{
    for (char **word = order->argv; word && *word; word++) {
        const char *slash = strrchr(*word, '/'), *name = slash ? slash + 1 : *word;
        size_t n = strlen(name);
        if (n > 3 && strcmp(name + n - 3, ".py") == 0)
            return name;
    }
    if (!order->argv)
        return "script";
    const char *slash = strrchr(order->argv[0], '/');
    return slash ? slash + 1 : order->argv[0];
}

static json_t *job_text(const struct order *order, const char *socket)
{
    char name[128];
    snprintf(name, sizeof name, "%s", order->name ? order->name : usual_name(order));
    sy_printable_make(name);
    json_t *job = json_pack("{s:s, s:I, s:{s:s, s:I, s:I, s:I, s:I, s:I}}", "name", name,
                            "priority", (json_int_t)order->priority, "script", "socket", socket,
                            "memory_bytes", (json_int_t)order->memory_bytes, "device_memory_bytes",
                            (json_int_t)order->device_memory_bytes, "total_steps",
                            (json_int_t)order->total_steps, "grace_ms", (json_int_t)order->grace_ms,
                            "kill_after_s", (json_int_t)order->kill_after_s);
    if (job && order->tenant)
        json_object_set_new(job, "tenant", json_string(order->tenant));
    if (job && order->class_)
        json_object_set_new(job, "class", json_string(order->class_));
    return job;
}

static const char *find_hooks(void)
{
    static char hooks[4200];
    const char *folder = sy_torch_package_folder("_run/sitecustomize.py");
    if (!folder)
        return NULL;
    snprintf(hooks, sizeof hooks, "%s/_run", folder);
    return hooks;
}

static int start_script(struct session *s)
{
    char path[64];
    if (!s->order->argv) { /* the process that asked reads this line */
        if (sy_script_process_adopt(&s->process, (pid_t)s->order->pid) < 0)
            return sy_cli_fail_status();
        sy_script_process_page_path(&s->process, path, sizeof path);
        printf("%s job %lld\n", path, (long long)s->submission.id);
        fflush(stdout);
        return 0;
    }
    const char *hooks = s->order->no_hooks ? NULL : find_hooks();
    if (!hooks && !s->order->no_hooks)
        fprintf(stderr, "switchyard: the Python hooks are not found; SWITCHYARD_PYTHON names the "
                        "folder of the package 'switchyard'. The script is stopped from outside\n");
    return sy_script_process_spawn(&s->process, s->order->argv, hooks) < 0 ? sy_cli_fail_status()
                                                                           : 0;
}

static int run_job(struct session *s)
{
    int result = start_script(s);
    if (result) {
        s->process.pid = s->process.pid > 0 ? s->process.pid : getpid();
        s->process.ended = true;
        s->process.wait_status = 127 << 8;
        return 127;
    }
    run_to_end(s);
    explain(s);
    return exit_status(s->process.wait_status);
}

static int run(const struct order *order)
{
    static struct session s;
    int answered[2];
    s.order = order;
    s.submission = (struct submission){.address = order->address};
    if (sy_script_process_prepare(&s.process, order->memory_bytes, order->device_memory_bytes,
                                  (uint64_t)order->kill_after_s * SY_NS_PER_S) < 0) {
        int failed = sy_cli_fail_status();
        sy_script_process_finish(&s.process);
        return failed;
    }
    const char *folder = order->spill_folder;
    if (!folder && !((folder = getenv("TMPDIR")) && *folder))
        folder = "/var/tmp";
    if (order->class_ && strcmp(order->class_, "opportunistic") == 0 && order->memory_bytes &&
        sy_script_process_allow_spill(&s.process, folder) < 0) {
        int failed = sy_cli_fail("run --spill-to: %s", sy_error_text());
        sy_script_process_finish(&s.process);
        return failed;
    }
    s.process.process_limit_bytes = order->process_memory_bytes;
    s.signals = open_signals();
    s.submission.job = job_text(order, s.process.socket);
    int result = set_share(order);
    if (!result && (pipe2(answered, O_CLOEXEC) < 0 || !s.submission.job))
        result = sy_cli_fail("run: %s", strerror(errno));
    if (!result) {
        s.answered = answered[0];
        s.submission.report = answered[1];
        result = pthread_create(&s.submitter, NULL, submit, &s.submission)
                     ? sy_cli_fail("run: no thread")
                     : wait_for_admission(&s);
    }
    if (!result)
        result = run_job(&s);
    sy_script_process_finish(&s.process);
    return result;
}

/* ---- the command ------------------------------------------------------------------------------ */

#define NOT_GIVEN UINT64_MAX

static int take_class(void *command, const char *value)
{
    struct order *o = command;
    o->class_ = value;
    if (strcmp(value, "guaranteed") != 0 && strcmp(value, "opportunistic") != 0)
        return sy_error_set(SY_EARG, "'%s' is not guaranteed or opportunistic", value);
    return SY_OK;
}

static int take_share(void *command, const char *value)
{
    struct order *o = command;
    SY_TRY(sy_cli_real(value, &o->share));
    return o->share > 1 ? sy_error_set(SY_EARG, "%s is not from 0 to 1", value) : SY_OK;
}

static const struct sy_cli_field fields[] = {
    {{"socket", "ADDRESS", "unix:PATH of the server, which is on this machine"},
     SY_CLI_TEXT(struct order, address)},
    {{"name", "NAME", "of the job (the script's file)"}, SY_CLI_TEXT(struct order, name)},
    {{"tenant", "NAME", "whose job it is (default)"}, SY_CLI_TEXT(struct order, tenant)},
    {{"class", "CLASS",
      "guaranteed (usual), or opportunistic: runs while no guaranteed job wants to"},
     SY_CLI_SET(take_class)},
    {{"spill-to", "FOLDER",
      "where an opportunistic job's tensors go when a guaranteed one needs their room, up to "
      "--memory bytes (TMPDIR, else /var/tmp); a file system in memory saves none"},
     SY_CLI_TEXT(struct order, spill_folder)},
    {{"share", "0..1", "hard share of the device for this tenant, as 'policy --hard-share'"},
     SY_CLI_SET(take_share)},
    {{"priority", "N", "-1000 to 1000, smaller is more urgent; counts under 'policy priority'"},
     SY_CLI_INT64(struct order, priority, -1000, 1000)},
    {{"memory", "BYTES",
      "limit of its CPU tensors (400M, 2Gi); more is refused with a RuntimeError: out of memory. "
      "Each further process of the script's has the limit for itself. Leased from the pool if the "
      "server computes on the CPU"},
     SY_CLI_BYTES(struct order, memory_bytes)},
    {{"process-memory", "BYTES",
      "limit of all memory of all its processes together, whatever allocated it; checked twice a "
      "second, beyond it they are killed (twice --memory and 4Gi; without --memory none; 0: none)"},
     SY_CLI_BYTES(struct order, process_memory_bytes)},
    {{"device-memory", "BYTES",
      "limit of the memory that it reserves on each GPU (as --memory); leased from the pool if the "
      "server computes on a GPU"},
     SY_CLI_BYTES(struct order, device_memory_bytes)},
    {{"steps", "N",
      "how many iterations it will do, for srtf and the time left; switchyard.torch.step(total=N) "
      "sets it too"},
     SY_CLI_INT64(struct order, total_steps, 0, INT32_MAX)},
    {{"stop-after", "MS",
      "a process that is not preempted within this time is stopped by SIGSTOP (20)"},
     SY_CLI_INT64(struct order, grace_ms, 0, 60000)},
    {{"kill-after", "S", "time from SIGTERM to SIGKILL for a canceled script (10)"},
     SY_CLI_INT64(struct order, kill_after_s, 0, 3600)},
    {{"no-hooks", NULL, "no hooks in Python: the script is preempted by SIGSTOP only"},
     SY_CLI_SWITCH(struct order, no_hooks)},
    {{"pid", "PID",
      "instead of a program: one that runs already (switchyard.torch.join() does this); Ctrl-C or "
      "SIGTERM here lets it continue without the server"},
     SY_CLI_INT64(struct order, pid, 1, INT32_MAX)},
};

static uint64_t usual_process_memory(uint64_t memory_bytes)
{
    if (memory_bytes == 0)
        return 0;
    return memory_bytes < UINT64_MAX / 4 ? 2 * memory_bytes + BESIDE_BYTES : UINT64_MAX;
}

int sy_cmd_run(int argc, char **argv)
{
    struct order order = {.grace_ms = 20,
                          .kill_after_s = 10,
                          .share = -1,
                          .process_memory_bytes = NOT_GIVEN,
                          .device_memory_bytes = NOT_GIVEN};
    static const struct sy_cli_fields command = {
        "run [options] -- PROGRAM [arguments]\n\n"
        "Runs a PyTorch script as a training job of a running server, the script unchanged:\n\n"
        "  switchyard run --memory 4Gi -- python train.py --epochs 3\n\n"
        "It computes while no request waits; a request preempts it between two operators. "
        "'switchyard jobs' shows it, and pauses, "
        "resumes and cancels it. A step is an optimizer's step, or what the script says by "
        "switchyard.torch.step(). "
        "Ends with the script's exit status (128 + N: killed by signal N; 127: it could not be "
        "started).",
        fields, SY_ARRAY_LEN(fields), NULL};
    int status = sy_cli_read_program(&command, argc, argv, &order, &order.argv);
    if (status != SY_CLI_END)
        return status;
    if (order.argv && !order.argv[0])
        return sy_cli_usage("run: no program behind '--'; see switchyard run --help");
    if (order.pid == 1 || order.pid == getpid())
        return sy_cli_usage("run --pid: %lld is %s, which cannot be paused", (long long)order.pid,
                            order.pid == 1 ? "the first process of the system" : "this process");
    if (!order.argv == !order.pid)
        return sy_cli_usage("run takes a program, as in: switchyard run -- python train.py");
    if (order.share >= 0 && !order.tenant)
        return sy_cli_usage("run --share: shares are tenants'; --tenant says whose");
    if (order.device_memory_bytes == NOT_GIVEN)
        order.device_memory_bytes = order.memory_bytes;
    if (order.process_memory_bytes == NOT_GIVEN)
        order.process_memory_bytes = usual_process_memory(order.memory_bytes);
    return run(&order);
}
