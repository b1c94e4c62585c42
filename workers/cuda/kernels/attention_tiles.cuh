/* How a warp computes its part of attention (kernels_attention.cu): which rows and columns of the scores and of the result a lane has, and the
 * two products, out of tiles in shared memory.
 *
 *   block   ROWS rows of q, COLUMNS columns of k and rows of v at a time, WARPS warps: ROW_WARPS beside each other down the rows, SPLIT of
 *           them along the columns, which are added up at the end
 *   warp    16 M rows, OWN of the columns
 *   stages  of tiles of k and v in shared memory: two, and the next tile comes while one is computed
 *   lane    s[LINES][SCORES] of the scores, o[LINES][RESULTS] of the result; a row is in LANES lanes, which differ in the lowest bits
 *
 * Rows of a tile are STRIDE elements apart, 16 bytes more than they are long: the eight rows that are read at once lie in different banks. */
#ifndef SY_WORKERS_CUDA_ATTENTION_TILES_CUH
#define SY_WORKERS_CUDA_ATTENTION_TILES_CUH

#include "workers/cuda/kernels/warp.cuh"

/* Where whole models run on the CPU a block is one warp. */
#define SY_ATTENTION_WARPS (SY_KERNEL_THREADS < 4 * SY_WARP ? 1 : 4)

template <typename T_, int SIZE_, int M_, int SPLIT_, int COLUMNS_, int STAGES_>
struct attention_shape {
    using T = T_;
    static constexpr int SIZE = SIZE_, M = M_, SPLIT = SPLIT_, COLUMNS = COLUMNS_, STAGES = STAGES_;
    static constexpr int WARPS = SY_ATTENTION_WARPS, ROW_WARPS = WARPS / SPLIT;
    static constexpr int WARP_ROWS = 16 * M, ROWS = WARP_ROWS * ROW_WARPS, OWN = COLUMNS / SPLIT;
    static constexpr int EACH = 16 / (int)sizeof(T), STRIDE = SIZE + EACH;
};

__device__ inline int lane_of()
{
    return (int)(threadIdx.x % SY_WARP);
}

/* ---- tiles into shared memory ---- */

/* rows x columns from `from` on, zeros behind up to ROWS and up to `padded` columns. */
template <typename Tiles, int ROWS>
__device__ void load_tile(typename Tiles::T *room, const typename Tiles::T *from,
                          int64_t row_stride, int64_t column_stride, int rows, int columns,
                          int padded)
{
    using T = typename Tiles::T;
    constexpr int EACH = Tiles::EACH, PIECES = Tiles::SIZE / EACH;
    if (column_stride == 1 && (uint64_t)from % 16 == 0 &&
        (rows <= 1 || row_stride * (int64_t)sizeof(T) % 16 == 0)) {
        for (int i = (int)threadIdx.x; i < ROWS * PIECES; i += (int)blockDim.x) {
            int row = i / PIECES, column = i % PIECES * EACH;
            int left = row < rows ? columns - column : 0;
            left = left < 0 ? 0 : left > EACH ? EACH : left;
            if (column < padded)
                sy_copy_async(room + row * Tiles::STRIDE + column,
                              left > 0 ? from + row * row_stride + column : from,
                              left * (int)sizeof(T));
        }
        return;
    }
    bool down = column_stride != 1; /* neighbours in memory are rows */
    for (int i = (int)threadIdx.x; i < ROWS * padded; i += (int)blockDim.x) {
        int row = down ? i % ROWS : i / padded, column = down ? i / ROWS : i % padded;
        room[row * Tiles::STRIDE + column] = row < rows && column < columns
                                                 ? from[row * row_stride + column * column_stride]
                                                 : sy_store<T>::of(0);
    }
}

__device__ inline int padded_to(int64_t size, int step)
{
    return ((int)size + step - 1) / step * step;
}

__device__ inline int64_t head_offset(const sy_attention &a, const sy_attention_view &view,
                                      int64_t head)
{
    int64_t offset = 0;
    for (int d = a.head_rank - 1; d >= 0; d--) {
        offset += head % a.head_dims[d] * view.heads[d];
        head /= a.head_dims[d];
    }
    return offset;
}

/* ---- tensor cores ---- */

/* The lane's rows and columns, as in warp.cuh. */
template <typename Shape> struct attention_tiles_of_8 : Shape {
    static constexpr int LINES = 2 * Shape::M, SCORES = Shape::OWN / 4, RESULTS = Shape::SIZE / 4;
    static constexpr int LANES = 4, OWN_ROOM = 0;

    __device__ static int row(int i)
    {
        return lane_of() / 4 + 8 * i;
    }
    __device__ static int score_column(int j)
    {
        return j / 2 * 8 + lane_of() % 4 * 2 + j % 2;
    }
    __device__ static int result_column(int j)
    {
        return score_column(j);
    }
};

/* float16 and bfloat16. */
template <typename Shape> struct attention_narrow : attention_tiles_of_8<Shape> {
    using Shape::M, Shape::OWN, Shape::STRIDE, Shape::SIZE;
    using typename Shape::T;
    static constexpr int DEPTH_STEP = 16, WIDTH_STEP = 16;

    /* q: the warp's first row; k: its first column. */
    template <typename Scores>
    __device__ static void scores(const T *q, const T *k, int depth, Scores &s)
    {
        const int lane = lane_of();
#pragma unroll
        for (int at = 0; at < SIZE; at += 16) {
            if (at >= depth)
                break;
            uint32_t a[M][4], b[4];
#pragma unroll
            for (int m = 0; m < M; m++)
                sy_load_tiles(a[m], q + (m * 16 + lane % 16) * STRIDE + at + lane / 16 * 8);
#pragma unroll
            for (int n = 0; n < OWN / 8; n += 2) {
                sy_load_tiles(b, k + (n * 8 + lane / 16 * 8 + lane % 8) * STRIDE + at +
                                     lane / 8 % 2 * 8);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    multiply(s, m, n, a[m], b[0], b[1]);
                    multiply(s, m, n + 1, a[m], b[2], b[3]);
                }
            }
        }
    }

    /* o += p v; v: the warp's first column of the scores. */
    template <typename Scores, typename Results>
    __device__ static void add_values(const Scores &p, const T *v, int width, T *, Results &o)
    {
        const int lane = lane_of();
#pragma unroll
        for (int k = 0; k < OWN / 16; k++) {
            uint32_t a[M][4], b[4];
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[m][i] = sy_pair<T>(p[2 * m + i % 2][4 * k + i / 2 * 2],
                                         p[2 * m + i % 2][4 * k + i / 2 * 2 + 1]);
#pragma unroll
            for (int n = 0; n < SIZE / 8; n += 2) {
                if (n * 8 >= width)
                    break;
                sy_load_tiles_transposed(b,
                                         v + (k * 16 + lane % 16) * STRIDE + n * 8 + lane / 16 * 8);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    multiply(o, m, n, a[m], b[0], b[1]);
                    multiply(o, m, n + 1, a[m], b[2], b[3]);
                }
            }
        }
    }

  private:
    template <typename Sums>
    __device__ static void multiply(Sums &c, int m, int n, const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1)
    {
        sy_tile_product<T>(c[2 * m][2 * n], c[2 * m][2 * n + 1], c[2 * m + 1][2 * n],
                           c[2 * m + 1][2 * n + 1], a, b0, b1);
    }
};

/* float32 rounded to TF32. The order in which a product adds is free: what a lane has of the scores is taken as the columns where the left
 * operand wants them, and the rows of v in the same order. */
template <typename Shape> struct attention_tf32 : attention_tiles_of_8<Shape> {
    using Shape::M, Shape::OWN, Shape::STRIDE, Shape::SIZE;
    static constexpr int DEPTH_STEP = 8, WIDTH_STEP = 8;

    template <typename Scores>
    __device__ static void scores(const float *q, const float *k, int depth, Scores &s)
    {
        const int line = lane_of() / 4, t = lane_of() % 4;
#pragma unroll
        for (int at = 0; at < SIZE; at += 8) {
            if (at >= depth)
                break;
            uint32_t a[M][4];
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[m][i] = sy_tf32(q[(m * 16 + line + i % 2 * 8) * STRIDE + at + t + i / 2 * 4]);
#pragma unroll
            for (int n = 0; n < OWN / 8; n++) {
                const float *from = k + (n * 8 + line) * STRIDE + at + t;
                uint32_t b0 = sy_tf32(from[0]), b1 = sy_tf32(from[4]);
#pragma unroll
                for (int m = 0; m < M; m++)
                    multiply(s, m, n, a[m], b0, b1);
            }
        }
    }

    template <typename Scores, typename Results>
    __device__ static void add_values(const Scores &p, const float *v, int width, float *,
                                      Results &o)
    {
        const int line = lane_of() / 4, t = lane_of() % 4;
#pragma unroll
        for (int k = 0; k < OWN / 8; k++) {
            uint32_t a[M][4];
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[m][i] = sy_tf32(p[2 * m + i % 2][2 * k + i / 2]);
#pragma unroll
            for (int n = 0; n < SIZE / 8; n++) {
                if (n * 8 >= width)
                    break;
                const float *from = v + (k * 8 + t * 2) * STRIDE + n * 8 + line;
                uint32_t b0 = sy_tf32(from[0]), b1 = sy_tf32(from[STRIDE]);
#pragma unroll
                for (int m = 0; m < M; m++)
                    multiply(o, m, n, a[m], b0, b1);
            }
        }
    }

  private:
    template <typename Sums>
    __device__ static void multiply(Sums &c, int m, int n, const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1)
    {
        sy_tile_product_tf32(c[2 * m][2 * n], c[2 * m][2 * n + 1], c[2 * m + 1][2 * n],
                             c[2 * m + 1][2 * n + 1], a, b0, b1);
    }
};

/* ---- float32 ---- */

/* A lane has rows lane / 8 and every fourth after it, and every eighth column from lane % 8 on; of the result, four columns side by side out of
 * each 32. The scores go through a room of the warp's own, PART columns at a time, which gives each lane the rows whole. With M = 2 a lane
 * multiplies 8 rows with what it reads of 8 columns: shared memory, 128 bytes a cycle, then feeds all multipliers; with M = 1 it does not. */
template <typename Shape> struct attention_float : Shape {
    using Shape::OWN, Shape::STRIDE, Shape::SIZE, Shape::M;
    static constexpr int LINES = 4 * M, SCORES = OWN / 8, RESULTS = SIZE / 8, LANES = 8;
    static constexpr int DEPTH_STEP = 4, WIDTH_STEP = 32;
    static constexpr int PART = M > 1 && OWN > 32 ? 32 : OWN;
    static constexpr int OWN_STRIDE = PART + 4,
                         OWN_ROOM = 16 * M * OWN_STRIDE; /* elements a warp */

    __device__ static int row(int i)
    {
        return lane_of() / 8 + 4 * i;
    }
    __device__ static int score_column(int j)
    {
        return lane_of() % 8 + 8 * j;
    }
    __device__ static int result_column(int j)
    {
        return j / 4 * 32 + lane_of() % 8 * 4 + j % 4;
    }

    template <typename Scores>
    __device__ static void scores(const float *q, const float *k, int depth, Scores &s)
    {
        for (int at = 0; at < depth; at += 4) {
            float4 rows[LINES];
#pragma unroll
            for (int i = 0; i < LINES; i++)
                rows[i] = *(const float4 *)(q + row(i) * STRIDE + at);
#pragma unroll
            for (int j = 0; j < SCORES; j++) {
                float4 b = *(const float4 *)(k + score_column(j) * STRIDE + at);
#pragma unroll
                for (int i = 0; i < LINES; i++) {
                    s[i][j] += rows[i].x * b.x;
                    s[i][j] += rows[i].y * b.y;
                    s[i][j] += rows[i].z * b.z;
                    s[i][j] += rows[i].w * b.w;
                }
            }
        }
    }

    template <typename Scores, typename Results>
    __device__ static void add_values(const Scores &p, const float *v, int width, float *own,
                                      Results &o)
    {
#pragma unroll
        for (int part = 0; part < OWN; part += PART) {
#pragma unroll
            for (int i = 0; i < LINES; i++)
#pragma unroll
                for (int j = 0; j < PART / 8; j++)
                    own[row(i) * OWN_STRIDE + score_column(j)] = p[i][part / 8 + j];
            sy_warp_barrier();
            add_part(own, v + part * STRIDE, width, o);
            sy_warp_barrier();
        }
    }

  private:
    template <typename Results>
    __device__ static void add_part(const float *own, const float *v, int width, Results &o)
    {
        for (int k = 0; k < PART; k += 4) {
            float4 rows[LINES];
#pragma unroll
            for (int i = 0; i < LINES; i++)
                rows[i] = *(const float4 *)(own + row(i) * OWN_STRIDE + k);
            add_line<0>(rows, v + k * STRIDE, width, o);
            add_line<1>(rows, v + (k + 1) * STRIDE, width, o);
            add_line<2>(rows, v + (k + 2) * STRIDE, width, o);
            add_line<3>(rows, v + (k + 3) * STRIDE, width, o);
        }
    }

    template <int WHICH> __device__ static float pick(const float4 &x)
    {
        return WHICH == 0 ? x.x : WHICH == 1 ? x.y : WHICH == 2 ? x.z : x.w;
    }

    template <int WHICH, typename Results>
    __device__ static void add_line(const float4 (&rows)[LINES], const float *v, int width,
                                    Results &o)
    {
#pragma unroll
        for (int j = 0; j < RESULTS; j += 4) {
            if (j * 8 >= width)
                break;
            float4 b = *(const float4 *)(v + result_column(j));
#pragma unroll
            for (int i = 0; i < LINES; i++) {
                float a = pick<WHICH>(rows[i]);
                o[i][j] += a * b.x;
                o[i][j + 1] += a * b.y;
                o[i][j + 2] += a * b.z;
                o[i][j + 3] += a * b.w;
            }
        }
    }
};

#endif
