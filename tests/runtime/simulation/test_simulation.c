/* Core, supervisor and scheduler as they are, with simulated workers, clock, processes and storage, in one process and one thread (tests/simulation/).
 *
 *     build/tests/test_simulation                              # 12 walks, always the same
 *     SY_WALKS=1000 SY_SEED=$RANDOM build/tests/test_simulation  # others
 *     SY_WALKS=1 SY_SEED=N build/tests/test_simulation         # one that failed, again
 *     SY_TRACE=1 ...                                           # with all that happens */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <event2/event.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/rigs/seed.h"
#include "tests/simulation/sim_front.h"
#include "tests/simulation/sim_world.h"

#define EVENTS_A_WALK 6000
#define PATIENCE_NS   (900 * SY_NS_PER_S) /* from the last fault to the last answer */
#define LINES         400
#define LINE_BYTES    200
#ifdef SY_SANITIZED
#define WALKS 8
#else
#define WALKS 40
#endif

/* Walks that once failed. What each of them showed: tests/simulation/README.md */
static const uint64_t failed_once[] = {1000, 50134, 1055, 700663, 20309, 20069};

struct sim_world sim;

static char lines[LINES][LINE_BYTES];
static uint64_t n_lines;
static bool traces;

/* ---- chance, and words -------------------------------------------------------------------------- */

uint64_t sim_draw(uint64_t n)
{
    return (seed_next(&sim.random) >> 16) % n;
}

sy_ns sim_time(sy_ns usual_ns)
{
    uint64_t roll = sim_draw(100);
    sy_ns most = roll < 80 ? usual_ns : roll < 98 ? 4 * usual_ns : 40 * usual_ns;
    return 1 + sim_draw(most);
}

void sim_say(const char *format, ...)
{
    char *line = lines[n_lines++ % LINES];
    int n = snprintf(line, LINE_BYTES, "%14.6f ", (double)sim_os_now() / 1e9);
    va_list list;
    va_start(list, format);
    vsnprintf(line + n, LINE_BYTES - (size_t)n, format, list);
    va_end(list);
    if (traces)
        fprintf(stderr, "%s\n", line);
}

void sim_fail(const char *format, ...)
{
    va_list list;
    for (uint64_t i = n_lines > LINES ? n_lines - LINES : 0; i < n_lines && !traces; i++)
        fprintf(stderr, "%s\n", lines[i % LINES]);
    fprintf(stderr, "simulation: ");
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\nthis walk again: SY_WALKS=1 SY_SEED=%llu build/tests/test_simulation\n",
            (unsigned long long)sim.seed);
    _exit(1);
}

/* ---- a walk ------------------------------------------------------------------------------------- */

static sy_ns next(void *world)
{
    (void)world;
    if (sim_os_was_sent())
        sim_workers_were_sent();
    sy_ns workers = sim_workers_next(), storage = sim_storage_next();
    sy_ns outside = SY_MIN(workers, storage), clients = SY_MIN(sim.client_ns, sim_front_next());
    return SY_MIN(outside, clients);
}

static void happen(void *world)
{
    sy_ns workers = sim_workers_next(), storage = sim_storage_next(), front = sim_front_next();
    (void)world;
    sim.n_events++;
    sim_workers_beat();
    if (front < storage && front < workers && front < sim.client_ns) {
        sim_front_happen();
    } else if (storage <= workers && storage <= sim.client_ns) {
        sim_storage_happen();
    } else if (workers <= sim.client_ns) {
        sim_workers_happen();
    } else {
        sim_client_acts();
        sim.client_ns =
            sim_os_now() + sim_time(sim.was_refused ? 20 * SY_NS_PER_MS : 200 * SY_NS_PER_US);
    }
}

static void look(void *world)
{
    (void)world;
    sim_workers_beat();
    if (!sim.core)
        return;
    sim_clients_look();
    sim_front_look();
    if (sim.n_events >= EVENTS_A_WALK && !sim.calm)
        event_base_loopbreak(sim.rig.base);
}

static void spins(void *world)
{
    (void)world;
    sim_fail("the loop turns without end");
}

static uint64_t draw(void *world, uint64_t n)
{
    (void)world;
    return sim_draw(n);
}

static void open_world(uint64_t seed)
{
    static const uint64_t faults[] = {0, 1000, 200, 60, 20};
    static const struct sim_os_ops no_ops;
    sim =
        (struct sim_world){.seed = seed, .random = seed * 2654435761u + 1, .client_ns = SIM_NEVER};
    for (int i = 0; i < 8; i++)
        (void)sim_draw(2);
    sim.unified = sim_draw(3) > 0;
    sim.fault_one_in = faults[sim_draw(SY_ARRAY_LEN(faults))];
    sim.n_workers = 2 + (int)sim_draw(4);
    struct sim_os_ops os = no_ops;
    os = (struct sim_os_ops){.spawned = sim_worker_spawned,
                             .killed = sim_worker_killed,
                             .next = next,
                             .happen = happen,
                             .look = look,
                             .spins = spins,
                             .draw = draw};
    n_lines = 0;
    sim_os_open(&os);
    struct sy_core_config config = {.device = sim.unified ? "host" : "emulated",
                                    .pool_bytes = (12 + sim_draw(60)) * 8192,
                                    .n_workers = sim.n_workers,
                                    .hang_timeout_ns = 1500 * SY_NS_PER_MS,
                                    .max_delay_ns = sim_draw(3) ? 0 : 500 * SY_NS_PER_US,
                                    .fetch_heads = sim_draw(2),
                                    .whole_models = sim_draw(8) == 0};
    sim.has_front = seed % 2; /* the others are as they were before there were any */
    sim_say("walk %llu: %s, %d workers, a fault in %llu, pool of %llu bytes",
            (unsigned long long)seed, config.device, sim.n_workers,
            (unsigned long long)sim.fault_one_in, (unsigned long long)config.pool_bytes);
    core_rig_open_with(&sim.rig, &config);
    sim.core = sim.rig.core;
    SIM_CHECK(sy_shared_memory_map(&sim.pool_memory, dup(sim.core->pool_fd),
                                   sy_pool_size(sim.core->pool), true) == SY_OK,
              "%s", sy_error_text());
    sim.pool = sim.pool_memory.base;
    sim.client_ns = sim_os_now();
    sim_clients_begin();
    if (sim.has_front)
        sim_front_open(seed);
}

static void run_until(bool (*holds)(void), const char *what)
{
    sy_ns end = sim_os_now() + PATIENCE_NS;
    while (!holds()) {
        SIM_CHECK(sim_os_now() < end, "%s: not within %.0f s without faults", what,
                  (double)PATIENCE_NS / 1e9);
        event_base_loop(sim.rig.base, EVLOOP_ONCE);
    }
}

static bool is_over(void)
{
    return sim.over;
}

static void on_drained(void *ctx)
{
    (void)ctx;
    sim.over = true;
}

static bool models_are_gone(void)
{
    bool any = false;
    sim_clients_remove_models();
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        any |= sim.core->models[i].used;
    return !any && sy_sched_n_started(sim.core->sched) == 0;
}

/* No faults any more: everything comes to its end, and nothing is held. */
static void calm_down(void)
{
    sim.calm = true;
    sim.client_ns = SIM_NEVER;
    for (struct sim_worker *w = sim.workers; w < sim.workers + sim.n_workers; w++)
        if (w->closed && w->pid && !w->exits)
            sim_worker_killed(NULL, w->pid);
    if (sim_draw(3)) {
        sim_clients_end_jobs();
        sim_front_calm();
        run_until(sim_front_is_over, "connections");
        run_until(sim_clients_have_all, "answers");
        run_until(models_are_gone, "models go");
        uint64_t used =
            sy_pool_size(sim.core->pool) - sy_pool_free_bytes(sy_sched_pool(sim.core->sched));
        SIM_CHECK(used <= 64 * FAKE_WORKSPACE, "%llu bytes of the pool are nobody's",
                  (unsigned long long)used);
        SIM_CHECK(sy_sched_is_valid(sim.core->sched), "the scheduler's books are wrong");
    }
    sy_core_drain(sim.core, 5 * SY_NS_PER_S, on_drained, NULL);
    run_until(is_over, "the drain");
}

static void close_world(void)
{
    sim_front_close();
    SIM_CHECK(sy_slab_used_bytes(sim.core->slab) == sim.slab_bytes,
              "%llu bytes of the slab are no client's",
              (unsigned long long)sy_slab_used_bytes(sim.core->slab));
    SIM_CHECK(sim_os_n_processes() == 0, "%d processes are left", sim_os_n_processes());
    sy_shared_memory_finish(&sim.pool_memory);
    core_rig_close(&sim.rig);
    sim_clients_finish();
    SIM_CHECK(sim.slab_bytes == 0, "%llu bytes of the slab are nobody's",
              (unsigned long long)sim.slab_bytes);
    sim_os_close();
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct {
    uint64_t events, turns, faults, answered, failed, canceled, refused, steps;
    uint64_t front_answered[3], front_refused, front_ended, front_left, front_continuations;
} total;

static void walk(uint64_t seed)
{
    open_world(seed);
    event_base_dispatch(sim.rig.base);
    calm_down();
    total.turns += sim_os_n_turns();
    close_world();
    total.events += sim.n_events;
    total.faults += sim.n_faults;
    total.answered += sim.n_answered;
    total.failed += sim.n_failed;
    total.canceled += sim.n_canceled;
    total.refused += sim.n_refused;
    total.steps += sim.n_steps;
    for (int i = 0; i < 3; i++)
        total.front_answered[i] += sim.n_front_answered[i];
    total.front_refused += sim.n_front_refused;
    total.front_ended += sim.n_front_ended;
    total.front_left += sim.n_front_left;
    total.front_continuations += sim.n_front_continuations;
}

/* ---- the tests ---------------------------------------------------------------------------------- */

static void test_walks(void **state)
{
    const char *text = getenv("SY_WALKS");
    uint64_t seed = seed_of_run(1000), n = text ? strtoull(text, NULL, 0) : WALKS;
    (void)state;
    double begun = seconds_now();
    for (uint64_t i = 0; i < n; i++)
        walk(seed + i);
    double took = seconds_now() - begun;
    printf(
        "simulation: %llu walks, %llu events (%.0f a minute), %llu turns of the loop, %llu faults; "
        "requests: %llu answered, %llu failed, %llu canceled, %llu refused; %llu steps\n",
        (unsigned long long)n, (unsigned long long)total.events, (double)total.events / took * 60,
        (unsigned long long)total.turns, (unsigned long long)total.faults,
        (unsigned long long)total.answered, (unsigned long long)total.failed,
        (unsigned long long)total.canceled, (unsigned long long)total.refused,
        (unsigned long long)total.steps);
    printf("simulation: on connections: answered %llu over HTTP, %llu RPC, %llu gRPC; %llu "
           "refused, %llu left without an "
           "answer; %llu connections ended by a server; %llu CONTINUATION frames\n",
           (unsigned long long)total.front_answered[0], (unsigned long long)total.front_answered[1],
           (unsigned long long)total.front_answered[2], (unsigned long long)total.front_refused,
           (unsigned long long)total.front_left, (unsigned long long)total.front_ended,
           (unsigned long long)total.front_continuations);
    assert_true(n == 1 ||
                (total.front_answered[0] > 0 && total.front_answered[1] > 0 &&
                 total.front_answered[2] > 0 && total.front_ended > 0 && total.front_left > 0 &&
                 total.front_continuations > 0 && total.answered > 0 && total.steps > 0 &&
                 total.canceled > 0)); /* it walked */
}

static void test_what_failed_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(failed_once); i++)
        walk(failed_once[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_walks),
                                       cmocka_unit_test(test_what_failed_once)};
    traces = getenv("SY_TRACE") != NULL;
    if (!getenv("SY_LOG"))
        sy_log_show(SY_LOG_ERROR, false), sy_log_threshold = SY_LOG_ERROR;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
