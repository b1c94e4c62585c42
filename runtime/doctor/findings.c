#include "runtime/doctor/findings.h"

#include "runtime/doctor/findings_internal.h"

void sy_findings_make(const struct sy_doctor_facts *facts, struct sy_findings *out)
{
    out->n = 0;
    sy_findings_device(facts, out);
    sy_findings_swap(facts, out);
    sy_findings_memory(facts, out);
    sy_findings_cpu(facts, out);
    sy_findings_limits(facts, out);
}

int sy_findings_count(const struct sy_findings *findings, enum sy_finding_level level)
{
    int n = 0;
    for (int i = 0; i < findings->n; i++)
        n += findings->list[i].level == level;
    return n;
}

bool sy_findings_are_ok(const struct sy_findings *findings)
{
    return sy_findings_count(findings, SY_FINDING_FAIL) == 0;
}
