/* Ends of requests, kept until all have ended: devices simulated one after the other report them out of the order of time. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"

struct sy_sim_answers {
    uint64_t n, max;
    struct sy_sim_answer kept[];
};

void sy_sim_tell(const struct sim *s, const struct sy_sim_answer *answer)
{
    const struct sy_sim_request *r = &s->in->requests[answer->request];
    sy_ns outside = answer->outcome == SY_SIM_DONE ? sy_sim_outside_ns(s, answer->request) : 0;
    if (s->config->answered)
        s->config->answered(s->config->answered_ctx, r, answer->device, answer->outcome,
                            answer->at_ns - r->at_ns + outside, answer->served_ns);
}

int sy_sim_answers_create(uint64_t n_requests, struct sy_sim_answers **out)
{
    struct sy_sim_answers *answers =
        malloc(sizeof *answers + (size_t)n_requests * sizeof answers->kept[0]);
    *out = answers;
    if (!answers)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to keep how %llu requests end",
                            (unsigned long long)n_requests);
    answers->n = 0;
    answers->max = n_requests;
    return SY_OK;
}

void sy_sim_answers_destroy(struct sy_sim_answers *answers)
{
    free(answers);
}

void sy_sim_answers_keep(struct sy_sim_answers *answers, const struct sy_sim_answer *answer)
{
    assert(answers->n < answers->max);
    answers->kept[answers->n++] = *answer;
}

/* At equal times faults come first, then arrivals, then devices. */
static int rank(enum sy_sim_outcome outcome)
{
    return outcome == SY_SIM_FAILED ? 0 : outcome == SY_SIM_REFUSED ? 1 : 2;
}

static int compare(const void *a, const void *b)
{
    const struct sy_sim_answer *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    if (rank(x->outcome) != rank(y->outcome))
        return rank(x->outcome) - rank(y->outcome);
    if (x->outcome == SY_SIM_DONE && x->device != y->device)
        return x->device - y->device;
    return (x->request > y->request) - (x->request < y->request);
}

void sy_sim_answers_tell(struct sim *s)
{
    struct sy_sim_answers *answers = s->answers;
    qsort(answers->kept, (size_t)answers->n, sizeof answers->kept[0], compare);
    for (uint64_t i = 0; i < answers->n; i++)
        sy_sim_tell(s, &answers->kept[i]);
}
