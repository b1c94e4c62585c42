/* How much slower a task is beside another one that computes at the same time. Pure: what was measured comes in, predictions go out.
 *
 *   slow-down of a beside b  =  1 + sensitivity(a) x pressure(b)
 *
 * Both numbers are of one task (its use of memory, of caches, of the link), so a few pairs tell of all others; they are fitted to what is observed. A pair that
 * was observed itself is predicted by what it was. Without any observation the answer is 1. */
#ifndef SY_SCHED_INTERFERENCE_H
#define SY_SCHED_INTERFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#define SY_INTERFERENCE_TASKS 512 /* ids 0 to 511 */
#define SY_INTERFERENCE_PAIRS 512 /* remembered; the one observed longest ago goes */

struct sy_interference_pair {
    int a, b;
    unsigned n;       /* observations; 0: a free place */
    double slowdown;  /* of a beside b: a running mean, the last eight count most */
    double predicted; /* before the first one */
    double
        next_error; /* running mean of |predicted - observed| / observed, each predicted before it was observed; from the second one on */
    uint64_t used;
};

struct sy_interference {
    double sensitivity[SY_INTERFERENCE_TASKS], pressure[SY_INTERFERENCE_TASKS];
    bool seen[2][SY_INTERFERENCE_TASKS]; /* observed as a, as b */
    struct sy_interference_pair pairs[SY_INTERFERENCE_PAIRS];
    uint64_t n_observed;
};

void sy_interference_start(struct sy_interference *i);
/* A run of `a` took so many times what it takes alone, `b` beside it all the while. What is not from 0.1 to 100 is no measurement and changes nothing. */
void sy_interference_observe(struct sy_interference *i, int a, int b, double slowdown);
double sy_interference_predict(const struct sy_interference *i, int a, int b); /* at least 1 */
/* `a`, which promises something, takes turns with `b`: beside it, it would be slower than `bound` times what it takes alone. 0: never. */
bool sy_interference_breaks(const struct sy_interference *i, int a, int b, double bound);
/* NULL: never observed, or forgotten. */
const struct sy_interference_pair *sy_interference_find(const struct sy_interference *i, int a,
                                                        int b);
/* The id is another task's from now on. */
void sy_interference_forget(struct sy_interference *i, int task);

#endif
