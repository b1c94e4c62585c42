#include "runtime/front/request/front_infer.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/string_tensor.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/client/switchyard.h"
#include "runtime/front/request/front_infer_internal.h"
#include "runtime/front/request/front_reshape.h"
#include "runtime/front/request/front_room.h"
#include "runtime/front/request/front_stats.h"
#include "runtime/front/request/front_tensor.h"

static const struct sy_tensor *input_tensor(const struct sy_front_infer *infer, int input)
{
    return &infer->graph->tensors[infer->graph->inputs[input]];
}

/* ---- create and destroy ---------------------------------------------------------------------------------- */

/* One block: the request, its dims, its pieces. */
static struct sy_front_infer *allocate(const struct sy_graph *graph)
{
    size_t n_in = (size_t)graph->n_inputs, n_out = (size_t)graph->n_outputs;
    struct sy_front_infer *infer = calloc(1, sizeof *infer + n_in * sizeof *infer->dims +
                                                 (n_in + n_out) * sizeof(struct sy_front_piece));

    if (!infer)
        return NULL;
    infer->dims = (int64_t(*)[SY_MAX_RANK])(infer + 1);
    infer->inputs = (struct sy_front_piece *)(infer->dims + n_in);
    infer->outputs = infer->inputs + n_in;
    return infer;
}

static void set_defaults(struct sy_front_infer *infer)
{
    const struct sy_core_model_defaults *defaults = &infer->model->defaults;

    infer->options.class_ = defaults->has_class ? defaults->class_ : SY_CORE_USUAL_CLASS;
    infer->options.deadline_ns = defaults->deadline_ns;
    memcpy(infer->tenant, defaults->tenant, sizeof infer->tenant);
    infer->options.tenant = *infer->tenant ? infer->tenant : NULL;
}

static int refuse(struct sy_front *front, enum sy_refusal reason, int status)
{
    return sy_refusals_note(&front->refused, reason, status);
}

int sy_front_infer_create(struct sy_front *front, struct sy_core_model_ref *ref,
                          struct sy_front_infer **out)
{
    struct sy_front_infer *infer = allocate(ref->package->graph);

    if (!infer) {
        front->handlers->model_release(front->core, ref);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request");
    }
    infer->front = front;
    infer->model = ref;
    infer->graph = ref->package->graph;
    set_defaults(infer);
    if (infer->graph->n_inputs > SY_MAX_ENDS || infer->graph->n_outputs > SY_MAX_ENDS) {
        sy_front_infer_destroy(infer);
        return sy_error_set(SY_EUNSUPPORTED, "the model has more than %d inputs or outputs",
                            SY_MAX_ENDS);
    }
    *out = infer;
    return SY_OK;
}

void sy_front_infer_destroy(struct sy_front_infer *infer)
{
    if (!infer)
        return;
    assert(infer->phase != SY_FRONT_RUNNING);
    SY_CLEANUP(sy_front_infer_close_session(infer, false));
    sy_front_infer_drop_move(infer);
    sy_front_infer_give_back(infer, infer->inputs, infer->graph->n_inputs);
    sy_front_infer_give_back(infer, infer->outputs, infer->graph->n_outputs);
    infer->front->handlers->model_release(infer->front->core, infer->model);
    if (infer->empty_event)
        event_free(infer->empty_event);
    sy_front_trace_finish(&infer->trace);
    free(infer);
}

const struct sy_core_model_ref *sy_front_infer_model(const struct sy_front_infer *infer)
{
    return infer->model;
}

/* ---- what the client says ---------------------------------------------------------------------------------- */

static int add_input(struct sy_front_infer *infer, const char *name, const char *dtype, int rank,
                     const int64_t *dims, int *out_input)
{
    const struct sy_graph *graph = infer->graph;
    const struct sy_tensor *tensor;
    char names[300];
    int index = sy_front_tensor_find(graph, graph->inputs, graph->n_inputs, name);

    assert(infer->phase == SY_FRONT_ADDING);
    if (index < 0) {
        sy_front_tensor_names(graph, graph->inputs, graph->n_inputs, names, sizeof names);
        return sy_error_set(SY_EARG, "the model has no input \"%.200s\"; it has %s", name, names);
    }
    if (infer->inputs[index].is_given)
        return sy_error_set(SY_EARG, "input \"%s\" is given twice", name);
    tensor = input_tensor(infer, index);
    if (sy_dtype_from_wire_name(dtype) != tensor->dtype)
        return sy_error_set(SY_EARG, "input \"%s\" has datatype %.20s; the model takes %s",
                            tensor->name, dtype, sy_dtype_wire_name(tensor->dtype));
    const struct sy_core_reshape *reshape = sy_front_reshape_of(infer->model, false, index);
    if (!reshape)
        SY_TRY(sy_front_tensor_check_dims(tensor, rank, dims));
    if (rank > SY_MAX_RANK)
        return sy_error_set(SY_EARG, "input \"%s\" has %d dimensions; at most %d are possible",
                            tensor->name, rank, SY_MAX_RANK);
    memcpy(infer->dims[index], dims, (size_t)rank * sizeof *dims);
    if (reshape)
        SY_TRY(sy_front_reshape_input(reshape, tensor->name, &rank, infer->dims[index]));
    SY_TRY(sy_front_tensor_check_dims(tensor, rank, infer->dims[index]));
    SY_TRY(sy_front_tensor_bytes(tensor, rank, infer->dims[index], &infer->inputs[index].bytes));
    infer->inputs[index].n = (int64_t)(infer->inputs[index].bytes / sy_dtype_bytes(tensor->dtype));
    if (tensor->dtype == SY_DTYPE_STRING)
        infer->inputs[index].bytes = 0;
    infer->inputs[index].is_given = true;
    *out_input = index;
    return SY_OK;
}

int sy_front_infer_add_input(struct sy_front_infer *infer, const char *name, const char *dtype,
                             int rank, const int64_t *dims, int *out_input)
{
    return refuse(infer->front, SY_REFUSED_INPUT,
                  add_input(infer, name, dtype, rank, dims, out_input));
}

int sy_front_infer_find_output(const struct sy_front_infer *infer, const char *name,
                               int *out_output)
{
    const struct sy_graph *graph = infer->graph;
    char names[300];

    *out_output = sy_front_tensor_find(graph, graph->outputs, graph->n_outputs, name);
    if (*out_output >= 0 && infer->outputs[*out_output].is_kept)
        return sy_error_set(SY_EARG, "output \"%s\" stays in session %s: it is not answered", name,
                            infer->session_id);
    if (*out_output >= 0)
        return SY_OK;
    sy_front_tensor_names(graph, graph->outputs, graph->n_outputs, names, sizeof names);
    (void)refuse(infer->front, SY_REFUSED_INPUT, SY_EARG);
    return sy_error_set(SY_EARG, "the model has no output \"%.200s\"; it has %s", name, names);
}

void sy_front_infer_place_input(struct sy_front_infer *infer, int input, uint64_t region,
                                uint64_t offset, uint64_t bytes)
{
    (void)
        bytes; /* the front end has checked that the input lies in them: its shape says how long it is */
    infer->inputs[input].region = region;
    infer->inputs[input].at = offset;
}

void sy_front_infer_place_output(struct sy_front_infer *infer, int output, uint64_t region,
                                 uint64_t offset, uint64_t bytes)
{
    infer->outputs[output] =
        (struct sy_front_piece){.region = region, .at = offset, .bytes = bytes};
}

int sy_front_infer_set_class(struct sy_front_infer *infer, int64_t class_)
{
    if (class_ < 0 || class_ > INT32_MAX)
        return sy_error_set(SY_EARG, "class %" PRId64 ": a whole number, 0 for the most urgent",
                            class_);
    infer->options.class_ = (int)class_;
    return SY_OK;
}

int sy_front_infer_set_deadline(struct sy_front_infer *infer, sy_ns deadline_ns)
{
    if (deadline_ns > (sy_ns)(SWITCHYARD_MAX_DEADLINE_MS * 1e6))
        return sy_error_set(SY_EARG, "a deadline of %.0f ms; at most %g", (double)deadline_ns / 1e6,
                            SWITCHYARD_MAX_DEADLINE_MS);
    const struct sy_core_model_defaults *defaults = &infer->model->defaults;
    if (!defaults->keeps_deadline)
        infer->options.deadline_ns = defaults->deadline_ns && deadline_ns
                                         ? SY_MIN(defaults->deadline_ns, deadline_ns)
                                         : deadline_ns;
    return SY_OK;
}

void sy_front_infer_set_trace(struct sy_front_infer *infer, const char *protocol, sy_ns received_ns,
                              const char *traceparent, const char *tracestate)
{
    sy_front_trace_take(&infer->trace, protocol, received_ns, traceparent, tracestate);
}

sy_ns sy_front_infer_deadline(const struct sy_front_infer *infer)
{
    return infer->options.deadline_ns;
}

int sy_front_infer_set_tenant(struct sy_front_infer *infer, const char *tenant)
{
    if (strlen(tenant) >= sizeof infer->tenant)
        return sy_error_set(SY_EARG, "a tenant's name of %zu bytes; at most %zu", strlen(tenant),
                            sizeof infer->tenant - 1);
    if (infer->has_tenant && strcmp(infer->tenant, tenant) != 0)
        return sy_error_set(SY_EARG, "two tenants, \"%s\" and \"%s\"", infer->tenant, tenant);
    infer->has_tenant = true;
    strcpy(infer->tenant, tenant);
    infer->options.tenant = *infer->tenant ? infer->tenant : NULL;
    return SY_OK;
}

/* ---- prepare ----------------------------------------------------------------------------------------------- */

static int check_all_given(const struct sy_front_infer *infer)
{
    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (!infer->inputs[i].is_given)
            return sy_error_set(SY_EARG, "input \"%s\" is missing; the model \"%s\" has %d input%s",
                                input_tensor(infer, i)->name, infer->model->name,
                                infer->graph->n_inputs, infer->graph->n_inputs == 1 ? "" : "s");
    return SY_OK;
}

static int solve_sizes(struct sy_front_infer *infer)
{
    struct sy_given_input given[SY_MAX_ENDS];

    for (int i = 0; i < infer->graph->n_inputs; i++)
        given[i] = (struct sy_given_input){
            .input = i, .rank = input_tensor(infer, i)->shape.rank, .dims = infer->dims[i]};
    return sy_graph_solve(infer->graph, infer->graph->n_inputs, given, &infer->batch,
                          &infer->sizes);
}

/* I5: what does not go with the batch would have to be computed. */
static int check_empty(const struct sy_front_infer *infer)
{
    for (int i = 0; i < infer->graph->n_outputs; i++) {
        int tensor = infer->graph->outputs[i];
        struct sy_shape shape;

        SY_TRY(sy_front_infer_output_shape(infer, i, &shape));
        bool follows =
            !sy_graph_is_dynamic(infer->graph, tensor) || sy_graph_is_counted(infer->graph, tensor);
        if (!follows || sy_shape_elements(&shape, 0) != 0)
            return sy_error_set(SY_EARG,
                                "a batch of 0 rows: output \"%s\" of model \"%s\" does not follow "
                                "from the rows alone; send 1 or more",
                                infer->graph->tensors[tensor].name, infer->model->name);
    }
    return SY_OK;
}

static int check_rows(const struct sy_front_infer *infer)
{
    int64_t most = infer->model->defaults.most_rows;

    if (infer->batch == 0 && infer->session)
        return sy_error_set(SY_EARG, "a batch of 0 rows in session %s; send 1 or more",
                            infer->session_id);
    if (infer->batch == 0)
        return check_empty(infer);
    if (most > 0 && infer->batch > most)
        return sy_error_set(SY_EARG,
                            "a batch of %" PRId64 " rows; the configuration of model \"%s\" allows "
                            "%" PRId64 " (max_batch_size)",
                            infer->batch, infer->model->name, most);
    return SY_OK;
}

int sy_front_infer_solve(struct sy_front_infer *infer)
{
    assert(infer->phase == SY_FRONT_ADDING);
    SY_TRY(refuse(infer->front, SY_REFUSED_INPUT, sy_front_infer_open_session(infer)));
    SY_TRY(refuse(infer->front, SY_REFUSED_INPUT, sy_front_infer_add_state(infer)));
    SY_TRY(refuse(infer->front, SY_REFUSED_INPUT, check_all_given(infer)));
    SY_TRY(refuse(infer->front, SY_REFUSED_SHAPE, solve_sizes(infer)));
    SY_TRY(refuse(infer->front, SY_REFUSED_SHAPE, check_rows(infer)));
    infer->phase = SY_FRONT_SOLVED;
    return SY_OK;
}

int sy_front_infer_prepare(struct sy_front_infer *infer)
{
    assert(infer->phase == SY_FRONT_SOLVED);
    sy_front_infer_recall_room(infer);
    sy_front_infer_size_strings(infer);
    SY_TRY(refuse(infer->front, SY_REFUSED_SLAB_FULL, sy_front_infer_check_state_room(infer)));
    SY_TRY(refuse(infer->front, SY_REFUSED_SLAB_FULL, sy_front_infer_take_slab(infer)));
    sy_front_infer_zero_state(infer);
    sy_front_infer_write_heads(infer);
    infer->phase = SY_FRONT_PREPARED;
    return SY_OK;
}

uint64_t sy_front_infer_input_bytes(const struct sy_front_infer *infer, int input)
{
    return infer->inputs[input].bytes;
}

enum sy_dtype sy_front_infer_input_dtype(const struct sy_front_infer *infer, int input)
{
    return input_tensor(infer, input)->dtype;
}

void *sy_front_infer_input_data(struct sy_front_infer *infer, int input)
{
    assert(infer->phase == SY_FRONT_PREPARED);
    char *at = sy_front_infer_pointer(infer, &infer->inputs[input]);
    return at && sy_front_infer_has_strings(infer, input) ? at + SY_STRING_HEAD : at;
}

/* ---- running --------------------------------------------------------------------------------------------- */

static void core_done(void *ctx, int status, const char *error,
                      const struct sy_request_report *report);

static int submit(struct sy_front_infer *infer)
{
    uint64_t at[2 * SY_MAX_ENDS];
    int n_in = infer->graph->n_inputs;
    struct sy_front *front = infer->front;

    for (int i = 0; i < n_in; i++)
        at[i] = sy_core_tensor_at(infer->inputs[i].region, infer->inputs[i].at);
    for (int i = 0; i < infer->graph->n_outputs; i++)
        at[n_in + i] = sy_core_tensor_at(infer->outputs[i].region, infer->outputs[i].at);
    infer->options.sizes = infer->graph->n_symbols > 0 ? &infer->sizes : NULL;
    return front->handlers->infer(front->core, infer->model, infer->batch, at, at + n_in,
                                  &infer->options, core_done, infer, &infer->id);
}

/* For statistics and traces: it has ended, or was not taken. */
static void note_end(struct sy_front_infer *infer, int status, const char *error)
{
    if (infer->front->stats)
        sy_front_stats_note(infer->front->stats, infer->model, infer->batch, status,
                            sy_front_infer_report(infer));
    sy_front_trace_note(infer->front, &infer->trace, infer->model, status, error,
                        sy_front_infer_report(infer));
}

static void finish(struct sy_front_infer *infer, int status, const char *error)
{
    char why[512];

    infer->phase = SY_FRONT_DONE;
    int closed = sy_front_infer_close_session(infer, status == SY_OK && !infer->is_canceled);
    if (closed < 0 && status == SY_OK) {
        status = closed;
        snprintf(why, sizeof why, "%s", sy_error_text());
        error = why;
    }
    sy_front_infer_give_back(infer, infer->inputs,
                             infer->graph->n_inputs); /* only the outputs are still needed */
    if (status == SY_OK)
        sy_front_infer_remember_strings(infer);
    note_end(infer, status, error);
    infer->done(infer->ctx, status, error);
}

/* Its strings lie where a larger heap is. */
static void strings_moved(void *ctx)
{
    struct sy_front_infer *infer = ctx;
    char why[512];

    int status = sy_front_infer_end_move(infer);
    if (infer->is_canceled)
        status = sy_error_set(SY_ECANCELED, "canceled");
    if (status == SY_OK)
        status = submit(infer);
    snprintf(why, sizeof why, "%s", status < 0 ? sy_error_text() : "");
    if (status < 0)
        finish(infer, status, why);
}

static int move_and_submit(struct sy_front_infer *infer)
{
    bool later;

    SY_TRY(sy_front_infer_move_strings(infer, strings_moved, &later));
    return later ? SY_OK : submit(infer);
}

/* The same request with more room for its results or strings, if this run's do not fit; what is left of its deadline is its deadline. */
static int run_again(struct sy_front_infer *infer, bool strings, bool *again)
{
    const struct sy_request_report *report = &infer->report;
    sy_ns took =
        report->finished_ns > report->arrived_ns ? report->finished_ns - report->arrived_ns : 0;
    bool more;

    SY_TRY(strings ? sy_front_infer_grow_strings(infer, &more)
                   : sy_front_infer_grow_room(infer, &more));
    if (!more)
        return SY_OK;
    sy_front_infer_give_back(infer, infer->outputs, infer->graph->n_outputs);
    for (int i = 0; i < infer->graph->n_outputs; i++)
        SY_TRY(sy_front_infer_take_output(infer, i));
    if (!strings)
        sy_front_room_remember(infer->front, infer->model->package->content_hash,
                               infer->sizes.of[sy_graph_room_size(infer->graph)]);
    if (infer->options.deadline_ns > 0)
        infer->options.deadline_ns =
            infer->options.deadline_ns > took ? infer->options.deadline_ns - took : 1;
    SY_TRY(strings ? move_and_submit(infer) : submit(infer));
    *again = true;
    return SY_OK;
}

static void core_done(void *ctx, int status, const char *error,
                      const struct sy_request_report *report)
{
    struct sy_front_infer *infer = ctx;
    bool again = false;
    char why[512];

    infer->report = *report;
    infer->has_report = true;
    bool strings = status == SY_ETOOBIG && sy_graph_string_size(infer->graph) >= 0;
    if ((status == SY_OK || strings) && !infer->is_canceled) {
        int more = run_again(infer, strings, &again);
        status = strings && more == SY_OK && !again ? status : more;
        snprintf(why, sizeof why, "%s", more == status ? sy_error_text() : error);
        error = why; /* others overwrite it */
    }
    if (!again)
        finish(infer, status, error);
}

static void on_empty(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_front_infer *infer = ctx;

    (void)fd, (void)what;
    finish(infer, infer->is_canceled ? SY_ECANCELED : SY_OK, "canceled");
}

static int start_empty(struct sy_front_infer *infer)
{
    struct timeval at_once = {0, 0};

    infer->empty_event = event_new(infer->front->base, -1, 0, on_empty, infer);
    if (!infer->empty_event || event_add(infer->empty_event, &at_once))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request's answer");
    return SY_OK;
}

int sy_front_infer_start(struct sy_front_infer *infer, sy_front_infer_done done, void *ctx)
{
    assert(infer->phase == SY_FRONT_PREPARED);
    infer->done = done;
    infer->ctx = ctx;
    int status = infer->batch == 0 ? start_empty(infer) : submit(infer);
    if (status < 0) {
        note_end(infer, status, sy_error_text());
        return status;
    }
    infer->phase = SY_FRONT_RUNNING;
    return SY_OK;
}

void sy_front_infer_cancel(struct sy_front_infer *infer)
{
    assert(infer->phase == SY_FRONT_RUNNING);
    infer->is_canceled = true;
    if (infer->batch > 0 && !infer->move)
        infer->front->handlers->infer_cancel(infer->front->core, infer->id);
}

/* ---- the answer ---------------------------------------------------------------------------------------------- */

int sy_front_infer_n_outputs(const struct sy_front_infer *infer)
{
    return infer->graph->n_outputs;
}

/* In a region its shape is what the sizes say: results that only a run can size are not placed there. */
static int known_output(const struct sy_front_infer *infer, int output, struct sy_shape *shape,
                        uint64_t *bytes)
{
    const struct sy_tensor *tensor = &infer->graph->tensors[infer->graph->outputs[output]];

    *bytes = sy_dtype_bytes(tensor->dtype);
    for (int d = 0; d < shape->rank; d++) {
        shape->dims[d] = (struct sy_dim){.fixed = sy_dim_at(shape->dims[d], infer->batch)};
        *bytes *= (uint64_t)shape->dims[d].fixed;
    }
    return SY_OK;
}

/* From the block. It may hold millions of strings: they are checked by the code that reads them one by one (sy_strings_to_json). */
static int strings_of(const struct sy_front_infer *infer, int tensor, const struct sy_shape *room,
                      struct sy_front_tensor *out)
{
    uint64_t offset = sy_graph_string_offset(infer->graph, tensor, room, infer->batch), bytes;
    uint64_t most = sy_string_block_bytes(sy_shape_elements(room, infer->batch),
                                          sy_front_infer_string_heap(infer));
    const char *block = (const char *)out->data + offset;
    uint64_t n = 1;

    for (int d = 0; d < out->rank; d++)
        n *= (uint64_t)out->dims[d];
    memcpy(&bytes, block, sizeof bytes);
    if (bytes > most - SY_STRING_HEAD || bytes / sizeof(uint32_t) < n)
        return sy_error_set(SY_ECORRUPT, "output '%.100s': its strings are not whole", out->name);
    out->data = block + SY_STRING_HEAD;
    out->bytes = bytes;
    return SY_OK;
}

int sy_front_infer_output(const struct sy_front_infer *infer, int output,
                          struct sy_front_tensor *out)
{
    int index = infer->graph->outputs[output];
    const struct sy_tensor *tensor = &infer->graph->tensors[index];
    struct sy_shape room, shape;

    assert(infer->phase == SY_FRONT_DONE);
    *out = (struct sy_front_tensor){.name = tensor->name,
                                    .dtype = tensor->dtype,
                                    .data = sy_front_infer_pointer(infer, &infer->outputs[output])};
    SY_TRY(sy_front_infer_output_shape(infer, output, &room));
    shape = room;
    SY_TRY(infer->batch == 0 || !out->data
               ? known_output(infer, output, &shape, &out->bytes)
               : sy_graph_shaped_output(infer->graph, index, &room, infer->batch, out->data, &shape,
                                        &out->bytes));
    out->rank = shape.rank;
    for (int d = 0; d < shape.rank; d++)
        out->dims[d] = shape.dims[d].fixed;
    if (out->dtype == SY_DTYPE_STRING && infer->batch > 0)
        SY_TRY(strings_of(infer, index, &room, out));
    const struct sy_core_reshape *reshape = sy_front_reshape_of(infer->model, true, output);
    if (reshape)
        sy_front_reshape_output(reshape, &out->rank, out->dims);
    return SY_OK;
}

const struct sy_request_report *sy_front_infer_report(const struct sy_front_infer *infer)
{
    return infer->has_report ? &infer->report : NULL;
}
