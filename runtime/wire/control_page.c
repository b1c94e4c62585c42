#include "runtime/wire/control_page.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/printable.h"

/* A shared futex (no FUTEX_PRIVATE_FLAG): waiter and waker are different processes. An early return (signal, changed
 * word, spurious wake) is fine, since every caller looks at the word again. */
void sy_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / SY_NS_PER_S),
                               .tv_nsec = (long)(timeout_ns % SY_NS_PER_S)};
    struct timespec *bound = timeout_ns == UINT64_MAX ? NULL : &timeout;

    syscall(SYS_futex, (void *)word, FUTEX_WAIT, seen, bound, NULL, 0);
}

void sy_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void sy_page_set_longest(struct sy_control_page *page, uint64_t ns, const char *what)
{
    uint32_t version = atomic_load_explicit(&page->longest_version, memory_order_relaxed) & ~1u;
    atomic_store_explicit(&page->longest_version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&page->longest_layer_ns, ns, memory_order_relaxed);
    snprintf(page->longest_what, sizeof page->longest_what, "%s", what);
    atomic_store_explicit(&page->longest_version, version + 2, memory_order_release);
}

bool sy_page_longest(const struct sy_control_page *page, uint64_t *ns, char *what)
{
    uint32_t version = atomic_load_explicit(&page->longest_version, memory_order_acquire);
    *ns = atomic_load_explicit(&page->longest_layer_ns, memory_order_relaxed);
    memcpy(what, page->longest_what, SY_LONGEST_BYTES);
    what[SY_LONGEST_BYTES - 1] = '\0';
    sy_printable_make(what);
    atomic_thread_fence(memory_order_acquire);
    return !(version & 1) &&
           atomic_load_explicit(&page->longest_version, memory_order_relaxed) == version;
}
