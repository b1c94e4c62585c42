/* Dropout, and Cast. Dropout's random bits are a function of (seed, batch, node, element): nothing about them is state, so an
 * interrupted, repeated or resumed step draws the same. The generator is Philox 4x32-10 (Salmon et al., 2011). */
#include <string.h>

#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/rows/cast_rows.h"
#include "workers/host/rows/elementwise.h"
#include "workers/host/train/train_internal.h"

#define CHUNK 256 /* counters that are drawn together */

struct drop {
    int64_t n;
    float ratio, scale;
    uint32_t node;
};

/* One round over CHUNK counters. */
SY_CLONES static void philox_round(uint32_t c[4][CHUNK], uint32_t key0, uint32_t key1)
{
    for (int i = 0; i < CHUNK; i++) {
        uint64_t p = 0xd2511f53ull * c[0][i], q = 0xcd9e8d57ull * c[2][i];
        uint32_t c1 = c[1][i], c3 = c[3][i];
        c[0][i] = (uint32_t)(q >> 32) ^ c1 ^ key0;
        c[1][i] = (uint32_t)q;
        c[2][i] = (uint32_t)(p >> 32) ^ c3 ^ key1;
        c[3][i] = (uint32_t)p;
    }
}

static void draw(uint64_t seed, uint64_t batch, uint32_t node, uint64_t first, uint32_t c[4][CHUNK])
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < CHUNK; i++) {
        c[0][i] = (uint32_t)(first + (uint64_t)i);
        c[1][i] = node;
        c[2][i] = (uint32_t)batch;
        c[3][i] = (uint32_t)(batch >> 32);
    }
    for (int round = 0; round < 10; round++) {
        philox_round(c, key0, key1);
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
}

SY_CLONES static void keep_some(const float *x, float *y, const uint32_t *bits, int64_t n,
                                uint32_t limit, float scale)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = bits[i] < limit ? 0.0f : x[i] * scale;
}

/* Forward of the values, backward of their gradients: the same. Element j of a piece of 4 * CHUNK has word j / CHUNK of counter
 * j % CHUNK. */
static int run_drop(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct drop *d = step->data;
    float *y = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1);
    uint32_t limit = (uint32_t)((double)d->ratio * 4294967296.0);
    if (!t->is_training || limit == 0) {
        memcpy(y, x, (size_t)d->n * sizeof *y);
        return SY_OK;
    }
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < d->n; first += (int64_t)4 * CHUNK) {
        uint32_t bits[4][CHUNK];
        int64_t left = d->n - first;
        draw(t->options.seed, t->draw, d->node, (uint64_t)first / 4, bits);
        keep_some(x + first, y + first, bits[0], left < 4 * CHUNK ? left : 4 * CHUNK, limit,
                  d->scale);
    }
    return SY_OK;
}

static int add_drop(struct sy_trainer *t, unsigned when, int n, int to, int from)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct drop *d;
    SY_TRY(sy_tr_alloc(sizeof *d, &d));
    d->n = sy_tr_count(t, node->outputs[0]);
    d->ratio = sy_node_float(node, "ratio", 0.0f);
    d->scale = 1.0f / (1.0f - d->ratio);
    d->node = (uint32_t)n;
    return sy_tr_add_call(t, when, run_drop, 1, 2, (const int[]){to, from}, d);
}

int sy_tr_dropout_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x, y;
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[0], &x));
    SY_TRY(sy_tr_result(t, node->outputs[0], &y));
    return add_drop(t, SY_TR_FORWARD, n, y, x);
}

int sy_tr_dropout_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int dx, dy;
    (void)gradient;
    SY_TRY(sy_tr_diff_of(t, node->outputs[0], &dy));
    SY_TRY(sy_tr_diff_begin(t, node->inputs[0], &dx));
    SY_TRY(add_drop(t, SY_TR_TRAIN, n, dx, dy));
    return sy_tr_diff_end(t, node->inputs[0], dx);
}

/* ---- Cast ----------------------------------------------------------------------------------------- */

struct cast {
    enum sy_dtype from, to;
    int64_t n;
};

static int run_cast(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct cast *c = step->data;
    return sy_elementwise_cast(c->from, c->to, c->n, sy_tr_at(t, step, 1), sy_tr_at(t, step, 0));
}

int sy_tr_cast_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    enum sy_dtype from = t->graph->tensors[node->inputs[0]].dtype,
                  to = t->graph->tensors[node->outputs[0]].dtype;
    struct cast *c;
    int x, y;
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[0], &x));
    if (from == to) {
        t->tensors[node->outputs[0]].value = x;
        return SY_OK;
    }
    if (sy_elementwise_cast(from, to, 0, NULL, NULL) < 0)
        return sy_tr_refuse(node, "between these types");
    SY_TRY(sy_tr_result(t, node->outputs[0], &y));
    SY_TRY(sy_tr_alloc(sizeof *c, &c));
    *c = (struct cast){from, to, sy_tr_count(t, node->outputs[0])};
    return sy_tr_add_call(t, SY_TR_FORWARD, run_cast, 1, 2, (const int[]){y, x}, c);
}

int sy_tr_cast_backward(struct sy_trainer *t, int n, int gradient)
{
    int input = t->graph->nodes[n].inputs[0];
    if (t->graph->tensors[input].dtype != SY_DTYPE_F32 || t->tensors[input].param >= 0)
        return SY_OK;
    return sy_tr_gradient_add(t, input, gradient);
}
