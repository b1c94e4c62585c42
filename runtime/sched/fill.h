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
    double alone_ns, beside_ns; /* of a step of the job: running means */
    unsigned n_alone, n_beside; /* measurements, up to what counts */
    double credit;              /* windows */
    unsigned n_windows;
};

void sy_fill_start(struct sy_fill *f);
/* A step took so long; beside: opportunistic work computed all the while, else not at all. What is not above 0 is no measurement. */
void sy_fill_observe(struct sy_fill *f, bool beside, double step_ns);
/* Of the time, 0 to 1, that opportunistic work may compute beside it. keep: 0 to 1, the part of its speed that the job keeps. */
double sy_fill_part(const struct sy_fill *f, double keep);
/* Of the job's speed alone, what it has beside them; 1 while not both are known. */
double sy_fill_ratio(const struct sy_fill *f);
/* A window is over, of which opportunistic work computed this part: whether it may in the next one. */
bool sy_fill_next(struct sy_fill *f, double keep, double had);

#endif
