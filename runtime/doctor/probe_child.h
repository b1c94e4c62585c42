/* Runs a probe in a forked process: what crashes, hangs or is killed by a filter there is a finding and not the doctor's end. */
#ifndef SY_DOCTOR_PROBE_CHILD_H
#define SY_DOCTOR_PROBE_CHILD_H

#include "runtime/base/clock.h"
#include "runtime/doctor/doctor_facts.h"

/* probe(facts, ctx) in a child; what it writes into the facts is there afterwards, whatever became of the child. `why`, a text of `facts`, gets the
 * reason if it did not end by itself within timeout_ns. The calling process has one thread. */
void sy_probe_in_child(struct sy_doctor_facts *facts,
                       void (*probe)(struct sy_doctor_facts *facts, void *ctx), void *ctx,
                       sy_ns timeout_ns, char why[SY_DOCTOR_TEXT_BYTES]);

#endif
