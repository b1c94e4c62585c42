#include "workers/host/operators/conv_chain.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/operators/conv_chain_internal.h"
#include "workers/host/operators/op_blocked.h"
#include "workers/host/rows/curve_rows.h"

struct sy_chain_limits sy_chain_limits = {
    .least_bytes = 1 << 20, .macs_a_byte = 32, .macs = 1 << 29, .weights_bytes = 512 << 10};

/* ---- which layers -------------------------------------------------------------------------------------- */

static const struct sy_node *node_of(const struct sy_program *p, int layer)
{
    return &p->graph->nodes[p->layers[layer].node];
}

static const struct sy_param *weights_of(const struct sy_program *p, int layer)
{
    const struct sy_param *weights = sy_layer_param(&p->layers[layer], 1);
    return weights && weights->layout_bytes == sizeof(dnnl_memory_desc_t) ? weights : NULL;
}

/* Reads a layer of the chain: a two-dimensional convolution with packed weights. */
static bool read_stage(struct sy_program *p, int layer, struct sy_chain_stage *stage)
{
    const struct sy_node *node = node_of(p, layer);
    const struct sy_param *weights = weights_of(p, layer);
    int here = p->layer;
    if (node->op != SY_OP_CONV || !weights ||
        p->graph->tensors[node->inputs[0]].dtype != SY_DTYPE_F32 ||
        p->graph->tensors[node->inputs[0]].shape.rank != 4)
        return false;
    *stage = (struct sy_chain_stage){.node = node, .bias = -1};
    if (sy_conv_shape_read(p->graph, node, p->batch, &stage->shape) < 0)
        return false;
    for (int i = 0; i < 4; i++)
        if (stage->shape.src[i] < 1 || stage->shape.dst[i] < 1)
            return false;
    memcpy(&stage->weights_md, weights->layout, sizeof stage->weights_md);
    if (!sy_dnnl_has_bf16()) /* bf16 is the storage type only; products are float32 */
        stage->weights_md.data_type = dnnl_f32;
    struct sy_conv_shape *c = &stage->shape;
    c->data = dnnl_nhwc;
    c->type = c->dst_type = stage->weights_md.data_type;
    p->layer = layer;
    if (c->type == dnnl_bf16 && !(sy_program_wanted(p, 0) & SY_WANT_NARROW))
        c->dst_type = dnnl_f32;
    p->layer = here;
    stage->is_depthwise = sy_depthwise_read(node, c, &stage->depthwise);
    stage->is_curved_late =
        !stage->is_depthwise && c->dst_type == dnnl_f32 &&
        (sy_late_curve_is_gain(node, sy_conv_elements(c->dst, c->spatial), &stage->curve) ||
         (sy_activation_is_own(node, dnnl_f32) && sy_fused_curve_read(node, &stage->curve)));
    stage->height = c->src[2];
    stage->row_bytes = c->src[3] * c->src[1] * (c->type == dnnl_bf16 ? 2 : 4);
    return true;
}

static int64_t stage_macs(const struct sy_conv_shape *c)
{
    int64_t macs = c->dst[0] * c->dst[1] * c->dst[2] * c->dst[3];
    for (int i = c->groups > 1 ? 2 : 1; i < c->weights_rank; i++)
        macs *= c->weights[i];
    return macs;
}

/* Whether only `layer` + 1 reads the result of `layer`, as its source. */
static bool hands_on(const struct sy_program *p, int layer)
{
    const struct sy_node *a = node_of(p, layer), *b = node_of(p, layer + 1);
    int tensor = a->outputs[0];
    if (a->residual_input >= 0 || b->inputs[0] != tensor || p->last_use[tensor] != layer + 1 ||
        sy_graph_is_output(p->graph, tensor))
        return false;
    for (int i = 1; i < b->n_inputs; i++)
        if (b->inputs[i] == tensor)
            return false;
    return true;
}

/* Whether keeping the intermediate result in the cache pays off. Independent of the layers' threads: import compares a layer's time with one thread and with
 * all, so both must compute the same chains. */
static bool is_gain(const struct sy_program *p, const struct sy_chain_stage *a,
                    const struct sy_chain_stage *b)
{
    int64_t bytes = b->shape.src[0] * b->height * b->row_bytes;
    int64_t macs = stage_macs(&a->shape) + stage_macs(&b->shape);
    return bytes >= sy_chain_limits.least_bytes * p->team &&
           macs <= 2 * bytes * sy_chain_limits.macs_a_byte && a->shape.dst_type == b->shape.type;
}

static bool is_solo(const struct sy_program *p, int layer)
{
    return sy_layer_is_solo(&p->layers[layer], p->batch);
}

static void find_stages(struct sy_program *p, struct sy_chain *chain)
{
    int64_t macs = 0, weights = 0;
    int first = p->layer;
    for (int n = 0; n < SY_CHAIN_STAGES && first + n < p->n_layers; n++) {
        struct sy_chain_stage *stage = &chain->stages[n];
        if ((n > 0 && !hands_on(p, first + n - 1)) || !read_stage(p, first + n, stage) ||
            (n > 0 && !is_gain(p, stage - 1, stage)))
            return;
        macs += stage_macs(&stage->shape);
        weights += (int64_t)dnnl_memory_desc_get_size(&stage->weights_md);
        if (macs > sy_chain_limits.macs || weights > sy_chain_limits.weights_bytes)
            return;
        chain->n_stages = n + 1;
    }
}

/* ---- pieces -------------------------------------------------------------------------------------------- */

static void free_pieces(struct sy_chain *chain)
{
    for (int s = 0; s < chain->n_stages; s++)
        for (int i = 0; i < chain->stages[s].n_pieces; i++) {
            struct sy_chain_piece *piece = &chain->stages[s].pieces[i];
            for (int k = 0; piece->memory && k < SY_CHAIN_ARGS * chain->n_threads; k++)
                if (piece->memory[k])
                    dnnl_memory_destroy(piece->memory[k]);
            free(piece->memory);
            if (piece->primitive)
                dnnl_primitive_destroy(piece->primitive);
            if (piece->pd)
                dnnl_primitive_desc_destroy(piece->pd);
            *piece = (struct sy_chain_piece){0};
        }
}

static void free_chain(void *state)
{
    struct sy_chain *chain = state;
    free_pieces(chain);
    for (int t = 0; chain->streams && t < chain->n_threads; t++)
        if (chain->streams[t])
            dnnl_stream_destroy(chain->streams[t]);
    free(chain->streams);
    free(chain->ops);
    free(chain->band_ops);
    free(chain);
}

static int make_piece_pd(const struct sy_chain_stage *stage, const struct sy_chain_piece *piece,
                         const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *out)
{
    struct sy_conv_shape c = stage->shape;
    struct sy_node node = *stage->node;
    if (stage->is_curved_late)
        node.activation = SY_ACT_NONE;
    c.src[0] = c.dst[0] = 1;
    c.src[2] = piece->rows_in;
    c.dst[2] = piece->rows_out;
    c.pad_left[0] = piece->pad_top;
    c.pad_right[0] = piece->pad_bottom;
    SY_TRY(sy_conv_make_pd(&node, &c, weights, out));
    if (!sy_conv_is_reference(*out))
        return SY_OK;
    dnnl_primitive_desc_destroy(*out);
    *out = NULL;
    return sy_unsupported(stage->node, "fast code for these rows");
}

static int make_stage_pds(struct sy_chain_stage *stage, const dnnl_memory_desc_t *weights)
{
    for (int i = 0; i < stage->n_pieces; i++) {
        struct sy_chain_piece *piece = &stage->pieces[i];
        if (piece->pd)
            dnnl_primitive_desc_destroy(piece->pd);
        piece->pd = NULL;
        SY_TRY(make_piece_pd(stage, piece, weights, &piece->pd));
    }
    stage->weights_md = *weights;
    return SY_OK;
}

/* Uses the packed layout of the weights, or the layout that the first piece of most rows prefers: then each run reorders them. */
static int choose_stage_pds(struct sy_chain_stage *stage)
{
    if (stage->is_depthwise)
        return sy_depthwise_weights_md(stage->node, &stage->shape, &stage->weights_md);
    dnnl_memory_desc_t packed = stage->weights_md;
    int status = make_stage_pds(stage, &packed), most = 0;
    if (status != SY_EUNSUPPORTED)
        return status;
    for (int i = 1; i < stage->n_pieces; i++)
        if (stage->pieces[i].rows_out > stage->pieces[most].rows_out)
            most = i;
    dnnl_primitive_desc_t pd;
    SY_TRY(make_piece_pd(stage, &stage->pieces[most], NULL, &pd));
    dnnl_memory_desc_t liked = *sy_dnnl_md(pd, dnnl_query_weights_md);
    dnnl_primitive_desc_destroy(pd);
    return make_stage_pds(stage, &liked);
}

static int64_t buffer_limit(void)
{
    long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (sy_chain_limits.buffer_bytes)
        return sy_chain_limits.buffer_bytes;
    return cache > 0 ? cache / 2 : 512 << 10;
}

static int64_t even(int64_t rows, int64_t of)
{
    int64_t turns = (of + rows - 1) / rows;
    return (of + turns - 1) / turns;
}

/* The largest number of rows whose buffers fit; more, if oneDNN has fast code for more only. EUNSUPPORTED: none. */
static int choose_rows(struct sy_chain *chain)
{
    int64_t whole = (chain->height + chain->bands - 1) / chain->bands, rows = whole;
    for (;; rows = even(rows / 2, whole)) {
        SY_TRY(sy_chain_plan(chain, rows));
        int64_t bytes = (int64_t)sy_chain_buffer_bytes(chain), limit = buffer_limit();
        if (rows == 1 && bytes > limit && bytes > sy_chain_limits.least_bytes)
            return SY_EUNSUPPORTED; /* the rows are too long for the cache */
        if (rows == 1 || bytes <= limit)
            break;
    }
    for (int tries = 0;; tries++) {
        int status = SY_OK;
        for (int s = 0; s < chain->n_stages && status == SY_OK; s++)
            status = choose_stage_pds(&chain->stages[s]);
        if (status != SY_EUNSUPPORTED || rows == whole || tries == 1)
            return status;
        free_pieces(chain);
        rows = even(SY_MIN(2 * rows, whole), whole);
        SY_TRY(sy_chain_plan(chain, rows));
    }
}

static int make_piece(struct sy_chain *chain, struct sy_chain_stage *stage,
                      struct sy_chain_piece *piece)
{
    static const dnnl_query_t what[SY_CHAIN_ARGS] = {dnnl_query_src_md, dnnl_query_weights_md,
                                                     dnnl_query_dst_md, dnnl_query_scratchpad_md};
    const char *name = stage->node->name;
    piece->memory = calloc((size_t)chain->n_threads * SY_CHAIN_ARGS, sizeof(dnnl_memory_t));
    SY_TRY_ALLOC(piece->memory, "node %s: no memory for a piece", name);
    SY_DNNL(dnnl_primitive_create(&piece->primitive, piece->pd), name);
    for (int i = 0; i < SY_CHAIN_ARGS; i++) {
        dnnl_memory_desc_t md = {0};
        if (i < SY_CHAIN_ARGS - 1) {
            const dnnl_memory_desc_t *queried = sy_dnnl_md(piece->pd, what[i]);
            if (queried)
                md = *queried;
        } else if (stage->bias >= 0) {
            dnnl_memory_desc_init_by_tag(&md, 1, stage->shape.bias, dnnl_f32, dnnl_a);
        }
        uint64_t bytes = md.ndims ? dnnl_memory_desc_get_size(&md) : 0;
        if (what[i] == dnnl_query_scratchpad_md)
            chain->scratch_bytes = SY_MAX(chain->scratch_bytes, bytes);
        for (int t = 0; bytes && t < chain->n_threads; t++)
            SY_DNNL(dnnl_memory_create(&piece->memory[t * SY_CHAIN_ARGS + i], &md, sy_dnnl_engine(),
                                       DNNL_MEMORY_NONE),
                    name);
    }
    return SY_OK;
}

static int make_pieces(struct sy_chain *chain)
{
    int status = SY_OK;
    chain->streams = calloc((size_t)chain->n_threads, sizeof *chain->streams);
    SY_TRY_ALLOC(chain->streams, "no memory for a chain");
    for (int t = 0; t < chain->n_threads; t++)
        SY_DNNL(dnnl_stream_create(&chain->streams[t], sy_dnnl_engine(), dnnl_stream_default_flags),
                chain->stages[0].node->name);
    omp_set_num_threads(1); /* oneDNN's cache key includes it */
    for (int s = 0; s < chain->n_stages; s++)
        for (int i = 0;
             i < chain->stages[s].n_pieces && !chain->stages[s].is_depthwise && status == SY_OK;
             i++)
            status = make_piece(chain, &chain->stages[s], &chain->stages[s].pieces[i]);
    omp_set_num_threads(chain->n_threads);
    return status;
}

/* ---- running --------------------------------------------------------------------------------------------- */

/* A thread's state while it computes one image. */
struct hand {
    const struct sy_program *p;
    const struct sy_chain *chain;
    int thread;
    char *src, *dst, *own;
    const char *residual; /* NULL: none, or the result overwrites it */
};

static char *level_at(const struct hand *hand, int level, int64_t row)
{
    const struct sy_chain *chain = hand->chain;
    if (level == 0)
        return hand->src + row * chain->stages[0].row_bytes;
    if (level == chain->n_stages)
        return hand->dst + row * chain->row_bytes;
    return hand->own + chain->stages[level].buffer_offset + row * chain->stages[level].row_bytes;
}

static void run_depthwise(const struct hand *hand, const struct sy_chain_op *op)
{
    const struct sy_chain_stage *stage = &hand->chain->stages[op->stage];
    const struct sy_chain_piece *piece = &stage->pieces[op->piece];
    struct sy_depthwise_rows rows = {
        .weights = sy_program_pointer(hand->p, stage->weights),
        .bias = stage->bias >= 0 ? sy_program_pointer(hand->p, stage->bias) : NULL,
        .src = (const float *)(const void *)level_at(hand, op->stage, op->from),
        .n_src = piece->rows_in,
        .pad_top = piece->pad_top,
        .dst = (float *)(void *)level_at(hand, op->stage + 1, op->to),
        .n = piece->rows_out};
    sy_depthwise_run(&stage->depthwise, &rows);
}

static dnnl_status_t run_piece(const struct hand *hand, const struct sy_chain_op *op)
{
    static const int names[SY_CHAIN_ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                             DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS};
    const struct sy_chain *chain = hand->chain;
    const struct sy_chain_stage *stage = &chain->stages[op->stage];
    const struct sy_chain_piece *piece = &stage->pieces[op->piece];
    dnnl_memory_t *memory = &piece->memory[hand->thread * SY_CHAIN_ARGS];
    void *pointers[SY_CHAIN_ARGS] = {
        level_at(hand, op->stage, op->from), sy_program_pointer(hand->p, stage->weights),
        level_at(hand, op->stage + 1, op->to), hand->own + chain->scratch_offset,
        stage->bias >= 0 ? sy_program_pointer(hand->p, stage->bias) : NULL};
    dnnl_exec_arg_t args[SY_CHAIN_ARGS];
    int n = 0;
    if (hand->residual && op->stage + 1 == chain->n_stages)
        memcpy(pointers[2], hand->residual + op->to * chain->row_bytes,
               (size_t)(op->rows * chain->row_bytes));
    for (int i = 0; i < SY_CHAIN_ARGS; i++) {
        void *held = NULL;
        if (!memory[i])
            continue;
        dnnl_memory_get_data_handle(memory[i], &held);
        if (held != pointers[i]) {
            dnnl_status_t status = dnnl_memory_set_data_handle(memory[i], pointers[i]);
            if (status != dnnl_success)
                return status;
        }
        args[n++] = (dnnl_exec_arg_t){names[i], memory[i]};
    }
    dnnl_status_t status =
        dnnl_primitive_execute(piece->primitive, chain->streams[hand->thread], n, args);
    if (status == dnnl_success && stage->is_curved_late) {
        const struct sy_conv_shape *c = &stage->shape;
        sy_curve_rows_here(&stage->curve, piece->rows_out * c->dst[3] * c->dst[1], pointers[2],
                           pointers[2]);
    }
    return status;
}

static dnnl_status_t run_band(const struct hand *hand, int band)
{
    const struct sy_chain *chain = hand->chain;
    for (int i = chain->band_ops[band]; i < chain->band_ops[band + 1]; i++) {
        const struct sy_chain_op *op = &chain->ops[i];
        size_t bytes = (size_t)(op->rows * chain->stages[op->stage].row_bytes);
        if (op->kind == SY_CHAIN_RUN && chain->stages[op->stage].is_depthwise) {
            run_depthwise(hand, op);
        } else if (op->kind == SY_CHAIN_RUN) {
            dnnl_status_t status = run_piece(hand, op);
            if (status != dnnl_success)
                return status;
        } else if (op->kind == SY_CHAIN_MOVE) {
            memmove(level_at(hand, op->stage, op->to), level_at(hand, op->stage, op->from), bytes);
        } else {
            memset(level_at(hand, op->stage, op->to), 0, bytes);
        }
    }
    return dnnl_success;
}

static int run_chain(struct sy_program *p, struct sy_step *step)
{
    const struct sy_chain *chain = step->state;
    char *src = sy_program_pointer(p, chain->src), *dst = sy_program_pointer(p, chain->dst);
    const char *residual = chain->residual >= 0 ? sy_program_pointer(p, chain->residual) : NULL;
    char *buffers = (char *)p->binding->workspace + p->scratch_offset;
    int64_t units = chain->images * chain->bands;
    int64_t in_bytes = chain->stages[0].height * chain->stages[0].row_bytes;
    int64_t out_bytes = chain->height * chain->row_bytes;
    int failed = 0;
#pragma omp parallel for schedule(dynamic, 1) num_threads(chain->n_threads) reduction(| : failed)
    for (int64_t unit = 0; unit < units; unit++) {
        int64_t image = unit / chain->bands;
        int thread = omp_get_thread_num();
        struct hand hand = {.p = p,
                            .chain = chain,
                            .thread = thread,
                            .src = src + image * in_bytes,
                            .dst = dst + image * out_bytes,
                            .own = buffers + (uint64_t)thread * chain->thread_bytes,
                            .residual = residual ? residual + image * out_bytes : NULL};
        failed |= (int)run_band(&hand, (int)(unit % chain->bands));
    }
    return failed
               ? sy_error_set(SY_EBUG, "node %s: oneDNN status %d in a chain", step->name, failed)
               : SY_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------ */

/* Gets the layer's weights and bias; for a layer before the last one copies, which stay until the chain runs. Weights converted to float32 are copies
 * already. */
static int take_params(struct sy_program *p, struct sy_chain_stage *stage, bool last)
{
    int packed, plain;
    SY_TRY(sy_program_param(p, 1, &packed));
    stage->weights = packed;
    bool stays = last || p->values[packed].place == SY_IN_WORKSPACE;
    if (!stays || !dnnl_memory_desc_equal(&p->values[packed].md, &stage->weights_md)) {
        SY_TRY(sy_program_new_laid_out(p, stage->node->inputs[1], &stage->weights_md,
                                       &stage->weights));
        SY_TRY(sy_program_add_reorder(p, packed, stage->weights));
    }
    if (!sy_conv_has_bias(stage->node))
        return SY_OK;
    SY_TRY(sy_program_input_plain(p, 2, &plain));
    stage->bias = plain;
    if (last)
        return SY_OK;
    SY_TRY(sy_program_new_of(p, stage->node->inputs[2], &stage->bias));
    return sy_program_add_reorder(p, plain, stage->bias);
}

/* Chooses the result's place: over the residual if it has no other reader, else next to it, and the residual's rows are copied there first. */
static int place_result(struct sy_program *p, struct sy_chain *chain)
{
    struct sy_chain_stage *last = &chain->stages[chain->n_stages - 1];
    int tensor = last->node->outputs[0], input = last->node->residual_input;
    dnnl_memory_desc_t md;
    chain->residual = -1;
    SY_DNNL(dnnl_memory_desc_init_by_tag(&md, 4, last->shape.dst, last->shape.dst_type, dnnl_nhwc),
            last->node->name);
    if (input >= 0) {
        SY_TRY(sy_program_input_as(p, input, &md, &chain->residual));
        bool over_src = p->values[chain->residual].root == p->values[chain->src].root;
        if (sy_program_is_last_use(p, input, chain->residual) &&
            (!over_src || chain->may_overwrite)) {
            SY_TRY(sy_program_new_alias(p, chain->residual, tensor, &md, &chain->dst));
            chain->residual = -1;
            return SY_OK;
        }
    }
    return sy_program_new_laid_out(p, tensor, &md, &chain->dst);
}

static int add_steps(struct sy_program *p, struct sy_chain *chain)
{
    int n = chain->n_stages, first = p->layer;
    dnnl_memory_desc_t md;
    SY_DNNL(dnnl_memory_desc_init_by_tag(&md, 4, chain->stages[0].shape.src,
                                         chain->stages[0].shape.type, dnnl_nhwc),
            chain->stages[0].node->name);
    for (int s = 0; s < n; s++) {
        p->layer = first + s;
        p->layer_steps[p->layer] = p->n_steps;
        if (s == 0)
            SY_TRY(sy_program_input_as(p, 0, &md, &chain->src));
        omp_set_num_threads(is_solo(p, p->layer) ? 1 : chain->n_threads);
        SY_TRY(take_params(p, &chain->stages[s], s + 1 == n));
    }
    omp_set_num_threads(chain->n_threads);
    SY_TRY(make_pieces(chain));
    chain->thread_bytes =
        SY_ALIGN_UP(chain->scratch_offset + chain->scratch_bytes, (uint64_t)SY_PARAM_ALIGN);
    p->scratch_bytes = SY_MAX(p->scratch_bytes, (uint64_t)chain->n_threads * chain->thread_bytes);
    sy_program_touch(p, chain->src);
    for (int s = 0; s < n; s++) {
        sy_program_touch(p, chain->stages[s].weights);
        if (chain->stages[s].bias >= 0)
            sy_program_touch(p, chain->stages[s].bias);
    }
    SY_TRY(place_result(p, chain));
    sy_program_set_output(p, 0, chain->dst);
    return SY_OK;
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* Finds stages, bands and pieces. EUNSUPPORTED: no chain. */
static int find_chain(struct sy_program *p, struct sy_chain *chain)
{
    find_stages(p, chain);
    if (chain->n_stages < 2)
        return SY_EUNSUPPORTED;
    const struct sy_conv_shape *last = &chain->stages[chain->n_stages - 1].shape;
    chain->images = last->dst[0];
    chain->height = last->dst[2];
    chain->row_bytes = last->dst[3] * last->dst[1] * (last->dst_type == dnnl_bf16 ? 2 : 4);
    /* The chain runs in its last layer: the others only copy their weights, so their thread counts say nothing about the chain. */
    chain->n_threads = is_solo(p, p->layer + chain->n_stages - 1) ? 1 : p->team;
    chain->bands = (int)(chain->n_threads / gcd(chain->images, chain->n_threads));
    if (chain->bands > chain->height)
        return SY_EUNSUPPORTED;
    chain->band_ops = calloc((size_t)chain->bands + 1, sizeof *chain->band_ops);
    SY_TRY_ALLOC(chain->band_ops, "no memory for a chain");
    /* Each piece runs in one thread. */
    omp_set_num_threads(1);
    int status = choose_rows(chain);
    omp_set_num_threads(chain->n_threads);
    return status;
}

int sy_program_add_chain(struct sy_program *p, bool *built)
{
    struct sy_chain *chain = calloc(1, sizeof *chain);
    *built = false;
    SY_TRY_ALLOC(chain, "no memory for a chain");
    int status = find_chain(p, chain);
    if (status < 0) {
        free_chain(chain);
        return status == SY_EUNSUPPORTED ? SY_OK : status;
    }
    *built = true;
    status = add_steps(p, chain);
    struct sy_step *step = status == SY_OK ? sy_program_add_step(p, run_chain, 0) : NULL;
    if (!step) {
        free_chain(chain);
        return status < 0 ? status : sy_error_set(SY_ENOMEM_HOST, "no memory for a step");
    }
    step->state = chain;
    step->free_state = free_chain;
    return SY_OK;
}

bool sy_step_is_chain(const struct sy_step *step)
{
    return step->run == run_chain;
}
