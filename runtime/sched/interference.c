#include "runtime/sched/interference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"

#define START     0.2 /* initial value of both factors: together a slow-down of 4 % */
#define STEP      0.5 /* fraction of the distance to the values that explain an observation */
#define LEAST     0.1
#define MOST      100.0
#define MOST_BOTH 10.0
#define MOST_DEBT 0.2
#define FORGIVEN  0.01 /* excess error per block that is tolerated */
#define DOUBT     2    /* pairs without slow-down that the mean is averaged with */

void sy_interference_start(struct sy_interference *i)
{
    *i = (struct sy_interference){0};
    for (int t = 0; t < SY_INTERFERENCE_TASKS; t++)
        i->sensitivity[t] = i->pressure[t] = START;
}

static int place_of(const struct sy_interference *i, int a, int b)
{
    for (int k = 0; k < SY_INTERFERENCE_PAIRS; k++)
        if (i->pairs[k].n > 0 && i->pairs[k].a == a && i->pairs[k].b == b)
            return k;
    return -1;
}

const struct sy_interference_pair *sy_interference_find(const struct sy_interference *i, int a,
                                                        int b)
{
    int at = place_of(i, a, b);
    return at < 0 ? NULL : &i->pairs[at];
}

static double guess(const struct sy_interference *i, enum sy_interference_way way, int a, int b)
{
    switch (way) {
    case SY_PREDICT_MEAN:
        return 1.0 + i->mean;
    case SY_PREDICT_PROFILES:
        return 1.0 + SY_MIN(i->k * i->traffic[a] * i->traffic[b], MOST_BOTH);
    case SY_PREDICT_TASKS:
        return i->seen[0][a] && i->seen[1][b] ? 1.0 + i->sensitivity[a] * i->pressure[b] : 1.0;
    default:
        return 1.0;
    }
}

double sy_interference_predict(const struct sy_interference *i, int a, int b)
{
    const struct sy_interference_pair *pair = sy_interference_find(i, a, b);
    if (pair)
        return SY_MAX(pair->slowdown, 1.0);
    return i->debt >= MOST_DEBT ? 1.0 : SY_MAX(guess(i, i->way, a, b), 1.0);
}

bool sy_interference_breaks(const struct sy_interference *i, int a, int b, double bound)
{
    return bound > 0 && sy_interference_predict(i, a, b) > bound;
}

static double bounded(double x)
{
    return SY_MIN(SY_MAX(x, 0.0), MOST_BOTH);
}

/* Moves the two factors toward the nearest pair whose product explains the observation. */
static void fit(struct sy_interference *i, int a, int b, double slowdown)
{
    double s = i->sensitivity[a], p = i->pressure[b];
    double missing = (slowdown - 1.0) - s * p, norm = s * s + p * p + 0.01;
    i->sensitivity[a] = bounded(s + STEP * missing * p / norm);
    i->pressure[b] = bounded(p + STEP * missing * s / norm);
    i->seen[0][a] = i->seen[1][b] = true;
}

static struct sy_interference_pair *take_place(struct sy_interference *i, int a, int b)
{
    int best = place_of(i, a, b);
    if (best >= 0)
        return &i->pairs[best];
    best = 0;
    for (int k = 1; k < SY_INTERFERENCE_PAIRS; k++)
        if (i->pairs[k].used < i->pairs[best].used)
            best = k;
    i->pairs[best] = (struct sy_interference_pair){
        .a = a, .b = b, .predicted = sy_interference_predict(i, a, b)};
    return &i->pairs[best];
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double sy_interference_median(const float *values, unsigned n)
{
    float sorted[32];
    assert(n >= 1 && n <= SY_ARRAY_LEN(sorted));
    memcpy(sorted, values, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    return n % 2 ? (double)sorted[n / 2] : ((double)sorted[n / 2 - 1] + (double)sorted[n / 2]) / 2;
}

static void add_debt(double *debt, double error, double none)
{
    *debt = SY_MAX(*debt - FORGIVEN + error - none, 0.0);
}

static void end_block(struct sy_interference *i, struct sy_interference_pair *p)
{
    unsigned n_blocks = p->n / SY_INTERFERENCE_BLOCK;
    double is = sy_interference_median(p->recent + (n_blocks - 1) % 2 * SY_INTERFERENCE_BLOCK,
                                       SY_INTERFERENCE_BLOCK);
    double error = fabs(p->block_predicted - is) / is, none = fabs(1 - is) / is;
    if (n_blocks == 1) {
        p->first_error = error;
        p->none_first = none;
    }
    add_debt(n_blocks == 1 ? &i->debt : &p->debt, error, none);
    p->next_error += (error - p->next_error) / SY_MIN(n_blocks, SY_INTERFERENCE_BLOCK);
    p->none_next += (none - p->none_next) / SY_MIN(n_blocks, SY_INTERFERENCE_BLOCK);
}

/* Predicted slow-down of the next runs, relative to the task's measured time alone: below 1 if that was measured too high or on a slower machine. */
static double predict_block(const struct sy_interference_pair *p)
{
    if (p->n == 0)
        return p->predicted;
    return p->debt >= MOST_DEBT ? 1.0 : p->slowdown;
}

/* Least squares over the pairs in which both tasks have a profile. */
static void fit_k(struct sy_interference *i)
{
    double xx = 0, xe = 0;
    for (const struct sy_interference_pair *p = i->pairs; p < i->pairs + SY_INTERFERENCE_PAIRS;
         p++) {
        double x = p->n ? i->traffic[p->a] * i->traffic[p->b] : 0;
        xx += x * x;
        xe += x * (p->slowdown - 1);
    }
    i->k = xx > 0 ? SY_MAX(xe / xx, 0) : 0;
}

static void fit_mean(struct sy_interference *i)
{
    double sum = 0, n = DOUBT;
    for (const struct sy_interference_pair *p = i->pairs; p < i->pairs + SY_INTERFERENCE_PAIRS;
         p++) {
        sum += p->n ? p->slowdown - 1 : 0;
        n += p->n > 0;
    }
    i->mean = SY_MAX(sum / n, 0);
}

/* Number of free parameters fitted: in each product one factor is arbitrary. */
static int n_numbers(const struct sy_interference *i)
{
    int n = -1;
    for (int t = 0; t < SY_INTERFERENCE_TASKS; t++)
        n += i->seen[0][t] + i->seen[1][t];
    return n;
}

/* Selects the model with the least error over the observed pairs, corrected for its number of parameters. */
static void choose_way(struct sy_interference *i)
{
    double sums[SY_PREDICT_WAYS] = {0}, least = INFINITY;
    const int fitted[SY_PREDICT_WAYS] = {
        [SY_PREDICT_MEAN] = 1, [SY_PREDICT_PROFILES] = 1, [SY_PREDICT_TASKS] = n_numbers(i)};
    int n = 0;
    for (const struct sy_interference_pair *p = i->pairs; p < i->pairs + SY_INTERFERENCE_PAIRS;
         p++) {
        n += p->n > 0;
        for (int way = 0; p->n > 0 && way < SY_PREDICT_WAYS; way++)
            sums[way] += fabs(guess(i, (enum sy_interference_way)way, p->a, p->b) - p->slowdown) /
                         p->slowdown;
    }
    i->way = SY_PREDICT_NOTHING;
    for (int way = 0; way < SY_PREDICT_WAYS; way++) {
        double error = n > fitted[way] ? sums[way] / (n - fitted[way]) : INFINITY;
        if (error < least) {
            least = error;
            i->way = (enum sy_interference_way)way;
        }
    }
}

void sy_interference_profile(struct sy_interference *i, int task, double bytes_per_ns)
{
    if (bytes_per_ns > 0 && bytes_per_ns < INFINITY)
        i->traffic[task] = bytes_per_ns;
}

void sy_interference_observe(struct sy_interference *i, int a, int b, double slowdown)
{
    assert(a >= 0 && a < SY_INTERFERENCE_TASKS && b >= 0 && b < SY_INTERFERENCE_TASKS);
    if (!(slowdown >= LEAST && slowdown <= MOST))
        return;
    struct sy_interference_pair *pair = take_place(i, a, b);
    if (pair->n % SY_INTERFERENCE_BLOCK == 0)
        pair->block_predicted = predict_block(pair);
    pair->recent[pair->n % SY_INTERFERENCE_RECENT] = (float)slowdown;
    pair->n += pair->n < UINT32_MAX - SY_INTERFERENCE_RECENT;
    pair->slowdown = sy_interference_median(pair->recent, SY_MIN(pair->n, SY_INTERFERENCE_RECENT));
    if (pair->n % SY_INTERFERENCE_BLOCK == 0)
        end_block(i, pair);
    pair->used = ++i->n_observed;
    fit(i, a, b, pair->slowdown);
    fit_k(i);
    fit_mean(i);
    choose_way(i);
}

void sy_interference_forget(struct sy_interference *i, int task)
{
    i->sensitivity[task] = i->pressure[task] = START;
    i->seen[0][task] = i->seen[1][task] = false;
    i->traffic[task] = 0;
    for (int k = 0; k < SY_INTERFERENCE_PAIRS; k++)
        if (i->pairs[k].a == task || i->pairs[k].b == task)
            i->pairs[k] = (struct sy_interference_pair){0};
}
