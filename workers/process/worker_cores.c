/* The cores and threads that a worker computes on: its slice of the device. */
#include <string.h>

#include "runtime/base/log.h"
#include "workers/process/worker_internal.h"

static bool is_same_place(const struct sy_worker_cores *a, const struct sy_worker_cores *b)
{
    return a->n == b->n && memcmp(a->list, b->list, (size_t)a->n * sizeof *a->list) == 0;
}

/* Fewer cores than threads: they take turns there. */
static int set_threads(struct sy_worker *w, const struct sy_worker_cores *wanted)
{
    int cores[SY_WORKER_MAX_CORES];
    for (int i = 0; i < wanted->team; i++)
        cores[i] = wanted->list[i % wanted->n];
    return w->engine->set_threads(cores, wanted->team);
}

/* A device with compute units of its own is cut into parts by the engine; its host threads keep their cores. */
static bool is_of_parts(const struct sy_worker *w)
{
    return w->engine->confine != NULL;
}

int sy_worker_restore_cores(struct sy_worker *w, const struct sy_worker_cores *wanted)
{
    bool stays = is_same_place(wanted, &w->cores);
    if (stays && wanted->team == w->cores.team)
        return SY_OK;
    if (!is_of_parts(w))
        SY_TRY(set_threads(w, wanted));
    else if (!stays) /* a move costs the graphs that were captured */
        SY_TRY(w->engine->confine(wanted->list, wanted->n));
    if (w->models)
        sy_worker_models_set_team(w->models, wanted->team);
    w->cores = *wanted;
    return SY_OK;
}

static int read_list(const struct sy_u64s *from, struct sy_worker_cores *out)
{
    if (from->n < 1 || from->n > SY_WORKER_MAX_CORES)
        return sy_error_set(SY_EPROTO, "a list of %zu cores: 1 to %d", from->n,
                            SY_WORKER_MAX_CORES);
    out->n = (int)from->n;
    for (int i = 0; i < out->n; i++) {
        if (from->v[i] >= 64 * SY_PAGE_CORE_WORDS)
            return sy_error_set(SY_EPROTO, "core %llu: 0 to %u", (unsigned long long)from->v[i],
                                64 * SY_PAGE_CORE_WORDS - 1);
        out->list[i] = (int)from->v[i];
    }
    return SY_OK;
}

int sy_worker_set_home(struct sy_worker *w, const struct sy_u64s *cores)
{
    SY_TRY(read_list(cores, &w->home));
    w->home.team = w->home.n;
    SY_TRY(set_threads(w, &w->home));
    w->cores = w->home;
    if (is_of_parts(w))
        w->cores.n = 0; /* the whole device */
    return SY_OK;
}

int sy_worker_set_cores(struct sy_worker *w, uint64_t team, const struct sy_u64s *cores)
{
    struct sy_worker_cores wanted = w->home;
    if (is_of_parts(w))
        wanted.n = 0;
    if (team > SY_WORKER_MAX_CORES)
        return sy_error_set(SY_EPROTO, "a team of %llu threads: at most %d",
                            (unsigned long long)team, SY_WORKER_MAX_CORES);
    if (cores->n > 0)
        SY_TRY(read_list(cores, &wanted));
    wanted.team = team > 0 ? (int)team : w->home.team;
    return sy_worker_restore_cores(w, &wanted);
}

/* Another resize in the middle of reading has another version behind it, which is seen before the next layer. */
void sy_worker_follow_page(struct sy_worker *w)
{
    uint32_t version = atomic_load_explicit(&w->page->cores_version, memory_order_acquire);
    struct sy_worker_cores wanted = {.team = w->cores.team};
    if (version == w->cores_version || is_of_parts(w)) /* there from the next run on */
        return;
    w->cores_version = version;
    if (atomic_load_explicit(&w->page->confined_run, memory_order_relaxed) != w->run)
        return;
    for (int i = 0; i < 64 * (int)SY_PAGE_CORE_WORDS; i++)
        if (atomic_load_explicit(&w->page->cores[i / 64], memory_order_relaxed) >> (i % 64) & 1)
            wanted.list[wanted.n++] = i;
    if (wanted.n > 0 && sy_worker_restore_cores(w, &wanted) < 0)
        sy_log_error("worker", "event=not_moved run=%llu why=\"%s\"", (unsigned long long)w->run,
                     sy_error_text());
}
