#include "tests/rigs/server_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "tests/rigs/shell.h"

#define READY_TIMEOUT_MS 600000 /* models are imported first, under sanitizers slowly */
#define STOP_TIMEOUT_NS  (120 * SY_NS_PER_S)
#define JOB_TIMEOUT_NS   (600 * SY_NS_PER_S)
#define IMAGES           256

/* ---- programs and models ---------------------------------------------------------------------------- */

const char *fixture_program(const char *name)
{
    static char path[4][512];
    static int turn;
    char self[400];
    const char *build = getenv("SY_BUILD");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    *strrchr(self, '/') = 0; /* .../tests */
    *strrchr(self, '/') = 0;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", build ? build : self, name);
    return path[turn];
}

#ifdef __SANITIZE_THREAD__
/* The server would measure them with all threads, whose false races take half a minute a model. */
static void import_with_one_thread(const char *folder)
{
    static const char *const names[] = {"tiny_cnn", "mlp", "bert_tiny", "identity"};
    static bool done;
    char command[2048];
    for (size_t i = 0; !done && i < sizeof names / sizeof *names; i++) {
        snprintf(command, sizeof command,
                 "'%s' import '%s/%s/1/model.onnx' --name %s --threads 1 --update >/dev/null",
                 fixture_program("switchyard"), folder, names[i], names[i]);
        assert_int_equal(system(command), 0);
    }
    done = true;
}
#endif

const char *fixture_models(void)
{
    static char folder[600], command[2048];
    snprintf(folder, sizeof folder, "%s", fixture_program("test-models"));
    snprintf(command, sizeof command, "'%s' --out '%s' tiny_cnn mlp bert_tiny identity >/dev/null",
             fixture_program("make-models"), folder);
    assert_int_equal(system(command), 0);
#ifdef __SANITIZE_THREAD__
    import_with_one_thread(folder);
#endif
    return folder;
}

/* ---- folder ------------------------------------------------------------------------------------------ */

void fixture_init(struct fixture *f, const char *name)
{
    memset(f, 0, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "/tmp/switchyard-%s-XXXXXX", name);
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->address, sizeof f->address, "unix:%s/sock", f->folder);
    snprintf(f->log, sizeof f->log, "%s/log", f->folder);
}

void fixture_finish(struct fixture *f)
{
    if (f->pid > 0)
        fixture_kill(f);
    remove_tree(f->folder);
}

void fixture_say(const char *what, uint64_t number)
{
    static sy_ns began;
    sy_ns now = sy_clock_now();
    began = began ? began : now;
    if (getenv("SY_TEST_SERVE_DEVICE"))
        fprintf(stderr, "[%6.1f s] %s %llu\n", (double)(now - began) / SY_NS_PER_S, what,
                (unsigned long long)number);
}

/* ---- server ------------------------------------------------------------------------------------------ */

static void show_log(const struct fixture *f)
{
    char line[1024];
    FILE *log = fopen(f->log, "r");
    while (log && fgets(line, sizeof line, log))
        fputs(line, stderr);
    if (log)
        fclose(log);
}

/* SY_TEST_SERVE_DEVICE, SY_TEST_SERVE_POOL: whatever a test asks for, the server gets these: the same tests on a GPU, where
 * a program's workspace alone is larger than the pools that suit a CPU. */
static int replace_argument(const char **argv, int n, const char *option, const char *variable)
{
    const char *value = getenv(variable);
    if (!value)
        return n;
    for (int i = 0; i + 1 < n; i++)
        if (strcmp(argv[i], option) == 0) {
            argv[i + 1] = value;
            return n;
        }
    argv[n++] = option;
    argv[n++] = value;
    return n;
}

static bool has_argument(const char *const *args, const char *option)
{
    for (; *args; args++)
        if (strcmp(*args, option) == 0)
            return true;
    return false;
}

static void exec_server(const struct fixture *f, const char *const *args, int ready_fd)
{
    const char *argv[64] = {fixture_program("switchyard"), "serve", "--socket", f->address + 5,
                            "--ready-fd"};
    static const char *const ports[] = {"--http", "--grpc", "--metrics"};
    char ready[16];
    int n = 5;
    snprintf(ready, sizeof ready, "%d", ready_fd);
    argv[n++] = ready;
    for (int i = 0; i < 3; i++)
        if (!has_argument(args, ports[i])) { /* tests run side by side */
            argv[n++] = ports[i];
            argv[n++] = "off";
        }
    for (int i = 0; args[i] && n < 58; i++)
        argv[n++] = args[i];
    if (!has_argument(args, "--hang-timeout")) {
        argv[n++] = "--hang-timeout";
        argv[n++] = "60";
    }
#ifdef __SANITIZE_THREAD__
    if (!has_argument(args, "--threads") && !has_argument(args, "--cores")) {
        argv[n++] = "--threads";
        argv[n++] = "1";
    }
#endif
    n = replace_argument(argv, n, "--device", "SY_TEST_SERVE_DEVICE");
    n = replace_argument(argv, n, "--pool-bytes", "SY_TEST_SERVE_POOL");
    argv[n] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no server behind */
    int fd = open(f->log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

/* true: it said that it is ready; false: it ended or took too long. */
static bool spawn_server(struct fixture *f, const char *const *args)
{
    int fds[2];
    char byte;
    assert_int_equal(pipe(fds), 0);
    fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    f->pid = fork();
    if (f->pid == 0)
        exec_server(f, args, fds[1]);
    close(fds[1]);
    struct pollfd p = {.fd = fds[0], .events = POLLIN};
    bool ready = poll(&p, 1, READY_TIMEOUT_MS) == 1 && read(fds[0], &byte, 1) == 1;
    close(fds[0]);
    return ready;
}

void fixture_start(struct fixture *f, const char *const *args)
{
    if (!spawn_server(f, args)) {
        show_log(f);
        fixture_kill(f);
        fail_msg("the server did not get ready");
    }
    if (sy_client_connect(f->address, 300000, &f->client) < 0)
        fail_msg("cannot connect to %s", f->address);
    fixture_say("the server is up", 0);
}

static int reap(struct fixture *f)
{
    int status = 0;
    for (sy_ns deadline = sy_clock_now() + STOP_TIMEOUT_NS;
         waitpid(f->pid, &status, WNOHANG) == 0;) {
        if (sy_clock_now() > deadline) {
            kill(f->pid, SIGKILL);
            waitpid(f->pid, &status, 0);
            break;
        }
        sy_clock_sleep_until(sy_clock_now() + 5 * SY_NS_PER_MS);
    }
    f->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int fixture_start_refused(struct fixture *f, const char *const *args)
{
    bool ready = spawn_server(f, args);
    if (ready)
        kill(f->pid, SIGKILL);
    int status = reap(f);
    return ready ? 0 : status;
}

static void disconnect(struct fixture *f)
{
    sy_client_close(f->client);
    f->client = NULL;
}

int fixture_stop(struct fixture *f)
{
    disconnect(f);
    kill(f->pid, SIGTERM);
    int status = reap(f);
    if (status != 0)
        show_log(f);
    fixture_say("stopped", 0);
    return status;
}

void fixture_kill(struct fixture *f)
{
    disconnect(f);
    kill(f->pid, SIGKILL);
    reap(f);
    fixture_say("killed", 0);
}

bool fixture_log_has(const struct fixture *f, const char *text)
{
    char line[2048];
    bool found = false;
    FILE *log = fopen(f->log, "r");
    while (log && !found && fgets(line, sizeof line, log))
        found = strstr(line, text) != NULL;
    if (log)
        fclose(log);
    return found;
}

/* ---- calls ------------------------------------------------------------------------------------------- */

json_t *fixture_call(struct fixture *f, const char *method, json_t *params)
{
    char *text = json_dumps(params, JSON_COMPACT), *answer = NULL;
    int status = sy_client_call(f->client, method, text, &answer);
    if (status < 0) {
        show_log(f);
        fail_msg("%s: %s", method, sy_client_error(f->client));
    }
    json_t *json = json_loads(answer, JSON_DECODE_ANY, NULL);
    free(text);
    free(answer);
    json_decref(params);
    return json;
}

json_t *fixture_status(struct fixture *f)
{
    return fixture_call(f, "status", json_object());
}

pid_t fixture_worker_in(struct fixture *f, const char *state)
{
    size_t i;
    json_t *worker, *status = fixture_status(f);
    pid_t pid = 0;
    json_array_foreach(json_object_get(status, "workers"), i, worker)
    {
        const char *now = json_string_value(json_object_get(worker, "state"));
        if (now && strcasecmp(now, state) == 0)
            pid = (pid_t)json_integer_value(json_object_get(worker, "pid"));
    }
    json_decref(status);
    return pid;
}

pid_t fixture_wait_for_worker_in(struct fixture *f, const char *state)
{
    pid_t pid = 0;
    for (int i = 0; i < 1200 && pid <= 0; i++) {
        pid = fixture_worker_in(f, state);
        if (pid <= 0)
            sy_clock_sleep_until(sy_clock_now() + 50 * SY_NS_PER_MS);
    }
    assert_true(pid > 0);
    return pid;
}

int64_t fixture_counter(struct fixture *f, const char *name)
{
    json_t *status = fixture_status(f);
    json_t *value = json_object_get(json_object_get(status, "counters"), name);
    assert_true(json_is_integer(value));
    int64_t n = json_integer_value(value);
    json_decref(status);
    return n;
}

/* ---- requests ------------------------------------------------------------------------------------------ */

struct input {
    const char *name, *dtype;
    int rank;
    int64_t dims[4]; /* after the batch */
};

struct small_model {
    const char *name;
    int n_inputs;
    struct input inputs[3];
};

static const struct small_model small_models[] = {
    {"tiny_cnn", 1, {{"input", "FP32", 3, {3, 16, 16}}}},
    {"mlp", 1, {{"input", "FP32", 1, {16}}}},
    {"mlp_again", 1, {{"input", "FP32", 1, {16}}}}, /* the same package under another name */
    {"identity", 1, {{"input", "FP32", 1, {4}}}},
    {"bert_tiny",
     3,
     {{"input_ids", "INT64", 1, {32}},
      {"attention_mask", "INT64", 1, {32}},
      {"token_type_ids", "INT64", 1, {32}}}},
};

static void fill_input(sy_client_tensor *t, const struct input *input, int64_t batch, unsigned seed)
{
    size_t n = (size_t)batch;
    bool ints = strcmp(input->dtype, "INT64") == 0;
    *t = (sy_client_tensor){
        .name = input->name, .dtype = input->dtype, .rank = input->rank + 1, .shape = {batch}};
    for (int i = 0; i < input->rank; i++) {
        t->shape[i + 1] = input->dims[i];
        n *= (size_t)input->dims[i];
    }
    t->bytes = n * (ints ? 8 : 4);
    void *data = calloc(1, t->bytes);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        if (ints)
            ((int64_t *)data)[i] = strcmp(input->name, "input_ids") == 0 ? seed >> 24 : seed >> 31;
        else
            ((float *)data)[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    t->data = data;
}

sy_client_result *fixture_infer_with(sy_client *client, const char *model, int64_t batch,
                                     int variant, const sy_client_options *options, int *status)
{
    const struct small_model *m = NULL;
    sy_client_tensor inputs[3];
    sy_client_result *result = NULL;
    for (size_t i = 0; i < sizeof small_models / sizeof *small_models; i++)
        if (strcmp(small_models[i].name, model) == 0)
            m = &small_models[i];
    assert_non_null(m);
    for (int i = 0; i < m->n_inputs; i++)
        fill_input(&inputs[i], &m->inputs[i], batch, (unsigned)(variant * 10 + i + 1));
    int got = sy_client_infer_with(client, model, inputs, m->n_inputs, options, &result);
    for (int i = 0; i < m->n_inputs; i++)
        free((void *)inputs[i].data);
    if (status)
        *status = got;
    else if (got < 0)
        fail_msg("%s: %s", model, sy_client_error(client));
    return result;
}

sy_client_result *fixture_infer_on(sy_client *client, const char *model, int64_t batch, int variant,
                                   int *status)
{
    return fixture_infer_with(client, model, batch, variant, NULL, status);
}

sy_client_result *fixture_infer(struct fixture *f, const char *model, int64_t batch, int variant,
                                int *status)
{
    return fixture_infer_on(f->client, model, batch, variant, status);
}

bool fixture_same(const sy_client_result *a, const sy_client_result *b)
{
    bool same = a->n_outputs == b->n_outputs;
    for (int i = 0; same && i < a->n_outputs; i++)
        same = a->outputs[i].bytes == b->outputs[i].bytes &&
               memcmp(a->outputs[i].data, b->outputs[i].data, a->outputs[i].bytes) == 0;
    return same;
}

/* ---- jobs ------------------------------------------------------------------------------------------------ */

static void write_big_endian(FILE *out, uint32_t value)
{
    unsigned char bytes[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16),
                              (unsigned char)(value >> 8), (unsigned char)value};
    fwrite(bytes, 1, 4, out);
}

/* Images whose class is where their bright row is: 28 x 28, as the example network takes them. */
static void write_images(const char *images, const char *labels)
{
    FILE *image = fopen(images, "wb"), *label = fopen(labels, "wb");
    unsigned seed = 11;
    assert_true(image && label);
    write_big_endian(image, 0x803);
    write_big_endian(image, IMAGES);
    write_big_endian(image, 28);
    write_big_endian(image, 28);
    write_big_endian(label, 0x801);
    write_big_endian(label, IMAGES);
    for (int i = 0; i < IMAGES; i++) {
        unsigned char pixels[28 * 28];
        int class = i % 10;
        for (int k = 0; k < 28 * 28; k++) {
            seed = seed * 1664525u + 1013904223u;
            pixels[k] = (unsigned char)(k / 28 / 2 == class ? 200 + (seed >> 27) : seed >> 26);
        }
        fwrite(pixels, 1, sizeof pixels, image);
        fputc(class, label);
    }
    fclose(image);
    fclose(label);
}

const char *fixture_make_job(struct fixture *f, const char *name, int steps, int snapshot_every)
{
    static char path[300];
    char images[256], labels[256], model[700], command[2048], snapshots[300];
    snprintf(images, sizeof images, "%s/images", f->folder);
    snprintf(labels, sizeof labels, "%s/labels", f->folder);
    snprintf(snapshots, sizeof snapshots, "%s/snapshots", f->folder);
    snprintf(model, sizeof model, "%s/mnist_cnn/1/model.onnx", fixture_program("job-models"));
    snprintf(command, sizeof command, "'%s' --out '%s' mnist_cnn >/dev/null",
             fixture_program("make-models"), fixture_program("job-models"));
    assert_int_equal(system(command), 0);
    write_images(images, labels);
    json_t *job = json_pack(
        "{s:s, s:s, s:s, s:{s:s, s:f}, s:{s:s, s:s, s:s}, s:i, s:i, s:i, s:i, s:{s:s, s:i}}",
        "name", name, "model", model, "loss", "softmax_cross_entropy", "optimizer", "kind", "adam",
        "learning_rate", 0.001, "data", "kind", "idx", "images", images, "labels", labels, "batch",
        16, "epochs", 100000, "max_steps", steps, "seed", 5, "snapshot", "folder", snapshots,
        "every_steps", snapshot_every);
    assert_non_null(job);
    snprintf(path, sizeof path, "%s/%s.json", f->folder, name);
    assert_int_equal(json_dump_file(job, path, 0), 0);
    json_decref(job);
    return path;
}

uint64_t fixture_submit(struct fixture *f, const char *job_path)
{
    json_t *job = json_load_file(job_path, 0, NULL);
    char *text = json_dumps(job, JSON_COMPACT);
    json_t *answer = fixture_call(f, "train", json_pack("{s:s}", "text", text));
    json_t *id = json_object_get(answer, "job");
    assert_true(json_is_integer(id));
    uint64_t value = (uint64_t)json_integer_value(id);
    free(text);
    json_decref(job);
    json_decref(answer);
    return value;
}

/* Step of the job; *ended tells its state. */
static uint64_t job_step(struct fixture *f, uint64_t job, bool *ended)
{
    size_t i;
    json_t *entry, *status = fixture_status(f);
    uint64_t step = 0;
    bool found = false;
    json_array_foreach(json_object_get(status, "jobs"), i, entry)
    {
        if ((uint64_t)json_integer_value(json_object_get(entry, "job")) != job)
            continue;
        const char *state = json_string_value(json_object_get(entry, "state"));
        const char *error = json_string_value(json_object_get(entry, "error"));
        found = true;
        step = (uint64_t)json_integer_value(json_object_get(entry, "step"));
        *ended = state && (strcmp(state, "ended") == 0 || strcmp(state, "failed") == 0);
        if (state && strcmp(state, "failed") == 0) {
            show_log(f);
            fail_msg("the job failed: %s", error ? error : "?");
        }
    }
    json_decref(status);
    assert_true(found);
    return step;
}

uint64_t fixture_wait_step(struct fixture *f, uint64_t job, uint64_t wanted)
{
    bool ended = false;
    uint64_t step = 0;
    for (sy_ns deadline = sy_clock_now() + JOB_TIMEOUT_NS; sy_clock_now() < deadline;) {
        step = job_step(f, job, &ended);
        if (ended || step >= wanted) {
            fixture_say("step", step);
            return step;
        }
        sy_clock_sleep_until(sy_clock_now() + 5 * SY_NS_PER_MS);
    }
    show_log(f);
    fail_msg("the job stands at step %llu", (unsigned long long)step);
    return 0;
}

void fixture_wait_ended(struct fixture *f, uint64_t job)
{
    bool ended = false;
    for (sy_ns deadline = sy_clock_now() + JOB_TIMEOUT_NS; !ended && sy_clock_now() < deadline;) {
        job_step(f, job, &ended);
        sy_clock_sleep_until(sy_clock_now() + 10 * SY_NS_PER_MS);
    }
    if (!ended)
        show_log(f);
    assert_true(ended);
    fixture_say("the job has ended", 0);
}

uint64_t fixture_end_job(struct fixture *f, uint64_t job)
{
    bool ended = false;
    json_decref(fixture_call(f, "train_stop", json_pack("{s:I}", "job", (json_int_t)job)));
    uint64_t step = job_step(f, job, &ended);
    assert_true(ended);
    return step;
}

void *fixture_read_snapshot(const struct fixture *f, const char *name, uint64_t step, size_t *bytes)
{
    char path[400];
    unsigned char head[8];
    uint64_t skip = 0;
    snprintf(path, sizeof path, "%s/snapshots/%s-%llu.safetensors", f->folder, name,
             (unsigned long long)step);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("no snapshot %s", path);
    assert_int_equal(fread(head, 1, 8, file), 8);
    for (int i = 7; i >= 0; i--)
        skip = skip << 8 | head[i];
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file) - 8 - skip;
    fseek(file, (long)(8 + skip), SEEK_SET);
    void *data = malloc(*bytes);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}
