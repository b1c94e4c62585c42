#include "examples/demo/demo.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"

static uint64_t next_random(uint64_t *state)
{
    /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static double next_uniform(uint64_t *state)
{
    return ((double)(next_random(state) >> 11) + 0.5) / 9007199254740992.0;
}

void demo_samples_add(struct demo_samples *s, double ms)
{
    if (s->n == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 64;
        s->ms = realloc(s->ms, (size_t)s->capacity * sizeof *s->ms);
        if (!s->ms) {
            fprintf(stderr, "demo: out of memory\n");
            exit(1);
        }
    }
    s->ms[s->n++] = ms;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double demo_samples_quantile(const struct demo_samples *s, double q)
{
    if (s->n == 0)
        return NAN;
    qsort(s->ms, (size_t)s->n, sizeof *s->ms, compare_doubles);
    int rank = (int)ceil(q * s->n) - 1;
    return s->ms[rank < 0 ? 0 : rank];
}

static void set_tensor(sy_client_tensor *t, const char *name, const char *dtype,
                       size_t element_bytes, int rank, const int64_t *shape)
{
    size_t elements = 1;
    t->name = name;
    t->dtype = dtype;
    t->rank = rank;
    for (int i = 0; i < rank; i++) {
        t->shape[i] = shape[i];
        elements *= (size_t)shape[i];
    }
    t->bytes = elements * element_bytes;
}

static int fill_image(sy_client_tensor *t, int64_t side, uint64_t seed)
{
    set_tensor(t, "input", "FP32", 4, 4, (int64_t[]){1, 3, side, side});
    float *data = malloc(t->bytes);
    if (!data)
        return -1;
    for (size_t i = 0; i < t->bytes / 4; i++)
        data[i] = (float)(2 * next_uniform(&seed) - 1);
    t->data = data;
    return 0;
}

static int fill_tokens(sy_client_tensor *t, const char *name, uint64_t seed)
{
    set_tensor(t, name, "INT64", 8, 2, (int64_t[]){1, 128});
    int64_t *data = malloc(t->bytes);
    if (!data)
        return -1;
    int64_t length = 64 + (int64_t)(next_random(&seed) % 65);
    for (int64_t i = 0; i < 128; i++) {
        if (strcmp(name, "input_ids") == 0)
            data[i] = i < length ? (int64_t)(next_random(&seed) % 30000) : 0;
        else
            data[i] = strcmp(name, "attention_mask") == 0 && i < length;
    }
    t->data = data;
    return 0;
}

int demo_make_inputs(struct demo_model *model)
{
    static const char *const tokens[] = {"input_ids", "attention_mask", "token_type_ids"};
    bool text = strcmp(model->name, "bert_base") == 0;
    int64_t side = strcmp(model->name, "inception_v3") == 0 ? 299 : 224;
    model->n_inputs = text ? 3 : 1;
    for (int v = 0; v < DEMO_VARIANTS; v++)
        for (int i = 0; i < model->n_inputs; i++) {
            sy_client_tensor *t = &model->inputs[v][i];
            int status = text ? fill_tokens(t, tokens[i], 100 + (uint64_t)v)
                              : fill_image(t, side, 200 + (uint64_t)v);
            if (status < 0)
                return status;
        }
    return 0;
}

bool demo_same_outputs(const sy_client_result *a, const sy_client_result *b)
{
    if (a->n_outputs != b->n_outputs)
        return false;
    for (int i = 0; i < a->n_outputs; i++)
        if (a->outputs[i].bytes != b->outputs[i].bytes ||
            memcmp(a->outputs[i].data, b->outputs[i].data, a->outputs[i].bytes) != 0)
            return false;
    return true;
}

/* ---- load --------------------------------------------------------------------------------------- */

struct load {
    struct demo *demo;
    const char *address;
    double rate_per_client;
    sy_ns end;
    pthread_mutex_t lock; /* over demo's results */
};

struct load_client {
    struct load *load;
    uint64_t seed;
    pthread_t thread;
};

static void note_error(struct demo *demo, const char *what)
{
    if (demo->failed++ == 0)
        snprintf(demo->first_error, sizeof demo->first_error, "%s", what);
}

static void note_result(struct load *load, struct demo_model *model, int variant,
                        const sy_client_result *r, sy_ns client_ns)
{
    struct demo *demo = load->demo;
    double device_ms = (double)(r->total_ns - r->queue_ns) / 1e6;
    demo->wrong += !demo_same_outputs(r, model->reference[variant]);
    demo->swaps += r->swapped;
    demo_samples_add(&model->end_to_end, (double)client_ns / 1e6);
    if (r->preempted) {
        demo->preempted++;
        demo_samples_add(&demo->preempt_wait, (double)r->preempt_wait_ns / 1e6);
    }
    if (r->swapped)
        demo_samples_add(&model->swap, device_ms);
}

static void one_request(struct load *load, sy_client *client, uint64_t *seed)
{
    struct demo_model *model = &load->demo->models[next_random(seed) % DEMO_MODELS];
    int variant = (int)(next_random(seed) % DEMO_VARIANTS);
    sy_client_result *result = NULL;
    sy_ns start = sy_clock_now();
    int status =
        sy_client_infer(client, model->name, model->inputs[variant], model->n_inputs, &result);
    sy_ns took = sy_clock_now() - start;
    pthread_mutex_lock(&load->lock);
    load->demo->requests++;
    if (status < 0)
        note_error(load->demo, sy_client_error(client));
    else
        note_result(load, model, variant, result, took);
    pthread_mutex_unlock(&load->lock);
    sy_client_result_free(result);
}

static void *client_main(void *arg)
{
    struct load_client *c = arg;
    struct load *load = c->load;
    sy_client *client = NULL;
    if (sy_client_connect(load->address, 60000, &client) < 0) {
        pthread_mutex_lock(&load->lock);
        note_error(load->demo, "a client could not connect");
        pthread_mutex_unlock(&load->lock);
        return NULL;
    }
    sy_ns next = sy_clock_now();
    for (;;) {
        next += (sy_ns)(-log(next_uniform(&c->seed)) / load->rate_per_client * 1e9);
        if (next >= load->end)
            break;
        sy_clock_sleep_until(next);
        one_request(load, client, &c->seed);
    }
    sy_client_close(client);
    return NULL;
}

static void show_progress(struct load *load, sy_ns start)
{
    struct demo *demo = load->demo;
    bool terminal = isatty(STDOUT_FILENO);
    for (int tick = 1;; tick++) {
        sy_clock_sleep_until(SY_MIN(start + (sy_ns)tick * SY_NS_PER_S, load->end));
        sy_ns now = sy_clock_now();
        if (terminal || tick % 10 == 0 || now >= load->end) {
            pthread_mutex_lock(&load->lock);
            printf("%s  %3.0f s of %.0f   requests %ld   swaps %ld   preemptions %ld   failed %ld  "
                   " wrong %ld%s",
                   terminal ? "\r" : "", (double)(now - start) / 1e9, demo->seconds, demo->requests,
                   demo->swaps, demo->preempted, demo->failed, demo->wrong, terminal ? "  " : "\n");
            pthread_mutex_unlock(&load->lock);
            fflush(stdout);
        }
        if (now >= load->end)
            break;
    }
    if (terminal)
        printf("\n");
}

int demo_run_clients(struct demo *demo, const char *address, double rate)
{
    struct load_client clients[16];
    sy_ns start = sy_clock_now();
    struct load load = {
        .demo = demo,
        .address = address,
        .rate_per_client = rate / demo->n_clients,
        .end = start + (sy_ns)(demo->seconds * 1e9),
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    for (int i = 0; i < demo->n_clients; i++) {
        clients[i] = (struct load_client){.load = &load, .seed = 1000 + (uint64_t)i};
        if (pthread_create(&clients[i].thread, NULL, client_main, &clients[i]) != 0)
            return -1;
    }
    show_progress(&load, start);
    for (int i = 0; i < demo->n_clients; i++)
        pthread_join(clients[i].thread, NULL);
    return 0;
}
