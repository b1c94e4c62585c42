#include "runtime/cli/train/script_gate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/wire/control_page.h"

#define VARIABLE "SWITCHYARD_SCRIPT_PAGE"

static void enter(void *gate)
{
    sy_script_gate_enter(gate);
}

static void leave(void *gate)
{
    sy_script_gate_leave(gate);
}

static int map(const char *path, struct sy_script_page **out)
{
    struct stat file;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return sy_error_set(SY_ENOTFOUND,
                            VARIABLE " names %s: %s; the job's 'switchyard run' is gone, or on "
                                     "another machine",
                            path, strerror(errno));
    void *page = fstat(fd, &file) == 0 && file.st_size >= (off_t)SY_SCRIPT_PAGE_BYTES
                     ? mmap(NULL, SY_SCRIPT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    close(fd);
    if (page == MAP_FAILED || ((struct sy_script_page *)page)->magic != SY_SCRIPT_MAGIC) {
        if (page != MAP_FAILED)
            munmap(page, SY_SCRIPT_PAGE_BYTES);
        return sy_error_set(SY_ECORRUPT,
                            VARIABLE " names %s, which is no script page of this version", path);
    }
    *out = page;
    return SY_OK;
}

int sy_script_gate_open(struct sy_script_gate *gate)
{
    const char *path = getenv(VARIABLE);
    *gate = (struct sy_script_gate){.gate = {.enter = enter, .leave = leave, .ctx = gate}};
    return path && *path ? map(path, &gate->page) : SY_OK;
}

void sy_script_gate_close(struct sy_script_gate *gate)
{
    if (gate->page)
        munmap(gate->page, SY_SCRIPT_PAGE_BYTES);
    gate->page = NULL;
}

/* G1 */
void sy_script_gate_enter(struct sy_script_gate *gate)
{
    struct sy_script_page *page = gate->page;
    while (page) {
        atomic_fetch_add(&page->busy, 1);
        uint32_t seen = atomic_load(&page->gate);
        if (!(seen & 1))
            return;
        sy_script_gate_leave(gate);
        sy_futex_wait(&page->gate, seen, UINT64_MAX);
    }
}

void sy_script_gate_leave(struct sy_script_gate *gate)
{
    struct sy_script_page *page = gate->page;
    if (page && atomic_fetch_sub(&page->busy, 1) == 1 && (atomic_load(&page->gate) & 1))
        sy_futex_wake(&page->busy);
}

bool sy_script_gate_is_closed(const struct sy_script_gate *gate)
{
    return gate->page && (atomic_load(&gate->page->gate) & 1);
}

void sy_script_gate_show(struct sy_script_gate *gate, uint64_t step, uint64_t total_steps,
                         double loss)
{
    struct sy_script_page *page = gate->page;
    uint64_t bits;
    if (!page)
        return;
    memcpy(&bits, &loss, sizeof bits);
    if (atomic_load(&page->owner) != (uint32_t)getpid())
        atomic_store(&page->owner_started, 0); /* that of the process before */
    atomic_store(&page->owner, (uint32_t)getpid());
    atomic_store(&page->hook, SY_SCRIPT_HOOK_OPERATORS);
    atomic_store(&page->total_steps, total_steps);
    atomic_store(&page->loss_bits, bits);
    atomic_store(&page->step, step);
}

void sy_script_gate_reset(struct sy_script_gate *gate)
{
    if (!gate->page)
        return;
    atomic_store(&gate->page->busy, 0);
    sy_futex_wake(&gate->page->busy);
}
