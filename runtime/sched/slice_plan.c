#include "runtime/sched/slice_plan.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MOST_CORE 1023

struct plan {
    const struct sy_slice_wish *wishes;
    int n;
    const uint64_t *cores;
    size_t n_cores;
    int *owner;
};

static size_t n_free(const struct plan *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_cores; i++)
        n += p->owner[i] < 0;
    return n;
}

static int check_names(const struct plan *p)
{
    for (int i = 0; i < p->n; i++) {
        if (!*p->wishes[i].name)
            return sy_error_set(SY_EARG, "slice %d has no name", i + 1);
        for (int k = 0; k < i; k++)
            if (strcmp(p->wishes[i].name, p->wishes[k].name) == 0)
                return sy_error_set(SY_EARG, "there are two slices '%s'", p->wishes[i].name);
    }
    return SY_OK;
}

static int take_listed(struct plan *p, int slice)
{
    const struct sy_slice_wish *w = &p->wishes[slice];
    for (size_t k = 0; k < w->n_listed; k++) {
        size_t i = 0;
        while (i < p->n_cores && p->cores[i] != w->listed[k])
            i++;
        if (i == p->n_cores)
            return sy_error_set(SY_EARG, "slice '%s': core %llu is not a compute core here",
                                w->name, (unsigned long long)w->listed[k]);
        if (p->owner[i] >= 0)
            return sy_error_set(SY_EARG, "slice '%s': core %llu is in slice '%s' already", w->name,
                                (unsigned long long)w->listed[k], p->wishes[p->owner[i]].name);
        p->owner[i] = slice;
    }
    return w->n_listed ? SY_OK : sy_error_set(SY_EARG, "slice '%s': no cores", w->name);
}

static int take_first(struct plan *p, int slice, size_t n)
{
    const char *name = p->wishes[slice].name;
    size_t left = n_free(p);
    if (n < 1)
        return sy_error_set(SY_EARG, "slice '%s': it needs at least one core", name);
    if (n > left)
        return sy_error_set(SY_EARG,
                            "slice '%s' wants %zu cores, and %zu of %zu are left; make it, or "
                            "another one, smaller",
                            name, n, left, p->n_cores);
    for (size_t i = 0; n > 0; i++)
        if (p->owner[i] < 0) {
            p->owner[i] = slice;
            n--;
        }
    return SY_OK;
}

static uint64_t sum_of_amounts(const struct plan *p, enum sy_slice_by by, int *n)
{
    uint64_t sum = 0;
    *n = 0;
    for (int i = 0; i < p->n; i++)
        if (p->wishes[i].by == by) {
            sum += p->wishes[i].amount;
            ++*n;
        }
    return sum;
}

/* Gives `n` cores, at least one for each slice of this kind, whose share is amount * all / sum cores: one for each, then one at a time to the slice that is
 * farthest below its share; of equals the first. */
static int hand_out(struct plan *p, enum sy_slice_by by, size_t n, size_t all, uint64_t sum)
{
    size_t has[SY_SLICE_PLAN_MAX] = {0};
    for (; n > 0; n--) {
        int best = -1;
        int64_t most = INT64_MIN;
        for (int i = 0; i < p->n; i++) {
            int64_t missing = (int64_t)(p->wishes[i].amount * all) - (int64_t)(has[i] * sum);
            if (p->wishes[i].by != by)
                continue;
            if (has[i] == 0)
                missing = INT64_MAX;
            if (missing > most) {
                most = missing;
                best = i;
            }
        }
        has[best]++;
    }
    for (int i = 0; i < p->n; i++)
        if (p->wishes[i].by == by)
            SY_TRY(take_first(p, i, has[i]));
    return SY_OK;
}

static int take_weights(struct plan *p)
{
    size_t left = n_free(p);
    int n;
    uint64_t sum = sum_of_amounts(p, SY_SLICE_BY_WEIGHT, &n);
    if (n == 0)
        return SY_OK;
    if ((size_t)n > left)
        return sy_error_set(SY_EARG, "%d slices by weight, and %zu of %zu cores are left for them",
                            n, left, p->n_cores);
    return hand_out(p, SY_SLICE_BY_WEIGHT, left, left, sum);
}

static int check_amount(const struct sy_slice_wish *w)
{
    if (w->by == SY_SLICE_BY_SHARE && (w->amount < 1 || w->amount > 1000))
        return sy_error_set(SY_EARG, "slice '%s': a share of %u per mille: 1 to 1000", w->name,
                            w->amount);
    if (w->by == SY_SLICE_BY_WEIGHT && (w->amount < 1 || w->amount > 1000000))
        return sy_error_set(SY_EARG, "slice '%s': weight %u: 1 to 1000000", w->name, w->amount);
    return SY_OK;
}

/* The shares' sum to the nearest core, so that shares of 100 % take all; fewer where counts and lists left fewer, but each share has all its whole cores, and
 * one at least. Shares below one core take theirs from the others. */
static int take_shares(struct plan *p)
{
    size_t left = n_free(p), least = 0;
    int n;
    uint64_t sum = sum_of_amounts(p, SY_SLICE_BY_SHARE, &n);
    if (n == 0)
        return SY_OK;
    if (sum > 1000)
        return sy_error_set(SY_EARG, "the slices' shares sum to %g %%; at most 100 %% fit",
                            (double)sum / 10);
    for (int i = 0; i < p->n; i++)
        if (p->wishes[i].by == SY_SLICE_BY_SHARE)
            least += SY_MAX(p->wishes[i].amount * p->n_cores / 1000, 1);
    least = SY_MIN(least, SY_MAX(sum * p->n_cores / 1000, (size_t)n));
    if (least > left)
        return sy_error_set(SY_EARG,
                            "the slices by share want %zu cores, and %zu of %zu are left; make "
                            "them, or another one, smaller",
                            least, left, p->n_cores);
    size_t nearest = SY_MAX((sum * p->n_cores + 500) / 1000, least);
    return hand_out(p, SY_SLICE_BY_SHARE, SY_MIN(nearest, left), p->n_cores, 1000);
}

int sy_slice_plan(const struct sy_slice_wish *wishes, int n, const uint64_t *cores, size_t n_cores,
                  int *owner)
{
    struct plan p = {wishes, n, cores, n_cores, owner};
    if (n < 1 || n > SY_SLICE_PLAN_MAX)
        return sy_error_set(SY_EARG, "%d slices: 1 to %d", n, SY_SLICE_PLAN_MAX);
    SY_TRY(check_names(&p));
    for (size_t i = 0; i < n_cores; i++)
        owner[i] = -1;
    for (int i = 0; i < n; i++) {
        SY_TRY(check_amount(&wishes[i]));
        if (wishes[i].by == SY_SLICE_BY_LIST)
            SY_TRY(take_listed(&p, i));
    }
    for (int i = 0; i < n; i++)
        if (wishes[i].by == SY_SLICE_BY_COUNT)
            SY_TRY(take_first(&p, i, wishes[i].amount));
    SY_TRY(take_shares(&p));
    return take_weights(&p);
}

int sy_slice_parse_cores(const char *text, uint64_t *list, size_t room, size_t *n)
{
    const char *at = text;
    *n = 0;
    while (*at) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        bool good = end != at && first >= 0;
        if (good && *end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
            good = end != at;
        }
        if (!good || last < first || last > MOST_CORE || (*end && *end != ',') ||
            (*end == ',' && !end[1]))
            return sy_error_set(SY_EARG, "cores '%.60s': a list like 0-3,6 is expected", text);
        for (long c = first; c <= last && *n < room; c++)
            list[(*n)++] = (uint64_t)c;
        at = *end ? end + 1 : end;
    }
    return *n ? SY_OK : sy_error_set(SY_EARG, "cores '': a list like 0-3,6 is expected");
}

const char *sy_slice_cores_text(const uint64_t *list, size_t n, char *buffer, size_t bytes)
{
    size_t used = 0;
    snprintf(buffer, bytes, "-");
    for (size_t i = 0, end; i < n && used < bytes; i = end) {
        for (end = i + 1; end < n && list[end] == list[end - 1] + 1;)
            end++;
        int got = end - i > 1
                      ? snprintf(buffer + used, bytes - used, "%s%llu-%llu", i ? "," : "",
                                 (unsigned long long)list[i], (unsigned long long)list[end - 1])
                      : snprintf(buffer + used, bytes - used, "%s%llu", i ? "," : "",
                                 (unsigned long long)list[i]);
        used += got > 0 ? (size_t)got : 0;
    }
    return buffer;
}
