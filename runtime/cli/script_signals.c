#include "runtime/cli/script_signals.h"

#include <signal.h>
#include <unistd.h>

#include "runtime/cli/script_tree.h"
#include "runtime/wire/control_page.h"

void sy_script_set_gate(struct sy_script_process *p, uint32_t closed)
{
    uint32_t gate = atomic_load(&p->page->gate);
    if ((gate & 1) == closed)
        return;
    atomic_store(&p->page->gate, gate + 1);
    sy_futex_wake(&p->page->gate);
}

int sy_script_list_processes(const struct sy_script_process *p, pid_t *pids)
{
    int n = p->is_child ? sy_script_tree_list(getpid(), false, pids)
                        : sy_script_tree_list(p->pid, true, pids);
    for (int i = 0; i < n; i++)
        if (pids[i] == p->keeper)
            pids[i--] = pids[--n];
    return n;
}

/* Signals processes with a group or session of their own one by one. Returns their number. */
int sy_script_signal_strays(const struct sy_script_process *p, int number)
{
    pid_t pids[SY_SCRIPT_TREE_MOST];
    int n = p->is_child ? sy_script_list_processes(p, pids) : 0, sent = 0;
    for (int i = 0; i < n; i++)
        sent += getpgid(pids[i]) != p->pid && kill(pids[i], number) == 0;
    return sent;
}

void sy_script_signal_group(const struct sy_script_process *p, int number)
{
    if (p->pid > 0 && !p->ended)
        (void)kill(p->is_child ? -p->pid : p->pid, number);
}

void sy_script_stop(struct sy_script_process *p)
{
    p->is_stopped = true;
    sy_script_signal_group(p, SIGSTOP);
    (void)sy_script_signal_strays(p, SIGSTOP);
}

void sy_script_continue(struct sy_script_process *p)
{
    if (p->is_stopped) {
        sy_script_signal_group(p, SIGCONT);
        (void)sy_script_signal_strays(p, SIGCONT);
    }
    p->is_stopped = false;
}

/* G4 */
void sy_script_restore_tensors(struct sy_script_process *p)
{
    if (atomic_exchange(&p->page->spill_want, 0))
        sy_futex_wake(&p->page->spill_want);
}

void sy_script_let_go(struct sy_script_process *p)
{
    p->is_alone = true;
    sy_script_restore_tensors(p);
    sy_script_set_gate(p, 0);
    sy_script_continue(p);
}
