/* What workers/cuda/kernels/warp.cuh has of a warp, for the CPU, by the same definitions: lanes leave their operands in a table, meet, and each takes what
 * it needs of the others'. A copy that CUDA may do later is done as late as it may: when it is waited for. */
#ifndef SY_TESTS_WARP_ON_CPU_CUH
#define SY_TESTS_WARP_ON_CPU_CUH

#include <cfloat>
#include <cmath>
#include <cstdio>

#define CPU_THREADS     1024
#define CPU_MOST_COPIES 256

inline void cpu_demand(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "cuda on cpu: thread %u: %s\n", threadIdx.x, what);
    abort();
}

/* ---- shared memory ---- */

struct cpu_copies {
    int n, committed;
    struct {
        void *to;
        const void *from;
        int bytes;
    } list[CPU_MOST_COPIES];
};
inline cpu_copies cpu_copies_of[CPU_THREADS];

inline unsigned char *sy_launched_room()
{
    return (unsigned char *)cpu_launched_room();
}

inline void sy_copy_async(void *shared, const void *from, int bytes)
{
    cpu_copies *c = &cpu_copies_of[threadIdx.x];
    cpu_demand((uintptr_t)shared % 16 == 0 && (uintptr_t)from % 16 == 0 && bytes >= 0 &&
                   bytes <= 16,
               "a copy that is not aligned");
    cpu_demand(c->n < CPU_MOST_COPIES, "more copies than the table has room for");
    c->list[c->n++] = {shared, from, bytes};
}

inline void sy_copy_commit()
{
    cpu_copies_of[threadIdx.x].committed = cpu_copies_of[threadIdx.x].n;
}

inline void sy_copy_wait()
{
    cpu_copies *c = &cpu_copies_of[threadIdx.x];
    cpu_demand(c->committed == c->n, "a wait for copies that are in no group");
    for (int i = 0; i < c->n; i++) {
        memset(c->list[i].to, 0, 16);
        memcpy(c->list[i].to, c->list[i].from, (size_t)c->list[i].bytes);
    }
    c->n = c->committed = 0;
}

/* ---- between lanes ---- */

inline void cpu_meet(int line)
{
    cpu_warp_barrier(__FILE__, line);
}
#define sy_warp_barrier() cpu_meet(__LINE__)

inline float sy_exp2(float x)
{
    float y = exp2f(x);
    return y < FLT_MIN ? 0 : y;
}

/* What each lane of the warp brought. The table is not written again before all lanes have met once more: there are two, in turn. */
template <typename V> const V *cpu_exchange(const V &mine)
{
    static V tables[2][CPU_THREADS];
    static unsigned char turns[CPU_THREADS];
    unsigned at = threadIdx.x, turn = turns[at]++ & 1;
    tables[turn][at] = mine;
    cpu_meet(__LINE__);
    return &tables[turn][at / CPU_WARP * CPU_WARP];
}

inline float sy_lane_xor(float value, int mask)
{
    return cpu_exchange(value)[(threadIdx.x % CPU_WARP) ^ (unsigned)mask];
}

/* ---- tiles ---- */

inline void sy_load_tiles(uint32_t (&to)[4], const void *row)
{
    unsigned lane = threadIdx.x % CPU_WARP;
    cpu_demand((uintptr_t)row % 16 == 0, "a row of a tile that is not aligned");
    const void *const *rows = cpu_exchange(row);
    for (unsigned i = 0; i < 4; i++)
        memcpy(&to[i], (const uint32_t *)rows[i * 8 + lane / 4] + lane % 4, sizeof to[i]);
}

inline void sy_load_tiles_transposed(uint32_t (&to)[4], const void *row)
{
    unsigned lane = threadIdx.x % CPU_WARP;
    cpu_demand((uintptr_t)row % 16 == 0, "a row of a tile that is not aligned");
    const void *const *rows = cpu_exchange(row);
    for (unsigned i = 0; i < 4; i++) {
        uint32_t low = ((const uint16_t *)rows[i * 8 + lane % 4 * 2])[lane / 4],
                 high = ((const uint16_t *)rows[i * 8 + lane % 4 * 2 + 1])[lane / 4];
        to[i] = low | high << 16;
    }
}

struct cpu_operands {
    uint32_t a[4], b[2];
};

template <typename T> float cpu_half_of(uint32_t pair, unsigned which)
{
    T x;
    x.bits = (uint16_t)(pair >> 16 * which);
    return sy_wide(x);
}

template <typename T>
void sy_tile_product(float &c0, float &c1, float &c2, float &c3, const uint32_t (&a)[4],
                     uint32_t b0, uint32_t b1)
{
    const cpu_operands *all = cpu_exchange(cpu_operands{{a[0], a[1], a[2], a[3]}, {b0, b1}});
    unsigned lane = threadIdx.x % CPU_WARP;
    float *c[4] = {&c0, &c1, &c2, &c3};
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = lane / 4, column = lane % 4 * 2 + i % 2;
        float sum = 0;
        for (unsigned k = 0; k < 16; k++)
            sum += cpu_half_of<T>(all[row * 4 + k % 8 / 2].a[i / 2 + k / 8 * 2], k % 2) *
                   cpu_half_of<T>(all[column * 4 + k % 8 / 2].b[k / 8], k % 2);
        *c[i] += sum;
    }
}

/* Halves go away from zero. */
inline uint32_t sy_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000) == 0x7f800000)
        return bits;
    return (bits + 0x1000) & ~0x1fffu;
}

inline void sy_tile_product_tf32(float &c0, float &c1, float &c2, float &c3, const uint32_t (&a)[4],
                                 uint32_t b0, uint32_t b1)
{
    const cpu_operands *all = cpu_exchange(cpu_operands{{a[0], a[1], a[2], a[3]}, {b0, b1}});
    unsigned lane = threadIdx.x % CPU_WARP;
    float *c[4] = {&c0, &c1, &c2, &c3};
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = lane / 4, column = lane % 4 * 2 + i % 2;
        float sum = 0;
        for (unsigned k = 0; k < 8; k++)
            sum += __uint_as_float(all[row * 4 + k % 4].a[i / 2 + k / 4 * 2]) *
                   __uint_as_float(all[column * 4 + k % 4].b[k / 4]);
        *c[i] += sum;
    }
}

#endif
