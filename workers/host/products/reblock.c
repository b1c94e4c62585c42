#include "workers/host/products/reblock.h"

#include <string.h>

#if DNNL_VERSION_MAJOR < 3

enum { LEAST_RUN = 8, PARALLEL_FROM = 1 << 16 };

/* One block, of one dimension, at the offset 0. */
static bool read_side(const dnnl_memory_desc_t *md, int64_t *blocked, struct sy_reblock_side *side)
{
    const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
    if (md->format_kind != dnnl_blocked || md->data_type != dnnl_f32 || md->offset0 != 0 ||
        md->extra.flags != 0 || b->inner_nblks != 1)
        return false;
    *blocked = b->inner_idxs[0];
    side->block = b->inner_blks[0];
    side->padded = md->padded_dims[*blocked];
    memcpy(side->strides, b->strides, (size_t)md->ndims * sizeof side->strides[0]);
    for (int d = 0; d < md->ndims; d++)
        if (md->padded_offsets[d] != 0 || (d != *blocked && md->padded_dims[d] != md->dims[d]))
            return false;
    return true;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool sy_reblock_read(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                     struct sy_reblock *out)
{
    int64_t other;
    *out = (struct sy_reblock){.rank = from->ndims};
    if (from->ndims != to->ndims || from->ndims < 2 ||
        memcmp(from->dims, to->dims, (size_t)from->ndims * sizeof from->dims[0]) != 0 ||
        !read_side(from, &out->blocked, &out->from) || !read_side(to, &other, &out->to) ||
        other != out->blocked)
        return false;
    memcpy(out->dims, from->dims, (size_t)from->ndims * sizeof out->dims[0]);
    out->run = common_divisor(out->from.block, out->to.block);
    return out->run >= LEAST_RUN;
}

static int64_t offset_of(const struct sy_reblock_side *side, int64_t blocked, int64_t at)
{
    return at / side->block * side->strides[blocked] + at % side->block;
}

/* The runs of one place of the blocked dimension, from dimension d on. */
static void move_runs(const struct sy_reblock *r, int64_t d, const float *from, float *to)
{
    if (d == r->rank) {
        if (from)
            memcpy(to, from, (size_t)r->run * sizeof *to);
        else
            memset(to, 0, (size_t)r->run * sizeof *to);
        return;
    }
    int64_t n = d == r->blocked ? 1 : r->dims[d];
    for (int64_t i = 0; i < n; i++)
        move_runs(r, d + 1, from ? from + i * r->from.strides[d] : NULL, to + i * r->to.strides[d]);
}

void sy_reblock_run(const struct sy_reblock *r, const float *from, float *to)
{
    int64_t places = r->to.padded / r->run, elements = r->to.padded;
    for (int d = 0; d < r->rank; d++)
        elements *= d == r->blocked ? 1 : r->dims[d];
#pragma omp parallel for schedule(static) if (elements > PARALLEL_FROM)
    for (int64_t place = 0; place < places; place++) {
        int64_t at = place * r->run;
        bool there = at < r->from.padded;
        move_runs(r, 0, there ? from + offset_of(&r->from, r->blocked, at) : NULL,
                  to + offset_of(&r->to, r->blocked, at));
    }
}

#else

bool sy_reblock_read(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                     struct sy_reblock *out)
{
    (void)from;
    (void)to;
    *out = (struct sy_reblock){0};
    return false;
}

void sy_reblock_run(const struct sy_reblock *r, const float *from, float *to)
{
    (void)r;
    (void)from;
    (void)to;
}

#endif
