/* Allocations of a process that was started with SY_FAULTS_ARM=FILE (and SY_FAULTS_IN, as in faults.c): the test arms it as it runs. FILE is mapped by all of
 * them and holds two 64-bit numbers: `left`, counted down by each allocation while it is positive; the one that takes it to 0 fails with ENOMEM. `n`, how
 * many were counted. Calls: malloc, calloc, realloc, posix_memalign, aligned_alloc, mmap of anonymous memory, memfd_create, and jemalloc's mallocx, from which
 * the tensor slab takes. C++'s new is a malloc. Before the process has read its environment nothing fails. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/faults/faults.h"

struct armed {
    _Atomic int64_t left, n;
};

static struct armed *armed;

void faults_arm(void)
{
    const char *path = getenv("SY_FAULTS_ARM");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at = fd >= 0 ? mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    armed = at != MAP_FAILED ? at : NULL;
}

/* libseccomp 2.5 turns in a loop for ever after an allocation of its own that failed. */
static bool is_spared(const void *caller)
{
    Dl_info of;
    return dladdr(caller, &of) && of.dli_fname && strstr(of.dli_fname, "/libseccomp.so");
}

bool faults_no_memory(const void *caller)
{
    if (!armed || atomic_load_explicit(&armed->left, memory_order_relaxed) <= 0)
        return false;
    atomic_fetch_add_explicit(&armed->n, 1, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&armed->left, 1, memory_order_relaxed) != 1)
        return false;
    if (is_spared(caller))
        return false;
    errno = ENOMEM;
    return true;
}

/* The next library's function; found at the first call, when one thread runs. */
#define REAL(name)                 \
    static __typeof__(&name) real; \
    if (!real)                     \
    real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

void *malloc(size_t n)
{
    REAL(malloc);
    return faults_no_memory(__builtin_return_address(0)) ? NULL : real(n);
}

void *calloc(size_t n, size_t each)
{
    REAL(calloc);
    return faults_no_memory(__builtin_return_address(0)) ? NULL : real(n, each);
}

void *realloc(void *p, size_t n)
{
    REAL(realloc);
    return n > 0 && faults_no_memory(__builtin_return_address(0)) ? NULL : real(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    REAL(aligned_alloc);
    return faults_no_memory(__builtin_return_address(0)) ? NULL : real(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    REAL(posix_memalign);
    return faults_no_memory(__builtin_return_address(0)) ? ENOMEM : real(out, align, n);
}

void *mallocx(size_t n, int flags);
void *mallocx(size_t n, int flags)
{
    REAL(mallocx);
    return faults_no_memory(__builtin_return_address(0)) ? NULL : real(n, flags);
}
