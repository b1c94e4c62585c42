/* Work on bad input in a child process with little memory and little time: what it does to the process cannot hurt the test. */
#ifndef SY_TESTS_RIGS_BOUNDED_CHILD_H
#define SY_TESTS_RIGS_BOUNDED_CHILD_H

#include <stdint.h>

/* Filled in by the work, in memory that both processes see. */
struct child_report {
    int stage;  /* how far it came, in the work's own numbers */
    int status; /* enum sy_status */
    char text[1024];
};

struct child_end {
    struct child_report report;
    int signal;          /* that ended it; 0: it returned */
    int exit_code;       /* if it returned; 0 unless a sanitizer spoke */
    uint64_t peak_bytes; /* of resident memory, this child's or a larger one's before it */
};

/* Runs work(ctx, report) in a forked child: at most `memory_bytes` of address space more than the parent has (not under sanitizers,
 * which take theirs; there a single block is bounded) and `cpu_seconds` of time, a few times as much
 * where it passes faster: under sanitizers, beside others. Waits for it. */
void bounded_child_run(void (*work)(const void *ctx, struct child_report *report), const void *ctx,
                       uint64_t memory_bytes, unsigned cpu_seconds, struct child_end *out);

#endif
