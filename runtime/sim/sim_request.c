/* Admission queries for a request. */
#include "runtime/base/assert.h"
#include "runtime/sim/sim_internal.h"

sy_ns sy_sim_deadline_ns(const struct sim *s, sy_ns came_ns, sy_ns within_ns)
{
    return within_ns > 0 && !s->config->take_all ? came_ns + within_ns : 0;
}

static struct sy_admission_request ask_with(const struct sim *s, int device, uint64_t request,
                                            uint64_t missing)
{
    const struct sy_sim_request *r = &s->in->requests[request];
    struct sy_admission_request ask = {.id = request, .class_ = r->class_};
    ask.deadline_ns = sy_sim_deadline_ns(s, r->at_ns, r->deadline_ns);
    ask.duration = sy_predictor_correct(s->predictor, r->model,
                                        sy_sim_profiled_swap_ns(s, device, r->model, missing),
                                        sy_sim_model_on(s, device, r->model)->compute_ns);
    return ask;
}

const struct sy_admission_request *sy_sim_ask_for(const struct sim *s, int device, uint64_t request,
                                                  struct sy_sim_asked *asked)
{
    uint64_t missing = sy_sim_missing_bytes(s, device, s->in->requests[request].model);
    const struct kind *kind = sy_sim_kind_of(s, device);
    if (kind != asked->kind || missing != asked->missing)
        *asked = (struct sy_sim_asked){ask_with(s, device, request, missing), missing, kind};
    return &asked->is;
}
