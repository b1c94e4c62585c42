/* The pool's offset allocator and the placement of a whole model: what the runtime spends during a swap. Each benchmark checks its result; the counters state
 * the size of the case. */
#include <stdio.h>
#include <stdlib.h>

#include "allocator/pool.h"
#include "allocator/residency.h"
#include "bench/gbench.h"
#include "runtime/base/status.h"

#define MB       (1ull << 20)
#define N_GROUPS 50

/* The k-th number of a fixed pseudo-random sequence. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Half of the slots are allocated at any time; one iteration frees or allocates one. */
static void bench_take_give(struct gb_state *state, void *arg)
{
    size_t n_slots = *(const size_t *)arg;
    uint64_t *offsets = calloc(n_slots, sizeof *offsets), random = 88172645463325252ull;
    struct sy_pool *pool = NULL;
    if (!offsets || sy_pool_new(n_slots * 16 * SY_POOL_ALIGN, &pool) < 0) {
        gb_fail(state, "no memory");
        free(offsets);
        return;
    }
    while (gb_keep_running(state)) {
        uint64_t *slot = &offsets[next_random(&random) % n_slots];
        if (*slot) {
            sy_pool_give(pool, *slot - 1);
            *slot = 0;
        } else if (sy_pool_take(pool, (1 + next_random(&random) % 16) * SY_POOL_ALIGN, false,
                                slot) == SY_OK) {
            ++*slot;
        }
    }
    gb_set_counter(state, "blocks", sy_pool_n_blocks(pool));
    if (!sy_pool_is_valid(pool))
        gb_fail(state, "the pool is not valid");
    sy_pool_free(pool);
    free(offsets);
}

struct placement {
    uint64_t pool_bytes;
    int n_models;
};

static void place_in_turn(struct gb_state *state, struct sy_residency *residency, int n_models)
{
    struct sy_group_place places[N_GROUPS];
    int model = 0;
    while (gb_keep_running(state)) {
        if (sy_residency_place(residency, model, true, places) < 0) {
            gb_fail(state, sy_error_text());
            return;
        }
        sy_residency_unpin(residency, model, NULL);
        model = (model + 1) % n_models;
    }
}

/* Runs models of 50 groups, 240 MB each, in turn: each placement evicts, or cycles where the model is too large. */
static void bench_place(struct gb_state *state, void *arg)
{
    const struct placement *p = arg;
    uint64_t bytes[N_GROUPS], random = 88172645463325252ull;
    struct sy_pool *pool = NULL;
    struct sy_residency *residency = NULL;
    for (int i = 0; i < N_GROUPS; i++)
        bytes[i] = (2 + next_random(&random) % 7) * MB;
    if (sy_pool_new(p->pool_bytes, &pool) < 0 || sy_residency_new(pool, &residency) < 0) {
        gb_fail(state, sy_error_text());
        sy_pool_free(pool);
        return;
    }
    for (int m = 0; m < p->n_models; m++)
        if (sy_residency_add_model(residency, m, N_GROUPS, bytes) < 0)
            gb_fail(state, sy_error_text());
    place_in_turn(state, residency, p->n_models);
    gb_set_counter(state, "groups", N_GROUPS);
    gb_set_counter(state, "evicted", (double)sy_residency_n_evicted(residency));
    if (!sy_residency_is_valid(residency))
        gb_fail(state, "the residency is not valid");
    sy_residency_free(residency);
    sy_pool_free(pool);
}

int main(int argc, char **argv)
{
    static size_t small = 100, large = 30000;
    static struct placement resident = {1000 * MB, 1}, evicting = {400 * MB, 3},
                            cycling = {100 * MB, 1};
    const struct gb_options options = {0};
    gb_initialize(&argc, argv);
    gb_register("pool/take_give/slots:100", bench_take_give, &small, &options);
    gb_register("pool/take_give/slots:30000", bench_take_give, &large, &options);
    gb_register("pool/place/resident", bench_place, &resident, &options);
    gb_register("pool/place/evicting", bench_place, &evicting, &options);
    gb_register("pool/place/cycling", bench_place, &cycling, &options);
    if (gb_run() == 0) {
        fprintf(stderr, "pool: no bench of that name\n");
        return 1;
    }
    return 0;
}
