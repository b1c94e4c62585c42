/* Part of the hook, and of nothing that needs PyTorch: large tensors go to a file and come back to where they were.
 *
 *   spill_want 1 ─> a thread of ours: lock the list of blocks ─> stop every other thread ─> write the blocks' whole pages ─> give these pages back ─> OUT
 *   spill_want 0 ─> read the pages ─> the threads go on ─> unlock ─> IN
 *
 * P1: every thread stands, in a signal handler, from before the first byte is written until the last is back: also one that reads a tensor through numpy, which
 *     no gate stops. If one does not stand within STOP_NS (it blocks signals), the spill fails, and nothing has been touched.
 * P2: pages are given back only after all blocks are written: a file that cannot be written costs nothing.
 * P3: while threads stand nothing here takes a lock or allocates; any of them may hold malloc's.
 * P4: what cannot be read back ends the process: its tensors are lost. */
#ifndef SY_WORKERS_TORCH_TORCH_SPILL_HH
#define SY_WORKERS_TORCH_TORCH_SPILL_HH

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "script_page.h"

static_assert(offsetof(sy_script_page, spill_want) == 288 &&
                  offsetof(sy_script_page, spill_folder) == 312,
              "as in C");

namespace spill
{

constexpr size_t LEAST_BYTES = 65536; /* smaller tensors stay: few bytes, many blocks */
constexpr size_t PAGE_BYTES = 4096;
constexpr int MOST_THREADS = 4096;
constexpr long STOP_NS = 1000000000, SLICE_NS = 200000;

/* In front of a block's bytes. */
struct node {
    node *before, *after;
    char *data;
    size_t bytes;
};

struct everything {
    sy_script_page *page;
    node head; /* of a ring */
    pthread_mutex_t lock;
    sy_shared_u32 is_on;
    int file, signal;
    sy_shared_u32 generation; /* odd: threads stand. A futex */
    sy_shared_u32 n_parked;   /* entries into the handler */
    sy_shared_u64 parked
        [MOST_THREADS]; /* generation and thread: what an earlier one left, or one that comes late, speaks for nobody */
    pid_t told[MOST_THREADS];
    int n_told;
    uint64_t bytes;
};
inline everything all;

inline long wait_on(sy_shared_u32 *word, uint32_t value)
{
    return syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAIT, value, nullptr,
                   nullptr, 0);
}

inline void wake(sy_shared_u32 *word)
{
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
            0);
}

inline long now_ns()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}

/* ---- blocks ----------------------------------------------------------------------------------- */

inline void add(node *n, char *data, size_t bytes)
{
    n->before = nullptr;
    if (bytes < LEAST_BYTES || !all.is_on.load(std::memory_order_relaxed))
        return;
    n->data = data;
    n->bytes = bytes;
    pthread_mutex_lock(&all.lock);
    n->before = all.head.before;
    n->after = &all.head;
    all.head.before->after = n;
    all.head.before = n;
    pthread_mutex_unlock(&all.lock);
}

inline void remove(node *n)
{
    if (!n->before)
        return;
    pthread_mutex_lock(&all.lock);
    n->before->after = n->after;
    n->after->before = n->before;
    pthread_mutex_unlock(&all.lock);
}

/* The whole pages of a block. */
inline size_t pages_of(const node *n, char **begin)
{
    uintptr_t data = reinterpret_cast<uintptr_t>(n->data);
    uintptr_t from = (data + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    uintptr_t to = (data + n->bytes) & ~(PAGE_BYTES - 1);
    *begin = reinterpret_cast<char *>(from);
    return to > from ? to - from : 0;
}

/* ---- threads stand (P1) ----------------------------------------------------------------------- */

inline uint64_t entry_of(uint32_t generation, pid_t thread)
{
    return static_cast<uint64_t>(generation) << 32 | static_cast<uint32_t>(thread);
}

inline void stand(int)
{
    int kept = errno;
    uint32_t generation = all.generation.load(), n;
    if ((generation & 1) && (n = all.n_parked.fetch_add(1)) < MOST_THREADS)
        all.parked[n].store(entry_of(generation, static_cast<pid_t>(syscall(SYS_gettid))));
    while ((generation & 1) && all.generation.load() == generation)
        wait_on(&all.generation, generation);
    errno = kept;
}

inline bool stands(pid_t thread)
{
    uint32_t n = all.n_parked.load();
    uint64_t entry = entry_of(all.generation.load(), thread);
    for (uint32_t i = 0; i < n && i < MOST_THREADS; i++)
        if (all.parked[i].load() == entry)
            return true;
    return false;
}

inline bool was_told(pid_t thread)
{
    for (int i = 0; i < all.n_told; i++)
        if (all.told[i] == thread)
            return true;
    return false;
}

/* One of the process's threads: told to stop, if it was not. Whether it stands. */
inline bool stop_one(pid_t thread)
{
    if (thread == static_cast<pid_t>(syscall(SYS_gettid)) || stands(thread))
        return true;
    if (!was_told(thread) && all.n_told < MOST_THREADS) {
        all.told[all.n_told++] = thread;
        syscall(SYS_tgkill, getpid(), thread, all.signal);
    }
    return false;
}

struct entry { /* as getdents64 writes it */
    uint64_t inode;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[1];
};

/* "." and ".." give 0. */
inline pid_t number_of(const char *name)
{
    pid_t number = 0;
    for (; *name >= '0' && *name <= '9'; name++)
        number = 10 * number + (*name - '0');
    return number;
}

/* Looks at each thread once. Whether all stand; a thread that has ended is in no later list. */
inline bool stop_listed()
{
    alignas(entry) char text[4096];
    bool all_stand = true;
    int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long got = -1;
    while (folder >= 0 && (got = syscall(SYS_getdents64, folder, text, sizeof text)) > 0)
        for (long at = 0; at < got;) {
            const entry *e = reinterpret_cast<const entry *>(text + at);
            pid_t thread = number_of(text + at + offsetof(entry, name));
            if (thread > 0 && !stop_one(thread))
                all_stand = false;
            at += e->bytes;
        }
    if (folder >= 0)
        close(folder);
    return got == 0 && all_stand;
}

inline void rest()
{
    const timespec slice = {0, SLICE_NS};
    nanosleep(&slice, nullptr);
}

inline void let_go()
{
    all.generation.fetch_add(1);
    wake(&all.generation);
}

/* Twice: a thread that ran when it was listed, and stood when it was looked at, may have made another in between. */
inline bool stop_all()
{
    long until = now_ns() + STOP_NS;
    all.n_told = 0;
    all.n_parked.store(0);
    all.generation.fetch_add(1);
    while (!stop_listed() || !stop_listed()) {
        if (now_ns() > until) {
            let_go();
            return false;
        }
        rest();
    }
    return true;
}

/* ---- to the file and back --------------------------------------------------------------------- */

inline int open_file()
{
    char path[SY_SCRIPT_FOLDER_BYTES + 32];
    int fd = open(all.page->spill_folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    snprintf(path, sizeof path, "%s/switchyard-spill-XXXXXX", all.page->spill_folder);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

/* 0, or an errno. */
inline int move_bytes(char *memory, size_t bytes, off_t at, bool out)
{
    while (bytes > 0) {
        ssize_t n = out ? pwrite(all.file, memory, bytes, at) : pread(all.file, memory, bytes, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        memory += n;
        bytes -= static_cast<size_t>(n);
        at += n;
    }
    return 0;
}

/* All blocks' pages, one block behind the other in the file. */
inline int move_all(bool out)
{
    off_t at = 0;
    char *begin;
    for (const node *n = all.head.after; n != &all.head; n = n->after) {
        size_t bytes = pages_of(n, &begin);
        int failed = move_bytes(begin, bytes, at, out);
        if (failed)
            return failed;
        at += static_cast<off_t>(bytes);
    }
    all.bytes = static_cast<uint64_t>(at);
    return 0;
}

/* Locked pages stay where they are, and are read all the same. */
inline void give_pages_back()
{
    char *begin;
    for (const node *n = all.head.after; n != &all.head; n = n->after) {
        size_t bytes = pages_of(n, &begin);
        if (bytes > 0)
            (void)madvise(begin, bytes, MADV_DONTNEED);
    }
}

inline void say(enum sy_script_spill state)
{
    all.page->spill_state.store(state);
    wake(&all.page->spill_state);
}

/* 0, or an errno: all is as it was. With the lock. */
inline int try_out()
{
    if (!stop_all())
        return ETIMEDOUT;
    int failed = move_all(true); /* P2 */
    if (failed)
        let_go();
    else
        give_pages_back();
    return failed;
}

inline bool go_out()
{
    all.file = open_file();
    int failed = all.file < 0 ? errno : 0;
    if (!failed) {
        pthread_mutex_lock(&all.lock);
        failed = try_out();
        if (failed) {
            pthread_mutex_unlock(&all.lock);
            close(all.file);
        }
    }
    all.page->spill_errno.store(static_cast<uint32_t>(failed));
    all.page->spilled_bytes.store(failed ? 0 : all.bytes);
    say(failed ? SY_SCRIPT_SPILL_FAILED : SY_SCRIPT_SPILL_OUT);
    return !failed;
}

inline void come_back()
{
    static const char lost[] = "switchyard: spilled tensors cannot be read back; the script ends\n";
    if (move_all(false) != 0) { /* P4 */
        (void)!write(STDERR_FILENO, lost, sizeof lost - 1);
        kill(getpid(), SIGKILL);
    }
    let_go();
    pthread_mutex_unlock(&all.lock);
    close(all.file);
    say(SY_SCRIPT_SPILL_IN);
}

inline void *serve(void *)
{
    bool is_out = false;
    for (;;) {
        uint32_t want = all.page->spill_want.load(), state = all.page->spill_state.load();
        if (want && !is_out && state == SY_SCRIPT_SPILL_IN) {
            is_out = go_out();
        } else if (!want && is_out) {
            come_back();
            is_out = false;
        } else if (!want && state == SY_SCRIPT_SPILL_FAILED) {
            say(SY_SCRIPT_SPILL_IN);
        } else {
            wait_on(&all.page->spill_want, want);
        }
    }
    return nullptr;
}

/* ---- start ------------------------------------------------------------------------------------ */

inline void before_fork()
{
    pthread_mutex_lock(&all.lock);
}

inline void after_fork() /* a child finds the list whole, and adds nothing to it */
{
    pthread_mutex_unlock(&all.lock);
}

inline int start_thread()
{
    pthread_t thread;
    sigset_t every, kept; /* signals are for the script's own threads */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &kept);
    int failed = pthread_create(&thread, nullptr, serve, nullptr);
    pthread_sigmask(SIG_SETMASK, &kept, nullptr);
    if (!failed)
        pthread_detach(thread);
    return failed;
}

/* Before the first block, in the process that is the job; blocks are listed from then on. 0, or an errno: nothing is spilled. */
inline int start(sy_script_page *page)
{
    struct sigaction before, action = {};
    all.page = page;
    all.head.before = all.head.after = &all.head;
    all.signal = SIGRTMAX - 3;
    sigaction(all.signal, nullptr, &before);
    if (before.sa_handler != SIG_DFL)
        return EBUSY;
    action.sa_handler = stand;
    action.sa_flags = SA_RESTART;
    sigfillset(&action.sa_mask);
    sigaction(all.signal, &action, nullptr);
    page->spill_want.store(0);
    int failed = start_thread();
    if (failed)
        return failed;
    pthread_atfork(before_fork, after_fork, after_fork);
    all.is_on.store(1);
    say(SY_SCRIPT_SPILL_IN); /* last: who sees it may want a spill at once */
    return 0;
}

} // namespace spill

#endif
