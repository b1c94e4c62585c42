/* How much of the time opportunistic work may compute beside a job that is promised its speed. Pure: measurements come in, a decision for each window goes out.
 *
 *   windows   | alone | beside | held | held | beside | held ...
 *   credit      += part each window, -= what opportunistic work used of it: use beyond its part is paid back later
 *
 * If the job keeps the part r of its speed beside opportunistic work, that work gets (1 - keep) / (1 - r) of the windows, and the job keeps `keep` of its
 * speed over all. If r >= keep, it gets all windows but every 32nd, in which the job is measured alone again. The first windows are alone, for comparison. */
#ifndef SY_SCHED_FILL_H
#define SY_SCHED_FILL_H

#include <stdbool.h>

struct sy_fill {
    double alone_ns, beside_ns; /* step times of the job: running means */
    unsigned n_alone, n_beside; /* measurements, counted up to the number needed */
    double credit;              /* windows */
    unsigned n_windows;
};

void sy_fill_start(struct sy_fill *f);
/* Records a step time of the job; beside: opportunistic work computed during all of it, else during none of it. Values of 0 and below are ignored. */
void sy_fill_observe(struct sy_fill *f, bool beside, double step_ns);
/* The share of time, 0 to 1, in which opportunistic work may compute. keep: the fraction of its speed that the job keeps, 0 to 1. */
double sy_fill_part(const struct sy_fill *f, double keep);
/* The job's speed beside opportunistic work / its speed alone; 1 until both are known. */
double sy_fill_ratio(const struct sy_fill *f);
/* Ends a window in which opportunistic work computed for the fraction `had`. True: it may compute in the next window. */
bool sy_fill_next(struct sy_fill *f, double keep, double had);

#endif
