#include "runtime/repository/load_waiters.h"

#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

struct sy_load_waiter {
    struct sy_load_waiter *next;
    sy_core_done done;
    void *ctx;
};

int sy_load_waiters_create(struct sy_load_waiters **out)
{
    *out = calloc(1, sizeof(**out));
    SY_TRY_ALLOC(*out, "no memory to load a model");
    (*out)->n_holders = 1;
    return SY_OK;
}

struct sy_load_waiters *sy_load_waiters_hold(struct sy_load_waiters *load)
{
    load->n_holders++;
    return load;
}

void sy_load_waiters_release(struct sy_load_waiters *load)
{
    if (!load || --load->n_holders > 0)
        return;
    for (struct sy_load_waiter *w = load->first, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    free(load);
}

int sy_load_waiters_add(struct sy_load_waiters *load, sy_core_done done, void *ctx)
{
    struct sy_load_waiter **last = &load->first, *waiter = malloc(sizeof(*waiter));

    SY_TRY_ALLOC(waiter, "no memory to load a model");
    *waiter = (struct sy_load_waiter){NULL, done, ctx};
    while (*last)
        last = &(*last)->next;
    *last = waiter;
    return SY_OK;
}

void sy_load_waiters_end(struct sy_load_waiters *load, int status, const char *why)
{
    struct sy_load_waiter *w = load->first, *next;

    load->first = NULL;
    load->is_over = true;
    load->status = status;
    for (; w; w = next) {
        next = w->next;
        w->done(w->ctx, status, why);
        free(w);
    }
}
