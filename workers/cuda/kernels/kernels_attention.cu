/* Attention without its scores in memory: a block has some rows of q, goes over the columns tile by tile, and keeps of each row the largest score so
 * far, the sum of what is softened against it, and the result so far, which are scaled down when a larger score comes. The method is that of
 * Dao, Fu, Ermon, Rudra, Re: FlashAttention (2022), the sums that of Milakov, Gimelshein: Online normalizer calculation for softmax (2018).
 *
 * Rows without any score but -infinity, and rows with NaN or +infinity, become NaN, as the softmax has it; with zero_nan, zeros. A score that is
 * masked is multiplied all the same: what lies in v as NaN or infinity is NaN in the result.
 *
 * Equal bits each time (M3): a row's columns are taken in one order, and how many rows a block has changes nothing of them. */
#include "workers/cuda/kernels/attention_masks.cuh"

#define MANY_BLOCKS   264 /* two for each of the 132 multiprocessors of an H200 */
#define DEAD          -1.0f
#define MOST_OF(a, b) ((a) > (b) ? (a) : (b))

SY_KERNEL_FILE(attention)

/* ---- scores ---- */

/* s becomes e^(s - the row's largest so far), and what was summed so far fits that. sums: the lane's part. */
template <typename Tiles, typename Scores, typename Results>
__device__ static void soften_scores(float (&largest)[Tiles::LINES], float (&sums)[Tiles::LINES],
                                     Scores &s, Results &o)
{
#pragma unroll
    for (int i = 0; i < Tiles::LINES; i++) {
        float top = largest[i];
#pragma unroll
        for (int j = 0; j < Tiles::SCORES; j++)
            top = s[i][j] > top ? s[i][j] : top;
#pragma unroll
        for (int mask = 1; mask < Tiles::LANES; mask *= 2) {
            float other = sy_lane_xor(top, mask);
            top = other > top ? other : top;
        }
        float base = base_of(top), before = soften(largest[i], base), sum = 0;
#pragma unroll
        for (int j = 0; j < Tiles::SCORES; j++) {
            s[i][j] = soften(s[i][j], base);
            sum += s[i][j];
        }
        sums[i] = sums[i] * before + sum;
        largest[i] = top;
#pragma unroll
        for (int j = 0; j < Tiles::RESULTS; j++)
            o[i][j] *= before;
    }
}

/* ---- results ---- */

/* Of a block, over the tiles' room: SPLIT parts of ROWS rows each, with the largest score and the sum, which become factors. */
template <typename Tiles> struct attention_results {
    static constexpr int STRIDE = Tiles::SIZE + 4, ROWS = Tiles::ROWS, PARTS = Tiles::SPLIT;
    float o[PARTS][ROWS][STRIDE], largest[PARTS][ROWS], sums[PARTS][ROWS];
};

template <typename Tiles, typename Results>
__device__ static void leave_results(attention_results<Tiles> *room, int part, int row,
                                     const float (&largest)[Tiles::LINES],
                                     float (&sums)[Tiles::LINES], const Results &o)
{
#pragma unroll
    for (int i = 0; i < Tiles::LINES; i++) {
        int at = row + Tiles::row(i);
#pragma unroll
        for (int mask = 1; mask < Tiles::LANES; mask *= 2)
            sums[i] += sy_lane_xor(sums[i], mask);
        if (lane_of() % Tiles::LANES == 0) {
            room->largest[part][at] = largest[i];
            room->sums[part][at] = sums[i];
        }
#pragma unroll
        for (int j = 0; j < Tiles::RESULTS; j++)
            room->o[part][at][Tiles::result_column(j)] = o[i][j];
    }
}

/* In place of the sums: what each part of the row is multiplied with. A row of a thread. stats: of `rows` rows. */
template <typename Tiles>
__device__ static void find_factors(const sy_attention &a, attention_results<Tiles> *room,
                                    int64_t rows, float *stats)
{
    for (int row = (int)threadIdx.x; row < Tiles::ROWS; row += (int)blockDim.x) {
        float top = -INFINITY, sum = 0;
        for (int p = 0; p < Tiles::SPLIT; p++)
            top = room->largest[p][row] > top ? room->largest[p][row] : top;
        for (int p = 0; p < Tiles::SPLIT; p++)
            sum += room->sums[p][row] * soften(room->largest[p][row], base_of(top));
        if (stats && row < rows) {
            stats[2 * row] = base_of(top);
            stats[2 * row + 1] = 1 / sum;
        }
        for (int p = 0; p < Tiles::SPLIT; p++) {
            float factor = soften(room->largest[p][row], base_of(top)) / sum;
            if (a.zero_nan && !(sum > 0))
                factor = sum == 0 ? 0 : DEAD;
            room->sums[p][row] = factor;
        }
    }
}

template <typename Tiles, typename Y>
__device__ static void write_results(const sy_attention &a, const attention_results<Tiles> *room,
                                     int64_t rows, Y *y)
{
    int width = (int)a.width, n = (int)(rows < Tiles::ROWS ? rows : Tiles::ROWS) * width;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        int row = i / width, column = i % width;
        float value = 0;
        for (int p = 0; p < Tiles::SPLIT; p++) {
            float factor = room->sums[p][row];
            value += factor == DEAD ? 0 : factor * room->o[p][row][column];
        }
        y[row * a.y.row + column * a.y.column] = sy_store<Y>::of(value);
    }
}

/* ---- the kernel ---- */

template <typename Tiles> struct attention_room {
    typename Tiles::T q[Tiles::ROWS * Tiles::STRIDE], k[Tiles::COLUMNS * Tiles::STRIDE],
        v[Tiles::COLUMNS * Tiles::STRIDE];
    typename Tiles::T own[Tiles::WARPS * Tiles::OWN_ROOM + (Tiles::OWN_ROOM == 0)];
};

template <typename Tiles> constexpr size_t attention_bytes()
{
    return MOST_OF(sizeof(attention_room<Tiles>), sizeof(attention_results<Tiles>));
}

/* ---- empty tiles ---- */

/* One score says whether it is worth looking at all: the first column of the last row, which a causal mask and one of lengths leave last. */
template <typename Tiles>
__device__ static bool may_be_empty(const sy_attention &a, const mask_pointers &masks, int64_t row,
                                    int64_t column)
{
    int64_t last = (row + Tiles::ROWS < a.rows ? row + Tiles::ROWS : a.rows) - 1;
    return a.n_masks > 0 && most_left(a, masks, last, column, 1) <= GONE;
}

template <typename Tiles>
__device__ static bool all_there(const attention_part &part, const float (&largest)[Tiles::LINES])
{
    bool there = true;
#pragma unroll
    for (int i = 0; i < Tiles::LINES; i++)
        there = there && (Tiles::row(i) >= part.rows || largest[i] > THERE);
    return there;
}

/* The same for all threads of the block, which have asked for the values and get them here. `there`: the thread's rows have a score. What is
 * not finite in v is NaN in the result, masked or not. */
template <typename Tiles>
__device__ static bool is_empty(const sy_attention &a, const mask_pointers &masks,
                                const attention_room<Tiles> *room, int64_t row, int64_t column,
                                int depth, int width, bool there)
{
    using E = exponents_of<typename Tiles::T>;
    int rows = (int)(a.rows - row < Tiles::ROWS ? a.rows - row : Tiles::ROWS);
    int columns = (int)(a.columns - column < Tiles::COLUMNS ? a.columns - column : Tiles::COLUMNS);
    bool gone = there && fabsf(a.scale) <= TAME_SCALE &&
                is_gone(a, masks, row, column, rows, columns) &&
                are_below<Tiles, Tiles::ROWS>(room->q, depth, E::tame) &&
                are_below<Tiles, Tiles::COLUMNS>(room->k, depth, E::tame);
    sy_copy_wait();
    if (__syncthreads_or(!gone))
        return false;
    bool odd = !are_below<Tiles, Tiles::COLUMNS>(room->v, width, 1);
    return !__syncthreads_or(odd);
}

/* A block of rows after the other. */
template <typename Tiles>
__global__ static void __launch_bounds__(Tiles::WARPS *SY_WARP)
    attention_kernel(const __grid_constant__ sy_math_attention attention,
                     const typename Tiles::T *q, const typename Tiles::T *k,
                     const typename Tiles::T *v, const __grid_constant__ mask_pointers masks,
                     void *y, float *stats, int64_t row_blocks, int64_t n)
{
    using T = typename Tiles::T;
    const sy_attention &a = attention.of;
    auto *room = (attention_room<Tiles> *)sy_launched_room();
    auto *results = (attention_results<Tiles> *)sy_launched_room();
    const int warp = (int)threadIdx.x / SY_WARP, split = warp % Tiles::SPLIT;
    const int own_row = warp / Tiles::SPLIT * Tiles::WARP_ROWS, own_column = split * Tiles::OWN;
    const int depth = padded_to(a.depth, Tiles::DEPTH_STEP),
              width = padded_to(a.width, Tiles::WIDTH_STEP);
    T *own = room->own + warp * Tiles::OWN_ROOM;
    for (int64_t block = blockIdx.x; block < n; block += gridDim.x) {
        int64_t head = block / row_blocks, first = block % row_blocks * Tiles::ROWS;
        const T *k_head = k + head_offset(a, a.k, head), *v_head = v + head_offset(a, a.v, head);
        const mask_pointers own_masks = masks_of(a, masks, head);
        float o[Tiles::LINES][Tiles::RESULTS] = {}, sums[Tiles::LINES] = {}, largest[Tiles::LINES];
#pragma unroll
        for (int i = 0; i < Tiles::LINES; i++)
            largest[i] = -INFINITY;
        auto left = [](int64_t most, int64_t of) { return (int)(of < most ? of : most); };
        auto load_keys = [&](int64_t at) {
            load_tile<Tiles, Tiles::COLUMNS>(room->k, k_head + at * a.k.column, a.k.column, a.k.row,
                                             left(Tiles::COLUMNS, a.columns - at), (int)a.depth,
                                             depth);
        };
        __syncthreads(); /* the results of the block before are written */
        load_tile<Tiles, Tiles::ROWS>(room->q, q + head_offset(a, a.q, head) + first * a.q.row,
                                      a.q.row, a.q.column, left(Tiles::ROWS, a.rows - first),
                                      (int)a.depth, depth);
        if (a.columns > 0)
            load_keys(0);
        sy_copy_commit();
        for (int64_t at = 0; at < a.columns; at += Tiles::COLUMNS) {
            attention_part part = {first + own_row, at + own_column, a.rows - first - own_row,
                                   a.columns - at - own_column};
            bool works = part.rows > 0 && part.columns > 0;
            float s[Tiles::LINES][Tiles::SCORES] = {};
            sy_copy_wait();
            __syncthreads(); /* keys are there; the values before are read */
            load_tile<Tiles, Tiles::COLUMNS>(room->v, v_head + at * a.v.row, a.v.row, a.v.column,
                                             left(Tiles::COLUMNS, a.columns - at), (int)a.width,
                                             width);
            sy_copy_commit();
            if (at > 0 && may_be_empty<Tiles>(a, own_masks, first, at))
                works = !is_empty<Tiles>(a, own_masks, room, first, at, depth, width,
                                         !works || all_there<Tiles>(part, largest)) &&
                        works;
            if (works) {
                Tiles::scores(room->q + own_row * Tiles::STRIDE,
                              room->k + own_column * Tiles::STRIDE, depth, s);
                mask_scores<Tiles, false>(a, own_masks, part, s);
                soften_scores<Tiles>(largest, sums, s, o);
            }
            sy_copy_wait();
            __syncthreads(); /* values are there; the keys are read */
            if (at + Tiles::COLUMNS < a.columns)
                load_keys(at + Tiles::COLUMNS);
            sy_copy_commit();
            if (works)
                Tiles::add_values(s, room->v + own_column * Tiles::STRIDE, width, own, o);
        }
        sy_copy_wait();
        __syncthreads(); /* all tiles are read */
        leave_results<Tiles>(results, split, own_row, largest, sums, o);
        __syncthreads();
        find_factors<Tiles>(a, results, a.rows - first,
                            stats ? stats + 2 * (head * a.rows + first) : stats);
        __syncthreads();
        int64_t to = head_offset(a, a.y, head) + first * a.y.row;
        if (attention.y_type == attention.type)
            write_results<Tiles>(a, results, a.rows - first, (T *)y + to);
        else
            write_results<Tiles>(a, results, a.rows - first, (float *)y + to);
    }
}

/* ---- which one ---- */

template <typename Tiles>
static int launch(struct CUstream_st *stream, const sy_math_attention *a, int64_t heads,
                  const void *q, const void *k, const void *v, const mask_pointers &masks, void *y,
                  float *stats)
{
    using T = typename Tiles::T;
    static_assert(attention_bytes<Tiles>() <= SY_KERNEL_SHARED_BYTES, "the least GPU has no more");
    int64_t row_blocks = (a->of.rows + Tiles::ROWS - 1) / Tiles::ROWS, n = heads * row_blocks;
    return sy_launch_shared(attention_kernel<Tiles>, sy_row_blocks(n), Tiles::WARPS * SY_WARP,
                            attention_bytes<Tiles>(), stream, *a, (const T *)q, (const T *)k,
                            (const T *)v, masks, y, stats, row_blocks, n);
}

/* Few rows: the warps share the columns. Many blocks: each has twice the rows, and reads k and v half as often. */
template <typename T, int SIZE>
static int launch_narrow(struct CUstream_st *stream, const sy_math_attention *a, int64_t heads,
                         const void *q, const void *k, const void *v, const mask_pointers &masks,
                         void *y, float *stats)
{
    constexpr int WARPS = SY_ATTENTION_WARPS;
    using few = attention_narrow<attention_shape<T, SIZE, 1, WARPS, 64>>;
    using usual = attention_narrow<attention_shape<T, SIZE, 1, 1, SIZE <= 128 ? 64 : 32>>;
    if (a->of.rows <= few::ROWS)
        return launch<few>(stream, a, heads, q, k, v, masks, y, stats);
    if constexpr (SIZE <= 128) {
        using tall = attention_narrow<attention_shape<T, SIZE, 2, 1, 64>>;
        if (heads * ((a->of.rows + tall::ROWS - 1) / tall::ROWS) >= MANY_BLOCKS)
            return launch<tall>(stream, a, heads, q, k, v, masks, y, stats);
    }
    return launch<usual>(stream, a, heads, q, k, v, masks, y, stats);
}

template <template <typename> typename Tiles, int SIZE>
static int launch_float(struct CUstream_st *stream, const sy_math_attention *a, int64_t heads,
                        const void *q, const void *k, const void *v, const mask_pointers &masks,
                        void *y, float *stats)
{
    constexpr int WARPS = SY_ATTENTION_WARPS, PAIRS = WARPS > 1 ? 2 : 1;
    using few = Tiles<attention_shape<float, SIZE, 1, WARPS, SIZE <= 128 ? 64 : 32>>;
    using usual = Tiles<attention_shape<float, SIZE, 1, SIZE <= 128 ? 1 : PAIRS,
                                        SIZE <= 64    ? 64
                                        : SIZE <= 128 ? 32
                                                      : 16>>;
    if (a->of.rows <= few::ROWS)
        return launch<few>(stream, a, heads, q, k, v, masks, y, stats);
    return launch<usual>(stream, a, heads, q, k, v, masks, y, stats);
}

/* The statement with SIZE the least that there is of at least `size`. */
#define WITH_SIZE(size, SIZE, ...)    \
    do {                              \
        if ((size) <= 64) {           \
            constexpr int SIZE = 64;  \
            __VA_ARGS__;              \
        } else if ((size) <= 128) {   \
            constexpr int SIZE = 128; \
            __VA_ARGS__;              \
        } else {                      \
            constexpr int SIZE = 256; \
            __VA_ARGS__;              \
        }                             \
    } while (0)

int sy_kernel_attention(struct CUstream_st *stream, const struct sy_math_attention *a, bool tf32,
                        const void *q, const void *k, const void *v, const void *const *masks,
                        void *y, void *stats)
{
    int64_t heads = sy_elements(a->of.head_rank, a->of.head_dims),
            size = MOST_OF(a->of.depth, a->of.width);
    mask_pointers at = {};
    if (size > SY_MATH_ATTENTION_SIZE || (sy_math_is_narrow(a->y_type) && a->y_type != a->type))
        return cudaErrorInvalidValue;
    if (heads * a->of.rows * a->of.width == 0)
        return 0;
    for (int m = 0; m < a->of.n_masks; m++)
        at.at[m] = (void *)masks[m];
    if (a->type == SY_DTYPE_F16)
        WITH_SIZE(
            size, SIZE,
            return (launch_narrow<__half, SIZE>(stream, a, heads, q, k, v, at, y, (float *)stats)));
    else if (a->type == SY_DTYPE_BF16)
        WITH_SIZE(size, SIZE,
                  return (launch_narrow<__nv_bfloat16, SIZE>(stream, a, heads, q, k, v, at, y,
                                                             (float *)stats)));
    else if (tf32)
        WITH_SIZE(size, SIZE,
                  return (launch_float<attention_tf32, SIZE>(stream, a, heads, q, k, v, at, y,
                                                             (float *)stats)));
    else
        WITH_SIZE(size, SIZE,
                  return (launch_float<attention_float, SIZE>(stream, a, heads, q, k, v, at, y,
                                                              (float *)stats)));
}
