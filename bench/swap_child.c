/* Programs of the swap bench's child processes: a training job, and a swap in a fresh process. */
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

#define DATA "/usr/share/datasets/fashion-mnist/"

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

/* The small learning rate keeps the job from diverging while it is held and resumed. With 0.02 a rounding decides whether its loss peaks at 3, or grows to
 * 1e12 within 35 steps and the job ends. */
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
    SY_TRY(sy_train_run_synchronize(run));
    atomic_store(&page->paused_ns, sy_clock_now());
    atomic_store(&page->paused_epoch, epoch);
    sy_futex_wake(&page->paused_epoch);
    while (atomic_load(&page->preempt_epoch) == epoch)
        sy_futex_wait(&page->preempt_epoch, epoch, 1000 * SY_NS_PER_MS);
    return SY_OK;
}

/* Training memory: on the host, or on the device if its engine computes there. */
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

static int restart_main(char **argv)
{
    struct swap_rig *rig = NULL;
    struct swap_child_times times;
    SY_TRY(swap_rig_create_cold(argv[0], argv[3], argv[4], strtoll(argv[5], NULL, 10), &rig));
    SY_TRY(swap_rig_run_cold(rig, &times.first_layer_ns, &times.end_ns));
    ssize_t written = write(atoi(argv[2]), &times, sizeof times);
    /* The process exits here and frees its memory, like stop-and-start. */
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
