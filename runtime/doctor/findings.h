/* From what was measured to what it means: pure. Values in, findings out, in a fixed order; the same values give the same findings.
 *
 * F1: FAIL is what keeps `switchyard serve` from starting or from answering; all else is at most a warning.
 * F2: a warning and a failure have an advice that names a command or a setting, with the measured number in `value`.
 * F3: what was not measured gives no finding, or an "ok" that says so: no advice rests on a guess. */
#ifndef SY_DOCTOR_FINDINGS_H
#define SY_DOCTOR_FINDINGS_H

#include <stdbool.h>

#include "runtime/doctor/doctor_facts.h"

/* X(name, title) */
#define SY_FINDING_GROUPS(X)          \
    X(DEVICE, "device")               \
    X(SWAP, "what a swap comes over") \
    X(MEMORY, "memory")               \
    X(CPU, "cpu")                     \
    X(LIMITS, "limits")

enum sy_finding_group {
#define X(name, title) SY_GROUP_##name,
    SY_FINDING_GROUPS(X)
#undef X
        SY_N_FINDING_GROUPS
};
const char *sy_finding_group_title(enum sy_finding_group group);

enum sy_finding_level { SY_FINDING_OK, SY_FINDING_WARN, SY_FINDING_FAIL };
/* "ok", "warn", "FAIL" */
const char *sy_finding_level_name(enum sy_finding_level level);

struct sy_finding {
    enum sy_finding_group group;
    enum sy_finding_level level;
    const char *id;   /* stable: the key in JSON, the word in the table */
    char value[400];  /* the finding, with its numbers */
    char advice[400]; /* what to do about it; "" when ok */
};

#define SY_MAX_FINDINGS 32

struct sy_findings {
    int n;
    struct sy_finding list[SY_MAX_FINDINGS];
};

/* Judges the facts: one finding for each that is known. Pure. */
void sy_findings_make(const struct sy_doctor_facts *facts, struct sy_findings *out);
/* Whether none is a failure. */
bool sy_findings_are_ok(const struct sy_findings *findings);
int sy_findings_count(const struct sy_findings *findings, enum sy_finding_level level);

/* Weights of the swap that is predicted without --models: ResNet-152. */
#define SY_DOCTOR_EXAMPLE_BYTES 240000000u

/* "1.50 GB", "8.0 MiB" where binary; "unlimited" for INFINITY, "unknown" for NAN. Returns `out`. */
#define SY_SIZE_TEXT_BYTES 32
const char *sy_finding_bytes(double bytes, char out[SY_SIZE_TEXT_BYTES]);

#endif
