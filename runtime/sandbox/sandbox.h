/* What a process may still do once it handles what others wrote: model files at import, requests and jobs in a worker.
 *
 * A process goes in by itself, before it looks at such input, and never comes out. Four parts, each as far as the kernel has it: no new
 * privileges, capabilities dropped, Landlock (files, TCP, signals), a seccomp filter in which what is not listed fails with EPERM. */
#ifndef SY_SANDBOX_H
#define SY_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>

#define SY_SANDBOX_MAX_PATHS 48

/* Files and folders that stay within reach: all else is refused with EACCES where there is Landlock. What does not exist is skipped. */
struct sy_sandbox_paths {
    const char *read[SY_SANDBOX_MAX_PATHS];
    int n_read;
    /* one folder: files are made, written, renamed and removed in it. NULL: none */
    const char *write;
};

/* 0: no limit. Under a sanitizer the memory limit is not set: its shadow is larger than any. */
struct sy_sandbox_limits {
    /* private memory that it may write (RLIMIT_DATA); four times as much of addresses */
    uint64_t data_bytes;
    uint64_t file_bytes;  /* of one file, one in memory too */
    uint64_t cpu_seconds; /* of all its threads */
};

/* The parts that took effect; a part that the kernel lacks has its reason in *_why. */
struct sy_sandbox_state {
    int landlock_abi; /* 0: none */
    bool filtered;
    char landlock_why[100], filter_why[100];
};

/* For a process that reads one model file: the paths alone, no network, no process but itself. Of the calling thread and those that it makes: call it
 * before there are others. EIO: the kernel refused a part that it has; then the process must not go on. */
int sy_sandbox_enter_import(const struct sy_sandbox_paths *paths,
                            const struct sy_sandbox_limits *limits, struct sy_sandbox_state *out);
/* For a worker: any file (jobs name their own), no new sockets but a name of its own, no program started, no other process touched. As above. */
int sy_sandbox_enter_worker(struct sy_sandbox_state *out);
/* For a process that holds descriptors and hands them to clients (runtime/keeper/): no file at all, no socket but those that it has. As above. */
int sy_sandbox_enter_keeper(struct sy_sandbox_state *out);
/* no_new_privs alone: for a worker whose device driver needs more than a filter can list. EIO. */
int sy_sandbox_no_new_privs(void);

/* "landlock 7, seccomp", or what is missing and why. */
void sy_sandbox_describe(const struct sy_sandbox_state *state, char *out, int n);

#endif
