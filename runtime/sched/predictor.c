#include "runtime/sched/predictor.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define WINDOW SY_PREDICTOR_WINDOW

struct window {
    int n, next;          /* next: the oldest entry, once full */
    float sorted[WINDOW]; /* ratios */
    float ring[WINDOW];
};

struct sy_predictor {
    int n_models;
    double high;
    struct window *swap, *compute;
};

int sy_predictor_create(int n_models, double high, struct sy_predictor **out)
{
    *out = NULL;
    if (n_models < 1 || n_models > 1000000 || !(high >= 0.5 && high <= 1))
        return sy_error_set(SY_EARG,
                            "a predictor for %d models, quantile %g: 1 to 1000000, 0.5 to 1",
                            n_models, high);
    struct sy_predictor *p = calloc(1, sizeof *p);
    struct window *windows = calloc(2 * (size_t)n_models, sizeof *windows);
    if (!p || !windows) {
        free(p);
        free(windows);
        return sy_error_set(SY_ENOMEM_HOST, "no memory to predict %d models", n_models);
    }
    *p = (struct sy_predictor){n_models, high, windows, windows + n_models};
    *out = p;
    return SY_OK;
}

void sy_predictor_destroy(struct sy_predictor *p)
{
    if (p)
        free(p->swap);
    free(p);
}

/* The first position whose value is not less than `ratio`. */
static int place_of(const struct window *w, float ratio)
{
    int low = 0, high = w->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (w->sorted[middle] < ratio)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void drop(struct window *w, float ratio)
{
    int at = place_of(w, ratio);
    w->n--;
    memmove(&w->sorted[at], &w->sorted[at + 1], (size_t)(w->n - at) * sizeof w->sorted[0]);
}

static void observe(struct window *w, sy_ns predicted_ns, sy_ns observed_ns)
{
    if (predicted_ns == 0)
        return;
    float ratio = (float)((double)observed_ns / (double)predicted_ns);
    if (w->n == WINDOW)
        drop(w, w->ring[w->next]);
    int at = place_of(w, ratio);
    memmove(&w->sorted[at + 1], &w->sorted[at], (size_t)(w->n - at) * sizeof w->sorted[0]);
    w->sorted[at] = ratio;
    w->n++;
    w->ring[w->next] = ratio;
    w->next = (w->next + 1) % WINDOW;
}

static bool knows(const struct sy_predictor *p, int model)
{
    return p && model >= 0 && model < p->n_models;
}

void sy_predictor_observe_swap(struct sy_predictor *p, int model, sy_ns predicted_ns,
                               sy_ns observed_ns)
{
    if (knows(p, model))
        observe(&p->swap[model], predicted_ns, observed_ns);
}

void sy_predictor_observe_compute(struct sy_predictor *p, int model, sy_ns predicted_ns,
                                  sy_ns observed_ns)
{
    if (knows(p, model))
        observe(&p->compute[model], predicted_ns, observed_ns);
}

static double quantile(const struct window *w, double q)
{
    return w->n == 0 ? 1 : (double)w->sorted[(int)(q * (w->n - 1) + 0.5)];
}

struct sy_duration sy_predictor_correct(const struct sy_predictor *p, int model, sy_ns swap_ns,
                                        sy_ns compute_ns)
{
    if (!knows(p, model))
        return (struct sy_duration){swap_ns + compute_ns, 0};
    const struct window *s = &p->swap[model], *c = &p->compute[model];
    double expected = quantile(s, 0.5) * (double)swap_ns + quantile(c, 0.5) * (double)compute_ns;
    double high =
        quantile(s, p->high) * (double)swap_ns + quantile(c, p->high) * (double)compute_ns;
    return (struct sy_duration){(sy_ns)expected, (sy_ns)(high - expected)};
}

int sy_predictor_n_seen(const struct sy_predictor *p, int model, bool swaps)
{
    return !knows(p, model) ? 0 : swaps ? p->swap[model].n : p->compute[model].n;
}

void sy_predictor_forget_oldest(struct sy_predictor *p, int model, bool swaps)
{
    if (sy_predictor_n_seen(p, model, swaps) == 0)
        return;
    struct window *w = swaps ? &p->swap[model] : &p->compute[model];
    drop(w, w->ring[(w->next + WINDOW - w->n) % WINDOW]);
}

void sy_predictor_forget(struct sy_predictor *p, int model)
{
    if (!knows(p, model))
        return;
    p->swap[model].n = p->swap[model].next = 0;
    p->compute[model].n = p->compute[model].next = 0;
}
