/* What the native protocol adds to a model's own time, its tensors in shared memory and, in turns with that, sent through the socket.
 *
 *   native_shared SOCKET MODEL N_REQUESTS        MODEL gives back its input
 *
 * added = the call's time, as this process sees it, less the time that the model had the device, as the server says. echo = a message to a process that gives
 * it back,
 * over a Unix socket, after the same writes to memory: two wake-ups with cold caches, which no server does without. Medians. One line of JSON. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <signal.h>

#include "runtime/base/clock.h"
#include "runtime/client/switchyard.h"

#define MAX_REQUESTS 10000
#define WARM_UP      3
#define ECHO_BYTES   256 /* size of a request without its tensors */

struct sample {
    double added_ns, own_ns;
};

struct series {
    struct sample samples[MAX_REQUESTS];
    int n;
};

struct bench {
    sy_client *client;
    const char *model;
    sy_client_tensor input;
    sy_client_place output;
    sy_client_options shared;
    struct series by_reference, sent, echo;
    int echo_fd;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of one of the two values over all samples. */
static double median_ms(const struct series *series, size_t which)
{
    static double values[MAX_REQUESTS];
    for (int i = 0; i < series->n; i++)
        memcpy(&values[i], (const char *)&series->samples[i] + which, sizeof values[i]);
    qsort(values, (size_t)series->n, sizeof *values, compare);
    return series->n ? values[series->n / 2] / 1e6 : 0;
}

/* Sends one request; options NULL: outputs come through the socket, and so does the input unless `data` is shared memory. */
static int ask(struct bench *b, const void *data, const sy_client_options *options,
               struct series *series)
{
    sy_client_tensor input = b->input;
    sy_client_result *result = NULL;
    input.data = data;
    sy_ns start = sy_clock_now();
    int status = sy_client_infer_with(b->client, b->model, &input, 1, options, &result);
    sy_ns took = sy_clock_now() - start;
    if (status < 0) {
        fprintf(stderr, "native_shared: %s\n", sy_client_error(b->client));
        return -1;
    }
    int same = result->n_outputs == 1 && result->outputs[0].bytes == input.bytes &&
               memcmp(result->outputs[0].data, data, input.bytes) == 0;
    if (series)
        series->samples[series->n++] =
            (struct sample){(double)took - (double)result->served_ns, (double)result->served_ns};
    sy_client_result_free(result);
    if (!same)
        fprintf(stderr, "native_shared: the output is not the input\n");
    return same ? 0 : -1;
}

static void give_back(int fd)
{
    char message[ECHO_BYTES];
    ssize_t n;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while ((n = read(fd, message, sizeof message)) > 0)
        if (write(fd, message, (size_t)n) != n)
            break;
    _exit(0);
}

/* The child ends with this process. */
static int start_echo(struct bench *b)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        give_back(ends[1]);
    }
    close(ends[1]);
    b->echo_fd = ends[0];
    return child < 0 ? -1 : 0;
}

static int echo(struct bench *b, struct series *series)
{
    char message[ECHO_BYTES] = {0};
    sy_ns start = sy_clock_now();
    if (write(b->echo_fd, message, sizeof message) != sizeof message ||
        recv(b->echo_fd, message, sizeof message, MSG_WAITALL) != sizeof message)
        return -1;
    if (series)
        series->samples[series->n++] = (struct sample){(double)(sy_clock_now() - start), 0};
    return 0;
}

static int measure(struct bench *b, char *shared, const char *own, int n)
{
    for (int i = 0; i < n + WARM_UP; i++) {
        bool counts = i >= WARM_UP;
        memset(shared + b->input.bytes, 0,
               b->input.bytes); /* so that an old output cannot pass for the answer */
        if (ask(b, shared, &b->shared, counts ? &b->by_reference : NULL) < 0)
            return -1;
        memset(shared + b->input.bytes, 0, b->input.bytes);
        if (echo(b, counts ? &b->echo : NULL) < 0)
            return -1;
        if (i % 4 == 0 && ask(b, own, NULL, counts ? &b->sent : NULL) < 0)
            return -1;
    }
    return 0;
}

static void fill(char *shared, char *own, size_t bytes)
{
    float *values = (float *)(void *)own;
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = (float)(i % 1000);
    memcpy(shared, own, bytes);
}

/* Reads the shape of the model's only input, for one row. */
static int describe(struct bench *b)
{
    sy_client_model *model;
    if (sy_client_model_find(b->client, b->model, &model) < 0)
        return -1;
    const sy_client_port *port = &model->inputs[0];
    b->input = (sy_client_tensor){
        .name = strdup(port->name), .dtype = "FP32", .rank = port->rank, .bytes = sizeof(float)};
    for (int i = 0; i < port->rank; i++) {
        b->input.shape[i] = port->shape[i] < 0 ? 1 : port->shape[i];
        b->input.bytes *= (size_t)b->input.shape[i];
    }
    b->output = (sy_client_place){.name = strdup(model->outputs[0].name), .bytes = b->input.bytes};
    b->shared = (sy_client_options){
        .urgency_class = SWITCHYARD_USUAL_CLASS, .places = &b->output, .n_places = 1};
    sy_client_model_free(model);
    return b->input.name && b->output.name ? 0 : -1;
}

static int run(struct bench *b, int n)
{
    sy_client_region *region = NULL;
    if (start_echo(b) < 0) {
        perror("native_shared: no process for the echo");
        return 1;
    }
    if (describe(b) < 0 || sy_client_region_create(b->client, 2 * b->input.bytes, &region) < 0) {
        fprintf(stderr, "native_shared: %s\n", sy_client_error(b->client));
        return 1;
    }
    char *shared = sy_client_region_data(region), *own = malloc(b->input.bytes);
    b->output.data = shared + b->input.bytes;
    if (own)
        fill(shared, own, b->input.bytes);
    int failed = !own || measure(b, shared, own, n) < 0;
    free(own);
    sy_client_region_destroy(region);
    if (failed)
        return 1;
    size_t added = offsetof(struct sample, added_ns), alone = offsetof(struct sample, own_ns);
    printf("{\"n\": %d, \"bytes\": %zu, \"added_ms\": %.4f, \"own_ms\": %.3f, \"sent_added_ms\": "
           "%.3f, \"echo_ms\": %.4f}\n",
           b->by_reference.n, b->input.bytes, median_ms(&b->by_reference, added),
           median_ms(&b->by_reference, alone), median_ms(&b->sent, added),
           median_ms(&b->echo, added));
    return 0;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    int n = argc == 4 ? atoi(argv[3]) : 0;
    if (n < 1 || n > MAX_REQUESTS) {
        fprintf(stderr, "usage: native_shared SOCKET MODEL N_REQUESTS (1 to %d)\n", MAX_REQUESTS);
        return 2;
    }
    bench.model = argv[2];
    if (sy_client_connect(argv[1], 60000, &bench.client) < 0) {
        fprintf(stderr, "native_shared: %s\n", sy_client_error(bench.client));
        return 1;
    }
    int result = run(&bench, n);
    sy_client_close(bench.client);
    return result;
}
