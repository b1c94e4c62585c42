/* The parts of a sandbox, one file each. */
#ifndef SY_SANDBOX_INTERNAL_H
#define SY_SANDBOX_INTERNAL_H

#include "runtime/sandbox/sandbox.h"

/* Calls that a filter allows in addition to those that all kinds of process need. */
enum sy_sandbox_kind { SY_SANDBOX_IMPORT, SY_SANDBOX_WORKER, SY_SANDBOX_KEEPER };

/* EUNSUPPORTED: this kernel has none; EIO. paths NULL: any file, nothing is executed, no special file is made. */
int sy_landlock_enter(const struct sy_sandbox_paths *paths, int *abi);
int sy_seccomp_enter(enum sy_sandbox_kind kind);

#endif
