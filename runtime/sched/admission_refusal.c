#include "runtime/sched/admission_refusal.h"

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define KEPT_PART    8 /* one part in KEPT_PART of a queue is reserved by class (Q7) */
#define KEPT_CLASSES 9 /* the reserved part is divided evenly: requests have classes 0 to 9 */

uint64_t sy_admission_kept(uint64_t places, int class_)
{
    return places / KEPT_PART * (uint64_t)SY_MIN(class_, KEPT_CLASSES) / KEPT_CLASSES;
}

int sy_admission_refuse_full(int n_waiting, int max_requests, int class_)
{
    int kept = (int)sy_admission_kept((uint64_t)max_requests, class_);
    if (kept == 0)
        return sy_error_set(SY_EBUSY, "%d requests wait already; try again later", n_waiting);
    return sy_error_set(SY_EBUSY,
                        "%d requests wait already, and %d of the queue's %d places are kept for "
                        "classes before %d; try again later",
                        n_waiting, kept, max_requests, class_);
}

int sy_admission_refuse_late(const struct sy_admission_request *r, const struct sy_prediction *p,
                             sy_ns now)
{
    bool past = r->deadline_ns > 0 && r->deadline_ns <= now;
    if (p->breaks && !past)
        return sy_error_set(
            SY_EDEADLINE,
            "request %llu would be done in %.3f ms (%.3f ms in the queue), but would make request "
            "%llu, which was taken before, miss its deadline; send it later or to another server",
            (unsigned long long)r->id, (double)(p->finish_ns - now) / 1e6,
            (double)p->queue_ns / 1e6, (unsigned long long)p->would_break);
    return sy_error_set(
        SY_EDEADLINE,
        "request %llu would be done in %.3f ms (%.3f ms in the queue, with margin "
        "%.3f ms), but its deadline %s %.3f ms%s; allow more time or send it to "
        "another server",
        (unsigned long long)r->id, (double)(p->finish_ns - now) / 1e6, (double)p->queue_ns / 1e6,
        (double)(p->latest_ns - now) / 1e6, past ? "was" : "is in",
        (double)(past ? now - r->deadline_ns : r->deadline_ns - now) / 1e6, past ? " ago" : "");
}
