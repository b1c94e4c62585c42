/* Read and copy bandwidth of all cores together. Each thread has a buffer of its own, larger than its part of the caches. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/doctor/probe.h"
#include "runtime/doctor/read_rate.h"

#define MOST_THREADS      256
#define MOST_BYTES        (1ull << 30) /* of all threads */
#define MOST_THREAD_BYTES (64ull << 20)
#define PIECE_BYTES       (1ull << 20) /* between two looks at the clock */

struct bandwidth;
struct reader {
    struct bandwidth *all;
    pthread_t thread;
    char *buffer;
    double gbps; /* of this thread; NAN: it had no memory */
};

struct bandwidth {
    uint64_t bytes; /* of each buffer */
    sy_ns budget_ns;
    bool copies;
    atomic_int n_waiting; /* threads that have not begun: all measure at once */
    struct reader readers[MOST_THREADS];
};

static void run_piece(const struct bandwidth *all, char *buffer, uint64_t at)
{
    if (all->copies)
        memcpy(buffer + at % (all->bytes / 2), buffer + all->bytes / 2 + at % (all->bytes / 2),
               PIECE_BYTES);
    else
        sy_read_once(buffer + at, PIECE_BYTES);
}

static void measure(struct reader *reader)
{
    struct bandwidth *all = reader->all;
    sy_ns start = sy_clock_now(), now = start;
    uint64_t done = 0;
    while (now - start < all->budget_ns) {
        run_piece(all, reader->buffer, done % all->bytes);
        done += PIECE_BYTES;
        now = sy_clock_now();
    }
    reader->gbps = (double)done / (double)SY_MAX(now - start, 1u);
}

static void *run(void *argument)
{
    struct reader *reader = argument;
    reader->buffer = malloc(reader->all->bytes);
    if (reader->buffer)
        memset(reader->buffer, 1, reader->all->bytes);
    atomic_fetch_sub(&reader->all->n_waiting, 1);
    while (atomic_load(&reader->all->n_waiting) > 0)
        sy_clock_sleep_until(sy_clock_now() + 50 * SY_NS_PER_US);
    reader->gbps = NAN;
    if (reader->buffer)
        measure(reader);
    free(reader->buffer);
    return NULL;
}

/* Sum over the threads; NAN if one could not measure. */
static double rate(struct bandwidth *all, int n, bool copies)
{
    double sum = 0;
    int started = 0;
    all->copies = copies;
    atomic_store(&all->n_waiting, n);
    for (int i = 0; i < n; i++) {
        all->readers[i] = (struct reader){.all = all};
        if (pthread_create(&all->readers[i].thread, NULL, run, &all->readers[i]) != 0)
            break;
        started++;
    }
    atomic_fetch_sub(&all->n_waiting, n - started);
    for (int i = 0; i < started; i++) {
        pthread_join(all->readers[i].thread, NULL);
        sum += all->readers[i].gbps;
    }
    return started > 0 ? sum : NAN;
}

void sy_probe_bandwidth(struct sy_doctor_facts *facts, sy_ns budget_ns)
{
    int n = (int)fmin(fmax(facts->cores_usable, 1), MOST_THREADS);
    double room = fmin(fmin(facts->memory_available_bytes, facts->memory_limit_bytes) / 4,
                       (double)MOST_BYTES);
    uint64_t bytes =
        (uint64_t)fmin(room / n, (double)MOST_THREAD_BYTES) / (2 * PIECE_BYTES) * (2 * PIECE_BYTES);
    struct bandwidth *all = calloc(1, sizeof *all);
    if (all && bytes > 0) {
        all->bytes = bytes;
        all->budget_ns = budget_ns;
        facts->memory_read_gbps = rate(all, n, false);
        facts->memory_copy_gbps = rate(all, n, true);
    }
    free(all);
}
