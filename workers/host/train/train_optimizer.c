/* After backward: sums over the phases of an iteration, the gradient's norm, and the optimizers. */
#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/schedule.h"
#include "workers/engine/train_rules.h"
#include "workers/host/base/clones.h"
#include "workers/host/train/train_internal.h"
#include "workers/host/train/train_parts.h"

static uint64_t phases_of(const struct sy_trainer *t)
{
    return SY_MAX(t->options.accumulate, 1);
}

/* ---- totals --------------------------------------------------------------------------------------- */

SY_CLONES static void add_part(float *to, const float *a, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] += a[i];
}

SY_CLONES static void follow_part(float *to, const float *a, uint64_t n, float keep, float share)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = keep * to[i] + share * a[i];
}

static int run_total(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const uint64_t *n_elements = step->data;
    float *to = sy_tr_at(t, step, 0);
    const float *from_data = sy_tr_at(t, step, 1);
    if (t->draw % phases_of(t) == 0)
        memcpy(to, from_data, *n_elements * sizeof *to);
    else
        IN_PARTS(*n_elements, add_part(to + from, from_data + from, count))
    return SY_OK;
}

struct follow {
    uint64_t n;
    float keep;
};

/* Accumulates the change of a running statistic, decayed from phase to phase like the statistic itself. */
static int run_follow(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct follow *f = step->data;
    bool is_first = t->draw % phases_of(t) == 0;
    float *to = sy_tr_at(t, step, 0);
    if (is_first)
        memset(to, 0, f->n * sizeof *to);
    follow_part(to, sy_tr_at(t, step, 1), f->n, f->keep, 1.0f - f->keep);
    return SY_OK;
}

#define NORM_CHUNK 65536

struct norm {
    uint64_t n, n_chunks;
    bool is_first, is_last;
    double sums[]; /* a chunk each: added in order */
};

SY_CLONES static double square_sum(const float *x, uint64_t n)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i += 256) { /* short sums in float */
        float part = 0.0f;
        uint64_t end = SY_MIN(n, i + 256);
#pragma omp simd reduction(+ : part)
        for (uint64_t k = i; k < end; k++)
            part += x[k] * x[k];
        sum += (double)part;
    }
    return sum;
}

/* A gradient that is not finite ends the job before it spoils the weights. */
static int run_norm(struct sy_trainer *t, const struct sy_tr_step *step)
{
    struct norm *norm = step->data;
    const float *x = sy_tr_at(t, step, 0);
    if (t->draw % phases_of(t) != phases_of(t) - 1)
        return SY_OK;
    if (norm->is_first)
        t->norm_square = 0.0;
#pragma omp parallel for schedule(static) if (norm->n_chunks > 1)
    for (uint64_t c = 0; c < norm->n_chunks; c++)
        norm->sums[c] =
            square_sum(x + c * NORM_CHUNK, SY_MIN(norm->n - c * NORM_CHUNK, NORM_CHUNK));
    for (uint64_t c = 0; c < norm->n_chunks; c++)
        t->norm_square += norm->sums[c];
    if (norm->is_last && !isfinite(t->norm_square))
        return sy_train_fail_not_finite("the norm of the gradient", sqrt(t->norm_square),
                                        t->options.learning_rate);
    return SY_OK;
}

bool sy_tr_is_norm(const struct sy_tr_step *step)
{
    return step->fn == run_norm;
}

static uint64_t elements_of(const struct sy_trainer *t, int value)
{
    return dnnl_memory_desc_get_size(&t->values[value].md) / sizeof(float); /* padding: G2 */
}

/* Kept between phases, so it is persistent. */
static int add_total(struct sy_trainer *t, struct sy_tr_param *p)
{
    dnnl_memory_desc_t md = t->values[p->gradient >= 0 ? p->gradient : p->batch_statistic].md;
    struct follow *f;
    SY_TRY(sy_tr_value_new(t, &md, true, &p->total));
    SY_TRY(sy_tr_alloc(sizeof *f, &f));
    *f = (struct follow){elements_of(t, p->total), p->keep};
    return sy_tr_add_call(
        t, SY_TR_TRAIN, p->gradient >= 0 ? run_total : run_follow, 1, 2,
        (const int[]){p->total, p->gradient >= 0 ? p->gradient : p->batch_statistic}, f);
}

static int add_norm(struct sy_trainer *t, int value, bool is_first, bool is_last)
{
    struct norm *norm;
    uint64_t n = elements_of(t, value), n_chunks = (n + NORM_CHUNK - 1) / NORM_CHUNK;
    SY_TRY(sy_tr_alloc(sizeof *norm + n_chunks * sizeof *norm->sums, &norm));
    norm->n = n;
    norm->n_chunks = n_chunks;
    norm->is_first = is_first;
    norm->is_last = is_last;
    return sy_tr_add_call(t, SY_TR_TRAIN, run_norm, 0, 1, &value, norm);
}

int sy_tr_add_totals(struct sy_trainer *t)
{
    int last = -1, first = -1;
    for (int p = 0; p < t->n_params; p++) {
        struct sy_tr_param *param = &t->params[p];
        param->total = param->gradient >= 0 ? param->gradient : param->batch_statistic;
        if (param->alias_of >= 0 || param->total < 0)
            continue;
        if (phases_of(t) > 1)
            SY_TRY(add_total(t, param));
        if (param->gradient < 0)
            continue;
        first = first < 0 ? p : first;
        last = p;
    }
    for (int p = first; p >= 0 && p <= last; p++)
        if (t->params[p].gradient >= 0 && t->params[p].alias_of < 0)
            SY_TRY(add_norm(t, t->params[p].total, p == first, p == last));
    return SY_OK;
}

/* ---- optimizers ----------------------------------------------------------------------------------- */

SY_CLONES static void sgd_part(float *w, const float *g, uint64_t n, float scale,
                               const struct sy_update_rule *r)
{
    for (uint64_t i = 0; i < n; i++)
        w[i] -= r->rate * (g[i] * scale + r->decay * w[i]);
}

SY_CLONES static void momentum_part(float *w, const float *g, float *v, uint64_t n, float scale,
                                    const struct sy_update_rule *r)
{
    for (uint64_t i = 0; i < n; i++) {
        v[i] = r->momentum * v[i] + (g[i] * scale + r->decay * w[i]);
        w[i] -= r->rate * v[i];
    }
}

SY_CLONES static void nesterov_part(float *w, const float *g, float *v, uint64_t n, float scale,
                                    const struct sy_update_rule *r)
{
    for (uint64_t i = 0; i < n; i++) {
        float d = g[i] * scale + r->decay * w[i];
        v[i] = r->momentum * v[i] + d;
        w[i] -= r->rate * (d + r->momentum * v[i]);
    }
}

SY_CLONES static void adam_part(float *w, const float *g, float *m, float *v, uint64_t n,
                                float scale, const struct sy_update_rule *a)
{
    for (uint64_t i = 0; i < n; i++) {
        float d = g[i] * scale + a->decay * w[i];
        m[i] = a->beta1 * m[i] + a->rest1 * d;
        v[i] = a->beta2 * v[i] + a->rest2 * d * d;
        w[i] = w[i] * a->shrink - a->rate * m[i] / (sqrtf(v[i]) * a->correct2 + a->epsilon);
    }
}

SY_CLONES static void statistic_part(float *running, const float *batch, uint64_t n, float keep,
                                     float share)
{
    for (uint64_t i = 0; i < n; i++)
        running[i] = keep * running[i] + share * batch[i];
}

/* As torch.nn.utils.clip_grad_norm_: the norm is that of the mean over the phases. */
static double gradient_scale(const struct sy_trainer *t)
{
    double mean = 1.0 / (double)phases_of(t), norm = sqrt(t->norm_square) * mean;
    double limit = t->options.clip_norm;
    return limit > 0.0 && norm > limit ? mean * limit / (norm + 1e-6) : mean;
}

static bool is_decayed(const struct sy_trainer *t, const struct sy_tr_param *p)
{
    return !t->options.spares_vectors || t->graph->tensors[p->tensor].shape.rank > 1;
}

static void update_statistic(const struct sy_trainer *t, const struct sy_tr_param *p,
                             uint64_t first, uint64_t n)
{
    bool is_gain = phases_of(t) > 1; /* what is to be added, over all phases */
    float keep = is_gain ? (float)pow((double)p->keep, (double)phases_of(t)) : p->keep;
    statistic_part(t->values[p->value].data + first, t->values[p->total].data + first, n, keep,
                   is_gain ? 1.0f : 1.0f - p->keep);
}

void sy_tr_kernel_update(struct sy_trainer *t, const struct sy_tr_update *update,
                         uint64_t iteration)
{
    const struct sy_tr_param *p = &t->params[update->param];
    uint64_t first = update->first, n = update->n;
    struct sy_update_rule r;
    if (p->gradient < 0) {
        update_statistic(t, p, first, n);
        return;
    }
    float *w = t->values[p->value].data + first;
    float *a = p->n_slots > 0 ? t->values[p->slots[0]].data + first : NULL;
    float *b = p->n_slots > 1 ? t->values[p->slots[1]].data + first : NULL;
    const float *g = t->values[p->total].data + first;
    float scale = (float)gradient_scale(t);
    sy_train_rule(&t->options, is_decayed(t, p), iteration, &r);
    if (b)
        IN_PARTS(n, adam_part(w + from, g + from, a + from, b + from, count, scale, &r))
    else if (a && t->options.is_nesterov)
        IN_PARTS(n, nesterov_part(w + from, g + from, a + from, count, scale, &r))
    else if (a)
        IN_PARTS(n, momentum_part(w + from, g + from, a + from, count, scale, &r))
    else
        IN_PARTS(n, sgd_part(w + from, g + from, count, scale, &r))
}
