#include "bench/swap_child.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/swap_rig.h"
#include "loader/graph/engine.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "workers/engine/engines.h"
#include "workers/train/train_run.h"

#define DATA             "/usr/share/datasets/fashion-mnist/"
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

/* ---- the victim, from outside ---------------------------------------------------------------------- */

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
    int page_fd = dup(v->memory.fd); /* dup drops CLOEXEC */
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

/* ---- the victim, from inside -------------------------------------------------------------------------- */

static int parse_cores(const char *text, int *cores, int max)
{
    int n = 0;
    for (char *end; n < max && *text; text = *end ? end + 1 : end)
        cores[n++] = (int)strtol(text, &end, 10);
    return n;
}

static void ignore_snapshot(void *ctx, int status, uint64_t step, const char *path)
{
    (void)ctx, (void)status, (void)step, (void)path;
}

/* The learning rate is a small one: the job must not diverge while it is held and resumed. With 0.02 a rounding decides whether its loss
 * peaks at 3, or grows to 1e12 within 35 steps and the job ends. */
static int create_run(const char *model, const char *folder, const struct sy_trainer_ops *trainer,
                      bool synthetic, struct sy_train_run **out)
{
    char text[2048];
    struct sy_train_callbacks callbacks = {.snapshot_done = ignore_snapshot};
    const char *data = synthetic ? "{\"kind\":\"synthetic\",\"samples\":4096}"
                                 : "{\"kind\":\"idx\",\"images\":\"" DATA
                                   "train-images-idx3-ubyte.gz\",\"labels\":\"" DATA
                                   "train-labels-idx1-ubyte.gz\"}";
    snprintf(text, sizeof text,
             "{\"name\":\"victim\",\"model\":\"%s\",\"loss\":\"softmax_cross_entropy\","
             "\"optimizer\":{\"kind\":\"sgd\",\"learning_rate\":0.001,\"momentum\":0.9},"
             "\"data\":%s,\"batch\":64,\"epochs\":100000,\"seed\":1,"
             "\"snapshot\":{\"folder\":\"%s\",\"every_steps\":1000000000}}",
             model, data, folder);
    return sy_train_run_create(text, trainer, &callbacks, out);
}

static int pause_while_asked(struct sy_train_run *run, struct sy_control_page *page)
{
    uint32_t epoch = atomic_load_explicit(&page->preempt_epoch, memory_order_relaxed);
    if (!(epoch & 1))
        return SY_OK;
    SY_TRY(sy_train_run_settle(run));
    atomic_store(&page->paused_ns, sy_clock_now());
    atomic_store(&page->paused_epoch, epoch);
    sy_futex_wake(&page->paused_epoch);
    while (atomic_load(&page->preempt_epoch) == epoch)
        sy_futex_wait(&page->preempt_epoch, epoch, 1000 * SY_NS_PER_MS);
    return SY_OK;
}

/* Memory to train in: the host's, or on the device, where an engine of its own computes. */
struct victim_memory {
    struct sy_device *device;
    struct sy_stream *compute;
    struct sy_pool_memory *pool;
    void *persistent, *ephemeral;
};

static int open_engine(const char *text, const struct sy_trainer_ops **trainer,
                       struct victim_memory *m)
{
    const struct sy_engine_ops *engine;
    struct sy_device_spec spec;
    SY_TRY(sy_device_spec_parse(text, &spec));
    SY_TRY(sy_engine_for_device(spec.kind, &engine));
    SY_TRY(sy_trainer_for_device(spec.kind, trainer));
    if (!engine->attach)
        return SY_OK;
    SY_TRY(sy_device_open(&spec, &m->device));
    SY_TRY(sy_stream_create(m->device, SY_STREAM_COMPUTE, &m->compute));
    return engine->attach(m->device, m->compute);
}

static int take_memory(const struct sy_train_needs *needs, struct victim_memory *m)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (m->device) {
        SY_TRY(
            sy_pool_create(m->device, needs->persistent_bytes + needs->ephemeral_bytes, &m->pool));
        m->persistent = (void *)(uintptr_t)sy_pool_address(m->pool, 0).value;
        m->ephemeral = (char *)m->persistent + needs->persistent_bytes;
        return SY_OK;
    }
    m->persistent = mmap(NULL, needs->persistent_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    m->ephemeral = mmap(NULL, needs->ephemeral_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return m->persistent != MAP_FAILED && m->ephemeral != MAP_FAILED
               ? SY_OK
               : sy_error_set(SY_ENOMEM_HOST, "no memory to train in");
}

static int train_for_ever(struct sy_train_run *run, struct victim_memory *m,
                          struct sy_control_page *page)
{
    struct sy_train_needs needs;
    enum sy_train_state state = SY_TRAIN_RUNNING;
    sy_train_run_needs(run, &needs);
    SY_TRY(take_memory(&needs, m));
    SY_TRY(sy_train_run_start(run, m->persistent, m->ephemeral, 0, page));
    while (state == SY_TRAIN_RUNNING) {
        SY_TRY(pause_while_asked(run, page));
        SY_TRY(sy_train_run_advance(run, &state));
    }
    return SY_OK;
}

static int victim_main(char **argv)
{
    int cores[64];
    char folder[] = "/tmp/switchyard-bench-XXXXXX";
    struct sy_shared_memory memory = {.fd = -1};
    struct sy_train_run *run = NULL;
    const struct sy_trainer_ops *trainer;
    struct victim_memory m = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    SY_TRY(sy_shared_memory_map(&memory, atoi(argv[2]), SY_CONTROL_PAGE_BYTES, true));
    SY_TRY(sy_host_engine.set_threads(cores, parse_cores(argv[4], cores, 64)));
    SY_TRY(open_engine(argv[5], &trainer, &m));
    if (!mkdtemp(folder))
        return sy_error_set(SY_EIO, "cannot make a folder in /tmp");
    SY_TRY(create_run(argv[3], folder, trainer, m.device != NULL, &run));
    rmdir(folder); /* nothing is ever written there */
    return train_for_ever(run, &m, memory.base);
}

/* ---- stop and start --------------------------------------------------------------------------------- */

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

static int restart_main(char **argv)
{
    struct swap_rig *rig = NULL;
    struct swap_child_times times;
    SY_TRY(swap_rig_create_cold(argv[0], argv[3], argv[4], strtoll(argv[5], NULL, 10), &rig));
    SY_TRY(swap_rig_run_cold(rig, &times.first_layer_ns, &times.end_ns));
    ssize_t written = write(atoi(argv[2]), &times, sizeof times);
    /* The process ends here; its memory goes with it, as stop-and-start has it. */
    return written == (ssize_t)sizeof times ? SY_OK : SY_EIO;
}

int swap_child_main(int argc, char **argv)
{
    int status = SY_EARG;
    if (argc == 6 && strcmp(argv[1], "--child-victim") == 0)
        status = victim_main(argv);
    else if (argc == 6 && strcmp(argv[1], "--child-restart") == 0)
        status = restart_main(argv);
    if (status < 0)
        fprintf(stderr, "swap %s: %s\n", argv[1], sy_error_text());
    return status < 0;
}
