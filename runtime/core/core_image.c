#include "runtime/core/core_image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/keeper/image_book.h"

int sy_core_image_take(struct sy_core *core, int fd, uint64_t bytes, struct sy_image_book *book)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return sy_error_set(SY_EIO, "no descriptor for the kept image: %s", strerror(errno));
    int status = sy_shared_memory_map(&core->image, own, bytes, true);
    if (status < 0) {
        close(own);
        return status;
    }
    core->image_book = book;
    return SY_OK;
}

static struct sy_image_group group_of(const struct sy_core_model *m, int group)
{
    return (struct sy_image_group){.content_hash = m->package->content_hash,
                                   .bytes = m->group_bytes[group],
                                   .first_layer = (uint32_t)m->groups[group].first_layer,
                                   .n_layers = (uint32_t)m->groups[group].n_layers};
}

void sy_core_image_prefer(struct sy_core *core, int model)
{
    const struct sy_core_model *m = &core->models[model];
    int n_found = 0;
    if (!core->image_book)
        return;
    for (int g = 0; g < m->n_groups; g++) {
        struct sy_image_group group = group_of(m, g);
        uint64_t offset;
        if (group.bytes == 0 || !sy_image_book_find(core->image_book, &group, &offset))
            continue;
        n_found++;
        sy_sched_prefer_image_place(core->sched, model, g, offset);
    }
    if (n_found > 0)
        sy_log_info("core", "event=image_has model=%s groups=%d of=%d", m->name, n_found,
                    m->n_groups);
}

void sy_core_image_before_read(struct sy_core *core, struct sy_storage_job *job)
{
    const struct sy_core_model *m = &core->models[job->model];
    if (!core->image_book)
        return;
    for (int i = 0; i < job->n_groups; i++) {
        struct sy_storage_group *to = &job->groups[i];
        struct sy_image_group group = group_of(m, to->group);
        group.offset = to->pool_offset;
        to->is_kept = sy_image_book_has(core->image_book, &group);
        if (!to->is_kept)
            sy_image_book_drop(core->image_book, group.offset, group.bytes);
    }
}

/* A read that ended early may have left groups as they were: their records stay, and their places are preferred again. */
void sy_core_image_after_read(struct sy_core *core, const struct sy_storage_job *job)
{
    const struct sy_core_model *m = &core->models[job->model];
    core->image_kept_bytes += job->kept_bytes;
    if (!core->image_book)
        return;
    for (int i = 0; i < job->n_groups; i++) {
        const struct sy_storage_group *to = &job->groups[i];
        struct sy_image_group group = group_of(m, to->group);
        group.offset = to->pool_offset;
        if (atomic_load_explicit(to->arrival, memory_order_acquire) == SY_ARRIVAL_HERE)
            sy_image_book_note(core->image_book, &group);
        else if (to->is_kept && i >= job->n_verified)
            sy_sched_prefer_image_place(core->sched, job->model, to->group, group.offset);
        else
            sy_image_book_drop(core->image_book, group.offset, group.bytes);
    }
}

/* ---- models that were unloaded ------------------------------------------------------------------------------------ */

static bool is_of_model(void *ctx, const struct sy_image_group *group)
{
    const struct sy_core *core = ctx;
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        if (core->models[i].used && core->models[i].package &&
            core->models[i].package->content_hash == group->content_hash)
            return true;
    return false;
}

/* Called when no allocator has its place any more: a record outlives its model's place only if nothing was placed there since. Memory that a GPU has pinned is
 * not returned to the system: the GPU would keep reading the old pages while the next model is written to new ones. */
static void give_back(void *ctx, uint64_t offset, uint64_t bytes)
{
    const struct sy_core *core = ctx;
    if (!sy_device_get_properties(core->device)->emulated)
        return;
    if (fallocate(core->image.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                  (off_t)bytes) != 0)
        sy_log_warn("core", "event=image_not_given_back bytes=%llu why=\"%s\"",
                    (unsigned long long)bytes, strerror(errno));
}

void sy_core_image_drop_unused(struct sy_core *core)
{
    int n =
        core->image_book ? sy_image_book_filter(core->image_book, is_of_model, give_back, core) : 0;
    if (n > 0)
        sy_log_info("core", "event=image_sifted groups=%d why=\"no loaded model has them\"", n);
}
