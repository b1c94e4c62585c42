/* Activations made again for backward.
 *
 * The forward steps are cut into segments. What one segment hands to later ones is kept; the rest is forgotten when its segment
 * ends, and made again, into new buffers, before the first backward step that reads it:
 *
 *   F1 F2 F3 loss B3   F2' B2   F1' B1           peak: what is handed on, and one segment, instead of all
 *
 * A step that is run again reads the same values (parameters do not change before the update; dropout's bits are a function of the
 * element), so the bits are those without. The cut is the number of segments with the smallest peak. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

#define MAX_SEGMENTS 24

struct plan {
    struct sy_trainer *t;
    int n_forward, n_steps, n_buffers; /* before anything is added */
    int *maker;                        /* buffer: the first forward step that writes it, -1 */
    int *last_forward;                 /* buffer: the last forward step that names it */
    int *copy;                         /* buffer: its recomputed copy, 0: none yet */
    int *segment;                      /* forward step: its segment */
    int *view;                         /* value: its recomputed copy, 0: none yet */
};

/* ---- reading steps ---------------------------------------------------------------------------------- */

static int n_named(const struct sy_tr_step *s)
{
    return s->kind == SY_TR_PRIMITIVE ? s->n_args : s->n_values;
}

static int named(const struct sy_tr_step *s, int i)
{
    return s->kind == SY_TR_PRIMITIVE ? s->args[i].value : s->value[i];
}

static bool is_written(const struct sy_tr_step *s, int i)
{
    if (s->kind != SY_TR_PRIMITIVE)
        return i < s->n_results;
    switch (s->args[i].arg) {
    case DNNL_ARG_DST: /* of a reorder: TO */
    case DNNL_ARG_WORKSPACE:
    case DNNL_ARG_SCRATCHPAD:
    case DNNL_ARG_MEAN:
    case DNNL_ARG_VARIANCE:
        return true;
    default:
        return false;
    }
}

static bool is_own(const struct sy_trainer *t, int value)
{
    const struct sy_tr_buffer *b = &t->buffers[t->values[value].buffer];
    return !b->persistent && !b->fixed;
}

static void find_makers(struct plan *p)
{
    const struct sy_trainer *t = p->t;
    for (int b = 0; b < p->n_buffers; b++)
        p->maker[b] = p->last_forward[b] = -1;
    for (int s = 0; s < p->n_forward; s++) {
        if (!(t->steps[s].when & SY_TR_TRAIN))
            continue;
        for (int i = 0; i < n_named(&t->steps[s]); i++) {
            int value = named(&t->steps[s], i);
            if (value < 0 || !is_own(t, value))
                continue;
            int b = t->values[value].buffer;
            if (is_written(&t->steps[s], i) && p->maker[b] < 0)
                p->maker[b] = s;
            p->last_forward[b] = s;
        }
    }
    for (int i = 0; i < t->n_params; i++) /* the update reads the batch's statistics */
        if (t->params[i].batch_statistic >= 0)
            p->last_forward[t->values[t->params[i].batch_statistic].buffer] = p->n_forward;
}

/* ---- cutting ---------------------------------------------------------------------------------------- */

static bool is_kept(const struct plan *p, int b)
{
    return p->maker[b] < 0 || p->last_forward[b] >= p->n_forward ||
           p->segment[p->last_forward[b]] != p->segment[p->maker[b]];
}

/* Segments of about the same bytes. */
static void cut(struct plan *p, int n_segments)
{
    const struct sy_trainer *t = p->t;
    uint64_t all = 0, sum = 0;
    for (int b = 0; b < p->n_buffers; b++)
        all += p->maker[b] >= 0 ? t->buffers[b].bytes : 0;
    for (int s = 0; s < p->n_forward; s++) {
        p->segment[s] =
            all ? (int)SY_MIN(sum * (uint64_t)n_segments / all, (uint64_t)n_segments - 1) : 0;
        for (int i = 0; i < n_named(&t->steps[s]); i++) {
            int value = named(&t->steps[s], i);
            if (value >= 0 && is_own(t, value) && p->maker[t->values[value].buffer] == s &&
                is_written(&t->steps[s], i))
                sum += t->buffers[t->values[value].buffer].bytes;
        }
    }
}

/* Estimates the peak: tensors between segments, and the largest segment. Only buffers that backward reads count. */
static uint64_t cost(const struct plan *p, const bool *is_read, int n_segments)
{
    uint64_t kept = 0, inside[MAX_SEGMENTS] = {0}, most = 0;
    for (int b = 0; b < p->n_buffers; b++) {
        if (p->maker[b] < 0)
            continue;
        uint64_t bytes = p->t->buffers[b].bytes;
        if (is_kept(p, b) && is_read[b])
            kept += bytes;
        else if (is_read[b])
            inside[p->segment[p->maker[b]]] += bytes;
    }
    for (int i = 0; i < n_segments; i++)
        most = SY_MAX(most, inside[i]);
    return kept + most;
}

static void choose_cut(struct plan *p, const bool *is_read)
{
    int best = 1;
    uint64_t least = UINT64_MAX;
    for (int n = 1; n <= MAX_SEGMENTS; n++) {
        cut(p, n);
        uint64_t peak = cost(p, is_read, n);
        if (peak < least) {
            least = peak;
            best = n;
        }
    }
    cut(p, best);
}

/* Buffers needed by backward itself, or to recompute those. */
static void find_read(const struct plan *p, bool *is_read)
{
    const struct sy_trainer *t = p->t;
    for (int s = p->n_forward; s < p->n_steps; s++)
        for (int i = 0; i < n_named(&t->steps[s]); i++)
            if (named(&t->steps[s], i) >= 0)
                is_read[t->values[named(&t->steps[s], i)].buffer] = true;
    for (int s = p->n_forward - 1; s >= 0; s--) {
        bool makes = false;
        for (int i = 0; i < n_named(&t->steps[s]); i++) {
            int v = named(&t->steps[s], i);
            makes |= v >= 0 && is_written(&t->steps[s], i) && is_read[t->values[v].buffer];
        }
        for (int i = 0; makes && i < n_named(&t->steps[s]); i++)
            if (named(&t->steps[s], i) >= 0)
                is_read[t->values[named(&t->steps[s], i)].buffer] = true;
    }
}

/* ---- making again ------------------------------------------------------------------------------------- */

static bool is_forgotten(const struct plan *p, int value)
{
    return value >= 0 && is_own(p->t, value) && p->t->values[value].buffer < p->n_buffers &&
           !is_kept(p, p->t->values[value].buffer);
}

/* The value in the second buffer. */
static int second(struct plan *p, int value, int *out)
{
    struct sy_trainer *t = p->t;
    int b = t->values[value].buffer;
    *out = value;
    if (!is_forgotten(p, value))
        return SY_OK;
    if (p->view[value]) { /* values that are added later are not forgotten ones */
        *out = p->view[value];
        return SY_OK;
    }
    dnnl_memory_desc_t md = t->values[value].md;
    if (p->copy[b]) {
        SY_TRY(sy_tr_value_view(t, p->copy[b], &md, out));
    } else {
        uint64_t bytes = t->buffers[b].bytes;
        SY_TRY(sy_tr_value_new(t, &md, false, out));
        t->buffers[t->values[*out].buffer].bytes = bytes; /* another view may be larger */
        p->copy[b] = *out;
    }
    p->view[value] = *out;
    return SY_OK;
}

static int rename_all(struct plan *p, struct sy_tr_step *s)
{
    for (int i = 0; i < n_named(s); i++) {
        int *value = s->kind == SY_TR_PRIMITIVE ? &s->args[i].value : &s->value[i];
        if (*value >= 0)
            SY_TRY(second(p, *value, value));
    }
    return SY_OK;
}

struct list {
    struct sy_tr_step *steps;
    int n;
};

/* Appends the segment's steps once more. Primitives and data are shared: the copy owns neither. */
static int make_again(struct plan *p, struct list *to, int segment, const bool *is_read)
{
    for (int s = 0; s < p->n_forward; s++) {
        struct sy_tr_step step = p->t->steps[s];
        bool is_needed = false;
        for (int i = 0; i < n_named(&step); i++)
            is_needed |= is_written(&step, i) && is_forgotten(p, named(&step, i)) &&
                         is_read[p->t->values[named(&step, i)].buffer];
        if (p->segment[s] != segment || !(step.when & SY_TR_TRAIN) || !is_needed)
            continue;
        step.when = SY_TR_TRAIN;
        step.is_copy = true;
        SY_TRY(rename_all(p, &step));
        struct sy_tr_step *added = sy_append(&to->steps, &to->n, sizeof *added);
        if (!added)
            return SY_ENOMEM_HOST;
        *added = step;
    }
    return SY_OK;
}

/* The segment that a backward step needs next and that is not present; -1: none. */
static int needs_segment(const struct plan *p, const struct sy_tr_step *step, const bool *is_made)
{
    int latest = -1;
    for (int i = 0; i < n_named(step); i++) {
        int v = named(step, i);
        if (!is_forgotten(p, v))
            continue;
        int segment = p->segment[p->maker[p->t->values[v].buffer]];
        if (!is_made[segment])
            latest = SY_MAX(latest, segment);
    }
    return latest;
}

static int rewrite(struct plan *p, const bool *is_read, int n_segments)
{
    struct list list = {0};
    bool is_made[MAX_SEGMENTS] = {false};
    int status = SY_OK;
    is_made[n_segments - 1] = true; /* the last is still there */
    for (int s = 0; s < p->n_steps; s++) {
        struct sy_tr_step step = p->t->steps[s];
        for (int at; s >= p->n_forward && (at = needs_segment(p, &step, is_made)) >= 0;) {
            is_made[at] = true;
            SY_TRY_GOTO(make_again(p, &list, at, is_read), fail);
        }
        if (s >= p->n_forward)
            SY_TRY_GOTO(rename_all(p, &step), fail);
        struct sy_tr_step *added = sy_append(&list.steps, &list.n, sizeof *added);
        if (!added) {
            status = SY_ENOMEM_HOST;
            goto fail;
        }
        *added = step;
    }
    free(p->t->steps);
    p->t->steps = list.steps;
    p->t->n_steps = list.n;
    return SY_OK;
fail:
    free(list.steps);
    return status;
}

static int count_forward(const struct sy_trainer *t)
{
    int n = 0;
    while (n < t->n_steps && t->steps[n].kind != SY_TR_LOSS)
        n++;
    return n;
}

/* The last segment is never made again: its buffers count as kept. */
static void keep_last_segment(struct plan *p, int *n_segments)
{
    *n_segments = p->n_forward ? p->segment[p->n_forward - 1] + 1 : 1;
    for (int b = 0; b < p->n_buffers; b++)
        if (p->maker[b] >= 0 && p->segment[p->maker[b]] == *n_segments - 1)
            p->last_forward[b] = p->n_forward;
}

int sy_tr_recompute(struct sy_trainer *t)
{
    struct plan p = {
        .t = t, .n_forward = count_forward(t), .n_steps = t->n_steps, .n_buffers = t->n_buffers};
    bool *is_read = NULL;
    int status, n_segments;
    size_t n = (size_t)SY_MAX(p.n_buffers, p.n_steps) + 1;
    SY_TRY_GOTO(sy_tr_alloc(n * sizeof(int), &p.maker), done);
    SY_TRY_GOTO(sy_tr_alloc(n * sizeof(int), &p.last_forward), done);
    SY_TRY_GOTO(sy_tr_alloc(n * sizeof(int), &p.copy), done);
    SY_TRY_GOTO(sy_tr_alloc(n * sizeof(int), &p.segment), done);
    SY_TRY_GOTO(sy_tr_alloc(((size_t)t->n_values + 1) * sizeof(int), &p.view), done);
    SY_TRY_GOTO(sy_tr_alloc(n * sizeof(bool), &is_read), done);
    find_makers(&p);
    find_read(&p, is_read);
    choose_cut(&p, is_read);
    keep_last_segment(&p, &n_segments);
    SY_TRY_GOTO(rewrite(&p, is_read, n_segments), done);
done:
    free(p.maker);
    free(p.last_forward);
    free(p.copy);
    free(p.segment);
    free(p.view);
    free(is_read);
    return status;
}
