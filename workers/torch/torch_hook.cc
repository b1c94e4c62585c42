/* The hook in a PyTorch process: looks at the gate in front of each operator, counts the memory of CPU tensors, and bounds what is in flight on an accelerator.
 *
 * Built once per version of PyTorch against that version's headers (runtime/python/switchyard/_torch_hook.py), loaded by ctypes, so it
 * shows C functions only. Operators are seen by a RecordFunction callback: forward, backward (on the CPU autograd runs in the thread that called backward;
 * other devices' autograd threads see the callback as well), optimizers, and what a composite operator calls inside.
 *
 * K1: nothing here allocates, locks or calls the system while the gate is open, as long as no accelerator is used.
 * K2: a child of the owner (a data loader's worker) parks too, but is not waited for: it may be killed inside an operator. Its tensors count for itself, up to the
 *     same limit.
 * K3: a block's size lies in front of it, so that any thread frees it in any order; blocks of other allocators go back to those.
 * K4: with an accelerator, a thread of ours sleeps until the gate is closed, waits for the last operator and for the accelerator, and says so (G3). */
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "script_page.h"
#include "torch_flight.hh"
#include "torch_spill.hh"

static_assert(offsetof(sy_script_page, gate) == 64 && offsetof(sy_script_page, n_refused) == 240,
              "as in C");
static_assert(offsetof(sy_script_page, drained) == 276, "as in C");

namespace
{

sy_script_page *page;
bool is_owner, has_device;
at::CallbackHandle callback;
thread_local int depth;
thread_local bool
    has_parked; /* since its outermost operator began: how long that took says nothing */

long futex(sy_shared_u32 *word, int what, uint32_t value, const timespec *timeout = nullptr)
{
    return syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), what, value, timeout, nullptr, 0);
}

/* ---- the gate --------------------------------------------------------------------------------- */

void leave_operator()
{
    if (page->busy.fetch_sub(1) == 1 && (page->gate.load() & 1))
        futex(&page->busy, FUTEX_WAKE, INT_MAX);
}

void sleep_at_gate()
{
    uint32_t gate;
    while ((gate = page->gate.load()) & 1)
        futex(&page->gate, FUTEX_WAIT, gate);
}

__attribute__((noinline)) void park(bool counts)
{
    int kept = errno;
    has_parked = true;
    do {
        if (counts)
            leave_operator();
        sleep_at_gate();
        if (counts)
            page->busy.fetch_add(1);
    } while (page->gate.load() & 1); /* G1 */
    errno = kept;
}

void enter(const void *name)
{
    bool counts = is_owner;
    if (depth++ == 0 && counts) {
        if (has_device)
            flight::before(name, page->gate);
        page->busy.fetch_add(1);
    }
    if (__builtin_expect(page->gate.load() & 1, 0))
        park(counts);
}

void leave()
{
    if (--depth != 0 || !is_owner)
        return;
    if (has_device)
        flight::after(!has_parked);
    has_parked = false;
    leave_operator();
}

/* ---- the accelerator ---------------------------------------------------------------------------- */

/* The last operator's end wakes it only while the gate is closed, and that may have changed twice: so it looks again. */
constexpr timespec BUSY_SLICE = {0, 1000000};

/* K4 */
void *watch_gate(void *)
{
    for (;;) {
        uint32_t gate = page->gate.load(), busy = page->busy.load();
        if (!(gate & 1) || page->drained.load() == gate) {
            futex(&page->gate, FUTEX_WAIT, gate);
        } else if (busy) {
            futex(&page->busy, FUTEX_WAIT, busy, &BUSY_SLICE);
        } else {
            flight::tighten();
            flight::drain();
            page->drained.store(gate);
            futex(&page->drained, FUTEX_WAKE, INT_MAX);
        }
    }
    return nullptr;
}

int start_watching()
{
    pthread_t thread;
    sigset_t every, kept; /* signals are for the script's own threads */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &kept);
    int failed = pthread_create(&thread, nullptr, watch_gate, nullptr);
    pthread_sigmask(SIG_SETMASK, &kept, nullptr);
    if (!failed)
        pthread_detach(thread);
    return failed;
}

/* ---- memory ----------------------------------------------------------------------------------- */

constexpr size_t HEAD_BYTES = 64; /* keeps the alignment of PyTorch's own blocks */
constexpr uint8_t PRIORITY = 255; /* PyTorch's own has 0 */
struct head {
    uint64_t bytes;
    pid_t counted_by; /* a child inherits blocks that it does not pay for */
    spill::node node;
};
static_assert(sizeof(head) <= HEAD_BYTES, "in front of the block");

sy_shared_u64 own_bytes; /* of a process that is not the owner */
pid_t self;

sy_shared_u64 &used_bytes()
{
    return is_owner ? page->used_bytes : own_bytes;
}

void count_bytes(uint64_t bytes)
{
    sy_shared_u64 &count = used_bytes();
    uint64_t used = count.load(std::memory_order_relaxed);
    do {
        if (bytes > page->limit_bytes || used > page->limit_bytes - bytes) {
            page->n_refused.fetch_add(1, std::memory_order_relaxed);
            TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory: the job's limit is ",
                             page->limit_bytes, " bytes, its tensors have ", used, ", and ", bytes,
                             " more are wanted; a larger limit: switchyard run --memory");
        }
    } while (!count.compare_exchange_weak(used, used + bytes));
    if (!is_owner)
        return;
    uint64_t peak = page->peak_bytes.load(std::memory_order_relaxed);
    while (peak < used + bytes && !page->peak_bytes.compare_exchange_weak(peak, used + bytes))
        ;
}

void free_block(void *data)
{
    if (!data)
        return;
    head *h = reinterpret_cast<head *>(static_cast<char *>(data) - HEAD_BYTES);
    spill::remove(&h->node);
    if (h->counted_by == self)
        used_bytes().fetch_sub(h->bytes, std::memory_order_relaxed);
    c10::free_cpu(h);
}

struct counting_allocator final : c10::Allocator {
    c10::DataPtr allocate(size_t bytes) override
    {
        if (bytes == 0)
            return {nullptr, nullptr, &free_block, c10::Device(c10::DeviceType::CPU)};
        count_bytes(bytes + HEAD_BYTES);
        head *h;
        try {
            h = static_cast<head *>(c10::alloc_cpu(bytes + HEAD_BYTES));
        } catch (...) {
            used_bytes().fetch_sub(bytes + HEAD_BYTES, std::memory_order_relaxed);
            throw;
        }
        char *data = reinterpret_cast<char *>(h) + HEAD_BYTES;
        h->bytes = bytes + HEAD_BYTES;
        h->counted_by = self;
        spill::add(&h->node, data, bytes);
        return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override
    {
        return &free_block;
    }
    void copy_data(void *to, const void *from, std::size_t bytes) const override
    {
        default_copy_data(to, from, bytes);
    }
};

counting_allocator allocator;

/* Another extension may have put its own in place since the last operator. */
void keep_allocator()
{
    if (!page->limit_bytes || __builtin_expect(c10::GetCPUAllocator() == &allocator, 1))
        return;
    c10::SetCPUAllocator(&allocator, PRIORITY);
    page->n_retaken.fetch_add(1, std::memory_order_relaxed);
}

void in_child()
{
    is_owner = false;
    has_device = false;
    self = getpid();
    spill::all.is_on.store(0);
    own_bytes.store(0);
}

std::unique_ptr<at::ObserverContext> before(const at::RecordFunction &function)
{
    if (depth == 0)
        keep_allocator();
    enter(function.name());
    return nullptr;
}

void after(const at::RecordFunction &, at::ObserverContext *)
{
    leave();
}

/* ---- start ------------------------------------------------------------------------------------ */

void start()
{
    self = getpid();
    is_owner = page->owner.load() == static_cast<uint32_t>(self);
    if (is_owner) { /* what another program left that this process has run (exec) */
        page->device.store(0);
        page->busy.store(0);
        page->used_bytes.store(0);
        page->spill_state.store(SY_SCRIPT_SPILL_NONE);
        if (page->limit_bytes && page->spill_folder[0])
            (void)spill::start(page); /* else the state says that it is not spilled */
    }
    pthread_atfork(nullptr, nullptr, in_child);
    if (page->limit_bytes)
        c10::SetCPUAllocator(&allocator, PRIORITY);
    callback = at::addGlobalCallback(
        at::RecordFunctionCallback(before, after).scopes({at::RecordScope::FUNCTION}));
    if (is_owner)
        page->hook.store(SY_SCRIPT_HOOK_OPERATORS);
}

} // namespace

extern "C" {

/* Maps the page at `path` and looks from now on. 0, or -1 with errno; at most once a process. */
int sy_torch_hook_start(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -1;
    void *at = mmap(nullptr, SY_SCRIPT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return -1;
    page = static_cast<sy_script_page *>(at);
    if (page->magic != SY_SCRIPT_MAGIC) {
        errno = EPROTO;
        return -1;
    }
    start();
    return 0;
}

/* Looks (1) or does not (0); for measuring what a look costs. Outside of operators. */
void sy_torch_hook_look(int looks)
{
    static bool is_on = true;
    if (is_on == (looks != 0))
        return;
    is_on = looks != 0;
    if (is_on)
        at::reenableCallback(callback);
    else
        at::disableCallback(callback);
}

/* From now on the accelerator counts (G3). type: c10::DeviceType. 0, or an errno; ENODEV: PyTorch has no table for it; ENOTSUP: a table too old. Not twice;
 * outside of operators. */
int sy_torch_hook_device(int type)
{
    if (!is_owner || has_device)
        return EINVAL;
    if (!flight::is_complete<c10::impl::DeviceGuardImplInterface>::value)
        return ENOTSUP;
    flight::all.type = static_cast<c10::DeviceType>(type);
    flight::all.device = c10::impl::device_guard_impl_registry[static_cast<size_t>(type)].load();
    if (!flight::all.device)
        return ENODEV;
    flight::all.on.store(true);
    /* Copies that an accelerator makes go on behind a closed gate, and its driver's threads block signals. */
    spill::all.is_on.store(0);
    page->spill_state.store(SY_SCRIPT_SPILL_NONE);
    page->drained.store(0); /* even: no gate's that is closed */
    page->device.store(1);
    int failed = start_watching();
    has_device = !failed;
    if (failed)
        page->device.store(0);
    return failed;
}

/* A CUDA graph is being recorded (1), or is not any more (0). The accelerator stands idle at both. */
void sy_torch_hook_capture(int begins)
{
    flight::capture(begins ? 1 : -1);
}

/* Around what is no operator, and launches as one does: a CUDA graph. */
void sy_torch_hook_enter()
{
    static const char name[] = "graph";
    enter(name);
}

void sy_torch_hook_leave()
{
    leave();
}
}
