/* A version's warm-up: the runs of model_warmup, one after the other, on the model that the core has already. */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/front/request/front_infer.h"
#include "runtime/repository/repository_internal.h"
#include "runtime/repository/warmup_files.h"

struct sy_warmup {
    struct sy_front front;          /* its own: it may outlive the repository */
    struct sy_model_config *config; /* held */
    struct sy_warmup_files *files;
    struct sy_core_model_ref *ref;
    struct sy_front_infer *infer; /* the running request */
    struct event *next_event;
    int at, n_run; /* of config->warmups[at] */
    bool stops;
    uint64_t random;
    sy_core_done done; /* NULL: abandoned */
    void *ctx;
};

static void end(struct sy_warmup *w, int status, const char *why)
{
    sy_core_done done = w->done;
    void *ctx = w->ctx;
    char text[512];

    snprintf(text, sizeof text, "model_warmup '%s': %s",
             w->at < w->config->n_warmups ? w->config->warmups[w->at].name : "", why);
    sy_front_infer_destroy(w->infer);
    w->front.handlers->model_release(w->front.core, w->ref);
    sy_model_config_free(w->config);
    sy_warmup_files_free(w->files);
    event_free(w->next_event);
    free(w);
    if (done)
        done(ctx, status, text);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

static uint64_t next_random(struct sy_warmup *w)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return w->random >> 33;
}

/* Numbers from 0 to 1: indices stay within any table. */
static void fill_random(struct sy_warmup *w, enum sy_dtype dtype, void *data, uint64_t bytes)
{
    uint64_t n = bytes / sy_dtype_bytes(dtype);

    for (uint64_t i = 0; i < n; i++) {
        uint64_t r = next_random(w);
        float unit = (float)(r & 0xffffff) / 16777216.0f;

        switch (dtype) {
        case SY_DTYPE_F32:
            ((float *)data)[i] = unit;
            break;
        case SY_DTYPE_F64:
            ((double *)data)[i] = (double)unit;
            break;
        case SY_DTYPE_F16:
            ((uint16_t *)data)[i] = sy_float_to_half(unit);
            break;
        case SY_DTYPE_BF16:
            ((uint16_t *)data)[i] = sy_float_to_bf16(unit);
            break;
        default: /* little endian: the first byte of an integer */
            ((unsigned char *)data)[i * sy_dtype_bytes(dtype)] = r & 1;
        }
    }
}

/* The batch goes before dims where the configuration counts it apart. */
static int add_input(struct sy_warmup *w, const struct sy_config_warmup *warmup,
                     const struct sy_config_warmup_input *input, int *index)
{
    int64_t dims[SY_MAX_RANK + 1] = {warmup->batch};
    int lead = w->config->max_batch_size > 0 && warmup->batch > 0;

    memcpy(dims + lead, input->dims, (size_t)input->rank * sizeof *dims);
    if (input->rank + lead > SY_MAX_RANK)
        return sy_error_set(SY_EARG, "input '%s' has more than %d dimensions", input->name,
                            SY_MAX_RANK);
    return sy_front_infer_add_input(w->infer, input->name, sy_dtype_wire_name(input->dtype),
                                    input->rank + lead, dims, index);
}

static uint64_t repeats(const struct sy_warmup *w, const struct sy_config_warmup *warmup)
{
    return w->config->max_batch_size > 0 && warmup->batch > 0 ? (uint64_t)warmup->batch : 1;
}

/* Strings of a file: how many bytes they are is known before their place is. */
static int announce_strings(struct sy_warmup *w, const struct sy_config_warmup *warmup,
                            const int *indices)
{
    for (int i = 0; i < warmup->n_inputs; i++) {
        uint64_t bytes;

        if (sy_front_infer_has_strings(w->infer, indices[i]) &&
            sy_warmup_file(w->files, w->at, i, &bytes))
            SY_TRY(
                sy_front_infer_announce_strings(w->infer, indices[i], bytes * repeats(w, warmup)));
    }
    return SY_OK;
}

/* W1 of warmup_files.h. */
static int fill_from_file(const void *row, uint64_t row_bytes, uint64_t n, unsigned char *data,
                          uint64_t bytes)
{
    if (row_bytes * n != bytes)
        return sy_error_set(
            SY_EARG, "its input_data_file has %llu bytes, %llu times; the input has %llu",
            (unsigned long long)row_bytes, (unsigned long long)n, (unsigned long long)bytes);
    for (uint64_t i = 0; i < n; i++)
        memcpy(data + i * row_bytes, row, row_bytes);
    return SY_OK;
}

static int fill_inputs(struct sy_warmup *w, const struct sy_config_warmup *warmup,
                       const int *indices)
{
    for (int i = 0; i < warmup->n_inputs; i++) {
        void *data = sy_front_infer_input_data(w->infer, indices[i]);
        uint64_t bytes = sy_front_infer_input_bytes(w->infer, indices[i]), row_bytes;
        const void *row = sy_warmup_file(w->files, w->at, i, &row_bytes);

        memset(data, 0, bytes);
        if (row)
            SY_TRY(fill_from_file(row, row_bytes, repeats(w, warmup), data, bytes));
        else if (warmup->inputs[i].is_random)
            fill_random(w, warmup->inputs[i].dtype, data, bytes);
    }
    return SY_OK;
}

static void run_done(void *ctx, int status, const char *error);

static int run(struct sy_warmup *w)
{
    const struct sy_config_warmup *warmup = &w->config->warmups[w->at];
    struct sy_core_model_ref *held;
    int indices[SY_MAX_ENDS];

    if (warmup->n_inputs > SY_MAX_ENDS)
        return sy_error_set(SY_EARG, "%d inputs", warmup->n_inputs);
    SY_TRY(w->front.handlers->model_acquire(w->front.core, w->ref->name, w->ref->version, &held));
    SY_TRY(sy_front_infer_create(&w->front, held, &w->infer));
    for (int i = 0; i < warmup->n_inputs; i++)
        SY_TRY(add_input(w, warmup, &warmup->inputs[i], &indices[i]));
    SY_TRY(sy_front_infer_solve(w->infer));
    SY_TRY(announce_strings(w, warmup, indices));
    SY_TRY(sy_front_infer_prepare(w->infer));
    SY_TRY(fill_inputs(w, warmup, indices));
    SY_TRY(sy_front_infer_set_deadline(w->infer, 0));
    return sy_front_infer_start(w->infer, run_done, w);
}

/* ---- one after the other -------------------------------------------------------------------------------------------- */

static void go_on(struct sy_warmup *w)
{
    if (w->stops || w->at == w->config->n_warmups) {
        end(w, SY_OK, "");
        return;
    }
    int status = run(w);
    if (status < 0)
        end(w, status == SY_EDEADLINE ? SY_OK : status, sy_error_text());
}

static void run_done(void *ctx, int status, const char *error)
{
    struct sy_warmup *w = ctx;

    sy_front_infer_destroy(w->infer);
    w->infer = NULL;
    if (status < 0 && status != SY_EDEADLINE && !w->stops) { /* late is warm, too */
        end(w, status, error);
        return;
    }
    if (++w->n_run >= w->config->warmups[w->at].count) {
        w->n_run = 0;
        w->at++;
    }
    go_on(w);
}

static void on_next(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    go_on(ctx);
}

int sy_warmup_start(const struct sy_front *front, struct sy_model_config *config,
                    struct sy_warmup_files *files, struct sy_core_model_ref *ref, sy_core_done done,
                    void *ctx, struct sy_warmup **out)
{
    struct sy_warmup *w = calloc(1, sizeof *w);

    if (w)
        w->next_event = event_new(front->base, -1, 0, on_next, w);
    if (!w || !w->next_event) {
        free(w);
        front->handlers->model_release(front->core, ref);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a warm-up");
    }
    w->front = *front;
    w->config = sy_model_config_hold(config);
    w->files = files;
    w->ref = ref;
    w->done = done;
    w->ctx = ctx;
    event_active(w->next_event, EV_TIMEOUT, 0);
    *out = w;
    return SY_OK;
}

void sy_warmup_stop(struct sy_warmup *warmup)
{
    warmup->stops = true;
    if (warmup->infer)
        sy_front_infer_cancel(warmup->infer);
}

void sy_warmup_abandon(struct sy_warmup *warmup)
{
    if (!warmup)
        return;
    warmup->done = NULL;
    sy_warmup_stop(warmup);
    if (!warmup->infer) /* else its run's end ends it */
        end(warmup, SY_OK, "");
}
