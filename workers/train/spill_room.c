#include "workers/train/spill_room.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

/* Small pages: huge ones are found fast on an empty machine only (0.13 s for 1 GB); on one whose memory holds files the kernel compacts for each
 * (2.1 s). Small ones cost 0.4 to 0.5 s always. (Private pages; shared ones cost somewhat more: bench/spill, `cold`.) */
#define SLICE_BYTES (1u << 20)
#define REST        9 /* times what a slice took */

struct sy_spill_room {
    unsigned char *base;
    uint64_t bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* hurry or stop */
    bool hurry, stop;
    atomic_bool ready;
};

static bool number_in(const char *path, const char *key, uint64_t *value)
{
    char line[128];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, key, strlen(key)) == 0 &&
                sscanf(line + strlen(key), "%" SCNu64, value) == 1;
    if (file)
        fclose(file);
    return found;
}

uint64_t sy_spill_room_available(void)
{
    uint64_t kib, most, used, bytes = UINT64_MAX;
    if (number_in("/proc/meminfo", "MemAvailable:", &kib))
        bytes = kib * 1024;
    if (number_in("/sys/fs/cgroup/memory.max", "", &most) &&
        number_in("/sys/fs/cgroup/memory.current", "", &used))
        bytes = SY_MIN(bytes, most > used ? most - used : 0);
    return bytes;
}

/* False: to be stopped. */
static bool rest(struct sy_spill_room *r, sy_ns took)
{
    sy_ns until = sy_clock_now() + REST * took;
    struct timespec end = {.tv_sec = (time_t)(until / SY_NS_PER_S),
                           .tv_nsec = (long)(until % SY_NS_PER_S)};
    pthread_mutex_lock(&r->lock);
    while (!r->hurry && !r->stop &&
           pthread_cond_timedwait(&r->changed, &r->lock, &end) != ETIMEDOUT)
        ;
    bool go = !r->stop;
    pthread_mutex_unlock(&r->lock);
    return go;
}

/* If the kernel refuses to prepare the pages, the copy allocates them: slower, but correct. */
static void *touch(void *arg)
{
    struct sy_spill_room *r = arg;
    bool go = true;
    for (uint64_t at = 0; at < r->bytes && go; at += SLICE_BYTES) {
        sy_ns begun = sy_clock_now();
        go = madvise(r->base + at, SY_MIN(r->bytes - at, (uint64_t)SLICE_BYTES),
                     MADV_POPULATE_WRITE) == 0;
        go = go && rest(r, sy_clock_now() - begun);
    }
    atomic_store(&r->ready, true);
    return NULL;
}

static int start_thread(struct sy_spill_room *r)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&r->thread, NULL, touch, r) == 0)
        return SY_OK;
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    return sy_error_set(SY_ENOMEM_HOST, "cannot start a thread");
}

/* Pages that are not there yet have to be found. */
static int check_room(int file, uint64_t bytes)
{
    struct stat is;
    uint64_t available = sy_spill_room_available();
    if (fstat(file, &is) != 0 || (uint64_t)is.st_size < bytes)
        return sy_error_set(
            SY_EARG, "a file of less than the %" PRIu64 " bytes that are to be spilled", bytes);
    uint64_t there = (uint64_t)is.st_blocks * 512;
    if (bytes > there && bytes - there > available)
        return sy_error_set(SY_ENOMEM_HOST,
                            "%" PRIu64 " bytes are to be spilled, host memory has %" PRIu64 " left",
                            bytes, available);
    return SY_OK;
}

int sy_spill_room_take(int file, uint64_t bytes, struct sy_spill_room **out)
{
    SY_TRY(check_room(file, bytes));
    struct sy_spill_room *r = calloc(1, sizeof *r);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (!r || base == MAP_FAILED) {
        int status = sy_error_set(SY_ENOMEM_HOST,
                                  "no host memory for %" PRIu64 " bytes that are to be spilled: %s",
                                  bytes, strerror(errno));
        if (base != MAP_FAILED)
            munmap(base, bytes);
        free(r);
        return status;
    }
    *r = (struct sy_spill_room){.base = base, .bytes = bytes};
    int status = start_thread(r);
    if (status < 0) {
        munmap(base, bytes);
        free(r);
        return status;
    }
    *out = r;
    return SY_OK;
}

void sy_spill_room_give(struct sy_spill_room *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    munmap(r->base, r->bytes);
    free(r);
}

unsigned char *sy_spill_room_base(struct sy_spill_room *r)
{
    return r->base;
}

uint64_t sy_spill_room_bytes(const struct sy_spill_room *r)
{
    return r->bytes;
}

void sy_spill_room_hurry(struct sy_spill_room *r)
{
    pthread_mutex_lock(&r->lock);
    r->hurry = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

bool sy_spill_room_is_ready(const struct sy_spill_room *r)
{
    return atomic_load(&r->ready);
}
