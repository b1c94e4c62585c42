#include "runtime/cli/train/train_progress.h"

#include <stdio.h>
#include <unistd.h>

#include "runtime/base/clock.h"

#define TERMINAL_NS (200 * SY_NS_PER_MS)
#define FILE_NS     (1000 * SY_NS_PER_MS)

/* "1:02:03" */
static const char *write_time(double seconds, char *buffer, uint64_t bytes)
{
    uint64_t s = seconds < 0 ? 0 : seconds > 3.6e8 ? 360000000u : (uint64_t)(seconds + 0.5);
    if (s >= 3600)
        snprintf(buffer, bytes, "%llu:%02llu:%02llu", (unsigned long long)(s / 3600),
                 (unsigned long long)(s / 60 % 60), (unsigned long long)(s % 60));
    else
        snprintf(buffer, bytes, "%llu:%02llu", (unsigned long long)(s / 60),
                 (unsigned long long)(s % 60));
    return buffer;
}

/* Half of what was believed is kept each second. Steps that go back: the job went on from a snapshot. */
static void measure(struct sy_train_progress *p, uint64_t step, uint64_t now)
{
    double seconds = (double)(now - p->seen_ns) / 1e9;
    if (p->seen_ns && step == p->seen_step)
        return; /* an evaluation, a pause: counted when the next step is there */
    if (!p->seen_ns || step < p->seen_step) {
        p->has_rate = false;
    } else {
        double rate = (double)(step - p->seen_step) / (seconds > 0 ? seconds : 1e-9);
        double keep = seconds < 1 ? 1 - seconds / 2 : 0.5;
        p->steps_per_s = p->has_rate ? keep * p->steps_per_s + (1 - keep) * rate : rate;
        p->has_rate = true;
    }
    p->seen_ns = now;
    p->seen_step = step;
}

static void print_line(const struct sy_train_progress *p, const struct sy_train_sight *s)
{
    char time[32];
    printf("step %llu/%llu  loss %.4f", (unsigned long long)s->step,
           (unsigned long long)s->total_steps, s->loss);
    if (s->accuracy >= 0)
        printf("  accuracy %.2f %% (step %llu)", 100 * s->accuracy,
               (unsigned long long)s->accuracy_step);
    if (p->has_rate && p->steps_per_s > 0 && s->step < s->total_steps)
        printf("  %.1f steps/s  ETA %s", p->steps_per_s,
               write_time((double)(s->total_steps - s->step) / p->steps_per_s, time, sizeof time));
    printf("  %s", s->state);
}

void sy_train_progress_show(struct sy_train_progress *p, const struct sy_train_sight *s,
                            bool is_last)
{
    bool is_terminal = isatty(STDOUT_FILENO);
    uint64_t now = sy_clock_now();
    if (!is_last && p->printed_ns && now - p->printed_ns < (is_terminal ? TERMINAL_NS : FILE_NS))
        return;
    measure(p, s->step, now);
    p->printed_ns = now;
    if (is_terminal)
        printf("\r\033[K");
    print_line(p, s);
    if (!is_terminal || is_last)
        printf("\n");
    fflush(stdout);
}
