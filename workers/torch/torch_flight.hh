/* What a PyTorch process has in flight on its accelerator, and its bound: part of the hook (torch_hook.cc).
 *
 *   operators:   a b c d | e | f ...           a group ends with an event; a long operator is a group of its own
 *   accelerator: [a b c d][ e ]...             the time between two groups' ends is what the second took
 *
 * What an operator takes is learned from these times, by its name and the name of the one before it. In front of an operator the thread waits until what is in
 * flight would take no more than a bound: a pause then comes after that and the operator itself. The bound is TIGHT_MS for TIGHT_FOR_MS after each pause, and
 * LOOSE_MS while nobody asks for the accelerator: the first pause after a quiet time comes later, and a script with the accelerator to itself is not held up where
 * its own thread is slower for a while. Everything goes through PyTorch's own table for accelerators (DeviceGuardImplInterface), so nothing here needs CUDA to be
 * compiled. While the bound is tight, and of operators that were not seen yet, the events take the time themselves; else it is told by when the thread, which
 * looks as it launches, finds a group ended: events that take the time cost more.
 *
 * L1: a queue belongs to one accelerator; its mutex is held while it waits, and never at the gate.
 * L2: an error of the accelerator is the script's, and is seen by its own next call; here it only ends the counting.
 * L3: a pause does not wait for the accelerator while a CUDA graph begins to be recorded: that would break the recording. */
#ifndef SY_WORKERS_TORCH_FLIGHT_H
#define SY_WORKERS_TORCH_FLIGHT_H

#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <sched.h>
#include <type_traits>

namespace flight
{

/* PyTorch's table has had all that is used here since a 2.x only; before, only the CPU is looked at. */
template <typename T, typename = void> struct is_complete : std::false_type {
};
template <typename T>
struct is_complete<T, std::void_t<decltype(&T::elapsedTime), decltype(&T::synchronizeDevice)>>
    : std::true_type {
};

template <typename T>
double elapsed_ms(const T *device, void *from, void *to, c10::DeviceIndex index)
{
    if constexpr (is_complete<T>::value)
        return device->elapsedTime(from, to, index);
    else
        return 0;
}

template <typename T> void wait_for_all(const T *device, c10::DeviceIndex index)
{
    if constexpr (is_complete<T>::value)
        device->synchronizeDevice(index);
}

constexpr double TIGHT_MS = 0.7; /* of the 1 ms that a pause may take beyond the longest operator */
constexpr double LOOSE_MS = 3;
constexpr double TIGHT_FOR_MS = 10000;
constexpr double GROUPS =
    7; /* of a bound: a group is closed when it is expected to take its part ... */
constexpr unsigned GROUP_OPS =
    64; /* ... or has so many operators: an event costs as much as a small one */
constexpr double UNKNOWN_MS = 0.1; /* an operator that was not seen yet */
constexpr double ASK_MS = 0.2;     /* the accelerator is asked so often at least */
constexpr double STALL_MS =
    0.3; /* not asked for so long, the script did something else: what was learned says nothing */
constexpr double DECAY = 0.125;
constexpr unsigned RING = 64, N_QUEUES = 16, N_KINDS = 4096;

inline double now_ms()
{
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

struct group {
    void *events[2] = {}; /* the second takes the time */
    bool is_timed = false;
    double expected_ms = 0, began_ms = 0;
    unsigned n = 0; /* operators whose time is learned; 0: an event that only marks a beginning */
    std::array<float *, GROUP_OPS> kinds{};
};

struct queue {
    std::mutex mutex;
    std::array<group, RING>
        ring{}; /* head to tail - 1 are in flight; the one before head ended last */
    unsigned head = 0, tail = 0;
    double in_flight_ms = 0, ended_ms = 0, left_ms = 0, asked_ms = 0;
    group open;
    std::atomic<bool> used{false};
};

struct state {
    const c10::impl::DeviceGuardImplInterface *device = nullptr;
    c10::DeviceType type = c10::DeviceType::CUDA;
    std::array<struct queue, N_QUEUES> queue;
    std::array<float, N_KINDS> kinds{}; /* ms an operator of this kind takes; 0: not known */
    std::atomic<int> capturing{
        0}; /* a CUDA graph is recorded: nothing runs, and no event may be asked for */
    std::atomic<bool> on{false};
    std::atomic<double> tight_until_ms{0};
    std::mutex draining; /* L3 */
};

inline state all;

/* Of the operator that this thread is in; NULL: none, or it began before the accelerator counted. */
inline thread_local float *own_kind;

inline float *kind_of(const void *name)
{
    static thread_local size_t before;
    size_t own = reinterpret_cast<size_t>(name) >> 4, key = own * 31 + before;
    before = own;
    return &all.kinds[(key * 0x9e3779b97f4a7c15ull >> 40) % N_KINDS];
}

inline double expected_of(const float *kind)
{
    return *kind > 0 ? *kind : UNKNOWN_MS;
}

/* ---- what ended -------------------------------------------------------------------------------- */

inline void learn(const group &g, double took_ms)
{
    double sum = 0;
    for (unsigned i = 0; i < g.n; i++)
        sum += expected_of(g.kinds[i]);
    for (unsigned i = 0; i < g.n; i++) {
        double before = *g.kinds[i], ms = took_ms * expected_of(g.kinds[i]) / sum;
        *g.kinds[i] =
            static_cast<float>(std::max(1e-4, ms > before ? ms : before + DECAY * (ms - before)));
    }
}

/* What groups took that were found ended at once: by their events, or together. */
inline void learn_all(queue &l, unsigned first, double now, bool is_known, c10::DeviceIndex index)
{
    double together_ms = 0, took_ms = now - std::max(l.ended_ms, l.ring[first % RING].began_ms);
    for (unsigned i = first; i != l.head; i++)
        together_ms += l.ring[i % RING].expected_ms;
    for (unsigned i = first; i != l.head; i++) {
        const group &before = l.ring[(i - 1) % RING], &g = l.ring[i % RING];
        if (g.n && g.is_timed && before.is_timed)
            learn(g, std::max(0.0, elapsed_ms(all.device, before.events[1], g.events[1], index)));
        else if (g.n && is_known && took_ms > 0)
            learn(g, took_ms * g.expected_ms / together_ms);
    }
    l.in_flight_ms -= together_ms;
}

/* Asks the accelerator what has ended. */
inline void reap(queue &l, c10::DeviceIndex index)
{
    double now = now_ms();
    bool is_known = now - l.asked_ms <= STALL_MS;
    unsigned first = l.head;
    for (; l.head != l.tail; l.head++) {
        const group &g = l.ring[l.head % RING];
        if (!all.device->queryEvent(g.events[g.is_timed]))
            break;
    }
    l.asked_ms = now;
    if (first == l.head)
        return;
    learn_all(l, first, now, is_known, index);
    l.ended_ms = now;
    if (l.head == l.tail)
        l.in_flight_ms = 0;
}

/* How long what was launched will still take, at most, if it takes what it took before. */
inline double rest_ms(const queue &l, double now)
{
    double rest = l.in_flight_ms + l.open.expected_ms;
    if (l.head == l.tail)
        return rest;
    const group &g = l.ring[l.head % RING];
    return rest - std::clamp(now - std::max(l.ended_ms, g.began_ms), 0.0, g.expected_ms);
}

/* ---- what begins ------------------------------------------------------------------------------- */

/* Full, as threads that were let through together make it, or a gate that closed: the last group then stands for this one too. */
inline void push(queue &l, c10::DeviceIndex index, bool learns)
{
    bool is_full = l.tail - l.head >= RING - 1; /* the one before head is read */
    group &g = l.ring[(is_full ? l.tail - 1 : l.tail) % RING];
    g.kinds = l.open.kinds;
    g.n = learns && !is_full ? l.open.n : 0;
    g.is_timed = is_full ? g.is_timed : l.open.is_timed;
    g.expected_ms = l.open.expected_ms + (is_full ? g.expected_ms : 0);
    g.began_ms = is_full ? g.began_ms : l.open.began_ms;
    all.device->record(
        &g.events[g.is_timed], all.device->getStream(c10::Device(all.type, index)), index,
        g.is_timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
    l.in_flight_ms += l.open.expected_ms;
    l.tail += !is_full;
    l.open.n = 0;
    l.open.expected_ms = 0;
}

inline queue *current(c10::DeviceIndex *index)
{
    if (!all.on.load(std::memory_order_relaxed) || all.capturing.load(std::memory_order_relaxed))
        return nullptr;
    *index = all.device->getDevice().index();
    return *index >= 0 && *index < static_cast<int>(N_QUEUES) ? &all.queue[*index] : nullptr;
}

inline bool is_tight(double now)
{
    return now < all.tight_until_ms.load(std::memory_order_relaxed);
}

inline double bound_ms(double now)
{
    return is_tight(now) ? TIGHT_MS : LOOSE_MS;
}

/* In front of an operator: waits until little enough is in flight, or `gate` is odd. One that was not seen yet is a group of its own. */
inline void wait_for_room(queue &l, c10::DeviceIndex index, const std::atomic<uint32_t> &gate)
{
    double now = now_ms(), bound = bound_ms(now);
    bool is_new = !*own_kind;
    if (l.open.n && (is_new || now - l.left_ms > STALL_MS))
        push(l, index, is_new);
    if (rest_ms(l, now) > bound / 2 || now - l.asked_ms > ASK_MS)
        reap(l, index);
    while ((rest_ms(l, now_ms()) > bound || l.tail - l.head >= RING - 2) && l.head != l.tail &&
           !(gate.load() & 1)) {
        sched_yield();
        reap(l, index);
    }
    if (l.open.n)
        return;
    l.open.is_timed = is_new || is_tight(now);
    if (l.open.is_timed && (l.head == l.tail || !l.ring[(l.tail - 1) % RING].is_timed)) {
        l.open.began_ms = now_ms();
        push(l, index, false); /* only from here on can its time be told */
    }
}

inline void add(queue &l, c10::DeviceIndex index, bool learns)
{
    l.left_ms = now_ms();
    if (!l.open.n)
        l.open.began_ms = l.left_ms;
    l.open.kinds[l.open.n++] = own_kind;
    l.open.expected_ms += expected_of(own_kind);
    l.used.store(true, std::memory_order_relaxed);
    if (!learns || !*own_kind || l.open.n == GROUP_OPS ||
        l.open.expected_ms >= bound_ms(l.left_ms) / GROUPS)
        push(l, index, learns);
}

template <typename F> void guarded(F work)
{
    c10::DeviceIndex index;
    try {
        if (struct queue *l = current(&index)) {
            std::lock_guard<std::mutex> lock(l->mutex);
            work(*l, index);
        }
    } catch (...) { /* L2 */
        all.on.store(false);
    }
}

inline void before(const void *name, const std::atomic<uint32_t> &gate)
{
    own_kind = kind_of(name);
    guarded([&](queue &l, c10::DeviceIndex index) { wait_for_room(l, index, gate); });
}

inline void after(bool learns)
{
    if (!own_kind)
        return;
    guarded([&](queue &l, c10::DeviceIndex index) { add(l, index, learns); });
    own_kind = nullptr;
}

/* Somebody wants the accelerator, and may want it again soon. */
inline void tighten()
{
    all.tight_until_ms.store(now_ms() + TIGHT_FOR_MS, std::memory_order_relaxed);
}

/* Waits for every accelerator that this process launched on. */
inline void drain()
{
    std::lock_guard<std::mutex> lock(all.draining);
    for (unsigned i = 0; i < N_QUEUES && !all.capturing.load(); i++)
        if (all.queue[i].used.load())
            try {
                wait_for_all(all.device, static_cast<c10::DeviceIndex>(i));
            } catch (...) { /* L2 */
            }
}

inline void capture(int change)
{
    std::lock_guard<std::mutex> lock(all.draining);
    all.capturing.fetch_add(change);
}

} // namespace flight

#endif
