/* A cgroup (version 2) of a script's own: what descends from the script is in it, whatever session, parent or environment it has, and is ended
 * by one write. Made below the caller's own where the kernel has cgroup.kill (Linux 5.14) and the caller may: as root, or where a service
 * manager delegates. Elsewhere there is none, and a process is found as script_tree.h says. */
#ifndef SY_CLI_SCRIPT_CGROUP_H
#define SY_CLI_SCRIPT_CGROUP_H

#include <stddef.h>

#include "runtime/base/clock.h"

#define SY_SCRIPT_CGROUP_BYTES 1024

/* `name`: of the new folder, the last part of the script's own in /tmp. out: its path, "" if there is none; SY_SCRIPT_CGROUP_BYTES. */
void sy_script_cgroup_make(const char *name, char *out);
/* Moves the calling process there, which stays where it is if that fails; "" is fine, here and below. */
void sy_script_cgroup_enter(const char *path);
/* Moves the calling process out of the scripts' cgroups that it is in: it is not ended with them. */
void sy_script_cgroup_leave(void);
/* Ends all that is in it. */
void sy_script_cgroup_kill(const char *path);
/* Removes it when it is empty, those of runs within it first. Waits so long for what was killed; then it stays. */
void sy_script_cgroup_remove(const char *path, sy_ns patience);

#endif
