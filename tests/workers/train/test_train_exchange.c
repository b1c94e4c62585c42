/* What ranks exchange: which iteration's mean each takes, how far one may be ahead of another, and that all make the same calls. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "workers/train/train_exchange.h"

#define N_PARTS      5
#define SHARED_BY    4
#define N_RANKS      2
#define N_ITERATIONS 9
#define MOST_CALLS   400

/* ---- a trainer of five parts, the third of them a statistic ------------------------------------------------------- */

static const int ready_steps[N_PARTS] = {3, 0, 1, 3, 2};
static const uint64_t sizes[N_PARTS] = {3, 1, 2, 700000, 40};
static float parts[N_PARTS][700000];

static int n_parts(const struct sy_trainer *trainer)
{
    (void)trainer;
    return N_PARTS;
}

static void shared_part(const struct sy_trainer *trainer, int i, struct sy_shared_part *out)
{
    (void)trainer;
    *out = (struct sy_shared_part){
        .values = parts[i], .n = sizes[i], .is_gradient = i != 2, .ready_step = ready_steps[i]};
}

static int shared_by(const struct sy_trainer *trainer)
{
    (void)trainer;
    return SHARED_BY;
}

static const struct sy_trainer_ops trainer_ops = {.name = "fake",
                                                  .n_shared_parts = n_parts,
                                                  .shared_part = shared_part,
                                                  .shared_by_step = shared_by};

static float own_value(uint64_t iteration, int part)
{
    return (float)(1000 * iteration + 10 * (uint64_t)part);
}

/* ---- another rank, which has twice what this one has ---------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int n_calls, n_allowed, n_waiting, fail_at;
static uint64_t calls[MOST_CALLS]; /* floats; 0: numbers */

static int join_in(uint64_t n)
{
    pthread_mutex_lock(&lock);
    n_waiting++;
    pthread_cond_broadcast(&changed);
    while (n_calls >= n_allowed)
        pthread_cond_wait(&changed, &lock);
    n_waiting--;
    calls[n_calls++] = n;
    int fails = fail_at && n_calls == fail_at;
    pthread_mutex_unlock(&lock);
    return fails ? sy_error_set(SY_EPEER, "rank 1 is gone") : SY_OK;
}

static int sum(float *values, float *scratch, uint64_t n)
{
    SY_TRY(join_in(n));
    memcpy(scratch, values, n * sizeof *values);
    for (uint64_t i = 0; i < n; i++)
        values[i] += 2 * scratch[i];
    return SY_OK;
}

static int sum_doubles(double *values, int n)
{
    SY_TRY(join_in(0));
    for (int i = 0; i < n; i++)
        values[i] *= 3;
    return SY_OK;
}

static const struct sy_ranks_ops ranks_ops = {
    .bytes = sizeof ranks_ops, .name = "fake", .sum = sum, .sum_doubles = sum_doubles};

static int n_left; /* waits that were begun, and not ended */

static void count_leave(void *ctx)
{
    (void)ctx;
    pthread_mutex_lock(&lock);
    n_left++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void count_enter(void *ctx)
{
    (void)ctx;
    pthread_mutex_lock(&lock);
    n_left--;
    pthread_mutex_unlock(&lock);
}

static const struct sy_rank_gate gate = {.enter = count_enter, .leave = count_leave};
static const struct sy_ranks ranks = {.ops = &ranks_ops, .n = N_RANKS, .gate = &gate};

static void allow(int n)
{
    pthread_mutex_lock(&lock);
    n_allowed = n;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static struct sy_exchange *open_exchange(int staleness, int allowed)
{
    struct sy_exchange *x;
    n_calls = n_waiting = fail_at = 0;
    n_allowed = allowed;
    assert_int_equal(
        sy_exchange_create(&ranks, staleness, SY_EXCHANGE_HOST, &trainer_ops, NULL, &x), SY_OK);
    return x;
}

/* ---- an iteration ------------------------------------------------------------------------------------------------- */

static void make_gradients(struct sy_exchange *x, uint64_t iteration)
{
    sy_exchange_begin(x);
    for (int step = 0; step < SHARED_BY; step++) {
        assert_int_equal(sy_exchange_before(x, step), SY_OK);
        for (int p = 0; p < N_PARTS; p++)
            for (uint64_t i = 0; ready_steps[p] == step && i < sizes[p]; i++)
                parts[p][i] = own_value(iteration, p);
        assert_int_equal(sy_exchange_after(x, step), SY_OK);
    }
}

static int iterate(struct sy_exchange *x, uint64_t iteration, double numbers[SY_EXCHANGE_NUMBERS])
{
    make_gradients(x, iteration);
    SY_TRY(sy_exchange_before(x, SHARED_BY));
    SY_TRY(sy_exchange_after(x, SHARED_BY));
    bool is_there;
    numbers[0] = (double)iteration;
    numbers[1] = iteration == 1;
    SY_TRY(sy_exchange_agree(x, numbers, &is_there));
    if (!is_there)
        numbers[0] = -1;
    return SY_OK;
}

static void check_iteration(uint64_t iteration, int staleness, const double *numbers)
{
    bool has_mean = iteration > (uint64_t)staleness;
    uint64_t of = has_mean ? iteration - (uint64_t)staleness : iteration;
    for (int p = 0; p < N_PARTS; p++) {
        float own = own_value(of, p), expected = has_mean ? own * 3 / N_RANKS : p == 2 ? own : 0;
        assert_true(parts[p][0] == expected && parts[p][sizes[p] - 1] == expected);
    }
    assert_true(numbers[0] ==
                (has_mean ? 3 * (double)of : -1)); /* nothing that others do not know */
    assert_true(!has_mean || numbers[1] == (of == 1 ? 3 : 0));
}

/* Iteration t has the mean of iteration t - S, whatever S is; nothing of its own leaks through. */
static void test_means_are_of_so_many_iterations_before(void **state)
{
    static const int staleness[] = {0, 1, 2, 5, SY_EXCHANGE_STALENESS_MOST};
    (void)state;
    for (size_t s = 0; s < sizeof staleness / sizeof *staleness; s++) {
        struct sy_exchange *x = open_exchange(staleness[s], MOST_CALLS);
        for (uint64_t t = 1; t <= 2 * N_ITERATIONS; t++) {
            double numbers[SY_EXCHANGE_NUMBERS];
            assert_int_equal(iterate(x, t, numbers), SY_OK);
            check_iteration(t, staleness[s], numbers);
        }
        sy_exchange_destroy(x);
    }
}

static uint64_t n_floats(void)
{
    uint64_t n = 0;
    for (int p = 0; p < N_PARTS; p++)
        n += sizes[p];
    return n;
}

/* RK1: all that was begun is added up before a rank leaves, in the same order as by a rank that was never ahead. */
static void test_every_rank_makes_the_same_calls(void **state)
{
    static uint64_t first[MOST_CALLS];
    int n_first = 0;
    (void)state;
    for (int staleness = 0; staleness <= 3; staleness++) {
        struct sy_exchange *x = open_exchange(staleness, MOST_CALLS);
        uint64_t floats = 0;
        for (uint64_t t = 1; t <= N_ITERATIONS; t++) {
            double numbers[SY_EXCHANGE_NUMBERS];
            assert_int_equal(iterate(x, t, numbers), SY_OK);
        }
        sy_exchange_destroy(x);
        for (int i = 0; i < n_calls; i++)
            floats += calls[i];
        assert_true(floats == N_ITERATIONS * n_floats());
        if (staleness == 0)
            memcpy(first, calls, sizeof(uint64_t) * (size_t)(n_first = n_calls));
        assert_int_equal(n_calls, n_first);
        assert_memory_equal(calls, first, sizeof(uint64_t) * (size_t)n_calls);
    }
}

struct runner {
    struct sy_exchange *exchange;
    uint64_t done;
    int status;
};

static void *run_iterations(void *runner)
{
    struct runner *r = runner;
    for (uint64_t t = 1; t <= N_ITERATIONS && r->status == SY_OK; t++) {
        double numbers[SY_EXCHANGE_NUMBERS];
        r->status = iterate(r->exchange, t, numbers);
        pthread_mutex_lock(&lock);
        r->done = t;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Another rank stands still from the first call on: this one goes on for S iterations and no further, until it does. */
static void test_one_that_stands_still_is_left_behind_so_far(void **state)
{
    (void)state;
    for (int staleness = 0; staleness <= 3; staleness++) {
        struct runner r = {.exchange = open_exchange(staleness, 0)};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, run_iterations, &r), 0);
        pthread_mutex_lock(&lock);
        while (n_waiting == 0 || (n_left == 0 && r.done <= (uint64_t)staleness))
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        usleep(20000); /* for one that would not wait */
        pthread_mutex_lock(&lock);
        assert_int_equal(n_calls, 0);
        assert_int_equal(n_left, 1);         /* it waits outside of its gate */
        assert_int_equal(r.done, staleness); /* for a sum that cannot be there */
        pthread_mutex_unlock(&lock);
        allow(MOST_CALLS);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(r.status, SY_OK);
        assert_int_equal(r.done, N_ITERATIONS);
        sy_exchange_destroy(r.exchange);
    }
}

/* A sum that fails ends the run with its words; what was begun behind it is not waited for. */
static void test_a_rank_that_is_gone(void **state)
{
    (void)state;
    for (int staleness = 0; staleness <= 3; staleness++)
        for (int at = 1; at <= 6; at++) {
            struct runner r = {.exchange = open_exchange(staleness, MOST_CALLS)};
            pthread_mutex_lock(&lock);
            fail_at = at;
            pthread_mutex_unlock(&lock);
            double numbers[SY_EXCHANGE_NUMBERS];
            for (uint64_t t = 1; t <= N_ITERATIONS && r.status == SY_OK; t++)
                r.status = iterate(r.exchange, t, numbers);
            assert_int_equal(r.status, SY_EPEER);
            assert_string_equal(sy_error_text(), "rank 1 is gone");
            sy_exchange_destroy(r.exchange);
            assert_int_equal(n_calls, at);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means_are_of_so_many_iterations_before),
        cmocka_unit_test(test_every_rank_makes_the_same_calls),
        cmocka_unit_test(test_one_that_stands_still_is_left_behind_so_far),
        cmocka_unit_test(test_a_rank_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
