/* The processes of a script: all that descend from one, whatever group or session they made for themselves. Read from /proc, so as of a moment.
 *
 * The script's `switchyard run` adopts orphans (PR_SET_CHILD_SUBREAPER): a process whose parent has ended stays in the tree. */
#ifndef SY_CLI_SCRIPT_TREE_H
#define SY_CLI_SCRIPT_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SY_SCRIPT_TREE_MOST 4096 /* more are not seen */

/* Descendants of `root` that live (no zombies), and `root` itself if with_root; never the caller. out: SY_SCRIPT_TREE_MOST. How many; 0 if /proc is not
 * there. */
int sy_script_tree_list(pid_t root, bool with_root, pid_t *out);
/* Lists what is left of a tree whose root has ended: the descendants of `reaper`, which adopted its orphans, that have this "NAME=value" in their environment,
 * as have all processes between them and the reaper. A process that changed its environment is not found; one that others started on its behalf (at, a batch
 * system) is not a descendant. */
int sy_script_tree_list_left(pid_t reaper, const char *setting, pid_t *out);
/* Memory of these processes together: private, and shared that is in no file. What several of them share counts once. At or below `enough` it may be too
 * much by what they share, which is cheaper to read. */
uint64_t sy_script_tree_memory(const pid_t *pids, int n, uint64_t enough);
/* Whether one of these processes could compute. *ran_ns: what they have computed together, which does not grow while none has a core. */
bool sy_script_tree_wants_core(const pid_t *pids, int n, uint64_t *ran_ns);

#endif
