/* Linked to the tests of the engine and of the trainer, makes them those of the CUDA engine on the GPU that SY_TEST_DEVICE names (exit 77
 * where there is none). Parameters, workspace and tensors are host memory that the device reads and writes in place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/device/device.h"
#include "tests/rigs/engine_rig.h"
#include "workers/engine/engines.h"

#define ARENA_BYTES (8ull << 30)

static struct sy_device *device;
static struct sy_stream *compute;
static const struct sy_engine_ops *engine;
static unsigned char *arena;
static uint64_t used;
static int n_taken;

void *rig_take_memory(uint64_t bytes);
void rig_drop_memory(void *memory);
void rig_choose_trainer(const struct sy_trainer_ops **out, void *(**view)(void *memory));

static void end(const char *what)
{
    printf("skip: no GPU: %s: %s\n", what, sy_error_text());
    exit(77);
}

/* Once pinned, the arena is cut from its start; when all is given back, from its start again. */
void *rig_take_memory(uint64_t bytes)
{
    bytes = SY_ALIGN_UP(bytes, 4096ull);
    if (bytes > ARENA_BYTES - used) {
        fprintf(stderr, "the tests' arena of %llu bytes is full\n", ARENA_BYTES);
        abort();
    }
    void *memory = arena + used;
    used += bytes;
    n_taken++;
    return memory;
}

void rig_drop_memory(void *memory)
{
    n_taken -= memory != NULL;
    used = n_taken ? used : 0;
}

static int synchronize(void)
{
    return sy_stream_synchronize(compute);
}

static void close_gpu(void)
{
    engine->detach();
    (void)sy_device_host_unregister(device, arena);
    sy_stream_destroy(compute);
    sy_device_close(device);
    free(arena);
}

static void open_gpu(void)
{
    struct sy_device_spec spec;
    const char *text = getenv("SY_TEST_DEVICE");
    if (!text) {
        printf("skip: no GPU: make gpu-check sets SY_TEST_DEVICE\n");
        exit(77);
    }
    if (sy_device_spec_parse(text, &spec) < 0 || sy_engine_for_device(spec.kind, &engine) < 0 ||
        !engine->attach || sy_device_open(&spec, &device) < 0)
        end(text);
    arena = aligned_alloc(ARENA_BYTES,
                          ARENA_BYTES); /* one registration: CUDA copies nothing across two */
    if (!arena)
        abort();
    memset(arena, 0, ARENA_BYTES);
    if (sy_stream_create(device, SY_STREAM_COMPUTE, &compute) < 0 ||
        sy_device_host_register(device, arena, ARENA_BYTES) < 0 ||
        sy_device_host_register_wait(device, 60 * SY_NS_PER_S) < 0 ||
        engine->attach(device, compute) < 0) {
        fprintf(stderr, "%s: %s\n", text, sy_error_text());
        exit(1);
    }
    atexit(close_gpu);
}

void rig_choose_engine(struct rig_engine *out)
{
    open_gpu();
    *out = (struct rig_engine){.ops = engine,
                               .lacks_operators = true,
                               .take = rig_take_memory,
                               .drop = rig_drop_memory,
                               .synchronize = synchronize};
}

void rig_choose_trainer(const struct sy_trainer_ops **out, void *(**view)(void *memory))
{
    open_gpu();
    *view = NULL;
    if (sy_trainer_for_device("cuda", out) < 0)
        end("trainer");
}
