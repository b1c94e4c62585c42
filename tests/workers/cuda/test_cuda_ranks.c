/* Ranks on devices: gradients that lie there are summed over ranks by NCCL or through host memory, with the same bits. Ranks are processes, each with the CUDA
 * trainer on the CPU; NCCL is libnccl-fake.so (tests/on_cpu/fake_nccl.c). */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/on_cpu/fake_math.h"
#include "tests/on_cpu/fake_side.h"
#include "tests/rigs/rank_rig.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/cuda/ranks/device_exchange.h"
#include "workers/cuda/ranks/ranks_nccl.h"
#include "workers/cuda/train/cuda_trainer.h"
#include "workers/train/train_exchange.h"
#include "workers/train/train_run.h"

#define MODEL        "tests/data/train_step/model.onnx"
#define STEPS        4
#define STATE_FLOATS 65536
#define TEXT_BYTES   512

static char nccl_path[4200], still_path[4200];
static char normed[4200],
    *model = normed; /* with a batch norm: it shares statistics; or one without, in ob_path */

/* What all processes of a test see. */
static struct shared {
    float states[RANK_RIG_MOST][STATE_FLOATS];
    uint64_t n_floats[RANK_RIG_MOST], steps[RANK_RIG_MOST], first_step[RANK_RIG_MOST];
    char errors[RANK_RIG_MOST][TEXT_BYTES];
    int calls, n_open[RANK_RIG_MOST]; /* of the side */
} * shared;

struct order {
    const char *way;  /* "nccl", "host" */
    const char *more; /* keys of the job, with a comma in front */
    int steps;
    int victim;                   /* the rank that what is below happens to; -1: to each */
    const char *variable, *value; /* set there; NULL: none */
    int side_fails;               /* its n-th call of the side fails; 0: none */
    int dies_after;               /* steps, then it is killed; 0: not */
    int hurried;                  /* the rank that NCCL may keep for a second only; -1: none */
    bool stands;                  /* for a while, in front of its third step */
};

/* ---- a rank ------------------------------------------------------------------------------------------------- */

static struct sy_trainer *trainer; /* the run's: caught where it is made */

static int create_trainer(const struct sy_graph *graph, const struct sy_train_options *options,
                          struct sy_trainer **out)
{
    int status = sy_cuda_trainer.create(graph, options, out);
    trainer = status == SY_OK ? *out : NULL;
    return status;
}

static void keep_state(const struct sy_trainer_ops *ops, int rank)
{
    uint64_t at = 0;
    for (int i = 0; i < ops->n_state_tensors(trainer); i++) {
        struct sy_state_tensor tensor;
        ops->state_tensor(trainer, i, &tensor);
        if (at + tensor.bytes / sizeof(float) > STATE_FLOATS ||
            ops->get_state(trainer, i, &shared->states[rank][at]) < 0)
            abort();
        at += tensor.bytes / sizeof(float);
    }
    shared->n_floats[rank] = at;
}

/* Long enough for another rank to come as far as it can. */
static void stand_still(void)
{
    FILE *file = fopen(still_path, "w");
    if (!file || fclose(file) != 0)
        abort();
    usleep(300000);
    unlink(still_path);
}

static int train(struct sy_train_run *run, const struct order *order, int rank)
{
    enum sy_train_state state = SY_TRAIN_RUNNING;
    bool is_victim = order->victim < 0 || order->victim == rank, stood = false;
    shared->first_step[rank] = sy_train_run_step(run);
    while (state == SY_TRAIN_RUNNING) {
        uint64_t step = sy_train_run_step(run);
        if (is_victim && order->dies_after && step == (uint64_t)order->dies_after)
            raise(SIGKILL);
        if (is_victim && order->stands && step == 2 && !stood)
            stand_still();
        stood |= step == 2;
        SY_TRY(sy_train_run_advance(run, &state));
    }
    shared->steps[rank] = sy_train_run_step(run);
    return SY_OK;
}

static char *map(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        abort();
    return at;
}

static int run_job(const struct order *order, const struct sy_ranks *ranks)
{
    static struct sy_trainer_ops ops;
    const struct sy_train_callbacks callbacks = {.ranks = ranks};
    struct sy_train_run *run;
    struct sy_train_needs needs;
    char text[12000];
    ops = sy_cuda_trainer;
    ops.create = create_trainer;
    snprintf(text, sizeof text,
             "{\"name\": \"ranks\", \"model\": \"%s\", \"optimizer\": {\"kind\": \"sgd\", "
             "\"learning_rate\": 0.05, \"momentum\": 0.9}, \"data\": {\"kind\": \"synthetic\", "
             "\"samples\": 48}, \"batch\": 12, \"epochs\": 100, \"max_steps\": %d, \"seed\": 3, "
             "\"exchange\": \"%s\"%s}",
             model, order->steps, order->way, order->more);
    SY_TRY(sy_train_run_create(text, &ops, &callbacks, &run));
    sy_train_run_needs(run, &needs);
    char *persistent = map(needs.persistent_bytes), *ephemeral = map(needs.ephemeral_bytes);
    struct sy_control_page *page = (void *)map(sizeof *page);
    int status =
        sy_train_run_start(run, fake_math_device(persistent), fake_math_device(ephemeral), 0, page);
    if (status == SY_OK)
        status = train(run, order, ranks->rank);
    if (status == SY_OK)
        keep_state(&ops, ranks->rank);
    char why[TEXT_BYTES];
    snprintf(why, sizeof why, "%s", status < 0 ? sy_error_text() : "");
    sy_train_run_destroy(run);
    return status < 0 ? sy_error_set(status, "%s", why) : SY_OK;
}

static int run_rank(const struct sy_ranks *ranks, void *ctx)
{
    const struct order *order = ctx;
    bool is_victim = order->victim < 0 || order->victim == ranks->rank;
    sy_log_threshold = SY_LOG_ERROR;
    if (is_victim && order->variable)
        setenv(order->variable, order->value, 1);
    if (order->hurried == ranks->rank)
        setenv("SY_NCCL_TIMEOUT_S", "1", 1);
    sy_cuda_engine_use(&fake_math);
    if (sy_cuda_engine.attach(NULL, NULL) < 0)
        abort();
    fake_side_fail(is_victim ? order->side_fails : 0);
    int status = run_job(order, ranks);
    if (is_victim)
        shared->calls = fake_side_calls();
    shared->n_open[ranks->rank] = fake_side_n_open();
    snprintf(shared->errors[ranks->rank], TEXT_BYTES, "%s", status < 0 ? sy_error_text() : "");
    sy_cuda_engine.detach();
    return status < 0;
}

/* ---- all ranks of a job ----------------------------------------------------------------------------------------- */

static void start(struct rank_rig *rig, int n, const struct order *order)
{
    memset(shared, 0, sizeof *shared);
    rank_rig_start(rig, n, run_rank, (void *)(uintptr_t)order);
}

static void run_all(int n, const struct order *order)
{
    struct rank_rig rig;
    start(&rig, n, order);
    for (int r = 0; r < n; r++)
        if (rank_rig_wait(&rig, r) != 0)
            fail_msg("rank %d of %d, %s: %s", r, n, order->way, shared->errors[r]);
    for (int r = 0; r < n; r++) {
        assert_int_equal(shared->steps[r], order->steps);
        assert_true(shared->n_floats[r] > 100 && shared->n_floats[r] == shared->n_floats[0]);
    }
}

static uint64_t state_bytes(void)
{
    return shared->n_floats[0] * sizeof(float);
}

/* The states of all ranks. */
static struct shared *keep(void)
{
    struct shared *kept = malloc(sizeof *kept);
    assert_non_null(kept);
    return memcpy(kept, shared, sizeof *kept);
}

static struct order order_of(const char *way)
{
    return (struct order){.way = way, .more = "", .steps = STEPS, .victim = -1, .hurried = -1};
}

static void check_whole(const struct shared *alone)
{
    for (uint64_t i = 0; i < shared->n_floats[0]; i++)
        assert_true(fabsf(shared->states[0][i] - alone->states[0][i]) <=
                    2e-4f * (1 + fabsf(alone->states[0][i])));
    assert_memory_not_equal(shared->states[0], alone->states[0], state_bytes()); /* they did sum */
}

/* The same bits by NCCL as through host memory, and on all ranks (where none is stale: then each begins with statistics of its own). is_whole: and but for the order of
 * sums those of one rank with the whole batch. */
static void check_bits(const char *more, bool is_whole, bool is_stale)
{
    struct order nccl = order_of("nccl"), host = order_of("host");
    nccl.more = host.more = more;
    struct shared *alone = NULL;
    for (int n = 1; n <= 3; n++) {
        run_all(n, &host);
        struct shared *by_host = keep();
        run_all(n, &nccl);
        for (int r = 0; r < n; r++) {
            assert_memory_equal(shared->states[r], by_host->states[r], state_bytes());
            if (!is_stale)
                assert_memory_equal(shared->states[r], shared->states[0], state_bytes());
        }
        alone = n == 1 ? keep() : alone;
        if (n > 1 && is_whole)
            check_whole(alone);
        free(by_host);
    }
    free(alone);
}

static void test_bits_of_ranks(void **state)
{
    (void)state;
    check_bits("", false, false);
    check_bits(", \"accumulate\": 2", false, false);
    check_bits(", \"staleness\": 1", false, true);
    model = ob_path;
    check_bits("", true, false);
    check_bits(", \"accumulate\": 2", true, false);
    model = normed;
}

/* Nothing of NCCL's waits for it (DX1): no group begins meanwhile. */
static void test_a_rank_that_stands_still(void **state)
{
    struct order order = order_of("nccl");
    (void)state;
    run_all(2, &order);
    struct shared *undisturbed = keep();
    setenv("FAKE_NCCL_STILL", still_path, 1);
    order.victim = 1;
    order.stands = true;
    run_all(2, &order);
    unsetenv("FAKE_NCCL_STILL");
    for (int r = 0; r < 2; r++)
        assert_memory_equal(shared->states[r], undisturbed->states[r], state_bytes());
    free(undisturbed);
}

/* The others end in words; those that are left go on from the last snapshot. */
static void test_a_rank_that_is_killed(void **state)
{
    static const char *const ways[] = {"nccl", "host"};
    (void)state;
    for (int w = 0; w < 2; w++) {
        char more[200];
        struct rank_rig rig;
        struct order order = order_of(ways[w]);
        snprintf(more, sizeof more, ", \"snapshot\": {\"folder\": \"%s/%s\", \"every_steps\": 1}",
                 ob_folder, ways[w]);
        order.more = more;
        order.steps = 8;
        order.victim = 2;
        order.dies_after = 4;
        start(&rig, 3, &order);
        assert_int_equal(rank_rig_wait(&rig, 2), 128 + SIGKILL);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(rank_rig_wait(&rig, r), 1);
            assert_non_null(strstr(shared->errors[r], "gone"));
        }
        order.victim = 1;
        order.dies_after = 0;
        run_all(2, &order);
        assert_true(shared->first_step[0] >= 1 && shared->first_step[1] == shared->first_step[0]);
    }
}

/* ---- what fails --------------------------------------------------------------------------------------------------- */

/* Both ranks end, each with words; the victim with `said`. */
static void check_failure(const struct order *order, const char *said)
{
    struct rank_rig rig;
    start(&rig, 2, order);
    for (int r = 0; r < 2; r++) {
        int got = rank_rig_wait(&rig, r);
        if (got != 1 || !shared->errors[r][0])
            fail_msg("rank %d, %s: ended with %d: %s", r, order->value, got, shared->errors[r]);
    }
    if (!strstr(shared->errors[order->victim], said))
        fail_msg("%s: said %s", order->value, shared->errors[order->victim]);
}

/* Hurried is who waits in NCCL for what never comes: whatever is late besides, it ends in the same words. */
static void test_each_call_of_nccl_fails(void **state)
{
    static const struct {
        const char *plan, *said;
        int victim, hurried;
    } cases[] = {
        {"GetVersion:1:3", "ncclGetVersion", 1, -1},
        {"GetUniqueId:1:2", "ncclGetUniqueId", 0, -1},
        {"CommInitRankConfig:1:5", "a GPU for each rank", 1, 0},
        {"AsyncError:1:5", "a GPU for each rank", 1, 0},
        {"CommGetAsyncError:1:3", "ncclCommGetAsyncError", 1, 0},
        {"GroupStart:1:3", "ncclGroupStart", 1, -1},
        {"GroupStart:2:3", "ncclGroupStart", 0, -1},
        {"Send:1:1", "ncclSend", 1, -1},
        {"Recv:2:1", "ncclRecv", 1, -1},
        {"Send:3:1", "ncclSend", 1, -1},
        {"GroupEnd:1:3", "ncclGroupEnd", 1, -1},
        {"GroupEnd:4:3", "ncclGroupEnd", 0, -1},
        {"AsyncError:40:6", "remote process exited", 1, -1},
        {"Hang:3:1", "has not ended in 1 s", 1, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct order order = order_of("nccl");
        order.steps = 200;
        order.victim = cases[i].victim;
        order.hurried = cases[i].hurried;
        order.variable = "FAKE_NCCL_FAIL";
        order.value = cases[i].plan;
        check_failure(&order, cases[i].said);
    }
}

/* NCCL lets go of nothing: a rank ends all the same, and frees nothing that NCCL may still use (NC3). */
static void test_an_abort_that_does_not_end(void **state)
{
    struct order order = order_of("nccl");
    (void)state;
    run_all(2, &order);
    assert_true(shared->n_open[0] == 0 && shared->n_open[1] == 0);
    setenv("SY_NCCL_ABORT_TIMEOUT_S", "1", 1);
    setenv("FAKE_NCCL_ABORT", "hangs", 1);
    run_all(2, &order);
    assert_true(shared->n_open[0] == 1 && shared->n_open[1] == 1);
    order.victim = 1;
    order.hurried = 0;
    order.variable = "FAKE_NCCL_FAIL";
    order.value = "AsyncError:1:5"; /* in open */
    check_failure(&order, "a GPU for each rank");
    assert_true(shared->n_open[0] == 1 && shared->n_open[1] == 1);
    unsetenv("FAKE_NCCL_ABORT");
    unsetenv("SY_NCCL_ABORT_TIMEOUT_S");
}

/* The device fails on one rank: it says so, and the other ends too. */
static void test_each_call_of_the_device_fails(void **state)
{
    static const char *const ways[] = {"nccl", "host"};
    (void)state;
    for (int w = 0; w < 2; w++) {
        struct order order = order_of(ways[w]);
        order.steps = 1;
        order.victim = 1;
        run_all(2, &order);
        int n_calls = shared->calls;
        assert_true(n_calls > 10);
        for (int at = 1; at <= n_calls; at += 1 + (at > 12) * 2) {
            char name[40];
            snprintf(name, sizeof name, "%s, call %d of %d", ways[w], at, n_calls);
            order.side_fails = at;
            order.steps = 40; /* polls differ from run to run */
            order.value = name;
            check_failure(&order, "fake side");
        }
    }
}

static void test_no_nccl(void **state)
{
    struct order order = order_of("nccl");
    (void)state;
    order.victim = 1;
    order.variable = "SY_NCCL_LIBRARY";
    order.value = "/nonexistent/libnccl.so.2";
    check_failure(&order, "ranks on GPUs need NCCL");
    assert_non_null(strstr(shared->errors[0], "1 other rank failed"));
    order.variable = "FAKE_NCCL_VERSION";
    order.value = "21300";
    check_failure(&order, "NCCL's version 21300");
    order = order_of("host"); /* wants none */
    order.variable = "SY_NCCL_LIBRARY";
    order.value = "/nonexistent/libnccl.so.2";
    run_all(2, &order);
}

/* ---- many buckets ----------------------------------------------------------------------------------------------------- */

#define N_PARTS 3

static const uint64_t part_floats[N_PARTS] = {(2u << 20) + 5, 7, (2u << 20) + 1};
static float *parts[N_PARTS];

static int n_parts(const struct sy_trainer *unused)
{
    (void)unused;
    return N_PARTS;
}

static void shared_part(const struct sy_trainer *unused, int i, struct sy_shared_part *out)
{
    (void)unused;
    *out = (struct sy_shared_part){.values = fake_math_device(parts[i]),
                                   .n = part_floats[i],
                                   .is_gradient = true,
                                   .ready_step = i};
}

static int shared_by(const struct sy_trainer *unused)
{
    (void)unused;
    return N_PARTS;
}

/* Of very different sizes, so that each order of a sum has its own bits. */
static float value_of(int rank, int part, uint64_t i)
{
    static const float sizes[] = {1e8f, 1, -1e8f};
    uint64_t mixed =
        (i + 77u * (uint64_t)part) * 0x9e3779b97f4a7c15ull + (uint64_t)rank * 0x85ebca6bull;
    return sizes[((uint64_t)rank + i) % 3] * (1 + (float)(mixed >> 40) * 0x1p-24f);
}

static float mean_of(int n, int part, uint64_t i)
{
    volatile float sum = value_of(0, part, i); /* rounded after each */
    for (int r = 1; r < n; r++)
        sum += value_of(r, part, i);
    return sum * (1.0f / (float)n);
}

static int check_means(const struct sy_ranks *ranks)
{
    for (int p = 0; p < N_PARTS; p++)
        for (uint64_t i = 0; i < part_floats[p]; i++)
            if (parts[p][i] != mean_of(ranks->n, p, i))
                return sy_error_set(SY_EBUG, "part %d, value %llu: %g", p, (unsigned long long)i,
                                    (double)parts[p][i]);
    return SY_OK;
}

static int exchange_once(const struct sy_ranks *ranks, enum sy_exchange_way way)
{
    static const struct sy_trainer_ops ops = {.name = "parts",
                                              .n_shared_parts = n_parts,
                                              .shared_part = shared_part,
                                              .shared_by_step = shared_by,
                                              .exchange = &sy_cuda_exchange};
    struct sy_exchange *x;
    SY_TRY(sy_exchange_create(ranks, 0, way, &ops, NULL, &x));
    for (int t = 0; t < 2; t++) {
        sy_exchange_begin(x);
        for (int p = 0; p < N_PARTS; p++) {
            for (uint64_t i = 0; i < part_floats[p]; i++)
                parts[p][i] = value_of(ranks->rank, p, i);
            SY_TRY(sy_exchange_after(x, p));
        }
        SY_TRY(sy_exchange_before(x, N_PARTS));
        fake_math_synchronize();
        SY_TRY(check_means(ranks));
    }
    sy_exchange_destroy(x);
    return SY_OK;
}

static int run_exchange(const struct sy_ranks *ranks, void *ctx)
{
    for (int p = 0; p < N_PARTS; p++)
        parts[p] = (float *)(void *)map(part_floats[p] * sizeof(float));
    sy_cuda_engine_use(&fake_math);
    if (sy_cuda_engine.attach(NULL, NULL) < 0)
        abort();
    int status = exchange_once(ranks, *(const enum sy_exchange_way *)ctx);
    snprintf(shared->errors[ranks->rank], TEXT_BYTES, "%s", status < 0 ? sy_error_text() : "");
    sy_cuda_engine.detach();
    return status < 0;
}

/* In the order of ranks, whatever it was that carried them; parts of a bucket that ranks cannot cut evenly. */
static void test_sums_are_in_the_order_of_ranks(void **state)
{
    static const enum sy_exchange_way ways[] = {SY_EXCHANGE_NCCL, SY_EXCHANGE_HOST};
    (void)state;
    for (int w = 0; w < 2; w++)
        for (int n = 1; n <= 3; n++) {
            struct rank_rig rig;
            memset(shared, 0, sizeof *shared);
            rank_rig_start(&rig, n, run_exchange, (void *)(uintptr_t)&ways[w]);
            for (int r = 0; r < n; r++)
                if (rank_rig_wait(&rig, r) != 0)
                    fail_msg("way %d, rank %d of %d: %s", w, r, n, shared->errors[r]);
        }
}

static void add_weights(struct ob *graph, const char *name, int rank, const int64_t *dims)
{
    float values[400];
    size_t n = (size_t)(dims[0] * (rank > 1 ? dims[1] : 1));
    for (size_t i = 0; i < n; i++)
        values[i] = (float)((i * 2654435761u >> 8) % 1000) * 0.0006f - 0.3f;
    ob_initializer(graph, name, 1, rank, dims, values, n * sizeof *values);
}

/* relu(x a + b) c */
static void write_plain(void)
{
    struct ob graph;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, 2, (const int64_t[]){-1, 20});
    add_weights(&graph, "a", 2, (const int64_t[]){20, 16});
    add_weights(&graph, "b", 1, (const int64_t[]){16});
    add_weights(&graph, "c", 2, (const int64_t[]){16, 4});
    ob_add(&graph, "MatMul", (const char *const[]){"x", "a", NULL},
           (const char *const[]){"xa", NULL});
    ob_add(&graph, "Add", (const char *const[]){"xa", "b", NULL}, (const char *const[]){"h", NULL});
    ob_add(&graph, "Relu", (const char *const[]){"h", NULL}, (const char *const[]){"r", NULL});
    ob_add(&graph, "MatMul", (const char *const[]){"r", "c", NULL},
           (const char *const[]){"y", NULL});
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, 2, (const int64_t[]){-1, 4});
    ob_save(ob_path, &graph, 17);
}

static int set_up(void **state)
{
    char self[4096] = "";
    (void)state;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return -1;
    *strrchr(self, '/') = '\0';
    snprintf(nccl_path, sizeof nccl_path, "%s/libnccl-fake.so", self);
    setenv("SY_NCCL_LIBRARY", nccl_path, 1);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || ob_open_folder(state) != 0 || !realpath(MODEL, normed))
        return -1;
    snprintf(still_path, sizeof still_path, "%s/still", ob_folder);
    write_plain();
    return 0;
}

static int tear_down(void **state)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf %.80s/nccl %.80s/host", ob_folder, ob_folder);
    return system(command) == 0 ? ob_close_folder(state) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_of_ranks),
        cmocka_unit_test(test_sums_are_in_the_order_of_ranks),
        cmocka_unit_test(test_a_rank_that_stands_still),
        cmocka_unit_test(test_a_rank_that_is_killed),
        cmocka_unit_test(test_no_nccl),
        cmocka_unit_test(test_each_call_of_nccl_fails),
        cmocka_unit_test(test_an_abort_that_does_not_end),
        cmocka_unit_test(test_each_call_of_the_device_fails),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
