/* A request of a session: inputs that the session has are not sent, outputs that it keeps are not answered (session_table.h). */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/request/front_infer_internal.h"

/* ---- what the client says -------------------------------------------------------------------------------------- */

int sy_front_infer_set_session(struct sy_front_infer *infer, const char *id)
{
    if (strlen(id) >= sizeof infer->session_id)
        return sy_error_set(SY_EARG, "a session's id of %zu bytes; at most %zu", strlen(id),
                            sizeof infer->session_id - 1);
    strcpy(infer->session_id, id);
    if (!*id)
        return SY_OK;
    struct sy_state_pair pairs[SY_MAX_ENDS];
    int n = sy_session_pairs(infer->model, pairs, SY_MAX_ENDS);
    for (int i = 0; i < n; i++)
        infer->outputs[pairs[i].output].is_kept = true;
    return SY_OK;
}

int sy_front_infer_set_sequence(struct sy_front_infer *infer, const char *id)
{
    struct sy_state_pair pairs[SY_MAX_ENDS];

    infer->is_stateless = *id && sy_session_pairs(infer->model, pairs, SY_MAX_ENDS) == 0;
    return infer->is_stateless ? SY_OK : sy_front_infer_set_session(infer, id);
}

void sy_front_infer_set_session_ends(struct sy_front_infer *infer, bool starts, bool ends)
{
    infer->session_starts |= starts;
    infer->session_ends |= ends;
}

bool sy_front_infer_is_kept(const struct sy_front_infer *infer, int output)
{
    return infer->outputs[output].is_kept;
}

bool sy_front_infer_is_sent(const struct sy_front_infer *infer, int input)
{
    return !infer->inputs[input].is_lent && !infer->inputs[input].is_state;
}

int sy_front_infer_open_session(struct sy_front_infer *infer)
{
    if (infer->is_stateless)
        return SY_OK;
    if (!*infer->session_id) {
        if (infer->session_starts || infer->session_ends)
            return sy_error_set(SY_EARG, "sequence_start or sequence_end without a sequence_id");
        return SY_OK;
    }
    if (!infer->front->sessions)
        return sy_error_set(SY_EUNSUPPORTED,
                            "this server keeps nothing between the requests of a sequence");
    return sy_sessions_take(infer->front->sessions, infer->model, infer->tenant, infer->session_id,
                            infer->session_starts, &infer->session);
}

/* ---- inputs ---------------------------------------------------------------------------------------------------- */

static const struct sy_tensor *input_tensor(const struct sy_front_infer *infer, int input)
{
    return &infer->graph->tensors[infer->graph->inputs[input]];
}

static int lend(struct sy_front_infer *infer, int pair)
{
    int input = infer->session->pairs[pair].input;
    const struct sy_session_tensor *tensor = &infer->session->tensors[pair];

    if (infer->inputs[input].is_given)
        return sy_error_set(SY_EARG, "input \"%s\" is kept in session %s: leave it out",
                            input_tensor(infer, input)->name, infer->session_id);
    infer->inputs[input] = (struct sy_front_piece){
        .is_given = true, .is_lent = true, .at = tensor->at, .bytes = tensor->bytes};
    memcpy(infer->dims[input], tensor->dims, sizeof tensor->dims);
    return SY_OK;
}

/* The state before the first request: of length 0 along what is open, zeros where there is something at all. */
static int begin_state(struct sy_front_infer *infer, int pair, int64_t batch)
{
    int input = infer->session->pairs[pair].input;
    const struct sy_tensor *tensor = input_tensor(infer, input);
    uint64_t bytes = sy_dtype_bytes(tensor->dtype);

    if (infer->inputs[input]
            .is_given) /* the client knows better: a prompt that was computed before */
        return SY_OK;
    for (int d = 0; d < tensor->shape.rank; d++) {
        struct sy_dim dim = tensor->shape.dims[d];
        int64_t size = sy_dim_is_expr(dim) ? 0 : sy_dim_at(dim, batch);

        infer->dims[input][d] = size;
        if (size < 0 || __builtin_mul_overflow(bytes, (uint64_t)size, &bytes))
            return sy_error_set(SY_EARG, "input \"%s\" would have more bytes than can be counted",
                                tensor->name);
    }
    infer->inputs[input] =
        (struct sy_front_piece){.is_given = true, .is_state = true, .bytes = bytes};
    return SY_OK;
}

/* The rows of what the client sent. */
static int given_batch(const struct sy_front_infer *infer, int64_t *batch)
{
    struct sy_given_input given[SY_MAX_ENDS];
    struct sy_sizes sizes;
    int n = 0;

    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (infer->inputs[i].is_given)
            given[n++] = (struct sy_given_input){
                .input = i, .rank = input_tensor(infer, i)->shape.rank, .dims = infer->dims[i]};
    return sy_graph_solve(infer->graph, n, given, batch, &sizes);
}

int sy_front_infer_add_state(struct sy_front_infer *infer)
{
    int64_t batch = 0;

    if (!infer->session)
        return SY_OK;
    if (!infer->session->is_stored)
        SY_TRY(given_batch(infer, &batch));
    for (int i = 0; i < infer->session->n_pairs; i++)
        SY_TRY(infer->session->is_stored ? lend(infer, i) : begin_state(infer, i, batch));
    return SY_OK;
}

void sy_front_infer_zero_state(struct sy_front_infer *infer)
{
    for (int i = 0; infer->session && i < infer->graph->n_inputs; i++)
        if (infer->inputs[i].is_state && infer->inputs[i].bytes > 0)
            memset(sy_front_infer_pointer(infer, &infer->inputs[i]), 0, infer->inputs[i].bytes);
}

/* ---- outputs --------------------------------------------------------------------------------------------------- */

static int kept_tensor(const struct sy_front_infer *infer, int output,
                       struct sy_session_tensor *out)
{
    const struct sy_tensor *tensor = &infer->graph->tensors[infer->graph->outputs[output]];
    struct sy_shape shape;

    SY_TRY(sy_front_infer_output_shape(infer, output, &shape));
    *out = (struct sy_session_tensor){.at = infer->outputs[output].at,
                                      .bytes = sy_dtype_bytes(tensor->dtype)};
    for (int d = 0; d < shape.rank; d++) {
        out->dims[d] = sy_dim_at(shape.dims[d], infer->batch);
        if (out->dims[d] < 0 ||
            __builtin_mul_overflow(out->bytes, (uint64_t)out->dims[d], &out->bytes))
            return sy_error_set(SY_EARG, "output \"%s\" would have more bytes than can be counted",
                                tensor->name);
    }
    return SY_OK;
}

int sy_front_infer_check_state_room(const struct sy_front_infer *infer)
{
    struct sy_session_tensor tensor;
    uint64_t bytes = 0;

    for (int i = 0; infer->session && i < infer->session->n_pairs; i++) {
        SY_TRY(kept_tensor(infer, infer->session->pairs[i].output, &tensor));
        bytes = bytes > UINT64_MAX - tensor.bytes ? UINT64_MAX / 2 : bytes + tensor.bytes;
    }
    return infer->session ? sy_sessions_check_room(infer->front->sessions, infer->session,
                                                   SY_MIN(bytes, UINT64_MAX / 2))
                          : SY_OK;
}

/* K2 */
static int store(struct sy_front_infer *infer)
{
    struct sy_session_tensor tensors[SY_MAX_ENDS];
    struct sy_session *session = infer->session;

    for (int i = 0; i < session->n_pairs; i++)
        SY_TRY(kept_tensor(infer, session->pairs[i].output, &tensors[i]));
    if (!sy_sessions_store(infer->front->sessions, session, tensors))
        return sy_error_set(SY_ECANCELED, "the server stops");
    for (int i = 0; i < session->n_pairs; i++)
        infer->outputs[session->pairs[i].output].in_slab = false;
    return SY_OK;
}

int sy_front_infer_close_session(struct sy_front_infer *infer, bool succeeded)
{
    bool ends = infer->session_ends && succeeded;
    int status = SY_OK;

    if (!infer->session)
        return SY_OK;
    if (succeeded && !ends)
        status = store(infer);
    sy_sessions_give(infer->front->sessions, infer->session, ends);
    infer->session = NULL;
    return status;
}
