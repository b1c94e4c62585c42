/* spill/trip: a job's persistent memory to host memory and back, beside bytes / link rate, host memory prepared as for a job that has run for a
 * while; spill/cold: of a job that has just started. spill/urgent: what an urgent swap waits for while a spill travels, in chunks; each swap
 * beside a spill stands next to one without. How late the machine itself is, is told by a metronome: a thread that does nothing but wake up each
 * millisecond. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/shared_memory.h"
#include "bench/gbench.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "workers/infer/transfer.h"
#include "workers/train/spill.h"

#define MAX_SAMPLES 256
#define SWAP_GROUPS 4
#define GROUP_BYTES (8ull << 20)
#define SWAP_BYTES  (SWAP_GROUPS * GROUP_BYTES)

/* State of one of the two processes: each has its own device and view of the pool, like two workers. */
struct side {
    struct sy_device *device;
    struct sy_pool_memory *pool;
};

static struct {
    const char *device;
    double mib, gbps;
    int trips, swaps;
} options = {.device = "emulated,link-gbps=2", .mib = 954, .trips = 3, .swaps = 40};

static uint64_t spill_bytes;
static struct side spiller, swapper;
static struct sy_spill *spill;
static int spill_file = -1; /* of the spill under way */
static struct sy_transfer *transfer;
static struct sy_stream *compute;
static struct sy_link_board board;
static unsigned char *image;

/* ---- the rig ------------------------------------------------------------------------------------------ */

static int open_sides(void)
{
    struct sy_device_spec spec;
    int fd;
    SY_TRY(sy_device_spec_parse(options.device, &spec));
    SY_TRY(sy_device_open(&spec, &spiller.device));
    SY_TRY(sy_device_open(&spec, &swapper.device));
    if (sy_device_get_properties(spiller.device)->unified)
        return sy_error_set(SY_EARG, "%s has no link", options.device);
    options.gbps = sy_device_get_properties(spiller.device)->link_gbps;
    SY_TRY(sy_pool_create(spiller.device, spill_bytes + SWAP_BYTES, &spiller.pool));
    SY_TRY(sy_pool_export(spiller.pool, &fd));
    return sy_pool_import(swapper.device, fd, spill_bytes + SWAP_BYTES, &swapper.pool);
}

/* Each job has its own spill file, so its pages are freed with it. */
static int make_spill(void)
{
    int file = sy_shared_memory_file("bench-spill", spill_bytes);
    SY_TRY(file);
    if (spill_file >= 0)
        close(spill_file);
    spill_file = file;
    return sy_spill_create(spiller.device, spiller.pool, &board, 0, spill_file, &spill);
}

static int prepare(void)
{
    SY_TRY(sy_spill_prepare(spill, spill_bytes));
    for (int i = 0; i < 12000 && !sy_spill_is_prepared(spill); i++)
        sy_clock_sleep_until(sy_clock_now() + 10 * SY_NS_PER_MS);
    return sy_spill_is_prepared(spill)
               ? SY_OK
               : sy_error_set(SY_EDEADLINE, "host memory was not there within two minutes");
}

/* Recreates it, as at the start of a job. */
static int renew_spill(void)
{
    sy_spill_destroy(spill);
    spill = NULL;
    return make_spill();
}

static int open_rig(void)
{
    spill_bytes = SY_ALIGN_UP((uint64_t)(options.mib * 1048576), 4096);
    SY_TRY(open_sides());
    SY_TRY(make_spill());
    SY_TRY(sy_transfer_create(swapper.device, swapper.pool, -1, &transfer));
    SY_TRY(sy_stream_create(swapper.device, SY_STREAM_COMPUTE, &compute));
    sy_transfer_set_board(transfer, &board, 1);
    image = malloc(SWAP_BYTES);
    SY_TRY_ALLOC(image, "no memory for %llu bytes", (unsigned long long)SWAP_BYTES);
    memset(image, 0x5a, SWAP_BYTES);
    return SY_OK;
}

static uint64_t *memory(void)
{
    return sy_device_host_pointer(spiller.device, sy_pool_address(spiller.pool, 0));
}

static void fill(uint64_t seed)
{
    for (uint64_t i = 0; i < spill_bytes / 8; i++)
        memory()[i] = (i + seed) * 0x9e3779b97f4a7c15ull;
}

static bool is_filled(uint64_t seed)
{
    bool same = true;
    for (uint64_t i = 0; i < spill_bytes / 8; i++)
        same &= memory()[i] == (i + seed) * 0x9e3779b97f4a7c15ull;
    return same;
}

static int travel(sy_ns *took)
{
    bool done = false;
    sy_ns begun = sy_clock_now();
    while (!done)
        SY_TRY(sy_spill_step(spill, &done));
    *took = sy_clock_now() - begun;
    return SY_OK;
}

/* Time from the request to the last byte, including the allocation of host memory. */
static int go_out(sy_ns *took)
{
    sy_ns begun = sy_clock_now();
    SY_TRY(sy_spill_begin_spill(spill, 0, spill_bytes));
    SY_TRY(travel(took));
    *took = sy_clock_now() - begun;
    return SY_OK;
}

static int come_back(sy_ns *took)
{
    sy_spill_begin_restore(spill, 0);
    return travel(took);
}

/* ---- numbers ------------------------------------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, int n, double q)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return n ? values[SY_MIN((int)(q * n), n - 1)] : NAN;
}

/* Reports name_p50 and so on. */
static void count_times(struct gb_state *state, const char *name, double *values, int n)
{
    static const struct {
        const char *text;
        double q;
    } all[] = {{"min", 0}, {"p50", 0.5}, {"p99", 0.99}, {"max", 1}};
    for (size_t i = 0; i < SY_ARRAY_LEN(all); i++) {
        char text[64];
        snprintf(text, sizeof text, "%s_%s", name, all[i].text);
        gb_set_counter(state, text, quantile(values, n, all[i].q));
    }
}

static double link_ns(uint64_t bytes)
{
    return (double)bytes / options.gbps;
}

/* ---- there and back ----------------------------------------------------------------------------------- */

static void run_trip(struct gb_state *state, void *arg)
{
    static double out[MAX_SAMPLES], back[MAX_SAMPLES], both[MAX_SAMPLES];
    const bool is_cold = *(const bool *)arg;
    int n = 0;
    while (gb_keep_running(state)) {
        sy_ns out_ns = 0, back_ns = 0;
        fill((uint64_t)n);
        int status = is_cold ? renew_spill() : prepare();
        if (status == SY_OK)
            status = go_out(&out_ns);
        if (status == SY_OK) {
            memset(memory(), 0, spill_bytes);
            status = come_back(&back_ns);
        }
        if (status < 0)
            gb_fail(state, sy_error_text());
        else if (!is_filled((uint64_t)n))
            gb_fail(state, "what came back is not what was spilled");
        gb_set_iteration_seconds(state, (double)(out_ns + back_ns) / 1e9);
        if (n == MAX_SAMPLES)
            continue;
        out[n] = (double)out_ns / link_ns(spill_bytes);
        back[n] = (double)back_ns / link_ns(spill_bytes);
        both[n++] = (double)(out_ns + back_ns) / link_ns(2 * spill_bytes);
    }
    count_times(state, "over_link", both, n);
    gb_set_counter(state, "out_over_link_p50", quantile(out, n, 0.5));
    gb_set_counter(state, "back_over_link_p50", quantile(back, n, 0.5));
    gb_set_counter(state, "bytes", (double)spill_bytes);
    gb_set_counter(state, "n", n);
    gb_set_label(state, "bar: over_link <= 1.05");
}

/* ---- how late the machine is --------------------------------------------------------------------------- */

#define BEAT_NS (1 * SY_NS_PER_MS)

static struct {
    pthread_t thread;
    atomic_bool stop;
    _Atomic uint64_t worst_ns; /* since it was last read */
} metronome;

static void *keep_time(void *arg)
{
    (void)arg;
    for (sy_ns due = sy_clock_now(); !atomic_load(&metronome.stop); due += BEAT_NS) {
        sy_clock_sleep_until(due);
        sy_ns now = sy_clock_now(), late = now > due ? now - due : 0;
        if (late > atomic_load(&metronome.worst_ns))
            atomic_store(&metronome.worst_ns, late);
        due = SY_MAX(due, now - SY_MIN(now, BEAT_NS));
    }
    return NULL;
}

/* ---- an urgent swap beside it ------------------------------------------------------------------------- */

static struct {
    pthread_t thread;
    atomic_bool stop, travels, failed;
    bool back; /* the direction that is measured */
} traveller;

/* Moves the state out and back in a loop; `travels` is set while it goes in the measured direction. */
static void *travel_on(void *arg)
{
    (void)arg;
    while (!atomic_load(&traveller.stop)) {
        sy_ns took;
        atomic_store(&traveller.travels, !traveller.back);
        int status = go_out(&took);
        atomic_store(&traveller.travels, traveller.back);
        if (status == SY_OK)
            status = come_back(&took);
        atomic_store(&traveller.travels, false);
        if (status < 0) {
            atomic_store(&traveller.failed, true);
            break;
        }
    }
    return NULL;
}

static void beat(void *ctx)
{
    (void)ctx;
}

static int swap(double *ns)
{
    sy_ns begun = sy_clock_now();
    sy_transfer_begin(transfer);
    for (uint64_t g = 0; g < SWAP_GROUPS; g++) {
        struct sy_transfer_group group = {.pool_offset = spill_bytes + g * GROUP_BYTES,
                                          .bytes = GROUP_BYTES,
                                          .image = image + g * GROUP_BYTES,
                                          .after_group = -1};
        SY_TRY(sy_transfer_add(transfer, &group, 1));
    }
    int status = SY_OK;
    for (int g = 0; g < SWAP_GROUPS && status == SY_OK; g++)
        status = sy_transfer_wait(transfer, g, compute, beat, NULL);
    if (status == SY_OK)
        status = sy_stream_synchronize(compute);
    *ns = (double)(sy_clock_now() - begun);
    sy_transfer_end(transfer);
    return status;
}

/* Measures urgent swaps, with pauses in which the spill continues. Beside a spill, only swaps that began and ended during it count. */
static int take_swaps(bool beside, double *ns, double *late, int wanted, int *n)
{
    for (int i = 0; i < 50 * wanted && *n < wanted && !atomic_load(&traveller.failed); i++) {
        sy_clock_sleep_until(sy_clock_now() + (sy_ns)(3 + i % 17) * SY_NS_PER_MS);
        bool before = atomic_load(&traveller.travels);
        if (beside && !before)
            continue;
        atomic_store(&metronome.worst_ns, 0);
        SY_TRY(swap(&ns[*n]));
        late[*n] = (double)atomic_load(&metronome.worst_ns);
        *n += !beside || atomic_load(&traveller.travels);
    }
    return atomic_load(&traveller.failed) ? sy_error_set(SY_EDEVICE, "the spill failed") : SY_OK;
}

static int swaps_beside(double *ns, double *late, int wanted, int *n)
{
    atomic_store(&traveller.stop, false);
    if (pthread_create(&traveller.thread, NULL, travel_on, NULL) != 0)
        return sy_error_set(SY_ENOMEM_HOST, "cannot start a thread");
    int status = take_swaps(true, ns, late, wanted, n);
    atomic_store(&traveller.stop, true);
    pthread_join(traveller.thread, NULL);
    return status;
}

/* Does not sort: `late` belongs to `ns`. */
static void count_excuses(struct gb_state *state, const double *ns, const double *late, int n,
                          double usual)
{
    const double chunk_ns = link_ns(SY_LINK_CHUNK_BYTES);
    int over = 0, excused = 0;
    double worst = 0;
    for (int i = 0; i < n; i++) {
        bool is_over = ns[i] - usual > chunk_ns;
        over += is_over;
        excused += is_over && ns[i] - usual - late[i] <= chunk_ns;
        worst = SY_MAX(worst, late[i]);
    }
    gb_set_counter(state, "over_one_chunk", over);
    gb_set_counter(state, "of_these_machine_late", excused);
    gb_set_counter(state, "machine_late_max_ms", worst / 1e6);
}

static double alone[MAX_SAMPLES], beside[MAX_SAMPLES], alone_late[MAX_SAMPLES],
    beside_late[MAX_SAMPLES];

static int take_turns(int *n_alone, int *n_beside)
{
    const int rounds = 4;
    SY_TRY(prepare());
    atomic_store(&metronome.stop, false);
    if (pthread_create(&metronome.thread, NULL, keep_time, NULL) != 0)
        return sy_error_set(SY_ENOMEM_HOST, "cannot start a thread");
    int status = SY_OK;
    for (int r = 1; r <= rounds && status == SY_OK; r++) {
        int most = SY_MIN(options.swaps, MAX_SAMPLES) * r / rounds;
        status = take_swaps(false, alone, alone_late, most, n_alone);
        if (status == SY_OK)
            status = swaps_beside(beside, beside_late, most, n_beside);
    }
    atomic_store(&metronome.stop, true);
    pthread_join(metronome.thread, NULL);
    return status;
}

static void run_urgent(struct gb_state *state, void *arg)
{
    const double chunk_ns = link_ns(SY_LINK_CHUNK_BYTES);
    int n_alone = 0, n_beside = 0;
    traveller.back = *(const bool *)arg;
    while (gb_keep_running(state)) {
        sy_ns begun = sy_clock_now();
        if (take_turns(&n_alone, &n_beside) < 0)
            gb_fail(state, sy_error_text());
        gb_set_iteration_seconds(state, (double)(sy_clock_now() - begun) / 1e9);
    }
    if (n_beside < options.swaps / 2)
        gb_fail(state, "too few swaps met a spill; make it larger (--mib)");
    double usual = quantile(alone, n_alone, 0.5);
    count_excuses(state, beside, beside_late, n_beside, usual);
    for (int i = 0; i < n_beside; i++)
        beside[i] = (beside[i] - usual) / chunk_ns;
    for (int i = 0; i < n_alone; i++)
        alone[i] = (alone[i] - usual) / chunk_ns;
    count_times(state, "delay_chunks", beside, n_beside);
    gb_set_counter(state, "alone_max_chunks", quantile(alone, n_alone, 1));
    gb_set_counter(state, "alone_ms", usual / 1e6);
    gb_set_counter(state, "chunk_ms", chunk_ns / 1e6);
    gb_set_counter(state, "n", n_beside);
    gb_set_label(state, "bar: delay_chunks <= 1, but for what swaps alone vary by");
}

/* ---- main --------------------------------------------------------------------------------------------- */

static bool take_option(const char *word)
{
    const char *value = strchr(word, '=');
    if (!value++)
        return false;
    if (strncmp(word, "--mib=", 6) == 0)
        options.mib = atof(value);
    else if (strncmp(word, "--device=", 9) == 0)
        options.device = value;
    else if (strncmp(word, "--trips=", 8) == 0)
        options.trips = atoi(value);
    else if (strncmp(word, "--swaps=", 8) == 0)
        options.swaps = atoi(value);
    else
        return false;
    return options.mib >= 1 && options.mib < 1e6 && options.trips > 0 && options.swaps > 0;
}

int main(int argc, char **argv)
{
    static const bool out = false, back = true, warm = false, cold = true;
    gb_initialize(&argc, argv);
    for (int i = 1; i < argc; i++)
        if (!take_option(argv[i])) {
            fprintf(stderr, "usage: spill [--device=emulated,link-gbps=2] [--mib=954] [--trips=3] "
                            "[--swaps=40] [--benchmark_...]\n");
            return 2;
        }
    if (open_rig() < 0) {
        fprintf(stderr, "spill: %s\n", sy_error_text());
        return 1;
    }
    gb_add_context("device", sy_device_get_properties(spiller.device)->name);
    struct gb_options trips = {
        .iterations = options.trips, .manual_time = true, .milliseconds = true};
    struct gb_options swaps = {.iterations = 1, .manual_time = true, .milliseconds = true};
    gb_register("spill/trip", run_trip, (void *)(uintptr_t)&warm, &trips);
    gb_register("spill/cold", run_trip, (void *)(uintptr_t)&cold, &trips);
    gb_register("spill/urgent/out", run_urgent, (void *)(uintptr_t)&out, &swaps);
    gb_register("spill/urgent/back", run_urgent, (void *)(uintptr_t)&back, &swaps);
    return gb_run() > 0 ? 0 : 1;
}
