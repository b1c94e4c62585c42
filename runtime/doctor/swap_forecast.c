#include "runtime/doctor/swap_forecast.h"

#include <math.h>
#include <stdlib.h>

#include "loader/plan/free_prefix.h"
#include "loader/storage/direct_read.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

#define AMPLE_POOL       UINT64_MAX /* as a server cuts a model whose pool holds many such */
#define STORAGE_ALPHA_NS 5000.0     /* as runtime/core/core.c: one read of a deep queue */
#define STORAGE_SIGMA_NS 5000.0     /* and one wake-up of the thread that waits */

const char *sy_swap_bound_name(enum sy_swap_bound bound)
{
    static const char *const names[] = {"unknown", "storage", "link", "compute"};
    return names[bound];
}

static double transfer_ms(double bytes, double gbps)
{
    return bytes == 0 ? 0 : bytes / gbps / 1e6; /* NAN stays NAN */
}

/* The largest term that is known; on equality the earlier stage. */
static enum sy_swap_bound largest(double storage, double link, double compute)
{
    enum sy_swap_bound bound = storage > 0 ? SY_BOUND_STORAGE : SY_BOUND_UNKNOWN;
    double most = storage > 0 ? storage : 0;
    if (link > most) {
        bound = SY_BOUND_LINK;
        most = link;
    }
    return compute > most ? SY_BOUND_COMPUTE : bound;
}

/* The link that groups are planned for, and the one that they cross. */
static struct sy_link_cost warm_link(const struct sy_doctor_facts *f)
{
    if (f->device_unified == 1)
        return (struct sy_link_cost){STORAGE_ALPHA_NS, f->storage_gbps, STORAGE_SIGMA_NS, 0};
    return (struct sy_link_cost){f->link_alpha_us * 1e3, f->link_gbps, f->link_sigma_us * 1e3,
                                 f->link_lost_ns_per_byte};
}

/* The slower of storage and link, one behind the other, sets the pace. */
static struct sy_link_cost cold_link(const struct sy_doctor_facts *f)
{
    struct sy_link_cost link = warm_link(f);
    link.bytes_per_ns = isnan(f->storage_gbps) ? NAN : fmin(link.bytes_per_ns, f->storage_gbps);
    return link;
}

static bool is_usable(const struct sy_link_cost *link)
{
    return link->bytes_per_ns > 0 && link->alpha_ns >= 0 && link->sigma_ns >= 0 &&
           link->lost_ns_per_byte >= 0;
}

static void set_terms(const struct sy_doctor_facts *f, double bytes, double compute_ms,
                      struct sy_swap_forecast *out)
{
    bool unified = f->device_unified == 1;
    *out = (struct sy_swap_forecast){.storage_ms = transfer_ms(bytes, f->storage_gbps),
                                     .link_ms = unified ? 0 : transfer_ms(bytes, f->link_gbps),
                                     .compute_ms = compute_ms,
                                     .cold_ms = NAN,
                                     .warm_ms = NAN};
    out->cold_bound = largest(out->storage_ms, out->link_ms, compute_ms);
    out->warm_bound = largest(0, out->link_ms, compute_ms);
}

void sy_swap_forecast_bytes(const struct sy_doctor_facts *facts, uint64_t bytes,
                            struct sy_swap_forecast *out)
{
    set_terms(facts, (double)bytes, 0, out);
    out->cold_ms =
        isnan(out->storage_ms) || isnan(out->link_ms) ? NAN : fmax(out->storage_ms, out->link_ms);
    out->warm_ms = out->link_ms;
}

static int predict(const struct sy_doctor_facts *facts, const struct sy_plan_layer *layers,
                   const struct sy_direct_plan *plan, struct sy_swap_forecast *out)
{
    struct sy_link_cost cold = cold_link(facts), warm = warm_link(facts);
    struct sy_run_group *groups = calloc((size_t)plan->n_groups + 1, sizeof *groups);
    SY_TRY_ALLOC(groups, "no memory for %d groups", plan->n_groups);
    sy_run_groups(layers, NULL, plan->groups, plan->n_groups, groups);
    if (is_usable(&cold))
        out->cold_ms = (double)sy_swap_predict(groups, plan->n_groups, &cold, 0) / 1e6;
    out->warm_ms = facts->device_unified == 1
                       ? out->compute_ms
                       : (double)sy_swap_predict(groups, plan->n_groups, &warm, 0) / 1e6;
    free(groups);
    return SY_OK;
}

/* Groups are cut for the link of a warm swap; a cold one comes in the same groups. */
static int cut_and_predict(const struct sy_doctor_facts *facts, const struct sy_plan_layer *layers,
                           int n_layers, struct sy_swap_forecast *out)
{
    struct sy_link_cost link = warm_link(facts);
    struct sy_direct_plan plan = {0};
    if (!is_usable(&link))
        return SY_OK;
    uint64_t *reads = calloc((size_t)n_layers, sizeof *reads); /* none is read directly */
    int status = reads ? sy_direct_plan_for_pool(layers, reads, n_layers, &link, AMPLE_POOL, &plan)
                       : sy_error_set(SY_ENOMEM_HOST, "no memory for %d layers", n_layers);
    if (status == SY_OK)
        status = predict(facts, layers, &plan, out);
    free(plan.groups);
    free(reads);
    return status;
}

int sy_swap_forecast_model(const struct sy_doctor_facts *facts, const struct sy_plan_layer *layers,
                           int n_layers, bool has_profile, struct sy_swap_forecast *out)
{
    double bytes = 0, compute_ms = 0;
    if (n_layers < 1)
        return sy_error_set(SY_EARG, "a model of %d layers", n_layers);
    for (int i = 0; i < n_layers; i++) {
        bytes += (double)layers[i].bytes;
        compute_ms += (double)layers[i].compute_ns / 1e6;
    }
    set_terms(facts, bytes, has_profile ? compute_ms : NAN, out);
    if (!has_profile)
        return SY_OK;
    if (facts->device_unified == 1)
        out->warm_ms = compute_ms;
    return cut_and_predict(facts, layers, n_layers, out);
}
