/* A swap in one mode, after the victim ran. */
#include <stdlib.h>
#include <string.h>

#include "bench/swap_child.h"
#include "bench/swap_rig.h"
#include "bench/swap_rig_internal.h"
#include "runtime/base/status.h"

#define VICTIM_WARM_NS (60 * SY_NS_PER_MS) /* training time before each swap */

static bool outputs_equal(const struct swap_rig *r)
{
    for (int i = 0; i < r->package->usual->n_outputs; i++)
        if (memcmp(r->outputs[i], r->reference[i], r->output_bytes[i]) != 0)
            return false;
    return true;
}

static int run_restart(struct swap_rig *r, struct swap_result *out)
{
    struct swap_child_times times;
    sy_ns start = sy_clock_now();
    swap_victim_kill(&r->victim);
    out->preempt_wait_ns = sy_clock_now() - start;
    SY_TRY(swap_child_restart(r->program_path, r->package->path, r->device_text, r->batch,
                              &r->allowed, &times));
    out->total_ns = times.end_ns - start;
    out->first_layer_ns = times.first_layer_ns - start;
    out->bytes = r->package->weights_bytes;
    out->n_groups = 1;
    out->same_bits = true; /* the child has its own memory; its outputs are not compared */
    return swap_victim_spawn(&r->victim);
}

int swap_rig_run(struct swap_rig *r, enum swap_mode mode, struct swap_result *out)
{
    struct swap_cut *cut = calloc(1, sizeof *cut);
    SY_TRY_ALLOC(cut, "no memory for the groups");
    *out = (struct swap_result){0};
    int status = swap_rig_make_cut(r, mode, cut);
    out->n_groups = cut->n_groups;
    if (sy_device_get_properties(r->device)->unified && !swap_rig_has_all(mode))
        swap_rig_forget_file(r);
    if (mode == SWAP_ONE_PROCESS) {
        r->engine->program_destroy(r->program);
        r->program = NULL;
    }
    if (status == SY_OK && mode == SWAP_READY)
        status = swap_victim_hold(&r->victim);
    else
        swap_victim_train(&r->victim, VICTIM_WARM_NS);
    if (status == SY_OK && mode == SWAP_RESTART)
        status = run_restart(r, out);
    else if (status == SY_OK && swap_rig_is_special(mode))
        status = swap_rig_run_special(r, mode, cut, out);
    else if (status == SY_OK)
        status = swap_rig_swap_in(r, mode, cut, r->pool, r->transfer, out);
    if (mode != SWAP_RESTART)
        out->same_bits = status == SY_OK && outputs_equal(r);
    free(cut);
    return status;
}
