#include "tests/on_cpu/cpu_launch.h"
#include "tests/rigs/seed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#define MAX_THREADS 1024
#define MAX_ROOMS   32
#define MAX_ALLOWED 256
#define MOST_SHARED (99u << 10) /* that every GPU from sm_80 on has */
#ifdef SY_SANITIZED
#define STACK_BYTES (128u << 10)
#else
#define STACK_BYTES (32u << 10)
#endif

/* A thread of the block, with a stack of its own. */
struct fiber {
    unsigned thread;
    bool is_done, of_warp;
    const char *file; /* the barrier that it stands at, its warp's or the block's */
    int line;
#ifdef __x86_64__
    void *stack_pointer;
#else
    ucontext_t context;
#endif
};

struct room {
    void *at;
    uint64_t block;
};

struct cpu_position cpu_position;

static struct fiber fibers[MAX_THREADS], *running; /* NULL: not on a fiber */
static unsigned char *stacks;
static const struct cpu_work *current;
static int any_flag, last_flag; /* of the barrier that fills; of the one before */
static uint64_t blocks_run;     /* so far; names a block */
static struct room rooms[MAX_ROOMS];
static void *launched_room; /* of current */
static enum cpu_order order;
static uint64_t shuffle = 88172645463325252ull;

static struct {
    const void *at;
    size_t bytes;
} allowed[MAX_ALLOWED];

__attribute__((noreturn)) static void refuse(const char *what)
{
    fprintf(stderr, "cuda on cpu: block %u %u thread %u: %s\n", cpu_position.block.x,
            cpu_position.block.y, cpu_position.thread.x, what);
    abort();
}

/* ---- pointers ---- */

void cpu_allow(const void *memory, size_t bytes)
{
    int i = 0;
    while (i < MAX_ALLOWED && allowed[i].at)
        i++;
    if (i == MAX_ALLOWED)
        refuse("more blocks of mapped memory than the table has room for");
    allowed[i].at = memory;
    allowed[i].bytes = bytes;
}

void cpu_forbid(const void *memory)
{
    for (int i = 0; memory && i < MAX_ALLOWED; i++)
        if (allowed[i].at == memory)
            allowed[i].at = NULL;
}

void *cpu_address(const void *device)
{
    uintptr_t at = (uintptr_t)device;
    if (!device || (at & CPU_MARK))
        return (void *)(at & ~CPU_MARK);
    for (int i = 0; i < MAX_ALLOWED; i++)
        if (allowed[i].at && at - (uintptr_t)allowed[i].at < allowed[i].bytes)
            return (void *)at;
    refuse("a kernel was given memory that the device does not have");
}

/* ---- order ---- */

void cpu_set_order(enum cpu_order wanted)
{
    order = wanted;
}

/* A permutation of 0 to n - 1: from one to the next by a step that has no factor in common with n. */
struct turns {
    uint64_t n, next, step;
};

static uint64_t common_factor(uint64_t a, uint64_t b)
{
    return b == 0 ? a : common_factor(b, a % b);
}

static struct turns make_turns(uint64_t n)
{
    struct turns t = {n, 0, 1};
    if (order == CPU_BACKWARD)
        t = (struct turns){n, n - 1, n - 1};
    if (order == CPU_SHUFFLED) {
        (void)seed_next(&shuffle);
        t.next = (shuffle >> 32) % n;
        t.step = 1 + shuffle % 0xffff % n;
        while (common_factor(t.step, n) != 1)
            t.step = t.step % n + 1;
    }
    return t;
}

static unsigned take_turn(struct turns *t)
{
    uint64_t at = t->next;
    t->next += t->step;
    t->next -= t->next >= t->n ? t->n : 0;
    return (unsigned)at;
}

/* ---- fibers ---- */

static void fiber_main(void)
{
    current->call(current->body);
    running->is_done = true;
    cpu_barrier(NULL, 0, 0);
    abort(); /* never resumed */
}

#ifdef __x86_64__
/* swapcontext would make a call of the system, which takes a hundred times as long. Pushes what a function must preserve, and goes on
 * with the other stack where that did the same. */
void cpu_switch(void **save, void *load);
__asm__(".text\n"
        ".globl cpu_switch\n"
        ".hidden cpu_switch\n"
        ".type cpu_switch,@function\n"
        "cpu_switch:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size cpu_switch,.-cpu_switch\n");

static void *scheduler;

static void make_fiber(struct fiber *f, unsigned char *stack)
{
    void **top = (void **)(void *)(stack + STACK_BYTES) - 2; /* as after a call: 8 bytes off 16 */
    top[0] = (void *)fiber_main;
    top[1] = NULL;
    f->stack_pointer = top - 6;
}

static void enter(struct fiber *f)
{
    cpu_switch(&scheduler, f->stack_pointer);
}

static void leave(struct fiber *f)
{
    cpu_switch(&f->stack_pointer, scheduler);
}
#else
static ucontext_t scheduler;

static void make_fiber(struct fiber *f, unsigned char *stack)
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->context, fiber_main, 0);
}

static void enter(struct fiber *f)
{
    swapcontext(&scheduler, &f->context);
}

static void leave(struct fiber *f)
{
    swapcontext(&f->context, &scheduler);
}
#endif

static void start(unsigned thread)
{
    struct fiber *f = &fibers[thread];
    *f = (struct fiber){.thread = thread};
    /* Tops at equal places of their pages would share the same few lines of the cache. */
    make_fiber(f, stacks + (size_t)thread * STACK_BYTES - thread % 16 * 256);
}

/* To its next barrier, or its end. */
static void resume(unsigned thread)
{
    running = &fibers[thread];
    cpu_position.thread.x = thread;
    enter(running);
    running = NULL;
}

static void stand(const char *file, int line, bool of_warp)
{
    struct fiber *f = running;
    if (!f)
        refuse("a barrier that another thread of the block did not reach");
    f->file = file;
    f->line = line;
    f->of_warp = of_warp;
    leave(f);
}

int cpu_barrier(const char *file, int line, int flag)
{
    any_flag |= flag != 0;
    stand(file, line, false);
    return last_flag;
}

void cpu_warp_barrier(const char *file, int line)
{
    stand(file, line, true);
}

/* ---- blocks ---- */

void cpu_shared(void *at, size_t bytes)
{
    int i = 0;
    while (i < MAX_ROOMS && rooms[i].at && rooms[i].at != at)
        i++;
    if (i == MAX_ROOMS)
        refuse("more shared rooms than the table has room for");
    if (rooms[i].block == blocks_run)
        return;
    rooms[i] = (struct room){at, blocks_run};
    memset(at, 0xff, bytes);
}

void *cpu_launched_room(void)
{
    return launched_room;
}

/* The threads from `first` on are at one barrier, or have ended. */
static void check_agreed(unsigned first, unsigned end)
{
    const struct fiber *a = &fibers[first];
    for (unsigned i = first + 1; i < end; i++)
        if (fibers[i].is_done != a->is_done || fibers[i].line != a->line ||
            fibers[i].file != a->file) {
            cpu_position.thread.x = i;
            refuse("a barrier that another thread of the block did not reach");
        }
}

/* Warps that stand at a barrier of their own go on; if none does, all are at the block's, or have ended. Whether they have. */
static bool go_on(unsigned n)
{
    bool warps[MAX_THREADS / CPU_WARP], any = false;
    for (unsigned w = 0; w * CPU_WARP < n; w++) {
        unsigned first = w * CPU_WARP, end = first + CPU_WARP < n ? first + CPU_WARP : n;
        check_agreed(first, end);
        warps[w] = fibers[first].of_warp;
        any = any || warps[w];
    }
    if (!any) {
        check_agreed(0, n);
        if (fibers[0].is_done)
            return true;
        last_flag = any_flag;
        any_flag = 0;
    }
    struct turns t = make_turns(n);
    for (unsigned i = 0; i < n; i++) {
        unsigned thread = take_turn(&t);
        if (!any || warps[thread / CPU_WARP])
            resume(thread);
    }
    return false;
}

/* The first thread tells whether the block meets at barriers: CUDA wants all threads to. */
static void run_block(const struct cpu_work *work)
{
    struct turns t = make_turns(work->threads);
    unsigned first = take_turn(&t);
    blocks_run++;
    any_flag = 0;
    if (launched_room)
        memset(launched_room, 0xff, work->shared_bytes);
    start(first);
    resume(first);
    for (unsigned i = 1; i < work->threads; i++) {
        unsigned thread = take_turn(&t);
        if (fibers[first].is_done) {
            cpu_position.thread.x = thread;
            work->call(work->body);
        } else {
            start(thread);
            resume(thread);
        }
    }
    if (fibers[first].is_done)
        return;
    while (!go_on(work->threads))
        continue;
}

void cpu_run(const struct cpu_work *work)
{
    if (!stacks) { /* touched as far as they are used; until the process ends */
        void *at = mmap(NULL, (size_t)(MAX_THREADS + 1) * STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            refuse("no memory for stacks");
        madvise(at, (size_t)MAX_THREADS * STACK_BYTES, MADV_HUGEPAGE);
        stacks = (unsigned char *)at + STACK_BYTES; /* room for what the lowest is moved by */
    }
    uint64_t n = (uint64_t)work->blocks.x * work->blocks.y;
    struct turns t = make_turns(n);
    current = work;
    cpu_position.blocks = work->blocks;
    cpu_position.threads = (struct cpu_dim){work->threads, 1, 1};
    if (work->shared_bytes > 0 && !(launched_room = malloc(work->shared_bytes)))
        refuse("no memory for what its blocks share");
    for (uint64_t i = 0; i < n; i++) {
        unsigned block = take_turn(&t);
        cpu_position.block = (struct cpu_dim){block % work->blocks.x, block / work->blocks.x, 0};
        run_block(work);
    }
    free(launched_room);
    launched_room = NULL;
}

int cpu_launch(struct CUstream_st *stream, const struct cpu_work *work)
{
    struct cpu_dim blocks = work->blocks;
    if (blocks.x < 1 || blocks.x > 0x7fffffff || blocks.y < 1 || blocks.y > 65535 ||
        blocks.z != 1 || work->threads < 1 || work->threads > MAX_THREADS ||
        work->shared_bytes > MOST_SHARED)
        refuse("a launch that CUDA does not take");
    return stream->take(stream, work);
}
