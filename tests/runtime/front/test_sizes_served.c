/* Models with open sizes in a real server: one package, asked with many lengths by many clients, each answer compared with that of the same
 * model imported for one length. A worker is killed meanwhile, and a job trains beside. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/rigs/server_fixture.h"

enum { FLOAT = 1, WIDTH = 8, N_LENGTHS = 6, MOST_BATCH = 3, N_CLIENTS = 4, EACH = 60 };

static const int64_t lengths[N_LENGTHS] = {1, 5, 33, 77, 128, 300};

static struct ob graph, node;

static void weights(const char *name, int64_t rows, int64_t columns, unsigned seed)
{
    static float values[WIDTH * WIDTH];
    for (int64_t i = 0; i < rows * columns; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) / 16777216.0f - 0.5f;
    }
    ob_initializer(&graph, name, FLOAT, 2, (const int64_t[]){rows, columns}, values,
                   (size_t)(rows * columns) * sizeof(float));
}

/* x [N, L2, 8]: one head of attention over L2, and its mean; m [N, L2] is added to the scores' columns. Their mean is asked for too, so
 * no engine can do without the scores. */
static void save_model(const char *path)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, -2, WIDTH));
    ob_input(&graph, OB_GRAPH_INPUT, "m", FLOAT, DIMS(-1, -2));
    weights("wq", WIDTH, WIDTH, 1);
    weights("wv", WIDTH, WIDTH, 2);
    ob_int64s(&graph, "one", 1, (const int64_t[]){1});
    ob_add(&graph, "MatMul", NAMES("x", "wq"), NAMES("q"));
    ob_add(&graph, "MatMul", NAMES("x", "wv"), NAMES("v"));
    ob_node(&node, "Transpose", NAMES("x"), NAMES("k"));
    ob_attr_ints(&node, "perm", 3, (const int64_t[]){0, 2, 1});
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "MatMul", NAMES("q", "k"), NAMES("scores"));
    ob_add(&graph, "Unsqueeze", NAMES("m", "one"), NAMES("row"));
    ob_add(&graph, "Add", NAMES("scores", "row"), NAMES("masked"));
    ob_node(&node, "Softmax", NAMES("masked"), NAMES("p"));
    ob_attr_int(&node, "axis", -1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "MatMul", NAMES("p", "v"), NAMES("mixed"));
    ob_add(&graph, "Relu", NAMES("mixed"), NAMES("y"));
    ob_node(&node, "ReduceMean", NAMES("y"), NAMES("z"));
    ob_attr_ints(&node, "axes", 1, (const int64_t[]){1});
    ob_attr_int(&node, "keepdims", 0);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_node(&node, "ReduceMean", NAMES("p"), NAMES("s"));
    ob_attr_ints(&node, "axes", 1, (const int64_t[]){1});
    ob_attr_int(&node, "keepdims", 0);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, -2, WIDTH));
    ob_input(&graph, OB_GRAPH_OUTPUT, "z", FLOAT, DIMS(-1, WIDTH));
    ob_input(&graph, OB_GRAPH_OUTPUT, "s", FLOAT, DIMS(-1, -2));
    ob_save(path, &graph, 13);
}

static void import(const char *folder, const char *name, int64_t fixed)
{
    char command[1500], dim[64] = "";
    if (fixed > 0)
        snprintf(dim, sizeof dim, "--dim L2=%lld", (long long)fixed);
    snprintf(command, sizeof command,
             "'%s' import '%s/model.onnx' --output '%s/%s.sypkg' --name %s --threads 1 %s "
             ">/dev/null 2>&1",
             fixture_program("switchyard"), folder, folder, name, name, dim);
    assert_int_equal(system(command), 0);
}

static void load(struct fixture *f, const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s.sypkg", f->folder, name);
    json_decref(fixture_call(f, "model_load", json_pack("{s:s}", "path", path)));
}

static const char *fixed_name(int l)
{
    static char names[N_LENGTHS][32];
    snprintf(names[l], sizeof names[l], "fixed%lld", (long long)lengths[l]);
    return names[l];
}

static void start(struct fixture *f, const char *device, const char *pool)
{
    char path[300];
    fixture_init(f, "sizes");
    snprintf(path, sizeof path, "%s/model.onnx", f->folder);
    save_model(path);
    import(f->folder, "open", 0);
    const char *const args[] = {"--device", device, "--workers", "4", "--pool-bytes", pool, NULL};
    fixture_start(f, args);
    load(f, "open");
}

/* ---- requests ------------------------------------------------------------------------------------- */

struct values {
    float x[MOST_BATCH * 300 * WIDTH], m[MOST_BATCH * 300];
};

static void fill(struct values *v, int64_t batch, int64_t length)
{
    unsigned seed = (unsigned)(batch * 1000 + length);
    for (int64_t i = 0; i < batch * length * WIDTH; i++) {
        seed = seed * 1664525u + 1013904223u;
        v->x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    for (int64_t i = 0; i < batch * length; i++)
        v->m[i] = i % 7 == 3 ? -2.0f : 0.25f;
}

static int ask(sy_client *client, const char *model, int64_t batch, int64_t length,
               sy_client_result **out)
{
    struct values *v = calloc(1, sizeof *v);
    const sy_client_tensor inputs[2] = {{.name = "x",
                                         .dtype = "FP32",
                                         .rank = 3,
                                         .shape = {batch, length, WIDTH},
                                         .data = v->x,
                                         .bytes = (size_t)(batch * length * WIDTH) * 4},
                                        {.name = "m",
                                         .dtype = "FP32",
                                         .rank = 2,
                                         .shape = {batch, length},
                                         .data = v->m,
                                         .bytes = (size_t)(batch * length) * 4}};
    fill(v, batch, length);
    int status = sy_client_infer(client, model, inputs, 2, out);
    free(v);
    return status;
}

/* Same shapes, and values within what another order of sums makes of them. */
static bool are_near(const sy_client_result *a, const sy_client_result *b)
{
    if (a->n_outputs != 3 || b->n_outputs != 3)
        return false;
    for (int o = 0; o < 3; o++) {
        const sy_client_tensor *x = &a->outputs[o], *y = &b->outputs[o];
        if (x->rank != y->rank || memcmp(x->shape, y->shape, sizeof x->shape[0] * (size_t)x->rank))
            return false;
        for (size_t i = 0; i < x->bytes / 4; i++) {
            float p = ((const float *)x->data)[i], q = ((const float *)y->data)[i];
            if (!(p - q < 1e-4f && q - p < 1e-4f))
                return false;
        }
    }
    return true;
}

static sy_client_result *wanted[N_LENGTHS][MOST_BATCH + 1];

/* By models that have but one length, one after the other. */
static void find_wanted(struct fixture *f)
{
    for (int l = 0; l < N_LENGTHS; l++) {
        import(f->folder, fixed_name(l), lengths[l]);
        load(f, fixed_name(l));
        for (int64_t batch = 1; batch <= MOST_BATCH; batch++)
            if (ask(f->client, fixed_name(l), batch, lengths[l], &wanted[l][batch]) < 0)
                fail_msg("%s: %s", fixed_name(l), sy_client_error(f->client));
        assert_int_equal(wanted[l][1]->outputs[0].shape[1], lengths[l]);
    }
}

static void free_wanted(void)
{
    for (int l = 0; l < N_LENGTHS; l++)
        for (int b = 0; b <= MOST_BATCH; b++)
            sy_client_result_free(wanted[l][b]);
    memset(wanted, 0, sizeof wanted);
}

struct asker {
    pthread_t thread;
    const struct fixture *f;
    unsigned seed;
    int n_right;
    char error[300];
};

static void *ask_many(void *arg)
{
    struct asker *a = arg;
    sy_client *client = NULL;
    int status = sy_client_connect(a->f->address, 300000, &client);
    for (int i = 0; status == SY_OK && i < EACH; i++) {
        int l = rand_r(&a->seed) % N_LENGTHS;
        int64_t batch = 1 + rand_r(&a->seed) % MOST_BATCH;
        sy_client_result *got = NULL;
        status = ask(client, "open", batch, lengths[l], &got);
        if (status == SY_OK && are_near(got, wanted[l][batch]))
            a->n_right++;
        else if (status == SY_OK)
            snprintf(a->error, sizeof a->error, "length %lld, batch %lld: another result",
                     (long long)lengths[l], (long long)batch);
        sy_client_result_free(got);
    }
    if (status < 0)
        snprintf(a->error, sizeof a->error, "%s", sy_client_error(client));
    sy_client_close(client);
    return NULL;
}

/* The worker that computes at some moment, if one does. */
static void kill_a_worker(struct fixture *f)
{
    for (int i = 0; i < 200; i++) {
        pid_t pid = fixture_worker_in(f, "running");
        if (pid > 0) {
            kill(pid, SIGKILL);
            return;
        }
    }
}

static void many_lengths_at_once_on(const char *device)
{
    struct fixture f;
    struct asker askers[N_CLIENTS];
    start(&f, device, "48M");
    find_wanted(&f);
    uint64_t job = fixture_submit(&f, fixture_make_job(&f, "beside", 1000000, 1000));
    for (int i = 0; i < N_CLIENTS; i++) {
        askers[i] = (struct asker){.f = &f, .seed = (unsigned)i + 1};
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_many, &askers[i]), 0);
    }
    kill_a_worker(&f);
    for (int i = 0; i < N_CLIENTS; i++)
        pthread_join(askers[i].thread, NULL);
    for (int i = 0; i < N_CLIENTS; i++)
        if (askers[i].n_right != EACH)
            fail_msg("%d of %d right; %s", askers[i].n_right, EACH, askers[i].error);
    json_decref(fixture_call(&f, "train_stop", json_pack("{s:I}", "job", (json_int_t)job)));
    free_wanted();
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void many_lengths_at_once_on_host(void **state)
{
    (void)state;
    many_lengths_at_once_on("host");
}

static void many_lengths_at_once_on_emulated(void **state)
{
    (void)state;
    many_lengths_at_once_on("emulated");
}

/* ---- what a client sees ----------------------------------------------------------------------------- */

static void check_description(struct fixture *f)
{
    sy_client_model *model = NULL;
    assert_int_equal(sy_client_model_find(f->client, "open", &model), SY_OK);
    assert_int_equal(model->n_inputs, 2);
    assert_int_equal(model->n_sizes, 1);
    assert_string_equal(model->sizes[0].name, "L2");
    assert_string_equal(model->inputs[0].name, "x");
    assert_string_equal(model->inputs[0].dims[0], "N");
    assert_string_equal(model->inputs[0].dims[1], "L2");
    assert_null(model->inputs[0].dims[2]);
    assert_int_equal(model->inputs[0].shape[1], -1);
    assert_int_equal(model->inputs[0].shape[2], WIDTH);
    assert_int_equal(model->inputs[0].usual_shape[0], 1);
    assert_int_equal(model->inputs[0].usual_shape[1], model->sizes[0].usual);
    assert_string_equal(model->outputs[0].dims[1], "L2");
    sy_client_model_free(model);
    assert_int_equal(sy_client_model_find(f->client, "none", &model), SY_ENOTFOUND);
    assert_null(model);
}

static int send_shapes(struct fixture *f, int x_rank, const int64_t *x, int m_rank,
                       const int64_t *m)
{
    static char zeros[1 << 20];
    sy_client_tensor inputs[2] = {{.name = "x", .dtype = "FP32", .rank = x_rank, .data = zeros},
                                  {.name = "m", .dtype = "FP32", .rank = m_rank, .data = zeros}};
    sy_client_result *result = NULL;
    const int64_t *dims[2] = {x, m};
    for (int i = 0; i < 2; i++) {
        uint64_t bytes = 4;
        for (int d = 0; d < inputs[i].rank; d++) {
            inputs[i].shape[d] = dims[i][d];
            bytes =
                dims[i][d] < 0 || bytes > sizeof zeros ? UINT64_MAX : bytes * (uint64_t)dims[i][d];
        }
        inputs[i].bytes = bytes > sizeof zeros ? 64 : bytes;
    }
    int status = sy_client_infer(f->client, "open", inputs, 2, &result);
    sy_client_result_free(result);
    return status;
}

/* Contradictions name input, dimension and both numbers; sizes without data, and absurd ones, are refused; all goes on. */
static void wrong_shapes_are_refused(void **state)
{
    struct fixture f;
    unsigned seed = 7;
    (void)state;
    start(&f, "host", "48M");
    check_description(&f);
    assert_int_equal(send_shapes(&f, DIMS(1, 5, 8), DIMS(1, 6)), SY_EARG);
    assert_non_null(strstr(sy_client_error(f.client), "5"));
    assert_non_null(strstr(sy_client_error(f.client), "6"));
    assert_int_equal(send_shapes(&f, DIMS(1, 5, 8), DIMS(2, 5)), SY_EARG);
    assert_int_equal(send_shapes(&f, DIMS(1, 5, 7), DIMS(1, 5)), SY_EARG);
    assert_int_equal(send_shapes(&f, DIMS(1, 5), DIMS(1, 5)), SY_EARG);
    assert_int_equal(send_shapes(&f, DIMS(0, 5, 8), DIMS(0, 5)), SY_OK); /* no rows, no run */
    assert_int_equal(send_shapes(&f, DIMS(0, 5, 8), DIMS(1, 5)), SY_EARG);
    assert_int_equal(send_shapes(&f, DIMS(1, 1ll << 40, 8), DIMS(1, 1ll << 40)), SY_EARG);
    assert_int_equal(send_shapes(&f, DIMS(1, INT64_MAX, 8), DIMS(1, INT64_MAX)), SY_EARG);
    /* 20000 x 20000 scores are 1.6 GB, the pool has 48 MB */
    assert_int_equal(send_shapes(&f, DIMS(1, 20000, 8), DIMS(1, 20000)), SY_ENOMEM_DEVICE);
    assert_non_null(strstr(sy_client_error(f.client), "L2 20000"));
    for (int i = 0; i < 300; i++) {
        int64_t x[4], m[4];
        for (int d = 0; d < 4; d++) {
            x[d] = rand_r(&seed) % 9;
            m[d] = rand_r(&seed) % 3 ? x[d] : rand_r(&seed) % 9;
        }
        x[2] = rand_r(&seed) % 4 ? WIDTH : x[2];
        int x_rank = rand_r(&seed) % 8 ? 3 : rand_r(&seed) % 5;
        int status = send_shapes(&f, x_rank, x, rand_r(&seed) % 8 ? 2 : rand_r(&seed) % 5, m);
        bool right = x[0] == m[0] && x[1] == m[1] && x[2] == WIDTH;
        assert_true(status == SY_OK || status == SY_EARG);
        assert_true(right || status == SY_EARG);
    }
    assert_int_equal(send_shapes(&f, DIMS(2, 9, 8), DIMS(2, 9)), SY_OK);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* Ever new lengths: what the runtime and its workers remember of them is bounded, so old ones come again as new. */
static void ever_new_lengths_are_served(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "host", "48M");
    for (int round = 0; round < 2; round++)
        for (int64_t length = 1; length <= 100; length++)
            assert_int_equal(send_shapes(&f, DIMS(1, length, 8), DIMS(1, length)), SY_OK);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(ever_new_lengths_are_served),
        cmocka_unit_test(many_lengths_at_once_on_host),
        cmocka_unit_test(many_lengths_at_once_on_emulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
