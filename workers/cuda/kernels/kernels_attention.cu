/* Attention without its scores in memory: a block has some rows of q, goes over the columns tile by tile, and keeps of each row the largest score so
 * far, the sum of what is softened against it, and the result so far, which are scaled down when a larger score comes. The method is that of
 * Dao, Fu, Ermon, Rudra, Re: FlashAttention (2022), the sums that of Milakov, Gimelshein: Online normalizer calculation for softmax (2018).
 *
 * Rows without any score but -infinity, and rows with NaN or +infinity, become NaN, as the softmax has it; with zero_nan, zeros. A score that is
 * masked is multiplied all the same: what lies in v as NaN or infinity is NaN in the result.
 *
 * Equal bits each time (M3): a row's columns are taken in one order, which only depends on how many heads, rows and columns there are. */
#include "workers/cuda/kernels/attention_masks.cuh"

#define DEAD          -1.0f
#define FAR           128.0f /* ex2.approx.ftz gives 0 from e^-87.4 on; the rest is for rounding */
#define PROCESSORS    132    /* of an H200 */
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
            top = fmaxf(s[i][j], top); /* not NaN */
#pragma unroll
        for (int mask = 1; mask < Tiles::LANES; mask *= 2)
            top = fmaxf(sy_lane_xor(top, mask), top);
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
    const int width = (int)a.width, n = (int)(rows < Tiles::ROWS ? rows : Tiles::ROWS);
    for (int row = (int)threadIdx.x / SY_WARP; row < n; row += Tiles::WARPS)
        for (int column = lane_of(); column < width; column += SY_WARP) {
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
    using T = typename Tiles::T;
    T q[Tiles::ROWS * Tiles::STRIDE], k[Tiles::STAGES][Tiles::COLUMNS * Tiles::STRIDE],
        v[Tiles::STAGES][Tiles::COLUMNS * Tiles::STRIDE];
    T own[Tiles::WARPS * Tiles::OWN_ROOM + (Tiles::OWN_ROOM == 0)];
};

template <typename Tiles> constexpr size_t attention_bytes()
{
    return MOST_OF(sizeof(attention_room<Tiles>), sizeof(attention_results<Tiles>));
}

/* ---- empty tiles ---- */

/* Tests one score first: the first column of the last row, which causal masks and masks of lengths are the last to mask. */
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
                                const attention_room<Tiles> *room, int stage, int64_t row,
                                int64_t column, int depth, int width, bool there)
{
    using E = exponents_of<typename Tiles::T>;
    int rows = (int)(a.rows - row < Tiles::ROWS ? a.rows - row : Tiles::ROWS);
    int columns = (int)(a.columns - column < Tiles::COLUMNS ? a.columns - column : Tiles::COLUMNS);
    bool gone = there && fabsf(a.scale) <= TAME_SCALE &&
                is_gone(a, masks, row, column, rows, columns) &&
                are_below<Tiles, Tiles::ROWS>(room->q, depth, E::tame) &&
                are_below<Tiles, Tiles::COLUMNS>(room->k[stage], depth, E::tame);
    sy_copy_wait();
    if (__syncthreads_or(!gone))
        return false;
    bool odd = !are_below<Tiles, Tiles::COLUMNS>(room->v[stage], width, 1);
    return !__syncthreads_or(odd);
}

/* ---- a block ---- */

/* The state of a block; all of its threads take each step together. q, k, v, masks: of its head. */
template <typename Tiles> struct attention_block {
    using T = typename Tiles::T;
    static constexpr int STAGES = Tiles::STAGES;
    const sy_attention &a;
    attention_room<Tiles> *room;
    const T *q, *k, *v;
    mask_pointers masks;
    int64_t first; /* of its rows */
    int depth, width;

    __device__ static int split()
    {
        return (int)threadIdx.x / SY_WARP % Tiles::SPLIT;
    }
    __device__ static int own_row()
    {
        return (int)threadIdx.x / SY_WARP / Tiles::SPLIT * Tiles::WARP_ROWS;
    }

    __device__ void load_queries()
    {
        int64_t left = a.rows - first;
        load_tile<Tiles, Tiles::ROWS>(room->q, q + first * a.q.row, a.q.row, a.q.column,
                                      (int)(left < Tiles::ROWS ? left : Tiles::ROWS), (int)a.depth,
                                      depth);
    }
    __device__ int left(int64_t at)
    {
        return (int)(a.columns - at < Tiles::COLUMNS ? a.columns - at : Tiles::COLUMNS);
    }
    __device__ void load_keys(int64_t at, int stage)
    {
        load_tile<Tiles, Tiles::COLUMNS>(room->k[stage], k + at * a.k.column, a.k.column, a.k.row,
                                         left(at), (int)a.depth, depth);
    }
    __device__ void load_values(int64_t at, int stage)
    {
        load_tile<Tiles, Tiles::COLUMNS>(room->v[stage], v + at * a.v.row, a.v.row, a.v.column,
                                         left(at), (int)a.width, width);
    }
    /* What is loaded before the tile is computed; with one stage its values are loaded while its scores are computed. */
    __device__ void load_next(int64_t at, int64_t end, int stage)
    {
        if (at < end)
            load_keys(at, stage);
        if (at < end && STAGES > 1)
            load_values(at, stage);
        sy_copy_commit();
    }

    /* Up to where a causal mask, the only mask, leaves the block's rows columns. */
    __device__ int64_t likely_end()
    {
        int64_t last = first + Tiles::ROWS < a.rows ? first + Tiles::ROWS : a.rows;
        int64_t end = a.n_masks == 1 && a.causal[0] > 0 ? last - 1 + a.causal[0] : a.columns;
        return end < a.columns ? end : a.columns;
    }

    /* Whether all columns from `at` on, which likely_end leaves out, change nothing of the block's results: e to the power of what they have less
     * is 0, exactly, and so is that times v. Each row has had its scores; the first of a SPLIT has some of each row. The same for all threads. */
    __device__ bool is_behind(int64_t at, const float (&largest)[Tiles::LINES])
    {
        using E = exponents_of<T>;
        const bool adds = a.kinds[0] == SY_MASK_ADD;
        const float fill = a.fills[0];
        bool gone = !adds || (fill <= GONE && fabsf(a.scale) <= TAME_SCALE);
#pragma unroll
        for (int i = 0; i < Tiles::LINES; i++)
            if (split() == 0 && first + own_row() + Tiles::row(i) < a.rows)
                gone = gone && (adds ? largest[i] > THERE : largest[i] > fill + FAR);
        if (__syncthreads_or(!gone))
            return false;
        gone = lie_below(v + at * a.v.row, a.v.row, a.v.column, a.columns - at, a.width, 1);
        if (adds && gone)
            gone = are_below<Tiles, Tiles::ROWS>(room->q, depth, E::tame) &&
                   lie_below(k + at * a.k.column, a.k.column, a.k.row, a.columns - at, a.depth,
                             E::tame);
        return !__syncthreads_or(!gone);
    }

    /* The tile's keys are there, and with two stages its values. */
    template <typename Results>
    __device__ void add_tile(int64_t at, int64_t end, int stage, float (&largest)[Tiles::LINES],
                             float (&sums)[Tiles::LINES], Results &o)
    {
        const int64_t row = first + own_row(), column = at + split() * Tiles::OWN;
        const attention_part part = {row, column, a.rows - row, a.columns - column};
        const bool looks = at > 0 && may_be_empty<Tiles>(a, masks, first, at);
        bool works = part.rows > 0 && part.columns > 0;
        float s[Tiles::LINES][Tiles::SCORES] = {};
        if (looks)
            works = !is_empty<Tiles>(a, masks, room, stage, first, at, depth, width,
                                     !works || all_there<Tiles>(part, largest)) &&
                    works;
        if (works) {
            Tiles::scores(room->q + own_row() * Tiles::STRIDE,
                          room->k[stage] + split() * Tiles::OWN * Tiles::STRIDE, depth, s);
            mask_scores<Tiles, false>(a, masks, part, s);
            soften_scores<Tiles>(largest, sums, s, o);
        }
        if (STAGES == 1) {
            sy_copy_wait();
            __syncthreads(); /* values are there; the keys are read */
            load_next(at + Tiles::COLUMNS, end, 0);
        }
        if (works)
            Tiles::add_values(s, room->v[stage] + split() * Tiles::OWN * Tiles::STRIDE, width,
                              room->own + (int)threadIdx.x / SY_WARP * Tiles::OWN_ROOM, o);
    }

    template <typename Results>
    __device__ void add_all(float (&largest)[Tiles::LINES], float (&sums)[Tiles::LINES], Results &o)
    {
        int64_t end = likely_end();
        int stage = 0;
        load_queries();
        load_next(0, end, 0);
        for (int64_t at = 0; at < end; at += Tiles::COLUMNS) {
            const int64_t next = at + Tiles::COLUMNS;
            sy_copy_wait();
            __syncthreads(); /* the tile is there; the one before is read */
            if (STAGES > 1) {
                load_next(next, end, 1 - stage);
            } else {
                load_values(at, 0);
                sy_copy_commit();
            }
            add_tile(at, end, stage, largest, sums, o);
            if (STAGES > 1)
                stage = 1 - stage;
            if (next >= end && next < a.columns && !is_behind(next, largest)) {
                end = a.columns;
                load_next(next, end, stage);
            }
        }
        sy_copy_wait();
        __syncthreads(); /* all tiles are read */
    }
};

/* A block of rows after the other. With a causal mask the longest blocks of all heads are first: the last to end are short. */
template <typename Tiles>
__global__ static void __launch_bounds__(Tiles::WARPS *SY_WARP)
    attention_kernel(const __grid_constant__ sy_math_attention attention,
                     const typename Tiles::T *q, const typename Tiles::T *k,
                     const typename Tiles::T *v, const __grid_constant__ mask_pointers masks,
                     void *y, float *stats, int64_t row_blocks, int64_t heads)
{
    using T = typename Tiles::T;
    const sy_attention &a = attention.of;
    auto *results = (attention_results<Tiles> *)sy_launched_room();
    const bool longest_first = a.n_masks == 1 && a.causal[0] > 0;
    for (int64_t i = blockIdx.x; i < heads * row_blocks; i += gridDim.x) {
        int64_t head = longest_first ? i % heads : i / row_blocks,
                first = (longest_first ? row_blocks - 1 - i / heads : i % row_blocks) * Tiles::ROWS;
        attention_block<Tiles> b = {a,
                                    (attention_room<Tiles> *)sy_launched_room(),
                                    q + head_offset(a, a.q, head),
                                    k + head_offset(a, a.k, head),
                                    v + head_offset(a, a.v, head),
                                    masks_of(a, masks, head),
                                    first,
                                    padded_to(a.depth, Tiles::DEPTH_STEP),
                                    padded_to(a.width, Tiles::WIDTH_STEP)};
        float o[Tiles::LINES][Tiles::RESULTS] = {}, sums[Tiles::LINES] = {}, largest[Tiles::LINES];
#pragma unroll
        for (int line = 0; line < Tiles::LINES; line++)
            largest[line] = -INFINITY;
        __syncthreads(); /* the results of the block before are written */
        b.add_all(largest, sums, o);
        leave_results<Tiles>(results, b.split(), b.own_row(), largest, sums, o);
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
    int64_t row_blocks = (a->of.rows + Tiles::ROWS - 1) / Tiles::ROWS;
    return sy_launch_shared(attention_kernel<Tiles>, sy_row_blocks(heads * row_blocks),
                            Tiles::WARPS * SY_WARP, attention_bytes<Tiles>(), stream, *a,
                            (const T *)q, (const T *)k, (const T *)v, masks, y, stats, row_blocks,
                            heads);
}

enum blocks_of { BLOCKS_OF_16, BLOCKS_OF_32, BLOCKS_OF_64, BLOCKS_OF_128, N_BLOCKS_OF };

/* Blocks of how many rows end first. A row of a small block is dearer: k and v are read more often, and a lane multiplies less with what it reads;
 * a multiprocessor that has one block only waits for memory. But one that has a block more than the others has all wait. */
static enum blocks_of choose_blocks(int64_t heads, int64_t rows)
{
    static const double a_row[N_BLOCKS_OF] = {1.35, 1.1, 1, 0.8};
    double least = INFINITY;
    enum blocks_of best = BLOCKS_OF_64;
    for (int i = 0; i < N_BLOCKS_OF; i++) {
        int64_t size = (int64_t)16 << i, blocks = heads * ((rows + size - 1) / size),
                each = (blocks + PROCESSORS - 1) / PROCESSORS;
        double cost = (double)(each * size) * a_row[i] * (each == 1 ? 1.3 : 1);
        if (cost < least) {
            least = cost;
            best = (enum blocks_of)i;
        }
    }
    return best;
}

/* Of 16 and of 32 rows, the warps share the columns. */
template <typename T, int SIZE>
static int launch_narrow(struct CUstream_st *stream, const sy_math_attention *a, int64_t heads,
                         const void *q, const void *k, const void *v, const mask_pointers &masks,
                         void *y, float *stats)
{
    constexpr int WARPS = SY_ATTENTION_WARPS, PAIRS = WARPS > 1 ? 2 : 1,
                  STAGES = SIZE <= 64 ? 2 : 1;
    using of_16 = attention_narrow<attention_shape<T, SIZE, 1, WARPS, 64, STAGES>>;
    using of_64 = attention_narrow<attention_shape<T, SIZE, 1, 1, SIZE <= 128 ? 64 : 32, STAGES>>;
    const enum blocks_of blocks = choose_blocks(heads, a->of.rows);
    if (a->of.rows <= of_16::ROWS || blocks == BLOCKS_OF_16)
        return launch<of_16>(stream, a, heads, q, k, v, masks, y, stats);
    if constexpr (SIZE <= 128) {
        using of_32 = attention_narrow<attention_shape<T, SIZE, 1, PAIRS, 64, STAGES>>;
        using of_128 = attention_narrow<attention_shape<T, SIZE, 2, 1, 64, STAGES>>;
        if (blocks == BLOCKS_OF_32)
            return launch<of_32>(stream, a, heads, q, k, v, masks, y, stats);
        if (blocks == BLOCKS_OF_128)
            return launch<of_128>(stream, a, heads, q, k, v, masks, y, stats);
    }
    return launch<of_64>(stream, a, heads, q, k, v, masks, y, stats);
}

template <template <typename> typename Tiles, int SIZE>
static int launch_float(struct CUstream_st *stream, const sy_math_attention *a, int64_t heads,
                        const void *q, const void *k, const void *v, const mask_pointers &masks,
                        void *y, float *stats)
{
    constexpr int WARPS = SY_ATTENTION_WARPS, PAIRS = WARPS > 1 ? 2 : 1;
    using of_16 = Tiles<attention_shape<float, SIZE, 1, WARPS, SIZE <= 128 ? 64 : 32, 1>>;
    using of_64 = Tiles<attention_shape<float, SIZE, 1, SIZE <= 128 ? 1 : PAIRS,
                                        SIZE <= 64    ? 64
                                        : SIZE <= 128 ? 32
                                                      : 16,
                                        1>>;
    const enum blocks_of blocks = choose_blocks(heads, a->of.rows);
    if (a->of.rows <= of_16::ROWS || blocks == BLOCKS_OF_16)
        return launch<of_16>(stream, a, heads, q, k, v, masks, y, stats);
    if constexpr (SIZE <= 64) {
        using of_32 = Tiles<attention_shape<float, SIZE, 1, PAIRS, 64, 1>>;
        using of_128 = Tiles<attention_shape<float, SIZE, 2, 1, 64, 1>>;
        if (blocks == BLOCKS_OF_32)
            return launch<of_32>(stream, a, heads, q, k, v, masks, y, stats);
        if (blocks == BLOCKS_OF_128)
            return launch<of_128>(stream, a, heads, q, k, v, masks, y, stats);
    }
    return launch<of_64>(stream, a, heads, q, k, v, masks, y, stats);
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
