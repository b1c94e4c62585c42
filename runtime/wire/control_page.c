#include "runtime/wire/control_page.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"

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
