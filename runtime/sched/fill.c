#include "runtime/sched/fill.h"

#include "runtime/base/assert.h"

#define FIRST_ALONE  8 /* measurements alone before anything computes beside the job */
#define FIRST_TRIAL  4 /* measurements beside others before the ratio counts */
#define TRIAL_PART   0.25
#define MEAN_OF      32
#define ALONE_EVERY  32   /* windows */
#define LEAST_PART   0.01 /* never 0, so that the job is measured again */
#define MOST_CREDIT  1.0
#define LEAST_CREDIT (-50.0)

void sy_fill_start(struct sy_fill *f)
{
    *f = (struct sy_fill){0};
}

static void learn(double *mean, unsigned *n, double value)
{
    *n += *n < MEAN_OF;
    *mean += (value - *mean) / *n;
}

void sy_fill_observe(struct sy_fill *f, bool beside, double step_ns)
{
    if (!(step_ns > 0))
        return;
    if (beside)
        learn(&f->beside_ns, &f->n_beside, step_ns);
    else
        learn(&f->alone_ns, &f->n_alone, step_ns);
}

double sy_fill_ratio(const struct sy_fill *f)
{
    return f->n_alone > 0 && f->n_beside > 0 ? f->alone_ns / f->beside_ns : 1;
}

double sy_fill_part(const struct sy_fill *f, double keep)
{
    double ratio = sy_fill_ratio(f);
    if (keep <= 0)
        return 1;
    if (f->n_alone < FIRST_ALONE)
        return 0;
    if (f->n_beside < FIRST_TRIAL)
        return TRIAL_PART;
    if (ratio >= keep)
        return 1;
    return SY_MAX((1 - keep) / (1 - ratio), LEAST_PART);
}

bool sy_fill_next(struct sy_fill *f, double keep, double had)
{
    double part = sy_fill_part(f, keep);
    if (keep <= 0)
        return true;
    f->n_windows++;
    if (part >= 1) {
        f->credit = 0;
        return f->n_windows % ALONE_EVERY != 0;
    }
    f->credit = SY_MAX(SY_MIN(f->credit + part - had, MOST_CREDIT), LEAST_CREDIT);
    return part > 0 && f->credit >= 0;
}
