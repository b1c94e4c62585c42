/* Activations made again for backward, as the host's trainer does it (workers/host/train/train_recompute.c).
 *
 * The forward steps are cut into segments. What one segment hands to later ones is kept; the rest is forgotten when its segment
 * ends, and made again, into new buffers, before the first backward step that reads it:
 *
 *   F1 F2 F3 loss B3   F2' B2   F1' B1           peak: what is handed on, and one segment, instead of all
 *
 * A step that is run again reads the same values (parameters do not change before the update, dropout's bits are a function of the
 * element) by the same plan, so the bits are those without. The cut is the number of segments with the smallest peak. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"

#define MAX_SEGMENTS 24

struct again {
    struct sy_trainer *t;
    int n_forward, n_steps, n_buffers; /* before anything is added */
    int *maker;                        /* buffer: the first forward step that names it; -1: kept */
    int *last_forward;                 /* buffer: the last forward step that names it */
    int *copy;                         /* buffer: a value in its second self; -1: none yet */
    int *segment;                      /* forward step: its segment */
    int *view;                         /* value: its second self; -1: none yet */
    bool *is_read;                     /* buffer: by backward, or by making again what is */
};

/* ---- reading steps ---------------------------------------------------------------------------------- */

static bool is_written(const struct sy_cutr_step *s, int i)
{
    return i >= s->n_args - s->n_results;
}

/* The ephemeral buffer that argument i names; -1: none. */
static int own_buffer(const struct sy_trainer *t, const struct sy_cutr_step *s, int i)
{
    int b = s->args[i] < 0 ? -1 : t->values[s->args[i]].buffer;
    return b >= 0 && !t->buffers[b].persistent ? b : -1;
}

static void find_makers(struct again *a)
{
    const struct sy_trainer *t = a->t;
    for (int b = 0; b < a->n_buffers; b++)
        a->maker[b] = a->last_forward[b] = -1;
    for (int s = 0; s < a->n_forward; s++) {
        const struct sy_cutr_step *step = &t->steps[s];
        for (int i = 0; i < step->n_args && (step->when & SY_CUTR_TRAIN); i++) {
            int b = own_buffer(t, step, i);
            if (b < 0)
                continue;
            if (is_written(step, i) && a->maker[b] < 0)
                a->maker[b] = s;
            a->last_forward[b] = step->is_fetch ? a->n_forward : SY_MAX(a->last_forward[b], s);
        }
    }
    for (int i = 0; i < t->n_params; i++) /* the update reads the batch's statistics */
        if (t->params[i].batch_statistic >= 0)
            a->last_forward[t->values[t->params[i].batch_statistic].buffer] = a->n_forward;
}

static void mark_read(struct again *a, const struct sy_cutr_step *step)
{
    for (int i = 0; i < step->n_args; i++)
        if (own_buffer(a->t, step, i) >= 0)
            a->is_read[own_buffer(a->t, step, i)] = true;
}

static void find_read(struct again *a)
{
    const struct sy_trainer *t = a->t;
    for (int s = a->n_forward; s < a->n_steps; s++)
        mark_read(a, &t->steps[s]);
    for (int s = a->n_forward - 1; s >= 0; s--) {
        const struct sy_cutr_step *step = &t->steps[s];
        bool makes = false;
        for (int i = 0; i < step->n_args; i++)
            makes |= is_written(step, i) && own_buffer(t, step, i) >= 0 &&
                     a->is_read[own_buffer(t, step, i)];
        if (makes && (step->when & SY_CUTR_TRAIN))
            mark_read(a, step);
    }
}

/* ---- cutting ---------------------------------------------------------------------------------------- */

static bool is_kept(const struct again *a, int b)
{
    return a->maker[b] < 0 || a->last_forward[b] >= a->n_forward ||
           a->segment[a->last_forward[b]] != a->segment[a->maker[b]];
}

/* Segments of about the same bytes. */
static void cut(struct again *a, int n_segments)
{
    const struct sy_trainer *t = a->t;
    uint64_t all = 0, sum = 0, most = (uint64_t)n_segments - 1;
    for (int b = 0; b < a->n_buffers; b++)
        all += a->maker[b] >= 0 ? t->buffers[b].bytes : 0;
    for (int s = 0; s < a->n_forward; s++) {
        a->segment[s] = all ? (int)SY_MIN(sum * (uint64_t)n_segments / all, most) : 0;
        for (int i = 0; i < t->steps[s].n_args; i++) {
            int b = own_buffer(t, &t->steps[s], i);
            if (b >= 0 && a->maker[b] == s && is_written(&t->steps[s], i))
                sum += t->buffers[b].bytes;
        }
    }
}

/* The approximate peak: values passed between segments, and the largest segment. Only buffers that backward reads count in a segment. */
static uint64_t cost(const struct again *a, int n_segments)
{
    uint64_t kept = 0, inside[MAX_SEGMENTS] = {0}, most = 0;
    for (int b = 0; b < a->n_buffers; b++) {
        if (a->maker[b] < 0 || !a->is_read[b])
            continue;
        if (is_kept(a, b))
            kept += a->t->buffers[b].bytes;
        else
            inside[a->segment[a->maker[b]]] += a->t->buffers[b].bytes;
    }
    for (int i = 0; i < n_segments; i++)
        most = SY_MAX(most, inside[i]);
    return kept + most;
}

static void choose_cut(struct again *a)
{
    int best = 1;
    uint64_t least = UINT64_MAX;
    for (int n = 1; n <= MAX_SEGMENTS; n++) {
        cut(a, n);
        uint64_t peak = cost(a, n);
        if (peak < least) {
            least = peak;
            best = n;
        }
    }
    cut(a, best);
}

/* The last segment is never made again: its buffers count as kept. */
static int keep_last_segment(struct again *a)
{
    int n_segments = a->n_forward ? a->segment[a->n_forward - 1] + 1 : 1;
    for (int b = 0; b < a->n_buffers; b++)
        if (a->maker[b] >= 0 && a->segment[a->maker[b]] == n_segments - 1)
            a->last_forward[b] = a->n_forward;
    return n_segments;
}

/* Results of one step are kept together or not at all: a step that changes one of them in place must not run again on what is there. */
static bool keep_with_others(struct again *a)
{
    bool changed = false;
    for (int s = 0; s < a->n_forward; s++) {
        const struct sy_cutr_step *step = &a->t->steps[s];
        bool any = false;
        if (step->n_results < 2 || !(step->when & SY_CUTR_TRAIN))
            continue;
        for (int i = step->n_args - step->n_results; i < step->n_args; i++) {
            int b = own_buffer(a->t, step, i);
            any |= b >= 0 && is_kept(a, b);
        }
        for (int i = step->n_args - step->n_results; i < step->n_args && any; i++) {
            int b = own_buffer(a->t, step, i);
            changed |= b >= 0 && !is_kept(a, b);
            if (b >= 0)
                a->last_forward[b] = a->n_forward;
        }
    }
    return changed;
}

/* ---- making again ------------------------------------------------------------------------------------- */

static bool is_forgotten(const struct again *a, const struct sy_cutr_step *step, int i)
{
    int b = own_buffer(a->t, step, i);
    return b >= 0 && b < a->n_buffers && !is_kept(a, b);
}

/* The value in the second buffer. */
static int second(struct again *a, int value, int *out)
{
    struct sy_trainer *t = a->t;
    struct sy_cutr_value v = t->values[value];
    int64_t bytes = (int64_t)t->buffers[v.buffer].bytes;
    *out = a->view[value];
    if (*out >= 0)
        return SY_OK;
    if (a->copy[v.buffer] < 0)
        SY_TRY(sy_cutr_value_typed(t, SY_DTYPE_U8, 1, &bytes, false, false, &a->copy[v.buffer]));
    SY_TRY(sy_cutr_view_typed(t, a->copy[v.buffer], v.dtype, v.rank, v.dims, v.last, v.delta_bytes,
                              out));
    a->view[value] = *out;
    return SY_OK;
}

static int rename_all(struct again *a, struct sy_cutr_step *step)
{
    for (int i = 0; i < step->n_args; i++)
        if (is_forgotten(a, step, i))
            SY_TRY(second(a, step->args[i], &step->args[i]));
    return SY_OK;
}

struct list {
    struct sy_cutr_step *steps;
    int n;
};

static int put(struct list *list, const struct sy_cutr_step *step)
{
    struct sy_cutr_step *added = sy_append(&list->steps, &list->n, sizeof *added);
    if (!added)
        return SY_ENOMEM_HOST;
    *added = *step;
    return SY_OK;
}

/* Appends the segment's steps once more. */
static int make_again(struct again *a, struct list *to, int segment)
{
    for (int s = 0; s < a->n_forward; s++) {
        struct sy_cutr_step step = a->t->steps[s];
        bool is_needed = false;
        for (int i = 0; i < step.n_args; i++)
            is_needed |= is_written(&step, i) && is_forgotten(a, &step, i) &&
                         a->is_read[own_buffer(a->t, &step, i)];
        if (a->segment[s] != segment || !(step.when & SY_CUTR_TRAIN) || !is_needed)
            continue;
        step.when = SY_CUTR_TRAIN;
        SY_TRY(rename_all(a, &step));
        SY_TRY(put(to, &step));
    }
    return SY_OK;
}

/* The segment that a backward step needs next; -1: none that is not there. */
static int needs_segment(const struct again *a, const struct sy_cutr_step *step,
                         const bool *is_made)
{
    int latest = -1;
    for (int i = 0; i < step->n_args; i++) {
        if (!is_forgotten(a, step, i))
            continue;
        int segment = a->segment[a->maker[own_buffer(a->t, step, i)]];
        if (!is_made[segment])
            latest = SY_MAX(latest, segment);
    }
    return latest;
}

static int rewrite(struct again *a, int n_segments)
{
    struct list list = {0};
    bool is_made[MAX_SEGMENTS] = {false};
    int status = SY_OK;
    is_made[n_segments - 1] = true; /* the last is still there */
    for (int s = 0; s < a->n_steps; s++) {
        struct sy_cutr_step step = a->t->steps[s];
        for (int at; s >= a->n_forward && (at = needs_segment(a, &step, is_made)) >= 0;) {
            is_made[at] = true;
            SY_TRY_GOTO(make_again(a, &list, at), fail);
        }
        if (s >= a->n_forward)
            SY_TRY_GOTO(rename_all(a, &step), fail);
        SY_TRY_GOTO(put(&list, &step), fail);
    }
    free(a->t->steps);
    a->t->steps = list.steps;
    a->t->n_steps = list.n;
    return SY_OK;
fail:
    free(list.steps);
    return status;
}

int sy_cutr_recompute(struct sy_trainer *t)
{
    struct again a = {
        .t = t, .n_forward = t->loss_step, .n_steps = t->n_steps, .n_buffers = t->n_buffers};
    size_t n = (size_t)SY_MAX(a.n_buffers, a.n_steps) + 1, n_values = (size_t)t->n_values + 1;
    int status = SY_OK, *ints = malloc((4 * n + n_values) * sizeof *ints);
    a.is_read = calloc(n, sizeof *a.is_read);
    if (!ints || !a.is_read) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory to plan recomputation");
        goto done;
    }
    a.maker = ints;
    a.last_forward = ints + n;
    a.segment = ints + 2 * n;
    a.copy = ints + 3 * n;
    a.view = ints + 4 * n;
    memset(a.copy, 0xff, (n + n_values) * sizeof *ints); /* -1 */
    find_makers(&a);
    find_read(&a);
    choose_cut(&a);
    int n_segments = keep_last_segment(&a);
    while (keep_with_others(&a))
        continue;
    status = rewrite(&a, n_segments);
done:
    free(ints);
    free(a.is_read);
    return status;
}
