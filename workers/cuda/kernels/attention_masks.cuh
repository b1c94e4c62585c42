/* Masks on a tile of scores, and tiles of which they leave nothing (kernels_attention.cu, kernels_attention_back.cu).
 *
 * A tile is empty if each of its scores is GONE or less by masks alone, whatever q and k are, as long as their products stay far from that
 * (they are TAME), and each row has had a score THERE: e to the power of the difference is 0, exactly. */
#ifndef SY_WORKERS_CUDA_ATTENTION_MASKS_CUH
#define SY_WORKERS_CUDA_ATTENTION_MASKS_CUH

#include "workers/cuda/kernels/attention_tiles.cuh"

#define LOG2_E 1.44269504f
#define GONE   -1e38f /* exporters write -infinity, or the least number */
#define THERE  -1e37f
/* The limits are 2^40 and the scale: 256 products of such numbers are less than 10^33. */
#define TAME_EXPONENT 167
#define TAME_SCALE    1048576.0f

using mask_pointers = sy_pointers<SY_ATTENTION_MASKS>;

/* Fewer rows and columns than the warp has may remain from its first on. */
struct attention_part {
    int64_t row, column;
    int64_t rows, columns;
};

/* Of one head. */
__device__ inline mask_pointers masks_of(const sy_attention &a, const mask_pointers &masks,
                                         int64_t head)
{
    mask_pointers own = masks;
    for (int m = 0; m < a.n_masks; m++) {
        int64_t offset = head_offset(a, a.masks[m], head);
        own.at[m] = a.kinds[m] == SY_MASK_ADD ? (void *)((float *)own.at[m] + offset)
                                              : (void *)((uint8_t *)own.at[m] + offset);
    }
    return own;
}

/* ---- on scores ---- */

/* A mask's strides along the warp's rows and columns. ACROSS: which are the columns and rows of the scores. */
struct mask_steps {
    int64_t row, column;
};
template <bool ACROSS> __device__ inline mask_steps steps_of(const sy_attention_view &view)
{
    return ACROSS ? mask_steps{view.column, view.row} : mask_steps{view.row, view.column};
}

/* mask: of the warp's first row and column. */
template <typename Tiles, typename Scores>
__device__ void add_mask(const mask_steps &step, const float *mask, const attention_part &part,
                         Scores &s)
{
#pragma unroll
    for (int j = 0; j < Tiles::SCORES; j++) {
        int column = Tiles::score_column(j);
        if (column >= part.columns)
            continue;
        const float *at = mask + column * step.column;
        float whole = step.row == 0 ? *at : 0;
#pragma unroll
        for (int i = 0; i < Tiles::LINES; i++)
            if (step.row == 0)
                s[i][j] += whole;
            else if (Tiles::row(i) < part.rows)
                s[i][j] += at[Tiles::row(i) * step.row];
    }
}

template <typename Tiles, typename Scores>
__device__ void fill_mask(const mask_steps &step, const uint8_t *mask, bool where, float fill,
                          const attention_part &part, Scores &s)
{
#pragma unroll
    for (int j = 0; j < Tiles::SCORES; j++) {
        int column = Tiles::score_column(j);
        if (column >= part.columns)
            continue;
        const uint8_t *at = mask + column * step.column;
        bool whole = step.row == 0 && (*at != 0) == where;
#pragma unroll
        for (int i = 0; i < Tiles::LINES; i++)
            if (step.row == 0
                    ? whole
                    : Tiles::row(i) < part.rows && (at[Tiles::row(i) * step.row] != 0) == where)
                s[i][j] = fill;
    }
}

/* A causal mask, which nothing is read for: scores at a row's number + n and behind get the fill, added or in their place. ACROSS: as above. */
template <typename Tiles, bool ACROSS, typename Scores>
__device__ void cut_scores(int64_t n, bool adds, float fill, const attention_part &part, Scores &s)
{
    const int64_t row = ACROSS ? part.column : part.row, column = ACROSS ? part.row : part.column;
    const int last = (ACROSS ? Tiles::WARP_ROWS : Tiles::OWN) - 1;
    if (column + last < row + n)
        return;
    const int ahead =
        (int)(row + n - column); /* of the warp's first row: so many columns are left */
#pragma unroll
    for (int i = 0; i < Tiles::LINES; i++)
#pragma unroll
        for (int j = 0; j < Tiles::SCORES; j++) {
            int r = ACROSS ? Tiles::score_column(j) : Tiles::row(i),
                c = ACROSS ? Tiles::row(i) : Tiles::score_column(j);
            if (c - r >= ahead)
                s[i][j] = adds ? s[i][j] + fill : fill;
        }
}

/* What lies behind the last column. */
template <typename Tiles, typename Scores>
__device__ void fill_behind(float fill, const attention_part &part, Scores &s)
{
    if (part.columns < Tiles::OWN)
#pragma unroll
        for (int j = 0; j < Tiles::SCORES; j++)
#pragma unroll
            for (int i = 0; i < Tiles::LINES; i++)
                if (Tiles::score_column(j) >= part.columns)
                    s[i][j] = fill;
}

/* masks: of the head. */
template <typename Tiles, bool ACROSS, typename Scores>
__device__ void mask_scores(const sy_attention &a, const mask_pointers &masks,
                            const attention_part &part, Scores &s)
{
#pragma unroll
    for (int i = 0; i < Tiles::LINES; i++)
#pragma unroll
        for (int j = 0; j < Tiles::SCORES; j++)
            s[i][j] *= a.scale;
    for (int m = 0; m < a.n_masks; m++) {
        mask_steps step = steps_of<ACROSS>(a.masks[m]);
        int64_t first = part.row * step.row + part.column * step.column;
        if (a.causal[m] > 0)
            cut_scores<Tiles, ACROSS>(a.causal[m], a.kinds[m] == SY_MASK_ADD, a.fills[m], part, s);
        else if (a.kinds[m] == SY_MASK_ADD)
            add_mask<Tiles>(step, (const float *)masks.at[m] + first, part, s);
        else
            fill_mask<Tiles>(step, (const uint8_t *)masks.at[m] + first, a.kinds[m] == SY_MASK_DROP,
                             a.fills[m], part, s);
    }
    fill_behind<Tiles>(-INFINITY, part, s);
}

/* What is subtracted from scores before exp: 0 while no score was seen. */
__device__ inline float base_of(float largest)
{
    return largest == -INFINITY ? 0 : largest;
}

/* The difference first: a mask of the least number must not become infinite. */
__device__ inline float soften(float score, float base)
{
    return sy_exp2((score - base) * LOG2_E);
}

/* ---- empty tiles ---- */

template <typename V> struct alignas(4 * sizeof(V)) four_of {
    V at[4];
};

/* n of at most 4, in one piece if they lie so. */
template <typename V> __device__ four_of<V> read_four(const V *from, int64_t step, int n)
{
    four_of<V> got = {};
    if (n == 4 && step == 1 && (uint64_t)from % sizeof got == 0)
        return *(const four_of<V> *)from;
    for (int i = 0; i < n; i++)
        got.at[i] = from[i * step];
    return got;
}

/* How many of `n` neighbours a causal mask takes. */
__device__ inline int cut_of(int64_t causal, int64_t row, int64_t column, int n)
{
    int64_t left = row + causal - column;
    return left >= n ? 0 : left > 0 ? n - (int)left : n;
}

/* What `n` neighbours, at most 4, of a score are at most, without q and k; NaN or more than GONE if that is not known. */
__device__ inline float most_left(const sy_attention &a, const mask_pointers &masks, int64_t row,
                                  int64_t column, int n)
{
    float most = 0;
    for (int m = 0; m < a.n_masks; m++) {
        const sy_attention_view &view = a.masks[m];
        int64_t at = row * view.row + column * view.column;
        if (a.causal[m] > 0 && a.kinds[m] == SY_MASK_ADD) {
            most += cut_of(a.causal[m], row, column, n) == n ? a.fills[m] : 0;
        } else if (a.kinds[m] == SY_MASK_ADD) {
            four_of<float> x = read_four((const float *)masks.at[m] + at, view.column, n);
            float added = -INFINITY;
            for (int i = 0; i < n; i++)
                added = x.at[i] != x.at[i] ? INFINITY : x.at[i] > added ? x.at[i] : added;
            most += added;
        } else {
            int gone = a.causal[m] > 0 ? cut_of(a.causal[m], row, column, n) : 0;
            four_of<uint8_t> x = {};
            if (a.causal[m] == 0)
                x = read_four((const uint8_t *)masks.at[m] + at, view.column, n);
            for (int i = 0; a.causal[m] == 0 && i < n; i++)
                gone += (x.at[i] != 0) == (a.kinds[m] == SY_MASK_DROP);
            if (gone == n || (gone > 0 && !(a.fills[m] <= most)))
                most = a.fills[m];
        }
    }
    return most;
}

/* Whether the thread's share of [rows, columns] scores from row and column on is gone. */
__device__ inline bool is_gone(const sy_attention &a, const mask_pointers &masks, int64_t row,
                               int64_t column, int rows, int columns)
{
    const int pieces = (columns + 3) / 4;
    bool by_row = false;
    for (int m = 0; m < a.n_masks; m++)
        by_row = by_row || a.masks[m].row != 0;
    for (int i = (int)threadIdx.x; i < (by_row ? rows : 1) * pieces; i += (int)blockDim.x) {
        int r = i / pieces, c = i % pieces * 4, n = columns - c < 4 ? columns - c : 4;
        if (!(most_left(a, masks, row + r, column + c, n) <= GONE))
            return false;
    }
    return true;
}

/* Where the exponents of the numbers in a word are: `step` is the least of it. */
template <typename T> struct exponents_of;
template <> struct exponents_of<float> {
    static constexpr uint32_t mask = 0x7f800000, step = 0x00800000, top = 0x80000000;
    static constexpr uint32_t tame = 256 - TAME_EXPONENT;
};
template <> struct exponents_of<__nv_bfloat16> {
    static constexpr uint32_t mask = 0x7f807f80, step = 0x00800080, top = 0x80008000;
    static constexpr uint32_t tame = 256 - TAME_EXPONENT;
};
template <> struct exponents_of<__half> { /* all are, that are finite */
    static constexpr uint32_t mask = 0x7c007c00, step = 0x04000400, top = 0x80008000;
    static constexpr uint32_t tame = 1;
};

/* Whether the exponents of the thread's share of a tile are below the last `steps` of them: 1: its numbers are finite. */
template <typename Tiles, int ROWS>
__device__ bool are_below(const typename Tiles::T *room, int padded, uint32_t steps)
{
    using E = exponents_of<typename Tiles::T>;
    constexpr int EACH = Tiles::EACH, PIECES = Tiles::SIZE / EACH;
    uint32_t over = 0;
    for (int i = (int)threadIdx.x; i < ROWS * PIECES; i += (int)blockDim.x) {
        int row = i / PIECES, column = i % PIECES * EACH;
        if (column >= padded)
            continue;
        uint4 x = *(const uint4 *)(room + row * Tiles::STRIDE + column);
        over |= (x.x & E::mask) + steps * E::step;
        over |= (x.y & E::mask) + steps * E::step;
        over |= (x.z & E::mask) + steps * E::step;
        over |= (x.w & E::mask) + steps * E::step;
    }
    return (over & E::top) == 0;
}

/* The same of lines in global memory. Eight threads have a line together. */
template <typename T>
__device__ bool lie_below(const T *from, int64_t line, int64_t step, int64_t lines, int64_t size,
                          uint32_t steps)
{
    using E = exponents_of<T>;
    constexpr int EACH = 16 / (int)sizeof(T), ABREAST = 8;
    const int first = (int)threadIdx.x / ABREAST, more = (int)blockDim.x / ABREAST;
    const bool whole = step == 1 && (uint64_t)from % 16 == 0 && size % EACH == 0 &&
                       (lines <= 1 || line * (int64_t)sizeof(T) % 16 == 0);
    uint32_t over = 0;
    for (int64_t c = threadIdx.x % ABREAST; whole && c < size / EACH; c += ABREAST)
#pragma unroll 4
        for (int64_t i = first; i < lines; i += more) {
            uint4 x = *(const uint4 *)(from + i * line + c * EACH);
            over |= (x.x & E::mask) + steps * E::step;
            over |= (x.y & E::mask) + steps * E::step;
            over |= (x.z & E::mask) + steps * E::step;
            over |= (x.w & E::mask) + steps * E::step;
        }
    for (int64_t i = threadIdx.x; !whole && i < lines * size; i += blockDim.x) {
        uint32_t bits = 0;
        memcpy(&bits, from + i / size * line + i % size * step, sizeof(T));
        over |= (bits & E::mask) + steps * E::step;
    }
    return (over & E::top) == 0;
}

#endif
