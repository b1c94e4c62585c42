#include <event2/event.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_front.h"

struct fuzz_front fuzz_front;

/* ---- the fake core ---------------------------------------------------------------------------------------------------- */

static int indices[3] = {0, 1, 2};
static struct sy_tensor tensors[3] = {
    {.name = "x", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {2, 0}}}},
    {.name = "k", .dtype = SY_DTYPE_U8, .shape = {1, {{3, 0}}}},
    {.name = "y", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {2, 0}}}},
};
static struct sy_graph graph = {.n_tensors = 3,
                                .tensors = tensors,
                                .n_inputs = 2,
                                .inputs = indices,
                                .n_outputs = 1,
                                .outputs = &indices[2]};
static struct sy_package package = {.name = "m", .graph = &graph, .usual = &graph};
static struct sy_core_model_ref model = {.package = &package, .name = "m", .version = 1};

static struct sy_graph single = {.n_tensors = 3,
                                 .tensors = tensors,
                                 .n_inputs = 1,
                                 .inputs = indices,
                                 .n_outputs = 1,
                                 .outputs = &indices[2]};
static struct sy_package single_package = {.name = "o", .graph = &single, .usual = &single};
static struct sy_core_model_ref single_model = {
    .package = &single_package, .name = "o", .version = 1};

static void answer(evutil_socket_t fd, short what, void *ctx)
{
    struct fuzz_owed *owed = ctx;
    struct sy_request_report report = {.id = 1, .arrived_ns = 1, .finished_ns = 5, .attempts = 1};
    int status = fuzz_front.refuses ? SY_EBUSY : SY_OK;

    (void)fd, (void)what;
    fuzz_front.n_pending--;
    if (owed->output_bytes > 0)
        memset(sy_slab_pointer(fuzz_front.slab, owed->output), 'y', owed->output_bytes);
    if (owed->infer_done)
        owed->infer_done(owed->ctx, status, "busy", &report);
    else if (owed->done)
        owed->done(owed->ctx, status, "busy");
    else
        owed->drained(owed->ctx);
    free(owed);
}

int fuzz_front_owe(struct fuzz_owed owed)
{
    struct fuzz_owed *kept = malloc(sizeof *kept);

    FUZZ_CHECK(kept);
    *kept = owed;
    fuzz_front.n_pending++;
    FUZZ_CHECK(event_base_once(fuzz_front.front.base, -1, EV_TIMEOUT, answer, kept,
                               &(struct timeval){0, 0}) == 0);
    return SY_OK;
}

static struct sy_slab *fake_slab(void *core)
{
    (void)core;
    return fuzz_front.slab;
}

static int fake_acquire(void *core, const char *name, int64_t version,
                        struct sy_core_model_ref **out)
{
    (void)core;
    if ((strcmp(name, "m") != 0 && strcmp(name, "o") != 0) || version > 1)
        return sy_error_set(SY_ENOTFOUND, "no model \"%s\"", name);
    *out = *name == 'o' ? &single_model : fuzz_front.m ? fuzz_front.m : &model;
    fuzz_front.n_refs++;
    return SY_OK;
}

static void fake_release(void *core, struct sy_core_model_ref *ref)
{
    (void)core;
    fuzz_front.n_refs -= ref != NULL;
}

static int fake_infer(void *core, const struct sy_core_model_ref *ref, int64_t batch,
                      const uint64_t *inputs, const uint64_t *outputs,
                      const struct sy_core_infer_options *options, sy_core_infer_done done,
                      void *ctx, uint64_t *out_id)
{
    const struct sy_graph *of = ref->package->graph;
    uint64_t bytes = 4 * (uint64_t)sy_shape_elements(&of->tensors[of->outputs[0]].shape, batch);
    bool in_slab = true;
    static uint64_t id;

    (void)core;
    if (fuzz_front.check)
        SY_TRY(fuzz_front.check(batch, options->sizes, inputs, outputs, &in_slab));
    *out_id = ++id;
    return fuzz_front_owe((struct fuzz_owed){
        .infer_done = done, .ctx = ctx, .output = outputs[0], .output_bytes = in_slab ? bytes : 0});
}

static void fake_cancel(void *core, uint64_t id)
{
    (void)core, (void)id; /* runs on, as a request that has started does */
}

static int fake_status(void *core, json_t **out)
{
    (void)core;
    *out = json_pack("{s:[{s:s, s:i}]}", "models", "name", "m", "version", 1);
    return SY_OK;
}

static int fake_remove(void *core, const char *name, int64_t version)
{
    (void)core, (void)version;
    return sy_error_set(SY_ENOTFOUND, "no model \"%s\"", name);
}

static void use_fakes(struct sy_core_handlers *h)
{
    h->slab = fake_slab;
    h->model_acquire = fake_acquire;
    h->model_release = fake_release;
    h->infer = fake_infer;
    h->infer_cancel = fake_cancel;
    h->model_remove = h->model_remove ? h->model_remove : fake_remove;
    h->status = h->status ? h->status : fake_status;
}

/* ---- the front --------------------------------------------------------------------------------------------------------- */

void fuzz_front_open(void)
{
    struct sy_front *front = &fuzz_front.front;

    use_fakes(&fuzz_front.handlers);
    *front = (struct sy_front){
        .base = event_base_new(), .handlers = &fuzz_front.handlers, .is_ready = true};
    FUZZ_CHECK(front->base && sy_slab_create(16 << 20, &fuzz_front.slab) == SY_OK);
    FUZZ_CHECK(sy_offload_create(front->base, 1, 16, &fuzz_front.offload) == SY_OK);
    FUZZ_CHECK(sy_shared_regions_create(front, &front->regions) == SY_OK);
}

void fuzz_front_stop_threads(void)
{
    sy_offload_destroy(fuzz_front.offload);
    fuzz_front.offload = fuzz_front.front.offload = NULL;
}

void fuzz_front_close(void)
{
    sy_shared_regions_destroy(fuzz_front.front.regions);
    sy_slab_destroy(fuzz_front.slab);
    event_base_free(fuzz_front.front.base);
}

/* ---- the client ----------------------------------------------------------------------------------------------------- */

struct fuzz_answers fuzz_answers;

static void read_answers(int fd)
{
    struct fuzz_answers *a = &fuzz_answers;
    ssize_t n;

    while (a->n < sizeof a->bytes &&
           (n = recv(fd, a->bytes + a->n, sizeof a->bytes - a->n, MSG_DONTWAIT)) > 0)
        a->n += (size_t)n;
}

void fuzz_front_settle(int fd, bool has_thread)
{
    for (int idle = 0; idle < 2;) {
        int before = fuzz_front.n_pending;
        size_t had = fuzz_answers.n;

        event_base_loop(fuzz_front.front.base, EVLOOP_NONBLOCK);
        if (has_thread)
            sched_yield();
        if (fd >= 0)
            read_answers(fd);
        idle = fuzz_front.n_pending == 0 && before == 0 && fuzz_answers.n == had ? idle + 1 : 0;
    }
}

void fuzz_front_send(int fd, const uint8_t *data, size_t size, const struct fuzz_sending *how)
{
    size_t piece = how->log_piece ? (size_t)1 << how->log_piece : size;

    for (size_t at = 0, stuck = 0; at < size && stuck < 3;) {
        ssize_t sent = send(fd, data + at, SY_MIN(size - at, piece), MSG_DONTWAIT | MSG_NOSIGNAL);

        stuck = sent > 0 ? 0 : stuck + 1;
        at += sent > 0 ? (size_t)sent : 0;
        if (how->goes)
            event_base_loop(fuzz_front.front.base, EVLOOP_NONBLOCK);
        else
            fuzz_front_settle(fd, how->has_thread);
        if (how->after_piece)
            how->after_piece();
        piece *= 2; /* a long input must not take a thousand rounds */
    }
}

void fuzz_front_wait_for_threads(const struct sy_front_server *server)
{
    for (int i = 0; i < 10000 && (server->refs > 1 || fuzz_front.n_pending > 0); i++) {
        event_base_loop(fuzz_front.front.base, EVLOOP_NONBLOCK);
        usleep(i < 10 ? 0 : 100);
    }
}
