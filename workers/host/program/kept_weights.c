#include "workers/host/program/kept_weights.h"

#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* A layer's weights in one layout. */
struct kept {
    int refs;
    struct kept *next;
    const struct sy_layer *layer;
    uint64_t offset; /* in the layer's parameters */
    /* How the parameter is read: nodes that capture the same one may read it in other orders of its dimensions, and want one layout. */
    dnnl_memory_desc_t from, md;
    uint64_t bytes;
    bool is_made;
    void *data;
};

/* State of a step that moves weights, which only the first run has to execute. */
struct hold {
    struct kept *kept;
    sy_step_run move;
};

/* Programs are made and run by one thread at a time. */
static struct {
    struct kept *first;
    uint64_t bytes, most;
} all = {.most = SY_KEPT_MOST_BYTES};

uint64_t sy_kept_weights_bytes(void)
{
    return all.bytes;
}

void sy_kept_weights_limit(uint64_t bytes)
{
    all.most = bytes;
}

static void release(struct kept *k)
{
    struct kept **at = &all.first;
    if (--k->refs > 0)
        return;
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    all.bytes -= k->bytes;
    free(k->data);
    free(k);
}

static void release_hold(void *hold)
{
    release(((struct hold *)hold)->kept);
    free(hold);
}

static struct kept *find(struct sy_captured_param param, const dnnl_memory_desc_t *from,
                         const dnnl_memory_desc_t *md)
{
    struct kept *k = all.first;
    while (k && !(k->layer == param.layer && k->offset == param.offset &&
                  dnnl_memory_desc_equal(&k->from, from) && dnnl_memory_desc_equal(&k->md, md)))
        k = k->next;
    return k;
}

static struct kept *create(struct sy_captured_param param, const dnnl_memory_desc_t *from,
                           const dnnl_memory_desc_t *md)
{
    uint64_t bytes = dnnl_memory_desc_get_size(md);
    struct kept *k = calloc(1, sizeof *k);
    void *data = aligned_alloc(SY_PARAM_ALIGN, SY_ALIGN_UP(bytes, (uint64_t)SY_PARAM_ALIGN));
    if (!k || !data) {
        free(k);
        free(data);
        return NULL;
    }
    *k = (struct kept){.next = all.first,
                       .layer = param.layer,
                       .offset = param.offset,
                       .from = *from,
                       .md = *md,
                       .bytes = bytes,
                       .data = data};
    all.first = k;
    all.bytes += bytes;
    return k;
}

/* Where value `packed`, input `input` of the layer being built, comes from. */
static struct sy_captured_param param_of(const struct sy_program *p, int packed, int input)
{
    const struct sy_value *from = &p->values[packed];
    if (from->place == SY_IN_PARAMS)
        return (struct sy_captured_param){&p->layers[p->layer], from->offset};
    return p->values[from->root].place == SY_IN_INPUT ? sy_program_param_of(p, input)
                                                      : (struct sy_captured_param){NULL, 0};
}

/* NULL: not kept, or no memory. */
static struct kept *acquire(struct sy_captured_param param, const dnnl_memory_desc_t *from,
                            const dnnl_memory_desc_t *md, int64_t rows)
{
    uint64_t bytes = dnnl_memory_desc_get_size(md);
    if (!param.layer || rows > SY_KEPT_MOST_ROWS)
        return NULL;
    struct kept *k = find(param, from, md);
    if (!k && bytes <= all.most && all.bytes <= all.most - bytes)
        k = create(param, from, md);
    if (k)
        k->refs++;
    return k;
}

static int run_once(struct sy_program *p, struct sy_step *step)
{
    const struct hold *hold = step->state;
    if (!hold->kept->is_made)
        SY_TRY(hold->move(p, step));
    hold->kept->is_made = true;
    return SY_OK;
}

/* The step added last moves the weights: it holds them from now on. */
static int hold_by_step(struct sy_program *p, struct kept *kept)
{
    struct sy_step *step = &p->steps[p->n_steps - 1];
    struct hold *hold = malloc(sizeof *hold);
    if (!hold) {
        release(kept);
        return sy_error_set(SY_ENOMEM_HOST, "node %s: no memory for a step", step->name);
    }
    *hold = (struct hold){kept, step->run};
    step->state = hold;
    step->free_state = release_hold;
    step->run = run_once;
    return SY_OK;
}

int sy_program_weights_as(struct sy_program *p, int packed, int input, const dnnl_memory_desc_t *md,
                          int64_t rows, int *out)
{
    const dnnl_memory_desc_t want = *md;
    *out = packed;
    if (dnnl_memory_desc_equal(&want, &p->values[packed].md))
        return SY_OK;
    SY_TRY(sy_program_new_laid_out(p, sy_program_node(p)->inputs[input], &want, out));
    const dnnl_memory_desc_t from = p->values[packed].md;
    struct kept *kept = acquire(param_of(p, packed, input), &from, &want, rows);
    if (!kept)
        return sy_program_add_reorder(p, packed, *out);
    p->values[*out].place = SY_IN_CONSTANT;
    p->values[*out].constant = kept->data;
    int before = p->n_steps, status = sy_program_add_reorder(p, packed, *out);
    if (status < 0) {
        release(kept);
        return status;
    }
    assert(p->n_steps == before + 1);
    return hold_by_step(p, kept);
}
