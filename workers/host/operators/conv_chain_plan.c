/* Plans the order in which a chain of convolutions computes its rows. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/operators/conv_chain_internal.h"

/* One step of the chain: the rows of each level that its windows cover, padding included. */
struct turn {
    int64_t from[SY_CHAIN_STAGES + 1], to[SY_CHAIN_STAGES + 1];
};

/* Progress of one band: the first row of each level's buffer, and the next row to compute. */
struct progress {
    int64_t begins[SY_CHAIN_STAGES + 1], next[SY_CHAIN_STAGES + 1];
};

static int add_op(struct sy_chain *chain, struct sy_chain_op op)
{
    if (op.rows < 1)
        return SY_OK;
    if (chain->n_ops == chain->ops_capacity) {
        int capacity = chain->ops_capacity ? 2 * chain->ops_capacity : 64;
        struct sy_chain_op *grown = realloc(chain->ops, (size_t)capacity * sizeof *grown);
        SY_TRY_ALLOC(grown, "no memory for a chain of %d steps", capacity);
        chain->ops = grown;
        chain->ops_capacity = capacity;
    }
    chain->ops[chain->n_ops++] = op;
    return SY_OK;
}

/* Rows of the stage's input covered by the windows of its rows [from, to). */
static void find_window(const struct sy_conv_shape *c, int64_t from, int64_t to, int64_t *first,
                        int64_t *end)
{
    int64_t extent = (c->weights[c->weights_rank - 2] - 1) * (c->dilations[0] + 1) + 1;
    *first = from * c->strides[0] - c->pad_left[0];
    *end = (to - 1) * c->strides[0] - c->pad_left[0] + extent;
}

static int find_piece(struct sy_chain_stage *stage, int64_t rows_in, int64_t rows_out, int64_t top,
                      int64_t bottom, int *out)
{
    for (*out = 0; *out < stage->n_pieces; ++*out) {
        const struct sy_chain_piece *p = &stage->pieces[*out];
        if (p->rows_in == rows_in && p->rows_out == rows_out && p->pad_top == top &&
            p->pad_bottom == bottom)
            return SY_OK;
    }
    if (rows_in < 1 || stage->n_pieces == SY_CHAIN_PIECES)
        return sy_unsupported(stage->node, "these rows one after the other");
    stage->pieces[stage->n_pieces++] = (struct sy_chain_piece){
        .rows_in = rows_in, .rows_out = rows_out, .pad_top = top, .pad_bottom = bottom};
    return SY_OK;
}

/* Advances the buffer before stage `s` to this turn's rows; rows outside the image are padding. */
static int move_on(struct sy_chain *chain, int s, const struct turn *turn,
                   struct progress *progress, bool first)
{
    struct sy_chain_stage *stage = &chain->stages[s];
    int64_t from = turn->from[s], to = turn->to[s], *next = &progress->next[s];
    struct sy_chain_op op = {.stage = s};
    if (first) {
        op = (struct sy_chain_op){.kind = SY_CHAIN_CLEAR, .stage = s, .rows = SY_MIN(0, to) - from};
        *next = SY_MAX(from, 0);
    } else if (from != progress->begins[s]) {
        op = (struct sy_chain_op){.kind = SY_CHAIN_MOVE,
                                  .stage = s,
                                  .from = from - progress->begins[s],
                                  .rows = *next - from};
        *next = SY_MAX(*next, from);
    }
    SY_TRY(add_op(chain, op));
    progress->begins[s] = from;
    stage->buffer_rows = SY_MAX(stage->buffer_rows, to - from);
    int64_t after = SY_MAX(stage->height, from);
    return add_op(chain,
                  (struct sy_chain_op){
                      .kind = SY_CHAIN_CLEAR, .stage = s, .to = after - from, .rows = to - after});
}

/* Computes the rows of stage `s` that are missing in this turn. */
static int run_stage(struct sy_chain *chain, int s, const struct turn *turn,
                     struct progress *progress)
{
    struct sy_chain_stage *stage = &chain->stages[s];
    bool last = s + 1 == chain->n_stages;
    int64_t height = last ? chain->height : chain->stages[s + 1].height;
    int64_t from = last ? turn->from[s + 1] : progress->next[s + 1];
    int64_t to = SY_MIN(turn->to[s + 1], height), first, end, top = 0, bottom = 0;
    struct sy_chain_op op = {.kind = SY_CHAIN_RUN, .stage = s, .rows = to - from};
    if (to <= from)
        return SY_OK;
    find_window(&stage->shape, from, to, &first, &end);
    if (s == 0) {
        top = SY_MAX(0, -first);
        bottom = SY_MAX(0, end - stage->height);
        if (last || first + top < 0)
            return sy_unsupported(stage->node, "a chain of one");
    }
    SY_TRY(find_piece(stage, end - first - top - bottom, to - from, top, bottom, &op.piece));
    op.from = first + top - (s > 0 ? progress->begins[s] : 0);
    op.to = from - (last ? 0 : progress->begins[s + 1]);
    progress->next[s + 1] = to;
    return add_op(chain, op);
}

static int plan_band(struct sy_chain *chain, int64_t from, int64_t to, int64_t rows)
{
    struct progress progress = {0};
    int n = chain->n_stages;
    for (int64_t row = from; row < to; row += rows) {
        struct turn turn;
        turn.from[n] = row;
        turn.to[n] = SY_MIN(row + rows, to);
        for (int s = n - 1; s >= 0; s--)
            find_window(&chain->stages[s].shape, turn.from[s + 1], turn.to[s + 1], &turn.from[s],
                        &turn.to[s]);
        for (int s = 1; s < n; s++)
            SY_TRY(move_on(chain, s, &turn, &progress, row == from));
        for (int s = 0; s < n; s++)
            SY_TRY(run_stage(chain, s, &turn, &progress));
    }
    return SY_OK;
}

/* Whether each row of the input is read for the last time before the result's row at its place is written. */
static bool reads_before_writing(const struct sy_chain *chain)
{
    int64_t written = 0;
    for (int i = 0; i < chain->n_ops; i++) {
        const struct sy_chain_op *op = &chain->ops[i];
        if (op->kind == SY_CHAIN_RUN && op->stage == 0 && op->from < written)
            return false;
        if (op->kind == SY_CHAIN_RUN && op->stage + 1 == chain->n_stages)
            written = SY_MAX(written, op->to + op->rows);
    }
    return chain->bands == 1;
}

int sy_chain_plan(struct sy_chain *chain, int64_t rows)
{
    uint64_t offset = 0;
    chain->n_ops = 0;
    for (int s = 0; s < chain->n_stages; s++)
        chain->stages[s].n_pieces = 0, chain->stages[s].buffer_rows = 0;
    for (int b = 0; b < chain->bands; b++) {
        chain->band_ops[b] = chain->n_ops;
        SY_TRY(plan_band(chain, chain->height * b / chain->bands,
                         chain->height * (b + 1) / chain->bands, rows));
    }
    chain->band_ops[chain->bands] = chain->n_ops;
    chain->may_overwrite = reads_before_writing(chain);
    for (int s = 1; s < chain->n_stages; s++) {
        chain->stages[s].buffer_offset = offset;
        offset += SY_ALIGN_UP((uint64_t)(chain->stages[s].buffer_rows * chain->stages[s].row_bytes),
                              (uint64_t)SY_PARAM_ALIGN);
    }
    chain->scratch_offset = offset;
    return SY_OK;
}

uint64_t sy_chain_buffer_bytes(const struct sy_chain *chain)
{
    return chain->scratch_offset;
}
