/* Runs CUDA kernels on the CPU, one at a time, on the thread that calls. See cuda_on_cpu.cuh for the kernels' side.
 *
 * A kernel is launched into a stream, which is a function that whoever opens it brings: it takes the launch and runs it when it likes.
 * Device pointers are host pointers with a mark, which makes following them a fault; kernels get them without. */
#ifndef SY_TESTS_CPU_LAUNCH_H
#define SY_TESTS_CPU_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_MARK (1ull << 62)
#define CPU_WARP 32u

struct cpu_dim {
    unsigned x, y, z;
};

struct cpu_position {
    struct cpu_dim thread, block, threads, blocks;
};

/* One kernel with its arguments. */
struct cpu_work {
    struct cpu_dim blocks;
    unsigned threads;
    unsigned shared_bytes;          /* what a block gets besides its named rooms */
    void (*call)(const void *body); /* of one thread */
    size_t bytes;
    const void *body; /* bytes of them; whoever keeps the work copies it */
};

struct CUstream_st {
    int (*take)(struct CUstream_st *stream, const struct cpu_work *work); /* CUDA's error number */
};

enum cpu_order { CPU_FORWARD, CPU_BACKWARD, CPU_SHUFFLED };

#ifdef __cplusplus
extern "C" {
#endif

extern struct cpu_position cpu_position; /* of the thread that runs */

/* Where blocks and threads of later runs come in turn; SHUFFLED is another order each time. FORWARD at first. */
void cpu_set_order(enum cpu_order order);

/* To its end. */
void cpu_run(const struct cpu_work *work);

/* Memory that device_view'd host memory is: device code may have these addresses without the mark. */
void cpu_allow(const void *memory, size_t bytes);
void cpu_forbid(const void *memory);

/* ---- for cuda_on_cpu.cuh ---- */
int cpu_launch(struct CUstream_st *stream, const struct cpu_work *work);
void *cpu_address(const void *device);
/* Until all threads of the block are here; whether any came with a flag. */
int cpu_barrier(const char *file, int line, int flag);
/* Until all threads of the warp are here. */
void cpu_warp_barrier(const char *file, int line);
/* Room that a block shares: all ones when it is first seen by a block. */
void cpu_shared(void *room, size_t bytes);
/* The launch's shared_bytes, all ones when the block begins. */
void *cpu_launched_room(void);

#ifdef __cplusplus
}
#endif

#endif
