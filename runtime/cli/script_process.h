/* The process of a foreign job, as `switchyard run` has it: its page, the socket for workers, signals to its group.
 *
 *   prepare -> (a worker connects: HELLO with the page) -> spawn, or adopt -> look ... look: ended -> finish
 *
 * The script is a process group of its own, so that it can be stopped with its children; descendants that left the group are reached one by one, orphans
 * included (script_tree.h). It is killed when its run dies, and one that joined by itself goes on (script_keeper.h). While no worker is connected
 * the gate is closed; sy_script_let_go (script_signals.h) opens it for good. One thread. */
#ifndef SY_CLI_SCRIPT_PROCESS_H
#define SY_CLI_SCRIPT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "allocator/shared_memory.h"
#include "runtime/base/clock.h"
#include "runtime/cli/script_cgroup.h"
#include "workers/torch/script_page.h"

/* In its environment, which what it starts inherits: the folder, which no other run has. */
#define SY_SCRIPT_RUN_VARIABLE "SWITCHYARD_RUN"

struct sy_script_process {
    char folder[64], socket[96];
    int listener, link, pidfd;           /* -1: none */
    char cgroup[SY_SCRIPT_CGROUP_BYTES]; /* script_cgroup.h; "": none */
    struct sy_shared_memory memory;
    struct sy_script_page *page;
    pid_t pid;    /* 0: not yet */
    pid_t keeper; /* script_keeper.h; 0: none */
    int keeper_pipe;
    char mark
        [96]; /* in its environment, by which what descends from it is found when nothing else is left */
    bool is_child;   /* else it joined by itself */
    bool is_stopped; /* by us */
    bool is_alone;   /* goes on without a server */
    bool ended;
    int wait_status;   /* as of waitpid; -1: not known */
    bool has_left;     /* it ended, and processes of its group did not: they are ended by finish */
    sy_ns lost_ns;     /* when the worker was lost; 0: it is there */
    sy_ns kill_ns;     /* when SIGKILL follows; 0: not */
    sy_ns patience_ns; /* between SIGTERM and SIGKILL */
    uint64_t
        process_limit_bytes; /* by the caller: of all its processes' memory, 0: none; beyond it they are killed */
    uint64_t over_bytes; /* what they had then; 0: they were not */
    sy_ns weigh_ns;      /* when their memory is looked at next */
};

/* Zeroed struct in. Limits of CPU tensors and on each accelerator, 0: none. Page, folder (0700), listening socket. */
int sy_script_process_prepare(struct sy_script_process *p, uint64_t limit_bytes,
                              uint64_t device_limit_bytes, uint64_t patience_ns);
/* Before the script starts: its tensors may be spilled to a file without a name in that folder. EARG. */
int sy_script_process_allow_spill(struct sy_script_process *p, const char *folder);
/* Starts argv with the page's path in its environment; `hooks`: folder of the Python hooks, NULL: none. ENOTFOUND, EIO. */
int sy_script_process_spawn(struct sy_script_process *p, char **argv, const char *hooks);
/* A process that is there already. */
int sy_script_process_adopt(struct sy_script_process *p, pid_t pid);
/* "/proc/PID/fd/N" of the page, for another process of this user. */
void sy_script_process_page_path(const struct sy_script_process *p, char *out, size_t size);
/* Waits up to timeout_ms, or until `extra` is readable; does what workers say; notices the script's end. */
void sy_script_process_look(struct sy_script_process *p, int timeout_ms, int extra);
/* To its group. */
void sy_script_process_signal(struct sy_script_process *p, int number);
/* Tells the worker how it ended and waits for it to have heard; removes the socket. */
void sy_script_process_finish(struct sy_script_process *p);

#endif
