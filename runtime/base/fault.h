/* Faults on demand, for tests: SY_FAULT=OP:COUNT:WHAT[,OP:COUNT:WHAT...] in the environment makes the COUNT-th call (from 1) of
 * OP in this process fail with status WHAT ("EDEVICE", "EIO"), or kill the process (WHAT "KILL"). Without the variable a
 * check costs one load. */
#ifndef SY_BASE_FAULT_H
#define SY_BASE_FAULT_H

#include <stdbool.h>

extern bool sy_fault_enabled; /* set at start when SY_FAULT is there */

/* SY_OK, or the status to fail with (error text set). Thread safe. Called through the macro, which costs a load where no fault is set. */
int sy_fault_check(const char *op);
#define sy_fault(op) (sy_fault_enabled ? sy_fault_check(op) : 0)

#endif
