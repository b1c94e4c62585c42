/* Output of `switchyard doctor`: a table for people, 80 columns wide, and JSON for programs (its keys: runtime/doctor/README.md). */
#ifndef SY_CLI_DOCTOR_REPORT_H
#define SY_CLI_DOCTOR_REPORT_H

#include <jansson.h>

#include "runtime/cli/doctor/doctor_models.h"
#include "runtime/doctor/findings.h"

void sy_doctor_print(const struct sy_doctor_facts *facts, const struct sy_findings *findings,
                     const struct sy_doctor_models *models);
/* A new reference; NULL without memory. */
json_t *sy_doctor_json(const struct sy_doctor_facts *facts, const struct sy_findings *findings,
                       const struct sy_doctor_models *models);

#endif
