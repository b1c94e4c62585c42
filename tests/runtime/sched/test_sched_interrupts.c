/* The scheduler: requests that give way to more urgent ones, and that are refused for what is in front of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/fakes/sched_world.h"

static sy_ns each_takes_ns = 10 * SY_NS_PER_MS;

static int batch_of(struct world *w, int model, int64_t batch, int class_, sy_ns deadline_ns)
{
    struct sy_sched_request r = {.id = w->next_request,
                                 .model = model,
                                 .batch = batch,
                                 .class_ = class_,
                                 .deadline_ns = deadline_ns,
                                 .duration = {each_takes_ns, 0}};
    int status = sy_sched_request(w->s, &r, NULL);
    w->next_request += status == SY_OK;
    world_settle(w);
    return status;
}

static int request_of(struct world *w, int model, int class_, sy_ns deadline_ns)
{
    return batch_of(w, model, 1, class_, deadline_ns);
}

/* One that comes before what is prefetched may need the room above its own workspace; the prefetched one then gets a larger one again. */
static void test_workspace_shrinks_below_what_is_prefetched(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 100, 2);
    w.check_fifo = false;
    for (int m = 0; m < N_MODELS; m++)
        world_all_prepared(&w, m, 8);
    assert_int_equal(batch_of(&w, 3, 8, 2, 0), SY_OK); /* runs: 12 MiB and 8 */
    assert_int_equal(batch_of(&w, 0, 8, 2, 0), SY_OK); /* is prefetched: 16 MiB */
    assert_int_equal(request_of(&w, 4, 2, 1000000 * SY_NS_PER_MS), SY_OK); /* 80 MiB and 1 */
    world_drain(&w);
    for (int id = 1; id <= 3; id++) {
        assert_int_equal(w.n_ends[id], 1);
        assert_int_equal(w.end_status[id], SY_OK);
    }
    sy_sched_destroy(w.s);
}

static void test_urgent_request_interrupts(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    w.check_fifo = false;
    each_takes_ns = 100 * SY_NS_PER_MS; /* long enough to be stopped in its first half */
    assert_int_equal(request_of(&w, 0, 2, 0), SY_OK); /* runs */
    assert_int_equal(request_of(&w, 1, 2, 0), SY_OK); /* is prefetched */
    assert_int_equal(w.n_interrupts, 0);              /* its equal waits */
    assert_int_equal(request_of(&w, 2, 0, 0), SY_OK);
    assert_int_equal(w.n_interrupts, 1);
    assert_int_equal(w.n_runs, 1);
    for (int i = 0; i < N_WORKERS; i++)
        if (w.workers[i] == RUNNING && w.interrupted[i])
            world_finish_run(&w, i, SY_ECANCELED);
    for (int i = 0; i < 50 && w.n_ends[3] == 0; i++)
        world_deliver(&w, false);
    assert_int_equal(w.n_ends[3], 1); /* the urgent one first, then who was interrupted */
    assert_int_equal(w.n_ends[1], 0);
    assert_int_equal(w.n_ends[2], 0);
    for (int i = 0; i < 50 && w.n_ends[1] == 0; i++)
        world_deliver(&w, false);
    assert_int_equal(w.end_status[1], SY_OK);
    assert_int_equal(w.n_ends[2], 0);
    world_drain(&w);
    each_takes_ns = 10 * SY_NS_PER_MS;
    sy_sched_destroy(w.s);
}

/* Beside the urgent one if its workspace has room there; else that one has the room, and the other starts again. */
static void interrupt_in(uint64_t pool_mib, int n_continued)
{
    static struct world w;
    world_make(&w, true, pool_mib, 2);
    w.check_fifo = false;
    w.stops_at = 7;
    each_takes_ns = 100 * SY_NS_PER_MS; /* so that it gives way even if it must start again */
    assert_int_equal(request_of(&w, 0, 2, 0), SY_OK); /* 16 MiB and 1 */
    for (int i = 0; i < 50 && world_n_running(&w) == 0; i++)
        world_deliver(&w, false);
    assert_int_equal(request_of(&w, 4, 0, 0), SY_OK); /* 80 MiB and 1 */
    assert_int_equal(w.n_interrupts, 1);
    for (int i = 0; i < N_WORKERS; i++)
        if (w.workers[i] == RUNNING && w.interrupted[i])
            world_finish_run(&w, i, SY_ECANCELED);
    world_drain(&w);
    for (int id = 1; id <= 2; id++)
        assert_int_equal(w.end_status[id], SY_OK);
    assert_int_equal(w.n_continued, n_continued);
    each_takes_ns = 10 * SY_NS_PER_MS;
    sy_sched_destroy(w.s);
}

static void test_interrupted_goes_on_where_it_stopped(void **state)
{
    (void)state;
    interrupt_in(400, 1);
    interrupt_in(82, 1);
    interrupt_in(81, 0);
}

/* Where the urgent one's room was that of its workspace, it starts over and takes all of its time, not only what was left. */
static void interrupted_leaves(uint64_t pool_mib, sy_ns left_ns)
{
    static struct world w;
    world_make(&w, true, pool_mib, 2);
    w.check_fifo = false;
    w.stops_at = 7;
    w.left = (struct sy_duration){70 * SY_NS_PER_MS, 0};
    each_takes_ns = 100 * SY_NS_PER_MS;
    assert_int_equal(request_of(&w, 0, 2, 0), SY_OK);
    for (int i = 0; i < 50 && world_n_running(&w) == 0; i++)
        world_deliver(&w, false);
    assert_int_equal(request_of(&w, 4, 0, 0), SY_OK);
    for (int i = 0; i < N_WORKERS; i++)
        if (w.workers[i] == RUNNING && w.interrupted[i]) {
            w.now += 90 * SY_NS_PER_MS; /* of these it waited for a copy that was under way */
            sy_sched_set_time(w.s, w.now);
            world_finish_run(&w, i, SY_ECANCELED);
        }
    for (int i = 0; i < 50 && w.n_ends[2] == 0 && world_n_running(&w) == 0; i++)
        world_deliver(&w, false);
    sy_ns all_ns = left_ns + each_takes_ns; /* the urgent one's, of which some has passed */
    assert_in_range(sy_sched_busy_ns(w.s, 0), all_ns - 25 * SY_NS_PER_MS, all_ns);
    world_drain(&w);
    each_takes_ns = 10 * SY_NS_PER_MS;
    sy_sched_destroy(w.s);
}

static void test_what_is_left_goes_by_layers(void **state)
{
    (void)state;
    interrupted_leaves(400, 70 * SY_NS_PER_MS);
    interrupted_leaves(81, 100 * SY_NS_PER_MS);
}

static int worker_of(const struct world *w, uint64_t request)
{
    for (int i = 0; i < N_WORKERS; i++)
        if (w->workers[i] == RUNNING && w->request_of[i] == request)
            return i;
    return -1;
}

/* Always within the same layer: it gives way until as much was thrown away as it has before it (Q5), however many more urgent ones come. */
static void test_stopped_within_a_layer_gets_through(void **state)
{
    static struct world w;
    (void)state;
    world_make(&w, true, 400, 1);
    w.check_fifo = false;
    w.stops_at = 7;
    w.left = (struct sy_duration){100 * SY_NS_PER_MS, 0};
    each_takes_ns = 100 * SY_NS_PER_MS;
    assert_int_equal(request_of(&w, 0, 2, 0), SY_OK);
    int n = 0;
    for (; n < 30; n++) {
        for (int i = 0; i < 50 && worker_of(&w, 1) < 0; i++)
            world_deliver(&w, false);
        int worker = worker_of(&w, 1);
        assert_true(worker >= 0);
        w.now += 30 * SY_NS_PER_MS;
        world_settle(&w);
        assert_int_equal(request_of(&w, 4, 0, 0), SY_OK);
        if (!w.interrupted[worker])
            break;
        world_finish_run(&w, worker, SY_ECANCELED);
    }
    assert_in_range(n, 2,
                    4); /* 30 of 100 ms each; the first two were free as far as one could know */
    world_drain(&w);
    assert_int_equal(w.end_status[1], SY_OK);
    each_takes_ns = 10 * SY_NS_PER_MS;
    sy_sched_destroy(w.s);
}

static void test_late_by_prediction_is_refused(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    w.check_fifo = false;
    sy_ns now = w.now;
    assert_int_equal(request_of(&w, 0, 1, 0), SY_OK);
    assert_int_equal(request_of(&w, 1, 1, now + 5 * SY_NS_PER_MS), SY_EDEADLINE);
    assert_non_null(strstr(sy_error_text(), "ms"));
    assert_int_equal(request_of(&w, 1, 1, now + 100 * SY_NS_PER_MS), SY_OK);
    assert_int_equal(request_of(&w, 2, 1, now + 60 * SY_NS_PER_MS), SY_OK); /* before the other */
    uint64_t first = w.next_request - 1;
    for (int i = 0; i < 60 && w.n_ends[first] == 0; i++)
        world_deliver(&w, false);
    assert_int_equal(w.n_ends[first - 1], 0);
    world_drain(&w);
    sy_sched_destroy(w.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workspace_shrinks_below_what_is_prefetched),
        cmocka_unit_test(test_urgent_request_interrupts),
        cmocka_unit_test(test_interrupted_goes_on_where_it_stopped),
        cmocka_unit_test(test_what_is_left_goes_by_layers),
        cmocka_unit_test(test_stopped_within_a_layer_gets_through),
        cmocka_unit_test(test_late_by_prediction_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
