/* Internals of the findings: one function a group, called in the order of the groups. */
#ifndef SY_DOCTOR_FINDINGS_INTERNAL_H
#define SY_DOCTOR_FINDINGS_INTERNAL_H

#include "runtime/doctor/findings.h"

/* ---- finding.c ---- */
/* Appends a finding with this value; its advice is "". Returned for the advice to be set; never NULL. */
struct sy_finding *sy_finding_add(struct sy_findings *out, enum sy_finding_group group,
                                  const char *id, enum sy_finding_level level, const char *format,
                                  ...) __attribute__((format(printf, 5, 6)));
/* Appends to the value. */
void sy_finding_append(struct sy_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sy_finding_advise(struct sy_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- the groups: findings_GROUP.c ---- */
void sy_findings_device(const struct sy_doctor_facts *facts, struct sy_findings *out);
void sy_findings_swap(const struct sy_doctor_facts *facts, struct sy_findings *out);
void sy_findings_memory(const struct sy_doctor_facts *facts, struct sy_findings *out);
void sy_findings_cpu(const struct sy_doctor_facts *facts, struct sy_findings *out);
void sy_findings_limits(const struct sy_doctor_facts *facts, struct sy_findings *out);

#endif
