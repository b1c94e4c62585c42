#include "bench/serve/load_core.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"

#define SPIN_NS  (200 * SY_NS_PER_US) /* a sleep may end this much late */
#define GRACE_NS (30 * SY_NS_PER_S)   /* wait for the last answers */
/* A step of the loop takes 20 us at most, unless its core is taken away. */
#define STALL_NS     (200 * SY_NS_PER_US)
#define MAX_SAMPLES  20000000u
#define MAX_EVENTS   256
#define MAX_FAILURES 100 /* give up after this many */

struct load {
    struct load_options options;
    const struct load_protocol *protocol;
    int epoll_fd;
    struct load_connection *connections, **free_list;
    int n_free, n_busy;
    uint64_t n_due;      /* requests due so far: the schedule's k */
    uint64_t n_answered; /* from first_ns, exclusive, to last_ns: see count_rate */
    uint64_t n_unserved, n_errors;
    sy_ns start_ns, count_from_ns, end_ns, first_ns, last_ns;
    /* Stalls of this process: the time of its last step, how long they were, and until when requests were due that waited for it. */
    sy_ns step_ns, stalled_ns, disturbed_until_ns;
    bool catches_up;
    /* of the counted requests, in order of their answers; smooth: of those that no stall of this process touched */
    uint32_t *latency_ns, *late_ns, *smooth_ns;
    uint64_t n_latency, n_late, n_smooth;
    char error[256];
};

/* ---- counting ------------------------------------------------------------------------------------------ */

static void sample(uint32_t *list, uint64_t *n, sy_ns value)
{
    if (*n < MAX_SAMPLES)
        list[(*n)++] = (uint32_t)SY_MIN(value, (sy_ns)UINT32_MAX);
}

/* The rate is measured from the first counted answer to the first one after the end: an interval between answers, so that it is defined for few answers too,
 * and a server that stalls at the end is charged for it. */
static void count_rate(struct load *load, sy_ns now)
{
    if (now < load->count_from_ns || load->last_ns >= load->end_ns)
        return;
    load->n_answered += load->first_ns != 0;
    load->first_ns = load->first_ns ? load->first_ns : now;
    load->last_ns = now;
}

static double rate(const struct load *load)
{
    sy_ns end = SY_MAX(load->last_ns, load->end_ns);
    return load->first_ns && end > load->first_ns
               ? (double)load->n_answered * 1e9 / (double)(end - load->first_ns)
               : 0;
}

/* A step of the loop: a request sent, an event handled, a look for events. A long one is a core that was taken away. */
static sy_ns step(struct load *load)
{
    sy_ns now = sy_clock_now();
    if (load->step_ns && now > load->step_ns + STALL_NS) {
        load->stalled_ns += now - load->step_ns;
        load->catches_up = true;
        load->disturbed_until_ns = now;
    }
    load->step_ns = now;
    return now;
}

/* No request is late, or all connections have one: those due from now on wait for the server. */
static void caught_up(struct load *load, sy_ns now)
{
    if (load->catches_up)
        load->disturbed_until_ns = now;
    load->catches_up = false;
}

void load_answered(struct load_connection *connection, bool right)
{
    struct load *load = connection->load;
    sy_ns now = step(load);
    if (!connection->busy)
        return;
    connection->busy = false;
    load->n_busy--;
    load->free_list[load->n_free++] = connection;
    if (!right)
        load->n_errors++;
    count_rate(load, now);
    if (connection->due_ns < load->count_from_ns)
        return;
    sample(load->latency_ns, &load->n_latency, now - connection->due_ns);
    if (!load->catches_up && connection->due_ns >= load->disturbed_until_ns)
        sample(load->smooth_ns, &load->n_smooth, now - connection->due_ns);
}

int load_fail(struct load_connection *connection, const char *format, ...)
{
    struct load *load = connection->load;
    va_list arguments;
    va_start(arguments, format);
    if (!*load->error)
        vsnprintf(load->error, sizeof load->error, format, arguments);
    va_end(arguments);
    load->n_errors++;
    return -1;
}

void *load_context(const struct load_connection *connection)
{
    return connection->load->options.context;
}

/* ---- connections --------------------------------------------------------------------------------------- */

static int connect_to(const struct load_options *options)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int fd = -1, on = 1;
    if (getaddrinfo(options->host, options->port, &hints, &found) == 0) {
        fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
        freeaddrinfo(found);
    }
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
    return fd;
}

static int watch(struct load_connection *connection, int how)
{
    struct epoll_event event = {.events = EPOLLIN | (connection->wants_write ? EPOLLOUT : 0),
                                .data.ptr = connection};
    return epoll_ctl(connection->load->epoll_fd, how, connection->fd, &event);
}

static int flush(struct load_connection *connection)
{
    bool wanted = connection->wants_write;
    connection->wants_write = false;
    if (connection->load->protocol->flush(connection) < 0)
        return -1;
    if (wanted != connection->wants_write)
        watch(connection, EPOLL_CTL_MOD);
    return 0;
}

static int open_connection(struct load *load, struct load_connection *connection)
{
    *connection = (struct load_connection){.load = load, .fd = connect_to(&load->options)};
    if (connection->fd < 0)
        return load_fail(connection, "cannot connect to %s:%s: %s", load->options.host,
                         load->options.port, strerror(errno));
    load->free_list[load->n_free++] = connection;
    watch(connection, EPOLL_CTL_ADD);
    return load->protocol->open(connection) < 0 ? -1 : flush(connection);
}

/* Reconnects after a failure: its request is lost, and a new one takes its place. */
static int renew(struct load_connection *connection)
{
    struct load *load = connection->load;
    load_answered(connection, true); /* load_fail has counted the error */
    for (int i = 0; i < load->n_free; i++)
        if (load->free_list[i] == connection) {
            load->free_list[i] = load->free_list[--load->n_free];
            break;
        }
    load->protocol->close(connection);
    close(connection->fd);
    return load->n_errors > MAX_FAILURES ? -1 : open_connection(load, connection);
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

static sy_ns due_at(const struct load *load, uint64_t k)
{
    return load->start_ns + (sy_ns)((double)k * 1e9 / load->options.rate);
}

/* Whether a request is to be sent now, and when it was due. */
static bool take_due(struct load *load, sy_ns now, sy_ns *due_ns)
{
    *due_ns = load->options.rate > 0 ? due_at(load, load->n_due) : now;
    if (*due_ns > now || load->options.rate <= 0 || load->n_free == 0)
        caught_up(load, now);
    if (now >= load->end_ns || load->n_free == 0 || *due_ns > now || *due_ns >= load->end_ns)
        return false;
    load->n_due++;
    return true;
}

static int send_due(struct load *load)
{
    sy_ns now = step(load), due_ns;
    while (take_due(load, now, &due_ns)) {
        struct load_connection *connection = load->free_list[--load->n_free];
        connection->busy = true;
        connection->due_ns = due_ns;
        load->n_busy++;
        if (due_ns >= load->count_from_ns)
            sample(load->late_ns, &load->n_late, now - due_ns);
        if (load->protocol->start(connection) < 0 || flush(connection) < 0)
            if (renew(connection) < 0)
                return -1;
        now = step(load);
    }
    return 0;
}

/* Timeout for epoll in milliseconds: 0 when the next request is due soon. */
static int patience(const struct load *load)
{
    sy_ns now = sy_clock_now();
    if (load->options.rate <= 0 || load->n_free == 0 || now >= load->end_ns)
        return 20;
    sy_ns due = due_at(load, load->n_due);
    return due <= now + SPIN_NS ? 0 : (int)((due - now - SPIN_NS) / SY_NS_PER_MS);
}

static int handle(struct load_connection *connection, uint32_t events)
{
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) &&
        connection->load->protocol->receive(connection) < 0)
        return renew(connection);
    return flush(connection) < 0 ? renew(connection) : 0;
}

static bool goes_on(const struct load *load)
{
    sy_ns now = sy_clock_now();
    return now < load->end_ns || (load->n_busy > 0 && now < load->end_ns + GRACE_NS);
}

/* Counts requests that were due but never sent for want of a free connection: they have waited at least until the end. */
static void count_unserved(struct load *load)
{
    for (uint64_t k = load->n_due; load->options.rate > 0 && due_at(load, k) < load->end_ns; k++) {
        load->n_unserved++;
        if (due_at(load, k) >= load->count_from_ns)
            sample(load->latency_ns, &load->n_latency, load->end_ns - due_at(load, k));
    }
}

static int loop(struct load *load)
{
    struct epoll_event events[MAX_EVENTS];
    while (goes_on(load)) {
        if (send_due(load) < 0)
            return -1;
        int wait_ms = patience(load);
        sy_ns woken_ns = sy_clock_now() + (sy_ns)wait_ms * SY_NS_PER_MS;
        int n = epoll_wait(load->epoll_fd, events, MAX_EVENTS, wait_ms);
        if (wait_ms > 0) /* when it should have been woken is known only where no event did it */
            load->step_ns = n == 0 ? woken_ns : 0;
        for (int i = 0; i < n; i++) {
            step(load);
            if (handle(events[i].data.ptr, events[i].events) < 0)
                return -1;
        }
    }
    load->n_errors += (uint64_t)load->n_busy; /* never answered */
    count_unserved(load);
    return 0;
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double quantile_us(const uint32_t *sorted, uint64_t n, double q)
{
    return n ? sorted[SY_MIN((uint64_t)(q * (double)n), n - 1)] / 1e3 : 0;
}

static double mean_us(const uint32_t *samples, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += samples[i] / 1e3;
    return n ? sum / (double)n : 0;
}

/* The end of the line; null: a stall touched every request. */
static void print_smooth(const uint32_t *sorted, uint64_t n)
{
    if (n)
        printf("\"smooth_p99_us\": %.1f, \"smooth_max_us\": %.1f}\n", quantile_us(sorted, n, 0.99),
               quantile_us(sorted, n, 1));
    else
        printf("\"smooth_p99_us\": null, \"smooth_max_us\": null}\n");
}

static void print(struct load *load)
{
    uint32_t *l = load->latency_ns;
    uint64_t n = load->n_latency;
    qsort(l, n, sizeof *l, compare);
    qsort(load->late_ns, load->n_late, sizeof *l, compare);
    qsort(load->smooth_ns, load->n_smooth, sizeof *l, compare);
    printf("{\"n\": %llu, \"errors\": %llu, \"error\": \"%s\", \"unserved\": %llu, \"rps\": "
           "%.1f, \"mean_us\": %.2f, \"min_us\": %.1f, \"p50_us\": %.1f, \"p90_us\": %.1f, "
           "\"p99_us\": %.1f, "
           "\"p999_us\": %.1f, \"max_us\": %.1f, \"late_p99_us\": %.1f, \"stalled_ms\": %.1f, "
           "\"smooth_n\": %llu, ",
           (unsigned long long)n, (unsigned long long)load->n_errors, load->error,
           (unsigned long long)load->n_unserved, rate(load), mean_us(l, n), quantile_us(l, n, 0),
           quantile_us(l, n, 0.5), quantile_us(l, n, 0.9), quantile_us(l, n, 0.99),
           quantile_us(l, n, 0.999), quantile_us(l, n, 1),
           quantile_us(load->late_ns, load->n_late, 0.99), (double)load->stalled_ns / 1e6,
           (unsigned long long)load->n_smooth);
    print_smooth(load->smooth_ns, load->n_smooth);
}

static int take_memory(struct load *load)
{
    size_t n = (size_t)load->options.n_connections;
    load->connections = calloc(n, sizeof *load->connections);
    load->free_list = calloc(n, sizeof(struct load_connection *));
    load->latency_ns = malloc(MAX_SAMPLES * sizeof(uint32_t)); /* pages are touched as it fills */
    load->late_ns = malloc(MAX_SAMPLES * sizeof(uint32_t));
    load->smooth_ns = malloc(MAX_SAMPLES * sizeof(uint32_t));
    load->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return load->connections && load->free_list && load->latency_ns && load->late_ns &&
                   load->smooth_ns && load->epoll_fd >= 0
               ? 0
               : -1;
}

static void give_back(struct load *load)
{
    for (int i = 0; load->connections && i < load->options.n_connections; i++)
        if (load->connections[i].load && load->connections[i].fd >= 0) {
            load->protocol->close(&load->connections[i]);
            close(load->connections[i].fd);
        }
    close(load->epoll_fd);
    free(load->connections);
    free(load->free_list);
    free(load->latency_ns);
    free(load->late_ns);
    free(load->smooth_ns);
}

int load_run(const struct load_options *options, const struct load_protocol *protocol)
{
    struct load load = {.options = *options, .protocol = protocol};
    int failed = take_memory(&load);
    for (int i = 0; !failed && i < options->n_connections; i++)
        failed = open_connection(&load, &load.connections[i]);
    load.start_ns = sy_clock_now();
    load.count_from_ns = load.start_ns + (sy_ns)(options->warm_up_seconds * 1e9);
    load.end_ns = load.count_from_ns + (sy_ns)(options->seconds * 1e9);
    if (!failed)
        failed = loop(&load);
    failed = failed || load.n_latency == 0;
    if (failed)
        fprintf(stderr, "load: nothing measured: %s\n", *load.error ? load.error : "no answer");
    else
        print(&load);
    give_back(&load);
    return failed;
}

/* ---- options ------------------------------------------------------------------------------------------- */

char *load_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    char *data = NULL;
    long size = -1;
    if (file && fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size >= 0)
        data = malloc((size_t)size + 1);
    rewind(file ? file : stdin);
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) {
        fprintf(stderr, "load: cannot read %s\n", path);
        exit(2);
    }
    fclose(file);
    *bytes = (size_t)size;
    return data;
}

static void usage(const char *program, const char *word)
{
    fprintf(stderr,
            "%s: %s?\nusage: %s HOST PORT [--connections N] [--seconds S] [--warm-up S] [--rate "
            "PER_SECOND] [--NAME VALUE of the protocol]\n",
            program, word, program);
    exit(2);
}

void load_parse(int argc, char **argv, struct load_options *options,
                bool (*extra)(void *context, const char *name, const char *value))
{
    if (argc < 3)
        usage(argv[0], "HOST PORT");
    options->host = argv[1];
    options->port = argv[2];
    options->n_connections = 64;
    options->seconds = 5;
    options->warm_up_seconds = 1;
    for (int i = 3; i < argc; i += 2) {
        if (i + 1 == argc)
            usage(argv[0], argv[i]);
        if (strcmp(argv[i], "--connections") == 0)
            options->n_connections = SY_MIN(SY_MAX(atoi(argv[i + 1]), 1), 10000);
        else if (strcmp(argv[i], "--seconds") == 0)
            options->seconds = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--warm-up") == 0)
            options->warm_up_seconds = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--rate") == 0)
            options->rate = atof(argv[i + 1]);
        else if (!extra(options->context, argv[i], argv[i + 1]))
            usage(argv[0], argv[i]);
    }
}
