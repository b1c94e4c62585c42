#include "workers/cuda/program/node_help.h"

#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_body.h"

#define ROOM \
    (64 << 20) /* beside twice the weights: what is multiplied with them, results, scratch */

/* The step that runs. One instance: one thread runs programs. */
static struct {
    struct sy_program *program; /* NULL: none */
    unsigned char *place;
    uint64_t bytes;
} now;

struct helped {
    struct sy_cuda_body body;
    const struct sy_math_ops *ops;
    struct sy_math *math;
    uint64_t bytes;
};

static void destroy(void *program)
{
    struct helped *h = program;
    if (!h)
        return;
    sy_cuda_body_finish(&(struct sy_program){.ops = h->ops, .math = h->math}, &h->body);
    free(h);
}

static int create(const struct sy_graph *graph, void *like, void **out)
{
    struct helped *before = like;
    if (!now.program)
        return SY_EUNSUPPORTED;
    struct helped *h = calloc(1, sizeof *h);
    SY_TRY_ALLOC(h, "no memory for a node");
    h->ops = now.program->ops;
    h->math = now.program->math;
    int status = sy_cuda_body_init_by_itself(now.program, graph, before ? &before->body : NULL,
                                             &h->bytes, &h->body);
    if (status == SY_OK && h->bytes > now.bytes)
        status = SY_EUNSUPPORTED;
    if (status < 0) {
        destroy(h);
        return status;
    }
    *out = h;
    return SY_OK;
}

static int compute(struct helped *h)
{
    SY_TRY(sy_cuda_body_bring(now.program, &h->body, now.place));
    SY_TRY(sy_cuda_body_run(&h->body, now.place));
    SY_TRY(h->ops->synchronize(h->math));
    return sy_cuda_body_check_bounds(&h->body);
}

static int run(void *program, const void *const *inputs, void *const *outputs)
{
    struct helped *h = program;
    if (!now.program || h->bytes > now.bytes)
        return sy_error_set(SY_EBUG, "a node of %llu bytes in a place of %llu",
                            (unsigned long long)h->bytes, (unsigned long long)now.bytes);
    for (int i = 0; i < h->body.graph->n_inputs; i++)
        h->body.inputs[i] = inputs[i];
    for (int i = 0; i < h->body.graph->n_outputs; i++)
        h->body.outputs[i] = outputs[i];
    int status = compute(h);
    if (status < 0) /* the values that it reads and writes go with the run */
        SY_CLEANUP(h->ops->synchronize(h->math));
    return status;
}

const struct sy_node_helper sy_cuda_node_helper = {create, run, destroy};

static bool multiplies(const struct sy_graph *graph)
{
    bool any = false;
    for (int n = 0; n < graph->n_nodes && !any; n++) {
        const struct sy_node *node = &graph->nodes[n];
        any = node->op == SY_OP_CONV || node->op == SY_OP_CONV_TRANSPOSE ||
              node->op == SY_OP_GEMM || node->op == SY_OP_MATMUL;
        for (int i = 0; i < node->n_attrs && !any; i++)
            any = node->attrs[i].kind == SY_ATTR_GRAPH && multiplies(node->attrs[i].graph);
    }
    return any;
}

int sy_cuda_node_help_place(struct sy_program *p, int *value, uint64_t *bytes)
{
    const struct sy_attr *body = sy_node_attr(sy_cuda_node(p), "body");
    *value = -1;
    *bytes = 0;
    if (sy_cuda_node(p)->op != SY_OP_DYNAMIC || !body || !multiplies(body->graph))
        return SY_OK;
    *bytes = 2 * p->layers[p->layer].bytes + ROOM;
    int64_t all = (int64_t)*bytes + SY_CUDA_PLACE_ALIGN;
    return sy_cuda_new_value(p, SY_DTYPE_U8, 1, &all, false, value);
}

void sy_cuda_node_help_begin(struct sy_program *p, int value, uint64_t bytes)
{
    if (value < 0)
        return;
    uintptr_t at = (uintptr_t)sy_cuda_pointer(p, value);
    now.program = p;
    now.place = (unsigned char *)SY_ALIGN_UP(at, (uintptr_t)SY_CUDA_PLACE_ALIGN);
    now.bytes = bytes;
}

void sy_cuda_node_help_end(void)
{
    now.program = NULL;
}
