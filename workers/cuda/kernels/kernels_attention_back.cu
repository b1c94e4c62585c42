/* The gradients of attention, without its scores in memory, and without atomics: two kernels, each of which makes the scores of its tiles once
 * more out of what the forward pass has kept of each row, its largest score and one over its sum (Dao: FlashAttention-2, 2023).
 *
 *   rows     a block has rows of q and of dy, goes over k and v:   dq = scale * d k',  and delta = sum dy y of each row
 *   across   a block has columns of k and v, goes over q and dy:   dv = p' dy,  dk = scale * q' d
 *
 * with p the softmax and d = p (dy v' - delta). Across, what is a row of the scores is a column of the warp's tiles. Each sum has one order (M3).
 *
 * Gradients as the operators apart have them: none where a mask wrote a number of its own, NaN in rows of NaN; with zero_nan v gets nothing
 * of these. Only what a whole tile of masks takes away is 0 without having been computed. */
#include "workers/cuda/kernels/attention_masks.cuh"
#include "workers/cuda/kernels/kernels_train_ops.h"

SY_KERNEL_FILE(attention_back)

/* Lines of `size` numbers. */
template <typename T> struct back_operand {
    const T *at;
    int64_t line, step; /* strides of a line, of a number */
    int64_t size;
    int padded;
};

enum { BASE, FACTOR, DELTA, NUMBERS };

template <typename Tiles> struct back_room {
    using T = typename Tiles::T;
    static constexpr int STAGES = Tiles::STAGES;
    static constexpr int MOST = Tiles::ROWS > Tiles::COLUMNS ? Tiles::ROWS : Tiles::COLUMNS;
    T mine[2][Tiles::ROWS * Tiles::STRIDE], other[STAGES][2][Tiles::COLUMNS * Tiles::STRIDE];
    T own[Tiles::WARPS * Tiles::OWN_ROOM + (Tiles::OWN_ROOM == 0)];
    float numbers[STAGES][NUMBERS][MOST]; /* of rows of q */
};

template <typename Tiles> struct back_results {
    float at[Tiles::ROWS][Tiles::SIZE + 4];
};

/* The state of a block; all of its threads take each step together. */
template <typename Tiles, bool ACROSS> struct back_block {
    using T = typename Tiles::T;
    static constexpr int STAGES = Tiles::STAGES;
    const sy_attention &a;
    back_room<Tiles> *room;
    mask_pointers masks;
    back_operand<T> mine[2], other[2]; /* q, dy and k, v; across the other way */
    const float *stats;                /* of the head's rows: base, factor */
    float *delta;
    int64_t first, n_mine, n_other;

    /* Of rows from `row` on; zeros behind the last. */
    __device__ void load_numbers(int64_t row, int count, int stage, bool has_delta)
    {
        for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) {
            bool lies = row + i < a.rows;
            room->numbers[stage][BASE][i] = lies ? stats[2 * (row + i)] : 0;
            room->numbers[stage][FACTOR][i] = lies ? stats[2 * (row + i) + 1] : 0;
            if (has_delta)
                room->numbers[stage][DELTA][i] = lies ? delta[row + i] : 0;
        }
    }

    template <int LINES>
    __device__ void load_lines(T *to, const back_operand<T> &from, int64_t at, int64_t n)
    {
        load_tile<Tiles, LINES>(to, from.at + at * from.line, from.line, from.step,
                                (int)(n - at < LINES ? n - at : LINES), (int)from.size,
                                from.padded);
    }

    __device__ void load_other(int64_t at, int stage)
    {
        for (int i = 0; i < 2 && at < n_other; i++)
            load_lines<Tiles::COLUMNS>(room->other[stage][i], other[i], at, n_other);
        if (ACROSS && at < n_other)
            load_numbers(at, Tiles::COLUMNS, stage, true);
        sy_copy_commit();
    }

    __device__ void load_mine()
    {
        for (int i = 0; i < 2; i++)
            load_lines<Tiles::ROWS>(room->mine[i], mine[i], first, n_mine);
        if (!ACROSS)
            load_numbers(first, Tiles::ROWS, 0, false);
    }

    /* A warp after the other takes a row. */
    template <typename Y> __device__ void find_delta(const Y *y)
    {
        for (int i = (int)threadIdx.x / SY_WARP; i < Tiles::ROWS; i += Tiles::WARPS) {
            int64_t row = first + i;
            float sum = 0;
            for (int64_t w = lane_of(); row < a.rows && w < a.width; w += SY_WARP)
                sum += sy_wide(room->mine[1][i * Tiles::STRIDE + w]) *
                       sy_wide(y[row * a.y.row + w * a.y.column]);
            for (int mask = 1; mask < SY_WARP; mask *= 2)
                sum += sy_lane_xor(sum, mask);
            if (lane_of() == 0)
                room->numbers[0][DELTA][i] = sum;
            if (lane_of() == 0 && row < a.rows)
                delta[row] = sum;
        }
    }

    /* Whether masks leave nothing of the tile at `at`; rows that have no sum are not passed over. */
    __device__ bool is_empty(int64_t at)
    {
        const int64_t row = ACROSS ? at : first, column = ACROSS ? first : at;
        const int64_t rows_left = a.rows - row, columns_left = a.columns - column;
        constexpr int ROWS = ACROSS ? Tiles::COLUMNS : Tiles::ROWS,
                      COLUMNS = ACROSS ? Tiles::ROWS : Tiles::COLUMNS;
        int rows = (int)(rows_left < ROWS ? rows_left : ROWS),
            columns = (int)(columns_left < COLUMNS ? columns_left : COLUMNS);
        if (a.n_masks == 0 || !(most_left(a, masks, row + rows - 1, column, 1) <= GONE))
            return false;
        bool gone = is_gone(a, masks, row, column, rows, columns);
        for (int i = (int)threadIdx.x; i < rows; i += (int)blockDim.x)
            gone = gone && stats[2 * (row + i)] > THERE && stats[2 * (row + i) + 1] < INFINITY;
        return !__syncthreads_or(!gone);
    }

    __device__ int64_t next_tile(int64_t at)
    {
        while (at < n_other && is_empty(at))
            at += Tiles::COLUMNS;
        return at;
    }

    /* s becomes p, d its gradient times it. */
    template <typename Scores>
    __device__ void soften_tile(const attention_part &part, int own_row, int stage, Scores &s,
                                Scores &d)
    {
        const auto &numbers = room->numbers[ACROSS ? stage : 0];
        mask_scores<Tiles, ACROSS>(a, masks, part, s);
#pragma unroll
        for (int i = 0; i < Tiles::LINES; i++)
#pragma unroll
            for (int j = 0; j < Tiles::SCORES; j++) {
                int at = ACROSS ? Tiles::score_column(j) : own_row + Tiles::row(i);
                float p = soften(s[i][j], numbers[BASE][at]) * numbers[FACTOR][at];
                d[i][j] = p * (d[i][j] - numbers[DELTA][at]);
                s[i][j] = a.zero_nan && p != p ? 0 : p;
            }
        for (int m = 0; m < a.n_masks; m++) {
            mask_steps step = steps_of<ACROSS>(a.masks[m]);
            if (a.causal[m] > 0 && a.kinds[m] != SY_MASK_ADD)
                cut_scores<Tiles, ACROSS>(a.causal[m], false, 0, part, d);
            else if (a.kinds[m] != SY_MASK_ADD)
                fill_mask<Tiles>(step,
                                 (const uint8_t *)masks.at[m] + part.row * step.row +
                                     part.column * step.column,
                                 a.kinds[m] == SY_MASK_DROP, 0, part, d);
        }
        fill_behind<Tiles>(0, part, d); /* p is 0 there, but 0 times what is not finite is not */
    }

    /* by_d: dq or dk; by_p: dv, across only. */
    template <typename Results>
    __device__ void add_tile(int64_t at, int stage, Results &by_d, Results &by_p)
    {
        const int warp = (int)threadIdx.x / SY_WARP, own_row = warp * Tiles::WARP_ROWS;
        const attention_part part = {first + own_row, at, n_mine - first - own_row, n_other - at};
        const auto &tiles = room->other[stage];
        T *own = room->own + warp * Tiles::OWN_ROOM;
        float s[Tiles::LINES][Tiles::SCORES] = {}, d[Tiles::LINES][Tiles::SCORES] = {};
        if (part.rows <= 0)
            return;
        Tiles::scores(room->mine[0] + own_row * Tiles::STRIDE, tiles[0], mine[0].padded, s);
        Tiles::scores(room->mine[1] + own_row * Tiles::STRIDE, tiles[1], mine[1].padded, d);
        soften_tile(part, own_row, stage, s, d);
        if (ACROSS)
            Tiles::add_values(s, tiles[1], other[1].padded, own, by_p);
        Tiles::add_values(d, tiles[0], other[0].padded, own, by_d);
    }

    /* All of what is mine has been asked for. y: of the head, rows only. */
    template <typename Y, typename Results>
    __device__ void add_all(const Y *y, Results &by_d, Results &by_p)
    {
        int64_t at = next_tile(0), next;
        load_other(at, 0);
        if (!ACROSS) {
            sy_copy_wait();
            __syncthreads();
            find_delta(y);
        }
        for (int stage = 0; at < n_other; at = next) {
            next = next_tile(at + Tiles::COLUMNS);
            sy_copy_wait();
            __syncthreads(); /* the tile is there, the one before is read */
            if (STAGES > 1)
                load_other(next, 1 - stage);
            add_tile(at, stage, by_d, by_p);
            if (STAGES == 1) {
                __syncthreads();
                load_other(next, 0);
            } else {
                stage = 1 - stage;
            }
        }
        sy_copy_wait();
    }
};

/* ---- results ---- */

template <typename Tiles, typename Y>
__device__ static void write_lines(const back_results<Tiles> *from, int64_t line, int64_t step,
                                   int64_t lines, int size, Y *to)
{
    int n = (int)(lines < Tiles::ROWS ? lines : Tiles::ROWS) * size;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        to[i / size * line + i % size * step] = sy_store<Y>::of(from->at[i / size][i % size]);
}

/* The block's lines of a gradient, of the operands' type or float32. */
template <typename Tiles, typename Results>
__device__ static void write_gradient(back_results<Tiles> *room, const Results &o, float scale,
                                      bool as_given, int64_t line, int64_t step, int64_t lines,
                                      int size, void *to, int64_t offset)
{
    const int own_row = (int)threadIdx.x / SY_WARP * Tiles::WARP_ROWS;
    __syncthreads(); /* what lies there is read */
#pragma unroll
    for (int i = 0; i < Tiles::LINES; i++)
#pragma unroll
        for (int j = 0; j < Tiles::RESULTS; j++)
            room->at[own_row + Tiles::row(i)][Tiles::result_column(j)] = o[i][j] * scale;
    __syncthreads();
    if (as_given)
        write_lines<Tiles>(room, line, step, lines, size, (typename Tiles::T *)to + offset);
    else
        write_lines<Tiles>(room, line, step, lines, size, (float *)to + offset);
}

/* ---- the kernel ---- */

template <typename Tiles> constexpr size_t back_bytes()
{
    constexpr size_t room = sizeof(back_room<Tiles>), results = sizeof(back_results<Tiles>);
    return room > results ? room : results;
}

/* y: read by rows. first_out: dq; across dk, and dv in second_out. Blocks of a head one after the other. */
template <typename Tiles, bool ACROSS>
__global__ static void __launch_bounds__(Tiles::WARPS *SY_WARP)
    back_kernel(const __grid_constant__ sy_math_attention_back back, const typename Tiles::T *q,
                const typename Tiles::T *k, const typename Tiles::T *v, const typename Tiles::T *dy,
                const void *y, const float *stats, const __grid_constant__ mask_pointers masks,
                float *delta, void *first_out, void *second_out, int64_t blocks, int64_t n)
{
    using T = typename Tiles::T;
    const sy_attention &a = back.forward.of;
    auto *room = (back_room<Tiles> *)sy_launched_room();
    auto *results = (back_results<Tiles> *)sy_launched_room();
    const int depth = padded_to(a.depth, Tiles::WIDTH_STEP),
              width = padded_to(a.width, Tiles::WIDTH_STEP);
    for (int64_t block = blockIdx.x; block < n; block += gridDim.x) {
        int64_t head = block / blocks, first = block % blocks * Tiles::ROWS;
        const back_operand<T> rows[2] = {
            {q + head_offset(a, a.q, head), a.q.row, a.q.column, a.depth, depth},
            {dy + head_offset(a, a.y, head), a.y.row, a.y.column, a.width, width}};
        const back_operand<T> columns[2] = {
            {k + head_offset(a, a.k, head), a.k.column, a.k.row, a.depth, depth},
            {v + head_offset(a, a.v, head), a.v.row, a.v.column, a.width, width}};
        back_block<Tiles, ACROSS> b = {
            a,
            room,
            masks_of(a, masks, head),
            {ACROSS ? columns[0] : rows[0], ACROSS ? columns[1] : rows[1]},
            {ACROSS ? rows[0] : columns[0], ACROSS ? rows[1] : columns[1]},
            stats + 2 * head * a.rows,
            delta + head * a.rows,
            first,
            ACROSS ? a.columns : a.rows,
            ACROSS ? a.rows : a.columns};
        float by_d[Tiles::LINES][Tiles::RESULTS] = {}, by_p[Tiles::LINES][Tiles::RESULTS] = {};
        __syncthreads(); /* the results of the block before are written */
        b.load_mine();
        if (back.forward.y_type == back.forward.type)
            b.add_all((const T *)y + head_offset(a, a.y, head), by_d, by_p);
        else
            b.add_all((const float *)y + head_offset(a, a.y, head), by_d, by_p);
        int64_t left = b.n_mine - first;
        const sy_attention_view &to = ACROSS ? back.dk : back.dq;
        int64_t line = ACROSS ? to.column : to.row, step = ACROSS ? to.row : to.column;
        enum sy_dtype type = ACROSS ? back.dk_type : back.dq_type;
        write_gradient(results, by_d, a.scale, type == back.forward.type, line, step, left,
                       (int)a.depth, first_out, head_offset(a, to, head) + first * line);
        if (ACROSS)
            write_gradient(results, by_p, 1, back.dv_type == back.forward.type, back.dv.row,
                           back.dv.column, left, (int)a.width, second_out,
                           head_offset(a, back.dv, head) + first * back.dv.row);
    }
}

/* ---- which one ---- */

template <typename Tiles>
static int launch_both(struct CUstream_st *stream, const sy_math_attention_back *b, int64_t heads,
                       const struct sy_math_attention_at *at)
{
    using T = typename Tiles::T;
    static_assert(back_bytes<Tiles>() <= SY_KERNEL_SHARED_BYTES, "no GPU has less");
    constexpr unsigned THREADS = Tiles::WARPS * SY_WARP;
    constexpr size_t BYTES = back_bytes<Tiles>();
    int64_t rows = (b->forward.of.rows + Tiles::ROWS - 1) / Tiles::ROWS,
            columns = (b->forward.of.columns + Tiles::ROWS - 1) / Tiles::ROWS;
    mask_pointers masks = {};
    for (int m = 0; m < b->forward.of.n_masks; m++)
        masks.at[m] = (void *)at->masks[m];
    int error =
        sy_launch_shared(back_kernel<Tiles, false>, sy_row_blocks(heads * rows), THREADS, BYTES,
                         stream, *b, (const T *)at->q, (const T *)at->k, (const T *)at->v,
                         (const T *)at->dy, at->y, (const float *)at->stats, masks,
                         (float *)at->delta, at->dq, (void *)NULL, rows, heads * rows);
    if (error)
        return error;
    return sy_launch_shared(back_kernel<Tiles, true>, sy_row_blocks(heads * columns), THREADS,
                            BYTES, stream, *b, (const T *)at->q, (const T *)at->k, (const T *)at->v,
                            (const T *)at->dy, at->y, (const float *)at->stats, masks,
                            (float *)at->delta, at->dk, at->dv, columns, heads * columns);
}

static bool fits(const sy_math_attention_back *b, enum sy_dtype type)
{
    return type == b->forward.type || !sy_math_is_narrow(type);
}

int sy_kernel_attention_gradient(struct CUstream_st *stream, const struct sy_math_attention_back *b,
                                 bool tf32, const struct sy_math_attention_at *at)
{
    const sy_attention &a = b->forward.of;
    int64_t heads = sy_elements(a.head_rank, a.head_dims),
            size = a.depth > a.width ? a.depth : a.width;
    if (size > SY_MATH_ATTENTION_BACK_SIZE || b->forward.type == SY_DTYPE_F16 ||
        !fits(b, b->forward.y_type) || !fits(b, b->dq_type) || !fits(b, b->dk_type) ||
        !fits(b, b->dv_type))
        return cudaErrorInvalidValue;
    if (heads * a.rows * a.columns == 0)
        return 0;
    if (b->forward.type == SY_DTYPE_BF16 && size <= 64)
        return launch_both<attention_narrow<attention_shape<__nv_bfloat16, 64, 1, 1, 64, 2>>>(
            stream, b, heads, at);
    if (b->forward.type == SY_DTYPE_BF16)
        return launch_both<attention_narrow<attention_shape<__nv_bfloat16, 128, 1, 1, 32, 2>>>(
            stream, b, heads, at);
    if (tf32 && size <= 64)
        return launch_both<attention_tf32<attention_shape<float, 64, 1, 1, 32, 2>>>(stream, b,
                                                                                    heads, at);
    if (tf32)
        return launch_both<attention_tf32<attention_shape<float, 128, 1, 1, 16, 1>>>(stream, b,
                                                                                     heads, at);
    if (size <= 64)
        return launch_both<attention_float<attention_shape<float, 64, 1, 1, 32, 2>>>(stream, b,
                                                                                     heads, at);
    return launch_both<attention_float<attention_shape<float, 128, 1, 1, 16, 1>>>(stream, b, heads,
                                                                                  at);
}
