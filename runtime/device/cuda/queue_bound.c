#include "runtime/device/cuda/queue_bound.h"

#include "runtime/base/assert.h"

bool sy_queue_bound_has_room(const struct sy_queue_bound *bound, unsigned n)
{
    return n <= SY_QUEUE_ENTRIES - bound->n;
}

int sy_queue_bound_add(struct sy_queue_bound *bound)
{
    assert(bound->n < SY_QUEUE_ENTRIES);
    bound->n++;
    bound->since_mark++;
    if (bound->since_mark < SY_QUEUE_MARK_AT || bound->n_marks == SY_QUEUE_MARKS)
        return -1;
    unsigned mark = (bound->oldest + bound->n_marks++) % SY_QUEUE_MARKS;
    bound->sizes[mark] = bound->since_mark;
    bound->since_mark = 0;
    return (int)mark;
}

void sy_queue_bound_unmark(struct sy_queue_bound *bound)
{
    assert(bound->n_marks > 0 && bound->since_mark == 0);
    bound->n_marks--;
    bound->since_mark = bound->sizes[(bound->oldest + bound->n_marks) % SY_QUEUE_MARKS];
}

int sy_queue_bound_oldest(const struct sy_queue_bound *bound)
{
    return bound->n_marks > 0 ? (int)bound->oldest : -1;
}

void sy_queue_bound_pass(struct sy_queue_bound *bound)
{
    assert(bound->n_marks > 0);
    bound->n -= bound->sizes[bound->oldest];
    bound->oldest = (bound->oldest + 1) % SY_QUEUE_MARKS;
    bound->n_marks--;
}

void sy_queue_bound_clear(struct sy_queue_bound *bound)
{
    *bound = (struct sy_queue_bound){.oldest = bound->oldest};
}
